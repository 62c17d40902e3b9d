"""Why two artifacts differ: by which fields of their recipes, or of what they were made of."""

import json
from collections.abc import Iterable, Iterator
from functools import cached_property

from factsweep.operators.errors import DamagedFileError
from factsweep.pipeline.storage.lookup import folders, recipe
from factsweep.pipeline.storage.recipe import Recipe, differences
from factsweep.pipeline.storage.stores.store import Store


class Recipes:
    """The recipes of a store by fingerprint; those of a plan need not be there."""

    def __init__(self, store: Store, planned: Iterable[Recipe] = ()) -> None:
        self._store = store
        self._read: dict[str, Recipe | None] = {each.fingerprint: each for each in planned}

    def get(self, fingerprint: str) -> Recipe | None:
        """The recipe of that fingerprint; null if it is lost."""
        if fingerprint not in self._read:
            self._read[fingerprint] = self._of(self._folders.get(fingerprint))
        return self._read[fingerprint]

    def _of(self, folder: str | None) -> Recipe | None:
        try:
            return recipe(self._store, folder) if folder is not None else None
        except (FileNotFoundError, DamagedFileError):
            return None

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
