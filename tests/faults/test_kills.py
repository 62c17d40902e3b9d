"""Kill whatever can be killed, at random times, and the tables come out the same to the byte."""

import os
import random
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.faults.sweep import CHUNK, Sweep, kill

KILLS = int(os.environ.get("FACTSWEEP_KILLS", "20"))  # `make chaos KILLS=500`


def kill_engine(sweep: Sweep, dice: random.Random) -> bool:
    engines = sweep.engines()
    if engines:
        kill(dice.choice(engines))
    return bool(engines)


def kill_node(sweep: Sweep, dice: random.Random) -> bool:
    raylets = sweep.raylets()
    if raylets:
        kill(raylets[0])
        time.sleep(1)
        sweep.kill_driver()
    return bool(raylets)


def kill_driver(sweep: Sweep, dice: random.Random) -> bool:
    sweep.kill_driver()
    return True


def halve_chunk(sweep: Sweep, dice: random.Random) -> bool:
    """What a store without atomic writes leaves of an engine that dies while it publishes."""
    chunks = sweep.chunks()
    if chunks:
        chunk = dice.choice(chunks)
        sweep.kill_driver()
        chunk.write_bytes(chunk.read_bytes()[:100])
    return bool(chunks)


FAULTS: tuple[Callable[[Sweep, random.Random], bool], ...] = (
    *(kill_engine,) * 8,
    kill_driver,
    halve_chunk,
    kill_node,
)


@pytest.mark.faults
@pytest.mark.timeout(60 * KILLS + 600)
def test_sweep_killed_at_random_gives_the_same_tables(tmp_path: Path) -> None:
    undisturbed = Sweep(tmp_path / "calm")
    assert undisturbed.finish().returncode == 0
    dice = random.Random(20261121)
    sweep = Sweep(tmp_path / "killed", seconds_per_answer=0.05 * KILLS / 20)
    kills = 0
    while kills < KILLS:
        if sweep.process is None or sweep.process.poll() is not None:
            sweep.process = None
            sweep.start()
        time.sleep(dice.uniform(0.5, 4))
        fault = FAULTS[kills % len(FAULTS)]
        kills += sweep.process.poll() is None and fault(sweep, dice)
        if (tmp_path / "killed" / "results").exists():
            pytest.fail(f"the sweep was over after {kills} kills; slow the engine down")
    done = sweep.finish()
    assert done.returncode == 0, done.stderr
    assert sweep.tables() == undisturbed.tables()
    assert sweep.verify().returncode == 0
    total = len(undisturbed.answered())
    assert total >= 2000
    in_hand = 2  # engines that a driver's or node's death takes along
    assert len(sweep.answered()) <= total + kills * in_hand * (CHUNK + 1)
