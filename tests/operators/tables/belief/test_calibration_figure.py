"""Calibration curves beside each other: which line is in which panel."""

import polars as pl
import pytest

from factsweep.operators.methods.belief_report import calibration
from factsweep.operators.tables.belief.figures import calibration_figure


def bins(panels: dict[str, list[str]]) -> pl.DataFrame:
    rows = [
        {"panel": panel, "series": name, "mean_confidence": x, "mean_accuracy": x / 2}
        for panel, series in panels.items()
        for name in series
        for x in (0.9, 0.1)
    ]
    return pl.DataFrame(rows)


def test_calibration_have_their_series_and_the_diagonal() -> None:
    axes = calibration_figure(bins({"one": ["b", "a"], "two": ["a"]}), "title").axes
    assert [each.get_title() for each in axes] == ["one", "two"]
    labels = [[line.get_label() for line in each.lines] for each in axes]
    assert labels == [["calibrated", "b", "a"], ["calibrated", "a"]]


def test_calibration_of_a_single_panel_has_no_title_but_its_own() -> None:
    alone = calibration_figure(bins({"one": ["a"]}), "title")
    assert (alone.axes[0].get_title(), alone.get_suptitle()) == ("one", "")
    assert calibration_figure(bins({"one": ["a"], "two": ["a"]}), "title").get_suptitle() == "title"


def test_calibration_line_runs_through_its_bins_by_confidence() -> None:
    (axes,) = calibration_figure(bins({"one": ["a"]}), "title").axes
    points = zip(*axes.lines[1].get_data(), strict=True)
    assert list(points) == [(0.1, 0.05), (0.9, 0.45)]


def test_calibration_series_look_the_same_everywhere_and_unlike_each_other() -> None:
    names = [f"s{number}" for number in range(14)]
    axes = calibration_figure(bins({"one": names, "two": names[::-1]}), "title").axes
    looks = [
        {line.get_label(): (line.get_color(), line.get_linestyle()) for line in each.lines}
        for each in axes
    ]
    assert looks[0] == looks[1]
    assert len(set(looks[0].values())) == len(names) + 1


@pytest.mark.parametrize("n_panels", [1, 3, 4, 5, 8])
def test_calibration_lowest_of_a_column_and_first_of_a_row_are_labelled(n_panels: int) -> None:
    axes = calibration_figure(bins({str(i): ["a"] for i in range(n_panels)}), "title").axes
    across = min(n_panels, 4)
    assert [i for i, each in enumerate(axes) if each.get_xlabel()] == [
        *range(n_panels - across, n_panels)
    ]
    assert [i for i, each in enumerate(axes) if each.get_ylabel()] == [*range(0, n_panels, 4)]


def test_calibration_variants_of_a_setting_are_lines_of_their_own() -> None:
    asked = {"model": "m", "setting": "4-template", "mean_confidence": 0.5, "mean_accuracy": 0.5}
    rows = [{**asked, "variant": variant} for variant in (None, "templates=manual")]
    (axes,) = calibration(pl.DataFrame(rows))["calibration"].axes
    labels = [line.get_label() for line in axes.lines[1:]]
    assert labels == ["4-template", "4-template templates=manual"]
