"""Until it is sure: which budget comes next, and whether the interval is narrow enough."""

from dataclasses import dataclass, field
from typing import NamedTuple

import polars as pl

from factsweep.operators.estimates.intervals import within_bounds
from factsweep.operators.estimates.looks import Look, Z, look, next_share
from factsweep.operators.tables.shared.numbers import SHARE, percent
from factsweep.pipeline.config.budget import Target, budget

_PERCENT = percent(2)


class Seen(NamedTuple):
    """What a look saw: the estimates, with the target's interval as wide as all looks need it."""

    estimates: pl.DataFrame
    sentence: str  # how far it got
    budget: str | None  # the next one; null at the end


@dataclass
class Narrowing:
    """The looks at one setting's estimates."""

    target: Target
    variances: list[float] = field(default_factory=list)
    shares: list[float] = field(default_factory=list)

    def see(self, estimates: pl.DataFrame, asked: str) -> Seen:
        """Look at the estimates of a budget, and say whether more is asked, and how much."""
        is_target = pl.col("metric") == self.target.metric
        row = estimates.filter(is_target).row(0, named=True)
        share = self._share(row, asked)
        self.shares.append(share)
        if row["full_low"] is None:
            more = next_share(share, None, self.target.half_width)
            return Seen(estimates, self._sentence(row, None), as_budget(more))
        half = max(row["full_high"] - row["value"], row["value"] - row["full_low"])
        if half == 0 and share >= 1:
            return Seen(estimates, self._sentence(row, None), None)
        self.variances.append((half / Z) ** 2)
        found = look(self.variances, self.target.half_width)
        _, low, high, _ = within_bounds(row["value"], found.half_width)
        ends = {"full_low": low, "full_high": high}
        wider = estimates.with_columns(
            pl.when(is_target).then(pl.lit(end)).otherwise(pl.col(name)).alias(name)
            for name, end in ends.items()
        )
        sentence = self._sentence(row, found)
        if found.half_width <= self.target.half_width or share >= 1:
            return Seen(wider, sentence, None)
        more = next_share(share, self.variances[-1], self.target.half_width)
        return Seen(wider, sentence, as_budget(more))

    def _share(self, row: dict[str, object], asked: str) -> float:
        """The share that was asked for; answers may be missing."""
        of = budget(asked)
        if of.share is not None:
            return of.share
        n, share = int(str(row["n"])), float(str(row["share"]))
        return min(1.0, float(of.n_prompts or n) / (n / share))

    def _sentence(self, row: dict[str, object], found: Look | None) -> str:
        name, wanted = self.target.metric, SHARE.text(self.target.half_width)
        asked = f"{_PERCENT.text(self.shares[-1])} of the prompts"
        value = row["value"]
        known = "–" if value is None else SHARE.text(float(str(value)))
        if found is None and self.shares[-1] >= 1:
            return f"{name} is {known}, of all prompts: exactly, since ±{wanted} took them all."
        if found is None:
            return f"{name} is {known} from {asked}, and nothing says yet how exact that is."
        looks = f"look {len(self.shares)}, {found.bound:.2f} standard errors for {Z:.2f}"
        half = SHARE.text(found.half_width)
        if found.half_width <= self.target.half_width:
            return f"{name} is {known} ± {half} from {asked}, no wider than ±{wanted} ({looks})."
        return f"{name} is {known} ± {half} from {asked}, wider than ±{wanted} ({looks})."


def as_budget(share: float) -> str:
    """A share as a budget.

    >>> as_budget(0.0141421356)
    '1.41421%'
    """
    return f"{100 * share:.6g}%"
