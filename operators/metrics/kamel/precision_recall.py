"""Precision and recall of each query that has a set of right answers."""

from typing import Literal

import numpy as np
import polars as pl

from factsweep.operators.datasets.told_apart import answers_told_apart, told_apart
from factsweep.operators.matching.answer_set import Matching, answer_set

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
    where they tell labels of `pairs` in one relation apart (module `told_apart`).

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
    counted = asked.join(given.group_by("pair_id").len("n_answers"), on="pair_id", how="left")
    counted = counted.join(found, on="pair_id", how="left").select(
        "relation_id",
        "pair_id",
        n_answers=pl.col("n_answers").fill_null(0).cast(pl.Int64),
        n_gold=pl.col("objects").list.len().cast(pl.Int64),
        n_found=pl.col("n_found").fill_null(0),
    )
    ordered = asked.select("pair_id").join(counted, on="pair_id", maintain_order="left")
    return ordered.select(counted.columns).with_columns(
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
    answers = texts.select(pl.exclude("text"), answer=answer_set(pl.col("text"), matching))
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
    gold, answer = (places[name].to_numpy() for name in places.columns)
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import maximum_bipartite_matching

    graph = csr_array((np.ones(len(gold)), (gold, answer)))
    return int((maximum_bipartite_matching(graph) >= 0).sum())
