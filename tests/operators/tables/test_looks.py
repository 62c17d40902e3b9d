"""The look of every figure: sizes, places, colours, strokes and texts are those that were chosen.

A digest stands for them. Where a look is changed on purpose, the new digest goes here.
"""

import hashlib
import json
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import polars as pl
import pytest
from matplotlib.figure import Figure

from factsweep.operators.metrics.comparing.comparison import COMPARISON
from factsweep.operators.tables import belief, comparison, distractors, kamel, probelm

ARTISTS = ("lines", "patches", "collections", "texts", "images")
LOOKS = (
    *("color", "facecolor", "edgecolor", "linewidth", "linestyle", "alpha", "zorder", "label"),
    *("marker", "markersize", "markerfacecolor", "data", "xy", "width", "height", "clim"),
    *("text", "position", "rotation", "ha", "va", "fontsize", "segments", "array"),
)
AXES = (
    *("facecolor", "xlabel", "ylabel", "title", "xlim", "ylim", "xscale", "aspect", "axisbelow"),
    *("xticks", "yticks"),
)


def plain(value: Any) -> Any:
    """A value of Matplotlib's as one of JSON."""
    if isinstance(value, np.ndarray):
        value = value.tolist()
    if isinstance(value, list | tuple):
        return [plain(element) for element in value]
    if isinstance(value, float | np.number):
        return round(float(value), 6)
    return str(value) if not isinstance(value, bool | int) else value


def looks(artist: Any, names: tuple[str, ...]) -> list[Any]:
    return [plain(getattr(artist, f"get_{name}", str)()) for name in names]


def drawn(figure: Figure) -> Iterator[Any]:
    """What is drawn, without what depends on fonts."""
    yield plain(figure.get_size_inches()), figure.get_suptitle(), figure.get_supxlabel()
    for axes in figure.axes:
        yield looks(axes, AXES)
        for axis in (axes.xaxis, axes.yaxis):
            yield [looks(text, LOOKS[-7:-2]) for text in axis.get_ticklabels()]
            yield [looks(line, LOOKS[:7]) for line in axis.get_gridlines()[:1]]
            yield plain(sorted(axis.get_tick_params().items()))
        yield [spine.get_visible() for spine in axes.spines.values()]
        yield [(name, looks(artist, LOOKS)) for name in ARTISTS for artist in getattr(axes, name)]
    for legend in (*figure.legends, *(axes.get_legend() for axes in figure.axes)):
        if legend is not None:
            frame = legend.get_frame_on(), legend._ncols, plain(legend._loc)
            yield frame, [looks(text, ("text", "fontsize")) for text in legend.get_texts()]


def digest(figure: Figure) -> str:
    return hashlib.sha256(json.dumps([*drawn(figure)]).encode()).hexdigest()[:12]


def calibration(n_panels: int) -> Figure:
    rows = [
        (f"panel {n}", name, x, x / 2) for n in range(n_panels) for name in "ab" for x in (0, 0.9)
    ]
    columns = ["panel", "series", "mean_confidence", "mean_accuracy"]
    return belief.calibration_figure(pl.DataFrame(rows, columns, orient="row"), "title")


def coverage() -> Figure:
    metrics = ("acc_at_1", "coverage_maximum", "coverage_oracle")
    rows = [(run, name, 0.5, 0.4, None) for run in ("x", "y") for name in metrics]
    columns = ["run", "metric", "value", "ci_low", "ci_high"]
    return belief.coverage_figure(pl.DataFrame(rows, columns, orient="row"))


def sharing() -> Figure:
    rows = [("a", "a", 1.0), ("a", "b", 0.7), ("b", "a", None), ("b", "b", 0.71)]
    columns = ["run", "other", "value"]
    return belief.knowledge_sharing_figure(pl.DataFrame(rows, columns, orient="row"), "title")


def spread() -> Figure:
    rows = [("P2", 0.2, 0.5, 0.6), ("P1", 0.0, 0.1, 0.9)]
    columns = ["relation", "min", "mean", "max"]
    return belief.template_spread_figure(pl.DataFrame(rows, columns, orient="row"), "title")


def differences() -> Figure:
    numbers = {"ci_low": -0.1, "ci_high": 0.2}
    rows = [
        {**numbers, "metric": "acc_at_1", "relation_id": name, "difference": d, "p": p, "p_holm": p}
        for name, d, p in ((None, 0.01, 0.05), ("P1", 0.02, 0.051), ("P2", -0.03, None))
    ]
    table = pl.DataFrame(rows, {**COMPARISON})
    return comparison.differences_figure(table, "acc_at_1", "title", alpha=0.05, margin=0.02)


def along(axis: str) -> Figure:
    n = 12 if axis == "size" else 13
    ends = {"band_low": 0.1, "band_high": 0.9, "ci_low": 0.2, "ci_high": 0.8}
    rows = [
        {"label": f"m{i}", "at": 1.0 + i, "value": i / 20, "estimated": 0.5 if i % 2 else None}
        for i in range(n)
    ]
    points = pl.DataFrame(rows).with_columns(setting=pl.lit("s"), **ends)
    return comparison.along_figure(points, axis, "Acc@1")


def lives() -> Figure:
    known = [[True, False, True, True], [False, True, True, False]]
    return comparison.lives_figure(pl.DataFrame({"is_known": known}), ["a", "b", "c", "d"])


def frames() -> Figure:
    months = ["2023-11", "2020-10"]
    table = pl.DataFrame({"series": ["b", "b"], "frame": months, "value": [0.4, 0.5]})
    ends = table.with_columns(ci_low=pl.lit(0.35), ci_high=pl.lit(None, pl.Float64))
    return probelm.frames_figure(ends, "title", {"b": "2022-01"})


F1 = {"f1": [0.1, 0.2, 0.3], "ci_low": [0.05, None, 0.2], "ci_high": [0.15, None, 0.4]}


def cardinality() -> Figure:
    names = {"series": ["b", "b", "a"], "cardinality": ["10", "2", "1"]}
    return kamel.cardinality_figure(pl.DataFrame({**names, **F1}), "title")


def kinds() -> Figure:
    names = {"series": ["a", "a", "b"], "kind": ["entity", "literal", "entity"]}
    return kamel.kind_figure(pl.DataFrame({**names, **F1}), "title")


def gains() -> Figure:
    rows = pl.DataFrame({"series": ["a"] * 21, "x": range(21), "y": [1.0] * 21})
    (figure,) = distractors.draw_figure("gains", rows).values()
    return figure.figure


def sizes() -> Figure:
    models = ["x", "y", "z"]
    values = pl.DataFrame({"model": models, "value": [0.5, 0.6, 0.7], "metric": "avg_at_20"})
    values = values.with_columns(slice=pl.lit(None, pl.String), setting=pl.lit("optimal"))
    costs = pl.DataFrame({"model": models, "value": [1.0, 10.0, 100.0]})
    costs = costs.with_columns(metric=pl.lit("billions_of_parameters"))
    return distractors.draw_sizes(values, costs)["extrapolation"].figure


FIGURES: dict[str, tuple[Callable[[], Figure], str]] = {
    "calibration": (lambda: calibration(5), "15fa8f0451c0"),
    "calibration of one": (lambda: calibration(1), "c5677f54473d"),
    "coverage": (coverage, "597866896eb3"),
    "sharing": (sharing, "6ea03b78b230"),
    "spread": (spread, "397c32adb572"),
    "differences": (differences, "ff9c2bf19a06"),
    "along a size": (lambda: along("size"), "252d77e1442c"),
    "along steps": (lambda: along("step"), "45287864f06c"),
    "lives": (lives, "c585ef1d8cf9"),
    "frames": (frames, "cdef440a7357"),
    "cardinality": (cardinality, "92531d3159ef"),
    "kinds": (kinds, "2594c3dacb06"),
    "gains": (gains, "70049e0793f8"),
    "sizes": (sizes, "45d2992085e2"),
}


@pytest.mark.parametrize("name", FIGURES)
def test_figure_looks_as_it_was_chosen_to(name: str) -> None:
    draw, chosen = FIGURES[name]
    assert digest(draw()) == chosen
