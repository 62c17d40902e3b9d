"""KAMEL: one question per fact after k examples, whose answer is a set."""

from collections.abc import Callable, Mapping
from typing import Any

import polars as pl

from factsweep.operators.datasets.facts import Facts, add_right_labels
from factsweep.operators.datasets.kamel import slice_queries
from factsweep.operators.estimates.queries import kamel_estimates
from factsweep.operators.matching.answer_set import has_answers
from factsweep.operators.methods import method
from factsweep.operators.metrics.belief.knowledge_state import count_right_samples
from factsweep.operators.metrics.kamel import kamel, mark_complete, precision_recall
from factsweep.operators.metrics.pass_at_k import NAMES, pass_rows
from factsweep.operators.prompts.few_shot import FewShot, expand
from factsweep.operators.tables import kamel as tables
from factsweep.operators.tables.shared.pivot import join_names

_TITLES: Mapping[str, str] = {
    "overview": "What was asked (Table 1)",
    "headline": "Precision, recall and F1, beside the paper's (Table 2)",
    "relations": "By relation (Table 6)",
    "extremes": "The best and the worst relations (Table 3)",
    "lama": "The relations of LAMA (Table 4)",
    "years": "The error of dates, in years",
    "cardinality": "F1 by the number of right answers",
    "kind": "F1 by the kind of answer",
}


def _matcher(facts: Facts, _pipeline: str, _tokenizer: Callable[[], Any]) -> method.Matcher:
    def match(answers: pl.DataFrame, extra_tables: method.Tables) -> method.Tables:
        ids = answers.select("prompt_id", "relation_id", "pair_id")
        samples = ids.join(extra_tables["samples"], on="prompt_id")
        sampled = count_right_samples(mark_complete(samples, facts.pairs))
        return {"given": answers, "sampled": sampled}

    return match


def _measure(evidence: method.Evidence) -> method.Tables:
    draws = {"seed": evidence.seed, "n_rounds": evidence.options.n_rounds}
    given, pairs = evidence.tables["given"], evidence.facts.pairs
    metrics = kamel(given, pairs, split=evidence.setting.split, **draws)
    of_samples = pass_rows(evidence.tables["sampled"], evidence.n_failed_samples, **draws)
    return {"metrics": pl.concat([metrics, of_samples])}


def _estimate(part: method.Part) -> pl.DataFrame:
    queries = part.facts.pairs.filter(pl.col("split") == part.setting.split)
    draws = {"seed": part.seed, "n_rounds": part.options.n_rounds}
    return kamel_estimates(part.answers, queries, part.pairs, **draws)


def _report(result: method.Result) -> method.Report:
    metrics, published = result.tables["metrics"], result.published
    labels = result.facts.labels
    by_cardinality, by_kind = (tables.by_slice(metrics, part) for part in ("cardinality", "kind"))
    report_tables = {
        "overview": tables.overview(result.facts, n_tokens=result.n_tokens),
        "headline": tables.headline(metrics, published),
        "relations": tables.by_relation(metrics, labels, published),
        "extremes": tables.extremes(metrics, labels),
        "lama": tables.lama(metrics, published),
        "years": tables.years(metrics, labels, published),
        "cardinality": tables.in_percent(by_cardinality),
        "kind": tables.in_percent(by_kind),
    }
    # Figures 1a and 1b, of strict matching with all labels.
    models = ", ".join(by_kind["model"].unique(maintain_order=True))
    figures = {
        "cardinality": tables.cardinality_figure(_in_series(by_cardinality), models),
        "kind": tables.kind_figure(_in_series(by_kind), models),
    }
    return method.Report(report_tables, figures, _TITLES)


def _in_series(slices: pl.DataFrame) -> pl.DataFrame:
    """The rows whose variant is that of their setting alone, with the series that they are in."""
    other = pl.col("variant").fill_null("").str.contains("matching=|labels=")
    series = join_names("model", "setting", "variant")
    return slices.filter(~other).with_columns(series=series)


def _digest(facts: Facts, answers: pl.DataFrame) -> method.Digest:
    """The F1 of each query, and its answer as it was given."""
    splits = facts.pairs.join(answers, on="pair_id", how="semi")["split"].unique()
    # With the queries without an answer: their labels distinguish others.
    queries = facts.pairs.filter(pl.col("split").is_in(splits.implode(), nulls_equal=True))
    scores = precision_recall(answers, queries)
    f1 = 2 * pl.col("n_found") / (pl.col("n_answers") + pl.col("n_gold"))
    no_setting = pl.lit(None, pl.String).alias("asked")
    shares = scores.select("pair_id", no_setting, share=f1, n=pl.lit(1))
    replies = answers.join(shares, on="pair_id", maintain_order="left").select(
        "pair_id",
        "asked",
        answer=pl.col("text").str.strip_chars(),
        note=pl.format("F1 {}", pl.col("share").round(2)),
        right=pl.col("share") == 1,
    )
    return method.Digest(add_right_labels(shares, facts.pairs), replies)


METHOD = method.Method(
    ask=method.Ask(FewShot, expand, slice_queries),
    measure=method.Measure(
        # 2: intervals of small relations; 3 to 5: final stops and marks around answers; 6: pass@k
        version=6,
        matcher=_matcher,
        matched=("given", "sampled"),
        can_match=lambda labels, _pipeline: has_answers(labels),
        compute=_measure,
        main_metric="f1",
        metrics=tables.SHOWN,
        of_samples=NAMES,
        sampling=method.Sampling(_estimate, targets=("precision", "recall", "f1")),
    ),
    show=method.Show("kamel", _report, tables.card, _digest),
)
