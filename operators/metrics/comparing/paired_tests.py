"""Tests of two runs over the same facts: McNemar's, its generalisation, and Holm's correction."""

from itertools import product
from math import asin, erfc, sqrt
from typing import NamedTuple

import numpy as np
import polars as pl

from factsweep.operators.metrics.shared.bootstrap import FloatArray

# Up to so many changed facts, all 2^n signs are enumerated; beyond, the normal approximation is
# close.
_EXACT = 14
_TIE = 1e-9


class McNemar(NamedTuple):
    """Two-sided p-values of McNemar's test."""

    exact: float
    mid_p: float


def mcnemar(n_gained: int, n_lost: int) -> McNemar:
    """Test whether as many facts are gained as are lost (McNemar 1947).

    If both runs know equally much, a fact that only one of them knows belongs to either with
    probability 1/2. `exact` is the binomial test on that; `mid_p` counts what is as likely as the
    observed half, which keeps its level in practice and is less conservative (Fagerland, Lydersen
    and Laake 2013). Both are 1 where no fact changed.

    >>> mcnemar(5, 0)
    McNemar(exact=0.0625, mid_p=0.03125)
    """
    from scipy.stats import binom

    n, fewer = n_gained + n_lost, min(n_gained, n_lost)
    below, up_to = binom.cdf([fewer - 1, fewer], n, 0.5)
    return McNemar(min(1.0, float(2 * up_to)), float(below + up_to))


def sign_flip(changes: FloatArray) -> float | None:
    """Test whether changes of facts (second − first) lie around 0: a two-sided mid-p-value.

    If the two runs are alike, each fact's change is as likely with the opposite sign (Fisher's
    randomisation test for pairs, 1935, section 21). The statistic is the sum of the changes. With
    changes of −1, 0 and 1 this is McNemar's test, so that facts and shares are tested alike. Exact
    up to 14 changes that are not 0; beyond, the normal approximation with the same variance, Σ
    change². 1 where nothing changed; None without facts.

    >>> sign_flip(np.array([0.5, 0.25, 0.0]))
    0.25
    """
    if not changes.size:
        return None
    moved = changes[changes != 0]
    if not moved.size:
        return 1.0
    if moved.size > _EXACT:
        return erfc(abs(moved.sum()) / sqrt(2 * np.square(moved).sum()))
    signs = np.array(list(product((-1.0, 1.0), repeat=moved.size)))
    sums, observed = np.abs(signs @ moved), abs(moved.sum())
    tie = _TIE * np.abs(moved).sum()
    if observed <= tie:
        return 1.0
    beyond, tied = sums > observed + tie, np.abs(sums - observed) <= tie
    return float(beyond.mean() + tied.mean() / 2)


def holm(p: pl.Expr) -> pl.Expr:
    """Correct the p-values of one family of tests (Holm 1979); null is no test, and stays.

    The k-th smallest of m is multiplied by m − k + 1, and none is smaller than the one before it.
    The chance of any false alarm is then at most the level, however the tests depend on each
    other.

    >>> pl.DataFrame({"p": [0.01, None, 0.04, 0.03]}).select(holm(pl.col("p")))["p"].to_list()
    [0.03, None, 0.06, 0.06]
    """
    place = p.rank("ordinal").cast(pl.Int64)
    steps = (p * (p.count() - place + 1)).clip(upper_bound=1.0)
    return steps.sort_by(place, nulls_last=True).cum_max().gather(place - 1)


def cohens_h(first: float, second: float) -> float:
    """The distance of two shares (0 to 1) after the arcsine transformation (Cohen 1988, chapter 6).

    2 asin √second − 2 asin √first, −π to π: a step near 0 or 1 weighs more than one around the
    middle. Cohen calls .2 small, .5 medium and .8 large.

    >>> round(cohens_h(0.5, 0.75), 4)
    0.5236
    """
    # Means of shares can pass 0 or 1 by a rounding error.
    one, other = (2 * asin(sqrt(min(max(share, 0.0), 1.0))) for share in (first, second))
    return other - one


# Below this variance of a prompt's change, nothing but rounding is left of it.
_NO_VARIANCE = 1e-12


def design_effect(changes: pl.DataFrame) -> float | None:
    """Divide the variance of a difference by what it would be if each prompt had its own fact.

    The prompts of a fact are right and wrong together: 250 of them say less than 250 facts would.
    n_prompts / design effect is the number of independent prompts that would measure as sharply.
    Above 1 as a rule; below, where relations differ more than the facts in them do.

    `changes` has one row per pair: relation_id, numerator (its change, times its denominator),
    denominator, squares (its denominator × the mean of its prompts' squared changes) and n_prompts.
    With δ = Σ numerator / Σ denominator and z = (numerator − δ · denominator) / Σ denominator,

        clustered    Σ over relations of  n / (n − 1) · Σ (z − mean z)²,  n the relation's pairs
        independent  (Σ squares / Σ denominator − δ²) / (number of prompts − 1)

    Pairs within relations are what the intervals resample, too. None: the metric is no mean over
    prompts, no relation has two pairs, or all prompts change alike.

    Source: Kish 1965, section 8.2; linearised for ratios as in Cochran 1977, section 6.3. Miller
    2024 ("Adding error bars to evals") does so for evaluations of language models.
    """
    total, n_prompts = changes.select(pl.sum("denominator", "n_prompts")).row(0)
    if not total or changes["squares"].has_nulls():
        return None
    difference = changes["numerator"].sum() / total
    residual = (pl.col("numerator") - difference * pl.col("denominator")) / total
    # `var` divides by n − 1, and is null for a relation of a single pair.
    parts = changes.group_by("relation_id").agg(z=residual.var() * pl.len())
    within = parts.sort("relation_id")["z"].drop_nulls()
    variance = changes["squares"].sum() / total - difference**2
    if within.is_empty() or variance < _NO_VARIANCE:
        return None
    return float(within.sum() / (variance / (n_prompts - 1)))
