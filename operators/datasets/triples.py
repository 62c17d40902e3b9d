"""Triples with ids and names → the canonical tables; mLAMA's files of one language.

mLAMA's layout (Kassner, Dufter and Schütze 2021), one folder per language:

    de/templates.jsonl  {"relation": "P19", "template": "[X] wurde in [Y] geboren."}
    de/P19.jsonl        {"sub_uri": "Q42", "sub_label": "…", "obj_uri": "Q84", "obj_label": "…"}

Other fields are ignored. There are no aliases. A row without ids, as those of Google-RE, is known
by its labels: such facts are found again in another language only where the labels are the same.
"""

from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import Any

import polars as pl

from factsweep.operators.datasets.facts import Facts, checked, numbered
from factsweep.operators.datasets.json_texts import rows, text
from factsweep.operators.errors import InputError
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


_TEMPLATES = "templates.jsonl"


def facts_from_files(
    files: Mapping[str, str], relation_labels: Mapping[str, str] | None = None
) -> Facts:
    """The canonical tables of one language's files: their path in the set → their content."""
    folders = sorted({PurePosixPath(each).parent.name for each in files})
    if len(folders) > 1:
        raise InputError(
            f"the set has files of {', '.join(folders)}; give the files of one language, by "
            "benchmark.language or benchmark.path."
        )
    templates: dict[str, str] = {}
    triples: list[tuple[object, ...]] = []
    for name, content in sorted(files.items()):
        path = PurePosixPath(name)
        for where, row in rows(name, content):
            if path.name == _TEMPLATES:
                relation, template = (text(row, key, where) for key in ("relation", "template"))
                templates.setdefault(relation, template)
            else:
                triples.append(_triple(path.stem, row, where))
    table = pl.DataFrame(triples, TRIPLES, orient="row")
    return facts_from_triples(table, templates, relation_labels)


def _triple(relation: str, row: Mapping[str, Any], where: str) -> tuple[object, ...]:
    subject, obj = (text(row, key, where) for key in ("sub_label", "obj_label"))
    ids = row.get("sub_uri") or subject, row.get("obj_uri") or obj
    return relation, ids[0], [subject], ids[1], [obj]
