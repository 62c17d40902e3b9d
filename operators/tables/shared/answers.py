"""A run's matched answers, read a relation at a time, where tables compare runs."""

from collections.abc import Callable
from typing import NamedTuple

import polars as pl


class Answers(NamedTuple):
    """The answers to the prompts of some relations; `of` reads those of one."""

    relations: tuple[str, ...]
    of: Callable[[str], pl.DataFrame]

    def all(self) -> pl.DataFrame:
        """Those of all relations together."""
        return pl.concat(map(self.of, self.relations))
