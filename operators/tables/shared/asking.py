"""A run's place in tables that compare runs."""

from typing import NamedTuple


class Asking(NamedTuple):
    """Who was asked how: one row of a table of results."""

    model: str
    setting: str
    variant: str | None

    def __str__(self) -> str:
        """As it stands in tables and figures."""
        return " ".join(filter(None, self))
