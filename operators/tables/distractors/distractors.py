"""The tables of the paper on distractors (Tables 3, 4 and 9), and each slice of the metrics table.

Numbers are texts in percent, taus with three digits; a dash where one is undefined. `published` is
data_catalog/published/distractors.csv.
"""

from collections.abc import Mapping

import polars as pl

from factsweep.operators.metrics.distractors.continuations import METRICS as BASELINES
from factsweep.operators.metrics.distractors.distractors import METRICS
from factsweep.operators.metrics.distractors.karr import METRICS as KARR
from factsweep.operators.metrics.shared.metric import headings
from factsweep.operators.schemas import SETTING
from factsweep.operators.tables.shared.asking import called
from factsweep.operators.tables.shared.card import card as card_of
from factsweep.operators.tables.shared.numbers import decimal, in_percent
from factsweep.operators.tables.shared.wide import (
    by_source,
    joined,
    of_relations,
    ordered,
    wide,
    with_source,
)

_HEADINGS = headings((*METRICS, *BASELINES, *KARR))
_PERCENT, _TAU = in_percent(2), decimal(3)
# As the paper prints them, in the order of Table 3.
MEASURES: Mapping[str, str] = {
    "karr": "KaRR",
    "rouge_l": "ROUGE-L",
    "bertscore": "BERT-score",
    "precision": "Precision@n",
    "probability": "Probability",
    "random": "Dist. Random",
    "semantic": "Dist. Sem",
    "temporal": "Dist. Temp+Sem",
    "optimal": "Dist. ApprOpt",
    "exact": "Dist. exact",
    "judge": "LLM-as-a-judge",
}
REASONS: Mapping[str, str] = {
    "karr": "no clozes of other subjects and relations were asked for",
    "rouge_l": "no continuations were asked for",
    "precision": "no continuations were asked for",
    "bertscore": "no continuations were asked for, or metrics.encoder names no model",
    "judge": "no continuations were asked for, or metrics.judge_url names no endpoint",
}

TITLES: Mapping[str, str] = {
    "headline": "All numbers of the runs",
    "table-3": "Agreement with people (Table 3): Kendall's τ-b",
    "table-4": "Robustness to flawed sentences (Table 4): Kendall's τ-b",
    "configurations": "The configuration that each fold chose (Table 9)",
    "missing": "Measures of Table 3 that are missing, and why",
    "relations": "By relation, those known worst first",
    "popularity": "By popularity of the fact: 0 is the least popular tenth",
    "samples": "By sample of the set",
    "tokens": "By tokens of the right answer's likeliest name",
}


def headline(metrics: pl.DataFrame) -> pl.DataFrame:
    """One row per model, setting and variant, with every number over all facts.

    The interval is that of Min@1. `prompts` and `failed` count those with and without an answer.
    """
    overall = metrics.filter(pl.col("slice").is_null())
    counts = overall.filter(metric="left_out_at_1").select(*SETTING, prompts="n", failed="n_failed")
    ends = _PERCENT.interval().alias("Min@1, 95 %")
    interval = overall.filter(metric="min_at_1").select(*SETTING, ends)
    return joined(joined(_table(overall), interval, SETTING), counts, SETTING)


def by_slice(metrics: pl.DataFrame, name: str, heading: str) -> pl.DataFrame:
    """One row per part of a slice (`popularity`, `tokens`), in order."""
    rows = metrics.filter(pl.col("slice").str.starts_with(f"{name}="))
    part = pl.col("slice").str.strip_prefix(f"{name}=")
    number = part.cast(pl.Int64, strict=False)
    rows = rows.with_columns(part.alias(heading)).sort(*SETTING, number, maintain_order=True)
    return _table(rows, heading)


def by_sample(metrics: pl.DataFrame, published: pl.DataFrame | None = None) -> pl.DataFrame:
    """One row per sample of the set and source: the paper's S and S' are two samples of one set."""
    sample = pl.col("slice").str.extract("^sample=(.*)$")
    rows = by_source(metrics, published).with_columns(sample=sample).drop_nulls("sample")
    table = _table(rows, "sample", "source")
    return table.sort(*SETTING, "sample", "source", nulls_last=False)


def by_relation(metrics: pl.DataFrame, labels: Mapping[str, str]) -> pl.DataFrame:
    """One row per relation, those that are known worst first."""
    rows = of_relations(metrics, labels)
    worst = rows.filter(metric="min_at_1")
    return ordered(_table(rows, "ID", "Label"), SETTING, worst, best_first=False)


def agreement(metrics: pl.DataFrame, published: pl.DataFrame | None = None) -> pl.DataFrame:
    """Table 3: the mean and standard deviation of Kendall's tau over the folds, per measure."""
    names = {"kendall_tau": "Mean τ", "kendall_tau_sd": "Std τ"}
    return _per_measure(metrics, published, names, "3")


def robust(metrics: pl.DataFrame, published: pl.DataFrame | None = None) -> pl.DataFrame:
    """Table 4: tau between the values of flawed and of corrected sentences, per measure."""
    return _per_measure(metrics, published, {"robustness": "Robustness"}, "4")


def configurations(taus: pl.DataFrame) -> pl.DataFrame:
    """Table 9: the configuration that each fold chose, with its tau on that fold and the others."""
    complete = taus.filter(pl.col("n_clozes") == pl.col("n_clozes").max().over(SETTING), "chosen")
    named = complete.with_columns(measure=_named(pl.col("measure")))
    shown = {"τ of the other folds": "tau_others", "τ": "tau"}
    columns = {heading: _TAU.dashed(pl.col(name)) for heading, name in shown.items()}
    table = named.select(*SETTING, "measure", "fold", "hyperparameters", **columns, facts="n")
    return table.sort(*SETTING, "measure", "fold", nulls_last=False)


def missing(table: pl.DataFrame) -> pl.DataFrame:
    """The measures of Table 3 or 4 that the runs have no number of: measure, reason."""
    found = table.filter(source="measured")["measure"]
    rows = [
        (printed, REASONS.get(name, "no run of this setting"))
        for name, printed in MEASURES.items()
        if printed not in found
    ]
    return pl.DataFrame(rows, schema={"measure": pl.String, "reason": pl.String}, orient="row")


def card(metrics: pl.DataFrame) -> pl.DataFrame:
    """The overall numbers for a narrow screen: one row per metric and variant."""
    return card_of(metrics, _HEADINGS, _PERCENT, own=("width",))


def _table(rows: pl.DataFrame, *further: str) -> pl.DataFrame:
    """One row per setting and what else is named, a column per metric, each with its widths."""
    heading = pl.col("metric").replace_strict(_HEADINGS, default=None)
    # The width of a beam is no way of asking: it stands in the heading.
    width = pl.col("variant").str.extract(r"(width=[0-9]+)")
    variant = pl.col("variant").str.replace(r",?width=[0-9]+", "")
    cells = (
        rows.filter(heading.is_not_null())
        .with_columns(heading=called(heading, width), text=_PERCENT.dashed(pl.col("value")))
        .with_columns(variant=pl.when(variant != "").then(variant))
    )
    found = cells["heading"].unique().sort().to_list()
    order = {heading: place for place, heading in enumerate(_HEADINGS.values())}
    shown = sorted(found, key=lambda each: order[each.partition(" width=")[0]])
    return wide(cells, [*SETTING, *further], shown)


def _per_measure(
    metrics: pl.DataFrame, published: pl.DataFrame | None, names: Mapping[str, str], table: str
) -> pl.DataFrame:
    """One row per model, variant, measure and source, with a column per metric of `names`."""
    parts = [metrics.with_columns(source=pl.lit("measured"))]
    if published is not None:
        parts.insert(0, with_source(published.filter(table=table)))
    rows = pl.concat(parts, how="diagonal_relaxed").filter(pl.col("metric").is_in(list(names)))
    measure = _named(pl.col("slice").str.strip_prefix("measure="))
    text = _TAU.dashed(pl.col("value"))
    cells = rows.with_columns(pl.col("metric").replace_strict(names), measure=measure, text=text)
    keys = ["model", "benchmark", "variant", "measure", "source"]
    order = [*keys[:3], pl.col("measure").cast(pl.Enum(list(MEASURES.values()))), "source"]
    # A baseline is the same under every retrieval.
    first = cells.unique([*keys, "metric"], keep="first", maintain_order=True)
    table_ = first.pivot("metric", index=keys, values="text", maintain_order=True)
    return table_.sort(order, nulls_last=False)


def _named(measure: pl.Expr) -> pl.Expr:
    """A measure as the paper prints it; that of distractors by its retrieval."""
    known = pl.when(measure == "distractors").then("setting").otherwise(measure)
    return known.replace_strict(dict(MEASURES), default=None, return_dtype=pl.String)
