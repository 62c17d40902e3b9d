"""Precision and recall of each query that has a set of right answers."""

from typing import Literal

import numpy as np
import polars as pl
from scipy.sparse import csr_array
from scipy.sparse.csgraph import maximum_bipartite_matching

from operators.matching.answer_set import Matching, answer_set

Labels = Literal["all", "rdf"]


def precision_recall(
    answers: pl.DataFrame,
    pairs: pl.DataFrame,
    *,
    matching: Matching = "strict",
    labels: Labels = "all",
) -> pl.DataFrame:
    """Score each query: one row a pair that has an answer, in the order of `pairs`.

    `answers` has pair_id and text, `pairs` the columns of its canonical table. `n_answers` counts
    the distinct answers given, `n_gold` the right ones, `n_found` the right ones that were given:
    as many as can be matched with a given answer **each of its own**, so that neither share exceeds
    1 where two right answers have a label in common. Nothing given: both shares are 0.

    `labels="rdf"` compares with the first label of a right answer alone; that of a literal is the
    form that the authors chose.

    Source: KAMEL, section 3.2, "Evaluation Metrics".

    >>> answers = pl.DataFrame({"pair_id": ["t1"], "text": ["English; Spanish; French; Italian%"]})
    >>> gold = ["English", "Spanish", "Hebrew", "Japanese", "French"]
    >>> objects = [{"object_id": None, "labels": [label]} for label in gold]
    >>> pairs = pl.DataFrame({"relation_id": ["P1412"], "pair_id": ["t1"], "objects": [objects]})
    >>> precision_recall(answers, pairs).drop("relation_id")
    shape: (1, 6)
    ┌─────────┬───────────┬────────┬─────────┬───────────┬────────┐
    │ pair_id ┆ n_answers ┆ n_gold ┆ n_found ┆ precision ┆ recall │
    │ ---     ┆ ---       ┆ ---    ┆ ---     ┆ ---       ┆ ---    │
    │ str     ┆ i64       ┆ i64    ┆ i64     ┆ f64       ┆ f64    │
    ╞═════════╪═══════════╪════════╪═════════╪═══════════╪════════╡
    │ t1      ┆ 4         ┆ 5      ┆ 3       ┆ 0.75      ┆ 0.6    │
    └─────────┴───────────┴────────┴─────────┴───────────┴────────┘
    """
    given = answers.select("pair_id", answer=answer_set(pl.col("text"), matching)).drop_nulls()
    asked = pairs.join(given, on="pair_id", maintain_order="left")
    found = _found(given, _gold(asked, matching, labels))
    counted = asked.join(found, on="pair_id", how="left", maintain_order="left").select(
        "relation_id",
        "pair_id",
        n_answers=pl.col("answer").list.len().cast(pl.Int64),
        n_gold=pl.col("objects").list.len().cast(pl.Int64),
        n_found=pl.col("n_found").fill_null(0),
    )
    return counted.with_columns(
        precision=pl.col("n_found") / pl.max_horizontal("n_answers", pl.lit(1)),
        recall=pl.col("n_found") / pl.col("n_gold"),
    )


def _gold(pairs: pl.DataFrame, matching: Matching, labels: Labels) -> pl.DataFrame:
    """One row a text that answers right: pair_id, gold (the right answer's place), answer."""
    names = pl.col("objects").struct.field("labels")
    objects = pairs.select("pair_id", "objects").explode("objects")
    rows = objects.select(
        "pair_id",
        gold=pl.int_range(pl.len()).over("pair_id"),
        label=names.list.head(1) if labels == "rdf" else names,
    ).explode("label")
    texts = rows.with_columns(answer=answer_set(pl.col("label"), matching)).explode("answer")
    # An empty answer is never right, though "%" as a label would leave one too.
    return texts.filter(pl.col("answer") != "").select("pair_id", "gold", "answer").unique()


def _found(given: pl.DataFrame, gold: pl.DataFrame) -> pl.DataFrame:
    """pair_id, n_found: of the pairs with at least one."""
    hits = given.explode("answer").join(gold, on=["pair_id", "answer"])
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
    graph = csr_array((np.ones(len(gold)), (gold, answer)))
    return int((maximum_bipartite_matching(graph) >= 0).sum())
