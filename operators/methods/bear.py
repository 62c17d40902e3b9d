"""BEAR: every answer of a relation's answer space in a sentence, the likeliest one counts."""

from collections.abc import Mapping

import polars as pl

from factsweep.operators.datasets.facts import Facts
from factsweep.operators.methods import method
from factsweep.operators.metrics.bear import METRICS, bear, predict
from factsweep.operators.metrics.belief.knowledge_state import evidence
from factsweep.operators.prompts.answer_space import AnswerSpace, expand
from factsweep.operators.schemas import columns
from factsweep.operators.tables import bear as tables

_TITLES: Mapping[str, str] = {
    "headline": "BEAR score, and the accuracy of each template",
    "relations": "By relation",
    "groups": "By domain and cardinality",
}


def _match(answers: pl.DataFrame, _extra: method.Tables) -> method.Tables:
    return {"answer_scores": answers.select(columns("answer_scores").names())}


def _predict(matched: method.Tables, facts: Facts) -> pl.DataFrame:
    return predict(matched["answer_scores"], facts.pairs, facts.extra_tables["answer_spaces"])


def _measure(evidence: method.Evidence) -> method.Tables:
    facts = evidence.facts
    metrics = bear(
        evidence.tables["predicted"],
        facts.extra_tables["relation_groups"],
        facts.pairs.select("relation_id", "pair_id"),
        facts.templates.group_by("relation_id").agg(n_templates=pl.len()),
        **evidence.draws,
    )
    return {"metrics": metrics}


def _report(result: method.Result) -> method.Report:
    metrics = result.tables["metrics"]
    report_tables = {
        "headline": tables.headline(metrics),
        "relations": tables.by_relation(metrics, result.facts.labels),
        "groups": tables.by_group(metrics),
    }
    return method.Report(report_tables, titles=_TITLES)


METHOD = method.Method(
    ask=method.Ask(AnswerSpace, expand, ability=method.SCORE, masked="bear", adds_bos=True),
    measure=method.Measure(
        version=1,
        matcher=lambda _facts, _pipeline, _tokenizer: _match,
        matched=("answer_scores",),
        compute=_measure,
        condense=lambda matched, _repeated, facts, _options: {
            "predicted": _predict(matched, facts)
        },
        main_metric="bear_score",
        metrics=METRICS,
    ),
    show=method.Show("bear", _report, tables.card),
    evidence=lambda tables, facts: evidence(
        _predict(tables, facts).rename({"is_right": "correct"})
    ),
)
