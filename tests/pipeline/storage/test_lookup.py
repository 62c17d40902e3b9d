"""Lookup: an artifact is found by its folder or by the start of its fingerprint."""

from dataclasses import replace
from pathlib import Path

import pytest

from factsweep.operators.errors import DamagedFileError, InputError
from factsweep.pipeline.storage.artifact import Artifact
from factsweep.pipeline.storage.lookup import find, opened
from factsweep.pipeline.storage.recipe import Recipe
from factsweep.pipeline.storage.store import Store
from tests.messages import naming

RECIPE = Recipe("relations", 1, {"seed": 0, "sampling": {"n": 1}}, {"facts": "f0"})


@pytest.fixture
def artifact(tmp_path: Path) -> Artifact:
    return Artifact(Store(str(tmp_path)), RECIPE)


def test_opened_recipe_of_another_artifact_is_refused(artifact: Artifact) -> None:
    other = Artifact(artifact.store, replace(RECIPE, version=2))
    artifact.begin()
    content = artifact.store.get(f"{artifact.folder}/recipe.json")
    artifact.store.put(f"{other.folder}/recipe.json", content)
    with pytest.raises(DamagedFileError, match=naming(f"{artifact.folder}/recipe.json")):
        opened(artifact.store, other.folder)


def test_find_start_of_a_fingerprint_gives_folder_and_recipe(artifact: Artifact) -> None:
    artifact.begin()
    folder, recipe = find(artifact.store, RECIPE.fingerprint[:6])
    assert folder == f"relations/{RECIPE.fingerprint}"
    assert recipe == RECIPE


def test_find_folder_as_printed_is_found(artifact: Artifact) -> None:
    artifact.begin()
    assert find(artifact.store, f"{artifact.folder}/")[0] == artifact.folder


@pytest.mark.parametrize(("prefix", "n"), [("", 2), ("zz", 0)])
def test_find_not_exactly_one_says_how_many(artifact: Artifact, prefix: str, n: int) -> None:
    artifact.begin()
    Artifact(artifact.store, replace(RECIPE, version=2)).begin()
    with pytest.raises(InputError, match=naming(n, f"'{prefix}'")):
        find(artifact.store, prefix)


def test_opened_artifact_that_is_gone_is_one_sentence(artifact: Artifact) -> None:
    with pytest.raises(InputError, match=naming(artifact.folder, "run again")):
        opened(artifact.store, artifact.folder)
