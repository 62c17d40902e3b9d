"""Dates, numbers and quantities in texts, as the values that they denote."""

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Literal, NamedTuple

from factsweep.operators.matching.cldr import TextValue, blank_out, fold_text
from factsweep.operators.matching.dates import Date, DateReader
from factsweep.operators.matching.quantities import Quantity, QuantityReader

Kind = Literal["date", "number", "quantity"]
Value = Date | Quantity


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
