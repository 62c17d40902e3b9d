"""The canonical tables, and what is refused as one."""

import polars as pl
import pytest

from factsweep.operators.datasets.facts import Facts
from factsweep.operators.errors import InputError
from factsweep.operators.schemas import KEYS, SCHEMAS, conform, empty, fit_schema, refuse
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
    restored = pl.from_arrow(conform(frame, table))
    assert isinstance(restored, pl.DataFrame)
    assert restored.equals(frame)


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


GIVEN = pl.Schema({"name": pl.String, "n": pl.Int64})


def test_fitted_has_the_columns_of_the_schema_and_nulls_for_optional_ones() -> None:
    fitted = fit_schema(
        pl.DataFrame({"more": [1], "name": [None]}), GIVEN, "facts", optional=("n",)
    )
    assert (fitted.schema, fitted.rows()) == (GIVEN, [(None, None)])
    assert fit_schema(pl.DataFrame({"n": [], "name": []}), GIVEN, "facts").schema == GIVEN


@pytest.mark.parametrize(
    ("table", "words"),
    [
        (pl.DataFrame({"title": ["a"], "n": [1]}), ("column name", "missing", "title, n", "add")),
        (pl.DataFrame({"name": ["a"], "n": ["1"]}), ("column n", "String", "Int64", "convert")),
    ],
)
def test_fitted_column_that_is_missing_or_of_another_type_is_named(
    table: pl.DataFrame, words: tuple[str, ...]
) -> None:
    with pytest.raises(InputError, match=naming("facts", *words)):
        fit_schema(table, GIVEN, "facts")


def test_refuse_names_the_first_row_of_the_first_problem_that_there_is() -> None:
    rows = pl.DataFrame({"row": [0, 1, 2, 3], "n": [5, 1, 2, None]})
    problems = {
        ", row {row} is negative": pl.col("n") < 0,
        ", row {row}: {n} is small": pl.col("n") < 3,
        ", row {row} has none": pl.col("n").is_null(),
    }
    with pytest.raises(InputError, match=r"^facts, row 1: 1 is small$"):
        refuse(rows.lazy(), problems, ["row", "n"], "facts")
    refuse(rows, {"none": pl.col("n") > 5}, ["row"])
