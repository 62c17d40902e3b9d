"""Precision, recall and F1 of each query, and over relations, with intervals over their queries.

A relation's precision and recall are the means over its queries, its F1 the harmonic mean of the
two. Overall precision and recall are the means over relations, and **overall F1 is the harmonic
mean of overall precision and recall**, as the tables of the KAMEL paper are made.

Source: KAMEL, section 3.2, "Evaluation Metrics", and Table 2. Intervals: module `bootstrap`.
"""

from collections.abc import Sequence
from typing import Literal, NamedTuple

import numpy as np
import polars as pl

from factsweep.operators.datasets.kamel import answers_told_apart, told_apart
from factsweep.operators.matching.answer_set import Matching, answer_set
from factsweep.operators.metrics.shared.bootstrap import (
    UNDEFINED,
    Bootstrapped,
    FloatArray,
    estimate,
    relations,
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
    degrees, rounds = {}, []
    for parts in zip(*(relations(each, "pair_id") for each in tables), strict=True):
        relation, n = parts[0][0], parts[0][1].height
        scores = [rows.select("precision", "recall").to_numpy() for _, rows in parts]
        rounds.append(resampled_sums(np.hstack(scores), seed, relation, n_rounds).T / n)
        degrees[relation] = n - 1
    means = np.stack(rounds, axis=1)  # (table, precision or recall) × relation × rounds
    return [_macro(degrees, *means[2 * each : 2 * each + 2]) for each in range(len(tables))]


def _macro(degrees: dict[str, int], precision: FloatArray, recall: FloatArray) -> Macro:
    """A table's numbers from relations' means in each round; `degrees`: their queries less one."""
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


PRECISION = Metric("precision", "P", "share of the given answers that are right", "higher")
RECALL = Metric("recall", "R", "share of the right answers that were given", "higher")
F1 = Metric("f1", "F1", "harmonic mean of precision and recall", "higher")
F1_RELATION_MEAN = Metric("f1_relation_mean", better="higher")

Labels = Literal["all", "rdf"]


def precision_recall(
    answers: pl.DataFrame,
    pairs: pl.DataFrame,
    *,
    matching: Matching = "strict",
    labels: Labels = "all",
) -> pl.DataFrame:
    """Score each query: one row per pair that has an answer, in the order of `pairs`.

    `answers` has pair_id and text, `pairs` the columns of its canonical table. `n_answers` counts
    the distinct answers given, `n_gold` the right ones, `n_found` the right ones that were given:
    as many as can be matched with a given answer **each of its own**, so that neither share exceeds
    1 where two right answers have a label in common. Nothing given: both shares are 0.

    `labels="rdf"` compares with the first label of a right answer alone; that of a literal is its
    first alternative, as in the authors' scorer. Strict matching drops special characters, except
    where they tell labels of `pairs` in one relation apart (`told_apart`).

    Source: KAMEL, section 3.2, "Evaluation Metrics".

    >>> answers = pl.DataFrame({"pair_id": ["t1"], "text": ["English; Spanish; French; Italian%"]})
    >>> gold = ["English", "Spanish", "Hebrew", "Japanese", "French"]
    >>> objects = [{"object_id": None, "labels": [label]} for label in gold]
    >>> pairs = pl.DataFrame({"relation_id": ["P1412"], "pair_id": ["t1"], "objects": [objects]})
    >>> precision_recall(answers, pairs).drop("relation_id").row(0)
    ('t1', 4, 5, 3, 0.75, 0.6)
    """
    asked = pairs.join(answers.drop_nulls("text").select("pair_id"), on="pair_id", how="semi")
    relations = asked.select("pair_id", "relation_id")
    texts = answers.join(relations, on="pair_id").select("relation_id", "pair_id", "text")
    apart = told_apart(pairs)
    given = _read(texts, apart, matching).select("pair_id", "answer")
    gold = _read(_labels(asked, labels), apart, matching).select("pair_id", "gold", "answer")
    # An empty answer is never right, though "%" as a label would leave one too.
    found = _found(given, gold.filter(pl.col("answer") != ""))
    n_answers = given.group_by("pair_id").len("n_answers")
    counted = asked.join(n_answers, on="pair_id", how="left", maintain_order="left")
    counted = counted.join(found, on="pair_id", how="left", maintain_order="left").select(
        "relation_id",
        "pair_id",
        n_answers=pl.col("n_answers").fill_null(0).cast(pl.Int64),
        n_gold=pl.col("objects").list.len().cast(pl.Int64),
        n_found=pl.col("n_found").fill_null(0),
    )
    return counted.with_columns(
        precision=pl.col("n_found") / pl.max_horizontal("n_answers", pl.lit(1)),
        recall=pl.col("n_found") / pl.col("n_gold"),
    )


def _labels(pairs: pl.DataFrame, labels: Labels) -> pl.DataFrame:
    """One row per label of a right answer: relation_id, pair_id, gold (its place), text."""
    names = pl.col("objects").struct.field("labels")
    objects = pairs.select("relation_id", "pair_id", "objects").explode("objects")
    return objects.select(
        "relation_id",
        "pair_id",
        gold=pl.int_range(pl.len()).over("pair_id"),
        text=names.list.head(1) if labels == "rdf" else names,
    ).explode("text")


def _read(texts: pl.DataFrame, apart: pl.DataFrame, matching: Matching) -> pl.DataFrame:
    """The distinct answers in each text, one row per answer."""
    if matching == "strict":
        return answers_told_apart(texts, apart)
    answers = texts.select(pl.exclude("text"), answer=answer_set(pl.col("text")))
    return answers.explode("answer").drop_nulls("answer").unique()


def _found(given: pl.DataFrame, gold: pl.DataFrame) -> pl.DataFrame:
    """pair_id, n_found: of the pairs with at least one."""
    hits = given.join(gold, on=["pair_id", "answer"])
    disputed = pl.col("gold").n_unique().over("pair_id", "answer").max().over("pair_id") > 1
    simple = hits.filter(~disputed).group_by("pair_id")
    counted = simple.agg(n_found=pl.col("gold").n_unique().cast(pl.Int64))
    matched = [
        (rows["pair_id"][0], _n_matched(rows))
        for rows in hits.filter(disputed).partition_by("pair_id")
    ]
    return pl.concat([counted, pl.DataFrame(matched, schema=counted.schema, orient="row")])


def _n_matched(hits: pl.DataFrame) -> int:
    """The most right answers of a pair that each have a given answer of their own."""
    places = hits.select(pl.col("gold", "answer").rank("dense").cast(pl.Int64) - 1)
    gold, answer = (each.to_numpy() for each in places)
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import maximum_bipartite_matching

    graph = csr_array((np.ones(len(gold)), (gold, answer)))
    return int((maximum_bipartite_matching(graph) >= 0).sum())
