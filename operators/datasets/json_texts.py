"""JSON that all readers read alike: no key twice in an object, no half of a surrogate pair.

Of a key that stands twice, some libraries keep the first value and others the last; half of a
surrogate pair is no character, and cannot be written as UTF-8.
"""

import json
from collections.abc import Iterator, Mapping
from typing import Any, NoReturn

from factsweep.operators.errors import InputError


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
        found = json.loads(
            text,
            object_pairs_hook=_object,
            parse_int=number,
            parse_float=number,
            parse_constant=_refuse_constant,
        )
        if r"\ud" in text.lower():
            json.dumps(found, ensure_ascii=False).encode()
    except UnicodeEncodeError as error:
        half = f"\\u{ord(error.object[error.start]):x}"
        raise InputError(f"{where}: {half} is half of a surrogate pair; {fix}.") from error
    except _TwiceError as error:
        raise InputError(f"{where}: the key {error.args[0]!r} stands twice; {fix}.") from error
    except (ValueError, RecursionError) as error:
        raise InputError(f"{where}: no JSON ({error}); {fix}.") from error
    return found


def rows(name: str, content: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """The objects in a JSONL file's lines, each with where it stands; {} of other values.

    Raises:
        InputError: a line is no JSON.
    """
    # Not splitlines: a label may hold a character that Unicode counts as a line end.
    for number, line in enumerate(content.split("\n"), start=1):
        if line.strip():
            where = f"{name}, line {number}"
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
