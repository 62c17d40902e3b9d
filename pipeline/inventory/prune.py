"""prune: remove the artifacts that nothing needs.

A run may begin at any moment. So what goes is leased first, as a run leases what it writes; then
the notes of uses are read once more; then the manifests go, so that a run finds the artifacts
missing, and held; then the rest. Of each the file of its last lease stays, as the protocol of
leases asks. A run that looked before all this computes again what it finds gone.
"""

from collections.abc import Iterator, Sequence

from factsweep.operators.errors import ArtifactHeldError, InputError
from factsweep.pipeline.inventory.inventory import Item
from factsweep.pipeline.inventory.needs import UNFINISHED, Need, is_seen, needs
from factsweep.pipeline.storage import lease, manifest, uses
from factsweep.pipeline.storage.lookup import folders
from factsweep.pipeline.storage.stores.store import Store


def unneeded(items: Sequence[Item], *, unfinished: bool) -> list[Item]:
    """The artifacts that nothing needs; with `unfinished`, those that no known run has begun."""
    return [item for item in items if _can_go(item.needs, unfinished=unfinished)]


def _can_go(needed: Sequence[Need], *, unfinished: bool) -> bool:
    return all(unfinished and each.why == UNFINISHED for each in needed)


def removed(
    store: Store, chosen: Sequence[str], results: str, *, unfinished: bool
) -> Iterator[str]:
    """Remove artifacts, by their folders; yields those that went: what is needed by now stays."""
    _check_quiet(store)
    with lease.held(store, chosen, wait=False) as writer:
        needed = needs(store, list(folders(store)), results)
        gone = [each for each in chosen if _can_go(needed.get(each, ()), unfinished=unfinished)]
        for folder in gone:
            store.drop(f"{folder}/{manifest.NAME}")
        for folder in gone:
            writer.check()
            _empty(store, folder)
            yield folder


def _empty(store: Store, folder: str) -> None:
    *_, last = sorted(name for name in store.files(folder) if name.startswith("leases/"))
    for name in store.files(folder):
        if name != last:
            store.drop(f"{folder}/{name}")
    store.drop_empty(folder)


def forget(store: Store, run: str) -> None:
    """Remove the notes that a run needs artifacts, if it is not done or its results are lost."""
    found = [use for use in uses.noted(store) if use.run == run]
    if not found:
        raise InputError(f"{store.where()} knows no run {run}; `factsweep artifacts` lists them.")
    for use in found:
        if use.done and is_seen(use) and Store(use.results).exists(f"{run}/run.json"):
            raise InputError(
                f"the run {run} has results; remove {Store(use.results).where(run)}, and its "
                "artifacts can go."
            )
    _check_quiet(store)
    for use in found:
        uses.forget(store, use)


def _check_quiet(store: Store) -> None:
    if (writer := lease.writer(store, folders(store))) is not None:
        raise ArtifactHeldError(
            f"{store.where()} is being written by {writer}; prune it when that is done."
        )
