"""The tables of the PRobELM paper (1 to 7, section 5.1, figure 2), as texts in percent.

`cutoffs` has the month in which a model's training data ends, by its name (2023-03). A time frame
that begins before it is marked SEEN: its facts may be in the training data.
"""

from collections.abc import Mapping

import polars as pl

from factsweep.operators.metrics.probelm import ALL_TYPES, METRICS, correlations
from factsweep.operators.prompts.plausibility import PROMPT_TYPES
from factsweep.operators.tables.shared import canvas, pivot
from factsweep.operators.tables.shared.canvas import Figure
from factsweep.operators.tables.shared.numbers import DASH, in_percent
from factsweep.operators.tables.shared.pivot import MEASURED, OTHER_FACTS, PUBLISHED

SEEN = "†"
RANDOM = "random order"
_NAMES = ("model", "benchmark", "variant")
_TYPES = {"statement": "Statement", "completion": "Completion", "question": "Question"}
_METRICS = {"accuracy": "Acc.", "mrr": "MRR", "ndcg": "NDCG", "ndcg_at_3": "NDCG@3"}
_OVERALL = {"plausibility": "Plausibility", "plausibility_published": "Plausibility@3"}
_INTERVAL = "95 % interval"
_PERCENT = in_percent(2)
_HEADINGS = (
    _OVERALL["plausibility"],
    _INTERVAL,
    _OVERALL["plausibility_published"],
    *(f"{kind} {metric}" for kind in _TYPES.values() for metric in _METRICS.values()),
)
# The frame of a slice that is all of it, and of one that may lack a relation.
_FRAME = pl.col("slice").str.extract(r"^frame=([0-9]{4}-[0-9]{2})$")
_FRAME_OF = pl.col("slice").str.extract(r"^frame=([0-9]{4}-[0-9]{2})")
_BASELINE = pl.col("metric").str.starts_with("baseline_")
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")


def months(frame: str) -> str:
    """A time frame in words: its month, and the one after it.

    >>> months("2017-12")
    'Dec 2017 - Jan 2018'
    """
    year, month = (int(part) for part in frame.split("-"))
    following = f"{_MONTHS[month % 12]} {year + month // 12}"
    return f"{_MONTHS[month - 1]} {year} - {following}"


def overview(
    metrics: pl.DataFrame, candidates: pl.DataFrame, cutoffs: Mapping[str, str]
) -> pl.DataFrame:
    """Table 1: each model's training cut-off, and the frames it was measured on with sizes."""
    sizes = candidates.group_by("frame").agg(groups=pl.n_unique("pair_id"), scenarios=pl.len())
    measured = metrics.select("model", frame=_FRAME).drop_nulls().unique()
    words = {frame: months(frame) for frame in sizes["frame"]}
    rows = measured.join(sizes, on="frame").sort("model", "frame")
    cutoff, frame = _cutoff(cutoffs).fill_null(DASH), pl.col("frame").replace(words)
    columns = {"training data up to": cutoff, "time frame": frame + _mark(cutoffs)}
    return rows.select("model", **columns, groups="groups", scenarios="scenarios")


def by_frame(
    metrics: pl.DataFrame,
    published: pl.DataFrame | None = None,
    cutoffs: Mapping[str, str] | None = None,
) -> pl.DataFrame:
    """Tables 4 to 7: one row per frame, model, variant and source; the numbers of each type."""
    return _table(metrics, published, cutoffs or {}, published_in=("4", "5", "6", "7"))


def headline(
    metrics: pl.DataFrame,
    published: pl.DataFrame | None = None,
    cutoffs: Mapping[str, str] | None = None,
) -> pl.DataFrame:
    """Table 2: `by_frame`, each model on the first frame that is not SEEN, if there is one."""
    rows = metrics.with_columns(frame=_FRAME_OF)
    unseen = rows.filter(pl.col("frame") >= _cutoff(cutoffs or {}))
    first = pl.col("frame").min().over("model")
    rows_of_models = unseen.filter(pl.col("frame") == first).drop("frame")
    return _table(rows_of_models, published, cutoffs or {}, published_in=("2",))


def ranking(table: pl.DataFrame) -> pl.DataFrame:
    """Table 3, its column of PRobELM: models of `by_frame` by plausibility, with places."""
    rows = table.filter(pl.col("source") != RANDOM)
    groups = ["benchmark", "frame", "variant", "source"]
    # Published rows have NDCG@3 alone.
    columns = [pl.col(name) for name in _OVERALL.values() if name in table.columns]
    if not columns:
        return rows.clear().select(*groups, "model", pl.lit(DASH).alias("Plausibility"))
    text = pl.coalesce(pl.when(column != DASH).then(column) for column in columns)
    rows = rows.with_columns(number=text.cast(pl.Float64)).drop_nulls("number")
    place = pl.col("number").rank("min", descending=True).over(groups)
    rows = rows.with_columns(place=place).sort(*groups, "place", "model")
    return rows.select(*groups, "model", Plausibility=pl.format("{} ({})", text, "place"))


def by_relation(
    metrics: pl.DataFrame, relation_labels: Mapping[str, str] | None = None
) -> pl.DataFrame:
    """Each relation's numbers, best plausibility first."""
    rows = pivot.select_relations(metrics.filter(~_BASELINE), relation_labels)
    keys = [*_NAMES, "ID", "Label"]
    overall = rows.filter(metric="plausibility")
    counts = overall.select(*keys, groups="n", failed="n_failed")
    table = pivot.join_columns(pivot.pivot(_cells(rows, keys), keys, _HEADINGS), counts, keys)
    return pivot.sort_relations(table, _NAMES, overall, best_first=True)


def agreement(metrics: pl.DataFrame) -> pl.DataFrame:
    """Section 5.1: Pearson's correlation between prompt types, and between metrics.

    Over the cells of all models together; only frames' rows count, and each metric but NDCG@3
    where NDCG was measured (the published table has NDCG@3 alone).
    """
    rows = metrics.filter(_FRAME.is_not_null(), ~_BASELINE)
    graded = (rows["metric"] == "ndcg").any()
    columns = ("accuracy", "mrr", "ndcg" if graded else "ndcg_at_3")
    rows = rows.filter(pl.col("metric").is_in(columns))
    names = {**_TYPES, **_METRICS}
    parts = [correlations(rows, "setting", PROMPT_TYPES), correlations(rows, "metric", columns)]
    return pl.concat(parts).select(
        pl.col("first", "second").replace(names), pl.col("pearson").round(4), "n"
    )


def over_frames(metrics: pl.DataFrame) -> pl.DataFrame:
    """Figure 2: the plausibility over all prompt types in each frame, as numbers."""
    rows = metrics.filter(_FRAME.is_not_null(), metric="plausibility").with_columns(frame=_FRAME)
    columns = ("model", "variant", "frame", "value", "ci_low", "ci_high", "n")
    return rows.select(columns).sort("model", "variant", "frame")


def _cutoff(cutoffs: Mapping[str, str]) -> pl.Expr:
    names = dict(cutoffs)
    return pl.col("model").replace_strict(names, default=None, return_dtype=pl.String)


def _mark(cutoffs: Mapping[str, str]) -> pl.Expr:
    """What stands behind a frame that begins before the model's cut-off."""
    is_seen = pl.col("frame") < _cutoff(cutoffs)
    return pl.when(is_seen).then(pl.lit(f" {SEEN}")).otherwise(pl.lit(""))


def _table(
    metrics: pl.DataFrame,
    published: pl.DataFrame | None,
    cutoffs: Mapping[str, str],
    published_in: tuple[str, ...],
) -> pl.DataFrame:
    keys = ["frame", *_NAMES, "source"]
    if published is not None:
        published = published.filter(pl.col("table").is_in(published_in))
    rows = (
        pivot.stack_sources(metrics, published, RANDOM)
        .with_columns(frame=_FRAME_OF)
        .drop_nulls("frame")
    )
    first = rows.filter(_FRAME.is_not_null(), metric="accuracy", source=MEASURED)
    counts = first.unique(keys, maintain_order=True).select(*keys, groups="n", failed="n_failed")
    order = pl.col("source").cast(pl.Enum([MEASURED, PUBLISHED, OTHER_FACTS, RANDOM]))
    table = pivot.join_columns(pivot.pivot(_cells(rows, keys), keys, _HEADINGS), counts, keys)
    table = table.sort("frame", *_NAMES, order)
    return table.with_columns(pl.col("frame") + _mark(cutoffs))


def _cells(rows: pl.DataFrame, keys: list[str]) -> pl.DataFrame:
    """The numbers as texts under their headings: the keys, heading, text."""
    overall, metric = pl.col("setting") == ALL_TYPES, pl.col("metric")
    without = pl.col("slice").str.extract(r"(without=[^,]+)$").str.replace("=", " ")
    is_overall = overall & without.is_null()
    of_metric = metric.replace_strict(_METRICS, default=None)
    of_type = pl.concat_str(pl.col("setting").replace(_TYPES), of_metric, separator=" ")
    of_all = pl.when(is_overall).then(metric.replace_strict(_OVERALL, default=None))
    of_parts = of_all.when(overall & (metric == "plausibility")).then(without)
    heading = of_parts.when(~overall & without.is_null()).then(of_type)
    intervals = rows.filter(is_overall, metric == "plausibility").drop_nulls("ci_low")
    values = rows.select(*keys, heading=heading, text=_PERCENT.column_with_dashes(pl.col("value")))
    ends = intervals.select(*keys, heading=pl.lit(_INTERVAL), text=_PERCENT.interval())
    return pl.concat([values, ends]).drop_nulls("heading")


def card(metrics: pl.DataFrame) -> pl.DataFrame:
    """The overall numbers for a narrow screen: one row per metric and variant."""
    return pivot.card(metrics, METRICS, _PERCENT, row_variants=("score",))


def frames_figure(
    frames: pl.DataFrame, title: str, cutoffs: Mapping[str, str] | None = None
) -> "Figure":
    """One line per series over its time frames (`over_frames`), hollow before the cut-off."""
    below = "time frame (hollow: begins before the cut-off, which is dotted)"
    labels = {"xlabel": below, "ylabel": "plausibility in %", "title": title}
    figure, axes = canvas.new_frame(6.4, 3.8, **labels)
    rows = frames.drop_nulls("value")
    for series_rows, look in canvas.series(rows):
        points, colour = series_rows.sort("frame"), look["color"]
        years, value = [_years(frame) for frame in points["frame"]], 100 * points["value"]
        ends = (points[end].cast(pl.Float64) * 100 for end in ("ci_low", "ci_high"))
        low, high = (end.fill_null(value) for end in ends)
        axes.plot(years, value, **look)
        axes.vlines(years, low, high, color=colour, alpha=0.5)
        cutoff = (cutoffs or {}).get(look["label"])
        if cutoff is not None:
            axes.axvline(_years(cutoff), color=colour, linestyle=":", zorder=0)
            is_seen = points["frame"] < cutoff
            seen_years, seen_values = (
                pl.Series(years, dtype=pl.Float64).filter(is_seen),
                value.filter(is_seen),
            )
            axes.plot(
                seen_years, seen_values, look["marker"], color=colour, markerfacecolor="white"
            )
    years_asked = sorted({int(frame[:4]) for frame in rows["frame"]})
    axes.set_xticks(range(years_asked[0], years_asked[-1] + 2) if years_asked else [])
    axes.legend(frameon=False, fontsize="small", loc="upper left", bbox_to_anchor=(1, 1))
    return figure


def _years(month: str) -> float:
    """A month as a number of years: 2023-11 → 2023.83."""
    return int(month[:4]) + (int(month[5:]) - 1) / 12
