"""The figures of the distractor measure: the numbers in them, and what is drawn."""

from typing import Any

import polars as pl
import pytest

from factsweep.operators.metrics.distractors.agreement import AGREEMENT
from factsweep.operators.schemas import empty
from factsweep.operators.tables import distractors as figures
from factsweep.operators.tables.distractors import Axes, lines_figure

NAMES = dict.fromkeys(("model", "benchmark", "setting", "variant"), pl.String)


def taus(*rows: tuple[Any, ...]) -> pl.DataFrame:
    """Rows of: setting, measure, hyperparameters, n_clozes, fold, chosen, tau."""
    whole = [
        ("m", "b", setting, None, measure, name, n_clozes, fold, chosen, None, tau, 70)
        for setting, measure, name, n_clozes, fold, chosen, tau in rows
    ]
    return pl.DataFrame(whole, schema={**NAMES, **AGREEMENT}, orient="row")


def points(found: pl.DataFrame) -> dict[tuple[str, int], float]:
    return {(series, x): y for series, x, y in found.select("series", "x", "y").iter_rows()}


def test_lines_are_drawn_in_the_order_of_x() -> None:
    rows = pl.DataFrame({"series": ["b", "b", "a"], "x": [10, 2, 1], "y": [3.0, 2.0, 1.0]})
    axes: Any
    (axes,) = lines_figure(rows, Axes("x", "y", "t")).axes
    assert [line.get_label() for line in axes.lines] == ["b", "a"]
    assert list(zip(*axes.lines[0].get_data(), strict=True)) == [(2, 2), (10, 3)]


def test_number_of_distractors_keeps_each_folds_aggregation() -> None:
    found = figures.distractor_points(
        taus(
            ("optimal", "distractors", "min@1", 2, 0, True, 0.5),
            ("optimal", "distractors", "min@2", 2, 0, False, 0.25),
            ("optimal", "distractors", "avg@1", 2, 0, False, 0.125),
            ("optimal", "distractors", "min@1", 2, 1, False, 0.1),
            ("optimal", "distractors", "avg@1", 2, 1, True, 0.7),
            ("optimal", "distractors", "avg@2", 2, 1, False, None),
            ("optimal", "distractors", "avg@1", 1, 1, False, 0.9),
            ("optimal", "probability", "", 2, 0, True, 0.9),
        )
    )
    assert points(found) == {("Dist. ApprOpt", 1): pytest.approx(0.6), ("Dist. ApprOpt", 2): None}


def test_number_of_clozes_takes_the_choice_and_each_baseline_once() -> None:
    found = figures.cloze_points(
        taus(
            ("optimal", "distractors", "min@1", 1, 0, True, 0.2),
            ("optimal", "distractors", "min@2", 1, 0, False, 0.9),
            ("optimal", "distractors", "min@1", 2, 0, True, 0.4),
            ("random", "distractors", "min@1", 1, 0, True, 0.3),
            ("optimal", "probability", "", 1, 0, True, 0.1),
            ("random", "probability", "", 1, 0, True, 0.1),
        )
    )
    assert points(found) == {
        ("Dist. ApprOpt", 1): 0.2,
        ("Dist. ApprOpt", 2): 0.4,
        ("Dist. Random", 1): 0.3,
        ("Probability", 1): 0.1,
    }


def test_gain_is_relative_to_a_single_cloze() -> None:
    rows = pl.DataFrame({"series": ["a", "a"], "x": [1, 2], "y": [0.25, 0.5]})
    assert points(figures.gains(rows)) == pytest.approx({("a", 1): 1.0, ("a", 2): 1.2})


def test_models_are_told_apart_where_there_are_several() -> None:
    curve = pl.DataFrame(
        {"model": ["a", "b"], "setting": "optimal", "variant": None, "n": 1, "min": 0.5, "avg": 1.0}
    )
    several, one = figures.curve_points(curve, "min"), figures.curve_points(curve.head(1), "avg")
    assert points(several) == {("a optimal", 1): 50, ("b optimal", 1): 50}
    assert points(one) == {("optimal", 1): 100}


def sizes(values: list[float]) -> figures.Sizes:
    models = [f"m{i}" for i in range(len(values))]
    rows = [
        {"model": model, "setting": "optimal", "metric": "avg_at_20", "value": value}
        for model, value in zip(models, values, strict=True)
    ]
    costs = [
        {"model": model, "metric": "billions_of_parameters", "value": 10.0**i}
        for i, model in enumerate(models)
    ]
    schema = empty("metrics").schema
    return figures.sizes(pl.DataFrame(rows, schema=schema), pl.DataFrame(costs, schema=schema))


def test_sizes_say_at_how_many_parameters_the_line_reaches_the_target() -> None:
    found = figures.sizes_table(sizes([0.5, 0.6, 0.7]))
    assert found.row(0) == ("m0", "1e+09", 50.0)
    assert found.row(3) == ("fit, R² = 1.000", "1e13.0", 90.0)


def test_sizes_figure_draws_the_line_up_to_the_target() -> None:
    axes: Any
    (axes,) = figures.sizes_figure(sizes([0.5, 0.6, 0.7])).axes
    x, y = axes.lines[1].get_data()
    assert list(x) == pytest.approx([1e9, 1e13])
    assert list(y) == pytest.approx([50, 90])


def test_sizes_of_two_models_or_a_falling_line_reach_nothing() -> None:
    assert sizes([0.5, 0.6]).line is None
    assert figures.sizes_table(sizes([0.5, 0.6])).height == 2
    assert figures.sizes_table(sizes([0.7, 0.6, 0.5])).row(3)[1] == "–"
    axes: Any
    (axes,) = figures.sizes_figure(sizes([0.7, 0.6, 0.5])).axes
    assert len(axes.lines) == 1
