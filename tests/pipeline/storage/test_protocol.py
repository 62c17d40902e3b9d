"""The protocol of leases, in all interleavings of writers that may stop or die anywhere.

The code is the real one; the store is in memory, and waits for its turn before each call.
"""

import hashlib
import json
from dataclasses import replace

import polars as pl
import pytest

from pipeline.storage import lease
from pipeline.storage.artifact import Artifact
from pipeline.storage.lease import Writer
from pipeline.storage.recipe import Recipe
from tests.pipeline.storage.explorer import Explorer, Memory, Witness, World, named

RECIPE = Recipe("relations", 1, {"seed": 0})
FOLDER = f"relations/{RECIPE.fingerprint}"


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """One look that finds no change is enough: who is not given a turn may be taken for dead."""
    monkeypatch.setattr(lease, "EXPIRES_S", 1.0)


def write(store: Memory, number: int) -> None:
    """What a driver and its engines do, one after the other: each with content of its own."""
    writer = Writer(store, named(number))
    writer.beat()
    free = Artifact(store, RECIPE)
    held = writer.take(FOLDER, wait=True, clock=store)
    artifact = replace(free, lease=held)
    rows = pl.DataFrame({"relation_id": ["P36"], "label": [f"of writer {number}"]})
    for step, publish in enumerate(
        (
            lambda: artifact.write_chunk("relations", "chunks/relations/one", f"{number}", rows),
            writer.beat,
            lambda: artifact.write("relations", "one", rows),
            lambda: artifact.drop(f"chunks/relations/one/{number}.parquet"),
            lambda: artifact.finish(["relations"]),
            writer.end,
        )
    ):
        store.knows(held.number, step)
        publish()


def ended(world: World, outcomes: list[str | None]) -> None:
    """Whatever has happened, a further writer goes on, and all fits together."""
    assert "done" in outcomes or "killed" in outcomes
    write(Memory(world, lambda: None, 5), 5)
    shard = world.files[f"{FOLDER}/relations/one.parquet"]
    manifest = json.loads(world.files[f"{FOLDER}/manifest.json"])
    entry = manifest["tables"]["relations"]["one"]
    assert entry["sha256"] == hashlib.sha256(shard).hexdigest()


def explored(n: int, kills: int, switches: int | None) -> Explorer:
    return Explorer(write, n, kills, switches, lambda: Witness(FOLDER), ended).explore()


def test_protocol_two_writers_in_many_orders_never_overwrite() -> None:
    assert explored(n=2, kills=0, switches=2).n_states > 1000


@pytest.mark.timeout(900)
@pytest.mark.slow
@pytest.mark.parametrize(("n", "kills", "switches"), [(2, 2, 1), (2, 0, 4), (3, 0, 2)])
def test_protocol_two_or_three_writers_in_more_orders_never_overwrite(
    n: int, kills: int, switches: int
) -> None:
    assert explored(n, kills, switches).n_states > 10_000
