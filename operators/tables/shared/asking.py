"""A run in tables that compare runs: its place, and its answers."""

from collections.abc import Callable
from typing import NamedTuple

import polars as pl


class Asking(NamedTuple):
    """Who was asked how: one row of a table of results."""

    model: str
    setting: str
    variant: str | None

    def __str__(self) -> str:
        """As it stands in tables and figures."""
        return " ".join(filter(None, self))


def called(*names: str | pl.Expr) -> pl.Expr:
    """What is called by the values of some columns together; those that are null are left out."""
    return pl.concat_str(*names, separator=" ", ignore_nulls=True)


class Answers(NamedTuple):
    """The answers to the prompts of some relations; `of` reads those of one."""

    relations: tuple[str, ...]
    of: Callable[[str], pl.DataFrame]

    def all(self) -> pl.DataFrame:
        """Those of all relations together."""
        return pl.concat(map(self.of, self.relations))
