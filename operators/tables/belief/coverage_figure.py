"""How much a model knows by its mean prompt, by its best template, by any prompt (Table 7)."""

from typing import TYPE_CHECKING

import polars as pl

from factsweep.operators.tables.shared.canvas import canvas
from factsweep.operators.tables.shared.series import SERIES

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_LABELS = {
    "acc_at_1": "mean prompt",
    "coverage_maximum": "best template",
    "coverage_oracle": "any prompt",
}


def coverage(metrics: pl.DataFrame) -> pl.DataFrame:
    """The shares of each run that has all three: run, metric, value, ci_low, ci_high.

    >>> names = {"model": "tiny", "setting": "zero-shot", "variant": None, "slice": None}
    >>> rows = [{**names, "metric": metric, "value": 0.5, "ci_low": None, "ci_high": None}
    ...     for metric in ("acc_at_1", "coverage_maximum", "coverage_oracle")]
    >>> coverage(pl.DataFrame(rows))["run"].unique().to_list()
    ['tiny zero-shot']
    """
    rows = metrics.filter(pl.col("slice").is_null(), pl.col("metric").is_in(list(_LABELS)))
    names = pl.concat_str("model", "setting", "variant", separator=" ", ignore_nulls=True)
    rows = rows.drop_nulls("value").select(
        names.alias("run"), "metric", "value", "ci_low", "ci_high"
    )
    return rows.filter(pl.col("metric").n_unique().over("run") == len(_LABELS))


def coverage_figure(shares: pl.DataFrame) -> "Figure":
    """One row per run: three marks on the scale from 0 to 1, each with its 95 % interval.

    `shares` is what `coverage` gives.
    """
    runs = shares["run"].unique(maintain_order=True).to_list()
    figure = canvas(5.2, 0.3 * len(runs) + 1.2)
    axes = figure.add_subplot()
    for (metric, label), (colour, marker) in zip(_LABELS.items(), SERIES, strict=False):
        rows = shares.filter(metric=metric)
        places = [runs.index(run) for run in rows["run"]]
        low, high = (rows[name].fill_null(rows["value"]) for name in ("ci_low", "ci_high"))
        axes.hlines(places, low, high, color=colour, linewidth=1.2)
        axes.plot(rows["value"], places, marker, color=colour, markersize=5.5, label=label)
    axes.set_yticks(range(len(runs)), runs, fontsize="small")
    axes.invert_yaxis()
    axes.margins(y=0.15 if len(runs) > 2 else 0.5)
    axes.set(xlabel="share of facts", xlim=(-0.02, 1.02))
    axes.tick_params(axis="y", length=0)
    axes.grid(color="0.92", axis="x")
    axes.set_axisbelow(True)
    figure.legend(loc="outside lower center", ncols=3, frameon=False, fontsize="small")
    return figure
