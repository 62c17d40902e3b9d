"""How far the templates of a relation lie apart (Table 11 of BELIEF, by relation)."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING

import polars as pl

from factsweep.operators.tables.shared.canvas import canvas
from factsweep.operators.tables.shared.relations import is_relation, label_of, named, relation_id
from factsweep.operators.tables.shared.series import SERIES

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_PARTS = ("min", "mean", "max")


def spread_by_relation(
    metrics: pl.DataFrame, relation_labels: Mapping[str, str] = MappingProxyType({})
) -> pl.DataFrame:
    """The accuracy of each relation's worst, mean and best template: relation, min, mean, max.

    Rows of one run, by their mean, the best first; a relation is its id and its label.

    >>> rows = pl.DataFrame({
    ...     "slice": ["relation=P36"] * 3 + [None],
    ...     "metric": [f"template_spread_{x}" for x in ("min", "mean", "max", "max")],
    ...     "value": [0.1, 0.4, 0.6, 0.5],
    ... })
    >>> spread_by_relation(rows, {"P36": "capital"}).row(0)
    ('P36 capital', 0.1, 0.4, 0.6)
    """
    label = label_of(relation_id(), relation_labels)
    rows = metrics.filter(
        is_relation(),
        pl.col("metric").is_in([f"template_spread_{part}" for part in _PARTS]),
    ).select(
        "value",
        relation=named(relation_id(), label),
        part=pl.col("metric").str.strip_prefix("template_spread_"),
    )
    # A part that no row has is a column of nulls all the same.
    wide = rows.group_by("relation", maintain_order=True).agg(
        pl.col("value").filter(pl.col("part") == part).first().alias(part) for part in _PARTS
    )
    return wide.drop_nulls().sort("mean", "relation", descending=[True, False])


def template_spread_figure(spread: pl.DataFrame, title: str) -> "Figure":
    """One bar per relation from its worst to its best template, with a dot at the mean.

    `spread` has relation, min, mean and max (`spread_by_relation`).
    """
    figure = canvas(5.2, 0.19 * spread.height + 1.3)
    axes = figure.add_subplot()
    places = range(spread.height)
    (bar, _), (dot, marker) = SERIES[:2]
    width = spread["max"] - spread["min"]
    axes.barh(places, width, 0.5, spread["min"], color=bar, alpha=0.35, label="worst to best")
    axes.plot(spread["mean"], places, marker, color=dot, markersize=4.5, label="mean")
    axes.set_yticks(places, spread["relation"], fontsize="small")
    axes.invert_yaxis()
    axes.set(xlabel="Acc@1 of a template", title=title, xlim=(-0.02, 1.02))
    axes.margins(y=0.01)
    axes.tick_params(axis="y", length=0)
    axes.grid(color="0.92", axis="x")
    axes.set_axisbelow(True)
    figure.legend(loc="outside lower center", ncols=2, frameon=False, fontsize="small")
    return figure
