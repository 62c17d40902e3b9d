"""A study whose models share the GPUs of one cluster.

The GPUs are only claimed, and the engine is fake: see sweep.py.
"""

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import polars as pl
import psutil
import pytest
from ray.cluster_utils import Cluster

from factsweep.pipeline.execution.cluster import of_one_machine
from tests.faults.sweep import CHUNK, SMALL, Sweep, kill, title
from tests.messages import naming

pytestmark = [pytest.mark.faults, pytest.mark.timeout(900)]
MODELS = ("ada", "bea", "cia", "dea", "eva")


@pytest.fixture
def four_gpus() -> Iterator[str]:
    """A node that claims four GPUs; returns its address."""
    with of_one_machine():
        cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 8, "num_gpus": 4})
    yield cluster.address
    cluster.shutdown()


class Study(Sweep):
    """A study of several fake models, as a process that can be killed and started again."""

    def _command(self, verb: str, clock_s: float = 0.0) -> "subprocess.Popen[str]":
        overrides = [each for each in self._overrides if not each.startswith("run_name=")]
        return subprocess.Popen(
            [sys.executable, "-m", "factsweep.pipeline.cli", "study", "five", verb, *overrides],
            env={**os.environ, "FACTSWEEP_FAKE_ENGINE": self._wish},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )


def given(address: str, models: Sequence[str] = MODELS) -> list[str]:
    return [
        *SMALL,
        f"cluster.address={address}",
        f"model.id={','.join(models)}",
        "cluster.device=cuda",
        "cluster.rows_per_shard=50",
        "model.replicas.max=2",
    ]


def engines() -> list[psutil.Process]:
    """The processes that hold an engine, of all Rays of this process."""
    family = psutil.Process().children(recursive=True)
    return [each for each in family if "MapWorker" in title(each)]


def spans(folder: Path) -> pl.DataFrame:
    return pl.concat(map(pl.read_parquet, folder.glob("results/five/*/logs/gpus.parquet")))


def overlap(found: pl.DataFrame) -> bool:
    """Whether engines of several runs answered at the same time."""
    at = found.filter(doing="answering")
    both = at.join_where(
        at,
        pl.col("run") != pl.col("run_right"),
        pl.col("began") < pl.col("ended_right"),
        pl.col("began_right") < pl.col("ended"),
    )
    return both.height > 0


def test_models_side_by_side_of_which_one_is_broken_and_an_engine_is_killed(
    four_gpus: str, tmp_path: Path
) -> None:
    study = Study(
        tmp_path,
        given(four_gpus),
        seconds_per_answer=1,  # so that none is done before another is loaded
        broken="no such weights",
        of="cia",
    ).start()
    study.until(lambda: max(Counter(study.answered()).values(), default=0) > 1)  # by two models
    study.until(lambda: len(study.answered()) > 40 and len(engines()) >= 4)
    kill(engines()[0])
    done = study.finish()
    assert done.returncode == 1, done.stderr
    assert "five: 4 runs, 1 missing" in done.stdout
    assert re.search(naming("factsweep: cia failed", "no such weights"), done.stderr)
    answered = Counter(study.answered())
    assert set(answered.values()) <= {4, 5}
    assert sum(answered.values()) <= 4 * len(answered) + CHUNK
    found = spans(tmp_path)
    assert overlap(found)
    assert set(found["gpus"].explode()) == {"0", "1", "2", "3"}
    assert "all of 4 GPUs" in (tmp_path / "results/five/report/tables/gpus.md").read_text()
    assert (tmp_path / "results/five/report/figures/gpus.png").exists()
    record = json.loads((tmp_path / "results/five/ada/run.json").read_text())
    assert record["run"]["model"]["replicas"]["max"] == 2  # as given, not as shared out
    again = Study(tmp_path, given(four_gpus)).finish()  # asks the one that was broken alone
    assert again.returncode == 0, again.stderr
    assert set(Counter(study.answered()).values()) <= {5, 6}


@pytest.mark.chaos
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_study_that_is_stopped_leaves_nothing_behind_and_resumes(
    four_gpus: str, tmp_path: Path, how: signal.Signals
) -> None:
    three = given(four_gpus, MODELS[:3])
    study = Study(tmp_path, three, seconds_per_answer=0.3).start()
    study.until(lambda: len(study.answered()) > 40)
    assert study.process is not None
    os.killpg(study.process.pid, how) if how == signal.SIGINT else study.process.kill()
    study.process.communicate(timeout=300)
    assert study.process.returncode == (130 if how == signal.SIGINT else -signal.SIGKILL)
    end = time.monotonic() + 60
    while engines():
        assert time.monotonic() < end
        time.sleep(0.2)
    study.process = None
    done = study.start().finish()
    assert done.returncode == 0, done.stderr
    answered = Counter(study.answered())
    assert min(answered.values()) == 3
    # What an engine was asked when it was stopped, or had not published when it was killed.
    lost = 4 * (1 if how == signal.SIGINT else CHUNK)
    assert sum(answered.values()) <= 3 * len(answered) + lost


@pytest.mark.chaos
def test_race_that_is_killed_resumes_and_asks_nothing_twice(tmp_path: Path) -> None:
    two = [*SMALL, "model.id=ada,bea", "budget=40%", "--until=ranked", "cluster.rows_per_shard=50"]
    race = Study(tmp_path, two, seconds_per_answer=0.05).start()
    race.until(lambda: len(race.answered()) > 0)
    n_first = 2 * 240  # 40 % of 600 prompts, of each
    race.until(lambda: len(race.answered()) > n_first + CHUNK)  # in the second look
    race.kill_driver()
    done = race.start().finish()
    assert done.returncode == 0, done.stderr
    answered = Counter(race.answered())
    assert set(answered.values()) <= {2, 3}  # the two answer alike: nothing tells them apart
    assert sum(answered.values()) <= 2 * len(answered) + CHUNK
