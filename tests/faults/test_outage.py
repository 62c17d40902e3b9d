"""The object store stops answering in the middle of a sweep. The engine is fake: see sweep.py."""

import json
import re
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.faults.sweep import CHUNK, SMALL, Sweep, kill
from tests.s3_server import Line, Server, bucket, serving

pytestmark = [pytest.mark.faults, pytest.mark.timeout(900)]
SILENCE_S = 15.0  # longer than one request waits for an answer


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    with serving(tmp_path / "requests.log") as server:
        yield server


def decoding(sweep: Sweep) -> Sweep:
    """Start a sweep and wait until its engines are at work."""
    return sweep.start().until(lambda: len(sweep.answered()) >= CHUNK)


@pytest.mark.chaos
def test_store_that_is_silent_for_a_while_is_waited_for(
    server: Server, calm: Sweep, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = bucket(server.url, monkeypatch)
    sweep = decoding(Sweep(tmp_path, SMALL, url, seconds_per_answer=0.03))
    server.process.send_signal(signal.SIGSTOP)
    time.sleep(SILENCE_S)
    server.process.send_signal(signal.SIGCONT)
    outcome = sweep.finish()
    assert outcome.returncode == 0, outcome.stderr
    assert sweep.tables() == calm.tables()
    assert sorted(sweep.answered()) == sorted(calm.answered())


@pytest.mark.chaos  # two minutes pass until the last client gives up
def test_store_that_is_gone_ends_the_run_and_one_that_is_back_lets_it_go_on(
    server: Server, calm: Sweep, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    line = Line(server.url)
    url = bucket(line.url, monkeypatch)
    sweep = decoding(Sweep(tmp_path, SMALL, url, seconds_per_answer=0.03))
    line.cut()
    outcome = sweep.finish()
    assert outcome.returncode == 2, outcome.stderr
    assert "Traceback" not in outcome.stderr
    # A reader or a writer gives up first.
    assert re.match(
        r"factsweep: s3://sweeps/\S* cannot be .*; check ", outcome.stderr.splitlines()[-1]
    )
    line.mend()
    repeated = sweep.finish()
    assert repeated.returncode == 0, repeated.stderr
    assert sweep.tables() == calm.tables()
    assert sweep.verify().returncode == 0
    assert len(sweep.answered()) <= len(calm.answered()) + CHUNK
    line.cut()


@pytest.mark.chaos  # half a minute passes until a head is given up
def test_head_of_ray_that_is_killed_ends_the_run_with_a_sentence(tmp_path: Path) -> None:
    sweep = decoding(Sweep(tmp_path, SMALL, seconds_per_answer=1))
    assert sweep.process is not None
    family = psutil.Process(sweep.process.pid).children(recursive=True)
    for process in family:
        if process.name() == "gcs_server":
            kill(process)
    stderr = sweep.process.communicate(timeout=600)[1]
    assert sweep.process.returncode == 1, stderr
    log = (tmp_path / "results/sweep/logs/run.log").read_text()
    last = json.loads((tmp_path / "results/sweep/progress.json").read_text())
    for message in (stderr, log, json.dumps(last)):
        assert re.search(r"Ray's head at \S+ has not answered for 30 seconds", message), message
    assert '"failed"' in json.dumps(last)
    for process in family:
        kill(process)
