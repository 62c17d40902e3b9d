"""The tables of the KAMEL paper (1 to 4 and 6, figures 1a and 1b), as texts in percent."""

from collections.abc import Callable, Mapping, Sequence

import polars as pl
import polars.selectors as cs

from factsweep.operators.datasets.facts import Facts
from factsweep.operators.datasets.kamel import shown_forms
from factsweep.operators.metrics.belief.belief import CONFIDENCE
from factsweep.operators.metrics.kamel import F1, METRICS, PRECISION, RECALL
from factsweep.operators.metrics.noise import CUT_SHARE, FLIP_RATE
from factsweep.operators.metrics.pass_at_k import METRICS as PASS
from factsweep.operators.metrics.shared.rows import headings
from factsweep.operators.schemas import SETTING
from factsweep.operators.tables.shared import canvas, pivot
from factsweep.operators.tables.shared.canvas import SERIES, Figure
from factsweep.operators.tables.shared.numbers import DASH, decimal, percent
from factsweep.operators.tables.shared.pivot import MEASURED, OTHER_FACTS, PUBLISHED

SHOWN = (*METRICS, *CONFIDENCE, *PASS, CUT_SHARE, FLIP_RATE)
_HEADINGS = headings((PRECISION, RECALL, F1))
BASELINE = "most frequent answer"
_PERCENT = percent(2)
_INTERVAL = "F1 interval"
_ENDS = ("ci_low", "ci_high")
_TEXT = _PERCENT.column_with_dashes(pl.col("value"))


def overview(
    facts: Facts, *, n_tokens: Callable[[Sequence[str]], Sequence[int]] | None = None
) -> pl.DataFrame:
    """Table 1: the size of the test split; `n_tokens` counts the tokens of each answer's label."""
    queries = facts.pairs.filter(split="test")
    answers = queries.select(pl.col("objects").explode()).unnest("objects")
    labels = shown_forms(answers).to_list()
    tokens = pl.Series(n_tokens(labels) if n_tokens else [], dtype=pl.Int64)
    literal = answers["object_id"].str.starts_with("XMLSchema#").any()
    mean_tokens, mean_labels = tokens.mean(), answers["labels"].list.len().mean()
    figures = {
        "Number of Queries": str(queries.height),
        "Number of Relations": str(queries["relation_id"].n_unique()),
        "Avg. Number of Tokens": decimal(2).text(mean_tokens),  # type: ignore[arg-type]
        "Avg. Number of Labels": decimal(2).text(mean_labels),  # type: ignore[arg-type]
        "Queries with Multiple Results": str((queries["objects"].list.len() > 1).sum()),
        "Literals": "yes" if literal else "no",
    }
    return pl.DataFrame({"Dataset": list(figures), "test": list(figures.values())})


def headline(metrics: pl.DataFrame, published: pl.DataFrame | None = None) -> pl.DataFrame:
    """Table 2: one row per model and variant, with P, R and F1 of each setting."""
    overall = metrics.filter(pl.col("slice").is_null())
    keys = ["model", "benchmark", "variant", "source"]
    f1 = overall.filter(metric="f1").with_columns(source=pl.lit(MEASURED))
    counts = f1.group_by(keys).agg(queries=pl.sum("n"), failed=pl.sum("n_failed"))
    interval = f1.with_columns(metric=pl.lit(_INTERVAL), text=_PERCENT.interval().fill_null(DASH))
    rows = pivot.stack_sources(overall, published, BASELINE).with_columns(text=_TEXT)
    letters = [*_HEADINGS, _INTERVAL]
    cells = pl.concat([rows, interval], how="diagonal").filter(pl.col("metric").is_in(letters))
    cells = cells.with_columns(
        heading=pl.concat_str("setting", pl.col("metric").replace(_HEADINGS), separator=" "),
        shots=pl.col("setting").str.extract(r"^([0-9]+)").cast(pl.Int64),
    ).sort("shots", pl.col("metric").cast(pl.Enum(letters)))
    table = pivot.pivot(cells, keys, cells["heading"].unique(maintain_order=True), missing=None)
    return pivot.join_columns(table.sort(keys), counts, keys)


def by_relation(
    metrics: pl.DataFrame,
    relation_labels: Mapping[str, str] | None = None,
    published: pl.DataFrame | None = None,
) -> pl.DataFrame:
    """Table 6: each relation's precision, recall and F1, best first, with the baseline's F1."""
    place = [*SETTING, "ID", "Label"]
    rows = pivot.select_relations(metrics, relation_labels)
    defined = rows.filter(pl.col("metric").is_in(["f1", "baseline_f1"])).drop_nulls("value")
    headings = {"precision": "Precision", "recall": "Recall", "f1": "F1"}
    headings["baseline_f1"] = "baseline F1"
    parts = [rows]
    if published is not None:
        printed = pivot.add_source(pivot.select_relations(published, relation_labels)).filter(
            metric="f1"
        )
        parts.append(printed.with_columns(metric=pl.lit(PUBLISHED)))
        is_other = OTHER_FACTS in printed["source"]
        headings[PUBLISHED] = f"published F1{', of other facts' * is_other}"
    cells = pl.concat(parts, how="diagonal").join(defined, on=place, how="semi", nulls_equal=True)
    table = (
        cells.with_columns(text=_TEXT)
        .pivot("metric", [*headings], index=place, values="text", aggregate_function="first")
        .select(*place, *(pl.col(name).fill_null(DASH).alias(headings[name]) for name in headings))
    )
    return pivot.sort_relations(table, SETTING, rows.filter(metric="f1"), best_first=True)


def extremes(
    metrics: pl.DataFrame, relation_labels: Mapping[str, str] | None = None, *, n: int = 4
) -> pl.DataFrame:
    """Table 3: the `n` best and the `n` worst relations of each model, setting and variant."""
    table = by_relation(metrics, relation_labels).filter(pl.col("F1") != DASH)
    place, size = pl.int_range(pl.len()).over(SETTING), pl.len().over(SETTING)
    end = pl.when(place < n).then(pl.lit("best")).when(place >= size - n).then(pl.lit("worst"))
    ends = table.with_columns(end=end).drop_nulls("end")
    return ends.select(*SETTING, "end", "ID", "Label", "F1", "baseline F1")


def lama(metrics: pl.DataFrame, published: pl.DataFrame | None = None) -> pl.DataFrame:
    """Table 4: P, R and F1 of the relations of LAMA, as `headline` has them."""
    no_slice = pl.lit(None, pl.String).alias("slice")
    rows = metrics.filter(slice="relations=lama").with_columns(no_slice)
    if published is not None:
        published = published.filter(slice="relations=lama").with_columns(no_slice)
    return headline(rows, published)


def by_slice(metrics: pl.DataFrame, name: str) -> pl.DataFrame:
    """Figures 1a (`cardinality`) and 1b (`kind`): F1 of each slice, with interval and queries."""
    rows = metrics.filter(pl.col("slice").str.starts_with(f"{name}="), metric="f1")
    rows = rows.with_columns(pl.col("slice").str.strip_prefix(f"{name}=").alias(name))
    number = pl.col(name).cast(pl.Int64, strict=False)
    return rows.sort(*SETTING, number, name).select(
        *SETTING, name, pl.col("value").alias("f1"), "ci_low", "ci_high", "n"
    )


def years(
    metrics: pl.DataFrame,
    relation_labels: Mapping[str, str] | None = None,
    published: pl.DataFrame | None = None,
) -> pl.DataFrame:
    """The error in years of each relation of dates, and of all (section 4.2): mean and median.

    `with a year` counts the answers that name one, `without` the other queries. The paper's means,
    for which it names no setting, stand next to those of each setting of the same model.

    >>> names = {"model": "m", "benchmark": "kamel", "setting": "10-shot", "variant": None}
    >>> metrics = pl.DataFrame([
    ...     {**names, "slice": "relation=P569", "metric": f"year_error_{metric}", "value": value,
    ...      "n": 190, "n_failed": 10}
    ...     for metric, value in (("mean", 59.0), ("median", 12.5))
    ... ])
    >>> years(metrics, {"P569": "date of birth"}).row(0)[3:]
    (None, 'P569', 'date of birth', '59.0', '12.5', 190, 10)
    """
    rows = metrics.filter(pl.col("metric").str.starts_with("year_error_"))
    label = pivot.label_of(pivot.relation_id(), relation_labels or {})
    cells = rows.rename({"n": "with a year", "n_failed": "without"}).with_columns(
        ID=pivot.relation_id().fill_null("all"),
        Label=label.fill_null("all"),
        heading=pl.col("metric").str.strip_prefix("year_error_"),
        text=decimal(1).column_with_dashes(pl.col("value")),
    )
    keys, counts = [*SETTING, "ID", "Label"], ["with a year", "without"]
    table = pivot.pivot(cells, [*keys, *counts], ["mean", "median"])
    if table.is_empty() or published is None:
        return table.select(*keys, cs.by_name("mean", "median", require_all=False), *counts)
    theirs = pivot.add_source(pivot.select_relations(published, relation_labels)).filter(
        metric="year_error_mean"
    )
    heading = "published mean" + ", of other facts" * (OTHER_FACTS in theirs["source"])
    place = ["model", "benchmark", "ID"]
    means = theirs.select(*place, decimal(1).column_with_dashes(pl.col("value")).alias(heading))
    return pivot.join_columns(table, means, place).select(*keys, "mean", "median", heading, *counts)


def in_percent(slices: pl.DataFrame) -> pl.DataFrame:
    """The slices (`by_slice`) with F1 and the ends of its interval as texts."""
    return slices.with_columns(_PERCENT.column_with_dashes(pl.col("f1", "ci_low", "ci_high")))


def card(metrics: pl.DataFrame) -> pl.DataFrame:
    """The overall numbers for a narrow screen; the baseline has one row, of strict matching."""
    other = pl.col("variant").fill_null("").str.contains("matching=|labels=")
    baseline = pl.col("metric").str.starts_with("baseline_")
    rows = metrics.filter(~(baseline & other))
    return pivot.card(rows, SHOWN, _PERCENT, row_variants=("matching", "labels"))


def cardinality_figure(slices: pl.DataFrame, title: str) -> "Figure":
    """Figure 1a: one line per series (`by_slice`), with intervals, over the number of answers."""
    labels = {"xlabel": "right answers of the query", "ylabel": "F1 in %", "title": title}
    figure, axes = canvas.new_frame(4.6, 3.6, **labels)
    rows = slices.drop_nulls("f1").with_columns(
        pl.col("cardinality").cast(pl.Int64), pl.col("f1", *_ENDS) * 100
    )
    canvas.curves(axes, rows, "cardinality", "f1", ends=_ENDS)
    axes.set_ylim(bottom=0)
    axes.legend(frameon=False)
    return figure


def kind_figure(slices: pl.DataFrame, title: str) -> "Figure":
    """Figure 1b: for each series (`by_slice`) a bar of its entity queries and one of literals."""
    figure, axes = canvas.new_frame(4.6, 3.6, grid="y", ylabel="F1 in %", title=title)
    names = slices["series"].unique(maintain_order=True).to_list()
    for number, kind in enumerate(("entity", "literal")):
        rows = slices.filter(pl.col("kind") == kind).drop_nulls("f1")
        places = [names.index(series) + 0.4 * number - 0.2 for series in rows["series"]]
        f1 = 100 * rows["f1"]
        low, high = (100 * rows[end].fill_null(rows["f1"]) for end in _ENDS)
        colour, _ = SERIES[number]
        axes.bar(places, f1, 0.38, color=colour, label=kind, yerr=[f1 - low, high - f1])
    axes.set_xticks(range(len(names)), names, rotation=20, ha="right")
    axes.legend(frameon=False)
    return figure
