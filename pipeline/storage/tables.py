"""Tables and figures as files: Markdown, CSV and LaTeX, Parquet; PNG and SVG."""

import io
from collections.abc import Collection, Iterator, Mapping
from typing import TYPE_CHECKING

import polars as pl

from factsweep.operators.errors import DamagedFileError
from factsweep.operators.methods.method import Report
from factsweep.operators.tables.formats import csv, latex, markdown
from factsweep.operators.tables.shared.canvas import save
from factsweep.pipeline.config.folders import below
from factsweep.pipeline.machine.logs import LOG
from factsweep.pipeline.storage.store import Store

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_TEXTS = {"csv": csv, "md": markdown, "tex": latex}
_LIST = "files.json"  # the files of a report


def write_report(store: Store, report: Report) -> None:
    """Write a report's tables and figures, and remove files of an earlier one that it lacks."""
    files = dict(report_files(report))
    for name in _read_listed_files(store) - files.keys():
        store.drop(name)
    for name, content in files.items():
        store.put(name, content)
    store.put_json(_LIST, {"files": sorted(files)})


def drop_reports(store: Store, *, besides: Collection[str], files: Collection[str] = ()) -> None:
    """Remove the reports in the other folders of a store, and these `files` next to them."""
    for folder in set(store.folders("")) - set(besides):
        report = Store(below(store.root, folder))
        if written := _read_listed_files(report):
            for name in (*written, *files, _LIST):
                report.drop(name)
            store.drop_empty(folder)


def _read_listed_files(store: Store) -> set[str]:
    """The files that an earlier report listed; none if the list is lost."""
    try:
        return set(store.get_json(_LIST, "files")["files"])
    except (FileNotFoundError, DamagedFileError):
        return set()


def report_files(report: Report) -> Iterator[tuple[str, bytes]]:
    """The names and contents of the files of a report's tables and figures."""
    yield from _table_files({f"tables/{name}": table for name, table in report.tables.items()})
    for name, table in report.raw.items():
        yield f"{name}.parquet", parquet(table)
    for name, figure in report.figures.items():
        yield from _figure_files(f"figures/{name}", figure)


def parquet(rows: pl.DataFrame) -> bytes:
    """The rows as a Parquet file."""
    content = io.BytesIO()
    rows.write_parquet(content)
    return content.getvalue()


def write_tables(store: Store, tables: Mapping[str, pl.DataFrame]) -> None:
    """Write each table in three formats."""
    for name, content in _table_files(tables):
        store.put(name, content)


def _table_files(tables: Mapping[str, pl.DataFrame]) -> Iterator[tuple[str, bytes]]:
    for name, table in tables.items():
        for kind, text in _TEXTS.items():
            yield f"{name}.{kind}", text(table).encode()


def _figure_files(name: str, figure: "Figure") -> Iterator[tuple[str, bytes]]:
    """A figure as PNG and SVG, reproducibly: without a date and with ids of its own."""
    import matplotlib as mpl

    missing_glyphs = ""
    for kind, metadata in (("png", {}), ("svg", {"Date": None})):
        picture = io.BytesIO()
        with mpl.rc_context({"svg.hashsalt": name}):
            missing_glyphs = save(figure, picture, format=kind, dpi=200, metadata=metadata)
        yield f"{name}.{kind}", picture.getvalue()
    if missing_glyphs:
        LOG.warning(
            "%s: no font of this machine has %s; install one, such as Noto Sans CJK. On the page "
            "the reader's browser has them.",
            name,
            missing_glyphs,
        )
