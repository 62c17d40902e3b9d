"""Look artifacts up by folder or by the start of a fingerprint, and explain how two differ."""

import json
from collections.abc import Iterable, Iterator
from contextlib import suppress
from functools import cached_property

from factsweep.operators.errors import DamagedFileError, InputError, UnavailableError
from factsweep.operators.wording import count
from factsweep.pipeline.config.recipe import build
from factsweep.pipeline.storage.artifact import Artifact, Recipe, differences
from factsweep.pipeline.storage.store import Store, StoredFile


def open_artifact(store: Store, folder: str) -> Artifact:
    """The artifact in a folder of the store; an InputError if there is none."""
    try:
        return Artifact(store, read_recipe(store, folder))
    except FileNotFoundError as error:
        raise InputError(
            f"{store.where(folder)} is gone; run again to recompute what is missing."
        ) from error


def locate_artifact(store: Store, folder: str) -> Artifact:
    """The artifact in a folder, even if its recipe is lost or damaged."""
    try:
        return open_artifact(store, folder)
    except UnavailableError:
        raise
    except InputError:
        stage, _, name = folder.partition("/")
        return Artifact(store, Recipe(stage, 0, {}), name=name)


def read_recipe(store: Store, folder: str) -> Recipe:
    """The recipe of the artifact in a folder; a FileNotFoundError if there is none."""
    name = f"{folder}/recipe.json"
    file = StoredFile(store.where(name), name)
    content = store.get_json(name)
    try:
        recipe = build(Recipe, content, "")
    except InputError as error:
        raise file.damaged_file_error("is no recipe") from error
    if f"{recipe.stage}/{recipe.fingerprint}" != folder:
        raise file.damaged_file_error("is not what its name says")
    return recipe


def find_artifact(store: Store, prefix: str) -> tuple[str, Recipe]:
    """The folder and the recipe of the one artifact whose fingerprint starts with `prefix`."""
    prefix = prefix.rstrip("/").rpartition("/")[2]
    matches = [folder for folder in folders(store) if folder.partition("/")[2].startswith(prefix)]
    if len(matches) != 1:
        raise InputError(
            f"{count(len(matches), 'artifact')} in {store.where()} start with {prefix!r}; "
            "`factsweep artifacts` lists the fingerprints."
        )
    try:
        return matches[0], read_recipe(store, matches[0])
    except FileNotFoundError as error:
        raise InputError(f"{store.where(matches[0])} has no recipe.json; run again.") from error


def folders(store: Store) -> Iterator[str]:
    """The folders of all artifacts in a store."""
    for stage in store.folders(""):
        yield from (f"{stage}/{name}" for name in store.folders(stage))


class Recipes:
    """The recipes of a store by fingerprint; `planned` ones need not be in the store."""

    def __init__(self, store: Store, planned: Iterable[Recipe] = ()) -> None:
        self._store = store
        self._recipes: dict[str, Recipe | None] = {r.fingerprint: r for r in planned}

    def get(self, fingerprint: str) -> Recipe | None:
        """The recipe of that fingerprint; None if it is lost."""
        if fingerprint not in self._recipes:
            self._recipes[fingerprint] = None
            with suppress(KeyError, FileNotFoundError, DamagedFileError):
                self._recipes[fingerprint] = read_recipe(self._store, self._folders[fingerprint])
        return self._recipes[fingerprint]

    @cached_property
    def _folders(self) -> dict[str, str]:
        return {folder.partition("/")[2]: folder for folder in folders(self._store)}


def explain_difference(old: Recipe, new: Recipe, recipes: Recipes) -> list[str]:
    """The fields in which two recipes differ, one line per field, prefixed with the input's stage.

    An input that differs is followed down to its fields. If its recipe is lost, the line has both
    fingerprints.
    """
    return list(dict.fromkeys(_explain_causes(old, new, recipes, "")))


def _explain_causes(
    old_recipe: Recipe, new_recipe: Recipe, recipes: Recipes, prefix: str
) -> Iterator[str]:
    # As JSON: planned recipes hold tuples where published ones hold lists.
    contents = [json.loads(recipe.to_json()) for recipe in (old_recipe, new_recipe)]
    old, new = ({name: content[name] for name in ("version", "fields")} for content in contents)
    if old_recipe.stage != new_recipe.stage:
        yield f"{prefix}stage: {old_recipe.stage} → {new_recipe.stage}"
    yield from (f"{prefix}{line}" for line in differences(old, new))
    for name in sorted({*old_recipe.inputs, *new_recipe.inputs}):
        fingerprints = old_recipe.inputs.get(name), new_recipe.inputs.get(name)
        if fingerprints[0] == fingerprints[1]:
            continue
        old_input, new_input = (name and recipes.get(name) for name in fingerprints)
        if old_input and new_input:
            yield from _explain_causes(old_input, new_input, recipes, f"{new_input.stage}: ")
        else:
            yield f"{prefix}inputs.{name}: {' → '.join(text or 'none' for text in fingerprints)}"
