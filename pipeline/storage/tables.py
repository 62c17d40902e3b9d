"""Tables and figures as files: Markdown, CSV and LaTeX; PNG and SVG."""

import io
from collections.abc import Mapping

import matplotlib as mpl
import polars as pl
from matplotlib.figure import Figure

from operators.methods.method import Report
from operators.tables.formats.latex import latex
from operators.tables.formats.markdown import markdown
from pipeline.storage.store import Store


def write_report(store: Store, report: Report) -> None:
    """Write a report's tables under tables/, its figures under figures/."""
    write_tables(store, {f"tables/{name}": table for name, table in report.tables.items()})
    for name, figure in report.figures.items():
        _write_figure(store, f"figures/{name}", figure)


def write_tables(store: Store, tables: Mapping[str, pl.DataFrame]) -> None:
    """Write each table three times, under its name."""
    for name, table in tables.items():
        text = io.BytesIO()
        table.write_csv(text)
        store.put(f"{name}.csv", text.getvalue())
        store.put(f"{name}.md", markdown(table).encode())
        store.put(f"{name}.tex", latex(table).encode())


def _write_figure(store: Store, name: str, figure: Figure) -> None:
    """Write it as PNG and SVG, the same bytes each time: without a date and with ids of its own."""
    for kind, metadata in (("png", {}), ("svg", {"Date": None})):
        picture = io.BytesIO()
        with mpl.rc_context({"svg.hashsalt": name}):
            figure.savefig(picture, format=kind, dpi=200, metadata=metadata)
        store.put(f"{name}.{kind}", picture.getvalue())
