"""READERS: how the files of each layout become facts, and the figures that a catalog expects."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import polars as pl

from operators.datasets import facts as facts_of
from operators.datasets import kamel, myriadlama, pararel, probelm
from operators.datasets.facts import Facts

Relations = Mapping[str, str] | None


@dataclass(frozen=True)
class Reader:
    """Reads a layout.

    `content` says what it is handed: the rows of Parquet or JSONL files as one LazyFrame, or the
    texts of files by their last two path parts. `columns` are those that the files have.
    `names_ids` says whether the files name relations by id, so that a label is one only.
    """

    content: Literal["rows", "texts"]
    facts: Callable[[Any, Relations], Facts]
    columns: Callable[[Any], Sequence[str]]
    figures: Callable[[Any, Facts], Mapping[str, int]]
    names_ids: bool = True


def _myriadlama_figures(rows: pl.LazyFrame, facts: Facts) -> Mapping[str, int]:
    return {"rows": rows.select(pl.len()).collect().item(), **facts_of.counts(facts)}


def _kamel_columns(texts: Mapping[str, str]) -> Sequence[str]:
    """The fields of the first test query: the other splits show less."""
    rows = (text for name, text in sorted(texts.items()) if name.endswith("test.jsonl"))
    return list(json.loads(next(rows, "{}").partition("\n")[0]))


READERS: Mapping[str, Reader] = {
    "myriadlama": Reader(
        content="rows",
        facts=myriadlama.facts_from_rows,
        columns=lambda rows: rows.collect_schema().names(),
        figures=_myriadlama_figures,
    ),
    "kamel": Reader(
        content="texts",
        facts=kamel.facts_from_files,
        columns=_kamel_columns,
        figures=lambda _texts, facts: kamel.counts(facts),
    ),
    "pararel": Reader(
        content="texts",
        facts=pararel.facts_from_files,
        columns=lambda _: ("pattern", "sub_label", "obj_label"),  # a line without one is refused
        figures=lambda _, facts: facts_of.counts(facts),
    ),
    "probelm": Reader(
        content="texts",
        facts=probelm.facts_from_files,
        columns=lambda _: probelm.ROWS.names(),  # a row without one of them is refused
        figures=lambda texts, _: probelm.counts(probelm.groups_from_files(texts)),
        names_ids=False,
    ),
}
