"""Files of rows: their suffixes, and JSON that all readers read alike.

JSON has no key twice in an object (some libraries keep the first value, others the last) and no
half of a surrogate pair, which cannot be written as UTF-8. A field with values of several types
becomes one of texts, as a CSV file has it: numbers and truth values as they are written, lists and
objects as JSON.
"""

import json
import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NoReturn

from factsweep.operators.errors import InputError

JSON = (".jsonl", ".ndjson", ".json")
TABLES = (".csv", ".tsv", ".txt", *JSON, ".parquet", ".arrow", ".feather", ".ipc")
PACKED = (".gz", ".bz2", ".xz", ".zst")


def kind(path: Path) -> str:
    """The suffix in lower case, before that of a compression.

    >>> kind(Path("facts.CSV.gz")), kind(Path("notes.md"))
    ('.csv', '.md')
    """
    return _unpacked(path).suffix.lower()


def title(path: Path) -> str:
    """The name without the suffixes of a table and its compression.

    >>> title(Path("facts.v2.jsonl.gz")), title(Path("facts[1].CSV"))
    ('facts.v2', 'facts[1]')
    """
    name = _unpacked(path)
    return name.stem if name.suffix.lower() in TABLES else name.name


def _unpacked(path: Path) -> Path:
    return Path(path.stem if path.suffix.lower() in PACKED else path.name)


class Number(str):
    """A number in JSON, as it is written."""


def parsed(
    text: str, where: str, fix: str = "correct or drop the line", *, as_written: bool = False
) -> Any:
    """The value of a JSON text; with `as_written`, numbers are instances of `Number`.

    Raises:
        InputError: it is none, has a key twice in one object, or half of a surrogate pair.

    >>> parsed('{"P19": 1, "P19": 2}', "t.json", "correct it")
    Traceback (most recent call last):
    factsweep.operators.errors.InputError: t.json: the key 'P19' stands twice; correct it.
    """
    try:
        number = Number if as_written else None
        value = json.loads(
            text,
            object_pairs_hook=_object,
            parse_int=number,
            parse_float=number,
            parse_constant=_refuse_constant,
        )
        if r"\ud" in text.lower():
            json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError as error:
        half = f"\\u{ord(error.object[error.start]):x}"
        raise InputError(f"{where}: {half} is half of a surrogate pair; {fix}.") from error
    except _TwiceError as error:
        raise InputError(f"{where}: the key {error.args[0]!r} stands twice; {fix}.") from error
    except (ValueError, RecursionError) as error:
        raise InputError(f"{where}: no JSON ({error}); {fix}.") from error
    return value


def rows(name: str, content: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """The objects in a JSONL file's lines, each with where it stands; {} of other values.

    Raises:
        InputError: a line is no JSON.
    """
    for where, line in _lines(name, content):
        row = parsed(line, where)
        yield where, row if isinstance(row, dict) else {}


def text(row: Mapping[str, Any], field: str, where: str) -> str:
    """A field of a row.

    Raises:
        InputError: it is no text, or an empty one.
    """
    value = row.get(field)
    if not isinstance(value, str) or not value.strip():
        raise InputError(f"{where}: {field} must be a text; correct or drop the line.")
    return value


class _TwiceError(Exception):
    """A key that stands twice in one object."""


def _refuse_constant(name: str) -> NoReturn:
    """Refuse NaN and Infinity, which Python writes and JSON does not have."""
    raise ValueError(f"{name} is no number in JSON")


def _object(members: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(members)
    if len(found) < len(members):
        keys = [key for key, _ in members]
        raise _TwiceError(next(key for key in keys if keys.count(key) > 1))
    return found


def check(where: str, fits: object, problem: str, found: object, *, what: str = "the row") -> None:
    """Refuse what does not fit, shown as far as it is short."""
    if not fits:
        shown = json.dumps(found, ensure_ascii=False, default=str)
        raise InputError(f"{where}: {problem} ({shown[:200]}); correct or drop {what}.")


_INTEGER = re.compile(r"-?\d{1,18}")  # that 64 bits hold


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
    is_list = content.lstrip().startswith("[")
    # The first place of each kind of value, by field and depth in its lists.
    places: dict[tuple[str, int], dict[str, str]] = defaultdict(dict)
    n_rows, first = 0, dict[str, Any]()
    for place, row in _objects(content, name, as_written=True):
        n_rows, first = n_rows + 1, first or row
        for field, value in row.items():
            for depth, kind in _kinds(value, 0):
                places[field, depth].setdefault(kind, place)
    holds_all = n_rows == 1 and all(isinstance(value, list | dict) for value in first.values())
    if holds_all and first and not is_list:  # as pandas writes a table unless told otherwise
        raise InputError(
            f"{name} is one object ({', '.join(first)[:60]}) that holds all rows; write one object "
            "per row: pandas does by `to_json(path, orient='records', lines=True)`."
        )
    for field in texts:
        for kind, place in places.get((field, 0), {}).items():
            if kind != "text" and "text" in places[field, 0]:
                raise InputError(
                    f"{place}: {field} is a {kind.replace('fraction', 'number')}, and a text in "
                    "other rows; write a text in quotation marks, or drop the row."
                )
    mixed = {
        field
        for (field, _), kinds in places.items()
        if len({kind.replace("fraction", "number") for kind in kinds}) > 1
        or (as_written and "fraction" in kinds)
    }
    if not mixed and not is_list:
        return content
    lines = []
    written_rows = _objects(content, name, as_written=True)
    for (_, row), (_, written) in zip(_objects(content, name), written_rows, strict=True):
        converted = {
            field: value
            if (value := written[field]) is None or isinstance(value, str)
            else json.dumps(value, ensure_ascii=False)
            for field in row
            if field in mixed
        }
        lines.append(json.dumps({**row, **converted}, ensure_ascii=False) + "\n")
    return "".join(lines)


def _objects(
    content: str, name: str, *, as_written: bool = False
) -> Iterator[tuple[str, dict[str, Any]]]:
    """The rows, each with its place."""
    lines: Iterable[tuple[str, Any]]
    if content.lstrip().startswith("["):
        values = parsed(content, name, "correct the file", as_written=as_written)
        lines = ((f"{name}, row {row} (counted from 0)", value) for row, value in enumerate(values))
    else:
        lines = (
            (place, parsed(text, place, as_written=as_written))
            for place, text in _lines(name, content)
        )
    for place, row in lines:
        check(place, isinstance(row, dict), "a row must be an object", row)
        yield place, row


def _lines(name: str, content: str) -> Iterator[tuple[str, str]]:
    """The lines that are not blank, each behind its place."""
    # Not splitlines: a label may hold a character that Unicode counts as a line end.
    for number, line in enumerate(content.split("\n"), start=1):
        if line.strip():
            yield f"{name}, line {number}", line


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
