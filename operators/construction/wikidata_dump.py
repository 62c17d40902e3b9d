"""Lines of a Wikidata JSON dump → entities and triples.

What is taken of an item (its layout: Wikibase/DataModel/JSON):

| column | from |
|---|---|
| labels | the label, then other labels and aliases, of the languages; an item without is left out |
| types | the objects of P31 and P279, as they are declared: not the classes above them |
| description | the description in the first language that has one |
| popularity | the natural logarithm of 1 + the number of sitelinks |
| triples | statements of any property whose value is an item, those of deprecated rank aside |
| start, end | the qualifiers P580 (or P585, a point in time: it has no end) and P582 |
"""

from collections.abc import Iterable, Iterator, Sequence
from math import log1p
from typing import Any, NamedTuple

import polars as pl

from factsweep.operators.construction.wikidata import entities, names
from factsweep.operators.errors import InputError
from factsweep.operators.knowledge_base.knowledge_base import TYPE_RELATIONS
from factsweep.operators.schemas import empty

START, END, POINT = "P580", "P582", "P585"
_DAY, _MONTH = 11, 10  # precisions of a time; less than a month is written as a year


class Part(NamedTuple):
    """What some lines hold, and how many items are left out since they have no label."""

    entities: pl.DataFrame
    triples: pl.DataFrame
    n_unlabelled: int


def read(lines: Iterable[bytes], languages: Sequence[str], first_line: int = 1) -> Part:
    r"""The items of some lines, the first of which has the number `first_line`.

    Raises:
        InputError: a line is no entity, or has another layout; the message has its number.

    >>> line = (
    ...     b'{"type": "item", "id": "Q142", "labels": {"en": {"value": "France"}}, "claims": '
    ...     b'{"P36": [{"mainsnak": {"snaktype": "value", "datavalue": {"type": '
    ...     b'"wikibase-entityid", "value": {"id": "Q90"}}}}]}, "sitelinks": {}},'
    ... )
    >>> part = read([b"[\n", line, b"]\n"], ["en"])
    >>> part.triples.row(0)
    ('Q142', 'P36', 'Q90', None, None)
    """
    found, triples, n_unlabelled = list[Any](), list[Any](), 0
    for number, entity in entities(enumerate(lines, start=first_line)):
        if not entity["id"].startswith("Q"):
            continue  # a property or a lexeme
        try:
            labels = names(entity, languages)
            mine = list(_triples(entity)) if labels else []
            if labels:
                found.append(_entity(entity, labels, mine, languages))
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise InputError(
                f"line {number} of the dump has another layout than Wikidata's ({error!r}); "
                "drop the line."
            ) from error
        triples += mine
        n_unlabelled += not labels
    return Part(
        pl.DataFrame(found, schema=empty("entities").schema, orient="row"),
        pl.DataFrame(triples, schema=empty("triples").schema, orient="row"),
        n_unlabelled,
    )


def _entity(
    entity: dict[str, Any],
    labels: list[str],
    triples: list[tuple[str, str, str, str | None, str | None]],
    languages: Sequence[str],
) -> tuple[str, list[str], list[str], str | None, float]:
    types = dict.fromkeys(triple[2] for triple in triples if triple[1] in TYPE_RELATIONS)
    said = entity.get("descriptions") or {}
    description = next((said[each]["value"] for each in languages if each in said), None)
    return entity["id"], labels, list(types), description, log1p(len(entity.get("sitelinks") or ()))


def _triples(entity: dict[str, Any]) -> Iterator[tuple[str, str, str, str | None, str | None]]:
    claims = entity.get("claims") or {}  # PHP writes an empty map as an empty list
    for relation, statements in claims.items():
        for statement in statements:
            target = _item(statement["mainsnak"])
            if target is not None and statement.get("rank") != "deprecated":
                spans = statement.get("qualifiers") or {}
                start = _time(spans, START) or _time(spans, POINT)
                yield entity["id"], relation, target, start, _time(spans, END)


def _item(snak: dict[str, Any]) -> str | None:
    match snak.get("datavalue"):
        case {"type": "wikibase-entityid", "value": {"id": str(target)}}:
            return target if target.startswith("Q") else None
        case {"type": "wikibase-entityid", "value": {"numeric-id": int(number), **value}}:
            return f"Q{number}" if value.get("entity-type") == "item" else None  # older dumps
        case _:
            return None


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
