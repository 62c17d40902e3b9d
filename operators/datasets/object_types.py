"""Types of objects: which relations of a table have dates, numbers or quantities for objects.

No paper: the rules are ours. A column `type` declares the type of an object; where it is empty,
the objects of a relation are recognised if most of them can be read alike.
"""

import datetime
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Literal, NamedTuple

import polars as pl

from factsweep.operators.datasets.facts import Facts
from factsweep.operators.errors import InputError
from factsweep.operators.matching.cldr import locales
from factsweep.operators.matching.dates import Date
from factsweep.operators.matching.quantities import Quantity
from factsweep.operators.matching.typed import TYPES, Kind, TypedObjects, Value, reader
from factsweep.operators.schemas import empty
from factsweep.operators.wording import count

Types = Literal["names", "recognised"]
_MOST = 0.8  # of a relation's objects
_SAMPLE = 1_000  # objects of a relation that are read
_YEARS = range(1000, 2101)  # numbers of four digits that are taken for years
_DAYS = ("yyyy-MM-dd", "d MMMM y", "MMMM d, y", "d MMM y", "MMM d, y", "dd.MM.y", "dd/MM/y")
_MONTHS = ("yyyy-MM", "MMMM y", "MMM y", "MM/y")
_GROUPED = re.compile(r"(?<![\d.,])\d{1,3}(?:([.,' \u00a0\u202f’])\d{3})+(?!\d)")
_PLAIN = re.compile(r"(?<![\d.,])\d{4,}(?!\d)")


class ObjectType(NamedTuple):
    """The type of a relation's objects: how many are of it, of all, and how the first is read."""

    kind: Kind
    n_read: int
    n_objects: int
    label: str
    reading: Value


def recognised(facts: Facts, language: str) -> dict[str, ObjectType]:
    """The types of the relations whose objects are no names; declared objects are left out."""
    objects = _objects(facts).join(_declared(facts), on="pair_id", how="anti")
    types = {}
    for (relation_id,), own in objects.group_by("relation_id", maintain_order=True):
        labels = own["label"].unique(maintain_order=True)
        labels = labels.gather_every(-(-len(labels) // _SAMPLE))
        if labels.str.contains(r"\p{Nd}").sum() >= _MOST * len(labels):
            for kind in ("date", "quantity"):
                found = _type(kind, labels.to_list(), language)
                if found and found.n_read >= _MOST * len(labels):
                    types[str(relation_id)] = found
                    break
    return types


def typed_objects(facts: Facts, language: str, tolerance: float) -> TypedObjects:
    """The objects that are compared as values."""
    kinds = {relation_id: found.kind for relation_id, found in recognised(facts, language).items()}
    rows = facts.pairs.select("pair_id", relation_id=pl.col("relation_id").cast(pl.String))
    rows = rows.join(_declared(facts), on="pair_id", how="left", maintain_order="left")
    kind = pl.coalesce("type", pl.col("relation_id").replace_strict(kinds, default="name"))
    typed = rows.select("pair_id", kind=kind).filter(pl.col("kind") != "name")
    return TypedObjects(dict(typed.iter_rows()), language, tolerance)


def sentences(facts: Facts, language: str) -> Iterator[str]:
    """What is taken for dates, numbers or quantities, one line per relation.

    Raises:
        InputError: an object is not of the type that its row declares.
    """
    declared = _objects(facts).join(_declared(facts), on="pair_id", maintain_order="left")
    _check(declared, language)
    counts = declared.group_by("relation_id", "type", maintain_order=True).len()
    for relation_id, kind, n in counts.iter_rows():
        yield f"{count(n, 'object')} of {relation_id} declared as {kind} in the column type."
    for relation_id, found in recognised(facts, language).items():
        plural = "quantities" if found.kind == "quantity" else f"{found.kind}s"
        yield (
            f"objects of {relation_id} are compared as {plural}: {found.n_read:,} of "
            f"{found.n_objects:,} can be read, {found.label!r} as {found.reading}; a column type "
            f"({', '.join(TYPES)}) says otherwise."
        )


def unread(rows: pl.LazyFrame) -> Iterator[str]:
    """That a column `type` is not read, where it has values and none of them is a type."""
    if rows.collect_schema().get("type") == pl.String:
        values = rows.select(own_type(pl.col("type"))).collect()["type"]
        others = values.filter(values != "")
        if len(others) and not others.is_in(TYPES).any():
            yield (
                f"column type is not read: {others[0]!r} is none of {', '.join(TYPES)}, and "
                "neither is any other of its values."
            )


def own_type(column: pl.Expr) -> pl.Expr:
    """The values of a column `type`, empty where there is none."""
    return column.fill_null("").str.strip_chars().str.to_lowercase()


def written_alike(facts: Facts, language: str) -> tuple[Facts, dict[str, str]]:
    """The facts as they are demonstrated, dates and numbers in one way: examples by relation.

    That is the most frequent form of a relation's labels; ISO 8601 where no form is known. What a
    label was is an alias then. Relations that are written alike already stay as they are.
    """
    kinds = typed_objects(facts, language, 0).kinds
    label = pl.col("objects").list.first().struct.field("labels").list.first()
    rows = facts.pairs.select(pl.col("pair_id", "relation_id").cast(pl.String), label=label)
    forms: dict[str, str] = {}  # by pair
    examples: dict[str, str] = {}  # by relation
    typed = rows.filter(pl.col("pair_id").is_in([*kinds]))
    for (relation_id,), own in typed.group_by("relation_id", maintain_order=True):
        labels = own["label"].to_list()
        is_date = kinds[own["pair_id"][0]] == "date"
        written = _dates_alike(labels, language) if is_date else _numbers_alike(labels)
        if written != labels:
            forms |= zip(own["pair_id"], written, strict=True)
            examples[str(relation_id)] = max(written, key=len)
    objects = [
        [{**first, "labels": [forms.get(pair_id, first["labels"][0]), *first["labels"]]}, *others]
        for pair_id, (first, *others) in facts.pairs.select("pair_id", "objects").iter_rows()
    ]
    column = pl.Series("objects", objects, facts.pairs.schema["objects"])
    return replace(facts, pairs=facts.pairs.with_columns(column)), examples


def longest_answer(facts: Facts, language: str) -> tuple[str, str]:
    """The relation and the text of the right answer that is the longest, as people write it.

    A day is written with the name of its month.
    """
    kinds = typed_objects(facts, language, 0).kinds
    longest = ("", "")
    for pair_id, relation_id, label in _objects(facts).iter_rows():
        values = reader(language).whole("date", label) if kinds.get(pair_id) == "date" else ()
        spelled = [_spelled(value, "d MMMM y", language) for value in values[:1]]
        text = max([label, *filter(None, spelled)], key=n_tokens)
        longest = max(longest, (relation_id, text), key=lambda answer: n_tokens(answer[1]))
    return longest


def n_tokens(text: str) -> int:
    """About how many tokens a text has, a high estimate: a digit is one, and so is a blank there.

    >>> [n_tokens(text) for text in ("Paris", "September 14, 1879", "東京")]
    [2, 12, 2]
    """
    latin = sum(-(-len(word) // 4) for word in re.findall(r"[A-Za-zÀ-ɏ]+", text))
    others = len(re.findall(r"[^\sA-Za-zÀ-ɏ]", text))
    return latin + others + len(re.findall(r"\s(?=\d)", text))


def _objects(facts: Facts) -> pl.DataFrame:
    """pair_id, relation_id, label: a row per object, with its first label."""
    label = pl.col("objects").struct.field("labels").list.first()
    rows = facts.pairs.explode("objects")
    return rows.select(pl.col("pair_id", "relation_id").cast(pl.String), label=label)


def _declared(facts: Facts) -> pl.DataFrame:
    """The types that rows declare: pair_id, type."""
    return facts.further.get("object_types", empty("object_types")).select("pair_id", "type")


def _type(kind: Kind, labels: Sequence[str], language: str) -> ObjectType | None:
    """The type of labels, if they are of a kind; numbers without a unit are numbers."""
    read = {label: found[0] for label in labels if (found := reader(language).whole(kind, label))}
    if kind == "date":
        read = {label: value for label, value in read.items() if _is_date(label, value)}
    if not read:
        return None
    first, value = next(iter(read.items()))
    with_unit = sum(isinstance(value, Quantity) and value.unit != "" for value in read.values())
    kind = "number" if kind == "quantity" and with_unit < len(read) / 2 else kind
    return ObjectType(kind, len(read), len(labels), first, value)


def _is_date(label: str, value: Value) -> bool:
    """Whether a label that can be a date is one: a bare number only in the years of today."""
    return not label.strip().isdigit() or (len(label.strip()) == 4 and value[0] in _YEARS)


def _check(declared: pl.DataFrame, language: str) -> None:
    for pair_id, _, label, kind in declared.filter(pl.col("type") != "name").iter_rows():
        if not reader(language).whole(kind, label):
            raise InputError(
                f"the object {label!r} of {pair_id} has the type {kind}, and cannot be read as one "
                f"in the language {language}; correct it, or write name in its column type."
            )


def _dates_alike(labels: Sequence[str], language: str) -> list[str]:
    """Dates in the most frequent form; what can be read in several ways stays as it is."""
    read = [reader(language).whole("date", label) for label in labels]
    dates = [values[0] if len(values) == 1 else None for values in read]
    for forms, is_of in ((_DAYS, _has_day), (_MONTHS, _has_month_alone)):
        own = {n: date for n, date in enumerate(dates) if isinstance(date, Date) and is_of(date)}
        fitting = Counter(
            form for n in own for form in forms if _spelled(own[n], form, language) == labels[n]
        )
        form = max(forms, key=lambda each: fitting[each])
        texts = {n: _spelled(date, form, language) for n, date in own.items()}
        labels = [texts.get(n) or label for n, label in enumerate(labels)]
    return list(labels)


def _has_day(date: Date) -> bool:
    return date.day > 0


def _has_month_alone(date: Date) -> bool:
    return date.month > 0 and not date.day


def _spelled(date: Value, form: str, language: str) -> str | None:
    """A date in a form of Babel; null: it has none there, as before Christ."""
    from babel.dates import format_date

    if not isinstance(date, Date) or not date.month or not 1 <= date.year <= 9999:
        return None
    try:
        day = datetime.date(date.year, date.month, date.day or 1)
    except ValueError:  # 29 February of a year that has none
        return None
    return format_date(day, form, locale=locales(language)[0])


def _numbers_alike(labels: Sequence[str]) -> list[str]:
    """Numbers with thousands grouped, or without, as most are."""
    signs = Counter(sign for label in labels if (sign := _group_sign(label)) is not None)
    sign = max(signs, key=lambda each: signs[each], default="")
    plain = [_GROUPED.sub(lambda number: re.sub(r"\D", "", number[0]), label) for label in labels]
    if len(signs) < 2:
        return list(labels)
    return [
        _PLAIN.sub(lambda number: f"{int(number[0]):,}".replace(",", sign), each) for each in plain
    ]


def _group_sign(label: str) -> str | None:
    """What groups the thousands of a number; empty: nothing; null: it has none."""
    grouped = _GROUPED.search(label)
    return grouped[1] if grouped else "" if _PLAIN.search(label) else None
