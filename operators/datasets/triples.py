"""Triples with ids and names → the canonical tables; mLAMA's and ParaRel's files.

mLAMA's layout (Kassner, Dufter and Schütze 2021), one folder per language:

    de/templates.jsonl  {"relation": "P19", "template": "[X] wurde in [Y] geboren."}
    de/P19.jsonl        {"sub_uri": "Q42", "sub_label": "…", "obj_uri": "Q84", "obj_label": "…"}

A row without ids, as those of Google-RE, is known by its labels: such facts are found again in
another language only where the labels are the same.

ParaRel's layout (TACL 2021; the facts are those of LAMA's T-REx):

    patterns/P19.jsonl  {"pattern": "[X] was born in [Y].", "tense": "past"}   one template per line
    facts/P19.jsonl     {"sub_label": "Henry Heras", "obj_label": "Barcelona"} one triple per line

There are no ids: a subject is its label, and so is an object. Two subjects of one label are one
here, with the objects of both. In both layouts other fields are ignored, and there are no aliases.
"""

from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import PurePosixPath
from typing import Any

import polars as pl

from factsweep.operators.datasets.facts import Facts, Relations, checked, manual, named, numbered
from factsweep.operators.datasets.json_texts import rows, text
from factsweep.operators.errors import InputError
from factsweep.operators.schemas import empty, schema

_TEMPLATES = "templates.jsonl"
_IDS = ("sub_uri", "obj_uri")
TRIPLES = schema(
    "relation_id text, subject_id text, subjects text[], object_id text, labels text[]"
)


def facts_from_triples(triples: pl.DataFrame, templates: pl.DataFrame, labels: Relations) -> Facts:
    """The facts of triples (columns: TRIPLES) in templates (relation_id, text, origin, group).

    A subject's triples of one relation are one pair with several objects. Relations without a
    template or without triples are left out; a label that is not given is the relation's id.

    >>> row = {"relation_id": "P36", "subject_id": "Q183", "subjects": ["Deutschland"],
    ...     "object_id": "Q64", "labels": ["Berlin"]}
    >>> texts = manual([("P36", "[X] : [Y]")])
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


def mlama(files: Mapping[str, str], relation_labels: Relations = None) -> Facts:
    """The canonical tables of one language's files: their path in the set → their content.

    Raises:
        InputError: files of several languages, no template, or what `checked` refuses.
    """
    folders = sorted({PurePosixPath(each).parent.name for each in files})
    if len(folders) > 1:
        raise InputError(
            f"the set is of {', '.join(folders)}; give one by benchmark.language or benchmark.path."
        )
    templates: dict[str, str] = {}
    for _, row, where in _rows(files, lambda path: path.name == _TEMPLATES):
        templates.setdefault(text(row, "relation", where), text(row, "template", where))
    triples = [_triple(*each) for each in _rows(files, lambda path: path.name != _TEMPLATES)]
    if not templates:
        raise InputError(f"the set has no template; copy the authors' {_TEMPLATES}.")
    table = pl.DataFrame(triples, TRIPLES, orient="row")
    return facts_from_triples(table, manual(templates.items()), relation_labels)


def pararel(files: Mapping[str, str], relation_labels: Relations = None) -> Facts:
    """The canonical tables of ParaRel's files: their path in the set → their content.

    Every pattern is a manual template, with a group of its own. Relations that have no patterns,
    or no facts, are left out. A relation that `relation_labels` does not name has its id for one.

    Raises:
        InputError: an unfit line, or what `checked` refuses.
    """
    patterns = _rows(files, lambda path: path.match("patterns/*.jsonl"))
    texts = [(relation, text(row, "pattern", where)) for relation, row, where in patterns]
    facts = _rows(files, lambda path: path.match("facts/*.jsonl"))
    triples = [_triple(*each, ids=()) for each in facts]
    table = pl.DataFrame(triples, TRIPLES, orient="row")
    return facts_from_triples(table, manual(texts), relation_labels)


def left_out(files: Mapping[str, str], facts: Facts) -> dict[str, int]:
    """How many relations have a file and are none of the facts'; nothing if none is.

    >>> known = pl.DataFrame({"relation_id": ["P19"]})
    >>> facts = Facts(known, pl.DataFrame(), pl.DataFrame())
    >>> left_out({"de/templates.jsonl": "", "de/P19.jsonl": "", "de/P1.jsonl": ""}, facts)
    {'relations_left_out': 1}
    """
    there = {PurePosixPath(name).stem for name in files} - {PurePosixPath(_TEMPLATES).stem}
    n = len(there - {*facts.relations["relation_id"]})
    return {"relations_left_out": n} if n else {}


def _rows(
    files: Mapping[str, str], holds: Callable[[PurePosixPath], bool]
) -> Iterator[tuple[str, Mapping[str, Any], str]]:
    """The rows of some files, in the order of their paths: their relation, they, and where."""
    for path, content in sorted((PurePosixPath(name), each) for name, each in files.items()):
        if holds(path):
            yield from ((path.stem, row, where) for where, row in rows(str(path), content))


def _triple(
    relation: str, row: Mapping[str, Any], where: str, ids: Collection[str] = _IDS
) -> tuple[object, ...]:
    """A row as one of TRIPLES, known by its labels where it has no ids."""
    labels = [text(row, key, where) for key in ("sub_label", "obj_label")]
    known = [text(row, key, where) if row.get(key) else None for key in ids]
    subject, obj = known or labels
    return relation, subject or labels[0], labels[:1], obj or labels[1], labels[1:]
