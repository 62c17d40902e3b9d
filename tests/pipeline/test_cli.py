"""The command line: what is printed, where, and the exit code."""

import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from importlib import metadata
from pathlib import Path

import pytest

from factsweep.operators.errors import InputError
from factsweep.pipeline import cli as module
from factsweep.pipeline.cli import main
from factsweep.pipeline.config import folders, settings
from factsweep.pipeline.config.run import Run
from factsweep.pipeline.inputs import catalog
from factsweep.pipeline.machine.software import commit
from factsweep.pipeline.stages.plan import Plan, build_plan

Settings = Callable[..., Run]
Compute = Callable[..., Plan]
VERBS = ["run", "plan", "status", "verify", "score"]


@pytest.fixture
def cli(
    small: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> Callable[..., tuple[int, str, str]]:
    """Runs the small run's command in this process: exit code, what is printed, what is said."""

    def cli(verb: str, *overrides: str) -> tuple[int, str, str]:
        folders = [f"artifacts={tmp_path}/artifacts", f"results={tmp_path}/results"]
        code = main([verb, *small, *folders, *overrides])
        return code, *capsys.readouterr()

    return cli


Cli = Callable[..., tuple[int, str, str]]


def is_one_sentence(text: str) -> bool:
    return text.startswith("factsweep: ") and text.count("\n") == 1 and text.endswith(".\n")


def test_main_version_names_the_commit(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(["--version"])
    assert stopped.value.code == 0
    version = metadata.version("factsweep")
    revision = f" (commit {sha})" if (sha := commit()) else ""
    assert capsys.readouterr().out == f"factsweep {version}{revision}\n"


def test_main_config_dir_has_models_of_the_users(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(folders.VARIABLE, "")  # main sets it
    (tmp_path / "model").mkdir()
    (tmp_path / "model/hers.yaml").write_text("defaults: [smollm2-135m]\n")
    assert main(["plan", "--config-dir", str(tmp_path), "model=herz"]) == 2
    assert "Did you mean hers?" in capsys.readouterr().err


REFUSED = [
    *(([verb, "model=nope"], "there is no model 'nope'") for verb in VERBS),
    (["run", "benchmark=nope"], "there is no benchmark 'nope'"),
    (["run", "nope=1"], "nope"),
    (["run", "decoding.max_tokens=ten"], "decoding.max_tokens='ten'"),
    (["plan", "prompt.shots=0"], "prompt.shots=0"),
    (["plan", "prompt=masked"], "prompt.context is missing"),
    (["verify", "--nope", "seed=0"], "--nope"),
    (["verify", "-n", "seed=0"], "-n"),
    (["compare", "a", "b", "--gate", "smallest_difference=0.05"], "has no run a; it has"),
    (["report", "results=nowhere", "a", "b"], "has no run a; it has"),
    (["why", "abc", "def", "artifacts=nowhere"], "abc"),
    (["catalog", "fetch"], "fetch"),
    (["catalog", "verify"], "verify"),
    (["catalog", "verify", "missing"], "missing"),
    (["catalog", "fetch", "myriadlama-mini"], "myriadlama-mini"),
    (["catalog", "verify", "myriadlama"], "myriadlama"),
]


@pytest.mark.parametrize(("arguments", "name"), REFUSED)
def test_main_bad_input_is_one_sentence_and_2(
    arguments: list[str],
    name: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("FACTSWEEP_HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    assert main(arguments) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert is_one_sentence(err)
    assert name in err


MISSING = {
    "run": "model.id=/nowhere",
    "plan": "benchmark.path=/nowhere",
    "status": "benchmark.data=nope",
    "verify": "model.source=package",
    "score": "answers=/nowhere.jsonl",
}


@pytest.mark.parametrize(("verb", "override"), MISSING.items())
def test_main_missing_input_is_one_line_and_2(cli: Cli, verb: str, override: str) -> None:
    code, out, err = cli(verb, override)
    assert (code, out) == (2, "")
    assert err.startswith("factsweep: ")
    assert err.count("\n") == 1


def test_run_finished_run_prints_the_card(finished: Plan, cli: Cli) -> None:
    code, out, err = cli("run")
    assert (code, err) == (0, "")
    assert "tiny on myriadlama-mini" in out
    assert "Acc@1" in out
    assert out.strip().endswith(f"{finished.run.results}/{finished.run.name}/")


def test_run_composes_its_settings_once(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    composed, load = list[Run](), settings.load

    def counted(overrides: Sequence[str]) -> Run:
        composed.append(load(overrides))
        return composed[-1]

    monkeypatch.setattr(settings, "load", counted)
    monkeypatch.setattr("factsweep.pipeline.runs.run.run", lambda run: None)
    assert cli("run")[0] == 2  # nothing was run, so there are no results to show
    assert len(composed) == 1


@pytest.mark.parametrize(
    ("arguments", "libraries"),
    [
        (["--version"], {"polars", "hydra", "matplotlib", "scipy", "ray"}),
        (["run", "--help"], {"polars", "matplotlib", "scipy", "ray"}),
        (["run", "seed=x"], {"scipy", "matplotlib", "ray"}),
        (["plan", "benchmark.relations=[P36]"], {"torch", "sklearn", "pandas"}),
        (["status"], {"jinja2", "transformers", "ray"}),
    ],
)
def test_main_quick_answers_load_no_library_that_they_do_not_need(
    arguments: list[str], libraries: set[str]
) -> None:
    assert loaded(arguments, libraries) == ""


@pytest.mark.slow
def test_run_finished_run_loads_no_ray(finished: Plan, small: list[str]) -> None:
    folders = [f"artifacts={finished.run.artifacts}", f"results={finished.run.results}"]
    assert loaded(["run", *small, *folders], {"ray", "transformers"}) == ""


@pytest.mark.slow
def test_processes_of_engines_and_tasks_load_no_library_that_they_do_not_need() -> None:
    """Each worker of Ray imports what its task names."""
    code = """
import sys
import factsweep.pipeline.decoding.decoder, factsweep.pipeline.runs.run_tasks
from factsweep.operators.metrics.comparing.comparison import mcnemar
mcnemar(5, 0)
print(*sorted({"hydra", "matplotlib", "scipy.stats", "transformers"} & sys.modules.keys()))
"""
    process = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
    assert process.stdout == b"\n"


def loaded(arguments: list[str], libraries: set[str]) -> str:
    """Which of the libraries a command has loaded when it ends."""
    code = f"""
import atexit, sys
atexit.register(lambda: print(*sorted({libraries} & sys.modules.keys()), file=sys.stderr))
from factsweep.pipeline.cli import main
main({arguments})
"""
    process = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False
    )
    return process.stderr.splitlines()[-1]


def test_run_too_many_failures_are_one_line_and_1(
    cli: Cli, small_settings: Settings, compute_here: Compute
) -> None:
    compute_here(small_settings("model.max_model_len=235"))
    code, _, err = cli("run", "model.max_model_len=235")
    assert code == 1
    sentence, log, published = err.splitlines()
    assert sentence.startswith("factsweep: 4-template: ")
    assert log.startswith("  log: ")
    assert published.startswith("  published so far: ")


def test_run_interrupted_says_what_is_next(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(run: Run) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("factsweep.pipeline.runs.run.run", interrupted)
    code, _, err = cli("run")
    assert code == 130
    assert err == "factsweep: stopped; the next run resumes from what is published.\n"


@pytest.mark.parametrize(
    ("error", "sentence"),
    [
        (
            PermissionError(13, "Permission denied", "/srv/results"),
            "/srv/results: Permission denied; check its rights and its owner, then run again.",
        ),
        (
            OSError(28, "No space left on device"),
            "No space left on device; make room on its disk, then run again.",
        ),
        (
            OSError("AWS Error NETWORK_CONNECTION: refused"),
            "AWS Error NETWORK_CONNECTION: refused; check the disk and the network, then run",
        ),
        (InputError("it is \x1b[31mred."), "it is \\x1b[31mred."),
    ],
)
def test_run_error_of_the_machine_is_one_sentence_and_2(
    cli: Cli, monkeypatch: pytest.MonkeyPatch, error: Exception, sentence: str
) -> None:
    def failing(run: Run) -> None:
        raise error

    monkeypatch.setattr("factsweep.pipeline.runs.run.run", failing)
    code, _, err = cli("run")
    assert code == 2
    assert err.startswith(f"factsweep: {sentence}")
    assert is_one_sentence(err)


def test_command_interrupted_while_it_ends_is_130_without_a_traceback(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted() -> int:
        raise KeyboardInterrupt

    codes = list[int]()
    monkeypatch.setattr(module, "main", interrupted)
    monkeypatch.setattr(module, "end", codes.append)
    monkeypatch.setattr(module.atexit, "_run_exitfuncs", lambda: None)
    monkeypatch.setattr(module.signal, "signal", lambda *_: None)
    module.command()
    assert codes == [130]
    assert capsys.readouterr().err == ""


DURING_CONFIGURATION = """
import os, signal, time
from omegaconf import OmegaConf
from factsweep.pipeline import cli

read = []
def interrupt():
    os.kill(os.getpid(), signal.SIGINT)
    read.append("whole")
    return 1

def main():
    OmegaConf.register_new_resolver("interrupt", interrupt)
    OmegaConf.to_container(OmegaConf.create({"one": "${interrupt:}"}), resolve=True)
    print(*read, flush=True)
    time.sleep(60)

cli.main = main
cli.command()
"""
DURING_POLARS = """
import os, signal, time
from factsweep.pipeline import cli

said = []
within = {"__name__": "polars.datatypes.classes", "os": os, "signal": signal, "said": said}
exec("def ask(): os.kill(os.getpid(), signal.SIGINT); said.append('whole')", within)

def main():
    within["ask"]()
    print(*said, flush=True)
    while True:  # an endless call of Polars is interrupted all the same
        within["ask"]()

cli.main = main
cli.command()
"""


@pytest.mark.parametrize("script", [DURING_CONFIGURATION, DURING_POLARS], ids=["conf", "polars"])
def test_command_interrupted_in_a_callback_ends_after_it(script: str) -> None:
    """OmegaConf's half a configuration fails by itself; Polars loses an error of a callback."""
    process = subprocess.run(
        [sys.executable, "-c", script], check=False, capture_output=True, text=True, timeout=300
    )
    assert (process.returncode, process.stdout, process.stderr) == (130, "whole\n", "")


def test_command_interrupted_where_an_object_is_deleted_ends_after_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What is raised in `__del__` is printed, and lost."""
    delays: list[float] = []
    monkeypatch.setattr(module.signal, "setitimer", lambda _, seconds: delays.append(seconds))

    class Deleted:
        def __del__(self) -> None:
            module._raise_interrupt(signal.SIGINT, sys._getframe())

    Deleted()
    assert delays == [0, module._AGAIN_S]  # the first stops a timer
    with pytest.raises(KeyboardInterrupt):
        module._raise_interrupt(signal.SIGINT, None)


STOPPED_IN = """
import os, signal, sys, time
from types import SimpleNamespace
from factsweep.pipeline import cli
from factsweep.pipeline.storage.folder import Folder
from factsweep.pipeline.storage.lease import Writer, hold_leases
from factsweep.pipeline.storage.store import Store

store, moment = Store(sys.argv[1]), sys.argv[2]
owner = Folder if hasattr(Folder, moment) else Writer
original, calls = getattr(owner, moment), []

def stop(*args, **kwargs):
    calls.append(args)
    if len(calls) == int(sys.argv[3]):
        os.kill(os.getpid(), signal.SIGTERM)
    return original(*args, **kwargs)

def main():
    setattr(owner, moment, stop)
    with hold_leases(store, ["one", "two"], wait=False):
        pass
    time.sleep(1.0)
    return 0

def reported(arguments=None):
    from factsweep.pipeline.commands import command_line
    command_line._parse_arguments = lambda _: SimpleNamespace(run=lambda _: main())
    return command_line.main([])

cli.main = reported
cli.command()
"""


@pytest.mark.parametrize(("moment", "call"), [("put", 1), ("create", 2), ("end", 1)])
def test_command_that_is_sent_sigterm_gives_its_leases_back(
    moment: str, call: int, tmp_path: Path
) -> None:
    process = subprocess.run(
        [sys.executable, "-c", STOPPED_IN, str(tmp_path), moment, str(call)],
        check=False,
        capture_output=True,
        text=True,
    )
    said = "factsweep: stopped by SIGTERM; the next run resumes from what is published.\n"
    assert (process.returncode, process.stderr) == (130, said)
    assert list(tmp_path.glob("writers/*")) == []
    assert list(tmp_path.rglob(".*")) == []


def test_command_store_that_does_not_answer_is_started_again_as_often_as_asked() -> None:
    script = """
import sys
from factsweep.pipeline import cli

codes = [75, 75, CODE, 75]
def start(_, words):
    print(*words[1:], flush=True)
    sys.argv[1:] = words[4:]
    cli.command()

cli.main = lambda: codes.pop(0)
cli.time.sleep = lambda _: None
cli.os.execv = start
sys.argv[1:] = ["run", "seed=1", "--attempts=3"]
cli.command()
"""
    for code, n_starts in ((75, 3), (2, 2), (0, 2)):
        command = [sys.executable, "-c", script.replace("CODE", str(code))]
        process = subprocess.run(command, check=False, capture_output=True, text=True)
        assert (process.returncode, process.stderr) == (code, "")
        start = "-P -m factsweep.pipeline.cli run seed=1 --attempts="
        assert process.stdout.splitlines() == [f"{start}{n}" for n in (2, 1, 0)[:n_starts]]


def test_plan_prints_the_counts(cli: Cli) -> None:
    code, out, err = cli("plan")
    assert (code, err) == (0, "")
    assert "  prompts         72 (P30 36, P36 36)" in out
    assert "  generations     70 prompts, 70 answers left" in out
    assert "  canary          13 prompts, 13 answers left: asked again, to see" in out
    assert "  samples         8 prompts, 800 answers left: drawn at random" in out


def test_status_prints_a_line_a_stage(finished: Plan, cli: Cli) -> None:
    code, out, _ = cli("status")
    assert code == 0
    assert out.count("  done\n") == 11


def test_verify_names_a_damaged_file_and_repair_sets_it_aside(finished: Plan, cli: Cli) -> None:
    store = ["--all", f"artifacts={finished.run.artifacts}"]
    code, out, err = cli("verify")
    assert (code, err) == (0, "")
    assert out.endswith(" shards read, 0 problems\n")
    assert cli("verify", *store)[0] == 0
    greedy = finished.branches[0].answers
    path = f"{greedy.folder}/generations/P30.0000.parquet"
    greedy.store.put(path, b"damaged")
    code, out, err = cli("verify")
    assert code == 2
    assert greedy.store.where(path) in err
    assert out.endswith(" shards read, 1 problem\n")
    for words in (store, ["--repair", "seed=0"]):
        code, _, err = cli("verify", *words)
        assert code == 2
        assert "P30.0000.parquet has 7 bytes, not" in err
    assert "P30.0000" not in greedy.list_published("generations")


def test_score_own_answers_prints_the_card(finished: Plan, cli: Cli, tmp_path: Path) -> None:
    answers = finished.branches[0].answers.read_all("generations")
    answers.write_parquet(tmp_path / "answers.parquet")
    code, out, _ = cli("score", f"answers={tmp_path}/answers.parquet")
    assert code == 0
    assert "Acc@1" in out


def test_why_two_runs_names_what_differs(
    finished: Plan,
    small_settings: Settings,
    compute_here: Compute,
    capsys: pytest.CaptureFixture[str],
) -> None:
    other = compute_here(small_settings("decoding.max_tokens=9", "seed=0"))
    names = [plan.branches[0].answers.fingerprint for plan in (finished, other)]
    assert main(["why", *names, f"artifacts={finished.run.artifacts}"]) == 0
    header, *fields = capsys.readouterr().out.splitlines()
    assert header == f"generations/{names[0]} → generations/{names[1]}"
    assert "  fields.sampling.max_tokens: 10 → 9" in fields
    assert len(fields) == 2  # the other is inputs.admitted: the room for an answer


def test_why_same_artifact_says_so(finished: Plan, capsys: pytest.CaptureFixture[str]) -> None:
    name = build_plan(finished.run).branches[0].answers.fingerprint[:8]
    assert main(["why", name, name, f"artifacts={finished.run.artifacts}"]) == 0
    assert capsys.readouterr().out.endswith("  the same recipe\n")


def test_catalog_list_names_every_entry(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["catalog", "list"]) == 0
    names = [line.split()[0] for line in capsys.readouterr().out.splitlines()]
    assert names == catalog.list_names()
    assert {"kamel", "myriadlama", "myriadlama-mini", "probelm-mini"} < {*names}


def test_catalog_verify_shipped_set_is_0(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["catalog", "verify", "myriadlama-mini"]) == 0
    assert capsys.readouterr().out == "myriadlama-mini: as the catalog says\n"


def test_catalog_verify_other_rows_is_1_and_says_what_differs(
    small: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    (path,) = [o.partition("=")[2] for o in small if o.startswith("benchmark.path=")]
    assert main(["catalog", "verify", "myriadlama-mini", "--path", path]) == 1
    assert "pairs: expected 553, found 13" in capsys.readouterr().out


def test_run_that_is_done_is_known_by_its_name(
    sound: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(sound)
    for verb, words in {
        "status": "metrics",
        "verify": "0 problems",
        "plan": "nothing is left",
    }.items():
        for name in ("two", "run_name=two"):
            assert main([verb, name]) == 0, (verb, name)
            assert words in capsys.readouterr().out, (verb, name)
    assert main(["status", "two"]) == main(["status", "one"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(set(lines)) > len(lines) / 2  # other models, other fingerprints
    monkeypatch.chdir(sound.parent)  # from anywhere
    assert main(["verify", "two", f"results={sound}/results"]) == 0
    capsys.readouterr()
    for words, name_in_message in {
        ("tow",): "two",
        ("two", "seed=1"): "seed=1",
        ("two", "one"): "one",
    }.items():
        assert main(["status", *words, f"results={sound}/results"]) == 2
        assert name_in_message in capsys.readouterr().err
