"""Look artifacts up: by their folder, by the start of a fingerprint; and say why two differ."""

import json
from collections.abc import Iterable, Iterator
from contextlib import suppress
from functools import cached_property

from factsweep.operators.errors import DamagedFileError, InputError, UnavailableError
from factsweep.operators.wording import count
from factsweep.pipeline.config.recipe import build
from factsweep.pipeline.storage.artifact import Artifact
from factsweep.pipeline.storage.json_files import Stored
from factsweep.pipeline.storage.recipe import Recipe, differences
from factsweep.pipeline.storage.store import Store


def opened(store: Store, folder: str) -> Artifact:
    """The artifact in a folder of the store.

    Raises:
        InputError: there is none.
        DamagedFileError: its recipe is not what was written.
    """
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
    except UnavailableError:
        raise
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
    file = Stored(store.where(name), name)
    content = store.get_json(name)
    try:
        found = build(Recipe, content, "")
    except InputError as error:
        raise file.damaged("is no recipe") from error
    if f"{found.stage}/{found.fingerprint}" != folder:
        raise file.damaged("is not what its name says")
    return found


def find(store: Store, prefix: str) -> tuple[str, Recipe]:
    """The folder and the recipe of the one artifact whose fingerprint starts with `prefix`.

    Raises:
        InputError: none or several do.
        DamagedFileError: its recipe is not what was written.
    """
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


class Recipes:
    """The recipes of a store by fingerprint; those of a plan need not be there."""

    def __init__(self, store: Store, planned: Iterable[Recipe] = ()) -> None:
        self._store = store
        self._read: dict[str, Recipe | None] = {each.fingerprint: each for each in planned}

    def get(self, fingerprint: str) -> Recipe | None:
        """The recipe of that fingerprint; null if it is lost."""
        if fingerprint not in self._read:
            self._read[fingerprint] = None
            with suppress(KeyError, FileNotFoundError, DamagedFileError):
                self._read[fingerprint] = recipe(self._store, self._folders[fingerprint])
        return self._read[fingerprint]

    @cached_property
    def _folders(self) -> dict[str, str]:
        return {folder.partition("/")[2]: folder for folder in folders(self._store)}


def causes(left: Recipe, right: Recipe, recipes: Recipes) -> list[str]:
    """The fields in which two recipes differ, one line each; those of an input after its name.

    An input that differs is followed down to its fields. Where its recipe is lost, the line has the
    two fingerprints.
    """
    return list(dict.fromkeys(_causes(left, right, recipes, "")))


def _causes(left: Recipe, right: Recipe, recipes: Recipes, at: str) -> Iterator[str]:
    # As JSON: what is planned holds tuples where what was published holds lists.
    contents = [json.loads(each.to_json()) for each in (left, right)]
    ours, theirs = ({name: each[name] for name in ("version", "fields")} for each in contents)
    if left.stage != right.stage:
        yield f"{at}stage: {left.stage} → {right.stage}"
    yield from (f"{at}{line}" for line in differences(ours, theirs))
    for name in sorted({*left.inputs, *right.inputs}):
        a, b = left.inputs.get(name), right.inputs.get(name)
        if a == b:
            continue
        before, after = (each and recipes.get(each) for each in (a, b))
        if before and after:
            yield from _causes(before, after, recipes, f"{after.stage}: ")
        else:
            yield f"{at}inputs.{name}: {a or 'none'} → {b or 'none'}"
