"""Comparisons for people: what stands in the tables and what is drawn."""

import io
from typing import Any

import polars as pl
import pytest

from factsweep.operators.metrics.belief.knowledge_state import CHANGES, MOVES, STATES, state_moves
from factsweep.operators.metrics.comparing.comparison import COMPARISON
from factsweep.operators.tables.comparison import (
    by_relation,
    changed_facts,
    differences_figure,
    headline,
    moves_table,
)
from factsweep.operators.tables.formats import latex, markdown

RUNS = ("old", "new")


def row(
    metric: str, relation: str | None, difference: float | None, **columns: Any
) -> dict[str, Any]:
    defaults = {
        "metric": metric,
        "relation_id": relation,
        "first": 0.5,
        "second": None if difference is None else 0.5 + difference,
        "difference": difference,
        "ci_low": None if difference is None else difference - 0.1,
        "ci_high": None if difference is None else difference + 0.1,
        "p_holm": 0.5,
        "n_pairs": 10,
        "n_prompts": 100,
    }
    return {**dict.fromkeys(COMPARISON), **defaults, **columns}


def comparison() -> pl.DataFrame:
    rows = [
        row("acc_at_1", None, -0.0312, design_effect=4.0, p=0.00001, p_holm=None),
        row("acc_at_1", "P17", 0.2),
        row("acc_at_1", "P36", -0.25, p_holm=0.012),
        row("acc_at_1", "P103", None),
        row("ece", None, 0.02, ci_low=None, ci_high=None, p_holm=None),
    ]
    return pl.DataFrame(rows, schema=COMPARISON)


def changes(*rows: tuple[Any, ...]) -> pl.DataFrame:
    return pl.DataFrame(list(rows), schema=CHANGES, orient="row")


PAIRS = pl.DataFrame(
    {
        "pair_id": ["a", "b", "c", "d"],
        "subjects": [["A", "Aa"], ["B"], ["C"], ["D"]],
        "objects": [
            [{"object_id": "x", "labels": ["X", "XX"]}, {"object_id": "y", "labels": ["Y"]}]
        ]
        + [[{"object_id": "x", "labels": ["X"]}]] * 3,
    }
)


def test_headline_has_a_row_a_metric_and_a_dash_for_what_is_undefined() -> None:
    table = headline(comparison(), RUNS)
    accuracy, ece = table.rows(named=True)
    assert table.columns[:4] == ["metric", "old", "new", "difference"]
    assert (accuracy["metric"], accuracy["difference"], accuracy["worth"]) == (
        "Acc@1",
        "-.0312",
        "25",
    )
    assert (accuracy["p"], accuracy["p (Holm)"]) == ("<.0001", None)
    assert accuracy["95 % interval"] == "-.1312 to +.0688"
    undefined = ("95 % interval", "p", "p (Holm)", "Cohen's h", "design effect", "worth")
    assert [ece[name] for name in undefined] == [None] * 6
    assert markdown(table).count("–") == 8


def test_by_relation_the_largest_loss_stands_first_and_the_undefined_last() -> None:
    table = by_relation(comparison(), "acc_at_1", RUNS, {"P36": "capital", "P17": "P17"})
    assert table["relation"].to_list() == ["P36 capital", "P17", "P103"]
    assert table["difference"].to_list() == ["-.2500", "+.2000", None]


def test_moves_every_fact_stands_in_one_cell() -> None:
    rows = changes(
        ("P1", "a", "unknown", "known robustly", 0.0, 1.0, "gained"),
        ("P1", "b", "unknown", "known robustly", 0.0, 1.0, "gained"),
        ("P2", "c", "known robustly", "unknown", 1.0, 0.0, "lost"),
    )
    counts = state_moves(rows)
    table = moves_table(counts)
    assert table["before"].to_list() == list(STATES)
    assert table["all"].sum() == rows.height
    assert table.filter(before="unknown")["known robustly"].item() == 2
    assert moves_table(counts, "P2")["all"].sum() == 1
    assert moves_table(pl.DataFrame(schema=MOVES))["all"].to_list() == [0] * len(STATES)


def test_changed_facts_lost_first_and_the_largest_change_first() -> None:
    rows = changes(
        ("P1", "a", "unknown", "depends on the prompt", 0.0, 0.1, "gained"),
        ("P1", "b", "depends on the prompt", "unknown", 0.2, 0.0, "lost"),
        ("P1", "c", "known robustly", "confidently wrong", 1.0, 0.0, "lost"),
        ("P1", "d", "unknown", "unknown", 0.0, 0.0, None),
    )
    table = changed_facts(rows, PAIRS)
    assert table["pair_id"].to_list() == ["c", "b", "a"]
    assert table.row(2) == (
        *("gained", "P1", "a", "A", "X, Y", "unknown", "depends on the prompt"),
        *(0.0, 0.1),
    )
    assert "confidently wrong" in latex(table)


def test_changed_facts_none_is_an_empty_table_with_its_columns() -> None:
    table = changed_facts(changes(), PAIRS)
    assert table.is_empty()
    assert table.columns[-2:] == ["right before", "right after"]


def test_differences_figure_has_a_row_a_relation_and_says_what_is_significant() -> None:
    figure = differences_figure(comparison(), "acc_at_1", "a title", alpha=0.05, margin=0.02)
    (axes,) = figure.axes
    labels = [tick.get_text() for tick in axes.get_yticklabels()]
    assert labels == ["all relations", "P36", "P17"]  # P103 has no difference
    by_label = {line.get_label(): line for line in axes.lines}
    holm = "(of relations: Holm)"
    assert list(by_label[f"p ≤ 0.05 {holm}"].get_xdata()) == [-0.0312, -0.25]
    assert list(by_label[f"p > 0.05 {holm}"].get_xdata()) == [0.2]


@pytest.mark.parametrize("metric", ["acc_at_1", "ece", "consist"])
def test_differences_figure_draws_what_has_no_relations_intervals_or_rows(metric: str) -> None:
    picture = io.BytesIO()
    differences_figure(comparison(), metric, "a title", alpha=0.05).savefig(picture)
    assert picture.getvalue().startswith(b"\x89PNG")
