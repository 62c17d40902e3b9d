"""BELIEF of encoder models: one mask per prompt, and the probability of the token put there."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import polars as pl

from factsweep.operators.datasets.facts import Facts
from factsweep.operators.matching.masked import label_probabilities, matched
from factsweep.operators.methods import belief
from factsweep.operators.methods.ability import FILL
from factsweep.operators.methods.belief_report import digest, report
from factsweep.operators.methods.method import Ask, Evidence, Matcher, Measure, Method, Show, Tables
from factsweep.operators.metrics.belief.calibration import bins
from factsweep.operators.metrics.belief.masked import bias_level, extended_entities, gains, left_out
from factsweep.operators.prompts import masked as prompts
from factsweep.operators.tables.belief.belief import SHOWN, card


def _matcher(facts: Facts, _pipeline: str, tokenizer: Callable[[], Any]) -> Matcher:
    labels = prompts.label_tokens(facts, tokenizer())

    def match(answers: pl.DataFrame, further: Tables) -> Tables:
        return {
            **matched(answers, labels),
            "biases": _biases(further["priors"]),
            "gains": gains(_label_probabilities(answers, labels)),
            "left_out": prompts.count_left_out(_of_its_relation(labels, answers)),
        }

    return match


def _label_probabilities(answers: pl.DataFrame, labels: pl.DataFrame) -> pl.DataFrame:
    mine = labels.join(answers.select("pair_id").unique(), on="pair_id", how="semi")
    relation = _of_its_relation(labels, answers)
    return label_probabilities(answers, mine, prompts.candidates(relation))


def _of_its_relation(labels: pl.DataFrame, answers: pl.DataFrame) -> pl.DataFrame:
    return labels.join(answers.select("relation_id").unique(), on="relation_id", how="semi")


def _biases(priors: pl.DataFrame) -> pl.DataFrame:
    """What the content-free prompts say of the candidates: the table `biases`."""
    parts = pl.col("prompt_id").str.split(".")
    relation_id, number = parts.list.first(), parts.list.get(2)
    return priors.select(
        relation_id=relation_id,
        template_id=pl.concat_str(relation_id, number, separator="."),
        probabilities="candidate_probabilities",
    )


def _condense(tables: Tables, again: pl.DataFrame, facts: Facts, options: Any) -> Tables:
    found = belief.condense(tables, again, facts, options, by="equality")
    return {**found, **{name: tables[name] for name in ("biases", "gains", "left_out")}}


def _measure(evidence: Evidence) -> Tables:
    calibration = evidence.tables["calibration"]
    # Every prompt has a confidence: what failed, failed for both.
    every = replace(evidence, n_failed_samples=evidence.n_failed)
    found = belief.core(every, calibration)
    drawn = {"seed": evidence.seed, "n_rounds": evidence.options.n_rounds}
    rows = [
        found.filter(pl.col("metric") != "one_word_ratio"),  # there is nothing to count
        bias_level(evidence.tables["biases"]),
        extended_entities(evidence.tables["gains"], **drawn),
        left_out(evidence.tables["left_out"]),
    ]
    return {"metrics": pl.concat(rows), "bins": bins(calibration, evidence.options.n_bins)}


METHOD = Method(
    ask=Ask(prompts.Masked, prompts.expand, ability=FILL),
    measure=Measure(
        version=2,  # 2: intervals of small relations
        matcher=_matcher,
        matched=("answers", "calibration", "errors", "biases", "gains", "left_out"),
        compute=_measure,
        condense=_condense,
        main_metric="acc_at_1",
        options=belief.Options,
        measured=("metrics", "bins"),
        metrics=SHOWN,
    ),
    show=Show("belief", report, card, digest),
    compare=belief.comparing("equality"),
)
