"""Typed: mappings become dataclasses without any value changing its type."""

import math
from dataclasses import dataclass
from datetime import date
from typing import Annotated, Any, Literal

import pytest
from pydantic import Field

from factsweep.operators.errors import InputError
from factsweep.pipeline.config.recipe import build
from tests.messages import naming


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
    found = build(Order, GOOD, "order")
    assert found == Order("a", Tea("tea", 3.0), (), {"b": [1, None]})
    assert type(found.drink.minutes) is float  # type: ignore[union-attr]


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
