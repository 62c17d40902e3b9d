"""Numbers and quantities in texts, in the forms of a language; Pint converts their units."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import ROUND_HALF_UP, Context, Decimal, localcontext
from functools import cached_property, lru_cache
from itertools import product
from typing import Any, NamedTuple

from factsweep.operators.matching.cldr import LETTER, WORD, TextValue, fold_text, locales

_NUMBER = re.compile(
    rf"(?<!{WORD})(?<!\d[.,:/])(?<!{LETTER}-)(?P<sign>(?<!{WORD})[+-])?"
    r"(?P<digits>(?>\d{1,3}([ '])\d{3}(?!\d)(?:\3\d{3}(?!\d))*(?:[.,]\d+)?"
    r"|\d+(?:[.,]\d+)*|\.\d+))(?![/:]\d)"
    r"(?:[eE](?P<e>[+-]?\d{1,3})(?!\w)|\s?[x×*·]\s?10\^?(?P<ten>-?\d{1,3}))?"
)
_COMPOUND = re.compile(r"[^\W\d]+[\^\d]*[/·*][\w/^·*().-]*\w\)*")  # kg/m^3
_WORDS = re.compile(r"(\s?)([^\s\d.,;:()]{1,16}(?: [^\s\d.,;:()]{1,16})?)")
_DECADE = re.compile(rf"'?s(?!{LETTER})")  # 1870s
_SQUARED, _POWERS = re.compile("(square|cubic)-([a-z]+)"), {"square": 2, "cubic": 3}
_MORE_UNITS = {"kph": "kilometer/hour", "sq km": "kilometer**2", "sq. km": "kilometer**2"}
# Units that are words of another meaning, too: units at the end of a phrase only.
_PREPOSITIONS = ("in", "a", "at", "to")
_MORE_MULTIPLIERS = {"bn": 9, "mn": 6, "crore": 7, "lakh": 5}
_CURRENCY = "currency "
_DIGITS_SHOWN = 3  # of a converted quantity: those shown alike are within one percent


class Quantity(NamedTuple):
    """A number as precise as it was written, and its unit as Pint writes it; empty: none."""

    value: Decimal
    unit: str = ""

    def __str__(self) -> str:
        """The number without grouping, and the unit."""
        return f"{self.value:f} {self.unit}".rstrip()

    def equals(self, label: "Quantity", tolerance: float) -> bool:
        """Whether it is the label's number at its digits; with units, within a share of it."""
        if not self.unit and not label.unit:
            with localcontext(Context(prec=400, rounding=ROUND_HALF_UP)):
                return self.value.quantize(label.value) == label.value
        number, expected = self.number_in(label.unit), float(label.value)
        return number is not None and abs(number - expected) <= tolerance * abs(expected) + 1e-12

    def number_in(self, unit: str) -> float | None:
        """Its number in another unit; a number without a unit has any. Null: it has none."""
        if self.unit == unit or not self.unit or not unit:
            return float(self.value)
        conversion = _conversion(self.unit, unit)
        return None if conversion is None else float(self.value) * conversion[0] + conversion[1]

    def shown_in(self, unit: str) -> str:
        """The quantity in another unit, to three digits; unchanged without a unit."""
        number = self.number_in(unit) if unit else None
        return str(self) if number is None else f"{Decimal(f'{number:.{_DIGITS_SHOWN}g}'):f} {unit}"


@dataclass(frozen=True)
class QuantityReader:
    """Finds the numbers of texts in a language (a code such as `de`), with their units.

    >>> [str(number.readings[0]) for number in QuantityReader("de").find("8.849 Meter")]
    ['8849 meter']
    """

    language: str

    def find(self, text: str) -> list[TextValue[Quantity]]:
        """The numbers of a folded text; none that is a part of a word, a time or a fraction."""
        numbers: list[TextValue[Quantity]] = []
        end = 0
        for match in _NUMBER.finditer(text):
            value = _number(match, self._decimal) if match.start() >= end else None
            if value is None:
                continue
            _, currency = self._currency(text, match.start(), "")
            power, end = self._multiplier(text, match.end(), is_money=currency != "")
            is_second = bool(numbers) and not text[numbers[-1].end : match.start()].strip()
            unit, end = self._unit(text, end, is_second=is_second)
            is_word = re.match(LETTER, text[end:]) and text[end - 1].isdigit()  # such as 15th
            if is_word or _DECADE.match(text, match.end()):
                continue
            start, unit = self._currency(text, match.start(), unit)
            number = TextValue(start, end, (Quantity(value.scaleb(power), unit),))
            # A sum stands in place of two parts of one: 5 ft 11 in, 1億2000万.
            total = _sum(numbers[-1], number, text) if numbers else None
            if total is not None:
                number = TextValue(numbers.pop().start, end, (total,))
            numbers.append(number)
        return numbers

    @cached_property
    def _decimal(self) -> str:
        from babel.numbers import get_decimal_symbol

        return "," if get_decimal_symbol(locales(self.language)[0]) == "," else "."

    @cached_property
    def _multipliers(self) -> Mapping[str, int]:
        """Words for powers of ten (`million`, `Mio`, `万`), and capitals behind a number: 3M."""
        powers = dict(_MORE_MULTIPLIERS)
        for locale in locales(self.language):
            for width in ("long", "short"):
                for forms in locale.compact_decimal_formats[width].values():
                    for size, form in forms.items():
                        zeros = str(form.pattern).count("0")
                        word = fold_text(re.sub(r"[0'\u200f]", "", str(form.pattern))).strip()
                        word = word if len(word) == 1 else word.lower().rstrip(".")
                        if word and not re.fullmatch("[a-z]", word):
                            powers.setdefault(word, len(size) - zeros)
        return powers

    @cached_property
    def _units(self) -> Mapping[str, str]:
        units: dict[str, str] = {}
        money: dict[str, str] = {}
        babel_locales = locales(self.language)
        for width, locale in product(("long", "short", "narrow"), babel_locales):
            for unit, forms in locale._data["unit_patterns"].items():
                # `speed-kilometer-per-hour` is kilometer/hour in Pint.
                name = unit.partition("-")[2].replace("-per-", "/")
                name = _SQUARED.sub(lambda term: f"{term[2]}**{_POWERS[term[1]]}", name)
                for form in dict(forms.get(width) or {}).values():
                    if str(form).startswith("{0}"):
                        written = fold_text(str(form).removeprefix("{0}")).strip()
                        units.setdefault(written, name.replace("-", "_"))
        for locale in babel_locales:
            plurals = locale._data["currency_names_plural"]
            for code, title in locale.currencies.items():
                names = (title, *dict(plurals.get(code) or {}).values())
                for name in (locale.currency_symbols.get(code, code), code, *names):
                    money.setdefault(fold_text(name), f"{_CURRENCY}{code}")
        units = {**_MORE_UNITS, **units, **money}
        # mW is no MW, but Km is km: other spellings count where they are no unit of their own.
        for name, unit in [*units.items()]:
            for spelling in (name.lower(), name.rstrip("."), name.replace("^", "")):
                units.setdefault(spelling, unit)
        # A full stop ends a sentence where the name is a unit without it: in French, m. is a month.
        return {name: units.get(name.rstrip("."), unit) for name, unit in units.items() if name}

    def _multiplier(self, text: str, start: int, *, is_money: bool) -> tuple[int, int]:
        """The power of ten of the word behind a number, and where that ends; $5m is money."""
        word = _WORDS.match(text, start)
        is_joined_to_money = is_money and word is not None and not word[1]
        for end in range(word.end(), word.start(2), -1) if word else ():
            name = text[word.start(2) : end] if word else ""
            if len(name) == 1:
                power = self._multipliers.get(name.upper() if is_joined_to_money else name)
            else:
                power = self._multipliers.get(name.lower())
            is_cut = re.match(LETTER, name[-1:]) and re.match(LETTER, text[end:])
            if power is None or is_cut or (word and word[1] and re.fullmatch("[A-Z]", name)):
                continue
            return power, end + (text[end : end + 1] == "." and len(name) < 5)
        return 0, start

    def _unit(self, text: str, start: int, *, is_second: bool) -> tuple[str, int]:
        """The unit behind a number and where it ends; `is_second` of two, as in `5 ft 11 in`."""
        blanks = re.compile(r"[\s-]{0,2}").match(text, start)
        unit_start = blanks.end() if blanks else start
        if (compound := _COMPOUND.match(text, unit_start)) and compound[0] not in self._units:
            is_unit = _conversion(compound[0], compound[0]) is not None
            return (compound[0], compound.end()) if is_unit else ("", start)
        for end in range(min(unit_start + self._longest_unit, len(text)), unit_start, -1):
            name, behind = text[unit_start:end], text[end:]
            unit = self._units.get(name) or self._units.get(name.lower())
            if unit is None or (re.match(WORD, name[-1]) and re.match(WORD, behind)):
                continue
            if name in _PREPOSITIONS and not is_second and re.match(r"\s*\w", behind):
                continue
            return unit, end
        return "", start

    @cached_property
    def _longest_unit(self) -> int:
        return max(map(len, self._units))

    def _currency(self, text: str, start: int, unit: str) -> tuple[int, str]:
        """Where a number with the currency in front of it starts, and its unit."""
        sign = re.search(rf"(?<!{LETTER})([A-Z]{{3}}|[A-Z]{{0,3}}[^\w\s])\s?$", text[:start])
        currency = self._units.get(sign[1], "") if sign and not unit else ""
        return (
            (sign.start(), currency) if sign and currency.startswith(_CURRENCY) else (start, unit)
        )


def _number(match: re.Match[str], decimal: str) -> Decimal | None:
    digits = re.sub("[ ']", "", match["digits"])
    signs, groups = re.findall("[.,]", digits), re.split("[.,]", digits)
    last = signs[-1] if signs else decimal
    integer, _, fraction = digits.rpartition(last) if signs else (digits, "", "")
    if len({*signs}) == 2:
        if signs.count(last) > 1 or not _are_groups([*groups[:-1], "000"]):
            return None
    elif len(signs) > 1 or (signs and _are_groups(groups) and last != decimal):
        if not _are_groups(groups):
            return None
        integer, fraction = digits, ""
    sign, power = "-" * (match["sign"] == "-"), int(match["e"] or match["ten"] or 0)
    return Decimal(f"{sign}{re.sub('[.,]', '', integer) or 0}.{fraction}").scaleb(power)


def _are_groups(groups: Sequence[str]) -> bool:
    """Whether digits are grouped by thousands, or as in India."""
    first, *sizes = map(len, groups)
    return first in (1, 2, 3) and groups[0] != "0" and {*sizes} <= {2, 3} and sizes[-1] == 3


def _sum(first: TextValue[Quantity], second: TextValue[Quantity], text: str) -> Quantity | None:
    """The sum of two neighbours that are one quantity; null: they are two."""
    (large,), (small,), gap = first.readings, second.readings, text[first.end : second.start]
    exponent = large.value.as_tuple().exponent
    if not gap and isinstance(exponent, int) and exponent > small.value.adjusted() > 0:
        return Quantity(large.value + small.value, small.unit)
    if gap.strip() or not large.unit or small.unit in ("", large.unit):
        return None
    part = small.number_in(large.unit)
    is_part = part is not None and 0 < part < 1
    return Quantity(large.value + Decimal(f"{part:.9f}"), large.unit) if is_part else None


@lru_cache(maxsize=4096)
def _conversion(unit: str, other: str) -> tuple[float, float] | None:
    """Factor and summand that convert a unit into another; null: they measure different things."""
    if _CURRENCY in f"{unit} {other}":
        return None
    import pint

    registry = _registry()
    source, target = (name.replace("^", "**").replace("·", "*") for name in (unit, other))
    try:
        zero, unity = (float(registry.Quantity(n, source).to(target).magnitude) for n in (0.0, 1.0))
    except (pint.PintError, AssertionError, ValueError, TypeError, SyntaxError):
        return None
    return unity - zero, zero


@lru_cache(maxsize=1)
def _registry() -> Any:
    import pint

    return pint.UnitRegistry()
