"""Every benchmark runs to its end, at a size at which its figures mean nothing."""

import subprocess
import sys
from pathlib import Path

import pytest

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
    "bench_decode.py": "it decodes thousands of prompts in six ways with a real model",
    "bench_endpoint.py": "it starts a server with a real model, and asks it thousands of prompts",
    "bench_metrics.py": "the formulas, read literally, take minutes at any size",
    "bench_scoring.py": "it scores with a real model in three ways",
    "bench_together.py": "it starts ten drivers, each with a Ray of its own",
    "bench_trie.py": "it compares with a real model in five ways",
}


def test_every_benchmark_is_run_here_or_says_why_not() -> None:
    assert {path.name for path in FOLDER.glob("bench_*.py")} == SMALL.keys() | LONG.keys()


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    "script", [pytest.param(each, marks=[pytest.mark.chaos] * (each in SELDOM)) for each in SMALL]
)
def test_benchmark_runs_to_its_end(script: str) -> None:
    command = [sys.executable, str(FOLDER / script), *SMALL[script]]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
