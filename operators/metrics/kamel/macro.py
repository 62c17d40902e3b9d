"""Precision, recall and F1 over relations: means of relations, with intervals over their queries.

A relation's precision and recall are the means over its queries, its F1 the harmonic mean of the
two. Overall precision and recall are the means over relations, and **overall F1 is the harmonic
mean of overall precision and recall**, as the tables of the KAMEL paper are made.

Source: KAMEL, section 3.2, "Evaluation Metrics", and Table 2. Intervals: module `bootstrap`.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import polars as pl

from factsweep.operators.metrics.shared.bootstrap import (
    UNDEFINED,
    Bootstrapped,
    FloatArray,
    estimate,
    resampled_sums,
)
from factsweep.operators.metrics.shared.metric import Metric


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
    (found,) = macros([scores], seed=seed, n_rounds=n_rounds)
    return found


def macros(tables: Sequence[pl.DataFrame], *, seed: int, n_rounds: int = 1000) -> list[Macro]:
    """`macro` of several scores of the same queries, whose rounds are drawn once for all."""
    if tables[0].is_empty():
        return [Macro(*[Bootstrapped(UNDEFINED, {})] * len(Macro._fields)) for _ in tables]
    rounds = _relation_rounds(tables, seed, n_rounds)
    means = np.stack(list(rounds.values()), axis=1)  # (table, precision or recall) × relation
    relation = tables[0]["relation_id"].cast(pl.String)
    degrees = {name: int((relation == name).sum()) - 1 for name in rounds}
    return [_macro(degrees, *means[2 * each : 2 * each + 2]) for each in range(len(tables))]


def _macro(degrees: dict[str, int], precision: FloatArray, recall: FloatArray) -> Macro:
    """The numbers of one table from each relation's mean in each round: relations × rounds.

    `degrees` are the queries of each relation minus one.
    """
    f1 = harmonic_mean(precision, recall)
    of_all = sum(degrees.values())

    def bootstrapped(overall: FloatArray, each: FloatArray) -> Bootstrapped:
        found = zip(degrees.items(), each, strict=True)
        by_relation = {name: estimate(rounds, n) for (name, n), rounds in found}
        return Bootstrapped(estimate(overall, of_all), by_relation)

    means = precision.mean(axis=0), recall.mean(axis=0)
    return Macro(
        bootstrapped(means[0], precision),
        bootstrapped(means[1], recall),
        bootstrapped(harmonic_mean(*means), f1),
        Bootstrapped(estimate(f1.mean(axis=0), of_all), {}),
    )


def harmonic_mean(a: FloatArray, b: FloatArray) -> FloatArray:
    """2ab / (a + b); 0 where both are 0."""
    total = a + b
    return np.divide(2 * a * b, total, out=np.zeros_like(total), where=total > 0)


def _relation_rounds(
    tables: Sequence[pl.DataFrame], seed: int, n_rounds: int
) -> dict[str, FloatArray]:
    """Each relation's means in each round: (precision and recall of each table) × rounds."""
    ids = ["relation_id", "pair_id"]
    ordered = [each.with_columns(pl.col(ids).cast(pl.String)).sort(ids) for each in tables]
    columns = [each.select("precision", "recall").to_numpy() for each in ordered]
    statistics = np.hstack(columns)
    relations = ordered[0]["relation_id"].rle().struct.unnest()
    ends = relations["len"].cum_sum()
    found = {}
    for n, relation, end in zip(relations["len"], relations["value"], ends, strict=True):
        sums = resampled_sums(statistics[end - n : end], seed, relation, n_rounds)
        found[relation] = sums.T / n
    return found


PRECISION = Metric("precision", "P", "share of the given answers that are right", "higher")
RECALL = Metric("recall", "R", "share of the right answers that were given", "higher")
F1 = Metric("f1", heading="F1", says="harmonic mean of precision and recall", better="higher")
F1_RELATION_MEAN = Metric("f1_relation_mean", better="higher")
