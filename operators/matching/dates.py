"""Dates in texts: days, months and years in the forms of a language, and in English."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from factsweep.operators.matching import cldr
from factsweep.operators.matching.cldr import LETTER, WORD, TextValue, alternation, fold_text, words

_JOINTS = words("of the day in year de del d la im jahr jahre des jahres año")
_LEADS = words("c ca circa about around am le el en an année год")
_ORDINAL = r"(?:st|nd|rd|th|er|re|o|a|e|-?(?:го|е|й))?(?![^\W\d_])"
_BEFORE_CHRIST = (
    *words("bc bce 前 公元前"),
    *("b c", "b c e", "v u z", "a c", "vor christus", "до н э"),
)
_OUR_ERA = ("ad", "ce", "a d", "c e", "n chr")
_CENTURIES = (1900, 2000, 1800, 1700)  # of a year of two digits
_THIRTY = (4, 6, 9, 11)


class Date(NamedTuple):
    """A day, a month (day 0) or a year (month 0); years before Christ are negative."""

    year: int
    month: int = 0
    day: int = 0

    def __str__(self) -> str:
        """As ISO 8601 writes it at this precision."""
        parts = [f"{part:02d}" for part in self[1:] if part]
        return "-".join([f"{'-' * (self.year < 0)}{abs(self.year):04d}", *parts])

    def at_precision_of(self, other: "Date") -> "Date":
        """The date without the parts that the other one lacks."""
        return Date(self.year, self.month if other.month else 0, self.day if other.day else 0)

    @property
    def exists(self) -> bool:
        """Whether the calendar has it; 29 February counts in every year."""
        longest = 29 if self.month == 2 else 30 if self.month in _THIRTY else 31
        return self.month <= 12 and self.day <= longest


@dataclass(frozen=True)
class DateReader:
    """Finds the dates of texts in a language (a code such as `de`).

    >>> [str(date.readings[0]) for date in DateReader("en").find("on march 14th, 1879")]
    ['1879-03-14']
    """

    language: str

    def find(self, text: str, *, with_bare_numbers: bool = True) -> list[TextValue[Date]]:
        """The dates of a folded text in lower case; bare numbers are years, or 3/1879."""
        dates: list[TextValue[Date]] = []
        behind, in_front = self._before_christ
        for pattern, is_bare_number in self._patterns:
            if is_bare_number and not with_bare_numbers:
                continue
            for match in pattern.finditer(text):
                eras = in_front.search(text, 0, match.start()), behind.match(text, match.end())
                is_negative = any(eras) or in_front.match(match[0]) is not None
                if readings := tuple(dict.fromkeys(self._readings(match, is_negative))):
                    start = eras[0].start() if eras[0] else match.start()
                    end = eras[1].end() if eras[1] else match.end()
                    dates.append(TextValue(start, end, readings))
                    text = cldr.blank_out(text, dates[-1:])
        return sorted(dates)

    @cached_property
    def fillers(self) -> set[str]:
        """Words around a date that do not change it, such as the day of the week."""
        names = [
            name
            for locale in cldr.locales(self.language)
            for days in locale.days["format"].values()
            for name in days.values()
        ]
        return {*_LEADS, *self._joints, *words(" ".join(names))}

    @cached_property
    def _months(self) -> Mapping[str, int]:
        months = {"sept": 9}
        for locale in cldr.locales(self.language):
            for context in ("format", "stand-alone"):
                for width in ("wide", "abbreviated"):
                    for number, name in locale.months[context][width].items():
                        if words(name):
                            months.setdefault(fold_text(name).lower().rstrip("."), number)
        return months

    @cached_property
    def _joints(self) -> set[str]:
        """Words that stand between the parts of a date."""
        locale = cldr.locales(self.language)[0]
        patterns = " ".join(str(form.pattern) for form in locale.date_formats.values())
        literals = re.sub("[A-Za-z]+", " ", re.sub("'[^']*'", " ", patterns))
        quoted = re.findall("'([^']*)'", patterns)
        era = locale.eras["abbreviated"].get(1, "")
        return {*_JOINTS, *words(" ".join([literals, *quoted, era]))}

    @cached_property
    def _orders(self) -> tuple[str, ...]:
        """How the language orders a date of three numbers; English has two ways."""
        locale = cldr.locales(self.language)[0]
        pattern = re.sub("'[^']*'", "", str(locale.date_formats["short"].pattern))
        order = "".join(dict.fromkeys(re.findall("[dMy]", pattern))).lower()
        return ("mdy", "dmy") if locale.language == "en" else (order,)

    @cached_property
    def _patterns(self) -> list[tuple[re.Pattern[str], bool]]:
        """Patterns of dates, the fullest first, each with whether it is of bare numbers."""
        joint = rf"(?:[\s.,/–-]|{alternation(self._joints)}){{0,9}}?"
        month = rf"(?P<name>{alternation(self._months)})(?!{LETTER})\.?"
        day, year = rf"(?P<d>\d{{1,2}})(?!\d){_ORDINAL}", r"(?P<y>\d{3,4})(?!\d)"
        begin, sign = rf"(?<!{WORD})(?<!\d[.,/])", rf"(?<!{WORD})(?<!\d[./,-])(?P<sign>[+-])?"
        name = rf"(?<!{LETTER}){month}"
        any_era = rf"(?:{self._era(0)}|{self._era(1)})"
        time = r"(?:[t ]\d\d:\d\d(?::\d\d(?:\.\d+)?)?(?:z|[+-]\d\d:?\d\d)?)?"
        numbers = r"(?P<a>\d{1,2})(?P<sep>[./-]) ?(?P<b>\d{1,2})[./-] ?(?P<c>\d{4}|\d{1,2})(?!\d)"
        full = (
            rf"{sign}(?P<y>\d{{3,6}})[-/.] ?(?P<m>\d{{1,2}})[-/.] ?(?P<d>\d{{1,2}})(?!\d){time}",
            r"(?<!\d)(?P<y>\d{1,4}) ?[年년] ?(?P<m>\d\d?) ?[月월](?: ?(?P<d>\d\d?) ?[日일号號])?",
            rf"{begin}{day}{joint}{month}{joint}{year}",
            rf"{name}{joint}{day}{joint}{year}",
            rf"{begin}{year}{joint}{month}{joint}{day}",
            rf"{begin}{year}{joint}{day}{joint}{month}",
            rf"{begin}{numbers}",
            rf"{name}{joint}{year}",
            rf"{begin}{year}{joint}{month}",
        )
        bare = (
            rf"{begin}(?P<m>\d{{1,2}})[./-](?P<y>\d{{4}})(?!\d)",
            rf"{sign}(?P<y>\d{{4}})[/-](?P<m>\d{{1,2}})(?!\d)",
            r"(?<!\d)(?P<y>\d{1,4}) ?[年년]",
            rf"{begin}(?P<y>\d{{1,4}})(?=[ ,.]{{0,2}}{any_era}(?!{LETTER}))",
            rf"(?<!{LETTER}){any_era}[ .]{{0,2}}(?P<y>\d{{1,4}})(?!\d)",
            rf"{begin}(?:(?<![^\s(])(?P<sign>-))?(?!0\d\d\b){year}(?!{WORD})(?![.,]\d)",
        )
        return [(re.compile(text), text in bare) for text in (*full, *bare)]

    def _era(self, place: int) -> str:
        names = {" ".join(words(name)) for name in (_BEFORE_CHRIST, _OUR_ERA)[place]}
        for locale in cldr.locales(self.language):
            for width in ("wide", "abbreviated"):
                names.add(" ".join(words(locale.eras[width].get(place, ""))))
        return alternation(names - {""}).replace(r"\ ", "[ .-]*")

    @cached_property
    def _before_christ(self) -> tuple[re.Pattern[str], re.Pattern[str]]:
        names = self._era(0)
        behind = re.compile(rf"[ ,.年]{{0,2}}(?:{names})\.?(?!{LETTER})")
        return behind, re.compile(rf"(?<!{LETTER})(?:{names})[ .]{{0,2}}(?=\d|$)")

    def _readings(self, match: re.Match[str], is_negative: bool) -> Iterator[Date]:
        parts = match.groupdict()
        if "a" in parts:  # three numbers, in the order of the language or else in any that fits
            numbers = [parts["a"], parts["b"], parts["c"]]
            is_dotted = parts["sep"] == "." and self._orders[0] != "ymd"
            usual = ("dmy",) if is_dotted else self._orders
            in_order, in_any = (
                [date for order in orders for date in _in_order(order, numbers)]
                for orders in (usual, ("dmy", "mdy"))
            )
            yield from in_order or in_any
            return
        year = int(parts["y"]) * (-1 if is_negative or parts.get("sign") == "-" else 1)
        month = self._months[parts["name"]] if "name" in parts else int(parts.get("m") or 0)
        date = Date(year, month, int(parts.get("d") or 0) if month else 0)
        if date.exists and year:
            yield date


def _in_order(order: str, numbers: list[str]) -> Iterator[Date]:
    """The dates of three numbers in an order; of a short year in each century."""
    number = dict(zip(order, numbers, strict=True))
    if len(number["y"]) > 1 and len(number["d"]) <= 2:
        for century in _CENTURIES if len(number["y"]) == 2 else (0,):
            date = Date(century + int(number["y"]), int(number["m"]), int(number["d"]))
            if date.exists and date.month and date.day:
                yield date
