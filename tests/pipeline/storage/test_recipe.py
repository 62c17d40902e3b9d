"""Recipes: names that follow everything that determines an artifact, and no secret in one."""

import json
from dataclasses import replace

import pytest

from factsweep.operators.errors import InputError
from factsweep.pipeline.storage.artifact import Recipe, differences
from tests.messages import naming

RECIPE = Recipe("relations", 1, {"seed": 0, "sampling": {"n": 1}}, {"facts": "f0"})


@pytest.mark.parametrize(
    "other",
    [
        replace(RECIPE, stage="templates"),
        replace(RECIPE, version=2),
        replace(RECIPE, fields={"seed": 1, "sampling": {"n": 1}}),
        replace(RECIPE, fields={"seed": 0, "sampling": {"n": 25}}),
        replace(RECIPE, fields={"seed": 0}),
        replace(RECIPE, inputs={"facts": "f1"}),
        replace(RECIPE, inputs={"prompts": "f0"}),
    ],
)
def test_fingerprint_one_field_changed_is_another(other: Recipe) -> None:
    assert other.fingerprint != RECIPE.fingerprint


def test_fingerprint_keys_in_another_order_is_the_same() -> None:
    turned = replace(RECIPE, fields={"sampling": {"n": 1}, "seed": 0})
    assert turned.fingerprint == RECIPE.fingerprint


def test_fingerprint_texts_that_differ_in_what_is_no_secret_by_its_name_are_others() -> None:
    first, second = (Recipe("facts", 1, {"relations": {"token": token}}) for token in ("a", "b"))
    assert first.fingerprint != second.fingerprint


@pytest.mark.parametrize("secret", ["hf_plantedPlantedPlanted", "s3://me:short@bucket"])
def test_recipe_that_holds_a_secret_is_refused(secret: str) -> None:
    recipe = Recipe("generations", 1, {"model": {"engine": {"path": secret}}})
    with pytest.raises(InputError, match=naming("model.engine.path")):
        recipe.to_json()


def test_fingerprint_known_recipe_never_changes() -> None:
    assert Recipe("facts", 1, {"a": "é"}).fingerprint == "fb215e6ba873d81c"


def test_differences_two_recipes_names_the_fields() -> None:
    other = replace(RECIPE, version=2, fields={"sampling": {"n": 25}, "dtype": "float32"})
    lines = differences(*(json.loads(recipe.to_json()) for recipe in (RECIPE, other)))
    assert list(lines) == [
        'fields.dtype: null → "float32"',
        "fields.sampling.n: 1 → 25",
        "fields.seed: 0 → null",
        "version: 1 → 2",
    ]


def test_differences_same_recipe_is_nothing() -> None:
    recipe = json.loads(RECIPE.to_json())
    assert list(differences(recipe, recipe)) == []
