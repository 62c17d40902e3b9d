"""The page of a run that goes on: there during the run, marked, and never in place of the last one.

The engine is fake: see sweep.py.
"""

import signal
import subprocess
from pathlib import Path

import pytest

from tests.faults.sweep import SMALL, Sweep

pytestmark = [pytest.mark.faults, pytest.mark.timeout(900)]
OVERRIDES = (
    *SMALL,
    "benchmark.relations=[P36,P30,P17]",
    "benchmark.pairs_per_relation=2",
    "decoding.samples.n_prompts=0",  # they are larger shards here, and so would be first
    "cluster.page_every_s=1",
)
SLOW_S = 1.0  # per answer: one relation is measured a minute before the last is answered


def page(sweep: Sweep, name: str) -> str:
    path = sweep.folder / "results/sweep" / name
    return path.read_text() if path.exists() else ""


@pytest.mark.chaos  # as tests/pipeline/live/test_measuring.py, with a run that goes on
def test_run_that_goes_on_has_a_page_that_is_marked_as_partial(
    running_ray: str, tmp_path: Path
) -> None:
    given = (*OVERRIDES, running_ray)
    sweep = Sweep(tmp_path, given, seconds_per_answer=SLOW_S).start()
    sweep.until(lambda: "Partial, as of" in page(sweep, "progress.html"))
    sweep.until(lambda: "Acc@1" in page(sweep, "progress.html"))
    during = page(sweep, "progress.html")
    assert not page(sweep, "index.html")
    assert "<title>Partial: " in during
    assert 'http-equiv="refresh" content="1"' in during
    assert "shards are answered" in during
    assert "of 3 relations" in during
    assert "The run goes on" in during

    assert sweep.process is not None
    sweep.process.send_signal(signal.SIGINT)
    assert sweep.finish().returncode == 130
    left = page(sweep, "progress.html")
    assert " the run was stopped. What is published is kept" in left
    assert 'http-equiv="refresh"' not in left
    assert "Acc@1" in left
    assert not page(sweep, "index.html")

    fast = Sweep(tmp_path, given)
    assert fast.finish().returncode == 0
    finished = page(fast, "index.html")
    assert "Acc@1" in finished
    assert "<title>Partial" not in finished
    assert 'id="progress"' not in finished
    assert 'http-equiv="refresh"' not in finished
    assert 'content="0; url=index.html"' in page(fast, "progress.html")
    assert fast.finish().returncode == 0  # nothing is left to do
    assert page(fast, "index.html") == finished
    assert 'content="0; url=index.html"' in page(fast, "progress.html")


@pytest.mark.chaos
def test_page_that_cannot_be_written_stops_no_run(tmp_path: Path) -> None:
    sweep = Sweep(tmp_path, OVERRIDES)
    (tmp_path / "results/sweep/progress.html").mkdir(parents=True)  # a folder in its place
    done: subprocess.CompletedProcess[str] = sweep.finish()
    assert done.returncode == 0
    assert "progress.html cannot be renewed" in done.stderr
    assert done.stderr.count("cannot be renewed") == 1
    assert "Acc@1" in page(sweep, "index.html")
