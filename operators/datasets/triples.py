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

from factsweep.operators.datasets.facts import Facts, checked, named, numbered
from factsweep.operators.datasets.json_texts import rows, text
from factsweep.operators.errors import InputError
from factsweep.operators.schemas import empty, schema

TRIPLES = schema(
    "relation_id text, subject_id text, subjects text[], object_id text, labels text[]"
)


def facts_from_triples(
    triples: pl.DataFrame, templates: pl.DataFrame, labels: Mapping[str, str] | None
) -> Facts:
    """The facts of triples (columns: TRIPLES) in templates (relation_id, text, origin, group).

    A subject's triples of one relation are one pair with several objects. Relations without a
    template or without triples are left out; a label that is not given is the relation's id.

    >>> row = {"relation_id": "P36", "subject_id": "Q183", "subjects": ["Deutschland"],
    ...     "object_id": "Q64", "labels": ["Berlin"]}
    >>> texts = one_each({"P36": "[X] : [Y]"})
    >>> facts = facts_from_triples(pl.DataFrame([row]), texts, {"P36": "capital"})
    >>> facts.pairs.select("pair_id", "subjects").row(0), facts.relations.row(0)
    (('P36.Q183', ['Deutschland']), ('P36', 'capital'))
    """
    asked = triples.join(templates, on="relation_id", how="semi", maintain_order="left")
    pairs = asked.group_by("relation_id", "subject_id", maintain_order=True).agg(
        pl.col("subjects").first(),
        objects=pl.struct("object_id", "labels").unique(maintain_order=True),
    )
    pair_id = pl.format("{}.{}", "relation_id", "subject_id")
    pairs = pairs.with_columns(pair_id=pair_id, split=pl.lit(None, pl.String))
    relations = named(pairs["relation_id"].unique(maintain_order=True), labels)
    ordered = relations.join(templates, on="relation_id", maintain_order="left_right")
    schema = empty("pairs").schema
    pairs = pairs.select(schema.names()).cast(schema)
    return checked(Facts(relations, numbered(ordered), pairs))


def one_each(templates: Mapping[str, str]) -> pl.DataFrame:
    """One manual template per relation: relation_id, text, origin, group."""
    texts = {"relation_id": list(templates), "text": list(templates.values())}
    named = pl.DataFrame(texts, schema=dict.fromkeys(texts, pl.String))
    return named.with_columns(origin=pl.lit("manual"), group=pl.lit(0))


_TEMPLATES = "templates.jsonl"


def facts_from_files(
    files: Mapping[str, str], relation_labels: Mapping[str, str] | None = None
) -> Facts:
    """The canonical tables of one language's files: their path in the set → their content.

    Raises:
        InputError: files of several languages, no template, an unfit line, or what `checked`
            refuses.
    """
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
    if not templates:
        raise InputError(f"the set has no template; copy the authors' {_TEMPLATES}.")
    table = pl.DataFrame(triples, TRIPLES, orient="row")
    return facts_from_triples(table, one_each(templates), relation_labels)


def _triple(relation: str, row: Mapping[str, Any], where: str) -> tuple[object, ...]:
    subject, obj = (text(row, key, where) for key in ("sub_label", "obj_label"))
    subject_id, object_id = (
        text(row, key, where) if row.get(key) else label
        for key, label in (("sub_uri", subject), ("obj_uri", obj))
    )
    return relation, subject_id, [subject], object_id, [obj]
