"""Agreement of graders: equal to scikit-learn's kappa and to alpha as its author computes it."""

import warnings
from collections import Counter
from itertools import permutations

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.exceptions import UndefinedMetricWarning
from sklearn.metrics import cohen_kappa_score

from factsweep.operators.matching.verdicts import STATES
from factsweep.operators.metrics.agreement import agreement, confusion

GRADERS = ["contains", "judge:a", "judge:b", "majority"]
VERDICTS = st.lists(st.tuples(*[st.sampled_from([*STATES, None])] * 4), min_size=2, max_size=30)


def table(rows: list[tuple[str | None, ...]], per_fact: int = 1) -> pl.DataFrame:
    """A row per answer, of facts with so many answers each."""
    verdicts = pl.DataFrame(rows, dict.fromkeys(GRADERS, pl.String), orient="row")
    fact = pl.int_range(pl.len()) // per_fact
    return verdicts.with_columns(
        relation_id=pl.format("r{}", fact % 2), pair_id=pl.format("f{}", fact)
    )


def naive_alpha(units: list[list[str]]) -> float | None:
    """1 − observed / expected disagreement of all ordered pairs of values (Krippendorff 2004)."""
    units = [values for values in units if len(values) > 1]
    totals = Counter(value for values in units for value in values)
    n = totals.total()
    expected = sum(totals[a] * totals[b] for a, b in permutations(totals, 2))
    if not expected:
        return None
    observed = sum(
        sum(a != b for a, b in permutations(values, 2)) / (len(values) - 1) for values in units
    )
    return 1 - (n - 1) * observed / expected


@given(VERDICTS, st.sampled_from([1, 3]))
def test_agreement_equals_scikit_learn_and_the_authors_formula(
    rows: list[tuple[str | None, ...]], per_fact: int
) -> None:
    verdicts = table(rows, per_fact)
    metrics = agreement(verdicts, GRADERS, "majority", seed=1, n_rounds=2)
    values = {(row["metric"], row["variant"]): row for row in metrics.iter_rows(named=True)}
    both = verdicts.select("contains", "judge:b").drop_nulls()
    row = values["kappa", "grader=contains,other=judge:b"]
    assert (row["n"], row["n_failed"]) == (both.height, verdicts.height - both.height)
    with warnings.catch_warnings(category=UndefinedMetricWarning, action="ignore"):
        expected = cohen_kappa_score(*both, labels=STATES) if both.height else np.nan
    actual = np.nan if row["value"] is None else row["value"]
    assert actual == pytest.approx(expected, nan_ok=True)
    independent = verdicts.select(GRADERS[:3]).iter_rows()
    alpha = naive_alpha([[v for v in values if v is not None] for values in independent])
    assert values["alpha", None]["value"] == (None if alpha is None else pytest.approx(alpha))


def test_agreement_intervals_are_over_facts() -> None:
    rows = [("correct",) * 4, ("incorrect",) * 4, ("correct", "incorrect", "correct", None)] * 20
    metrics = {
        size: agreement(table(rows, size), GRADERS, "majority", seed=1, n_rounds=500)
        for size in (1, 3)
    }
    of_pair = {
        size: rows.filter(variant="grader=contains,other=judge:a").row(0, named=True)
        for size, rows in metrics.items()
    }
    assert of_pair[1]["value"] == of_pair[3]["value"] == pytest.approx(0.4)
    # Facts of three answers are all alike, so no round differs from another.
    assert of_pair[3]["ci_low"] == pytest.approx(of_pair[3]["ci_high"])
    assert of_pair[1]["ci_low"] < 0.35 < 0.45 < of_pair[1]["ci_high"]


def test_confusion_counts_every_answer_with_each_two_graders() -> None:
    rows = [("correct", "correct", None, None), ("correct", "incorrect", "incorrect", None)]
    counts = confusion(table(rows), GRADERS)
    assert counts.group_by("grader", "other_grader").agg(pl.sum("n"))["n"].unique().to_list() == [2]
    pair = counts.filter(grader="contains", other_grader="judge:b")
    assert pair.select("state", "other_state", "n").rows() == [
        ("correct", "incorrect", 1),
        ("correct", None, 1),
    ]
