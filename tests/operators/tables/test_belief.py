"""The readable tables, from a small frame of metrics."""

from typing import Any

import polars as pl

from factsweep.operators.tables.belief import card, headline
from factsweep.operators.tables.formats import markdown
from tests.builders import frame

ROW = {"model": "m", "benchmark": "b", "setting": "zero-shot", "metric": "acc_at_1", "n": 40}


def metrics(*rows: dict[str, Any]) -> pl.DataFrame:
    return frame("metrics", *rows, **ROW)


SMALL = metrics(
    {"value": 0.25, "ci_low": 0.2, "ci_high": 0.3, "n_failed": 2},
    {"metric": "ovconf", "value": -0.1119, "n": 9},
    {"metric": "fluctuation_sd", "variant": "draw=pair", "value": 0.035},
    {"setting": "4-template", "value": 1.0, "ci_low": 1.0, "ci_high": 1.0, "n_failed": 0},
    {"setting": "4-template", "metric": "ovconf", "value": None},
    {"slice": "relation=P36", "value": 0.9},
)


def test_headline_has_the_papers_columns_and_a_row_per_setting_and_variant() -> None:
    table = headline(SMALL).drop("model", "benchmark")
    numbers = ["Acc@1", "95 % interval", "SD", "Ovconf"]
    assert table.columns == ["setting", "variant", "scope", *numbers, "prompts", "failed"]
    assert table.rows() == [
        ("zero-shot", None, "–", ".2500", ".2000–.3000", "–", "-.1119", 40, 2),
        ("zero-shot", "draw=pair", "–", "–", None, ".0350", "–", None, None),
        ("4-template", None, "shared", "1.0000", "1.0000–1.0000", "–", "–", 40, 0),
    ]


def test_headline_names_the_scope_where_there_are_demonstrations() -> None:
    variants = [None, "style=question,scope=prompt", "templates=manual"]
    rows = [{"setting": "4-template", "variant": v, "value": 0.5} for v in variants]
    table = headline(metrics({"value": 0.5}, *rows))
    assert table["scope"].to_list() == ["–", "shared", "prompt", "shared"]


def test_card_has_a_row_a_metric_and_a_column_a_setting() -> None:
    assert card(SMALL).rows() == [
        ("scope", "–", "shared"),
        ("Acc@1", ".2500 (.2000–.3000)", "1.0000 (1.0000–1.0000)"),
        ("Ovconf", "-.1119", "–"),
        ("SD draw=pair", ".0350", None),
    ]
    rows = metrics({"variant": "scope=prompt", "value": 0.5}, {"value": 0.25})
    assert card(rows).columns == ["metric", "zero-shot scope=prompt", "zero-shot"]


def test_markdown_null_is_a_dash_and_nothing_is_cut() -> None:
    long = "x" * 300
    text = markdown(pl.DataFrame({"a": [None, long], "b": [1, None]}))
    cells = [[c.strip() for c in line.strip("|").split("|")] for line in text.splitlines()]
    assert [cells[0], *cells[2:]] == [["a", "b"], ["–", "1"], [long, "–"]]
    text = markdown(pl.DataFrame({f"c{i}": range(100) for i in range(40)}))
    assert (text.count("\n"), text.splitlines()[0].count("|")) == (102, 41)
