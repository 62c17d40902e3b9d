"""The calibration figure: what is drawn in it."""

import polars as pl

from factsweep.operators.tables.belief.figures import calibration_figure

BINS = pl.DataFrame(
    {
        "setting": ["b", "b", "a", "a"],
        "mean_confidence": [0.9, 0.1, 0.2, 0.8],
        "mean_accuracy": [0.5, 0.3, 0.0, 1.0],
    }
)


def test_calibration_figure_draws_each_setting_beside_the_diagonal() -> None:
    (axes,) = calibration_figure(BINS, "title").axes
    assert [line.get_label() for line in axes.lines] == ["calibrated", "b", "a"]
    assert axes.get_title() == "title"


def test_calibration_figure_line_runs_through_its_bins_by_confidence() -> None:
    line = calibration_figure(BINS, "title").axes[0].lines[1]
    assert list(zip(*line.get_data(), strict=True)) == [(0.1, 0.3), (0.9, 0.5)]
