"""Wikidata's JSON dumps → the tables from which sets are made: triples and labels.

A dump is one JSON array with one entity per line (Wikidata, "Database download", JSON dumps). The
lines may come from any stream, so that a dump of a terabyte is read in the memory of a chunk.
"""

import json
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, NamedTuple, TypeVar

import polars as pl

from factsweep.operators.construction.kamel import LABELS, TRIPLES
from factsweep.operators.datasets.kamel import DATE, NUMBER
from factsweep.operators.errors import InputError

Line = TypeVar("Line", bound=str | bytes)
_Triple = tuple[str, str, str, str | None]


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
    r"""Read the lines of a dump, a chunk of them at a time.

    The array's brackets, trailing commas and empty lines are passed over. Deprecated statements,
    those without a value, and values that are neither entity nor date nor number are not taken. An
    entity without a label in the languages is in no row of `labels`.

    Raises:
        InputError: a line is no entity, or the last ones are missing; the message has its number.
    """
    numbered = enumerate(whole(lines), start=1)
    while some := list(islice(numbered, lines_per_chunk)):
        triples: list[_Triple] = []
        labels: list[tuple[str, list[str]]] = []
        for number, entity in entities(some):
            try:
                triples += _triples(entity, take)
                if take.labelled is None or entity["id"] in take.labelled:
                    labels += _labelled(entity, take)
            except (AttributeError, KeyError, TypeError) as error:
                raise InputError(
                    f"line {number} of the dump has labels, aliases or claims of another layout "
                    "than Wikidata's; drop the line."
                ) from error
        yield Chunk(
            pl.DataFrame(triples, schema=TRIPLES, orient="row"),
            pl.DataFrame(labels, schema=LABELS, orient="row"),
        )


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


def _triples(entity: dict[str, Any], take: Filter) -> Iterator[_Triple]:
    subject = entity["id"]
    if take.subjects is not None and subject not in take.subjects:
        return
    # PHP writes an empty map as an empty list.
    claims = entity.get("claims") or {}
    for relation in take.properties:
        for statement in claims.get(relation, ()):
            if statement.get("rank") != "deprecated" and (value := _value(statement)):
                yield relation, subject, *value


def _value(statement: dict[str, Any]) -> tuple[str, str | None] | None:
    """The object's id, and a literal's value; None where there is no such value."""
    snak = statement.get("mainsnak") or {}
    match snak.get("datavalue"):
        case {"type": "wikibase-entityid", "value": {"id": str(entity)}}:
            return entity, None
        case {"type": "time", "value": {"time": str(time)}}:
            return DATE, time
        case {"type": "quantity", "value": {"amount": str(amount)}}:
            return NUMBER, amount
        case _:
            return None


def _labelled(entity: dict[str, Any], take: Filter) -> list[tuple[str, list[str]]]:
    found = names(entity, take.languages)
    return [(entity["id"], found)] if found else []


def names(entity: dict[str, Any], languages: Sequence[str]) -> list[str]:
    """The main label, then all other labels and aliases, each name once; none without a label."""
    labels, aliases = entity.get("labels") or {}, entity.get("aliases") or {}
    mains = [labels[each] for each in languages if each in labels]
    others = [alias for each in languages for alias in aliases.get(each, ())]
    found = (name["value"].strip() for name in (*mains, *others)) if mains else ()
    return list(dict.fromkeys(filter(None, found)))
