"""What a run with a budget has estimated so far: from the blocks of it that are answered.

All blocks up to one are the sample of a smaller budget, so that what is estimated from them holds.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import polars as pl

from factsweep.operators.tables.runs.estimates import headlines
from factsweep.operators.wording import count
from factsweep.pipeline.estimates import written
from factsweep.pipeline.estimates.answers import Estimates
from factsweep.pipeline.estimates.control import estimated_setting, named
from factsweep.pipeline.execution.plan import Branch, Plan
from factsweep.pipeline.execution.work import branch_work
from factsweep.pipeline.live.measuring import Measures, SoFar
from factsweep.pipeline.stages.asking import remaining
from factsweep.pipeline.storage.artifact import Artifact


@dataclass(frozen=True)
class UpTo(Artifact):
    """The prompts of a budget in its first blocks, as if these were all; only read."""

    block: int = 0

    def read(
        self,
        table: str,
        shard: str,
        columns: Sequence[str] | None = None,
        categories: Sequence[str] = (),
    ) -> pl.DataFrame:
        """A shard without later blocks."""
        rows = super().read(table, shard, categories=categories)
        if "block" in rows.columns:
            rows = rows.filter(pl.col("block") <= self.block)
        return rows if columns is None else rows.select(columns)


class Blocks(Measures[int]):
    """Estimates from the blocks of a plan that are answered; the first are to come soon."""

    said = "Estimates are from the first blocks of the budget, each a sample by itself."
    whole_shards = False
    every_s = 10.0
    rest = 5

    def __init__(self, plan: Plan) -> None:
        super().__init__(plan)
        self._named = named(plan)

    def _there(self, branch: Branch) -> int | None:
        """The last block of a setting up to which all are answered; null: there is none."""
        chosen = branch.chosen
        assert chosen is not None
        if not (chosen.is_complete() and branch.admitted.is_complete()):
            return None
        needed = chosen.read_all("needed")["block"].cast(pl.Int64)
        items = list(branch_work(self._plan.run, branch))
        left = zip(items, remaining.left(items), strict=True)
        lacking = [each.block for each, n in left if n and each.block is not None]
        last = min(lacking, default=max(needed, default=-1) + 1) - 1
        return last if (needed <= last).any() else None

    def _measured(self, there: Sequence[int | None]) -> SoFar:
        plan, both = self._plan, list(zip(self._plan.branches, there, strict=True))
        notes = tuple(_note(branch, block) for branch, block in both)
        known = [self._setting(each, block) for each, block in both if block is not None]
        if not known:
            return SoFar(None, notes)
        found = Estimates.joined(known)
        page, files = written.partial_page(plan, found), written.files(plan, found, partial=True)
        main = plan.run.method.measure.main_metric
        return SoFar(page, notes, files, tuple(headlines(found.estimates, main)))

    def _setting(self, branch: Branch, block: int) -> Estimates:
        chosen = branch.chosen
        assert chosen is not None
        upto = UpTo(chosen.store, chosen.recipe, block=block)
        return estimated_setting(self._plan.run, branch, self._named, upto)


def _note(branch: Branch, block: int | None) -> str:
    if block is None:
        return f"{branch.title}: no block of the budget is answered yet."
    assert branch.chosen is not None
    blocks = branch.chosen.read_all("needed")["block"]
    n, of = (blocks <= block).sum(), len(blocks)
    return f"{branch.title}: the first {n:,} of {count(of, 'prompt')} of the budget."
