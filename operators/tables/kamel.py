"""The tables of the KAMEL paper, from the metrics table (Tables 1 to 4 and 6, Figures 1a and 1b).

Numbers are texts in percent, as the paper prints them; a dash where one is undefined. `published`
is data_catalog/published/kamel.csv, whose numbers are shown next to those of the same model,
setting, variant and slice.
"""

from collections.abc import Callable, Mapping, Sequence

import polars as pl

from factsweep.operators.datasets.facts import Facts
from factsweep.operators.datasets.kamel import shown
from factsweep.operators.metrics.kamel.kamel import METRICS
from factsweep.operators.metrics.kamel.macro import F1, PRECISION, RECALL
from factsweep.operators.metrics.noise import CUT_SHARE, FLIP_RATE
from factsweep.operators.metrics.shared.metric import headings
from factsweep.operators.schemas import PLACE, SETTING
from factsweep.operators.tables.shared.canvas import SERIES, Figure, canvas, series
from factsweep.operators.tables.shared.card import card as card_of
from factsweep.operators.tables.shared.numbers import DASH, decimal, percent
from factsweep.operators.tables.shared.relations import is_relation, label_of, relation_id
from factsweep.operators.tables.shared.wide import joined

SHOWN = (*METRICS, CUT_SHARE, FLIP_RATE)
_HEADINGS = headings((PRECISION, RECALL, F1))
BASELINE = "most frequent answer"
_PERCENT = percent(2)
_TEXT = _PERCENT.dashed(pl.col("value"))


def overview(
    facts: Facts,
    *,
    split: str = "test",
    n_tokens: Callable[[Sequence[str]], Sequence[int]] | None = None,
) -> pl.DataFrame:
    """Table 1: the size of what is asked; `n_tokens` counts the tokens of each label.

    Tokens and labels are means over the right answers; tokens are those of the form that an
    example shows.
    """
    asked = facts.pairs.filter(pl.col("split") == split)
    answers = asked.select(pl.col("objects").explode()).unnest("objects")
    labels = shown(answers).to_list()
    tokens = pl.Series(n_tokens(labels) if n_tokens else [], dtype=pl.Int64)
    literal = answers["object_id"].str.starts_with("XMLSchema#").any()
    figures = {
        "Number of Queries": str(asked.height),
        "Number of Relations": str(asked["relation_id"].n_unique()),
        "Avg. Number of Tokens": _mean(tokens),
        "Avg. Number of Labels": _mean(answers["labels"].list.len()),
        "Queries with Multiple Results": str((asked["objects"].list.len() > 1).sum()),
        "Literals": "yes" if literal else "no",
    }
    return pl.DataFrame({"Dataset": list(figures), split: list(figures.values())})


def _mean(numbers: pl.Series) -> str:
    mean = numbers.to_frame("number").select(decimal(2).dashed(pl.mean("number")))
    return str(mean.item())


def headline(metrics: pl.DataFrame, published: pl.DataFrame | None = None) -> pl.DataFrame:
    """Table 2: one row per model and variant, with P, R and F1 of each setting.

    Under each model's row stand the published one and the baseline's. F1 has its 95 % interval in a
    column of its own. `queries` and `failed` count those of all settings with and without an
    answer.
    """
    overall = metrics.filter(pl.col("slice").is_null())
    names = ["model", "benchmark", "variant"]
    f1 = overall.filter(metric="f1")
    counts = f1.group_by(names).agg(queries=pl.sum("n"), failed=pl.sum("n_failed"))
    measured = overall.filter(pl.col("metric").is_in(list(_HEADINGS)))
    baseline = overall.filter(pl.col("metric").str.starts_with("baseline_"))
    baseline = baseline.with_columns(pl.col("metric").str.strip_prefix("baseline_"))
    text = _PERCENT.interval().fill_null(DASH)
    parts = [
        _cells(measured, "measured"),
        _cells(f1, "measured", "F1 interval", text),
        _cells(baseline, BASELINE),
    ]
    if published is not None:
        same = published.join(measured.select(PLACE), on=PLACE, how="semi", nulls_equal=True)
        parts.append(_cells(same, "published"))
    keys = [*names, "source"]
    cells = pl.concat(parts).sort(*keys, "shots", "column", nulls_last=False)
    table = cells.pivot(
        "heading", index=keys, values="text", aggregate_function="first", maintain_order=True
    )
    headings = cells.sort("shots", "column")["heading"].unique(maintain_order=True)
    table = joined(table.select(*keys, *headings), counts, names)
    own = pl.col("source") == "measured"
    return table.with_columns(pl.when(own).then(pl.col("queries", "failed")))


def _cells(
    rows: pl.DataFrame, source: str, heading: str | None = None, text: pl.Expr = _TEXT
) -> pl.DataFrame:
    """The numbers as texts, each with its heading and what orders the headings."""
    letter = pl.lit(heading) if heading else pl.col("metric").replace_strict(_HEADINGS)
    place = pl.col("metric").cast(pl.Enum(list(_HEADINGS))).to_physical().cast(pl.Int64)
    return rows.select(
        "model",
        "benchmark",
        "variant",
        source=pl.lit(source),
        heading=pl.concat_str("setting", letter, separator=" "),
        shots=pl.col("setting").str.extract(r"^([0-9]+)").cast(pl.Int64),
        column=pl.lit(3, pl.Int64) if heading else place,
        text=text,
    )


def by_relation(
    metrics: pl.DataFrame,
    relation_labels: Mapping[str, str] | None = None,
    published: pl.DataFrame | None = None,
) -> pl.DataFrame:
    """Table 6: each relation's precision, recall and F1, best first, with the baseline's F1.

    The column `published F1` is there where `published` is.
    """
    place = [*SETTING, "slice"]
    relations = metrics.filter(is_relation())
    wide = relations.pivot("metric", index=place, values="value", aggregate_function="first")
    numbers = {"precision": "Precision", "recall": "Recall", "f1": "F1"}
    numbers["baseline_f1"] = "baseline F1"
    if published is not None:
        theirs = published.filter(pl.col("metric") == "f1").select(*place, published="value")
        wide = wide.join(theirs, on=place, how="left", nulls_equal=True)
        numbers["published"] = "published F1"
    missing = [name for name in numbers if name not in wide.columns]
    wide = wide.with_columns(pl.lit(None, pl.Float64).alias(name) for name in missing)
    label = label_of(relation_id(), relation_labels or {})
    order = [*SETTING, "f1", "ID"]
    best = [name == "f1" for name in order]
    return (
        wide.filter(pl.col("f1").is_not_null() | pl.col("baseline_f1").is_not_null())
        .with_columns(ID=relation_id(), Label=label)
        .sort(order, descending=best, nulls_last=best)
        .with_columns(_PERCENT.dashed(pl.col(k)).alias(v) for k, v in numbers.items())
        .select(*SETTING, "ID", "Label", *numbers.values())
    )


def extremes(
    metrics: pl.DataFrame, relation_labels: Mapping[str, str] | None = None, *, n: int = 4
) -> pl.DataFrame:
    """Table 3: the `n` best and the `n` worst relations of each model, setting and variant."""
    table = by_relation(metrics, relation_labels).filter(pl.col("F1") != DASH)
    place, size = pl.int_range(pl.len()).over(SETTING), pl.len().over(SETTING)
    end = pl.when(place < n).then(pl.lit("best")).when(place >= size - n).then(pl.lit("worst"))
    return (
        table.with_columns(end=end)
        .drop_nulls("end")
        .select(*SETTING, "end", "ID", "Label", "F1", "baseline F1")
    )


def lama(metrics: pl.DataFrame, published: pl.DataFrame | None = None) -> pl.DataFrame:
    """Table 4: P, R and F1 of the relations of LAMA, as `headline` has them."""
    slice_name = "relations=lama"
    whole = pl.lit(None, pl.String).alias("slice")
    rows = metrics.filter(pl.col("slice") == slice_name).with_columns(whole)
    if published is not None:
        published = published.filter(pl.col("slice") == slice_name).with_columns(whole)
    return headline(rows, published)


def by_slice(metrics: pl.DataFrame, name: str) -> pl.DataFrame:
    """Figures 1a (`cardinality`) and 1b (`kind`): F1 of each slice, as numbers.

    Columns: model, benchmark, setting, variant, `name`, f1, ci_low, ci_high, n (queries).
    """
    mine = (pl.col("metric") == "f1") & pl.col("slice").str.starts_with(f"{name}=")
    part = pl.col("slice").str.strip_prefix(f"{name}=")
    rows = metrics.filter(mine).with_columns(part.alias(name))
    number = pl.col(name).cast(pl.Int64, strict=False)
    return rows.sort(*SETTING, number, name).select(
        *SETTING, name, pl.col("value").alias("f1"), "ci_low", "ci_high", "n"
    )


def years(metrics: pl.DataFrame, relation_labels: Mapping[str, str] | None = None) -> pl.DataFrame:
    """The error in years of each relation of dates, and of all (section 4.2): mean and median.

    `with a year` counts the answers that name one, `without` the other queries.

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
    label = label_of(relation_id(), relation_labels or {})
    text = decimal(1).dashed(pl.col("value"))
    found = rows.select(
        *SETTING,
        relation_id().fill_null("all").alias("ID"),
        label.fill_null("all").alias("Label"),
        pl.col("metric").str.strip_prefix("year_error_"),
        text.alias("text"),
        pl.col("n").alias("with a year"),
        pl.col("n_failed").alias("without"),
    )
    keys = [*SETTING, "ID", "Label", "with a year", "without"]
    wide = found.pivot("metric", index=keys, values="text", maintain_order=True)
    missing = [pl.lit(DASH).alias(name) for name in ("mean", "median") if name not in wide.columns]
    return wide.with_columns(missing).select(*keys[:6], "mean", "median", *keys[6:])


def in_percent(slices: pl.DataFrame) -> pl.DataFrame:
    """The slices (`by_slice`) as they are printed: F1 and the ends of its interval as texts."""
    return slices.with_columns(_PERCENT.dashed(pl.col("f1", "ci_low", "ci_high")))


def card(metrics: pl.DataFrame) -> pl.DataFrame:
    """The overall numbers for a narrow screen: a row per metric and variant, a column per setting.

    The baseline has one row, of strict matching with all labels.
    """
    other = pl.col("variant").fill_null("").str.contains("matching=|labels=")
    baseline = pl.col("metric").str.starts_with("baseline_")
    rows = metrics.filter(~(baseline & other))
    return card_of(rows, headings(SHOWN), _PERCENT, own=("matching", "labels"))


def cardinality_figure(slices: pl.DataFrame, title: str) -> "Figure":
    """Figure 1a: one line per series, with its intervals, over the number of right answers.

    `slices` has series, cardinality, f1, ci_low and ci_high (`tables.kamel.by_slice`).
    """
    figure = canvas(4.6, 3.6)
    axes = figure.add_subplot()
    rows = slices.with_columns(pl.col("cardinality").cast(pl.Int64)).drop_nulls("f1")
    for name, mine, colour, marker in series(rows, "series"):
        points = mine.sort("cardinality")
        x, f1 = points["cardinality"], 100 * points["f1"]
        axes.plot(x, f1, color=colour, marker=marker, label=name)
        low, high = (100 * points[end].fill_null(points["f1"]) for end in ("ci_low", "ci_high"))
        axes.fill_between(x, low, high, color=colour, alpha=0.15, linewidth=0)
    axes.set(xlabel="right answers of the query", ylabel="F1 in %", title=title)
    axes.set_ylim(bottom=0)
    axes.grid(color="0.92")
    axes.legend(frameon=False)
    return figure


def kind_figure(slices: pl.DataFrame, title: str) -> "Figure":
    """Figure 1b: for each series a bar of its entity queries and one of its literal queries.

    `slices` has series, kind, f1, ci_low and ci_high (`tables.kamel.by_slice`).
    """
    figure = canvas(4.6, 3.6)
    axes = figure.add_subplot()
    names = slices["series"].unique(maintain_order=True).to_list()
    for number, kind in enumerate(("entity", "literal")):
        rows = slices.filter(pl.col("kind") == kind).drop_nulls("f1")
        places = [names.index(series) + 0.4 * number - 0.2 for series in rows["series"]]
        f1 = 100 * rows["f1"]
        low, high = (100 * rows[end].fill_null(rows["f1"]) for end in ("ci_low", "ci_high"))
        colour, _ = SERIES[number]
        axes.bar(places, f1, 0.38, color=colour, label=kind, yerr=[f1 - low, high - f1])
    axes.set(ylabel="F1 in %", title=title)
    axes.set_xticks(range(len(names)), names, rotation=20, ha="right")
    axes.grid(color="0.92", axis="y")
    axes.set_axisbelow(True)
    axes.legend(frameon=False)
    return figure
