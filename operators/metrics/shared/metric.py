"""A metric and how it is shown; each is declared in its module, next to its function."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal

import polars as pl

Better = Literal["higher", "lower", "zero"]


@dataclass(frozen=True)
class Metric:
    """A metric's name in the metrics table, and how it is shown.

    `heading` is the title of its column, and of its row on the card; a metric without one has
    neither. `says` is its line in the glossary. `better` is the direction in which it improves;
    null: none. `range` has the least and the largest possible value. `terms` computes, for a ratio
    of two sums over pairs, each pair's terms from the table of answers.
    """

    name: str
    heading: str = ""
    says: str = ""
    better: Better | None = None
    range: tuple[float, float] = (0, 1)
    terms: Callable[[pl.DataFrame], pl.DataFrame] | None = None


def headings(metrics: Iterable[Metric]) -> dict[str, str]:
    """The heading of each metric that has one, by its name and in the order given."""
    return {metric.name: metric.heading for metric in metrics if metric.heading}


def higher_is_better(metrics: Iterable[Metric]) -> dict[str, bool]:
    """Whether higher is better, for each metric with one better direction.

    >>> higher_is_better([Metric("f1", better="higher"), Metric("ovconf", better="zero")])
    {'f1': True}
    """
    ends = {"higher": True, "lower": False}
    return {metric.name: ends[metric.better] for metric in metrics if metric.better in ends}
