"""Predictions of a masked model → matched answers and their confidence."""

import polars as pl

from factsweep.operators.matching.lemmas import SEPARATOR
from factsweep.operators.schemas import columns

REASON = "no_single_token_label"


def matched(answers: pl.DataFrame, labels: pl.DataFrame) -> dict[str, pl.DataFrame]:
    r"""Say which predictions are right: those whose token is a label of an object of the pair.

    `answers` has one row per answered prompt: prompt_id, relation_id, pair_id, template_id,
    subject_index, token_id, token, probability. `labels` comes from
    `operators.prompts.masked.label_tokens`: pair_id, token_id. Gives the canonical tables `answers`
    and `calibration`, and `errors` of what cannot be answered. An answer's key is its token as it
    stands in the vocabulary; its n_lemmas is 1. Confidence is the token's probability, and every
    answer has one.

    A pair none of whose labels is a single token cannot be answered: its prompts stand in `errors`,
    reason "no_single_token_label", and not in the other tables.

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
    found = {name: rows.select(each.names()).cast(each) for name, each in schemas.items()}
    impossible = answers.join(right, on="pair_id", how="anti", maintain_order="left")
    return {**found, "errors": _errors(impossible)}


def label_probabilities(
    answers: pl.DataFrame, labels: pl.DataFrame, candidates: pl.DataFrame
) -> pl.DataFrame:
    """The probability of each right label that is a single token, under each prompt of its pair.

    `answers` has pair_id, template_id, subject_index and candidate_probabilities, in the order of
    the relation's `candidates`. Of an object's labels of one token the first stands for all. Made
    for a relation at a time.
    """
    number = pl.int_range(pl.len()).over("relation_id")
    places = candidates.select("relation_id", "token_id", place=number)
    token = ["pair_id", "object_id", "token_id"]
    rows = labels.drop_nulls("token_id").unique(token, keep="first", maintain_order=True)
    rows = rows.join(places, on=["relation_id", "token_id"], maintain_order="left")
    asked = answers.select(
        "pair_id", "template_id", "subject_index", probabilities="candidate_probabilities"
    )
    return rows.join(asked, on="pair_id", maintain_order="left_right").select(
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
