"""The protocol of leases, in all interleavings of writers that may stop or die anywhere.

The code is the real one; the store is in memory.
"""

import hashlib
import json
from collections.abc import Callable
from dataclasses import replace

import polars as pl
import pytest

from factsweep.pipeline.storage.artifact import Artifact, Recipe
from factsweep.pipeline.storage.lease import Writer
from tests.pipeline.storage import explorer
from tests.pipeline.storage.all_orders import Explorer, Memory, Witness, over, short_waits
from tests.pipeline.storage.explorer import looks_second, named

RECIPE = Recipe("relations", 1, {"seed": 0})
FOLDER = f"relations/{RECIPE.fingerprint}"


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    short_waits(monkeypatch)


@pytest.fixture(autouse=True, params=["look first", "look second"])
def order(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether a writer checks its lease before or after publishing: both are one call."""
    if request.param == "look second":
        monkeypatch.setattr(Artifact, "_change_under_lease", looks_second)


def write(store: Memory, number: int) -> None:
    """The steps of a driver and its engines, with content of its own."""
    writer = Writer(store, named(number))
    writer.beat()
    free = Artifact(store, RECIPE)
    lease = writer.take(FOLDER, wait=True, clock=store)
    artifact = replace(free, lease=lease)
    rows = pl.DataFrame({"relation_id": ["P36"], "label": [f"of writer {number}"]})
    steps: tuple[Callable[[], None], ...] = (
        lambda: artifact.write_chunk("relations", "chunks/relations/one", f"{number}", rows),
        writer.beat,
        lambda: artifact.write("relations", "one", rows),
        lambda: artifact.drop(f"chunks/relations/one/{number}.parquet"),
        lambda: artifact.finish(["relations"], {"writer": number}),
        writer.end,
    )
    for step, publish in enumerate(steps):
        store.knows(lease.number, step, artifact.was_complete, str(artifact._written))
        publish()


def ended(files: dict[str, bytes], outcomes: tuple[str, ...]) -> None:
    """Whatever has happened, a further writer goes on, and all fits together."""
    assert "done" in outcomes or "killed" in outcomes
    write(over(files), 5)
    shard = files[f"{FOLDER}/relations/one.parquet"]
    manifest = json.loads(files[f"{FOLDER}/manifest.json"])
    entry = manifest["tables"]["relations"]["one"]
    assert entry["sha256"] == hashlib.sha256(shard).hexdigest()


def explored(n: int, kills: int, leases: int) -> int:
    return Explorer(write, n, kills, leases, Witness(FOLDER), ended).explore().n_states


def test_protocol_two_writers_in_all_orders_never_overwrite() -> None:
    assert explored(n=2, kills=1, leases=3) > 5000


@pytest.mark.timeout(900)
@pytest.mark.slow
@pytest.mark.parametrize(("n", "kills", "leases"), [(2, 2, 5), (3, 2, 1)])
def test_protocol_more_deaths_and_leases_in_all_orders_never_overwrite(
    n: int, kills: int, leases: int
) -> None:
    assert explored(n, kills, leases) > 10_000


@pytest.mark.timeout(900)
@pytest.mark.chaos  # five minutes
def test_protocol_three_writers_in_many_orders_never_overwrite() -> None:
    def all_ended(world: explorer.World, outcomes: list[str | None]) -> None:
        ended(dict(world.files), tuple(map(str, outcomes)))

    checker = explorer.Explorer(write, 3, 0, 2, Witness(FOLDER), all_ended)
    assert checker.explore().n_states > 1000
