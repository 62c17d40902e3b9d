"""KAMEL: one question per fact after k examples, whose answer is a set."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any

import polars as pl
from pydantic import Field

from factsweep.operators.datasets.facts import Facts, add_right_labels
from factsweep.operators.datasets.kamel import slice_queries
from factsweep.operators.estimates.queries import kamel_estimates
from factsweep.operators.matching.answer_set import has_answers
from factsweep.operators.methods import belief, method
from factsweep.operators.methods.belief_report import confidence_report
from factsweep.operators.metrics import answer_sets
from factsweep.operators.metrics.belief.calibration import confidence
from factsweep.operators.metrics.belief.confidence_kinds import confidence_kinds
from factsweep.operators.metrics.belief.knowledge_state import count_right_samples, evidence
from factsweep.operators.metrics.kamel import kamel
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


@dataclass(frozen=True)
class Options(method.Rounds):
    """The bootstrap rounds, and the bins of confidence (conf/metrics/)."""

    n_bins: Annotated[int, Field(ge=1, le=1_000)]


def _matcher(facts: Facts, _pipeline: str, _tokenizer: Callable[[], Any]) -> method.Matcher:
    def match(answers: pl.DataFrame, extra_tables: method.Tables) -> method.Tables:
        samples = extra_tables["samples"]
        ids = answers.select("prompt_id", "relation_id", "pair_id")
        sampled = ids.join(samples, on="prompt_id")
        ranked = pl.concat(rows.select("prompt_id") for rows in extra_tables.values()).unique()
        greedy = answers.join(ranked, on="prompt_id", how="semi", maintain_order="left")
        greedy, keys = (answer_sets.add_set_keys(rows, facts.pairs) for rows in (greedy, sampled))
        greedy = answer_sets.mark_complete(greedy, facts.pairs)
        shares = confidence(greedy.select("prompt_id", "key"), keys, answer_sets.sets_match)
        return {
            "given": answers,
            "sampled": count_right_samples(answer_sets.mark_complete(sampled, facts.pairs)),
            "calibration": greedy.join(shares, on="prompt_id", how="inner", maintain_order="left"),
            "confidences": confidence_kinds(greedy, keys, extra_tables, answer_sets.sets_match),
        }

    return match


def _measure(evidence: method.Evidence) -> method.Tables:
    answers, pairs = evidence.tables["given"], evidence.facts.pairs
    is_sampled = evidence.n_failed_samples is not None
    calibration = evidence.tables["calibration"] if is_sampled else None
    parts = [
        kamel(answers, pairs, split=evidence.setting.split, **evidence.draws),
        belief.confidence_rows(evidence, calibration),
        pass_rows(evidence.tables["sampled"], evidence.n_failed_samples, **evidence.draws),
    ]
    return {"metrics": pl.concat(parts), **belief.kinds_compared(evidence)}


def _estimate(part: method.Part) -> pl.DataFrame:
    queries = part.facts.pairs.filter(pl.col("split") == part.setting.split)
    return kamel_estimates(part.answers, queries, part.pairs, **part.draws)


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
    report = method.Report(report_tables, figures, _TITLES)
    return method.join_reports(report, confidence_report(result))


def _in_series(slices: pl.DataFrame) -> pl.DataFrame:
    """The rows whose variant is that of their setting alone, with the series that they are in."""
    other = pl.col("variant").fill_null("").str.contains("matching=|labels=")
    series = join_names("model", "setting", "variant")
    return slices.filter(~other).with_columns(series=series)


def _digest(facts: Facts, answers: pl.DataFrame) -> method.Digest:
    scores = answer_sets.precision_recall(answers, answer_sets.asked_queries(facts.pairs, answers))
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
        # 2: intervals of small relations; 3 to 5: final stops and marks around answers; 6: pass@k;
        # 7: confidence
        version=7,
        matcher=_matcher,
        matched=("given", "sampled", *belief.CONFIDENCE_TABLES),
        measured=("metrics", *belief.KIND_TABLES),
        options=Options,
        can_match=lambda labels, _pipeline: has_answers(labels),
        compute=_measure,
        main_metric="f1",
        metrics=tables.SHOWN,
        of_samples=NAMES,
        sampling=method.Sampling(_estimate, targets=("precision", "recall", "f1")),
    ),
    show=method.Show("kamel", _report, tables.card, _digest),
    evidence=lambda tables, facts: evidence(
        answer_sets.mark_complete(tables["given"], facts.pairs), tables.get("sampled")
    ),
)
