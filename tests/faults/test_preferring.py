"""Two engines compare candidates, one and then the driver are killed: the tables are the same.

The engine is fake (sweep.py); its search over the trie of names is the real one.
"""

from pathlib import Path

import pytest

from tests.faults.sweep import CHUNK, TWO_ENGINES, Sweep, kill

pytestmark = [pytest.mark.faults, pytest.mark.timeout(900)]
IN_FLIGHT = 2 * CHUNK  # of each engine: what is not in a chunk yet, and what it is handed ahead
OVERRIDES = (
    *TWO_ENGINES,
    "benchmark=distractors-mini",
    "benchmark.relations=[P37,P30,P1376]",
    "benchmark.names_per_subject=null",
    "prompt=temporal",
    "decoding.baselines.others=1",
    "cluster.rows_per_shard=50",
)


@pytest.mark.chaos
def test_two_engines_killed_and_resumed_give_the_same_tables(tmp_path: Path) -> None:
    calm = Sweep(tmp_path / "calm", OVERRIDES)
    done = calm.finish()
    assert done.returncode == 0, done.stderr
    once = calm.answered()
    assert len(set(once)) == len(once) > 8 * CHUNK

    sweep = Sweep(tmp_path / "killed", OVERRIDES, seconds_per_answer=0.01).start()
    sweep.until(lambda: len(sweep.answered()) >= len(once) // 5)
    kill(sweep.engines()[0])
    sweep.until(lambda: len(sweep.answered()) >= len(once) // 2)
    sweep.kill_driver()
    assert sweep.finish().returncode == 0
    assert sweep.tables() == calm.tables()
    again = sweep.answered()
    assert set(again) == set(once)
    assert len(again) - len(once) <= 3 * IN_FLIGHT
