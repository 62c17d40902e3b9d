"""Wikidata's JSON dumps → the tables from which sets and knowledge bases are made.

A dump is one JSON array with one entity per line (Wikidata, "Database download", JSON dumps), read
in the memory of a chunk. A set takes triples and labels (`read`), a knowledge base what the dump
says of its items (`read_items`; its layout: Wikibase/DataModel/JSON):

| column | from |
|---|---|
| labels | the label, then other labels and aliases, of the languages; an item without is left out |
| types | the objects of P31 and P279, as they are declared: not the classes above them |
| description | the description in the first language that has one |
| popularity | the natural logarithm of 1 + the number of sitelinks |
| triples | statements of any property whose value is an item, those of deprecated rank aside |
| start, end | the qualifiers P580 (or P585, a point in time: it has no end) and P582 |
"""

import json
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from math import log1p
from typing import Any, NamedTuple, TypeVar

import polars as pl

from factsweep.operators.construction.kamel import LABELS, TRIPLES
from factsweep.operators.datasets.kamel import DATE, NUMBER
from factsweep.operators.datasets.knowledge_base import TYPE_RELATIONS
from factsweep.operators.errors import InputError
from factsweep.operators.schemas import empty

Line = TypeVar("Line", bound=str | bytes)


class Chunk(NamedTuple):
    """What some lines of a dump hold: `triples` (TRIPLES) and `labels` (LABELS)."""

    triples: pl.DataFrame
    labels: pl.DataFrame


@dataclass(frozen=True)
class Filter:
    """What is taken from a dump.

    `languages`: labels and aliases of these, the first that has a label gives the main one
    (("en", "mul"), since Wikidata keeps many names under "mul"). `properties`: statements of
    these. `subjects` and `labelled`: statements, and names, of these entities; null takes all.
    """

    languages: Sequence[str]
    properties: Collection[str]
    subjects: Collection[str] | None = None
    labelled: Collection[str] | None = None


def read(
    lines: Iterable[str | bytes], take: Filter, *, lines_per_chunk: int = 50_000
) -> Iterator[Chunk]:
    """Read the lines of a dump, a chunk of them at a time.

    Deprecated statements, those without a value, and values that are neither entity nor date nor
    number are not taken. An entity without a label in the languages is in no row of `labels`.

    Raises:
        InputError: a line is no entity, or the last ones are missing; the message has its number.
    """
    numbered = enumerate(whole(lines), start=1)
    while some := list(islice(numbered, lines_per_chunk)):
        triples, labels = list[Any](), list[Any]()
        for number, entity in entities(some):
            with _laid_out(number):
                if take.subjects is None or entity["id"] in take.subjects:
                    triples += (
                        (relation, entity["id"], *value)
                        for relation, statement in _statements(entity, take.properties)
                        if (value := _value(statement.get("mainsnak") or {}))
                    )
                found = names(entity, take.languages)
                if found and (take.labelled is None or entity["id"] in take.labelled):
                    labels.append((entity["id"], found))
        yield Chunk(
            pl.DataFrame(triples, schema=TRIPLES, orient="row"),
            pl.DataFrame(labels, schema=LABELS, orient="row"),
        )


@contextmanager
def _laid_out(number: int) -> Iterator[None]:
    """Refuse a line in which something is not where, or what, it is in Wikidata's dumps."""
    try:
        yield
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise InputError(
            f"line {number} of the dump has another layout than Wikidata's ({error!r}); drop the "
            "line."
        ) from error


def whole(lines: Iterable[Line]) -> Iterator[Line]:
    r"""The lines of a dump, whose array must be closed if it is opened.

    Raises:
        InputError: it was cut at the end of a line.

    >>> len(list(whole(["[\n", '{"id": "Q1"},\n', "]\n"])))
    3
    """
    first, last = b"", b""
    for line in lines:
        yield line
        if said := (line.encode() if isinstance(line, str) else line).strip():
            first, last = first or said, said
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


def _statements(
    entity: dict[str, Any], relations: Iterable[str] | None = None
) -> Iterator[tuple[str, dict[str, Any]]]:
    """The statements of some relations, or of all, that are not deprecated."""
    claims = entity.get("claims") or {}  # PHP writes an empty map as an empty list
    for relation in claims if relations is None else relations:
        for statement in claims.get(relation, ()):
            if statement.get("rank") != "deprecated":
                yield relation, statement


def _value(snak: dict[str, Any]) -> tuple[str, str | None] | None:
    """The object's id, and a literal's value; None where there is no such value."""
    match snak.get("datavalue"):
        case {"type": "wikibase-entityid", "value": {"id": str(entity)}}:
            return entity, None
        case {  # older dumps
            "type": "wikibase-entityid",
            "value": {"numeric-id": int(number), "entity-type": "item"},
        }:
            return f"Q{number}", None
        case {"type": "time", "value": {"time": str(time)}}:
            return DATE, time
        case {"type": "quantity", "value": {"amount": str(amount)}}:
            return NUMBER, amount
        case _:
            return None


def names(entity: dict[str, Any], languages: Sequence[str]) -> list[str]:
    """The main label, then all other labels and aliases, each name once; none without a label."""
    labels, aliases = entity.get("labels") or {}, entity.get("aliases") or {}
    mains = [labels[each] for each in languages if each in labels]
    others = [alias for each in languages for alias in aliases.get(each, ())]
    found = (name["value"].strip() for name in (*mains, *others)) if mains else ()
    return list(dict.fromkeys(filter(None, found)))


START, END, POINT = "P580", "P582", "P585"
_DAY, _MONTH = 11, 10  # precisions of a time; less than a month is written as a year


class Part(NamedTuple):
    """What some lines hold, and how many items are left out since they have no label."""

    entities: pl.DataFrame
    triples: pl.DataFrame
    n_unlabelled: int


def read_items(lines: Iterable[bytes], languages: Sequence[str], first_line: int = 1) -> Part:
    r"""The items of some lines, the first of which has the number `first_line`.

    Raises:
        InputError: a line is no entity, or has another layout; the message has its number.

    >>> line = (
    ...     b'{"type": "item", "id": "Q142", "labels": {"en": {"value": "France"}}, "claims": '
    ...     b'{"P36": [{"mainsnak": {"snaktype": "value", "datavalue": {"type": '
    ...     b'"wikibase-entityid", "value": {"id": "Q90"}}}}]}, "sitelinks": {}},'
    ... )
    >>> part = read_items([b"[\n", line, b"]\n"], ["en"])
    >>> part.triples.row(0)
    ('Q142', 'P36', 'Q90', None, None)
    """
    found, triples, n_unlabelled = list[Any](), list[Any](), 0
    for number, entity in entities(enumerate(lines, start=first_line)):
        if not entity["id"].startswith("Q"):
            continue  # a property or a lexeme
        with _laid_out(number):
            labels = names(entity, languages)
            n_unlabelled += not labels
            if labels:
                mine = list(_dated(entity))
                types = dict.fromkeys(row[2] for row in mine if row[1] in TYPE_RELATIONS)
                texts = entity.get("descriptions") or {}
                description = next((texts[n]["value"] for n in languages if n in texts), None)
                popularity = log1p(len(entity.get("sitelinks") or ()))
                found.append((entity["id"], labels, list(types), description, popularity))
                triples += mine
    return Part(
        pl.DataFrame(found, schema=empty("entities").schema, orient="row"),
        pl.DataFrame(triples, schema=empty("triples").schema, orient="row"),
        n_unlabelled,
    )


def _dated(entity: dict[str, Any]) -> Iterator[tuple[str, str, str, str | None, str | None]]:
    for relation, statement in _statements(entity):
        target, literal = _value(statement["mainsnak"]) or ("", None)
        if target.startswith("Q") and literal is None:
            spans = statement.get("qualifiers") or {}
            start = _time(spans, START) or _time(spans, POINT)
            yield entity["id"], relation, target, start, _time(spans, END)


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
