"""Waiting for an artifact that another run writes: until it is published, and no longer."""

from pathlib import Path

import pytest

from factsweep.operators.errors import ArtifactHeldError
from factsweep.pipeline.storage import lease, manifest
from factsweep.pipeline.storage.lease import Writer, this_process
from factsweep.pipeline.storage.store import Store

SHARED, OWN = "prompts/f0", "generations/f0"


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(str(tmp_path))


@pytest.fixture
def other(store: Store) -> Writer:
    """Another run that lives, and holds both for as long as it does."""
    other = Writer(store, this_process())
    other.beat()
    for folder in (SHARED, OWN):
        other.take(folder, wait=False)
    return other


def test_held_shared_artifact_is_waited_for_until_it_is_published(
    store: Store, other: Writer, monkeypatch: pytest.MonkeyPatch
) -> None:
    messages = list[str]()

    def later(_: float) -> None:
        """Time passes: the other run beats, and publishes the artifact."""
        other.beat()
        if len(messages) == 2:
            store.put(f"{SHARED}/{manifest.NAME}", b"{}")

    monkeypatch.setattr(lease.time, "sleep", later)
    with lease.hold_leases(
        store, [SHARED], wait=False, shared={SHARED}, say=messages.append
    ) as writer:
        assert SHARED not in writer.leases
    assert len(messages) == 2
    assert SHARED in messages[0]
    assert str(lease.find_holder(store, SHARED)) in messages[0]


def test_held_answers_of_a_living_run_are_refused_though_the_shared_ones_are_there(
    store: Store, other: Writer, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.put(f"{SHARED}/{manifest.NAME}", b"{}")
    monkeypatch.setattr(lease.time, "sleep", lambda _: other.beat())
    with (
        pytest.raises(ArtifactHeldError),
        lease.hold_leases(store, [SHARED, OWN], wait=False, shared={SHARED}),
    ):
        pytest.fail("both runs would write it")
