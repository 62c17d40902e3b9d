"""Ctrl-C or SIGTERM at any moment: exit code 130, no traceback, and the next run goes on.

As a terminal does it, all processes of the group get SIGINT; a scheduler sends the driver SIGTERM.
The engine is fake: see sweep.py.
"""

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from tests.faults.sweep import CHUNK, SMALL, Sweep

pytestmark = [pytest.mark.faults, pytest.mark.timeout(900)]


@pytest.mark.parametrize("module", ["argparse", "logging", "polars", "omegaconf"])
def test_import_that_is_interrupted_ends_with_130(module: str) -> None:
    command = [
        sys.executable,
        "-X",
        "importtime",
        "-m",
        "factsweep.pipeline.cli",
        "plan",
        "sweep=demo",
    ]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        for line in process.stderr:
            if line.rpartition("|")[2].strip().partition(".")[0] == module:
                process.send_signal(signal.SIGINT)
                break
        other_lines = [line for line in process.stderr if not line.startswith("import time:")]
    assert process.returncode == 130, other_lines
    assert len(other_lines) <= 1, other_lines


def lease_is_taken(sweep: Sweep) -> bool:
    return bool(sweep.names("facts", "leases"))


def ray_starts(sweep: Sweep) -> bool:
    return bool(sweep.raylets())


def engines_load(sweep: Sweep) -> bool:
    return bool(sweep.engines())


def engines_answer(sweep: Sweep) -> bool:
    return len(sweep.answered()) > CHUNK


def all_is_answered(sweep: Sweep) -> bool:
    return bool(sweep.names("matched"))


def results_are_written(sweep: Sweep) -> bool:
    return any(sweep.folder.glob("results/*/metrics.parquet"))


Phase = Callable[[Sweep], bool]
PHASES: tuple[Phase, ...] = (
    lease_is_taken,
    ray_starts,
    engines_load,
    engines_answer,
    all_is_answered,
    results_are_written,
)


@pytest.mark.parametrize(
    ("kill", "number", "phases"),
    [
        (os.killpg, signal.SIGINT, (all_is_answered,)),
        (os.kill, signal.SIGTERM, (lease_is_taken, engines_answer, results_are_written)),
        pytest.param(os.killpg, signal.SIGINT, PHASES, marks=pytest.mark.chaos),
        pytest.param(os.kill, signal.SIGTERM, PHASES, marks=pytest.mark.chaos),
    ],
)
def test_run_that_is_interrupted_in_a_phase_ends_with_130_and_goes_on(
    kill: Callable[[int, int], None],
    number: int,
    phases: tuple[Phase, ...],
    calm: Sweep,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("FACTSWEEP_TEST_SMALL", "yes")
    for has_come in phases:  # each in a new sweep: a stop may come when all is answered
        sweep = Sweep(tmp_path / has_come.__name__, SMALL, seconds_per_answer=0.03)
        sweep.start().until(partial(has_come, sweep))
        assert sweep.process is not None
        kill(sweep.process.pid, number)
        outcome = sweep.finish()
        if has_come is results_are_written and outcome.returncode == 0:
            # On a busy machine the run ends before the signal is sent.
            assert sweep.tables() == calm.tables()
        else:
            assert outcome.returncode == 130, (has_come, outcome.stderr)
        assert "Traceback" not in outcome.stderr, (has_come, outcome.stderr)
        assert sweep.store.names("writers") == []
        outcome = sweep.finish()
        assert outcome.returncode == 0, outcome.stderr
        assert sweep.tables() == calm.tables()
        assert sorted(sweep.answered()) == sorted(calm.answered())
