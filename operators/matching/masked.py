"""Predictions of a masked model → matched answers and their confidence."""

from typing import NamedTuple

import polars as pl

from factsweep.operators.matching.lemmas import SEPARATOR
from factsweep.operators.schemas import columns

REASON = "no_single_token_label"


class Matched(NamedTuple):
    """The canonical tables `answers` and `calibration`, and `errors` of what cannot be answered."""

    answers: pl.DataFrame
    calibration: pl.DataFrame
    errors: pl.DataFrame


def matched(predictions: pl.DataFrame, prompts: pl.DataFrame, labels: pl.DataFrame) -> Matched:
    r"""Say which predictions are right: those whose token is a label of an object of the pair.

    `predictions` has one row per prompt: prompt_id, token_id, token, probability. `prompts` is the
    canonical table. `labels` comes from `operators.prompts.masked.label_tokens`: relation_id,
    pair_id, token_id. An answer's key is its token as it stands in the vocabulary; its n_lemmas
    is 1. Confidence is the token's probability, and every answer has one.

    A pair none of whose labels is a single token cannot be answered: its prompts stand in `errors`,
    reason "no_single_token_label", and not in the other tables.

    Source: BELIEF, sections 2.1 and 2.4, and footnote 6.
    """
    relations = labels.select("pair_id", "relation_id").unique()
    right = labels.drop_nulls("token_id").select("pair_id", "token_id").unique()
    asked = prompts.select("prompt_id", "pair_id", "template_id", "subject_index")
    answerable = asked.join(right, on="pair_id", how="semi", maintain_order="left")
    rows = answerable.join(predictions, on="prompt_id", maintain_order="left")
    rows = rows.join(relations, on="pair_id", how="left", maintain_order="left")
    token, hits = ["pair_id", "token_id"], right.with_columns(correct=pl.lit(True))
    rows = rows.join(hits, on=token, how="left", maintain_order="left").with_columns(
        pl.col("correct").fill_null(False),
        key=pl.concat_str(pl.lit(SEPARATOR), "token", pl.lit(SEPARATOR)),
        n_lemmas=pl.lit(1),
        confidence="probability",
    )
    found = (columns(name) for name in ("answers", "calibration"))
    answers, calibration = (rows.select(each.names()).cast(each) for each in found)
    errors = _errors(asked.join(right, on="pair_id", how="anti", maintain_order="left"))
    return Matched(answers, calibration, errors)


def label_probabilities(
    predictions: pl.DataFrame, prompts: pl.DataFrame, labels: pl.DataFrame, candidates: pl.DataFrame
) -> pl.DataFrame:
    """The probability of each right label that is a single token, under each prompt of its pair.

    `predictions` has prompt_id and probabilities, in the order of the relation's `candidates`. Of
    an object's labels of one token the first stands for all. Made for a relation at a time.
    """
    number = pl.int_range(pl.len()).over("relation_id")
    places = candidates.select("relation_id", "token_id", place=number)
    token = ["pair_id", "object_id", "token_id"]
    rows = labels.drop_nulls("token_id").unique(token, keep="first", maintain_order=True)
    rows = rows.join(places, on=["relation_id", "token_id"], maintain_order="left")
    asked = prompts.select("prompt_id", "pair_id", "template_id", "subject_index")
    rows = rows.join(asked, on="pair_id", maintain_order="left_right")
    return rows.join(predictions, on="prompt_id", maintain_order="left").select(
        *("relation_id", "pair_id", "template_id", "subject_index", "object_id", "label_index"),
        probability=pl.col("probabilities").list.get(pl.col("place")).cast(pl.Float64),
    )


def _errors(prompts: pl.DataFrame) -> pl.DataFrame:
    return prompts.select(
        "prompt_id",
        stage=pl.lit("match"),
        reason=pl.lit(REASON),
        detail=pl.format("no label of {} is a single token of the model", "pair_id"),
    )
