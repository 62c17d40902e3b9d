"""Two runs compared, for people: what differs, where, and which facts went which way."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType

import polars as pl

from factsweep.operators.metrics.belief.knowledge_state import STATES
from factsweep.operators.metrics.comparing.comparison import P_JUDGED
from factsweep.operators.metrics.comparing.curve import ALONG, KINDS
from factsweep.operators.metrics.comparing.paired import METRICS, PREFERENCES
from factsweep.operators.metrics.shared.rows import headings
from factsweep.operators.tables.shared import canvas
from factsweep.operators.tables.shared.canvas import SERIES, Figure
from factsweep.operators.tables.shared.numbers import (
    COUNT,
    SHARE,
    decimal,
    difference,
    number,
    p_values,
)
from factsweep.operators.tables.shared.pivot import label_of, relation_name

_NO_LABELS: Mapping[str, str] = MappingProxyType({})
_HEADINGS = headings((*METRICS, *PREFERENCES))
_CHANGES = ("lost", "gained", "looser", "firmer")


def headline(comparison: pl.DataFrame, names: tuple[str, str]) -> pl.DataFrame:
    """The differences over everything, one row per metric; `worth`: n_prompts / design effect."""
    overall = comparison.filter(pl.col("relation_id").is_null())
    return overall.select(pl.col("metric").replace(_HEADINGS), *_columns(names))


def by_relation(
    comparison: pl.DataFrame,
    metric: str,
    names: tuple[str, str],
    relation_labels: Mapping[str, str] = _NO_LABELS,
) -> pl.DataFrame:
    """The differences of one metric, one row per relation, the largest loss first, as texts."""
    return _relations(comparison, metric).select(_name_relations(relation_labels), *_columns(names))


def gained_and_lost(
    facts: pl.DataFrame, comparison: pl.DataFrame, relation_labels: Mapping[str, str] = _NO_LABELS
) -> pl.DataFrame:
    """The facts that only one of two runs knows, over everything and by relation, as texts."""
    keys = ["metric", "relation_id"]
    rows = facts.join(comparison, on=keys, nulls_equal=True, maintain_order="left")
    everywhere = pl.when(pl.col("relation_id").is_null()).then(pl.lit("all"))
    relation = everywhere.otherwise(_name_relations(relation_labels))
    counts = {"facts": "n_pairs", "gained": "n_gained", "lost": "n_lost"}
    metric = pl.col("metric").replace(_HEADINGS)
    return rows.select(known=metric, relation=relation, **counts, **difference())


def moves_table(
    counts: pl.DataFrame, relation: str | None = None, *, states: Sequence[str] = STATES
) -> pl.DataFrame:
    """The facts that went from each state (rows) to each (columns); null relation: all."""
    rows = counts.filter(pl.col("relation_id").eq_missing(pl.lit(relation, pl.String)))
    n_by_move = {(old, new): n for _, old, new, n in rows.iter_rows()}
    columns = {new: [n_by_move.get((old, new), 0) for old in states] for new in states}
    types = dict.fromkeys(states, pl.Int64)
    table = pl.DataFrame({"before": states, **columns}, schema_overrides=types)
    return table.with_columns(all=pl.sum_horizontal(states))


def changed_facts(
    changes: pl.DataFrame, pairs: pl.DataFrame, relation_labels: Mapping[str, str] = _NO_LABELS
) -> pl.DataFrame:
    """The facts that were lost, gained, or got looser or firmer, the largest change first."""
    first_labels = pl.element().struct.field("labels").list.first()
    objects = pl.col("objects").list.eval(first_labels).list.join(", ")
    names = pairs.select("pair_id", subject=pl.col("subjects").list.first(), objects=objects)
    size = (pl.col("share_after") - pl.col("share_before")).abs()
    rows = changes.drop_nulls("change").join(names, on="pair_id", how="left")
    order = [pl.col("change").cast(pl.Enum(_CHANGES)), size, pl.col("pair_id")]
    ordered = rows.sort(order, descending=[False, True, False])
    fact = "change", _name_relations(relation_labels), "pair_id", "subject", "objects"
    right = {f"right {when}": pl.col(f"share_{when}").round(4) for when in ("before", "after")}
    return ordered.select(*fact, pl.col("before", "after").cast(pl.String), **right)


def differences_figure(
    comparison: pl.DataFrame,
    metric: str,
    title: str,
    *,
    alpha: float,
    margin: float | None = None,
    relation_labels: Mapping[str, str] = _NO_LABELS,
) -> "Figure":
    """The difference of one metric by relation; filled: p ≤ `alpha`; grey: `margin`.

    Over all, the p-value of the main metric is not adjusted; those of relations are (Holm).
    """
    overall = comparison.filter(pl.col("relation_id").is_null(), metric=metric)
    rows = pl.concat([overall, _relations(comparison, metric)]).drop_nulls("difference")
    labels = rows.select(_name_relations(relation_labels)).to_series().replace("", "all relations")
    labels_of_axes = {"xlabel": f"difference of {_HEADINGS.get(metric, metric)}", "title": title}
    figure, axes = canvas.new_row_frame(labels.to_list(), 6.4, 0.24, 1.7, **labels_of_axes)
    if margin is not None:
        axes.axvspan(-margin, margin, color="0.92", zorder=0, label=f"within ±{margin:g}")
    axes.axvline(0, color="0.5", linewidth=1, zorder=1)
    colour, marker = SERIES[0]
    places = pl.Series(range(rows.height), dtype=pl.Float64)
    axes.hlines(places, rows["ci_low"], rows["ci_high"], color=colour)
    beyond = rows.select(P_JUDGED.fill_null(1) <= alpha).to_series()
    for chosen, face, sign in ((beyond, colour, "≤"), (~beyond, "white", ">")):
        x, y = rows["difference"].filter(chosen), places.filter(chosen)
        label = f"p {sign} {alpha:g} (of relations: Holm)"
        axes.plot(x, y, marker, color=colour, markerfacecolor=face, label=label)
    if rows.height > 1:
        axes.axhline(0.5, color="0.8", linewidth=1)
    canvas.legend_below(figure, 3)
    return figure


def _relations(comparison: pl.DataFrame, metric: str) -> pl.DataFrame:
    rows = comparison.filter(pl.col("relation_id").is_not_null(), metric=metric)
    return rows.sort("difference", "relation_id", nulls_last=True)


def _name_relations(relation_labels: Mapping[str, str]) -> pl.Expr:
    relation = pl.col("relation_id")
    return relation_name(relation, label_of(relation, relation_labels)).alias("relation")


def _columns(names: tuple[str, str]) -> list[pl.Expr]:
    """The two runs under their own names, which may be those of other columns: these refuse it."""
    # 0 where all facts of a relation change alike: no number of prompts would be as sharp.
    effect = pl.col("design_effect")
    worth = pl.when(effect > 0).then(pl.col("n_prompts") / effect)
    columns = {
        **difference(),
        "Cohen's h": number("effect_size", signed=True),
        "design effect": decimal(1).column(effect),
        "worth": COUNT.column(worth),
        "facts": pl.col("n_pairs"),
        "prompts": pl.col("n_prompts"),
    }
    runs = [
        number(column).alias(name) for column, name in zip(("first", "second"), names, strict=True)
    ]
    return [*runs, *(column.alias(heading) for heading, column in columns.items())]


PLACE = "place"  # the axis of runs that stand in the order given
_BAND = {end: pl.coalesce(f"band_{end}", f"ci_{end}") for end in ("low", "high")}
_HEIGHTS = "▁▂▃▄▅▆▇█"
_CURVE = pl.col("shares").list.eval(
    (pl.element() * (len(_HEIGHTS) - 1))
    .round(mode="half_away_from_zero")
    .cast(pl.Int64)
    .replace_strict(dict(enumerate(_HEIGHTS)), return_dtype=pl.String)
)

# The points of a study: one row per run and setting, at its place along the axis.
# `difference` is to the reference, with the interval and the p-value of their comparison; `p_holm`
# is adjusted over the runs. `estimated` is the share of the prompts that were asked; null: all.
_NUMBERS = ("difference", "difference_low", "difference_high", "p", "p_holm", "estimated")
POINTS = pl.Schema(
    [
        ("setting", pl.String),
        ("at", pl.Float64),
        *ALONG.items(),
        *((name, pl.Float64) for name in _NUMBERS),
    ]
)


def along_table(points: pl.DataFrame, axis: str, metric: str, reference: str) -> pl.DataFrame:
    """The runs in the order of the axis, one row per setting and run, as texts (columns: POINTS).

    The band holds for all runs of a setting at once; that of a run alone is its own interval. What
    would say one thing everywhere is left out: one setting, all prompts asked, one run adjusted.

    >>> row = {"setting": "zero-shot", "label": "step-2", "at": 2.0, "value": 0.5, "ci_low": 0.4,
    ...     "ci_high": 0.6, "band_low": 0.35, "band_high": 0.65, "difference": 0.25,
    ...     "p": 0.01, "p_holm": 0.01, "rank_low": 1, "rank_high": 2, "estimated": None}
    >>> along_table(pl.DataFrame([row], POINTS), "step", "Acc@1", "step-1").row(0)
    ('step-2', '2', '.5000', '.3500–.6500', '+.2500', '.0100', '1–2')
    """
    low, high = pl.col("rank_low"), pl.col("rank_high")
    rank = pl.when(low == high).then(low.cast(pl.String)).otherwise(pl.format("{}–{}", low, high))
    share = pl.format("{}%", (100 * pl.col("estimated")).round(2)).fill_null("all")
    position = pl.col("at").map_elements(lambda position: f"{position:g}", return_dtype=pl.String)
    several, ranked = points["setting"].n_unique() > 1, points["rank_low"].count() > 0
    p = p_values()
    if points.group_by("setting").agg(pl.count("p")).filter(pl.col("p") > 1).is_empty():
        del p["p (Holm)"]
    return points.select(
        *(["setting"] if several else []),
        pl.col("label").alias("run"),
        *([] if axis == PLACE else [position.alias(axis)]),
        SHARE.column_with_dashes(pl.col("value")).alias(metric),
        SHARE.interval(ends=list(_BAND.values())).alias("95 % band"),
        SHARE.column(pl.col("difference"), signed=True).alias(f"less {reference}"),
        *(column.alias(heading) for heading, column in p.items()),
        *([rank.alias("rank")] if ranked else []),
        *([share.alias("prompts asked")] if points["estimated"].count() else []),
    )


def lives_table(counts: pl.DataFrame, part: str, labels: Mapping[str, str]) -> pl.DataFrame:
    """How facts fare, one row per part (`curve.count_lives`) and one for all, a column per way."""
    by = counts.columns[0]
    wide = counts.pivot("life", index=by, values="n_pairs", aggregate_function="first")
    kinds = [kind for kind in KINDS if kind in wide.columns]
    rows = wide.with_columns(pl.col(kinds).fill_null(0)).sort(by)
    label = label_of(pl.col(by).cast(pl.String), labels).fill_null("all")
    return rows.select(label.alias(part), *kinds)


def facts_table(lives: pl.DataFrame, labels: Mapping[str, str]) -> pl.DataFrame:
    """How each fact fares: learned and forgotten facts first, with a curve.

    `lives` has the columns LIVES and the subject.

    >>> row = {"relation_id": "P36", "life": "learned", "learned_at": "b", "forgotten_at": None,
    ...     "shares": [0.0, 0.75, 1.0], "subject": "France"}
    >>> facts_table(pl.DataFrame([row]), {"P36": "capital"}).row(0)
    ('capital', 'France', 'learned', 'b', None, '▁▆█')
    """
    is_constant = pl.col("life").cast(pl.String).is_in(["always known", "never known"])
    turned = lives.sort(is_constant, "relation_id", "subject")
    relation = label_of(pl.col("relation_id"), labels).alias("relation")
    turns = {"learned at": "learned_at", "forgotten at": "forgotten_at"}
    life = pl.col("life").cast(pl.String)
    return turned.select(relation, "subject", life, **turns, curve=_CURVE.list.join(""))


def across_table(rows: pl.DataFrame) -> pl.DataFrame:
    """One row per ordered pair of languages, as texts (columns: `across_languages.ACROSS`)."""
    counts = {"facts": "n_facts", "known": "n_known", "in both": "n_shared"}
    shares = {}
    for name in ("sharing", "consist"):
        shares[name] = SHARE.column_with_dashes(pl.col(name))
        shares[f"{name} 95 %"] = SHARE.interval(ends=(f"{name}_low", f"{name}_high"))
    return rows.select(**{"known in": "language", "and in": "other"}, **counts, **shares)


def alone_table(facts: pl.DataFrame) -> pl.DataFrame:
    """Facts (relation_id, subject, object, language) that one language alone knows."""
    names = {"known in": "language", "relation": "relation_id"}
    return facts.select(**names, subject="subject", object="object")


def along_figure(points: pl.DataFrame, axis: str, metric: str) -> "Figure":
    """The value along the axis with its band; runs that asked a part are hollow."""
    scale = "log" if axis == "size" else "linear"
    figure, axes = canvas.new_frame(7, 4, xlabel=axis, ylabel=metric, xscale=scale)
    rows = points.with_columns(series="setting", **_BAND)
    canvas.curves(axes, rows, "at", "value", ends=("low", "high"), linewidth=1.5)
    for series_rows, look in canvas.series(rows):
        part = series_rows.drop_nulls("estimated")
        axes.plot(part["at"], part["value"], look["marker"], color=look["color"], mfc="white")
    if points["at"].n_unique() <= 12:
        ticks = points.unique("at", maintain_order=True)
        axes.set_xticks(ticks["at"].to_list(), ticks["label"].to_list(), rotation=30, ha="right")
        axes.minorticks_off()
    axes.legend(frameon=False)
    return figure


def lives_figure(lives: pl.DataFrame, labels: Sequence[str]) -> "Figure":
    """How many facts are known at each label, and of these how many have just been learned."""
    figure, axes = canvas.new_frame(7, 4, ylabel="facts")
    matrix = lives["is_known"].list.to_array(len(labels)).to_numpy()
    n_known = matrix.sum(axis=0)
    gained = (matrix[:, 1:] & ~matrix[:, :-1]).sum(axis=0)
    lost = (~matrix[:, 1:] & matrix[:, :-1]).sum(axis=0)
    places = range(len(labels))
    axes.plot(places, n_known, "o-", color=SERIES[0][0], label="known")
    axes.bar(places[1:], gained, 0.4, color=SERIES[2][0], label="learned since the run before")
    axes.bar(places[1:], -lost, 0.4, color=SERIES[1][0], label="forgotten since the run before")
    axes.set_xticks(list(places), list(labels), rotation=30, ha="right")
    axes.axhline(0, color="#000000", linewidth=0.8)
    axes.legend(frameon=False)
    return figure
