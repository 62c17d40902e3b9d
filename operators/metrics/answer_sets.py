"""Sets of answers to KAMEL's queries: precision and recall, complete sets, sets that match.

Source: KAMEL, section 3.2, "Evaluation Metrics".
"""

from typing import Literal

import numpy as np
import polars as pl

from factsweep.operators.datasets.kamel import find_marked_labels, read_answers
from factsweep.operators.matching.answer_set import Matching, answer_set
from factsweep.operators.matching.lemmas import SEPARATOR as LEMMA_SEPARATOR
from factsweep.operators.matching.lemmas import key

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
    where they distinguish labels of `pairs` in one relation (`find_marked_labels`).

    >>> answers = pl.DataFrame({"pair_id": ["t1"], "text": ["English; Spanish; French; Italian%"]})
    >>> gold = ["English", "Spanish", "Hebrew", "Japanese", "French"]
    >>> objects = [{"object_id": None, "labels": [label]} for label in gold]
    >>> pairs = pl.DataFrame({"relation_id": ["P1412"], "pair_id": ["t1"], "objects": [objects]})
    >>> precision_recall(answers, pairs).drop("relation_id").row(0)
    ('t1', 4, 5, 3, 0.75, 0.6)
    """
    answered_ids = answers.drop_nulls("text").select("pair_id")
    answered_pairs = pairs.join(answered_ids, on="pair_id", how="semi")
    relation_of_pair = answered_pairs.select("pair_id", "relation_id")
    texts = answers.join(relation_of_pair, on="pair_id").select("relation_id", "pair_id", "text")
    apart = find_marked_labels(pairs)
    answered = _split(texts, apart, matching).select("pair_id", "answer")
    gold = _split(_labels(answered_pairs, labels), apart, matching)
    gold = gold.select("pair_id", "gold", "answer")
    # An empty answer is never right, though "%" as a label would leave one too.
    n_found = _count_matched(answered, gold.filter(pl.col("answer") != ""))
    n_answers = answered.group_by("pair_id").len("n_answers")
    counts = answered_pairs.join(n_answers, on="pair_id", how="left", maintain_order="left")
    counts = counts.join(n_found, on="pair_id", how="left", maintain_order="left").select(
        "relation_id",
        "pair_id",
        n_answers=pl.col("n_answers").fill_null(0).cast(pl.Int64),
        n_gold=pl.col("objects").list.len().cast(pl.Int64),
        n_found=pl.col("n_found").fill_null(0),
    )
    return counts.with_columns(
        precision=pl.col("n_found") / pl.max_horizontal("n_answers", pl.lit(1)),
        recall=pl.col("n_found") / pl.col("n_gold"),
    )


def mark_complete(answers: pl.DataFrame, pairs: pl.DataFrame) -> pl.DataFrame:
    """The answers with `correct`: all right answers of the query are given, and nothing else.

    `answers` has pair_id and text, any number of rows per pair; `pairs` has all queries, whose
    labels distinguish the texts that strict matching compares.

    >>> objects = [{"object_id": None, "labels": ["Oslo"]}, {"object_id": None, "labels": ["Rome"]}]
    >>> pairs = pl.DataFrame({"relation_id": ["P1"], "pair_id": ["t"], "objects": [objects],
    ...     "split": ["test"]})
    >>> texts = ["Rome; Oslo%", "Rome%", "Rome; Oslo; Lima%"]
    >>> answers = pl.DataFrame({"pair_id": "t", "text": texts})
    >>> mark_complete(answers, pairs)["correct"].to_list()
    [True, False, False]
    """
    queries = asked_queries(pairs, answers)
    # Each distinct text is the answer to a query of its own, in addition to the queries.
    distinct = answers.select("pair_id", "text").unique(maintain_order=True)
    copy_id = pl.format("{}\x1f{}", "pair_id", pl.int_range(pl.len()))
    distinct = distinct.with_columns(copy_id=copy_id)
    copies = distinct.join(queries, on="pair_id", maintain_order="left")
    copies = copies.with_columns(pair_id="copy_id")
    scores = precision_recall(
        copies.select("pair_id", "text"), pl.concat([queries, copies.select(queries.columns)])
    )
    is_complete = (pl.col("precision") == 1) & (pl.col("recall") == 1)
    complete = scores.select(copy_id="pair_id", correct=is_complete)
    marks = distinct.join(complete, on="copy_id", how="left").drop("copy_id")
    rows = answers.join(marks, on=["pair_id", "text"], how="left", maintain_order="left")
    return rows.with_columns(pl.col("correct").fill_null(value=False))


def asked_queries(pairs: pl.DataFrame, answers: pl.DataFrame) -> pl.DataFrame:
    """All queries of the split that was asked: labels of unanswered ones distinguish others."""
    splits = pairs.join(answers, on="pair_id", how="semi")["split"].unique()
    return pairs.filter(pl.col("split").is_in(splits.implode(), nulls_equal=True))


def add_set_keys(answers: pl.DataFrame, pairs: pl.DataFrame) -> pl.DataFrame:
    """The answers with `key`: their set in order, a separator around each; null: none.

    `answers` has relation_id, pair_id and text; `pairs` has all queries.
    """
    on = ["relation_id", "text"]
    texts = answers.select(on).unique().with_row_index("set_id")
    sets = read_answers(texts, find_marked_labels(asked_queries(pairs, answers)))
    keys = sets.group_by("set_id").agg(key=pl.col("answer").sort()).with_columns(key(pl.col("key")))
    texts = texts.join(keys, on="set_id", how="left").drop("set_id")
    return answers.join(texts, on=on, how="left", maintain_order="left", nulls_equal=True)


def sets_match(a: pl.Expr, b: pl.Expr) -> pl.Expr:
    r"""Whether one set of answers has all of the other (keys of `add_set_keys`); False for null.

    >>> keys = pl.DataFrame({"a": ["\x1fx\x1fy\x1f", "\x1fx\x1f"], "b": ["\x1fy\x1f", None]})
    >>> keys.select(sets_match(pl.col("a"), pl.col("b"))).to_series().to_list()
    [True, False]
    """
    first_set, second_set = (
        keys.str.strip_chars(LEMMA_SEPARATOR).str.split(LEMMA_SEPARATOR) for keys in (a, b)
    )
    n_only = (first_set.list.set_difference(second_set), second_set.list.set_difference(first_set))
    return (
        pl.min_horizontal(only.list.len() for only in n_only).eq(0)
        & a.is_not_null()
        & b.is_not_null()
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


def _split(texts: pl.DataFrame, apart: pl.DataFrame, matching: Matching) -> pl.DataFrame:
    """The distinct answers in each text, one row per answer."""
    if matching == "strict":
        return read_answers(texts, apart)
    answers = texts.select(pl.exclude("text"), answer=answer_set(pl.col("text")))
    return answers.explode("answer").drop_nulls("answer").unique()


def _count_matched(answered: pl.DataFrame, gold: pl.DataFrame) -> pl.DataFrame:
    """pair_id, n_found: right answers that each have a given answer of their own, if any has."""
    hits = answered.join(gold, on=["pair_id", "answer"])
    is_disputed = pl.col("gold").n_unique().over("pair_id", "answer").max().over("pair_id") > 1
    simple = hits.filter(~is_disputed).group_by("pair_id")
    counts = simple.agg(n_found=pl.col("gold").n_unique().cast(pl.Int64))
    rows = []
    for pair_hits in hits.filter(is_disputed).partition_by("pair_id"):
        from scipy.sparse import csr_array  # seldom needed, and slow to import
        from scipy.sparse.csgraph import maximum_bipartite_matching

        places = pair_hits.select(pl.col("gold", "answer").rank("dense").cast(pl.Int64) - 1)
        graph = csr_array((np.ones(len(places)), places.to_numpy().T))
        n_matched = int((maximum_bipartite_matching(graph) >= 0).sum())
        rows.append((pair_hits["pair_id"][0], n_matched))
    return pl.concat([counts, pl.DataFrame(rows, schema=counts.schema, orient="row")])
