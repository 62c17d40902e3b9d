"""The tables of the two BELIEF papers and their printed names, from `belief_paper.yaml`."""

from collections.abc import Mapping
from itertools import product
from pathlib import Path
from typing import Any

import yaml

from factsweep.operators.tables.shared.paper_table import Column, Place, Table


def _expand(place: Mapping[str, Any]) -> tuple[Place, ...]:
    """One place per combination of the listed values, the first key slowest."""
    choices = [value if isinstance(value, list) else [value] for value in place.values()]
    return tuple(dict(zip(place, values, strict=True)) for values in product(*choices))


def _read_table(layout: Mapping[str, Any]) -> Table:
    rows = tuple(place for places in layout["rows"] for place in _expand(places))
    headings = [heading for group in layout["columns"] for heading in group.items()]
    columns = tuple(Column(heading, _expand(place)) for heading, place in headings)
    without = tuple(layout.get("without", ()))
    return Table(
        layout["title"], tuple(layout["printed_in"]), layout["heads"], rows, columns, without
    )


_LAYOUT = yaml.safe_load(Path(__file__).with_suffix(".yaml").read_text("utf-8"))
TABLES: Mapping[str, Table] = {
    name: _read_table(table) for name, table in _LAYOUT["tables"].items()
}
NAMES: Mapping[str, str] = _LAYOUT["names"]
