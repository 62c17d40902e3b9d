"""Wikidata's JSON dumps (Wikibase/DataModel/JSON) → the tables of a knowledge base (docs/data.md).

A dump is one JSON array with one entity per line.
"""

import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from math import log1p
from typing import Any, NamedTuple, TypeVar

import polars as pl

from factsweep.operators.datasets.knowledge_base import TYPE_RELATIONS
from factsweep.operators.errors import InputError
from factsweep.operators.schemas import empty

Line = TypeVar("Line", bound=str | bytes)


@contextmanager
def _laid_out(number: int) -> Iterator[None]:
    try:
        yield
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise InputError(
            f"line {number} of the dump has another layout than Wikidata's ({error!r}); drop the "
            "line."
        ) from error


def check_complete(lines: Iterable[Line]) -> Iterator[Line]:
    r"""The lines of a dump, whose array must be closed if it is opened.

    Raises:
        InputError: it was cut at the end of a line.

    >>> len(list(check_complete(["[\n", '{"id": "Q1"},\n', "]\n"])))
    3
    """
    first, last = b"", b""
    for line in lines:
        yield line
        if content := (line.encode() if isinstance(line, str) else line).strip():
            first, last = first or content, content
    if first == b"[" and last != b"]":
        raise InputError("the dump is cut: its last line is no ]; fetch it again.")


def entities(numbered: Iterable[tuple[int, str | bytes]]) -> Iterator[tuple[int, dict[str, Any]]]:
    """The entities of numbered lines, without brackets, trailing commas and empty lines.

    Raises:
        InputError: a line is no entity; the message has its number.
    """
    for number, line in numbered:
        try:
            text = (line.decode() if isinstance(line, bytes) else line).strip(" \t\r\n,\ufeff")
            entity = json.loads(text) if text not in ("", "[", "]") else None
        except ValueError as error:
            raise InputError(
                f"line {number} of the dump is no JSON ({error}); "
                "fetch the dump again or drop the line."
            ) from error
        if entity is None:
            continue
        if not isinstance(entity, dict) or not isinstance(entity.get("id"), str):
            raise InputError(
                f"line {number} of the dump is no entity (a JSON object with an id); drop the line."
            )
        yield number, entity


def _item(snak: dict[str, Any]) -> str | None:
    """The id of the item that is a statement's value; None of another value."""
    match snak.get("datavalue"):
        case {"type": "wikibase-entityid", "value": {"id": str(entity)}}:
            return entity if entity.startswith("Q") else None
        case {  # older dumps
            "type": "wikibase-entityid",
            "value": {"numeric-id": int(number), "entity-type": "item"},
        }:
            return f"Q{number}"
        case _:
            return None


def names(entity: dict[str, Any], languages: Sequence[str]) -> list[str]:
    """The main label, then all other labels and aliases, each name once; none without a label."""
    labels, aliases = entity.get("labels") or {}, entity.get("aliases") or {}
    of_languages = [labels[code] for code in languages if code in labels]
    if not of_languages:
        return []
    of_languages += [alias for code in languages for alias in aliases.get(code, ())]
    return list(dict.fromkeys(filter(None, (name["value"].strip() for name in of_languages))))


START, END, POINT = "P580", "P582", "P585"
_DAY, _MONTH = 11, 10  # precisions of a time; less than a month is written as a year


class Part(NamedTuple):
    """The tables of some lines, and the number of items without a label, which are left out."""

    entities: pl.DataFrame
    triples: pl.DataFrame
    n_unlabelled: int


def read_items(lines: Iterable[bytes], languages: Sequence[str], first_line: int = 1) -> Part:
    """The items of some lines; the first line has the number `first_line`.

    Raises:
        InputError: a line is no entity, or has another layout; the message has its number.
    """
    items, triples, n_unlabelled = list[Any](), list[Any](), 0
    for number, entity in entities(enumerate(lines, start=first_line)):
        item = entity["id"]
        if not item.startswith("Q"):
            continue  # a property or a lexeme
        with _laid_out(number):
            labels = names(entity, languages)
            if not labels:
                n_unlabelled += 1
                continue
            types = dict[str, None]()
            claims = entity.get("claims") or {}  # PHP writes an empty map as an empty list
            for relation in claims:
                for statement in claims[relation]:
                    target = _item(statement["mainsnak"])
                    if target is None or statement.get("rank") == "deprecated":
                        continue
                    times = statement.get("qualifiers") or {}
                    start = _time(times, START) or _time(times, POINT)
                    triples.append((item, relation, target, start, _time(times, END)))
                    if relation in TYPE_RELATIONS:
                        types[target] = None
            texts = entity.get("descriptions") or {}
            description = next((texts[code]["value"] for code in languages if code in texts), None)
            popularity = log1p(len(entity.get("sitelinks") or ()))
            items.append((item, labels, list(types), description, popularity))
    return Part(
        pl.DataFrame(items, schema=empty("entities").schema, orient="row"),
        pl.DataFrame(triples, schema=empty("triples").schema, orient="row"),
        n_unlabelled,
    )


def _time(qualifiers: dict[str, Any], name: str) -> str | None:
    """The first time that a qualifier gives, as ISO text of its precision."""
    for snak in qualifiers.get(name, ()):
        match snak.get("datavalue"):
            case {"type": "time", "value": {"time": str(time), "precision": int(precision)}}:
                return _iso(time, precision)
    return None


def _iso(time: str, precision: int) -> str:
    """A time of Wikidata as ISO text.

    >>> _iso("+2021-01-20T00:00:00Z", 11), _iso("+2021-01-00T00:00:00Z", 10)
    ('2021-01-20', '2021-01')
    >>> _iso("-0044-03-15T00:00:00Z", 9), _iso("+1800-00-00T00:00:00Z", 7)
    ('-0044', '1800')
    """
    sign, (year, month, day) = time[0], time[1:].partition("T")[0].split("-")
    parts = [year, *([month] if precision >= _MONTH else []), *([day] if precision >= _DAY else [])]
    return ("-" if sign == "-" else "") + "-".join(parts)
