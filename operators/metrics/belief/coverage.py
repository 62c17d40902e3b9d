"""Coverage: how many pairs a model knows under its best template, or under any prompt."""

import polars as pl

from factsweep.operators.metrics.shared.metric import Metric
from factsweep.operators.metrics.shared.terms import pair_terms, ratio


def coverage_oracle(answers: pl.DataFrame) -> float | None:
    """Give the share of pairs (0 to 1) with at least one correct answer.

    Needs the columns relation_id, pair_id and correct. A pair without any answer is left out.

    Source: BELIEF, section 7, Table 7, "Oracle".

    >>> coverage_oracle(pl.DataFrame({
    ...     "relation_id": ["P1"] * 4,
    ...     "pair_id": ["t1", "t1", "t2", "t2"],
    ...     "correct": [True, False, False, False],
    ... }))
    0.5
    """
    return ratio(coverage_oracle_terms(answers))


def coverage_oracle_terms(answers: pl.DataFrame) -> pl.DataFrame:
    """Give each pair a 1 if any of its answers is correct, over 1."""
    return pair_terms(answers, pl.col("correct").any(), pl.lit(1.0))


def coverage_maximum(answers: pl.DataFrame) -> float | None:
    """Give the share of pairs (0 to 1) that are known under their relation's best template.

    The best template of a relation is the one with the most correct pairs; a pair is correct under
    a template if any of its subject names is answered correctly. Micro-averaged: the relations'
    correct pairs, over all pairs with any answer. Needs the columns relation_id, pair_id,
    template_id and correct.

    Source: BELIEF, section 7, Table 7, "Maximum", with footnote 16 (the best subject name).

    >>> coverage_maximum(pl.DataFrame({
    ...     "relation_id": ["P1"] * 6,
    ...     "pair_id": ["t1", "t1", "t2", "t2", "t2", "t3"],
    ...     "template_id": ["a", "b", "a", "b", "b", "a"],
    ...     "correct": [True, True, False, False, True, False],
    ... }))
    0.6666666666666666
    """
    best = template_hits(answers).group_by("relation_id", "template_id").agg(pl.sum("hit"))
    n_correct = best.group_by("relation_id").agg(pl.max("hit"))["hit"].sum()
    n_pairs = answers.select(pl.struct("relation_id", "pair_id").n_unique()).item()
    return n_correct / n_pairs if n_pairs else None


def template_hits(answers: pl.DataFrame) -> pl.DataFrame:
    """Say for each pair and template whether any subject name's answer is correct (`hit`).

    One row per pair and template that has an answer; ids as text.
    """
    cell = ("relation_id", "pair_id", "template_id")
    hits = answers.group_by(cell).agg(hit=pl.col("correct").any())
    return hits.with_columns(pl.col(cell).cast(pl.String))


COVERAGE_MAXIMUM = Metric(
    "coverage_maximum",
    heading="maximum",
    says="share of facts right under their relation's best template",
    better="higher",
)
COVERAGE_ORACLE = Metric(
    "coverage_oracle",
    heading="oracle",
    says="share of facts right under at least one prompt",
    better="higher",
    terms=coverage_oracle_terms,
)
