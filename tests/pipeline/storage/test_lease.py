"""Leases: when one may be taken over, and when its holder notices."""

import os
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from threading import Event
from types import SimpleNamespace
from typing import Any

import polars as pl
import pytest

from factsweep.operators.errors import ArtifactHeldError, InputError
from factsweep.pipeline.storage import lease
from factsweep.pipeline.storage.artifact import Artifact, Recipe
from factsweep.pipeline.storage.integrity import quarantine
from factsweep.pipeline.storage.lease import Holder, Writer, this_process
from factsweep.pipeline.storage.store import Store
from tests.messages import naming

RECIPE = Recipe("relations", 1, {"seed": 0})
ROWS = pl.DataFrame({"relation_id": ["P36"], "label": ["capital"]})
FOLDER = "relations/f0"


class Clock:
    """A clock that goes only while its owner waits; `meanwhile` is what others do in that time."""

    def __init__(self, start_s: float = 0.0) -> None:
        self.now = start_s
        self.meanwhile = list[Writer]()

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        for writer in self.meanwhile:
            writer.beat()


@pytest.fixture(params=["{}/store", "memory:/{}/store"], ids=["folder", "memory"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    return Store(request.param.format(tmp_path))


def writer(store: Store, name: str = "a", **changes: object) -> Writer:
    """A writer of another machine, that has begun to beat."""
    holder = Holder(name * 32, f"host-{name}", 7, 1e9, machine=None, started=None)
    new_writer = Writer(store, replace(holder, **changes))  # type: ignore[arg-type]
    new_writer.beat()
    return new_writer


def test_take_free_artifact_is_held_at_once(store: Store) -> None:
    new_lease = writer(store).take(FOLDER, wait=False, clock=Clock())
    new_lease.check()
    assert new_lease.number == 1
    assert "process 7 on host-a" in str(lease.find_holder(store, FOLDER))


def test_describe_life_of_a_writer_elsewhere_waits_for_a_beat(store: Store) -> None:
    living, clock = writer(store), Clock()
    living.take(FOLDER, wait=False)
    holder = lease.find_holder(store, FOLDER)
    assert holder is not None
    clock.meanwhile.append(living)
    assert lease.describe_life(store, holder, clock) == ""
    assert clock.now < 2 * lease.RENEW_S
    clock.meanwhile.clear()
    assert "no sign of life for 12 seconds" in lease.describe_life(store, holder, clock)
    living.end()
    assert lease.describe_life(store, holder, clock) == ", which is dead"


def test_take_given_back_is_held_at_once_under_a_higher_number(store: Store) -> None:
    first = writer(store, "a")
    first.take(FOLDER, wait=False)
    first.end()
    assert lease.find_holder(store, FOLDER) is None
    assert writer(store, "b").take(FOLDER, wait=False, clock=Clock()).number == 2


def test_take_of_a_living_writer_is_refused_with_its_name(store: Store) -> None:
    living, clock = writer(store, "a"), Clock()
    living.take(FOLDER, wait=False)
    clock.meanwhile.append(living)
    with pytest.raises(ArtifactHeldError, match=naming("process 7", "host-a")):
        writer(store, "b").take(FOLDER, wait=False, clock=clock)
    assert clock.now < 2 * lease.RENEW_S


@pytest.mark.parametrize("since", [1e9, 1e9 - 3600, 1e9 + 3600])
def test_take_of_a_silent_writer_waits_until_its_lease_has_run_out(
    store: Store, since: float
) -> None:
    """However wrong its clock is."""
    silent, clock = writer(store, "a", since=since), Clock(start_s=since)
    lost = silent.take(FOLDER, wait=False)
    writer(store, "b").take(FOLDER, wait=False, clock=clock)
    assert clock.now - since == pytest.approx(lease.EXPIRES_S)
    assert lost is not None
    with pytest.raises(ArtifactHeldError, match=naming("process 7", "host-b")):
        lost.check()


def test_take_after_a_sleep_of_the_whole_machine_does_not_count_it(store: Store) -> None:
    living = writer(store, "a")
    living.take(FOLDER, wait=False)

    class Slept(Clock):
        def sleep(self, seconds: float) -> None:
            if self.now == 0:
                self.now += 10 * lease.EXPIRES_S
            else:
                living.beat()

    with pytest.raises(ArtifactHeldError, match=naming("being", "written")):
        writer(store, "b").take(FOLDER, wait=False, clock=Slept())


def test_take_of_a_loser_waits_once_for_all_of_its_artifacts_even_if_it_awakes(
    store: Store,
) -> None:
    silent, taker, clock = writer(store, "a"), writer(store, "b"), Clock()
    for folder in ("one", "two", "three"):
        silent.take(folder, wait=False)
    for folder in ("one", "two"):
        taker.take(folder, wait=False, clock=clock)
    store.put(f"writers/{'a' * 32}.json", b"it was about to beat when it was paused")
    taker.take("three", wait=False, clock=clock)
    assert clock.now == pytest.approx(lease.EXPIRES_S)


@pytest.mark.parametrize("namesake", [{}, {"host": "same", "pid": os.getpid()}])
def test_take_with_the_same_host_name_and_process_number_is_refused(
    store: Store, namesake: dict[str, object]
) -> None:
    living, clock = writer(store, "a", **namesake), Clock()
    living.take(FOLDER, wait=False)
    clock.meanwhile.append(living)
    with pytest.raises(ArtifactHeldError):
        writer(store, "b", **namesake).take(FOLDER, wait=False, clock=clock)


@pytest.mark.parametrize(
    ("changes", "is_at_once"),
    [
        ({"pid": 0}, True),  # a process that has ended
        ({}, True),  # its number is used again
        ({"machine": "the same boot, another namespace"}, False),
    ],
)
def test_take_of_a_dead_process_of_this_machine_is_at_once(
    store: Store, changes: dict[str, object], is_at_once: bool
) -> None:
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    fields = {"pid": os.getpid(), "machine": this_process().machine, "started": "1", **changes}
    writer(store, "a", **{**fields, "pid": fields["pid"] or ended.pid}).take(FOLDER, wait=False)
    clock = Clock()
    writer(store, "b").take(FOLDER, wait=False, clock=clock)
    assert (clock.now == 0) == is_at_once


def test_holder_of_this_process_is_not_gone() -> None:
    assert not this_process().is_gone()


BAD = ["", '{"id": "aaaa', "[]", '{"id": "../../../etc", "host": "h", "pid": -1, "since": "x"}']


@pytest.mark.parametrize("content", BAD)
def test_take_unreadable_lease_is_taken_over(store: Store, content: str) -> None:
    store.put(f"{FOLDER}/leases/000001.json", content.encode())
    assert lease.find_holder(store, FOLDER) is None
    assert writer(store).take(FOLDER, wait=False, clock=Clock()).number == 2


def test_take_foreign_names_beside_leases_count_for_nothing(store: Store) -> None:
    for name in ("notes.txt", "000007.json.bak", "lease.json"):
        store.put(f"{FOLDER}/leases/{name}", b"not ours")
    assert writer(store).take(FOLDER, wait=False, clock=Clock()).number == 1


def test_take_folder_in_the_way_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / FOLDER / "leases" / "000001.json").mkdir(parents=True)
    with pytest.raises(InputError, match=naming("000001.json", "remove")):
        writer(Store(str(tmp_path))).take(FOLDER, wait=False)


def test_take_what_is_neither_created_nor_listed_is_one_sentence(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = iter([False])
    monkeypatch.setattr(Store, "put_new", lambda *_: next(answers))
    with pytest.raises(InputError, match=naming("000001.json", "remove")):
        writer(store).take(FOLDER, wait=False, clock=Clock())


def test_take_leaves_only_its_own_lease(store: Store) -> None:
    for name in "abc":
        writer(store, name).take(FOLDER, wait=False, clock=Clock())
    assert store.names(f"{FOLDER}/leases") == ["000003.json"]
    assert store.names("writers") == [f"{'c' * 32}.json"]


def test_beat_after_a_takeover_tells_the_loser(store: Store) -> None:
    silent = writer(store, "a")
    silent.take(FOLDER, wait=False)
    writer(store, "b").take(FOLDER, wait=False, clock=Clock())
    with pytest.raises(ArtifactHeldError, match=naming("process 7", "host-b")):
        silent.beat()


def test_beat_after_another_took_nothing_of_ours_goes_on(store: Store) -> None:
    ours = writer(store)
    our_lease = ours.take(FOLDER, wait=False)
    store.drop(f"writers/{'a' * 32}.json")
    ours.beat()
    our_lease.check()
    assert store.names("writers") == [f"{'a' * 32}.json"]


@pytest.mark.parametrize("error", [InputError, OSError])
def test_keep_beating_store_out_of_reach_is_tried_again(
    error: type[Exception],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    store, stopped, beats = Store(str(tmp_path)), Event(), list[bytes]()
    ours = writer(store)
    real_put = Store.put

    def unsteady(self: Store, name: str, content: bytes) -> None:
        beats.append(content)
        if len(beats) == 1:
            raise error("the store is away")
        real_put(self, name, content)
        stopped.set()

    monkeypatch.setattr(lease, "RENEW_S", 0.001)
    monkeypatch.setattr(Store, "put", unsteady)
    ours.keep_beating(stopped)
    ours.check()
    assert store.get(f"writers/{'a' * 32}.json") == beats[1]
    assert re.search(naming("could not be renewed", "the store is away"), caplog.text)


def test_keep_beating_lost_lease_is_said_at_the_next_check(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lease, "RENEW_S", 0.001)
    silent = writer(store, "a")
    silent.take(FOLDER, wait=False)
    writer(store, "b").take(FOLDER, wait=False, clock=Clock())
    silent.keep_beating(Event())
    with pytest.raises(ArtifactHeldError, match=naming("taken", "over")):
        silent.check()


def test_held_block_over_gives_everything_back(store: Store) -> None:
    with lease.hold_leases(store, ["two", "one"], wait=False) as ours:
        assert [each.folder for each in ours.leases.values()] == ["one", "two"]
        assert str(lease.find_holder(store, "one")).startswith(f"process {os.getpid()} on ")
    assert lease.find_holder(store, "one") is None
    assert store.names("writers") == []


def test_held_store_that_creates_twice_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Store(str(tmp_path))
    monkeypatch.setattr(Store, "put_new", lambda self, name, content: True)
    with (
        pytest.raises(InputError, match=naming("If-None-Match")),
        lease.hold_leases(store, [FOLDER], wait=False),
    ):
        pytest.fail("the lease was given")


def test_lease_that_was_looked_at_long_ago_is_looked_at_before_anything_is_published(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    holder = writer(store, "a")
    artifact = replace(Artifact(store, RECIPE), lease=holder.take(FOLDER, wait=False))
    times, at_once, counts = {"monotonic": 0.0, "time": 1e9}, Store.at_once, list[int]()

    def noted(store: Store, *requests: Callable[[], Any]) -> list[Any]:
        counts.append(len(requests))
        return at_once(store, *requests)

    monkeypatch.setattr(Store, "at_once", noted)
    clock = SimpleNamespace(**{name: lambda name=name: times[name] for name in times})
    monkeypatch.setattr("factsweep.pipeline.storage.artifact.time", clock)
    for passed, n_together in (({}, 0), ({}, 1), ({"time": 6}, 0), ({"time": -9}, 0)):
        for name, seconds in passed.items():
            times[name] += seconds
        counts.clear()
        artifact.put("note.json", b"{}")
        assert len(counts) == n_together, passed


def published(artifact: Artifact) -> dict[str, bytes]:
    root = Path(artifact.store.root)
    files = [path for path in root.rglob("*") if path.is_file() and path.parent.name != "leases"]
    return {str(path.relative_to(root)): path.read_bytes() for path in files}


def test_artifact_whose_lease_is_lost_publishes_nothing_more(tmp_path: Path) -> None:
    free = Artifact(Store(str(tmp_path)), RECIPE)
    losing, taking = writer(free.store, "a"), writer(free.store, "b")
    ours = replace(free, lease=losing.take(free.folder, wait=False))
    ours.begin()
    ours.write("relations", "one", ROWS)
    ours.write_chunk("relations", "chunks/relations/two", "c", ROWS)
    taking.take(free.folder, wait=False, clock=Clock())
    old_files = published(free)
    for publish in (
        ours.begin,
        lambda: ours.write("relations", "two", ROWS),
        lambda: ours.write_chunk("relations", "chunks/relations/two", "d", ROWS),
        lambda: ours.put("trials/relations/two.json", b"{}"),
        lambda: ours.put_new("rows_per_shard.json", b"1"),
        lambda: ours.drop("chunks/relations/two/c.parquet"),
        lambda: ours.finish(["relations"]),
        lambda: quarantine(ours, f"{free.folder}/relations/one.parquet"),
    ):
        with pytest.raises(ArtifactHeldError, match=naming("taken", "over")):
            publish()
    assert published(free) == old_files


def test_artifact_published_shard_and_manifest_are_never_overwritten(tmp_path: Path) -> None:
    artifact = Artifact(Store(str(tmp_path)), RECIPE)
    artifact.write("relations", "one", ROWS)
    artifact.finish(["relations"])
    old_files = published(artifact)
    artifact.write("relations", "one", ROWS, {"another": 1})
    artifact.finish(["relations"], {"another": 1})
    assert published(artifact) == old_files
