"""What pages have of the code: columns of canonical tables, the glossary of metrics, docstrings.

A line `<!-- made: columns metrics -->` becomes the columns of that table that have a comment where
it is declared, and `<!-- made: glossary -->` the metrics that have a heading, as they declare it. A
line that is a link to a module, and nothing else, becomes the module's docstrings.
"""

import ast
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from factsweep.operators.methods import METHODS
from factsweep.operators.metrics.shared.rows import Metric
from factsweep.operators.schemas import DECLARATIONS, SCHEMAS

ROOT = Path(__file__).parents[2]
MARK = re.compile(r"^<!-- made: (\w+) ?(\w*) -->$", re.M)
MODULE = re.compile(r"^\[(operators/[\w/]+\.py)\]\(\.\./\1\)$", re.M)
EXAMPLES = re.compile(r"^>>> .*?(?:\n\n|\Z)", re.M | re.S)


def filled(markdown: str) -> str:
    """A page whose marks are replaced by content from the code."""
    tables_in = MARK.sub(lambda mark: "\n".join(_table(*mark.groups())), markdown)
    return MODULE.sub(lambda link: "\n\n".join(_docstrings(link[1])), tables_in)


def faults(markdown: str) -> Iterator[str]:
    """The marks that name no table."""
    for mark in MARK.finditer(markdown):
        if mark[1] not in ("columns", "glossary") or (mark[1] == "columns") != (mark[2] in SCHEMAS):
            yield f"{mark[0]}: there is no such table"


def _table(kind: str, name: str) -> Iterator[str]:
    rows = _glossary() if kind == "glossary" else _columns(name)
    head = {
        "glossary": ("metric", "heading", "what it says", "range", "better"),
        "columns": ("column", "what it says"),
    }[kind]
    return _lines((head, ("---",) * len(head), *rows))


def _lines(rows: Iterable[tuple[str, ...]]) -> Iterator[str]:
    return (f"| {' | '.join(row)} |" for row in rows)


def _columns(table: str) -> Iterator[tuple[str, str]]:
    """The columns of a table; columns with one comment are grouped."""
    for line in DECLARATIONS[table].splitlines():
        columns, dashes, comment = line.partition("--")
        if dashes:
            names = (column.split()[0] for column in columns.split(",") if column.strip())
            yield ", ".join(f"`{name}`" for name in names), comment.strip()


def _glossary() -> Iterator[tuple[str, ...]]:
    metrics = {
        metric.name: metric for method in METHODS.values() for metric in method.measure.metrics
    }
    return (_term(metric) for metric in metrics.values() if metric.heading)


def _term(metric: Metric) -> tuple[str, ...]:
    low, high = (f"{end:g}".replace("-", "−").replace("inf", "∞") for end in metric.range)
    return f"`{metric.name}`", metric.heading, metric.says, f"{low} to {high}", metric.better or ""


def _docstrings(path: str) -> Iterator[str]:
    """The docstrings of a module and its public members, without examples."""
    module = ast.parse((ROOT / path).read_text())
    yield f"### {path}"
    yield _said(module)
    for node in module.body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and not node.name.startswith("_"):
            yield f"**`{node.name}`**"
            yield _said(node)


def _said(node: ast.Module | ast.FunctionDef | ast.ClassDef) -> str:
    return EXAMPLES.sub("", ast.get_docstring(node) or "").strip()
