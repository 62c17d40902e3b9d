"""Graders of open questions that need no network: `exact` and `contains`.

No paper defines `contains`: its rules are ours (docs/metrics.md), measured against people's
judgements of EfficientQA.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple, Protocol

import polars as pl

from factsweep.operators.matching.answer_span import squad_words
from factsweep.operators.matching.answer_words import Words, as_digits, split_texts
from factsweep.operators.matching.cldr import fold_text
from factsweep.operators.matching.cldr import words as split_words
from factsweep.operators.matching.dates import Date
from factsweep.operators.matching.normalise import Normaliser
from factsweep.operators.matching.quantities import Quantity
from factsweep.operators.matching.values import reader

Gold = Mapping[str, Sequence[str]]  # the right answers of a pair, by pair_id


class Grader(Protocol):
    """Decides which answers are right; `name` is its name in tables."""

    @property
    def name(self) -> str:
        """The column `grader`."""

    def grade(self, rows: pl.DataFrame, gold: Gold) -> pl.Series:
        """Whether each row (pair_id, span) is right: booleans, in the order of the rows."""


@dataclass(frozen=True)
class Exact:
    """An answer span that is a right answer, as Natural Questions compares them.

    Source: Lee et al. 2019, section 5 (exact match after SQuAD's normalisation).

    >>> rows = pl.DataFrame({"pair_id": ["q1", "q1"], "span": ["The Beatles!", "Beatles, Wings"]})
    >>> Exact().grade(rows, {"q1": ["Beatles"]}).to_list()
    [True, False]
    """

    name: str = "exact"

    def grade(self, rows: pl.DataFrame, gold: Gold) -> pl.Series:
        """Whether the words of each span are those of a right answer."""
        right = {
            pair_id: {tuple(squad_words(label)) for label in gold.get(pair_id, ())}
            for pair_id in rows["pair_id"].unique()
        }
        verdicts = (
            tuple(squad_words(span)) in right[pair_id]
            for pair_id, span in rows.select("pair_id", "span").iter_rows()
        )
        return pl.Series("is_right", verdicts, pl.Boolean)


_LEADS = frozenset(
    split_words("in on at of from through by for to since about around during circa approximately")
)
# A name without one of these is another name: South Korea, the Vice President.
_QUALIFIERS = frozenset(
    split_words(
        "new old north south east west northern southern eastern western central upper lower vice "
        "deputy not non anti"
    )
)
_LONGEST_NAME = 5  # words
_BRACKETS = re.compile(r"\s+\([^()]*\)\s*$")  # not those of O(n)


class Label(NamedTuple):
    """A right answer: its words, those before a comma, and what it denotes if it is a value."""

    words: Words
    head: Words
    dates: Sequence[Date]
    number: Quantity | None


@dataclass(frozen=True)
class Contains:
    """An answer span that has a right answer in it.

    Right is a run of whole words, lemmas compared, articles and accents ignored; a date that agrees
    at the precision of the right answer and contradicts no other; an equal number; a name with
    further names or initials in it, or without some; a right answer without the preposition or
    title in front of it, the brackets or the region behind it.

    >>> rows = pl.DataFrame({"pair_id": "q1", "span": ["It was Eddie Paul Martinez", "Martinez"]})
    >>> Contains(Normaliser(), "en").grade(rows, {"q1": ["Eddie Martinez"]}).to_list()
    [True, False]
    """

    normaliser: Normaliser
    language: str
    name: str = "contains"

    def grade(self, rows: pl.DataFrame, gold: Gold) -> pl.Series:
        """Whether each span has a right answer of its pair in it."""
        pairs = rows.select("pair_id", "span").unique()
        labels = {
            pair_id: [*dict.fromkeys(form for label in gold[pair_id] for form in _forms(label))]
            for pair_id in pairs["pair_id"].unique()
        }
        heads = {form: form.partition(",")[0] for forms in labels.values() for form in forms}
        texts = {*pairs["span"], *heads, *heads.values()}
        words = split_texts(self.normaliser, self.language, texts)
        read = {form: self._label(form, words, head) for form, head in heads.items()}
        verdicts = [
            self._is_right(span, words[span], [read[form] for form in labels[pair_id]])
            for pair_id, span in pairs.iter_rows()
        ]
        verdict = pairs.with_columns(is_right=pl.Series(verdicts, dtype=pl.Boolean))
        return rows.join(verdict, on=["pair_id", "span"], how="left", maintain_order="left")[
            "is_right"
        ]

    def _label(self, label: str, words: Mapping[str, Words], head: str) -> Label:
        values = reader(self.language)
        bare = label
        while (parts := bare.split(maxsplit=1))[1:] and parts[0].lower() in _LEADS:
            bare = parts[1]
        dates = [date for date in values.whole("date", bare) if isinstance(date, Date)]
        numbers = values.whole("quantity", self._digits(fold_text(bare).lower()))
        number = next((value for value in numbers if isinstance(value, Quantity)), None)
        is_place = head != label and not any(map(str.isdigit, head))
        return Label(words[label], words[head] if is_place else (), dates, number)

    def _digits(self, text: str) -> str:
        return " ".join(as_digits(text.split(), self.language))

    def _is_right(self, span: str, words: Words, labels: Sequence[Label]) -> bool:
        if not words:
            return False
        values = reader(self.language)
        folded = fold_text(span).lower()
        dates: list[Date] = []
        numbers: list[Quantity] = []
        if any(label.dates for label in labels):
            dates = [date for value in values.dates.find(folded) for date in value.readings]
        if any(label.number for label in labels):
            written = values.find("quantity", self._digits(folded))
            readings = (n for value in written for n in value.readings)
            numbers = [number for number in readings if isinstance(number, Quantity)]
        gold_dates = [date for label in labels for date in label.dates]
        return any(
            _agree(dates, label.dates, gold_dates)
            or _is_number(numbers, label.number)  # a bare year may be a number, too
            or (not label.dates and _names(words, label))
            for label in labels
        )


def _forms(label: str) -> Iterable[str]:
    """A right answer, and the same without a bracket at its end."""
    yield label
    if bare := _BRACKETS.sub("", label):
        yield bare


def _agree(dates: Sequence[Date], label: Sequence[Date], gold: Sequence[Date]) -> bool:
    """Whether a date denotes the label's day, month or year, and contradicts no right date.

    A month agrees with a day in it.
    """
    for date in dates:
        is_month = bool(date.month) and not date.day
        agrees = any(
            date.at_precision_of(right) == right
            or (is_month and right.at_precision_of(date) == date)
            for right in label
        )
        if agrees and not any(_contradict(date, right) for right in gold):
            return True
    return False


def _contradict(first: Date, second: Date) -> bool:
    if first.year != second.year or not (first.month and second.month):
        return False
    return first.month != second.month or (
        bool(first.day and second.day) and first.day != second.day
    )


def _is_number(numbers: Sequence[Quantity], label: Quantity | None) -> bool:
    return label is not None and any(number.equals(label, 0) for number in numbers)


def _names(words: Words, label: Label) -> bool:
    """Whether the words of a span name the label, which is no date."""
    gold = label.words
    if not gold:
        return False
    bare = _strip_leading_prepositions(gold)
    if _has_run(words, gold) or _has_run(words, bare):
        return True
    answer = _strip_leading_prepositions(words)
    if label.head and answer == label.head:
        return True
    if _is_acronym(words, gold) or _is_acronym(gold, words):
        return True
    if any(any(map(str.isdigit, word)) for word in gold) or len(gold) > _LONGEST_NAME:
        return False
    if len(gold) > 2 and answer == gold[1:] and gold[0] not in _QUALIFIERS:  # without a title
        return True
    ends = (end for end in range(2, len(words) + 1) if words[end - 1] == gold[-1])
    return _is_short_for(words, gold) or any(
        _is_short_for(gold, words[start:end])
        for end in ends
        for start in range(max(0, end - len(gold) - 2), end - 1)
    )


def _strip_leading_prepositions(words: Words) -> Words:
    """The words without prepositions in front; the last word is kept."""
    start = 0
    while start < len(words) - 1 and words[start] in _LEADS:
        start += 1
    return words[start:]


def _has_run(words: Words, run: Words) -> bool:
    n = len(run)
    return bool(n) and any(words[i : i + n] == run for i in range(len(words) - n + 1))


def _is_short_for(short: Words, long: Words) -> bool:
    """Whether a name of two words or more is the long one without some of its inner words.

    An initial stands for a word that begins with it: George W. Bush has no other inner name. The
    last word is no letter, nor a character of a script without blanks.
    """
    has_initial = any(len(word) == 1 for word in short[1:-1])
    if (has_initial and len(short) < len(long)) or not _QUALIFIERS.isdisjoint({*long} - {*short}):
        return False
    if min(len(short), len(long)) < 2 or short[-1] != long[-1] or len(short[-1]) < 2:
        return False
    if not (_are_alike(short[0], long[0]) or _is_beginning(short[0], long[0])):
        return False
    places = [0]
    for word in short[1:-1]:
        later = range(places[-1] + 1, len(long) - 1)
        place = next((n for n in later if _are_alike(word, long[n])), None)
        if place is None:
            return False
        places.append(place)
    return all(first < second for first, second in pairwise([*places, len(long) - 1]))


def _is_beginning(first: str, second: str) -> bool:
    """Whether a first name begins with the other one: Ray and Raymond."""
    shorter, longer = sorted((first, second), key=len)
    return len(shorter) > 2 and longer.startswith(shorter)


def _is_acronym(short: Words, long: Words) -> bool:
    """Whether a word has the initials of three words or more, or of single letters."""
    initials = "".join(word[0] for word in long)
    return short == (initials,) and (len(long) > 2 or all(len(word) == 1 for word in long))


def _are_alike(first: str, second: str) -> bool:
    """Whether two words are equal, or one is the other's initial."""
    shorter, longer = sorted((first, second), key=len)
    return shorter == longer or (len(shorter) == 1 and longer.startswith(shorter))
