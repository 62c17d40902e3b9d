"""ParaRel's files → the canonical tables.

The layout (ParaRel, TACL 2021; the facts are those of LAMA's T-REx):

    patterns/P19.jsonl  {"pattern": "[X] was born in [Y].", "tense": "past"}   one template per line
    facts/P19.jsonl     {"sub_label": "Henry Heras", "obj_label": "Barcelona"} one triple per line

Other fields and other files are ignored. There are no ids and no aliases: a subject is its label,
and so is an object. Two subjects of one label are one here, with the objects of both.
"""

from collections.abc import Mapping
from pathlib import PurePosixPath

import polars as pl

from factsweep.operators.datasets import json_texts
from factsweep.operators.datasets.facts import Facts, checked, numbered
from factsweep.operators.schemas import empty

_PATTERN = ("pattern",)
_TRIPLE = ("sub_label", "obj_label")


def facts_from_files(
    files: Mapping[str, str], relation_labels: Mapping[str, str] | None = None
) -> Facts:
    """The canonical tables of ParaRel's files: their path in the set → their content.

    Relations that have no patterns, or no facts, are left out. A relation's label is its id where
    `relation_labels` does not name it.
    """
    templates, pairs = templates_from_files(files), _pairs(_rows(files, "facts", _TRIPLE))
    templates, pairs = (
        one.join(other, on="relation_id", how="semi", maintain_order="left")
        for one, other in ((templates, pairs), (pairs, templates))
    )
    ids = templates["relation_id"].unique(maintain_order=True)
    labels = [(relation_labels or {}).get(each, each) for each in ids]
    relations = pl.DataFrame({"relation_id": ids, "label": pl.Series(labels, dtype=pl.String)})
    return checked(Facts(relations, templates, pairs))


def templates_from_files(files: Mapping[str, str]) -> pl.DataFrame:
    """The canonical templates of ParaRel's pattern files: their path in the set → their content.

    Every pattern is a manual template, with a group of its own.

    >>> files = {"patterns/P19.jsonl": '{"pattern": "[X] was born in [Y].", "tense": "past"}'}
    >>> templates_from_files(files).select("template_id", "text", "origin").row(0)
    ('P19.000', '[X] was born in [Y].', 'manual')
    """
    texts = _rows(files, "patterns", _PATTERN).unique(maintain_order=True)
    group = pl.int_range(pl.len()).over("relation_id")
    return numbered(
        texts.select("relation_id", text="pattern", origin=pl.lit("manual"), group=group)
    )


def _pairs(triples: pl.DataFrame) -> pl.DataFrame:
    labels = pl.concat_list("obj_label")
    objects = pl.struct(object_id="obj_label", labels=labels).unique(maintain_order=True)
    pairs = triples.group_by("relation_id", subject_id="sub_label", maintain_order=True).agg(
        objects=objects
    )
    return pairs.select(
        pair_id=pl.format("{}.{}", "relation_id", "subject_id"),
        relation_id="relation_id",
        subject_id="subject_id",
        subjects=pl.concat_list("subject_id"),
        objects="objects",
        split=pl.lit(None, pl.String),
    ).cast(empty("pairs").schema)


def _rows(files: Mapping[str, str], folder: str, fields: tuple[str, ...]) -> pl.DataFrame:
    """The fields of all lines of the folder's files, in the order of the paths."""
    rows = [
        (path.stem, *(json_texts.text(row, field, where) for field in fields))
        for path, content in sorted((PurePosixPath(name), each) for name, each in files.items())
        if path.parent.name == folder and path.suffix == ".jsonl"
        for where, row in json_texts.rows(str(path), content)
    ]
    return pl.DataFrame(
        rows, schema=dict.fromkeys(("relation_id", *fields), pl.String), orient="row"
    )
