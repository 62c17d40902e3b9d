"""BELIEF's figures: what they are drawn from, and which line, square or bar is where."""

import polars as pl
import pytest

from factsweep.operators.methods.belief_report import confidence_figures
from factsweep.operators.tables.belief import (
    calibration_figure,
    coverage,
    knowledge_sharing_figure,
    spread_by_relation,
    template_spread_figure,
)

SHARES = ["acc_at_1", "coverage_maximum", "coverage_oracle"]


def bins(panels: dict[str, list[str]]) -> pl.DataFrame:
    rows = [
        {"panel": panel, "series": name, "mean_confidence": x, "mean_accuracy": x / 2}
        for panel, series in panels.items()
        for name in series
        for x in (0.9, 0.1)
    ]
    return pl.DataFrame(rows)


def test_calibration_panels_have_their_series_the_diagonal_and_titles() -> None:
    figure = calibration_figure(bins({"one": ["b", "a"], "two": ["a"]}), "title")
    assert [panel_axes.get_title() for panel_axes in figure.axes] == ["one", "two"]
    labels = [[line.get_label() for line in panel_axes.lines] for panel_axes in figure.axes]
    assert labels == [["calibrated", "b", "a"], ["calibrated", "a"]]
    assert figure.get_suptitle() == "title"
    single = calibration_figure(bins({"one": ["a"]}), "title")
    (axes,) = single.axes
    assert (axes.get_title(), single.get_suptitle()) == ("one", "")
    assert list(zip(*axes.lines[1].get_data(), strict=True)) == [(0.1, 0.05), (0.9, 0.45)]


def test_calibration_series_look_the_same_everywhere_and_unlike_each_other() -> None:
    names = [f"s{number}" for number in range(14)]
    axes = calibration_figure(bins({"one": names, "two": names[::-1]}), "title").axes
    looks = [
        {line.get_label(): (line.get_color(), line.get_linestyle()) for line in panel_axes.lines}
        for panel_axes in axes
    ]
    assert looks[0] == looks[1]
    assert len(set(looks[0].values())) == len(names) + 1


@pytest.mark.parametrize("n_panels", [1, 3, 4, 5, 8])
def test_calibration_lowest_of_a_column_and_first_of_a_row_are_labelled(n_panels: int) -> None:
    axes = calibration_figure(bins({str(i): ["a"] for i in range(n_panels)}), "title").axes
    lowest = [*range(n_panels - min(n_panels, 4), n_panels)]
    assert [i for i, panel_axes in enumerate(axes) if panel_axes.get_xlabel()] == lowest
    assert [i for i, panel_axes in enumerate(axes) if panel_axes.get_ylabel()] == [
        *range(0, n_panels, 4)
    ]


def test_calibration_variants_of_a_setting_are_lines_of_their_own() -> None:
    setting = {"model": "m", "setting": "4-template", "mean_confidence": 0.5, "mean_accuracy": 0.5}
    rows = [{**setting, "variant": variant} for variant in (None, "templates=manual")]
    in_bins = pl.DataFrame([{**row, "bin": 1, "n": 2} for row in rows])
    (axes,) = confidence_figures(in_bins)["calibration"].axes
    labels = [line.get_label() for line in axes.lines[1:]]
    assert labels == ["4-template", "4-template templates=manual"]


def test_coverage_leaves_out_slices_and_other_metrics() -> None:
    run = {"model": "tiny", "setting": "zero-shot", "ci_low": None, "ci_high": None}
    rows = [
        {**run, "variant": None, "metric": metric, "value": 0.5, "slice": part}
        for metric in (*SHARES, "consist")
        for part in (None, "relations with few names")
    ]
    assert coverage(pl.DataFrame(rows))["metric"].to_list() == SHARES


def test_knowledge_sharing_square_of_row_and_column_is_the_rows_share() -> None:
    rows = [("a", "a", 1.0), ("a", "b", 0.25), ("b", "a", None)]
    shares = pl.DataFrame(rows, schema=["run", "other", "value"], orient="row")
    (axes,) = knowledge_sharing_figure(shares, "title").axes
    down, across = (
        [text.get_text() for text in labels]
        for labels in (axes.get_yticklabels(), axes.get_xticklabels())
    )
    places = [(text.get_position(), text.get_text()) for text in axes.texts]
    squares = {(down[int(y)], across[int(x)]): text for (x, y), text in places}
    assert squares == {("a", "a"): "1.00", ("a", "b"): ".25", ("b", "a"): "–", ("b", "b"): "–"}
    assert axes.images[0].get_array().filled(-1).tolist() == [[1, 0.25], [-1, -1]]


def spread(**relations: list[float | None]) -> pl.DataFrame:
    rows = [
        {"slice": f"relation={name}", "metric": f"template_spread_{part}", "value": value}
        for name, values in relations.items()
        for part, value in zip(("min", "mean", "max"), values, strict=False)
    ]
    return spread_by_relation(pl.DataFrame(rows, schema_overrides={"value": pl.Float64}))


def test_template_spread_relations_stand_by_their_mean_if_they_have_one() -> None:
    spreads = spread(P1=[0, 0.1, 0.9], P2=[0.2, 0.5, 0.6], P3=[0.1, 0.5, 0.5], P4=[None] * 3)
    assert spreads["relation"].to_list() == ["P2", "P3", "P1"]
    assert spread(P1=[0, 0.1]).is_empty()


def test_template_spread_bar_reaches_from_the_worst_to_the_best_template() -> None:
    spreads = spread(P1=[0, 0.1, 0.9], P2=[0.2, 0.5, 0.6])
    (axes,) = template_spread_figure(spreads, "title").axes
    bars = [(bar.get_x(), bar.get_x() + bar.get_width()) for bar in axes.patches]
    assert bars == [pytest.approx((0.2, 0.6)), pytest.approx((0, 0.9))]
    assert list(axes.lines[0].get_xdata()) == [0.5, 0.1]
    assert [text.get_text() for text in axes.get_yticklabels()] == ["P2", "P1"]
