"""A run that is killed and started again, as processes of their own on the Ray of the session.

The engine is fake, since this is about scheduling; tests/faults has every other way to die.
"""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from factsweep.operators.engines.fake import WISH, FakeEngine
from factsweep.pipeline.config.settings import load
from factsweep.pipeline.stages.plan import Plan, planned


@pytest.mark.chaos  # as tests/faults/test_kills.py, with a real tokenizer
def test_run_killed_and_started_again_keeps_what_was_published(
    small: list[str], ray_address: str, compute_here: Callable[..., Plan], tmp_path: Path
) -> None:
    folders = [f"artifacts={tmp_path}/artifacts", f"results={tmp_path}/results"]
    given = [*small, *folders, f"cluster.address={ray_address}"]
    log = tmp_path / "answered.log"

    first = started(given, log, seconds_per_answer=0.1)
    while not list(tmp_path.glob("artifacts/generations/*/chunks/*/*/*.parquet")):
        assert first.poll() is None, first.communicate()
        time.sleep(0.05)
    first.kill()
    first.communicate()
    before = answered(log)

    second = started(given, log)
    _, errors = second.communicate()
    assert second.returncode == 0, errors

    asked: list[str] = []
    alone = load([*small, f"artifacts={tmp_path}/alone"])
    expected = compute_here(alone, FakeEngine(witness=asked.append)).branches[0]
    (found,) = planned(load(given)).branches
    assert found.metrics.read_all("metrics").equals(expected.metrics.read_all("metrics"))
    assert 5 <= before < len(asked) <= answered(log) < len(asked) + before


def started(given: list[str], log: Path, **wish: float) -> subprocess.Popen[str]:
    environment = {**os.environ, WISH: json.dumps({"log": str(log), **wish})}
    command = [sys.executable, "-m", "factsweep.pipeline.cli", "run", *given]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, env=environment, stdout=pipe, stderr=pipe, text=True)


def answered(log: Path) -> int:
    """How many prompts an engine was handed."""
    return len(log.read_text().splitlines())
