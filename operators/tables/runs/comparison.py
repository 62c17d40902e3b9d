"""Two runs compared, for people: what differs, where, and which facts went which way."""

from collections.abc import Mapping
from types import MappingProxyType

import polars as pl

from factsweep.operators.metrics.belief.knowledge_state import STATES
from factsweep.operators.metrics.comparing.paired_preferences import METRICS as PREFERENCES
from factsweep.operators.metrics.comparing.paired_terms import METRICS
from factsweep.operators.metrics.shared.metric import headings
from factsweep.operators.tables.shared import canvas
from factsweep.operators.tables.shared.canvas import SERIES, Axes, Figure
from factsweep.operators.tables.shared.numbers import COUNT, decimal, difference, number
from factsweep.operators.tables.shared.relations import label_of, named

_NO_LABELS: Mapping[str, str] = MappingProxyType({})
_HEADINGS = headings((*METRICS, *PREFERENCES))
_CHANGES = ("lost", "gained", "looser", "firmer")


def headline(comparison: pl.DataFrame, names: tuple[str, str]) -> pl.DataFrame:
    """The differences over everything, one row per metric, as texts.

    `comparison` has the columns COMPARISON, `names` are those of the first and the second run.
    `worth` is the number of independent prompts that would measure the difference as sharply:
    n_prompts / design effect.
    """
    overall = comparison.filter(pl.col("relation_id").is_null())
    return overall.select(pl.col("metric").replace(_HEADINGS), *_columns(names))


def by_relation(
    comparison: pl.DataFrame,
    metric: str,
    names: tuple[str, str],
    relation_labels: Mapping[str, str] = _NO_LABELS,
) -> pl.DataFrame:
    """The differences of one metric, one row per relation, the largest loss first, as texts."""
    return _relations(comparison, metric).select(_labelled(relation_labels), *_columns(names))


def gained_and_lost(
    facts: pl.DataFrame, comparison: pl.DataFrame, relation_labels: Mapping[str, str] = _NO_LABELS
) -> pl.DataFrame:
    """The facts that only one of two runs knows, over everything and by relation, as texts.

    `facts` has the columns FACTS. The difference is the share of facts gained less the share lost;
    its interval and p are those of the comparison.
    """
    keys = ["metric", "relation_id"]
    rows = facts.join(comparison, on=keys, nulls_equal=True, maintain_order="left")
    everywhere = pl.when(pl.col("relation_id").is_null()).then(pl.lit("all"))
    relation = everywhere.otherwise(_labelled(relation_labels))
    counts = {"facts": "n_pairs", "gained": "n_gained", "lost": "n_lost"}
    known = pl.col("metric").replace(_HEADINGS)
    return rows.select(known=known, relation=relation, **counts, **difference())


def moves(counts: pl.DataFrame, relation: str | None = None) -> pl.DataFrame:
    """The facts that went from each state (rows) to each state (columns).

    `counts` has the columns MOVES; `relation` is null for all facts together.
    """
    rows = counts.filter(pl.col("relation_id").eq_missing(pl.lit(relation, pl.String)))
    found = {(before, after): n for _, before, after, n in rows.iter_rows()}
    columns = {after: [found.get((before, after), 0) for before in STATES] for after in STATES}
    types = dict.fromkeys(STATES, pl.Int64)
    table = pl.DataFrame({"before": STATES, **columns}, schema_overrides=types)
    return table.with_columns(all=pl.sum_horizontal(STATES))


def changed_facts(
    changes: pl.DataFrame, pairs: pl.DataFrame, relation_labels: Mapping[str, str] = _NO_LABELS
) -> pl.DataFrame:
    """The facts that were lost, gained, or got looser or firmer, the largest change first.

    `changes` has the columns CHANGES, `pairs` is the canonical table. `subject` is its first name,
    `objects` the first label of each; `right before` and `right after` are shares of the fact's
    prompts.
    """
    first_labels = pl.element().struct.field("labels").list.first()
    objects = pl.col("objects").list.eval(first_labels).list.join(", ")
    names = pairs.select("pair_id", subject=pl.col("subjects").list.first(), objects=objects)
    size = (pl.col("share_after") - pl.col("share_before")).abs()
    rows = changes.drop_nulls("change").join(names, on="pair_id", how="left")
    order = [pl.col("change").cast(pl.Enum(_CHANGES)), size, pl.col("pair_id")]
    ordered = rows.sort(order, descending=[False, True, False])
    fact = "change", _labelled(relation_labels), "pair_id", "subject", "objects"
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
    """The difference of one metric by relation, with 95 % intervals; everything at the top.

    `comparison` has the columns COMPARISON. A filled marker is a difference whose p, after Holm's
    correction, is at most `alpha`; the grey band is the tolerance, `margin`.
    """
    overall = comparison.filter(pl.col("relation_id").is_null(), metric=metric)
    rows = pl.concat([overall, _relations(comparison, metric)]).drop_nulls("difference")
    labels = rows.select(_labelled(relation_labels)).to_series().replace("", "all relations")
    named = {"xlabel": f"difference of {_HEADINGS.get(metric, metric)}", "title": title}
    figure, axes = canvas.in_rows(labels.to_list(), 6.4, 0.24, 1.7, **named)
    if margin is not None:
        axes.axvspan(-margin, margin, color="0.92", zorder=0, label=f"within ±{margin:g}")
    axes.axvline(0, color="0.5", linewidth=1, zorder=1)
    _draw(axes, rows, alpha)
    if rows.height > 1:
        axes.axhline(0.5, color="0.8", linewidth=1)
    canvas.below(figure, 3)
    return figure


def _draw(axes: "Axes", rows: pl.DataFrame, alpha: float) -> None:
    colour, marker = SERIES[0]
    places = pl.Series(range(rows.height), dtype=pl.Float64)
    axes.hlines(places, rows["ci_low"], rows["ci_high"], color=colour)
    beyond = rows["p_holm"].fill_null(1) <= alpha
    for chosen, face, sign in ((beyond, colour, "≤"), (~beyond, "white", ">")):
        axes.plot(
            rows["difference"].filter(chosen),
            places.filter(chosen),
            marker,
            color=colour,
            markerfacecolor=face,
            label=f"p {sign} {alpha:g} (Holm)",
        )


def _relations(comparison: pl.DataFrame, metric: str) -> pl.DataFrame:
    rows = comparison.filter(pl.col("relation_id").is_not_null(), metric=metric)
    return rows.sort("difference", "relation_id", nulls_last=True)


def _labelled(relation_labels: Mapping[str, str]) -> pl.Expr:
    relation = pl.col("relation_id")
    return named(relation, label_of(relation, relation_labels)).alias("relation")


def _columns(names: tuple[str, str]) -> list[pl.Expr]:
    """The two runs under their own names, which may be those of other columns: these refuse it."""
    # 0 where all facts of a relation change alike: no number of prompts would be as sharp.
    effect = pl.col("design_effect")
    worth = pl.when(effect > 0).then(pl.col("n_prompts") / effect)
    further = {
        **difference(),
        "Cohen's h": number("effect_size", signed=True),
        "design effect": decimal(1).column(effect),
        "worth": COUNT.column(worth),
        "facts": pl.col("n_pairs"),
        "prompts": pl.col("n_prompts"),
    }
    runs = [number(at).alias(name) for at, name in zip(("first", "second"), names, strict=True)]
    return [*runs, *(column.alias(heading) for heading, column in further.items())]
