"""Numbers as text: one format for each kind of number, for single numbers and columns."""

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import polars as pl

from factsweep.operators.metrics.shared.rows import Metric

DASH = "–"  # a number that is undefined
_SURE = 12  # digits after the point
_ZERO = re.compile(r"^([+-]?)0\.")


@dataclass(frozen=True)
class Number:
    """How numbers of a kind are written: `factor`, format `spec`, `bare` of a leading zero."""

    spec: str
    factor: float = 1
    bare: bool = False

    def text(self, value: float | None, *, signed: bool = False) -> str:
        """The number as text, `signed` with its plus; a dash for null.

        >>> SHARE.text(0.1575), SHARE.text(-0.0131, signed=True), SHARE.text(None)
        ('.1575', '-.0131', '–')
        >>> COUNT.text(6492800), MEGABYTES.text(4_200_000), percent(2).text(0.1762)
        ('6,492,800', '4.20', '17.62%')
        >>> SHARE.text(0.86875), SHARE.text(0.8687499999999999)
        ('.8688', '.8688')
        """
        if value is None:
            return DASH
        # Sums in another order may differ in the last bit; their texts must not.
        text = format(round(self.factor * value, _SURE), f"{'+' * signed}{self.spec}")
        return _ZERO.sub(r"\1.", text) if self.bare else text

    def column(self, number: pl.Expr, *, signed: bool = False) -> pl.Expr:
        """The numbers of a column as texts; null stays null."""
        return number.map_elements(
            lambda value: self.text(value, signed=signed), return_dtype=pl.String
        )

    def column_with_dashes(self, number: pl.Expr) -> pl.Expr:
        """The numbers of a column as texts, with a dash for null."""
        return self.column(number).fill_null(DASH)

    def interval(
        self,
        between: str = "–",
        *,
        ends: Sequence[str | pl.Expr] = ("ci_low", "ci_high"),
        signed: bool = False,
    ) -> pl.Expr:
        """The ends of an interval as one text; null where one is null.

        Where an end is negative, " to " stands between them: a dash would look like its sign.

        >>> rows = pl.DataFrame({"ci_low": [0.1302, -0.4161], "ci_high": [0.1881, -0.1053]})
        >>> rows.select(SHARE.interval()).to_series().to_list()
        ['.1302–.1881', '-.4161 to -.1053']
        """
        numbers = [pl.col(end) if isinstance(end, str) else end for end in ends]
        texts = [self.column(number, signed=signed) for number in numbers]
        dashed, spelt = (pl.concat_str(*texts, separator=sign) for sign in (between, " to "))
        return pl.when(pl.min_horizontal(numbers) < 0).then(spelt).otherwise(dashed)


@dataclass(frozen=True)
class SignificantDigits(Number):
    """Numbers that are written with three significant digits."""

    def text(self, value: float | None, *, signed: bool = False) -> str:
        """The number as text, `signed` with its plus; a dash for null.

        >>> [THREE_DIGITS.text(value) for value in (0.15749, 13.8631, 1234.5, 0.0, None)]
        ['.157', '13.9', '1,230', '0', '–']
        """
        if value is None:
            return DASH
        rounded = float(f"{value:.3g}")
        digits = max(0, 2 - math.floor(math.log10(abs(rounded)))) if rounded else 0
        return _ZERO.sub(r"\1.", format(rounded, f"{'+' * signed},.{digits}f"))


def percent(digits: int) -> Number:
    """A share in percent, with its sign: 17.62%."""
    return Number(f"z.{digits}%")


def in_percent(digits: int) -> Number:
    """A share in percent where the heading says so: 17.62."""
    return Number(f"z.{digits}f", factor=100)


def decimal(digits: int) -> Number:
    """A number with so many digits after its point: 12.5."""
    return Number(f"z.{digits}f")


SHARE = Number("z.4f", bare=True)  # .1575
THREE_DIGITS = SignificantDigits("")  # 13.9, of a metric that does not say how it is shown
SHORT_SHARE = Number("z.2f", bare=True)  # .16, where there is little room
COUNT = Number(",.0f")  # 6,492,800
HOURS = Number(",.4f")  # 1.0000; a second is .0003 of an hour
PARAMETERS = Number(".3g")  # 1.35e+08, of a model
MONEY = Number(",.4f")  # 0.0123, in the currency of the prices
MEGABYTES = Number(",.2f", factor=1e-6)  # 4.20, from bytes

# The kinds of a paper's metrics; all others are shares.
_KINDS: Mapping[str, Number] = {
    **dict.fromkeys(("relations", "templates", "pairs", "prompts"), COUNT),
    **dict.fromkeys(("unique_triples", "derived_triples"), COUNT),
    **dict.fromkeys(("quantity", "semantics", "manual_rank"), decimal(2)),
    "runtime_hours": Number(".4g"),
    **dict.fromkeys(
        ("billions_of_parameters", "billions_of_training_tokens", "billions_of_training_words"),
        Number(",g"),
    ),
}


def of_metric(metric: str) -> Number:
    """How the papers print a metric."""
    return _KINDS.get(metric, SHARE)


def numbers_of(metrics: Iterable[Metric], default: Number = SHARE) -> dict[str, Number]:
    """How metrics are written, by name: with three digits unless they say that they are shares."""
    return {
        metric.name: _KINDS.get(metric.name, default) if metric.is_share else THREE_DIGITS
        for metric in metrics
        if metric.title
    }


_NO_NUMBERS: Mapping[str, Number] = MappingProxyType({})


def as_printed(
    name: str, *, signed: bool = False, numbers: Mapping[str, Number] = _NO_NUMBERS
) -> pl.Expr:
    """A column of numbers, each as the `metric` of its row is written; a dash for null.

    `numbers` precede how the papers print a metric.
    """

    def text(row: Mapping[str, Any]) -> str:
        kind = numbers.get(row["metric"]) or of_metric(row["metric"])
        return kind.text(row["number"], signed=signed)

    return pl.struct("metric", number=name).map_elements(text, return_dtype=pl.String)


def shares_interval(heading: str) -> pl.Expr:
    """The columns ci_low and ci_high of a share as one text under a heading; a dash for null."""
    return SHARE.interval().fill_null(DASH).alias(heading)


def interval_as_printed(numbers: Mapping[str, Number] = _NO_NUMBERS) -> pl.Expr:
    """The columns ci_low and ci_high in brackets, as the `metric` is printed; empty for null.

    >>> rows = pl.DataFrame({"metric": ["ovconf"], "ci_low": [-0.24], "ci_high": [0.01]})
    >>> rows.select(interval_as_printed()).item()
    ' (-.2400 to .0100)'
    """
    low, high = (as_printed(end, numbers=numbers) for end in ("ci_low", "ci_high"))
    between = pl.when(pl.col("ci_low") < 0).then(pl.lit(" to ")).otherwise(pl.lit("–"))
    text = pl.concat_str(pl.lit(" ("), low, between, high, pl.lit(")"))
    return pl.when(pl.col("ci_low").is_not_null()).then(text).otherwise(pl.lit(""))


def number(name: str, *, signed: bool = False) -> pl.Expr:
    """A column of numbers, with four digits."""
    return SHARE.column(pl.col(name), signed=signed)


def difference() -> dict[str, pl.Expr]:
    """A difference with its interval and its p-values, by heading."""
    interval = SHARE.interval(" to ", signed=True)
    signed = number("difference", signed=True)
    return {"difference": signed, "95 % interval": interval, **p_values()}


def p_values() -> dict[str, pl.Expr]:
    """A p-value, and that after Holm's correction, by heading; the smallest are not written out.

    >>> pl.DataFrame({"p": [0.00001], "p_holm": [0.0117]}).select(**p_values()).row(0)
    ('<.0001', '.0117')
    """
    columns = {"p": pl.col("p"), "p (Holm)": pl.col("p_holm")}
    return {
        heading: pl.when(p < 0.00005).then(pl.lit("<.0001")).otherwise(SHARE.column(p))
        for heading, p in columns.items()
    }
