"""A knowledge base as two tables: entities with their labels and types, and triples."""

from dataclasses import dataclass

import polars as pl

from factsweep.operators.errors import InputError
from factsweep.operators.schemas import columns
from factsweep.operators.schemas.checks import fitted, refuse

# What Wikidata declares as a type: instance of, and subclass of (the paper's first footnote).
TYPE_RELATIONS = ("P31", "P279")
_OPTIONAL = ("description", "popularity", "start", "end")


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
    entities = fitted(base.entities, columns("entities"), "table entities", _OPTIONAL)
    triples = fitted(base.triples, columns("triples"), "table triples", _OPTIONAL)
    if entities.is_empty():
        raise InputError("table entities has no rows; give one that has.")
    ids, labels = pl.col("entity_id"), pl.col("labels")
    nothing, row = labels.list.len().fill_null(0) == 0, ", row {row} (counted from 0) has "
    problems = {
        f"{row}no entity_id; give one.": _lacks("entity_id"),
        f"{row}the entity_id of an earlier row; drop one.": ~ids.is_first_distinct(),
        f"{row}no label, or an empty one; drop the row.": nothing | labels.list.contains(""),
    }
    refuse(entities.with_row_index("row"), problems, ["row"], "table entities")
    needed = ("subject_id", "relation_id", "object_id")
    problems = {f"{row}no {each}; give one or drop the row.": _lacks(each) for each in needed}
    refuse(triples.with_row_index("row"), problems, ["row"], "table triples")
    types = pl.col("types").fill_null([]).list.unique(maintain_order=True)
    return KnowledgeBase(entities.with_columns(types), triples)


def _lacks(column: str) -> pl.Expr:
    return pl.col(column).fill_null("") == ""
