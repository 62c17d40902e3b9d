"""mLAMA's files of one language → the canonical tables.

The layout (Kassner, Dufter and Schütze 2021), one folder per language:

    de/templates.jsonl  {"relation": "P19", "template": "[X] wurde in [Y] geboren."}
    de/P19.jsonl        {"sub_uri": "Q42", "sub_label": "…", "obj_uri": "Q84", "obj_label": "…"}

Other fields are ignored. There are no aliases. A row without ids, as those of Google-RE, is known
by its labels: such facts are found again in another language only where the labels are the same.
"""

from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import Any

import polars as pl

from factsweep.operators.datasets.facts import Facts
from factsweep.operators.datasets.json_texts import rows, text
from factsweep.operators.datasets.triples import TRIPLES, facts_from_triples
from factsweep.operators.errors import InputError

_TEMPLATES = "templates.jsonl"


def facts_from_files(
    files: Mapping[str, str], relation_labels: Mapping[str, str] | None = None
) -> Facts:
    """The canonical tables of one language's files: their path in the set → their content.

    Raises:
        InputError: files of several languages, an unfit line, or what `checked` refuses.
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
    table = pl.DataFrame(triples, TRIPLES, orient="row")
    return facts_from_triples(table, templates, relation_labels)


def _triple(relation: str, row: Mapping[str, Any], where: str) -> tuple[object, ...]:
    subject, obj = (text(row, key, where) for key in ("sub_label", "obj_label"))
    ids = row.get("sub_uri") or subject, row.get("obj_uri") or obj
    return relation, ids[0], [subject], ids[1], [obj]
