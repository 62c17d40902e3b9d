"""Objects and answers that are dates, numbers or quantities, and are compared as values.

No paper: the rules are ours (docs/metrics.md). A column `type` declares the type of an object;
where it is empty, the objects of a relation are recognised if most of them can be read alike.
Babel and Pint load on first use.
"""

import datetime
import operator
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Literal, NamedTuple

import polars as pl

from factsweep.operators.datasets.facts import Facts
from factsweep.operators.errors import InputError
from factsweep.operators.matching.cldr import locales
from factsweep.operators.matching.dates import Date
from factsweep.operators.matching.lemmas import SEPARATOR
from factsweep.operators.matching.quantities import Quantity
from factsweep.operators.matching.values import Kind, Value, first_line, reader
from factsweep.operators.schemas import empty
from factsweep.operators.wording import count

TYPES = ("name", "date", "number", "quantity")
_TWO_DAYS = r"\x1f(-?\d{4,}-)(\d\d)-(\d\d)\x1f(-?\d{4,}-)(\d\d)-(\d\d)\x1f"
Types = Literal["names", "recognised"]
_MOST = 0.8  # of a relation's objects
_SAMPLE = 1_000  # objects of a relation that are read
_YEARS = range(1000, 2101)  # numbers of four digits that are taken for years
# Forms of days and of months, as Babel has them; long and medium are those of the language.
_FORMS = (
    ("yyyy-MM-dd", "yyyy-MM"),
    ("long", "MMMM y"),
    ("medium", "MMM y"),
    ("d MMMM y", "MMMM y"),
    ("d MMM y", "MMM y"),
    ("dd/MM/y", "MM/y"),
)
_GROUPED = re.compile(r"(?<![\d.,])\d{1,3}(?:([.,' \u00a0\u202f’])\d{3})+(?!\d)")
_PLAIN = re.compile(r"(?<![\d.,])\d{4,}(?!\d)")


class WrittenValue(NamedTuple):
    """A value, and how it is written, in lower case."""

    value: Value
    text: str


@dataclass(frozen=True)
class TypedObjects:
    r"""Objects that are compared as values: `kinds` has the kind of each pair's, by pair_id.

    Texts are read in `language`; quantities are equal within the share `tolerance`.

    >>> typed = TypedObjects({"a": "date"}, "en", 0.01)
    >>> rows = pl.DataFrame({"pair_id": "a", "text": ["It was May 2, 1900.", "?"], "key": "?"})
    >>> labels = pl.DataFrame({"pair_id": "a", "text": ["1900"], "key": "1900"})
    >>> typed.add_value_keys(rows, labels)["key"].to_list()
    ['\x1f1900\x1f', '?']
    """

    kinds: Mapping[str, Kind]
    language: str
    tolerance: float

    @cached_property
    def _pairs(self) -> pl.DataFrame:
        return pl.DataFrame({"pair_id": [*self.kinds]}, {"pair_id": pl.String})

    def add_value_keys(self, rows: pl.DataFrame, labels: pl.DataFrame) -> pl.DataFrame:
        """Rows (pair_id, text, key) with the values of a text as its key, where it has any.

        `labels` has pair_id, text and key, a row per right answer. A value that agrees with one is
        written as that one is. A text that can be read in several ways has all of them as values.
        A text that names a label which is no value, such as "the Ides of March 44", has none.
        """
        texts = rows.select("pair_id", "text", "key").drop_nulls("text").unique()
        texts = texts.join(self._pairs, on="pair_id", how="semi")
        labels = labels.join(texts, on="pair_id", how="semi")
        values, names = self._read(labels)
        keys: list[str | None] = []
        for pair_id, text, key in texts.rows():
            right = values.get(pair_id)
            is_name = any(name in (key or "") for name in names.get(pair_id, ()))
            answer_values = (
                () if is_name or not right else _find(self.language, self.kinds[pair_id], text)
            )
            written = [self._unify_with_labels(value, right or ()) for value in answer_values]
            keys.append(_key(written) if written else None)
        texts = texts.drop("key").with_columns(pl.Series("values", keys, pl.String))
        keyed = rows.join(texts, on=["pair_id", "text"], how="left", maintain_order="left")
        return keyed.with_columns(key=pl.coalesce("values", "key")).drop("values")

    def label_keys(self, labels: pl.DataFrame) -> pl.DataFrame:
        """The values of labels (pair_id, text, key) as keys: a row per way to read one."""
        values, _ = self._read(labels.join(self._pairs, on="pair_id", how="semi"))
        rows = [(pair_id, _key([value])) for pair_id in values for value, _ in values[pair_id]]
        return pl.DataFrame(rows, {"pair_id": pl.String, "key": pl.String}, orient="row")

    def _read(
        self, labels: pl.DataFrame
    ) -> tuple[dict[str, list[WrittenValue]], dict[str, list[str]]]:
        """By pair, the values of labels that are values, and the keys of the other labels."""
        values: dict[str, list[WrittenValue]] = {}
        names: dict[str, list[str]] = {}
        distinct = labels.select("pair_id", "text", "key").unique(maintain_order=True)
        for pair_id, text, key in distinct.rows():
            kind = self.kinds[pair_id]
            if reader(self.language).whole(kind, text):
                readings = _find(self.language, kind, text)
                values.setdefault(pair_id, []).extend(readings)
            elif key is not None:
                names.setdefault(pair_id, []).append(key)
        return values, names

    def _unify_with_labels(
        self, answer: WrittenValue, labels: Sequence[WrittenValue]
    ) -> Value | str:
        """A value as the label that it agrees with, or else in the way of the first label."""
        value, text = answer
        agreeing = [label.value for label in labels if self._denotes_label(value, label.value)]
        agreeing += [label.value for label in labels if label.text == text]  # "512 mb" for 512 MB
        if agreeing:
            return agreeing[0]
        first = labels[0].value
        if isinstance(value, Date):
            return value.at_precision_of(first) if isinstance(first, Date) else value
        return value.shown_in(first.unit) if isinstance(first, Quantity) else value

    def _denotes_label(self, value: Value, label: Value) -> bool:
        if isinstance(label, Quantity):
            if isinstance(value, Date):  # the label is a year: those of a relation may be numbers
                return not label.unit and bool(value.month) and value.year == label.value
            return value.equals(label, self.tolerance)
        if isinstance(value, Date):
            return value.at_precision_of(label) == label
        return not (label.month or value.unit) and value.value == label.year  # 1,500 may be a year


@lru_cache(maxsize=100_000)
def _find(language: str, kind: Kind, text: str) -> tuple[WrittenValue, ...]:
    """All readings of the values of a text; the same answer is given to many prompts."""
    line = first_line(text).lower()
    return tuple(
        WrittenValue(reading, line[start:end])
        for start, end, readings in reader(language).find(kind, text)
        for reading in readings
    )


def n_ambiguous(keys: pl.Series) -> int:
    r"""The number of keys that are a date whose day and month are ambiguous.

    >>> n_ambiguous(pl.Series(["\x1f1900-03-04\x1f1900-04-03\x1f", "\x1f1900-03-14\x1f"]))
    1
    """
    parts = keys.str.extract_groups(_TWO_DAYS).struct.unnest()
    is_same = [pl.col(first) == pl.col(second) for first, second in ("14", "26", "35")]
    return int(parts.select(pl.all_horizontal(is_same).sum()).item())


def _key(values: Iterable[Value | str]) -> str:
    texts = dict.fromkeys(map(str, values))
    return f"{SEPARATOR}{SEPARATOR.join(texts)}{SEPARATOR}"


class ObjectType(NamedTuple):
    """The type of a relation's objects: how many are of it, and how the first one is read."""

    kind: Kind
    n_read: int
    n_ambiguous: int  # dates that can be read as two days
    n_objects: int
    label: str
    reading: Value


def recognise_types(facts: Facts, language: str) -> dict[str, ObjectType]:
    """The types of relations whose objects are no names, by id; declared objects are left out."""
    objects = _objects(facts).join(_select_declared_types(facts), on="pair_id", how="anti")
    types: dict[str, ObjectType] = {}
    for (relation_id,), rows in objects.group_by("relation_id", maintain_order=True):
        labels = rows["label"].unique(maintain_order=True)
        labels = labels.gather_every(-(-len(labels) // _SAMPLE))
        if labels.str.contains(r"\p{Nd}").sum() >= _MOST * len(labels):
            kinds = (_type("date", labels, language), _type("quantity", labels, language))
            types |= {str(relation_id): kind for kind in kinds[::-1] if kind is not None}
    return types


def typed_objects(facts: Facts, language: str, tolerance: float) -> TypedObjects:
    """The objects that are compared as values, of the types declared or recognised."""
    kinds = {
        relation_id: type_.kind for relation_id, type_ in recognise_types(facts, language).items()
    }
    rows = facts.pairs.select("pair_id", relation_id=pl.col("relation_id").cast(pl.String))
    rows = rows.join(_select_declared_types(facts), on="pair_id", how="left", maintain_order="left")
    kind = pl.coalesce("type", pl.col("relation_id").replace_strict(kinds, default="name"))
    typed = rows.select("pair_id", kind=kind).filter(pl.col("kind") != "name")
    return TypedObjects(dict(typed.iter_rows()), language, tolerance)


def describe_types(facts: Facts, language: str) -> Iterator[str]:
    """Which objects are dates, numbers or quantities, a sentence per relation.

    Raises:
        InputError: an object is not of the type that its row declares.
    """
    declared = _objects(facts).join(
        _select_declared_types(facts), on="pair_id", maintain_order="left"
    )
    for pair_id, _, label, kind in declared.filter(pl.col("type") != "name").iter_rows():
        if not reader(language).whole(kind, label):
            raise InputError(
                f"the object {label!r} of {pair_id} has the type {kind}, and cannot be read as one "
                f"in the language {language}; correct it, or write name in its column type."
            )
    counts = declared.group_by("relation_id", "type", maintain_order=True).len()
    for relation_id, kind, n in counts.iter_rows():
        yield f"{count(n, 'object')} of {relation_id} declared as {kind} in the column type."
    for relation_id, type_ in recognise_types(facts, language).items():
        plural = "quantities" if type_.kind == "quantity" else f"{type_.kind}s"
        n_days = type_.n_ambiguous
        either = f" {n_days:,} can be read as two days; either is right." if n_days else ""
        yield (
            f"objects of {relation_id} are compared as {plural}: {type_.n_read:,} of "
            f"{type_.n_objects:,} can be read, {type_.label!r} as {type_.reading}; a column type "
            f"({', '.join(TYPES)}) changes this.{either}"
        )


def warn_of_unread_types(rows: pl.LazyFrame) -> Iterator[str]:
    """A warning if the column `type` of a table has values and none of them is a type."""
    if rows.collect_schema().get("type") == pl.String:
        values = rows.select(type_name(pl.col("type"))).collect()["type"]
        values = values.filter(values != "")
        if len(values) and not values.is_in(TYPES).any():
            none = f"such as {values[0]!r}, are none of {', '.join(TYPES)}"
            yield f"column type is not read: its values, {none}."


def type_name(column: pl.Expr) -> pl.Expr:
    """The values of a column `type` in lower case, empty where there is none."""
    return column.fill_null("").str.strip_chars().str.to_lowercase()


def unify_labels(facts: Facts, language: str) -> tuple[Facts, dict[str, str]]:
    """The facts for demonstrations, with dates and numbers in one form; examples by relation.

    The form is the most frequent one of the relation's labels, or ISO 8601 if none is known. The
    former label becomes an alias. A relation whose labels have one form stays unchanged.
    """
    kinds = typed_objects(facts, language, 0).kinds
    first_label = pl.col("objects").list.first().struct.field("labels").list.first()
    rows = facts.pairs.select(pl.col("pair_id", "relation_id").cast(pl.String), label=first_label)
    rows = rows.filter(pl.col("pair_id").is_in([*kinds]))
    label_by_pair: dict[str, str] = {}
    example_by_relation: dict[str, str] = {}
    for (relation_id,), pairs in rows.group_by("relation_id", maintain_order=True):
        labels = pairs["label"].to_list()
        is_date = kinds[pairs["pair_id"][0]] == "date"
        alike = _dates_alike(labels, language) if is_date else _numbers_alike(labels)
        if alike != labels:
            label_by_pair |= zip(pairs["pair_id"], alike, strict=True)
            example_by_relation[str(relation_id)] = max(alike, key=len)
    if not label_by_pair:
        return facts, {}
    objects = [
        [{**first, "labels": [label_by_pair[pair_id], *first["labels"]]}, *others_of_pair]
        if pair_id in label_by_pair
        else [first, *others_of_pair]
        for pair_id, (first, *others_of_pair) in facts.pairs.select(
            "pair_id", "objects"
        ).iter_rows()
    ]
    column = pl.Series("objects", objects, facts.pairs.schema["objects"])
    return replace(facts, pairs=facts.pairs.with_columns(column)), example_by_relation


def longest_answer(facts: Facts, language: str, types: Types) -> tuple[str, str]:
    """The relation and the text of the longest right answer; dates are spelled out."""
    kinds = typed_objects(facts, language, 0).kinds if types == "recognised" else {}
    longest = ("", "")
    for pair_id, relation_id, label in _objects(facts).iter_rows():
        dates = reader(language).whole("date", label) if kinds.get(pair_id) == "date" else ()
        spelled = _spell_date(dates[0], _FORMS[1], language) if dates else None
        answer = max(label, spelled or "", key=n_tokens)
        longest = max(longest, (relation_id, answer), key=lambda pair: n_tokens(pair[1]))
    return longest


def n_tokens(text: str) -> int:
    """About how many tokens a text has, a high estimate: a digit is one, and so is a blank there.

    >>> [n_tokens(text) for text in ("Paris", "September 14, 1879", "東京")]
    [2, 12, 2]
    """
    n_latin = sum(-(-len(word) // 4) for word in re.findall(r"[A-Za-zÀ-ɏ]+", text))
    n_others = len(re.findall(r"[^\sA-Za-zÀ-ɏ]", text))
    return n_latin + n_others + len(re.findall(r"\s(?=\d)", text))


def _objects(facts: Facts) -> pl.DataFrame:
    """pair_id, relation_id, label: a row per object, with its first label."""
    label = pl.col("objects").struct.field("labels").list.first()
    rows = facts.pairs.explode("objects")
    return rows.select(pl.col("pair_id", "relation_id").cast(pl.String), label=label)


def _select_declared_types(facts: Facts) -> pl.DataFrame:
    """The types that rows declare: pair_id, type."""
    return facts.extra_tables.get("object_types", empty("object_types")).select("pair_id", "type")


def _type(kind: Kind, labels: pl.Series, language: str) -> ObjectType | None:
    """The type of labels if most are of a kind, else null."""
    readings = {}
    for label in labels:
        values, digits = reader(language).whole(kind, label), label.strip()
        is_year = len(digits) == 4 and values and values[0][0] in _YEARS
        if values and (kind != "date" or not digits.isdigit() or is_year):
            readings[label] = values
    if len(readings) < _MOST * len(labels):
        return None
    values = [values[0] for values in readings.values()]
    n_units = sum(isinstance(value, Quantity) and value.unit != "" for value in values)
    kind = "number" if kind == "quantity" and n_units < len(values) / 2 else kind
    n_ambiguous = sum(len(dates) > 1 for dates in readings.values())
    return ObjectType(kind, len(values), n_ambiguous, len(labels), next(iter(readings)), values[0])


def _dates_alike(labels: Sequence[str], language: str) -> list[str]:
    """The labels in the most frequent form; an ambiguous date keeps its own."""
    readings = [reader(language).whole("date", label) for label in labels]
    dates = [dates[0] if len(dates) == 1 else None for dates in readings]
    texts_by_form = {form: [_spell_date(date, form, language) for date in dates] for form in _FORMS}
    n_equal = {form: sum(map(operator.eq, texts, labels)) for form, texts in texts_by_form.items()}
    texts = texts_by_form[max(_FORMS, key=n_equal.__getitem__)]
    return [text or label for text, label in zip(texts, labels, strict=True)]


def _spell_date(date: Value | None, form: tuple[str, str], language: str) -> str | None:
    """A date in a form for days and one for months; null: a year alone, or before Christ."""
    from babel.dates import format_date

    if not isinstance(date, Date) or not date.month or not 1 <= date.year <= 9999:
        return None
    try:
        day = datetime.date(date.year, date.month, date.day or 1)
    except ValueError:  # 29 February of a year that has none
        return None
    return format_date(day, form[not date.day], locale=locales(language)[0])


def _numbers_alike(labels: Sequence[str]) -> list[str]:
    """The labels with thousands grouped by the most frequent sign, which may be none."""
    signs = [
        grouped[1] if grouped else ""
        for label in labels
        if (grouped := _GROUPED.search(label)) or _PLAIN.search(label)
    ]
    if len({*signs}) < 2:
        return list(labels)
    sign = max(signs, key=signs.count)
    plain = [_GROUPED.sub(lambda number: re.sub(r"\D", "", number[0]), label) for label in labels]
    return [
        _PLAIN.sub(lambda number: f"{int(number[0]):,}".replace(",", sign), text) for text in plain
    ]
