"""KAMEL's figures: what is drawn in them."""

from typing import Any

import polars as pl
import pytest

from factsweep.operators.tables.kamel import cardinality_figure, kind_figure

NUMBERS = {"f1": [0.1, 0.2, 0.3], "ci_low": [0.05, None, 0.2], "ci_high": [0.15, None, 0.4]}


def test_cardinality_figure_draws_each_series_by_number_of_answers() -> None:
    names = {"series": ["b", "b", "a"], "cardinality": ["10", "2", "1"]}
    axes: Any
    (axes,) = cardinality_figure(pl.DataFrame({**names, **NUMBERS}), "title").axes
    assert [line.get_label() for line in axes.lines] == ["b", "a"]
    assert list(zip(*axes.lines[0].get_data(), strict=True)) == [(2, 20), (10, 10)]


def test_kind_figure_draws_a_bar_a_series_and_kind() -> None:
    names = {"series": ["a", "a", "b"], "kind": ["entity", "literal", "entity"]}
    (axes,) = kind_figure(pl.DataFrame({**names, **NUMBERS}), "title").axes
    heights = [[bar.get_height() for bar in bars] for bars in axes.containers if len(bars) != 3]
    assert [pytest.approx(each) for each in heights] == [[10, 30], [20]]
    assert [text.get_text() for text in axes.get_xticklabels()] == ["a", "b"]
