"""Precision, recall and F1 over relations: means of relations, with intervals over their queries.

A relation's precision and recall are the means over its queries, its F1 the harmonic mean of the
two. Overall precision and recall are the means over relations, and **overall F1 is the harmonic
mean of overall precision and recall**, as the tables of the KAMEL paper are made.

Source: KAMEL, section 3.2, "Evaluation Metrics", and Table 2. Intervals: module `bootstrap`.
"""

from typing import NamedTuple

import numpy as np
import polars as pl

from operators.metrics.bootstrap import UNDEFINED, Bootstrapped, FloatArray, estimate, weight_blocks
from operators.seeds import generator


class Macro(NamedTuple):
    """The four numbers; `f1_relation_mean`, the mean of the relations' F1, has no slices."""

    precision: Bootstrapped
    recall: Bootstrapped
    f1: Bootstrapped
    f1_relation_mean: Bootstrapped


def macro(scores: pl.DataFrame, *, seed: int, n_rounds: int = 1000) -> Macro:
    """Average the scores of queries (relation_id, pair_id, precision, recall).

    >>> scores = pl.DataFrame({
    ...     "relation_id": ["P1", "P1", "P2"], "pair_id": ["t1", "t2", "t3"],
    ...     "precision": [1.0, 0.0, 0.0], "recall": [1.0, 0.0, 0.0],
    ... })
    >>> found = macro(scores, seed=1, n_rounds=10)
    >>> found.f1.overall.value, found.f1.by_relation["P1"].value
    (0.25, 0.5)
    """
    if scores.is_empty():
        return Macro(*[Bootstrapped(UNDEFINED, {})] * len(Macro._fields))
    rounds = _relation_rounds(scores, seed, n_rounds)
    relations, (precision, recall) = list(rounds), np.stack(list(rounds.values()), axis=1)
    f1 = harmonic_mean(precision, recall)

    def bootstrapped(overall: FloatArray, each: FloatArray) -> Bootstrapped:
        by_relation = dict(zip(relations, map(estimate, each), strict=True))
        return Bootstrapped(estimate(overall), by_relation)

    means = precision.mean(axis=0), recall.mean(axis=0)
    return Macro(
        bootstrapped(means[0], precision),
        bootstrapped(means[1], recall),
        bootstrapped(harmonic_mean(*means), f1),
        Bootstrapped(estimate(f1.mean(axis=0)), {}),
    )


def harmonic_mean(a: FloatArray, b: FloatArray) -> FloatArray:
    """2ab / (a + b); 0 where both are 0."""
    total = a + b
    return np.divide(2 * a * b, total, out=np.zeros_like(total), where=total > 0)


def _relation_rounds(scores: pl.DataFrame, seed: int, n_rounds: int) -> dict[str, FloatArray]:
    """Each relation's mean precision and recall in each round: 2 × rounds."""
    ordered = scores.with_columns(pl.col("relation_id", "pair_id").cast(pl.String))
    ordered = ordered.sort("relation_id", "pair_id")
    found = {}
    for rows in ordered.partition_by("relation_id", maintain_order=True):
        relation = rows["relation_id"][0]
        statistics = rows.select("precision", "recall").to_numpy()
        blocks = weight_blocks(rows.height, generator(seed, "bootstrap", relation), n_rounds)
        sums = np.concatenate([weights @ statistics for weights in blocks])
        found[relation] = sums.T / rows.height
    return found
