"""The reports and pages of BELIEF's numbers, of decoders and of encoders."""

from collections.abc import Mapping

import polars as pl
from polars import selectors

from factsweep.operators.datasets.facts import Facts, add_right_labels
from factsweep.operators.matching.lemmas import words
from factsweep.operators.methods import method
from factsweep.operators.metrics.belief.knowledge_state import knowledge_sharing
from factsweep.operators.tables import belief as figures
from factsweep.operators.tables.belief import (
    KIND,
    MOST_PAIRS,
    ORDER,
    effects,
    effects_table,
    headline,
    pairs,
    parts,
)
from factsweep.operators.tables.data_set import NAMES, TABLES, sizes, template_examples
from factsweep.operators.tables.shared.canvas import Figure
from factsweep.operators.tables.shared.paper_table import fill, select_scope
from factsweep.operators.tables.shared.pivot import join_names

TITLES: Mapping[str, str] = {
    **{name: table.title for name, table in TABLES.items()},
    "headline": "All metrics of the run",
    "parts": "By popularity of the fact (0: the least popular tenth), and by sample of the set",
    "coverage": "Coverage: the mean prompt, the best template, any prompt",
    "knowledge-sharing": "Of what one model knows, the share that another knows",
    "effects": "Settings compared: what a change of one thing does",
    "template-examples": "Templates, a few of each relation",
    "missing": "Numbers of the papers' tables that are missing, and why",
}


def report(result: method.Result) -> method.Report:
    """The headline, the papers' tables, the calibration; of decoders and encoders."""
    metrics, confidences = result.tables["metrics"], confidence_report(result)
    tables = {"headline": headline(metrics), **confidences.tables}
    if not (of_parts := parts(metrics)).is_empty():
        tables["parts"] = of_parts
    tables |= _paper_tables(metrics, result)
    tables["template-examples"] = template_examples(result.facts)
    report_figures = {**confidences.figures}
    if not (coverage := figures.coverage(metrics)).is_empty():
        report_figures["coverage"] = figures.coverage_figure(coverage)
    spreads = _spreads(metrics, result.facts)
    report_figures |= spreads
    titles = {
        **TITLES,
        **confidences.titles,
        **dict.fromkeys(spreads, "Worst, mean and best template of each relation"),
    }
    if len(result.answers) < 2:
        return method.Report(tables, report_figures, titles)
    shares = knowledge_sharing((str(run), load.all()) for run, load in result.answers.items())
    run_effects = effects(result.answers)
    tables["knowledge-sharing"] = shares.with_columns(selectors.float().round(4))
    tables["effects"] = effects_table(run_effects)
    n_pairs = len(list(pairs(result.answers)))
    if n_pairs > MOST_PAIRS:
        titles["effects"] += f" (the first {MOST_PAIRS} of {n_pairs} pairs)"
    squares = shares.rename({"sharing": "value"})
    report_figures["knowledge-sharing"] = figures.knowledge_sharing_figure(
        squares, "knowledge sharing"
    )
    return method.Report(tables, report_figures, titles, raw={"effects": run_effects})


def _paper_tables(metrics: pl.DataFrame, result: method.Result) -> method.Tables:
    """The papers' tables that the runs have numbers for, and reasons of missing numbers.

    The papers draw demonstrations for each prompt: runs that did so come first.
    """
    (benchmark,) = metrics["benchmark"].unique()
    by_prompt = metrics["variant"].str.contains("scope=prompt").any()
    rows = select_scope(metrics, "prompt" if by_prompt else "shared")
    costs = result.costs.with_columns(benchmark=pl.lit(benchmark))
    of_set = sizes(result.facts, benchmark, parse=result.parse, encode=result.encode)
    rows = pl.concat([rows, costs, of_set], how="diagonal")
    published = result.published
    is_own = published is not None and benchmark not in published["benchmark"]
    filled_tables = {
        name: fill(table, rows, published, benchmark=benchmark, names=NAMES, own_only=is_own)
        for name, table in TABLES.items()
    }
    measured = {name: filled for name, filled in filled_tables.items() if filled.n_measured}
    missing = [
        filled.missing.select(pl.lit(name).alias("table"), pl.all())
        for name, filled in measured.items()
    ]
    report_tables = {name: filled.table for name, filled in measured.items()}
    return report_tables | {"missing": pl.concat(missing)}


def _spreads(metrics: pl.DataFrame, facts: Facts) -> dict[str, Figure]:
    spreads = {}
    for (run,), rows in metrics.group_by(
        join_names("model", "setting", "variant"), maintain_order=True
    ):
        spread = figures.spread_by_relation(rows, facts.labels)
        if not spread.is_empty():
            name = f"template-spread-{str(run).replace(' ', '-')}"
            spreads[name] = figures.template_spread_figure(spread, str(run))
    return spreads


_CONFIDENCE_TITLES: Mapping[str, str] = {
    "calibration": "Calibration: confidence and accuracy, by bin of confidence",
    "risk-coverage": "The share of wrong answers among the most confident ones",
    "confidence": "How each kind of confidence agrees with being right",
    "confidence-differences": "Which confidence tells best whether an answer is right",
}


def confidence_report(result: method.Result) -> method.Report:
    """Calibration, risk and coverage, and the kinds of confidence compared."""
    in_bins, differences = result.tables["bins"], result.tables.get("confidence_differences")
    is_order = pl.col("variant").str.contains(ORDER).fill_null(value=False)
    tables = {"calibration": in_bins.filter(~is_order)}
    if differences is not None and not differences.is_empty():
        tables["confidence"] = figures.kinds(result.tables["metrics"])
        tables["confidence-differences"] = figures.kind_differences(differences)
    return method.Report(tables, confidence_figures(in_bins), _CONFIDENCE_TITLES)


def confidence_figures(in_bins: pl.DataFrame) -> dict[str, Figure]:
    """Calibration, a panel per model and kind of confidence; risk and coverage, one per setting."""
    if in_bins.is_empty():
        return {}
    variant = pl.col("variant")
    kind, is_order = variant.str.extract(KIND), variant.str.contains(ORDER).fill_null(value=False)
    setting_variant = variant.str.replace(KIND, "").replace("", None)
    panels = in_bins.with_columns(
        panel=join_names("model", kind), series=join_names("setting", setting_variant)
    )
    of_settings = panels.with_columns(
        panel=join_names("model", "series"), series=kind.fill_null("samples")
    )
    return {
        "calibration": figures.calibration_figure(panels.filter(~is_order), "calibration"),
        "risk-coverage": figures.risk_coverage_figure(of_settings, "risk and coverage"),
    }


def digest(facts: Facts, answers: pl.DataFrame) -> method.Digest:
    """The share of right answers of each fact, its answers by frequency, and the templates."""
    answers = answers.with_columns(asked=pl.lit(None, pl.String))
    share = pl.col("correct").mean()
    shares = answers.group_by("pair_id", "asked", maintain_order=True).agg(share=share, n=pl.len())
    counts = answers.group_by("pair_id", "asked", "key").agg(n=pl.len(), right=pl.first("correct"))
    replies = counts.sort("pair_id", "n", "key", descending=[False, True, False]).select(
        "pair_id",
        "asked",
        "right",
        answer=words(pl.col("key")).fill_null(""),
        note=pl.format("{}×", "n"),
    )
    return method.Digest(
        add_right_labels(shares, facts.pairs),
        replies,
        answers.group_by("template_id", maintain_order=True).agg(share=share),
    )
