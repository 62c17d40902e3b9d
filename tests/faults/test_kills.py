"""Kill, pause and misdate what can be, in every phase of a sweep: the results are the same bytes.

The engine is fake (sweep.py). Which process does what at a fault's moment is left to chance: each
fault waits for its phase, and a death at any call of the store is in test_takeover.py.
"""

import os
import random
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from tests.faults.sweep import CHUNK, ON_GPUS, Sweep, kill
from tests.s3_server import bucket, serving

FEW = 2
KILLS = int(os.environ.get("FACTSWEEP_KILLS", FEW))  # `make chaos KILLS=500`
HOUR_S = 3600.0
LIMIT_S = 600.0
IN_HAND = 2  # engines that die with a driver or a node
# The sweep of two engines that conftest.py makes; many faults need more of it.
OVERRIDES = (*ON_GPUS, "cluster.device=cpu")
MORE = ("benchmark.relations=[P36,P30,P37]",) if KILLS > FEW else ()


class Disturbed:
    """A sweep to which faults are done, and what these may cost."""

    def __init__(self, sweep: Sweep, dice: random.Random) -> None:
        self.sweep, self.dice = sweep, dice
        self.deaths = 0  # of engines
        self.is_late = False  # nothing is done to engines any more
        self.done: list[str] = []

    def wait(self, came: Callable[[], bool]) -> bool:
        """Wait until something has come; whether it has before the sweep is over."""
        end = time.monotonic() + LIMIT_S
        while not came():
            assert time.monotonic() < end, f"nothing came after {self.done}"
            if self.sweep.process is None or self.sweep.process.poll() is not None:
                return False
            time.sleep(0.05)
        return True

    def decoding(self) -> bool:
        """Wait until engines have answered some more."""
        n = len(self.sweep.answered()) + self.dice.randrange(1, CHUNK)
        return self.wait(lambda: len(self.sweep.answered()) >= n)

    def engine(self) -> psutil.Process | None:
        """An engine of the driver that runs; what answered last may be one of its predecessor."""
        engines: list[psutil.Process] = []

        def came() -> bool:
            engines[:] = self.sweep.engines()
            return bool(engines)

        return engines[0] if self.wait(came) else None

    def grows(self, *place: str) -> bool:
        """Wait until something new is published in a place."""
        names_before = set(self.sweep.names(*place))
        return self.wait(lambda: bool(set(self.sweep.names(*place)) - names_before))

    def restart(self, clock_s: float = 0.0) -> bool:
        """Kill the driver with all of its processes, and start another."""
        self.sweep.kill_driver()
        self.sweep.start(clock_s)
        if self.is_late:
            self.sweep.hurry()
        self.deaths += IN_HAND
        return True


Fault = Callable[[Disturbed], bool]  # whether it came before the sweep was over


def engine_killed(run: Disturbed, *, has_come: bool) -> bool:
    engine = run.engine() if has_come else None
    if engine is None:
        return False
    kill(engine)
    run.deaths += 1
    return True


def engine_while_decoding(run: Disturbed) -> bool:
    return engine_killed(run, has_come=run.decoding())


def engine_as_a_chunk_is_published(run: Disturbed) -> bool:
    return engine_killed(run, has_come=run.grows("generations", "chunks", "*", "*"))


def engine_paused(run: Disturbed) -> bool:
    engine = run.engine() if run.decoding() else None
    if engine is None:
        return False
    engine.suspend()
    time.sleep(1)
    engine.resume()
    return True


def node(run: Disturbed) -> bool:
    raylets = run.sweep.raylets() if run.decoding() else []
    for raylet in raylets[:1]:
        kill(raylet)
    return bool(raylets) and run.restart()


def driver_while_decoding(run: Disturbed) -> bool:
    return run.decoding() and run.restart(clock_s=HOUR_S)


def driver_as_it_takes_over(run: Disturbed) -> bool:
    is_taken = run.decoding() and run.restart() and run.grows("generations", "leases")
    return is_taken and run.restart(clock_s=-HOUR_S)


def driver_paused_and_taken_over(run: Disturbed) -> bool:
    if not run.decoding():
        return False
    paused = run.sweep.process
    assert paused is not None
    paused.send_signal(signal.SIGSTOP)
    run.sweep.start(clock_s=-HOUR_S)
    is_taken = run.grows("generations", "leases")
    assert is_taken
    assert run.sweep.process is not None
    paused.send_signal(signal.SIGCONT)
    _, errors = paused.communicate(timeout=LIMIT_S)
    run.deaths += IN_HAND
    assert paused.returncode == 2, errors
    # One that was paused before it held them finds them held; otherwise it has lost them.
    causes = (
        f"{loss} by process {run.sweep.process.pid}"
        for loss in ("was taken over", "is being written")
    )
    assert any(cause in errors for cause in causes), errors
    assert "Traceback" not in errors, errors
    return True


def driver_as_a_shard_is_published_and_cleared(run: Disturbed) -> bool:
    return run.grows("generations", "generations") and run.restart()


def driver_while_matching(run: Disturbed) -> bool:
    has_begun = run.wait(lambda: bool(run.sweep.names("matched")))
    return has_begun and run.restart()


def driver_while_reporting(run: Disturbed) -> bool:
    has_begun = run.wait(lambda: bool([*run.sweep.folder.glob("results/*/metrics.parquet")]))
    return has_begun and run.restart()


LATER: tuple[Fault, ...] = (driver_while_matching, driver_while_reporting)
FAULTS: tuple[Fault, ...] = (
    driver_as_a_shard_is_published_and_cleared,
    engine_as_a_chunk_is_published,
    driver_paused_and_taken_over,
    driver_while_decoding,
    *LATER,
    engine_while_decoding,
    engine_paused,
    node,
    driver_as_it_takes_over,
)


@contextmanager
def stored(kind: str, folder: Path, patch: pytest.MonkeyPatch) -> Iterator[str]:
    """The artifacts' place: a folder, or a bucket of an S3 server."""
    if kind == "folder":
        yield str(folder / "artifacts")
        return
    with serving(folder / "requests.log") as server:
        yield f"{bucket(server.url, patch)}/artifacts"


@pytest.fixture(scope="module")
def calm(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Sweep:
    if not MORE:
        calm_sweep: Sweep = request.getfixturevalue("calm_on_nodes")
        return calm_sweep
    sweep = Sweep(tmp_path_factory.mktemp("calm"), (*OVERRIDES, *MORE))
    assert sweep.finish().returncode == 0
    return sweep


@pytest.mark.faults
@pytest.mark.timeout(60 * KILLS + 1200)
@pytest.mark.parametrize("kind", [pytest.param("folder", marks=pytest.mark.chaos), "s3"])
def test_sweep_disturbed_in_every_phase_gives_the_same_bytes(
    kind: str, calm: Sweep, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dice = random.Random(20261121)
    rounds = KILLS // (2 * len(FAULTS))  # in each place
    faults = FAULTS if rounds else FAULTS[:KILLS]
    for number in range(rounds or 1):
        folder = tmp_path / str(number)
        folder.mkdir()
        with monkeypatch.context() as patch, stored(kind, folder, patch) as artifacts:
            sweep = Sweep(folder, (*OVERRIDES, *MORE), artifacts, seconds_per_answer=0.2)
            disturb(Disturbed(sweep, dice), faults, calm)


def disturb(run: Disturbed, faults: Sequence[Fault], calm: Sweep) -> None:
    """One sweep with these faults, those of decoding in any order."""
    sweep = run.sweep.start()
    decoding = [fault for fault in faults if fault not in LATER]
    later = [fault for fault in faults if fault in LATER]
    run.dice.shuffle(decoding)
    for fault in (*decoding, *later):
        if fault in later and not run.is_late:
            run.is_late = True
            sweep.hurry()
        if fault(run):
            run.done.append(fault.__name__)
    outcome = sweep.finish()
    assert outcome.returncode == 0, (run.done, outcome.stderr)
    assert run.done == [fault.__name__ for fault in (*decoding, *later)]
    assert sweep.tables() == calm.tables()
    assert sweep.verify().returncode == 0
    assert set(sweep.answered()) == set(calm.answered())
    twice = len(sweep.answered()) - len(calm.answered())
    assert twice <= run.deaths * CHUNK, (twice, run.done)
