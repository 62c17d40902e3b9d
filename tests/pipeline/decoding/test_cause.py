"""Why an engine died, from logs as engines leave them."""

from pathlib import Path

import pytest

from factsweep.pipeline.decoding import cause

CORE = """
(EngineCore_DP0 pid=7) ERROR 11-22 09:20:11 [core.py:708] EngineCore failed to start.
(EngineCore_DP0 pid=7) ERROR 11-22 09:20:11 [core.py:708] Traceback (most recent call last):
(EngineCore_DP0 pid=7) ERROR 11-22 09:20:11 [core.py:708]   File "core.py", line 1, in run
(EngineCore_DP0 pid=7) ERROR 11-22 09:20:11 [core.py:708] ValueError: To serve 4096 needs 9 GiB.
"""
PARENT = """
Traceback (most recent call last):
  File "utils.py", line 1, in wait
RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {}
"""
RAISED = "RuntimeError: Unsupported CPU attention configuration: head_dim=16\n"
WATCHDOG = 'Timeout (0:00:02)!\nThread 0x01 (most recent call first):\n  File "a.py", line 1 in f\n'


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "worker.err"


@pytest.mark.parametrize(
    ("written", "found"),
    [
        (PARENT + RAISED, RAISED.strip()),
        (CORE + PARENT, "ValueError: To serve 4096 needs 9 GiB."),
        ("torch.OutOfMemoryError: CUDA out of memory.\nbye\n", "torch.OutOfMemoryError: CUDA out "),
        ("Fatal Python error: Segmentation fault\n\nThread 1:\n", "Fatal Python error: Segment"),
        (WATCHDOG, "Timeout (0:00:02)!"),
        ("one\n\ntwo\nthree\nfour\n", "two / three / four"),
        ("", cause.SILENT),
    ],
)
def test_cause_log_names_the_last_error_that_says_something(
    written: str, found: str, log: Path
) -> None:
    log.write_text(written)
    assert cause.of_log(log).startswith(found)


def test_cause_error_in_the_output_is_found_where_the_errors_only_point_to_it(log: Path) -> None:
    log.write_text(PARENT)
    log.with_suffix(".out").write_text(CORE)
    pointing = RuntimeError("Engine core initialization failed. See root cause above.")
    assert cause.of_error(pointing, log) == "ValueError: To serve 4096 needs 9 GiB."


def test_cause_error_that_says_something_is_itself(log: Path) -> None:
    log.write_text(CORE)
    assert cause.of_error(ValueError("two\n lines"), log) == "ValueError: two lines"


def test_last_lines_end_with_what_was_written_last(log: Path) -> None:
    log.write_text("".join(f"line {i}\n\n" for i in range(100)))
    assert cause.last_lines(log)[-2:] == ["line 98", "line 99"]
    assert len(cause.last_lines(log)) == 8


def test_last_lines_of_a_log_elsewhere_are_none(log: Path) -> None:
    assert cause.last_lines(log) == []


def test_cause_has_no_secret(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_verysecretindeed")
    log.write_text("OSError: hf_verysecretindeed is refused\n")
    assert "verysecret" not in cause.of_log(log)


def test_cause_log_that_is_gone_is_told_as_silence(log: Path) -> None:
    assert cause.of_log(log) == cause.SILENT
