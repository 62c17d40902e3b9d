"""A knowledge base as two tables: entities with their labels and types, and triples."""

from dataclasses import dataclass

import polars as pl

from factsweep.operators.errors import InputError
from factsweep.operators.schemas import empty

# What Wikidata declares as a type: instance of, and subclass of (the paper's first footnote).
TYPE_RELATIONS = ("P31", "P279")


@dataclass(frozen=True)
class KnowledgeBase:
    """What is known of entities (columns: the tables `entities` and `triples` of the schemas).

    `triples` may name entities that have no row in `entities`: they are features of others, and are
    never compared themselves.
    """

    entities: pl.DataFrame
    triples: pl.DataFrame


def counts(base: KnowledgeBase) -> dict[str, int]:
    """The size of a knowledge base."""
    return {
        "entities": base.entities.height,
        "labels": int(base.entities["labels"].list.len().sum()),
        "types": base.entities["types"].explode().drop_nulls().n_unique(),
        "triples": base.triples.height,
        "ended_triples": base.triples["end"].drop_nulls().len(),
    }


def checked(base: KnowledgeBase) -> KnowledgeBase:
    """The knowledge base in the canonical columns, if it can be used.

    Raises:
        InputError: no entities; an entity twice, or without an id or a label; a triple without a
            subject, relation or object. The message names the row.
    """
    entities, triples = _conform(base.entities, "entities"), _conform(base.triples, "triples")
    if entities.is_empty():
        raise InputError("table entities has no rows; give one that has.")
    ids, labels = pl.col("entity_id"), pl.col("labels")
    _refuse_first(entities, "entities", ids.is_null() | (ids == ""), "has no entity_id; give one")
    twice = ~ids.is_first_distinct()
    _refuse_first(entities, "entities", twice, "has the entity_id of an earlier row; drop one")
    unlabelled = labels.is_null() | (labels.list.len() == 0) | labels.list.contains("")
    _refuse_first(entities, "entities", unlabelled, "has no label, or an empty one; drop the row")
    for column in ("subject_id", "relation_id", "object_id"):
        missing = pl.col(column).is_null() | (pl.col(column) == "")
        _refuse_first(triples, "triples", missing, f"has no {column}; give one or drop the row")
    return KnowledgeBase(
        entities.with_columns(pl.col("types").fill_null([]).list.unique(maintain_order=True)),
        triples,
    )


def _conform(frame: pl.DataFrame, table: str) -> pl.DataFrame:
    """The frame's canonical columns; those that may be null may be missing."""
    schema = empty(table).schema
    optional = {"entities": ("description", "popularity"), "triples": ("start", "end")}[table]
    needed = [name for name in schema if name not in optional]
    for name in needed:
        if name not in frame.columns:
            raise InputError(
                f"table {table}: column {name} is missing; it has {', '.join(frame.columns)}. "
                f"Rename or add it."
            )
    whole = frame.with_columns(
        pl.lit(None, schema[name]).alias(name) for name in optional if name not in frame.columns
    )
    for name, dtype in schema.items():
        if whole.schema[name] not in (dtype, pl.Null()) and not whole.is_empty():
            raise InputError(
                f"table {table}: column {name} is {whole.schema[name]}, not {dtype}; convert it."
            )
    return whole.select(pl.col(name).cast(dtype) for name, dtype in schema.items())


def _refuse_first(rows: pl.DataFrame, table: str, unfit: pl.Expr, problem: str) -> None:
    found = rows.with_row_index("row").filter(unfit).head(1)
    if not found.is_empty():
        raise InputError(f"table {table}, row {found['row'][0]} (counted from 0) {problem}.")
