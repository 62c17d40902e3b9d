"""BELIEF of encoder models: one mask a prompt, and the probability of what they put there."""

from collections.abc import Callable, Mapping
from typing import Any

import polars as pl

from operators.datasets.facts import Facts, sliced
from operators.matching.masked import label_probabilities, matched
from operators.methods import belief
from operators.methods.method import Evidence, Matcher, Method
from operators.metrics.analyses import analyses
from operators.metrics.belief import belief as belief_metrics
from operators.metrics.bias_level import bias_level
from operators.metrics.calibration import bins
from operators.metrics.extended_entities import extended_entities, gains
from operators.prompts.candidates import candidates, label_tokens
from operators.prompts.masked import Masked, expand
from operators.tables.belief import card


def _matcher(facts: Facts, _pipeline: str, tokenizer: Callable[[], Any]) -> Matcher:
    labels = label_tokens(facts, tokenizer())

    def match(answers: pl.DataFrame, further: pl.DataFrame) -> Mapping[str, pl.DataFrame]:
        found = matched(answers, answers, labels)
        return {
            "answers": found.answers,
            "calibration": found.calibration,
            "errors": found.errors,
            "biases": _biases(further),
            "gains": gains(_label_probabilities(answers, labels)),
        }

    return match


def _label_probabilities(answers: pl.DataFrame, labels: pl.DataFrame) -> pl.DataFrame:
    mine = labels.join(answers.select("pair_id").unique(), on="pair_id", how="semi")
    relation = labels.join(mine.select("relation_id").unique(), on="relation_id", how="semi")
    predictions = answers.select("prompt_id", probabilities="candidate_probabilities")
    return label_probabilities(predictions, answers, mine, candidates(relation))


def _biases(priors: pl.DataFrame) -> pl.DataFrame:
    """What the content-free prompts say of the candidates: the table `biases`."""
    parts = pl.col("prompt_id").str.split(".")
    relation_id, number = parts.list.first(), parts.list.get(2)
    return priors.select(
        relation_id=relation_id,
        template_id=pl.concat_str(relation_id, number, separator="."),
        probabilities="candidate_probabilities",
    )


def _measure(evidence: Evidence) -> Mapping[str, pl.DataFrame]:
    calibration = evidence.tables["calibration"]
    metrics = belief_metrics(
        evidence.tables["answers"],
        calibration,
        evidence.n_failed,
        seed=evidence.seed,
        n_draws=evidence.n_draws,
        n_rounds=evidence.n_rounds,
        n_bins=evidence.n_bins,
        by="equality",
        n_failed_samples=evidence.n_failed,
    )
    one_token = metrics.filter(pl.col("metric") != "one_word_ratio")  # there is nothing to count
    further = analyses(
        evidence.analyses,
        evidence.tables["answers"],
        evidence.facts.templates,
        evidence.n_failed,
        evidence.canary,
        by="equality",
        seed=evidence.seed,
        n_rounds=evidence.n_rounds,
    )
    drawn = {"seed": evidence.seed, "n_rounds": evidence.n_rounds}
    of_names = extended_entities(evidence.tables["gains"], **drawn)
    rows = [one_token, further, bias_level(evidence.tables["biases"]), of_names]
    return {"metrics": pl.concat(rows), "bins": bins(calibration, evidence.n_bins)}


METHOD = Method(
    setting=Masked,
    sliced=sliced,
    expand=expand,
    matched=("answers", "calibration", "errors", "biases", "gains"),
    matcher=_matcher,
    versions=lambda _pipeline: {},
    measured=("metrics", "bins"),
    measure=_measure,
    report=belief.report,
    card=card,
    main_metric="acc_at_1",
    published="belief",
    ability="fill",
)
