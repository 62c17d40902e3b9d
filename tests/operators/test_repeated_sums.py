"""The same sums twice are the same bytes: Polars is told to add each group in one order."""

import numpy as np
import polars as pl
import pytest

from factsweep import operators


@pytest.mark.parametrize("reduced", [pl.sum("value"), pl.mean("value")], ids=["sum", "mean"])
def test_sums_of_groups_never_change(reduced: pl.Expr) -> None:
    assert operators.__doc__  # importing it is what tells Polars
    rng = np.random.default_rng(0)
    for _ in range(30):
        group = [f"P{i}" for i in rng.integers(0, 100, 1000)]
        rows = pl.DataFrame({"group": group, "value": rng.random(1000)})
        sums = {tuple(rows.group_by("group").agg(reduced).sort("group").rows()) for _ in range(15)}
        assert len(sums) == 1
