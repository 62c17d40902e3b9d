"""Profiles of facts, for people: the facts of each kind, in a table and as stacked bars."""

from collections.abc import Mapping
from typing import Any

import polars as pl

from factsweep.operators.metrics.comparing.profile import KINDS, LEFT_OUT
from factsweep.operators.tables.shared import canvas
from factsweep.operators.tables.shared.canvas import SERIES, Figure
from factsweep.operators.tables.shared.numbers import COUNT, DASH, SHARE

# Blue is recalled, and what is further from recall is further from it; greys are erratic or none.
_BLUE, _VERMILION, _GREEN, _PURPLE, _ORANGE, _SKY = (colour for colour, _ in SERIES)
_COLOURS = dict(
    zip(
        KINDS,
        (_BLUE, _SKY, _GREEN, _ORANGE, _PURPLE, _VERMILION, "#9a9a9a", "#dddddd"),
        strict=True,
    )
)
_WHITE_ON = (_BLUE, _GREEN, _PURPLE, _VERMILION)
_WIDE = 0.06  # share of a bar from which its number fits into it


def kinds_table(counts_by_name: Mapping[str, pl.DataFrame]) -> pl.DataFrame:
    """One row per kind: the facts of each profile, and their share with its 95 % interval.

    Of the profiles (columns: `metrics.comparing.profile.COUNTS`), a dash where no run shows a kind.
    """
    kinds = [kind for kind in KINDS if any(kind in c["kind"] for c in counts_by_name.values())]
    table = pl.DataFrame({"kind": [*kinds, *LEFT_OUT]})
    for name, counts in counts_by_name.items():
        share = pl.format(", {} ({})", SHARE.column(pl.col("share")), SHARE.interval())
        text = pl.concat_str(COUNT.column(pl.col("n_facts")), share.fill_null(""))
        cells = counts.select("kind", text.alias(name))
        table = table.join(cells, on="kind", how="left", maintain_order="left")
    return table.with_columns(pl.exclude("kind").fill_null(DASH))


def kinds_figure(counts_by_name: Mapping[str, pl.DataFrame]) -> "Figure":
    """One stacked bar per profile: the share of the facts of each kind, with their number."""
    names = list(counts_by_name)
    labels = {"xlabel": "share of facts", "xlim": (0, 1)}
    figure, axes = canvas.new_row_frame(names, 7.5, 0.42, 1.3, **labels)
    handles = {}
    for place, counts in enumerate(counts_by_name.values()):
        start = 0.0
        for kind, n_facts, share in counts.select("kind", "n_facts", "share").drop_nulls().rows():
            colour = _COLOURS[kind]
            bars = axes.barh(place, share, 0.7, start, color=colour, edgecolor="white", label=kind)
            handles[kind] = bars
            if share >= _WIDE:
                ink = "white" if colour in _WHITE_ON else "#111111"  # which dark mode keeps
                look: dict[str, Any] = {"ha": "center", "va": "center", "fontsize": "small"}
                axes.text(start + share / 2, place, f"{n_facts:,}", color=ink, **look)
            start += share
    in_order = [handles[kind] for kind in KINDS if kind in handles]
    canvas.legend_below(figure, 4, handles=in_order)
    return figure
