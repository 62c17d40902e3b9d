"""The baseline of the most frequent answer."""

import polars as pl

from factsweep.operators.metrics.kamel.kamel import most_frequent_answers


def pairs(relation: str, *queries: list[str]) -> pl.DataFrame:
    objects = [[{"object_id": None, "labels": [label, "other"]} for label in q] for q in queries]
    ids = {"relation_id": relation, "pair_id": [f"{relation}.{i}" for i in range(len(queries))]}
    return pl.DataFrame({**ids, "objects": objects})


def test_most_frequent_answer_counts_once_a_query() -> None:
    train = pairs("P1", ["a", "a", "a"], ["b"], ["b"])
    assert most_frequent_answers(train, pairs("P1", ["x"])).rows() == [("P1.0", "b")]


def test_most_frequent_equals_are_decided_by_text() -> None:
    train = pairs("P1", ["b"], ["a"])
    assert most_frequent_answers(train, pairs("P1", ["x"])).rows() == [("P1.0", "a")]


def test_most_frequent_relation_without_training_queries_has_no_answer() -> None:
    assert most_frequent_answers(pairs("P1", ["a"]), pairs("P2", ["x"])).is_empty()
