"""Recipe: every field of conf/ is declared part of a recipe or of none."""

import math
from collections.abc import Iterator
from dataclasses import dataclass, fields, is_dataclass
from datetime import date
from typing import Annotated, Any, Literal, get_args, get_type_hints

import pytest
from pydantic import Field

from factsweep.operators.errors import InputError
from factsweep.pipeline.config import folders
from factsweep.pipeline.config.model import Model
from factsweep.pipeline.config.recipe import (
    InRecipe,
    NoNumber,
    Part,
    build,
    declarations,
    in_recipe,
)
from factsweep.pipeline.config.run import Config, Run
from factsweep.pipeline.config.settings import load
from factsweep.pipeline.results.compare import Comparison
from factsweep.pipeline.studies.night import Nightly
from factsweep.pipeline.studies.study import StudyFile
from tests.messages import naming

APART = {
    "comparison": Comparison,
    "nightly": Nightly,
    "study": StudyFile,
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
    groups = {*folders.groups()} - {
        "data_catalog",
        "language",
        "refusals",
    }  # whose texts fields have
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
    declared = declarations(Model)
    assert (declared["dtype"], declared["name"]) == (Part("answers"), Part("tables"))
    assert isinstance(declared["gpu_memory_utilization"], NoNumber)


def test_in_recipe_has_what_is_declared_and_nothing_else() -> None:
    decoding = load([]).decoding
    fields = in_recipe(decoding)
    assert fields["samples"]["n_answers"] == decoding.samples.n_answers
    assert fields["determinism"] == "default"
    assert "max_failed_share" not in fields
    assert "name" not in in_recipe(load([]).model)


def test_in_recipe_group_without_any_is_left_out() -> None:
    assert "replicas" not in in_recipe(load([]).model)


@dataclass(frozen=True)
class Tea:
    kind: Literal["tea"]
    minutes: Annotated[float, Field(gt=0, lt=60)]


@dataclass(frozen=True)
class Coffee:
    kind: Literal["coffee"]
    shots: int


@dataclass(frozen=True)
class Order:
    name: str
    drink: Annotated[Tea | Coffee, Field(discriminator="kind")] | None
    also: tuple[Coffee, ...]
    notes: dict[str, Any]


GOOD = {"name": "a", "drink": {"kind": "tea", "minutes": 3}, "also": [], "notes": {"b": [1, None]}}


def test_build_mapping_that_fits_is_the_dataclass() -> None:
    order = build(Order, GOOD, "order")
    assert order == Order("a", Tea("tea", 3.0), (), {"b": [1, None]})
    assert type(order.drink.minutes) is float  # type: ignore[union-attr]


def test_build_date_of_yaml_is_its_text() -> None:
    assert build(Order, {**GOOD, "name": date(2020, 3, 1)}, "order").name == "2020-03-01"


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (
            {"drink": {"kind": "milk"}},
            "order.drink.kind='milk'; it must be one of 'tea', 'coffee'.",
        ),
        ({"drink": {"shots": 1}}, "order.drink.kind is missing; give it a value."),
        ({"drink": {"kind": "coffee"}}, "order.drink.shots is missing; give it a value."),
        (
            {"drink": {"kind": "coffee", "shot": 1}},
            "order.drink.shot is no known field; order.drink has kind, shots. Did you mean shots?",
        ),
        (
            {"drink": {"kind": "tea", "minutes": 60}},
            "order.drink.minutes=60; it must be less than 60.",
        ),
        (
            {"drink": {"kind": "tea", "minutes": math.nan}},
            "order.drink.minutes=nan; it must be a finite number.",
        ),
        ({"drink": 3}, "order.drink=3; it must be a group of fields."),
        (
            {"also": [{"kind": "coffee", "shots": "1"}]},
            "order.also.0.shots='1'; it must be a valid integer.",
        ),
        (
            {"naem": "b"},
            "order.naem is no known field; order has name, drink, also, notes. Did you mean name?",
        ),
    ],
)
def test_build_what_does_not_fit_is_one_sentence(change: dict[str, Any], sentence: str) -> None:
    with pytest.raises(InputError) as error:
        build(Order, {**GOOD, **change}, "order")
    assert str(error.value) == sentence


def test_build_no_mapping_is_refused() -> None:
    with pytest.raises(InputError, match=naming("a.yaml=null")):
        build(Order, None, "a.yaml")
