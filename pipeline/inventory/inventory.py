"""The inventory of a store: its artifacts, how large they are, what for, and since when unused."""

from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime

from factsweep.operators.errors import DamagedFileError
from factsweep.pipeline.execution import timing
from factsweep.pipeline.inventory.needs import Need, needs
from factsweep.pipeline.inventory.outdated import outdated
from factsweep.pipeline.storage import manifest
from factsweep.pipeline.storage.artifact import Artifact
from factsweep.pipeline.storage.causes import Recipes
from factsweep.pipeline.storage.lookup import folders
from factsweep.pipeline.storage.shard import numbers
from factsweep.pipeline.storage.stores.remote import File
from factsweep.pipeline.storage.stores.store import Store

_LEASES = "leases/"


@dataclass(frozen=True)
class Item:
    """An artifact of a store, with what was set aside in it.

    `outdated` says what was of another version when it was made. `took` has what it took:
    gpu_seconds, core_seconds.
    """

    folder: str
    bytes: int
    written: datetime
    is_complete: bool
    needs: Sequence[Need]
    outdated: Sequence[str]
    took: Counter[str]

    @property
    def used(self) -> datetime:
        """When it was last written or used."""
        return max([self.written, *(need.when for need in self.needs if need.when)])


def inventory(store: Store, results: str) -> list[Item]:
    """All artifacts of a store, the largest first; `results` is a folder of runs that use it."""
    files = {folder: store.files(folder) for folder in folders(store)}
    # Of an artifact that was removed, the number of its last lease remains.
    there = {f: each for f, each in files.items() if not all(n.startswith(_LEASES) for n in each)}
    needed, recipes = needs(store, list(there), results), Recipes(store)
    items = (_item(store, f, each, needed.get(f, ()), recipes) for f, each in there.items())
    return sorted(items, key=lambda item: (-item.bytes, item.folder))


def _item(
    store: Store,
    folder: str,
    files: dict[str, File],
    needed: Sequence[Need],
    recipes: Recipes,
) -> Item:
    recipe = recipes.get(folder.partition("/")[2])
    return Item(
        folder=folder,
        bytes=sum(each.bytes for each in files.values()),
        written=datetime.fromtimestamp(max(each.written for each in files.values()), UTC),
        is_complete=manifest.NAME in files,
        needs=needed,
        outdated=outdated(recipe, recipes) if recipe else [],
        took=_took(Artifact(store, recipe)) if recipe else Counter(),
    )


def _took(artifact: Artifact) -> Counter[str]:
    """The seconds of GPUs and cores that a complete artifact took, as far as they were noted."""
    found = Counter[str]()
    with suppress(FileNotFoundError, DamagedFileError):  # `verify` names what is damaged
        if artifact.is_complete():
            for counts in artifact.counts(artifact.stage).values():
                found.update(numbers(counts))
            if not found["core_seconds"]:
                found.update(numbers(timing.read(artifact)))
    return Counter({name: found[name] for name in ("gpu_seconds", "core_seconds")})
