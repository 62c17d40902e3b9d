"""Entities that a set knows by label only, found in a knowledge base.

An id that the knowledge base lacks is looked up among its labels, and so are the labels of an
object: case folded, in normal form C. Of several entities it is one that the relation has in that
place, then the most popular, then the one whose id comes first. What is not found stays.
"""

import polars as pl

from factsweep.operators.knowledge_base.knowledge_base import KnowledgeBase
from factsweep.operators.knowledge_base.omega import folded


def resolved(asked: pl.DataFrame, base: KnowledgeBase) -> pl.DataFrame:
    """The facts with ids of the knowledge base (subject_id, relation_id, answer_id, labels).

    >>> entities = pl.DataFrame({"entity_id": ["Q2", "Q90"], "labels": [["Paris"], ["Paris"]],
    ...     "popularity": [5.0, 1.0]})
    >>> triples = pl.DataFrame(
    ...     {"subject_id": ["Q142"], "relation_id": ["P36"], "object_id": ["Q90"]})
    >>> asked = pl.DataFrame({"subject_id": ["France"], "relation_id": ["P36"],
    ...     "answer_id": ["paris"], "labels": [["paris"]]})
    >>> resolved(asked, KnowledgeBase(entities, triples)).row(0)
    ('France', 'P36', 'Q90', ['paris'])
    """
    known = base.entities.select("entity_id")
    places = {"subject_id": "subject_id", "answer_id": "object_id"}
    for column, place in places.items():
        lacking = asked.join(known, left_on=column, right_on="entity_id", how="anti")
        if lacking.is_empty():
            continue
        found = _found(base, lacking, column, place)
        key = [column, "relation_id"]
        asked = asked.join(found, on=key, how="left", maintain_order="left")
        asked = asked.with_columns(pl.coalesce("found", column).alias(column)).drop("found")
    return asked


def _found(base: KnowledgeBase, lacking: pl.DataFrame, column: str, place: str) -> pl.DataFrame:
    """The entity of each (column, relation_id) that is found: `found`."""
    names = lacking.select(column, "relation_id", name=column)
    if column == "answer_id":
        others = lacking.select(column, "relation_id", name="labels").explode("name")
        names = pl.concat([names, others])
    names = names.unique()
    names = names.with_columns(key=_keys(names["name"]))
    labels = base.entities.select("entity_id", "popularity", name="labels").explode("name")
    labels = labels.with_columns(key=_keys(labels["name"]))
    there = base.triples.select("relation_id", entity_id=place, fits=pl.lit(value=True)).unique()
    both = names.join(labels.drop("name"), on="key").join(
        there, on=["relation_id", "entity_id"], how="left"
    )
    order = [pl.col("fits").is_null(), -pl.col("popularity").fill_null(0.0), pl.col("entity_id")]
    first = both.sort(order).unique([column, "relation_id"], keep="first", maintain_order=True)
    return first.select(column, "relation_id", found="entity_id")


def _keys(names: pl.Series) -> pl.Series:
    each = names.unique()
    keys = pl.Series(map(folded, each), dtype=pl.String)
    return names.replace_strict(each, keys, return_dtype=pl.String)
