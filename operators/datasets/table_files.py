"""Files of rows: their suffixes, and JSON that all readers read alike."""

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
MOST_COLUMNS = 1_000
_LONGEST_LINE = 10_000_000  # characters


def kind(path: Path) -> str:
    """The suffix in lower case, before that of a compression.

    >>> kind(Path("facts.CSV.gz")), kind(Path("notes.md"))
    ('.csv', '.md')
    """
    return _strip_compression(path).suffix.lower()


def title(path: Path) -> str:
    """The name without the suffixes of a table and its compression.

    >>> title(Path("facts.v2.jsonl.gz")), title(Path("facts[1].CSV"))
    ('facts.v2', 'facts[1]')
    """
    name = _strip_compression(path)
    return name.stem if name.suffix.lower() in TABLES else name.name


def _strip_compression(path: Path) -> Path:
    return Path(path.stem if path.suffix.lower() in PACKED else path.name)


def check_width(n_columns: int, name: str) -> None:
    """Refuse a table of more columns than any set of facts has, which would take hours to read."""
    if n_columns > MOST_COLUMNS:
        raise InputError(
            f"{name} has {n_columns:,} columns or more, and at most {MOST_COLUMNS:,} are read; "
            "keep those that are needed."
        )


def check_line(line: str, place: str) -> None:
    """Refuse a line that is too long to be a row."""
    if len(line) > _LONGEST_LINE:
        raise InputError(
            f"{place} has {len(line):,} characters, and a row has at most {_LONGEST_LINE:,}; check "
            "the line ends and the quotation marks."
        )


def check_lines(text: str, name: str) -> None:
    """Refuse a text with a line that is too long to be a row."""
    start = 0
    while len(text) - start > _LONGEST_LINE:
        end = text.rfind("\n", start, start + _LONGEST_LINE + 1)  # the last line that begins here
        if end < 0:
            line = text[start:].partition("\n")[0]
            check_line(line, f"{name}, line {text.count(chr(10), 0, start) + 1}")
            return
        start = end + 1


SEPARATORS = {",": "comma", ";": "semicolon", "\t": "tab", "|": "bar"}
SEPARATOR_LINE = re.compile(r'"?sep=(.)"?\r?', re.IGNORECASE)  # as Excel reads it


def find_separator(header: str, suffix: str) -> str:
    r"""What separates the names of a header: the usual character of the suffix, or another one.

    >>> [find_separator(header, ".csv") for header in ("a,b", "a;b", "a\tb", '"a;b",c', "a")]
    [',', ';', '\t', ',', ',']
    """
    usual = "\t" if suffix == ".tsv" else ","
    unquoted = re.sub(r'"[^"]*"', "", header)
    return max(SEPARATORS, key=lambda character: (unquoted.count(character), character == usual))


class Number(str):
    """A number in JSON, in its written form."""


def parse_json(
    text: str, place: str, fix: str = "correct or drop the line", *, as_written: bool = False
) -> Any:
    """The value of a JSON text; with `as_written`, numbers are instances of `Number`.

    Refused, too, are a key that stands twice in one object (some libraries keep the first value,
    others the last), and half of a surrogate pair, which cannot be written as UTF-8.

    Raises:
        InputError: the text is not such JSON.

    >>> parse_json('{"P19": 1, "P19": 2}', "t.json", "correct it")
    Traceback (most recent call last):
    factsweep.operators.errors.InputError: t.json: no JSON (the key 'P19' stands twice); correct it.
    """

    def refuse_constant(name: str) -> NoReturn:
        raise ValueError(f"{name} is no number in JSON")

    number = Number if as_written else None
    try:
        value = json.loads(
            text,
            object_pairs_hook=_unique_keys,
            parse_int=number,
            parse_float=number,
            parse_constant=refuse_constant,
        )
        if r"\ud" in text.lower():
            json.dumps(value, ensure_ascii=False).encode()
    except (ValueError, RecursionError) as error:
        raise InputError(f"{place}: no JSON ({error}); {fix}.") from error
    return value


def _unique_keys(members: list[tuple[str, Any]]) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for key, value in members:
        if key in values:
            raise ValueError(f"the key {key!r} stands twice")
        values[key] = value
    return values


def rows(name: str, content: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """The objects in a JSONL file's lines, each with where it stands; {} of other values.

    Raises:
        InputError: a line is no JSON.
    """
    for place, line in _lines(name, content):
        row = parse_json(line, place)
        yield place, row if isinstance(row, dict) else {}


def text(row: Mapping[str, Any], field: str, place: str) -> str:
    """A field of a row.

    Raises:
        InputError: it is no text, or an empty one.
    """
    value = row.get(field)
    if not isinstance(value, str) or not value.strip():
        raise InputError(f"{place}: {field} must be a text; correct or drop the line.")
    return value


def check(place: str, fits: object, problem: str, value: object, *, noun: str = "the row") -> None:
    """Refuse a value that does not fit; the message shows its beginning."""
    if not fits:
        beginning = json.dumps(value, ensure_ascii=False, default=str)
        raise InputError(f"{place}: {problem} ({beginning[:200]}); correct or drop {noun}.")


_INTEGER = re.compile(r"-?\d{1,18}")  # that 64 bits hold


def json_lines(content: str, name: str, texts: Collection[str], *, as_written: bool) -> str:
    r"""The table as JSON lines in which each field has values of one type.

    A field with values of several types becomes one of texts, as in a CSV file: numbers and truth
    values in their written form, lists and objects as JSON. With `as_written`, fractions become
    texts, too (1.50). The fields `texts` may not have other values among their texts.

    Raises:
        InputError: JSON that is refused, a row that is no object, or another value in `texts`.

    >>> rows = '{"object": "Paris"}\n{"object": ["Sucre", "La Paz"]}\n{"object": 1.50}'
    >>> print(json_lines(rows, "facts.jsonl", (), as_written=True), end="")
    {"object": "Paris"}
    {"object": "[\"Sucre\", \"La Paz\"]"}
    {"object": "1.50"}
    """
    is_list = content.lstrip().startswith("[") or _is_one_object(content)
    # The first place of each kind of value, by field and depth in its lists.
    places: dict[tuple[str, int], dict[str, str]] = defaultdict(dict)
    n_rows, first_row, fields = 0, dict[str, Any](), set[str]()
    for place, row in _read_rows(content, name, as_written=True):
        n_rows, first_row = n_rows + 1, first_row or row
        fields.update(row)
        check_width(len(fields), name)
        for field, value in row.items():
            for depth, kind in _kinds(value, 0):
                places[field, depth].setdefault(kind, place)
    holds_all = n_rows == 1 and all(isinstance(value, list | dict) for value in first_row.values())
    if holds_all and first_row and not is_list:  # the default of pandas
        raise InputError(
            f"{name} is one object ({', '.join(first_row)[:60]}) that holds all rows; write one "
            "object per row: pandas does by `to_json(path, orient='records', lines=True)`."
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
    written_rows = _read_rows(content, name, as_written=True)
    for (_, row), (_, written) in zip(_read_rows(content, name), written_rows, strict=True):
        converted = {
            field: value
            if (value := written[field]) is None or isinstance(value, str)
            else json.dumps(value, ensure_ascii=False)
            for field in row
            if field in mixed
        }
        lines.append(json.dumps({**row, **converted}, ensure_ascii=False) + "\n")
    return "".join(lines)


def _read_rows(
    content: str, name: str, *, as_written: bool = False
) -> Iterator[tuple[str, dict[str, Any]]]:
    rows: Iterable[tuple[str, Any]]
    if content.lstrip().startswith("["):
        values = parse_json(content, name, "correct the file", as_written=as_written)
        rows = ((f"{name}, row {row} (counted from 0)", value) for row, value in enumerate(values))
    elif _is_one_object(content):  # as TriviaQA's authors publish it
        table = parse_json(content, name, "correct the file", as_written=as_written)
        lists = [value for value in table.values() if isinstance(value, list)]
        check(name, len(lists) == 1, "one object must have one list of rows", [*table], noun="it")
        values = lists[0]
        rows = ((f"{name}, row {row} (counted from 0)", value) for row, value in enumerate(values))
    else:
        lines = _lines(name, content)
        rows = ((place, parse_json(line, place, as_written=as_written)) for place, line in lines)
    for place, row in rows:
        check(place, isinstance(row, dict), "a row must be an object", row)
        yield place, row


def _is_one_object(content: str) -> bool:
    """Whether the file is one object that is written over several lines."""
    return re.match(r"\s*\{\s*\n", content) is not None


def _lines(name: str, content: str) -> Iterator[tuple[str, str]]:
    """The lines that are not blank, each behind its place."""
    # Not splitlines: a label may hold a character that Unicode counts as a line end.
    for number, line in enumerate(content.split("\n"), start=1):
        check_line(line, f"{name}, line {number}")
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
