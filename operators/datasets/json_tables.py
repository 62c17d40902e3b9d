"""Tables in JSON: one list of objects, or an object in each line.

A field may have values of several types. Such a field becomes one of texts, as a CSV file has it:
numbers and truth values as they are written, lists and objects as JSON.
"""

import json
import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from itertools import islice
from typing import Any

from factsweep.operators.datasets.json_texts import Number, check, parsed
from factsweep.operators.errors import InputError

_INTEGER = re.compile(r"-?\d{1,18}")  # that 64 bits hold
_PlacesByKind = dict[str, str]


def json_lines(content: str, name: str, texts: Collection[str], *, as_written: bool) -> str:
    r"""The table as JSON lines in which each field has values of one type.

    With `as_written`, fractions become texts, which keep their form (1.50). The fields `texts` may
    not have other values among their texts.

    Raises:
        InputError: JSON that is refused, a row that is no object, or another value in `texts`.

    >>> rows = '{"object": "Paris"}\n{"object": ["Sucre", "La Paz"]}\n{"object": 1.50}'
    >>> print(json_lines(rows, "facts.jsonl", (), as_written=True), end="")
    {"object": "Paris"}
    {"object": "[\"Sucre\", \"La Paz\"]"}
    {"object": "1.50"}
    """
    _check_orientation(content, name)
    places = _places_by_field(row for row in _objects(content, name, as_written=True))
    for field in texts:
        _check_text(field, places.get((field, 0), {}))
    mixed = {
        field
        for (field, _), kinds in places.items()
        if len({kind.replace("fraction", "number") for kind in kinds}) > 1
        or (as_written and "fraction" in kinds)
    }
    if not mixed and not _is_list(content):
        return content
    lines = []
    written_rows = _objects(content, name, as_written=True)
    for (_, row), (_, written) in zip(_objects(content, name), written_rows, strict=True):
        converted = {field: _cell(written[field]) for field in row if field in mixed}
        lines.append(json.dumps({**row, **converted}, ensure_ascii=False) + "\n")
    return "".join(lines)


def _check_orientation(content: str, name: str) -> None:
    """Refuse one object that holds all rows, as pandas writes a table unless told otherwise."""
    if _is_list(content):
        return
    (_, first), *others = [*islice(_objects(content, name), 2)] or [("", {})]
    if first and not others and all(isinstance(value, list | dict) for value in first.values()):
        raise InputError(
            f"{name} is one object ({', '.join(first)[:60]}) that holds all rows; write one object "
            "per row: pandas does by `to_json(path, orient='records', lines=True)`."
        )


def _is_list(content: str) -> bool:
    return content.lstrip().startswith("[")


def _objects(
    content: str, name: str, *, as_written: bool = False
) -> Iterator[tuple[str, dict[str, Any]]]:
    """The rows, each with its place."""
    rows: Iterable[tuple[str, Any]]
    if _is_list(content):
        values = parsed(content, name, "correct the file", as_written=as_written)
        rows = ((f"{name}, row {row} (counted from 0)", value) for row, value in enumerate(values))
    else:  # not splitlines: a label may hold a character that Unicode counts as a line end
        lines = ((f"{name}, line {n}", text) for n, text in enumerate(content.split("\n"), start=1))
        rows = (
            (place, parsed(text, place, as_written=as_written))
            for place, text in lines
            if text.strip()
        )
    for place, row in rows:
        check(place, isinstance(row, dict), "a row must be an object", row)
        yield place, row


def _places_by_field(
    rows: Iterable[tuple[str, Mapping[str, Any]]],
) -> dict[tuple[str, int], _PlacesByKind]:
    """The first place of each kind of value, by field and depth in its lists."""
    places_by_field: dict[tuple[str, int], _PlacesByKind] = defaultdict(dict)
    for place, row in rows:
        for field, value in row.items():
            for depth, kind in _kinds(value, 0):
                places_by_field[field, depth].setdefault(kind, place)
    return places_by_field


def _kinds(value: Any, depth: int) -> Iterator[tuple[int, str]]:
    """The kinds of a value and of those in its lists, with their depths; none of null."""
    match value:
        case Number():
            yield depth, "number" if _INTEGER.fullmatch(value) else "fraction"
        case str():
            yield depth, "text"
        case bool():
            yield depth, "truth value"
        case list():
            yield depth, "list"
            for element in value:
                yield from _kinds(element, depth + 1)
        case dict():
            yield depth, "object"


def _check_text(field: str, places_by_kind: _PlacesByKind) -> None:
    for kind, place in places_by_kind.items():
        if kind != "text" and "text" in places_by_kind:
            raise InputError(
                f"{place}: {field} is a {kind.replace('fraction', 'number')}, and a text in other "
                "rows; write a text in quotation marks, or drop the row."
            )


def _cell(value: Any) -> str | None:
    """A value as the text that a CSV file has for it."""
    if value is None or isinstance(value, str):
        return value
    return json.dumps(value, ensure_ascii=False)
