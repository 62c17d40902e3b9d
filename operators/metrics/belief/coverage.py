"""Coverage: how many pairs a model knows under its best template, or under any prompt."""

import numpy as np
import polars as pl

from factsweep.operators.metrics.shared import bootstrap
from factsweep.operators.metrics.shared.metric import Metric
from factsweep.operators.metrics.shared.rows import pair_terms


def coverage_oracle_terms(answers: pl.DataFrame) -> pl.DataFrame:
    """Give each pair a 1 if any of its answers is correct, over 1.

    Needs the columns relation_id, pair_id and correct. A pair without any answer is left out.

    Source: BELIEF, section 7, Table 7, "Oracle".

    >>> ids = {"relation_id": ["P1"] * 4, "pair_id": ["t1", "t1", "t2", "t2"]}
    >>> answers = pl.DataFrame({**ids, "correct": [True, False, False, False]})
    >>> coverage_oracle_terms(answers)["numerator"].to_list()
    [1.0, 0.0]
    """
    return pair_terms(answers, pl.col("correct").any(), pl.lit(1.0))


def coverage_maximum(answers: pl.DataFrame) -> float | None:
    """Give the share of pairs (0 to 1) that are known under their relation's best template.

    The best template of a relation is the one with the most correct pairs; a pair is correct under
    a template if any of its subject names is answered correctly. Micro-averaged over all pairs with
    any answer.

    Source: BELIEF, section 7, Table 7, "Maximum", with footnote 16 (the best subject name).

    >>> pairs = {"relation_id": ["P1"] * 4, "pair_id": ["t1", "t1", "t2", "t3"]}
    >>> hits = {"template_id": ["a", "b", "b", "a"], "correct": [True, True, True, False]}
    >>> coverage_maximum(pl.DataFrame(pairs | hits))
    0.6666666666666666
    """
    best = template_hits(answers).group_by("relation_id", "template_id").agg(pl.sum("hit"))
    n_correct = best.group_by("relation_id").agg(pl.max("hit"))["hit"].sum()
    n_pairs = answers.select(pl.struct("relation_id", "pair_id").n_unique()).item()
    return n_correct / n_pairs if n_pairs else None


def template_hits(answers: pl.DataFrame) -> pl.DataFrame:
    """Say for each pair and template with an answer whether any name's is correct (`hit`)."""
    cell = ("relation_id", "pair_id", "template_id")
    hits = answers.group_by(cell).agg(hit=pl.col("correct").any())
    return hits.with_columns(pl.col(cell).cast(pl.String))


def bootstrap_coverage_maximum(
    answers: pl.DataFrame, *, seed: int, n_rounds: int = 1000
) -> bootstrap.Bootstrapped:
    """Estimate `coverage_maximum`; every round keeps the templates that are best in the sample.

    Were the best template chosen again in each round, it would owe part of its lead to the chance
    of that round, and the interval would lie high, even above the value.
    """
    sums = {}
    for relation, rows in bootstrap.relations(template_hits(answers)):
        hits = _hits_matrix(rows)
        best = hits[:, [hits.sum(axis=0).argmax()]]
        n_right = bootstrap.resampled_sums(best, seed, relation, n_rounds)[:, 0]
        n_pairs = np.full(len(n_right), float(len(hits)))
        sums[relation] = bootstrap.Rounds(n_right, n_pairs, len(hits) - 1)
    return bootstrap.bootstrapped(sums)


def _hits_matrix(hits: pl.DataFrame) -> bootstrap.FloatArray:
    """One relation's hits as pairs × templates; a missing answer is no hit."""
    places = hits.select(pl.col("pair_id", "template_id").rank("dense").cast(pl.Int64) - 1)
    pair, template = (each.to_numpy() for each in places)
    matrix = np.zeros((pair.max() + 1, template.max() + 1))
    matrix[pair, template] = hits["hit"].to_numpy()
    return matrix


_UNDER_BEST = "share of facts right under their relation's best template"
_UNDER_ANY = "share of facts right under at least one prompt"
COVERAGE_MAXIMUM = Metric("coverage_maximum", "maximum", _UNDER_BEST, "higher")
COVERAGE_ORACLE = Metric(
    "coverage_oracle", "oracle", _UNDER_ANY, "higher", terms=coverage_oracle_terms
)
