"""What is said of a metric beside its numbers; each metric declares it beside its function."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal

import polars as pl

Better = Literal["higher", "lower", "zero"]


@dataclass(frozen=True)
class Metric:
    """A metric's name in the metrics table, and how it is shown.

    `heading` stands over its column and before its row on the card; without one, it has neither.
    `says` is its line of the glossary. `better` is the end that is best; null: neither. `terms`, of
    a ratio of two sums over pairs, gives each pair's terms from the table of answers.
    """

    name: str
    heading: str = ""
    says: str = ""
    better: Better | None = None
    terms: Callable[[pl.DataFrame], pl.DataFrame] | None = None


def headings(metrics: Iterable[Metric]) -> dict[str, str]:
    """The heading of each metric that has one, by its name and in the order given."""
    return {metric.name: metric.heading for metric in metrics if metric.heading}


def higher_is_better(metrics: Iterable[Metric]) -> dict[str, bool]:
    """Whether the higher number is the better one, for each metric of which either is.

    >>> higher_is_better([Metric("f1", better="higher"), Metric("ovconf", better="zero")])
    {'f1': True}
    """
    ends = {"higher": True, "lower": False}
    return {each.name: ends[each.better] for each in metrics if each.better in ends}
