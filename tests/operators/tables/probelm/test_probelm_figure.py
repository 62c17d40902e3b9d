"""PRobELM's figure: what is drawn in it."""

from typing import Any

import polars as pl

from factsweep.operators.tables.probelm import frames_figure

FRAMES = pl.DataFrame(
    {
        "series": ["b", "b", "a", "a"],
        "frame": ["2023-11", "2020-10", "2023-11", "2020-10"],
        "value": [0.4, 0.5, None, 0.3],
        "ci_low": [0.35, 0.45, None, None],
        "ci_high": [0.45, 0.55, None, None],
    }
)


def test_frames_figure_draws_each_series_in_order_of_time() -> None:
    axes: Any
    (axes,) = frames_figure(FRAMES, "title").axes
    assert [line.get_label() for line in axes.lines] == ["b", "a"]
    assert [list(line.get_ydata()) for line in axes.lines] == [[50, 40], [30]]
    assert list(axes.lines[0].get_xdata()) == [2020.75, 2023 + 10 / 12]


def test_frames_figure_has_a_dotted_cutoff_and_hollow_frames_before_it() -> None:
    axes: Any
    (axes,) = frames_figure(FRAMES, "title", {"b": "2022-01"}).axes
    (dotted,) = [line for line in axes.lines if line.get_linestyle() == ":"]
    assert list(dotted.get_xdata()) == [2022, 2022]
    (hollow,) = [line for line in axes.lines if line.get_markerfacecolor() == "white"]
    assert list(hollow.get_ydata()) == [50]
    assert len(axes.get_legend().get_texts()) == 2
