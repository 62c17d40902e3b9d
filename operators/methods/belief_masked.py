"""BELIEF of encoder models: one mask per prompt, and the probability of the token put there."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import polars as pl

from factsweep.operators.datasets.facts import Facts
from factsweep.operators.matching.lemmas import SEPARATOR
from factsweep.operators.methods import belief, method
from factsweep.operators.methods.belief_report import digest, report
from factsweep.operators.metrics.belief import masked
from factsweep.operators.metrics.belief.calibration import bins
from factsweep.operators.prompts import masked as prompts
from factsweep.operators.schemas import columns
from factsweep.operators.tables.belief import SHOWN, card

REASON = "no_single_token_label"


def _matcher(facts: Facts, _pipeline: str, tokenizer: Callable[[], Any]) -> method.Matcher:
    labels = prompts.label_tokens(facts, tokenizer())

    def match(answers: pl.DataFrame, extra_tables: method.Tables) -> method.Tables:
        of_relation = labels.join(
            answers.select("relation_id").unique(), on="relation_id", how="semi"
        )
        of_pairs = labels.join(answers.select("pair_id").unique(), on="pair_id", how="semi")
        candidates = prompts.candidates(of_relation)
        parts = pl.col("prompt_id").str.split(".")
        template_id = pl.concat_str(parts.list.first(), parts.list.get(2), separator=".")
        return {
            **match_tokens(answers, labels),
            "biases": extra_tables["priors"].select(
                relation_id=parts.list.first(),
                template_id=template_id,
                probabilities="candidate_probabilities",
            ),
            "gains": masked.count_gains(label_probabilities(answers, of_pairs, candidates)),
            "left_out": prompts.count_left_out(of_relation),
        }

    return match


def match_tokens(answers: pl.DataFrame, labels: pl.DataFrame) -> dict[str, pl.DataFrame]:
    """Mark the predictions whose token is a label of an object of the pair as right.

    `answers` has one row per answered prompt: prompt_id, relation_id, pair_id, template_id,
    subject_index, token_id, token, probability; `labels` (`operators.prompts.masked.label_tokens`)
    has pair_id and token_id. Gives the canonical tables `answers`, `calibration` and `errors`. An
    answer's key is its token as in the vocabulary; its n_lemmas is 1, its confidence the token's
    probability.

    A pair without any single-token label cannot be answered: its prompts are in `errors`, reason
    "no_single_token_label", and not in the other tables.

    Source: BELIEF, sections 2.1 and 2.4, and footnote 6.
    """
    right = labels.drop_nulls("token_id").select("pair_id", "token_id").unique()
    answerable = answers.join(right, on="pair_id", how="semi", maintain_order="left")
    token, hits = ["pair_id", "token_id"], right.with_columns(correct=pl.lit(True))
    rows = answerable.join(hits, on=token, how="left", maintain_order="left").with_columns(
        pl.col("correct").fill_null(False),
        key=pl.concat_str(pl.lit(SEPARATOR), "token", pl.lit(SEPARATOR)),
        n_lemmas=pl.lit(1),
        confidence="probability",
    )
    schemas = {name: columns(name) for name in ("answers", "calibration")}
    tables = {name: rows.select(schema.names()).cast(schema) for name, schema in schemas.items()}
    impossible = answers.join(right, on="pair_id", how="anti", maintain_order="left")
    errors = impossible.select(
        "prompt_id",
        stage=pl.lit("match"),
        reason=pl.lit(REASON),
        detail=pl.format("no label of {} is a single token of the model", "pair_id"),
    )
    return {**tables, "errors": errors}


def label_probabilities(
    answers: pl.DataFrame, labels: pl.DataFrame, candidates: pl.DataFrame
) -> pl.DataFrame:
    """The probability of each single-token label of a right object, under each prompt of its pair.

    `answers` has pair_id, template_id, subject_index and candidate_probabilities, in the order of
    the relation's `candidates`. Of an object's equal tokens the first label is kept. For one
    relation at a time.
    """
    number = pl.int_range(pl.len()).over("relation_id")
    places = candidates.select("relation_id", "token_id", place=number)
    token = ["pair_id", "object_id", "token_id"]
    rows = labels.drop_nulls("token_id").unique(token, keep="first", maintain_order=True)
    rows = rows.join(places, on=["relation_id", "token_id"], maintain_order="left")
    prompts_of_pair = answers.select(
        "pair_id", "template_id", "subject_index", probabilities="candidate_probabilities"
    )
    return rows.join(prompts_of_pair, on="pair_id", maintain_order="left_right").select(
        *("relation_id", "pair_id", "template_id", "subject_index", "object_id", "label_index"),
        probability=pl.col("probabilities").list.get(pl.col("place")).cast(pl.Float64),
    )


def _condense(
    tables: method.Tables, repeated_answers: pl.DataFrame, facts: Facts, options: Any
) -> method.Tables:
    condensed = belief.condense(tables, repeated_answers, facts, options, by="equality")
    return {**condensed, **{name: tables[name] for name in ("biases", "gains", "left_out")}}


def _measure(evidence: method.Evidence) -> method.Tables:
    calibration = evidence.tables["calibration"]
    # Every prompt has a confidence, so failures are failures of both.
    metrics = belief.core(replace(evidence, n_failed_samples=evidence.n_failed), calibration)
    rows = [
        metrics.filter(pl.col("metric") != "one_word_ratio"),  # there is nothing to count
        masked.bias_level(evidence.tables["biases"]),
        masked.extended_entities(evidence.tables["gains"], **evidence.draws),
        masked.left_out_rows(evidence.tables["left_out"]),
    ]
    return {"metrics": pl.concat(rows), "bins": bins(calibration, evidence.options.n_bins)}


METHOD = method.Method(
    ask=method.Ask(prompts.MaskedSetting, prompts.expand, ability=method.FILL),
    measure=method.Measure(
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
    show=method.Show("belief", report, card, digest),
    compare=belief.build_compare("equality"),
    evidence=belief.fact_evidence,
)
