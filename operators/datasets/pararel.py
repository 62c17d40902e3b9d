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
from factsweep.operators.datasets.facts import Facts, numbered
from factsweep.operators.datasets.triples import facts_from_triples


def facts_from_files(
    files: Mapping[str, str], relation_labels: Mapping[str, str] | None = None
) -> Facts:
    """The canonical tables of ParaRel's files: their path in the set → their content.

    Relations that have no patterns, or no facts, are left out. A relation's label is its id where
    `relation_labels` does not name it.

    Raises:
        InputError: an unfit line, or what `checked` refuses.
    """
    known = _rows(files, "facts", ("sub_label", "obj_label"))
    triples = known.select(
        "relation_id",
        subject_id="sub_label",
        subjects=pl.concat_list("sub_label"),
        object_id="obj_label",
        labels=pl.concat_list("obj_label"),
    )
    return facts_from_triples(triples, _templates(files), relation_labels)


def templates_from_files(files: Mapping[str, str]) -> pl.DataFrame:
    """The canonical templates of ParaRel's pattern files: their path in the set → their content.

    Every pattern is a manual template, with a group of its own.

    Raises:
        InputError: a line is no JSON object with a pattern.

    >>> files = {"patterns/P19.jsonl": '{"pattern": "[X] was born in [Y].", "tense": "past"}'}
    >>> templates_from_files(files).select("template_id", "text", "origin").row(0)
    ('P19.000', '[X] was born in [Y].', 'manual')
    """
    return numbered(_templates(files))


def _templates(files: Mapping[str, str]) -> pl.DataFrame:
    texts = _rows(files, "patterns", ("pattern",)).unique(maintain_order=True)
    group = pl.int_range(pl.len()).over("relation_id")
    return texts.select("relation_id", text="pattern", origin=pl.lit("manual"), group=group)


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
