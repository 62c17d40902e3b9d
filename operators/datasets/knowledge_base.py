"""A knowledge base as two tables: entities with their labels and types, and triples."""

from dataclasses import dataclass

import polars as pl

from factsweep.operators.errors import InputError
from factsweep.operators.schemas import columns, empty, fit_schema, refuse

# What Wikidata declares as a type: instance of, and subclass of (the paper's first footnote).
TYPE_RELATIONS = ("P31", "P279")
_OPTIONAL = ("description", "popularity", "start", "end")


@dataclass(frozen=True)
class KnowledgeBase:
    """Entities and their triples (columns: the tables `entities` and `triples` of the schemas).

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


def check_knowledge_base(base: KnowledgeBase) -> KnowledgeBase:
    """The knowledge base in the canonical columns, if it can be used.

    Raises:
        InputError: no entities; an entity twice, or without an id or a label; a triple without a
            subject, relation or object. The message names the row.
    """
    entities = fit_schema(base.entities, columns("entities"), "table entities", _OPTIONAL)
    triples = fit_schema(base.triples, columns("triples"), "table triples", _OPTIONAL)
    if entities.is_empty():
        raise InputError("table entities has no rows; give one that has.")
    ids, labels = pl.col("entity_id"), pl.col("labels")
    row = ", row {row} (counted from 0) has "
    problems = {
        f"{row}no entity_id; give one.": ids.fill_null("") == "",
        f"{row}the entity_id of an earlier row; drop one.": ~ids.is_first_distinct(),
        f"{row}no label, or an empty one; drop the row.": (labels.list.len().fill_null(0) == 0)
        | labels.list.contains(""),
    }
    refuse(entities.with_row_index("row"), problems, ["row"], "table entities")
    problems = {
        f"{row}no {name}; give one or drop the row.": pl.col(name).fill_null("") == ""
        for name in ("subject_id", "relation_id", "object_id")
    }
    refuse(triples.with_row_index("row"), problems, ["row"], "table triples")
    types = pl.col("types").fill_null([]).list.unique(maintain_order=True)
    return KnowledgeBase(entities.with_columns(types), triples)


def from_triples(rows: pl.DataFrame, *names: pl.DataFrame) -> KnowledgeBase:
    """The knowledge base of triples with names (the columns of TRIPLES), and of further names.

    The rows may say when a triple is true, in `start` and `end`.
    """
    subjects = rows.select(entity_id="subject_id", labels="subjects")
    objects = rows.select(entity_id="object_id", labels="labels")
    triples = fit_schema(rows, columns("triples"), "triples", ("start", "end"))
    all_names = pl.concat([subjects, objects, *names])
    return from_names(all_names, triples.unique(maintain_order=True))


def object_id() -> pl.Expr:
    """The id of an object (columns object_id, labels): its first label where it has no id."""
    return pl.coalesce("object_id", pl.col("labels").list.first())


def from_names(names: pl.DataFrame, triples: pl.DataFrame) -> KnowledgeBase:
    """The entities that have names (entity_id, labels; one row or more each), with the triples.

    An entity's popularity is the natural logarithm of 1 + the triples that it stands in.
    """
    ends = pl.concat([triples["subject_id"], triples["object_id"]]).rename("entity_id")
    popularity = (pl.col("count").cast(pl.Float64) + 1).log()
    ends_counted = ends.value_counts().select("entity_id", popularity=popularity)
    entities = (
        names.explode("labels")
        .unique(maintain_order=True)
        .group_by("entity_id", maintain_order=True)
        .agg("labels")
        .join(entity_types(triples), on="entity_id", how="left", maintain_order="left")
        .join(ends_counted, on="entity_id", how="left", maintain_order="left")
        .with_columns(pl.col("types").fill_null([]), pl.col("popularity").fill_null(0.0))
    )
    entities = fit_schema(entities, columns("entities"), "entities", ("description",))
    return KnowledgeBase(entities, triples.select(empty("triples").columns))


def entity_types(triples: pl.DataFrame) -> pl.DataFrame:
    """entity_id, types: declared ones, and the relations that the entity is an object of."""
    declared = triples.filter(pl.col("relation_id").is_in(TYPE_RELATIONS))
    classes = declared.select(entity_id="subject_id", types="object_id")
    as_objects = triples.select(entity_id="object_id", types="relation_id")
    rows = pl.concat([classes, as_objects]).unique().sort("entity_id", "types")
    return rows.group_by("entity_id", maintain_order=True).agg("types")
