"""Look artifacts up in a store: by their folder, or by the start of a fingerprint."""

from collections.abc import Iterator

from factsweep.operators.errors import DamagedFileError, InputError
from factsweep.operators.wording import count
from factsweep.pipeline.config.typed import build
from factsweep.pipeline.storage.artifact import Artifact
from factsweep.pipeline.storage.recipe import Recipe
from factsweep.pipeline.storage.sealed import REPAIR, unseal
from factsweep.pipeline.storage.stores.store import Store


def opened(store: Store, folder: str) -> Artifact:
    """The artifact in a folder of the store."""
    try:
        return Artifact(store, recipe(store, folder))
    except FileNotFoundError as error:
        raise InputError(
            f"{store.where(folder)} is gone; run again to recompute what is missing."
        ) from error


def located(store: Store, folder: str) -> Artifact:
    """The artifact in a folder, even if its recipe is lost or damaged."""
    try:
        return opened(store, folder)
    except InputError:
        stage, _, name = folder.partition("/")
        return Artifact(store, Recipe(stage, 0, {}), name=name)


def recipe(store: Store, folder: str) -> Recipe:
    """The recipe of the artifact in a folder, which is named after it.

    Raises:
        FileNotFoundError: there is none.
        DamagedFileError: it is not what was written for this artifact.
    """
    name = f"{folder}/recipe.json"
    content = unseal(store.get(name), name, store.where(name))
    try:
        found = build(Recipe, content, "")
    except InputError as error:
        raise DamagedFileError(f"{store.where(name)} is no recipe{REPAIR}", name) from error
    if f"{found.stage}/{found.fingerprint}" != folder:
        raise DamagedFileError(f"{store.where(name)} is not what its name says{REPAIR}", name)
    return found


def find(store: Store, prefix: str) -> tuple[str, Recipe]:
    """The folder and the recipe of the one artifact whose fingerprint starts with `prefix`."""
    prefix = prefix.rstrip("/").rpartition("/")[2]
    found = [folder for folder in folders(store) if folder.partition("/")[2].startswith(prefix)]
    if len(found) != 1:
        raise InputError(
            f"{count(len(found), 'artifact')} in {store.where()} start with {prefix!r}; "
            "`factsweep artifacts` lists the fingerprints."
        )
    try:
        return found[0], recipe(store, found[0])
    except FileNotFoundError as error:
        raise InputError(f"{store.where(found[0])} has no recipe.json; run again.") from error


def folders(store: Store) -> Iterator[str]:
    """The folders of all artifacts in a store."""
    for stage in store.folders(""):
        yield from (f"{stage}/{name}" for name in store.folders(stage))
