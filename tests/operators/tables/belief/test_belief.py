"""The readable tables, from a small frame of metrics."""

from typing import Any

import polars as pl
import pytest

from factsweep.operators.schemas import empty
from factsweep.operators.tables.belief.belief import card, headline
from factsweep.operators.tables.formats import markdown

ROW = {"model": "m", "benchmark": "b", "setting": "zero-shot", "metric": "acc_at_1", "n": 40}


def metrics(*rows: dict[str, Any]) -> pl.DataFrame:
    return pl.DataFrame([{**ROW, **row} for row in rows], schema=empty("metrics").schema)


@pytest.fixture
def small() -> pl.DataFrame:
    return metrics(
        {"value": 0.25, "ci_low": 0.2, "ci_high": 0.3, "n_failed": 2},
        {"metric": "ovconf", "value": -0.1119, "n": 9},
        {"metric": "fluctuation_sd", "variant": "draw=pair", "value": 0.035},
        {"setting": "4-template", "value": 1.0, "ci_low": 1.0, "ci_high": 1.0, "n_failed": 0},
        {"setting": "4-template", "metric": "ovconf", "value": None},
        {"slice": "relation=P36", "value": 0.9},
    )


def test_headline_has_a_row_a_setting_and_variant(small: pl.DataFrame) -> None:
    keys = headline(small).select("setting", "variant").rows()
    assert keys == [("zero-shot", None), ("zero-shot", "draw=pair"), ("4-template", None)]


def test_headline_columns_stand_in_the_papers_order(small: pl.DataFrame) -> None:
    numbers = ["Acc@1", "95 % interval", "SD", "Ovconf"]
    assert headline(small).columns[4:] == ["scope", *numbers, "prompts", "failed"]


def test_headline_names_the_scope_where_there_are_demonstrations() -> None:
    variants = [None, "style=question,scope=prompt", "templates=manual"]
    rows = [{"setting": "4-template", "variant": v, "value": 0.5} for v in variants]
    table = headline(metrics({"value": 0.5}, *rows))
    assert table["scope"].to_list() == ["–", "shared", "prompt", "shared"]


def test_headline_numbers_have_four_digits_and_no_zero_before_the_point(
    small: pl.DataFrame,
) -> None:
    first = headline(small).row(0, named=True)
    assert (first["Acc@1"], first["Ovconf"]) == (".2500", "-.1119")
    assert first["95 % interval"] == ".2000–.3000"
    assert headline(small)["Acc@1"][2] == "1.0000"


def test_headline_undefined_number_is_a_dash(small: pl.DataFrame) -> None:
    table = headline(small)
    assert table["Ovconf"].to_list() == ["-.1119", "–", "–"]
    assert table["SD"].to_list() == ["–", ".0350", "–"]


def test_headline_counts_are_those_of_the_greedy_answers(small: pl.DataFrame) -> None:
    assert headline(small).select("prompts", "failed").row(0) == (40, 2)


def test_headline_slices_do_not_appear(small: pl.DataFrame) -> None:
    whole = small.filter(pl.col("slice").is_null())
    assert headline(whole).equals(headline(small))


def test_card_has_a_row_a_metric_and_a_column_a_setting(small: pl.DataFrame) -> None:
    assert card(small).rows() == [
        ("scope", "–", "shared"),
        ("Acc@1", ".2500 (.2000–.3000)", "1.0000 (1.0000–1.0000)"),
        ("Ovconf", "-.1119", "–"),
        ("SD draw=pair", ".0350", None),
    ]


def test_card_departures_of_the_prompts_stand_in_the_heading() -> None:
    rows = metrics({"variant": "scope=prompt", "value": 0.5}, {"value": 0.25})
    assert card(rows).columns == ["metric", "zero-shot scope=prompt", "zero-shot"]


def test_markdown_null_is_a_dash_and_nothing_is_cut() -> None:
    long = "x" * 300
    text = markdown(pl.DataFrame({"a": [None, long], "b": [1, None]}))
    cells = [[c.strip() for c in line.strip("|").split("|")] for line in text.splitlines()]
    assert cells[0] == ["a", "b"]
    assert cells[2:] == [["–", "1"], [long, "–"]]


def test_markdown_many_rows_and_columns_are_all_there() -> None:
    text = markdown(pl.DataFrame({f"c{i}": range(100) for i in range(40)}))
    assert text.count("\n") == 102
    assert text.splitlines()[0].count("|") == 41
