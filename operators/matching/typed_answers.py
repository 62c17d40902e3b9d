"""Answers with dates, numbers and quantities, which are compared as values.

No paper: the rules are ours (docs/metrics.md). Babel and Pint load on first use.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Literal, NamedTuple

import polars as pl

from factsweep.operators.matching.cldr import TextValue, blank_out, fold_text
from factsweep.operators.matching.dates import Date, DateReader
from factsweep.operators.matching.lemmas import SEPARATOR
from factsweep.operators.matching.quantities import Quantity, QuantityReader

Kind = Literal["date", "number", "quantity"]
TYPES = ("name", "date", "number", "quantity")
Value = Date | Quantity


class WrittenValue(NamedTuple):
    """A value, and how it is written, in lower case."""

    value: Value
    text: str


class Reader(NamedTuple):
    """What reads the values of a language."""

    dates: DateReader
    quantities: QuantityReader

    def find(self, kind: Kind, text: str) -> Sequence[TextValue[Date] | TextValue[Quantity]]:
        """The values of a kind in the first line of a text, in their order.

        Numbers in dates are none; where a text has no value of the kind, its dates or numbers are
        given, so that it is no name.
        """
        line = first_line(text)
        if not re.search(r"\d", line):
            return []
        if kind == "date":
            return self.dates.find(line.lower()) or self.quantities.find(line)
        dates = self.dates.find(line.lower(), with_bare_numbers=False)
        numbers = self.quantities.find(blank_out(line, dates))
        if kind == "number":
            numbers = [TextValue(*n[:2], (n.readings[0]._replace(unit=""),)) for n in numbers]
        return numbers or dates

    def whole(self, kind: Kind, text: str) -> Sequence[Value]:
        """The readings of a text that is a value of this kind and nothing else; none if not."""
        line, values = fold_text(text).strip(), self.find(kind, text)
        if len(values) != 1 or (kind == "date") != isinstance(values[0].readings[0], Date):
            return ()
        words = re.findall(r"[^\W_]+|[%$€£¥°#&@^]", blank_out(line, values).lower())
        is_code = kind != "date" and re.match(r"[+-]?0\d", line[values[0].start :])
        return () if is_code or {*words} - self.dates.fillers else values[0].readings


@lru_cache(maxsize=32)
def reader(language: str) -> Reader:
    """The reader of a language (a code such as `de`), whose words are looked up once.

    >>> str(reader("de").whole("quantity", "8.849 m")[0]), reader("en").whole("date", "May")
    ('8849 meter', ())
    """
    return Reader(DateReader(language), QuantityReader(language))


def first_line(text: str) -> str:
    """The line of a text in which values are read."""
    return fold_text(text).strip().partition("\n")[0]


@dataclass(frozen=True)
class TypedObjects:
    r"""Objects that are compared as values: `kinds` has the kind of each pair's, by pair_id.

    Texts are read in `language`; quantities are equal within the share `tolerance`.

    >>> typed = TypedObjects({"a": "date"}, "en", 0.01)
    >>> rows = pl.DataFrame({"pair_id": "a", "text": ["It was May 2, 1900.", "?"], "key": "?"})
    >>> labels = pl.DataFrame({"pair_id": "a", "text": ["1900"], "key": "1900"})
    >>> typed.keyed(rows, labels)["key"].to_list()
    ['\x1f1900\x1f', '?']
    """

    kinds: Mapping[str, Kind]
    language: str
    tolerance: float

    @cached_property
    def _pairs(self) -> pl.DataFrame:
        return pl.DataFrame({"pair_id": [*self.kinds]}, {"pair_id": pl.String})

    def keyed(self, rows: pl.DataFrame, labels: pl.DataFrame) -> pl.DataFrame:
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
            written = [self._written(value, right or ()) for value in answer_values]
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

    def _written(self, answer: WrittenValue, labels: Sequence[WrittenValue]) -> Value | str:
        """A value as the label that it agrees with, or else in the way of the first label."""
        value, text = answer
        agreeing = [label.value for label in labels if self._agree(value, label.value)]
        agreeing += [label.value for label in labels if label.text == text]  # "512 mb" for 512 MB
        if agreeing:
            return agreeing[0]
        first = labels[0].value
        if isinstance(value, Date):
            return value.at_precision_of(first) if isinstance(first, Date) else value
        return value.shown_in(first.unit) if isinstance(first, Quantity) else value

    def _agree(self, value: Value, label: Value) -> bool:
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


_TWO_DAYS = r"\x1f(-?\d{4,}-)(\d\d)-(\d\d)\x1f(-?\d{4,}-)(\d\d)-(\d\d)\x1f"


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
