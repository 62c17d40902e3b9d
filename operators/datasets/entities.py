"""A knowledge base made of a benchmark's own facts, where there is no other."""

import polars as pl

from factsweep.operators.datasets.facts import Facts
from factsweep.operators.knowledge_base.knowledge_base import TYPE_RELATIONS, KnowledgeBase
from factsweep.operators.schemas import empty


def knowledge_base(facts: Facts) -> KnowledgeBase:
    """The subjects and objects of the facts, and the facts as triples.

    A name's entity is its id; an object without an id is known by its first label. The types of an
    entity are the relations that it is an object of, and the objects of its own P31 and P279.

    >>> from factsweep.operators.datasets.facts import Facts
    >>> pairs = pl.DataFrame({
    ...     "pair_id": ["P36.Q142"], "relation_id": ["P36"], "subject_id": ["Q142"],
    ...     "subjects": [["France"]], "objects": [[{"object_id": "Q90", "labels": ["Paris"]}]],
    ... })
    >>> base = knowledge_base(Facts(empty("relations"), empty("templates"), pairs))
    >>> base.entities.select("entity_id", "labels", "types").rows()
    [('Q142', ['France'], []), ('Q90', ['Paris'], ['P36'])]
    """
    rows = facts.pairs.explode("objects").unnest("objects").with_columns(object_id=object_id())
    triples = rows.select(
        "subject_id",
        "relation_id",
        "object_id",
        start=pl.lit(None, pl.String),
        end=pl.lit(None, pl.String),
    ).unique(maintain_order=True)
    names = pl.concat(
        [
            rows.select(entity_id="subject_id", labels="subjects"),
            rows.select("labels", entity_id="object_id").select("entity_id", "labels"),
        ]
    )
    return from_names(names, triples)


def object_id() -> pl.Expr:
    """The id of an object (columns object_id, labels): its first label where it has no id."""
    return pl.coalesce("object_id", pl.col("labels").list.first())


def from_names(names: pl.DataFrame, triples: pl.DataFrame) -> KnowledgeBase:
    """The entities that have names (entity_id, labels; one row or more each), with the triples.

    An entity's popularity is the natural logarithm of 1 + the triples that it stands in.
    """
    entities = names.explode("labels").unique(maintain_order=True)
    entities = entities.group_by("entity_id", maintain_order=True).agg("labels")
    entities = (
        entities.join(types(triples), on="entity_id", how="left", maintain_order="left")
        .join(_popularity(triples), on="entity_id", how="left", maintain_order="left")
        .with_columns(
            pl.col("types").fill_null([]),
            pl.col("popularity").fill_null(0.0),
            description=pl.lit(None, pl.String),
        )
        .select(empty("entities").columns)
    )
    return KnowledgeBase(entities, triples.select(empty("triples").columns))


def types(triples: pl.DataFrame) -> pl.DataFrame:
    """entity_id, types: declared ones, and the relations that the entity is an object of."""
    declared = triples.filter(pl.col("relation_id").is_in(TYPE_RELATIONS))
    found = [
        declared.select(entity_id="subject_id", types="object_id"),
        triples.select(entity_id="object_id", types="relation_id"),
    ]
    return (
        pl.concat(found)
        .unique()
        .sort("entity_id", "types")
        .group_by("entity_id", maintain_order=True)
        .agg("types")
    )


def _popularity(triples: pl.DataFrame) -> pl.DataFrame:
    stands = pl.concat(
        [triples.select(entity_id="subject_id"), triples.select(entity_id="object_id")]
    )
    counted = stands.group_by("entity_id").len("n")
    return counted.select("entity_id", popularity=(pl.col("n").cast(pl.Float64) + 1).log())
