"""Readers: how the files of each layout become facts, and the figures that the catalog expects."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from operators.datasets import facts as facts_of
from operators.datasets import kamel, myriadlama
from operators.datasets.facts import Facts
from operators.errors import DamagedFileError

Relations = Mapping[str, str] | None
_MEND = "fetch or copy it again"


@dataclass(frozen=True)
class Reader:
    """What the catalog asks of the files of a layout."""

    facts: Callable[[Sequence[Path], Relations], Facts]
    columns: Callable[[Sequence[Path]], Sequence[str]]
    figures: Callable[[Sequence[Path], Facts], Mapping[str, int]]


def scan(paths: Sequence[Path]) -> pl.LazyFrame:
    """The rows of Parquet or JSONL files.

    Raises:
        DamagedFileError: a file is empty, truncated or of another kind.
    """
    found = [_scan(path) for path in paths]
    columns = found[0].collect_schema()
    for path, rows in zip(paths, found, strict=True):
        for column in {**columns, **(other := rows.collect_schema())}:
            if columns.get(column) != other.get(column):
                raise DamagedFileError(
                    f"{path} cannot be read with {paths[0]} (column {column}: "
                    f"{other.get(column)}, not {columns.get(column)}); {_MEND}."
                )
    return pl.concat(found)


def unreadable(path: Path, error: Exception) -> DamagedFileError:
    """The error of a file that a library cannot read."""
    reason = str(error).splitlines()[0]
    return DamagedFileError(f"{path} cannot be read ({reason}); {_MEND}.")


def _scan(path: Path) -> pl.LazyFrame:
    if path.stat().st_size == 0:
        raise DamagedFileError(f"{path} is empty; {_MEND}.")
    reader: Callable[[Path], pl.LazyFrame]
    reader = pl.scan_ndjson if path.suffix == ".jsonl" else pl.scan_parquet
    try:
        rows = reader(path)
        rows.collect_schema()
        rows.head(1).collect()
    except (pl.exceptions.PolarsError, OSError) as error:
        raise unreadable(path, error) from error
    return rows


def _myriadlama_figures(paths: Sequence[Path], facts: Facts) -> Mapping[str, int]:
    rows = scan(paths).select(pl.len()).collect().item()
    return {"rows": rows, **facts_of.counts(facts)}


def _kamel_facts(paths: Sequence[Path], relations: Relations) -> Facts:
    texts = {f"{path.parent.name}/{path.name}": _text(path) for path in paths}
    return kamel.facts_from_files(texts, relations)


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise unreadable(path, error) from error


def _kamel_columns(paths: Sequence[Path]) -> Sequence[str]:
    rows = [path for path in paths if path.suffix == ".jsonl"]
    return scan(rows[:1]).collect_schema().names()


READERS: Mapping[str, Reader] = {
    "myriadlama": Reader(
        facts=lambda paths, relations: myriadlama.facts_from_rows(scan(paths), relations),
        columns=lambda paths: scan(paths).collect_schema().names(),
        figures=_myriadlama_figures,
    ),
    "kamel": Reader(
        facts=_kamel_facts,
        columns=_kamel_columns,
        figures=lambda _, facts: kamel.counts(facts),
    ),
}
