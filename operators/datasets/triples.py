"""Triples with ids and names → the canonical tables."""

from collections.abc import Mapping

import polars as pl

from factsweep.operators.datasets.facts import Facts, checked
from factsweep.operators.datasets.templates import numbered
from factsweep.operators.schemas import empty

TRIPLES = pl.Schema(
    [
        ("relation_id", pl.String),
        ("subject_id", pl.String),
        ("subjects", pl.List(pl.String)),
        ("object_id", pl.String),
        ("labels", pl.List(pl.String)),
    ]
)


def facts_from_triples(
    triples: pl.DataFrame, templates: Mapping[str, str], labels: Mapping[str, str] | None
) -> Facts:
    """The facts of triples (columns: TRIPLES), with one template per relation.

    A subject's triples of one relation are one pair with several objects. Relations without a
    template or without triples are left out; a label that is not given is the relation's id.

    >>> row = {"relation_id": "P36", "subject_id": "Q183", "subjects": ["Deutschland"],
    ...     "object_id": "Q64", "labels": ["Berlin"]}
    >>> facts = facts_from_triples(pl.DataFrame([row]), {"P36": "[X] : [Y]"}, {"P36": "capital"})
    >>> facts.pairs.select("pair_id", "subjects").row(0), facts.relations.row(0)
    (('P36.Q183', ['Deutschland']), ('P36', 'capital'))
    """
    triples = triples.filter(pl.col("relation_id").is_in(list(templates)))
    pairs = triples.group_by("relation_id", "subject_id", maintain_order=True).agg(
        pl.col("subjects").first(),
        objects=pl.struct("object_id", "labels").unique(maintain_order=True),
    )
    pairs = pairs.select(
        "relation_id",
        "subject_id",
        "subjects",
        "objects",
        pair_id=pl.format("{}.{}", "relation_id", "subject_id"),
        split=pl.lit(None, pl.String),
    )
    ids = pairs["relation_id"].unique(maintain_order=True).to_list()
    texts = pl.DataFrame(
        {
            "relation_id": ids,
            "text": [templates[each] for each in ids],
            "origin": ["manual"] * len(ids),
            "group": [0] * len(ids),
        },
        schema_overrides={"relation_id": pl.String, "text": pl.String, "origin": pl.String},
    )
    named = [(labels or {}).get(each, each) for each in ids]
    relations = pl.DataFrame(
        {"relation_id": ids, "label": named}, schema={"relation_id": pl.String, "label": pl.String}
    )
    schema = empty("pairs").schema
    return checked(Facts(relations, numbered(texts), pairs.select(schema.names()).cast(schema)))
