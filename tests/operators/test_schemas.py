"""The canonical tables, and what is refused as one."""

import polars as pl
import pytest

from factsweep.operators.datasets.facts import Facts
from factsweep.operators.errors import InputError
from factsweep.operators.schemas import KEYS, SCHEMAS, conform, empty
from tests.messages import naming

ERRORS = pl.DataFrame(
    {"prompt_id": ["p"], "stage": ["decode"], "reason": ["died"], "detail": ["twice"]}
)


@pytest.mark.parametrize("table", list(SCHEMAS))
def test_empty_table_conforms_to_its_schema(table: str) -> None:
    frame = empty(table)
    assert frame.height == 0
    assert conform(frame, table).schema == SCHEMAS[table]


@pytest.mark.parametrize(("table", "key"), list(KEYS.items()))
def test_key_of_each_table_is_a_column_of_it(table: str, key: str) -> None:
    assert key in SCHEMAS[table].names


@pytest.mark.parametrize("table", ["relations", "templates", "pairs"])
def test_conform_mini_set_keeps_every_row(mini: Facts, table: str) -> None:
    frame: pl.DataFrame = getattr(mini, table)
    again = pl.from_arrow(conform(frame, table))
    assert isinstance(again, pl.DataFrame)
    assert again.equals(frame)


def test_conform_other_order_and_further_columns_are_repaired() -> None:
    frame = ERRORS.select(pl.all().reverse(), more=1).select(
        "more", "detail", "reason", "stage", "prompt_id"
    )
    assert conform(frame, "errors").schema == SCHEMAS["errors"]


def test_conform_narrower_integers_are_taken() -> None:
    frame = pl.DataFrame({"prompt_id": ["p"], "block": [3], "texts": [["a", None]]})
    assert conform(frame, "samples").to_pylist() == frame.to_dicts()


@pytest.mark.parametrize("column", SCHEMAS["errors"].names)
def test_conform_missing_column_is_named(column: str) -> None:
    with pytest.raises(InputError, match=naming("table errors", f"column {column}", "add")):
        conform(ERRORS.drop(column), "errors")


@pytest.mark.parametrize("block", [-1, 70_000, 0.5])
def test_conform_number_that_does_not_fit_is_refused(block: float) -> None:
    frame = pl.DataFrame({"prompt_id": ["p"], "block": [block], "texts": [["a"]]})
    with pytest.raises(InputError, match=naming("table samples", "prompt_id")):
        conform(frame, "samples")


def test_conform_text_in_place_of_a_list_is_refused() -> None:
    frame = pl.DataFrame({"prompt_id": ["p"], "block": [1], "texts": ["a"]})
    with pytest.raises(InputError, match=naming("table samples", "prompt_id")):
        conform(frame, "samples")
