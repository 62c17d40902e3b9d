"""Recipe: every field of conf/ is declared part of a recipe or of none."""

from collections.abc import Iterator
from dataclasses import dataclass, fields, is_dataclass
from typing import Any, get_args, get_type_hints

import pytest

from factsweep.pipeline.config import folders
from factsweep.pipeline.config.model import Model
from factsweep.pipeline.config.recipe import InRecipe, NoNumber, Part, declarations, in_recipe
from factsweep.pipeline.config.run import Config, Run
from factsweep.pipeline.config.settings import load
from factsweep.pipeline.results.compare import Comparison
from factsweep.pipeline.studies.night import Nightly
from factsweep.pipeline.studies.study import Written
from tests.messages import naming

APART = {
    "comparison": Comparison,
    "nightly": Nightly,
    "study": Written,
}  # no run is composed of these


def undeclared(kind: type[Any], path: str) -> Iterator[str]:
    """The fields that are neither declared nor dataclasses whose own fields are."""
    hints = get_type_hints(kind)
    for name, declared in declarations(kind).items():
        if declared is None:
            inner = [each for each in (hints[name], *get_args(hints[name])) if is_dataclass(each)]
            yield from (f for each in inner for f in undeclared(each, f"{path}.{name}"))
            yield from () if inner else (f"{path}.{name}",)


@pytest.mark.parametrize("kind", [Config, Run, *APART.values()])
def test_conf_every_field_is_declared(kind: type[Any]) -> None:
    assert list(undeclared(kind, kind.__name__)) == []


def test_conf_every_group_is_walked() -> None:
    groups = {*folders.groups()} - {"data_catalog", "language"}  # whose words a setting has
    assert groups == {*APART} | ({field.name for field in fields(Config)} & groups)


@dataclass(frozen=True)
class Half:
    a: InRecipe[int]
    b: int


def test_undeclared_field_is_found() -> None:
    assert list(undeclared(Half, "half")) == ["half.b"]


def test_in_recipe_undeclared_field_is_refused() -> None:
    with pytest.raises(TypeError, match=naming("Half.b")):
        in_recipe(Half(1, 2))


def test_declarations_tell_answers_tables_and_neither() -> None:
    found = declarations(Model)
    assert (found["dtype"], found["name"]) == (Part("answers"), Part("tables"))
    assert isinstance(found["gpu_memory_utilization"], NoNumber)


def test_in_recipe_has_what_is_declared_and_nothing_else() -> None:
    decoding = load([]).decoding
    found = in_recipe(decoding)
    assert found["samples"]["n_answers"] == decoding.samples.n_answers
    assert found["determinism"] == "default"
    assert "max_failed_share" not in found
    assert "name" not in in_recipe(load([]).model)


def test_in_recipe_group_without_any_is_left_out() -> None:
    assert "replicas" not in in_recipe(load([]).model)
