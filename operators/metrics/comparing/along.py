"""Several runs over the same facts, side by side: a band around all, differences, certain ranks.

All runs are resampled together (module `bootstrap`): a round draws the same facts for each, so that
what facts have in common cancels from differences. The band is the sup-t band: it reaches as many
SDs as the 95 % quantile of the largest |deviation| / SD over all runs (Montiel Olea and
Plagborg-Møller 2019, algorithm 1). Two runs are told apart where their difference exceeds the same
quantile over all pairs of runs, and a run's rank lies between the runs that are certainly better
and those that are certainly worse (Mogstad, Romano, Shaikh and Wilhelm 2024, section 3).

With few facts that alone is too narrow, for two reasons. The SDs are known from few facts only, so
that the errors are Student's. And shares near 0 or 1 are skewed, and do not vary at all where no
answer was right. So the band of a run is the exact interval of a share (Clopper and Pearson 1934)
among as many facts as the design effect leaves (Korn and Graubard 1998); two further events in the
variances keep that effect from being 0 (as Agresti and Coull 1998 add two).
`benchmarks/bench_intervals.py --band` measures how often the band holds.
"""

from collections.abc import Sequence

import numpy as np
import polars as pl
from numpy.typing import NDArray

from factsweep.operators.errors import InputError
from factsweep.operators.metrics.comparing.paired_tests import holm, sign_flip
from factsweep.operators.metrics.comparing.pairing import FACT
from factsweep.operators.metrics.shared.bootstrap import (
    FloatArray,
    estimate,
    relations,
    resampled_sums,
)
from factsweep.operators.schemas import schema

ALONG = schema("""
    label text, value float, ci_low float, ci_high float, band_low float, band_high float,
    difference float, difference_low float, difference_high float, p_holm float, rank_low int,
    rank_high int, n_pairs int
""")
_LEVEL = 0.95
_Z = 1.959963984540054  # standard errors on each side of a single interval
_NOTHING = 1e-12  # an SD of rounding errors alone
_UNSEEN = 2.0  # events
_DIGITS = 14  # of a share; sums of weights end next to 1


def along(
    terms: pl.DataFrame, labels: Sequence[str], *, reference: str, seed: int, n_rounds: int = 1000
) -> pl.DataFrame:
    """Set runs side by side: one row per label, in their order (columns: ALONG).

    `terms` has one row per label and fact (label, relation_id, pair_id, numerator, denominator): a
    run's value is the sum of its numerators over that of its denominators. Facts that a run lacks
    are left out of all. `difference` is a run's value less that of the reference, `p_holm` its
    two-sided p-value (`sign_flip` over facts) after Holm's correction over all runs but the
    reference. Ranks count from 1, the highest value. The band holds for all values at once.

    Raises:
        InputError: the runs have no fact in common.
    """
    facts = _shared(terms, len(labels))
    rounds = _rounds(facts, labels, seed, n_rounds)
    n_pairs = facts.height // len(labels)
    degrees = n_pairs - facts["relation_id"].n_unique()
    base, (low, high) = labels.index(reference), band(rounds, degrees, n_pairs)
    p_values, ranks = _tested(facts, labels, reference), _ranks(rounds, degrees)
    found = []
    for place, label in enumerate(labels):
        own = estimate(rounds[:, place], degrees)
        change = estimate(rounds[:, place] - rounds[:, base], degrees)
        ends = (None, None) if own.value is None else (low[place], high[place])
        best, worst = (rank[place] for rank in ranks)
        found.append((label, *own, *ends, *change, p_values[place], best, worst, n_pairs))
    return pl.DataFrame(found, schema=ALONG, orient="row").with_columns(holm(pl.col("p_holm")))


def _shared(terms: pl.DataFrame, n_labels: int) -> pl.DataFrame:
    """The terms of the facts that all runs have."""
    everywhere = terms.group_by(FACT).agg(n=pl.n_unique("label")).filter(n=n_labels)
    found = terms.join(everywhere, on=FACT, how="semi")
    if found.is_empty():
        raise InputError("these runs have no fact in common; compare runs over the same facts.")
    return found


def _rounds(facts: pl.DataFrame, labels: Sequence[str], seed: int, n_rounds: int) -> FloatArray:
    """The value of each label in each round (rounds × labels); round 0 is the sample itself."""
    sums = np.zeros((n_rounds + 1, 2 * len(labels)))
    for relation, rows in relations(facts, "pair_id", "label"):
        sides = [
            rows.filter(label=label).select(pl.col("numerator", "denominator").name.suffix(label))
            for label in labels
        ]
        matrix = pl.concat(sides, how="horizontal").to_numpy()
        sums = sums + resampled_sums(matrix, seed, relation, n_rounds)
    numerators, denominators = sums[:, 0::2], sums[:, 1::2]
    return numerators / denominators


def band(rounds: FloatArray, degrees: int, n_facts: int) -> tuple[FloatArray, FloatArray]:
    """The low and high ends of a 95 % band that holds for all shares (columns of `rounds`) at once.

    `degrees` are the facts less the relations. The band is no narrower than a single interval.
    """
    # scipy.stats takes a second to import.
    from scipy.special import betaincinv, ndtr

    reach = max(_reach(rounds), _Z)
    value, variance = rounds[0].round(_DIGITS).clip(0, 1), rounds[1:].var(axis=0)
    unseen = _UNSEEN / n_facts**2
    design_effect = (variance + unseen) / (value * (1 - value) / n_facts + unseen)
    n = n_facts / design_effect * (reach / _widened(reach, degrees)) ** 2
    n_right, n_wrong, tail = n * value, n * (1 - value), ndtr(-reach)
    low: FloatArray = betaincinv(n_right.clip(_NOTHING), n_wrong + 1, tail)
    high: FloatArray = betaincinv(n_right + 1, n_wrong.clip(_NOTHING), 1 - tail)
    return np.minimum(low, value), np.maximum(high, value)


def _reach(rounds: FloatArray) -> float:
    """The 95 % quantile of the largest |deviation| in SDs, of all columns that vary."""
    deviations, sd = rounds[1:] - rounds[0], rounds[1:].std(axis=0)
    varies = sd > _NOTHING
    if not varies.any():
        return 0.0
    return float(np.quantile((np.abs(deviations)[:, varies] / sd[varies]).max(axis=1), _LEVEL))


def _widened(reach: float, degrees: int) -> float:
    """The quantile of Student's distribution that is as far out as this one of the normal one."""
    from scipy.special import ndtr, stdtrit

    return float(-stdtrit(max(1, degrees), ndtr(-reach)))


def _ranks(rounds: FloatArray, degrees: int) -> tuple[list[int], list[int]]:
    """The best and the worst rank that each label may have, at the level for all at once."""
    n = rounds.shape[1]
    better = np.zeros((n, n), np.bool_)
    one, other = np.triu_indices(n, 1)
    apart = rounds[:, one] - rounds[:, other]
    reach = _widened(_reach(apart), degrees) * apart[1:].std(axis=0)
    certain = np.abs(apart[0]) > reach + _NOTHING
    better[one, other] = certain & (apart[0] > 0)
    better[other, one] = certain & (apart[0] < 0)
    return possible_ranks(better)


def possible_ranks(better: NDArray[np.bool_]) -> tuple[list[int], list[int]]:
    """The best and the worst rank of each, where a row is certainly better than a column.

    >>> possible_ranks(np.array([[0, 1, 1], [0, 0, 0], [0, 0, 0]], np.bool_))
    ([1, 2, 2], [1, 3, 3])
    """
    best, worst = 1 + better.sum(0), len(better) - better.sum(1)
    return best.tolist(), worst.tolist()


def _tested(facts: pl.DataFrame, labels: Sequence[str], reference: str) -> list[float | None]:
    """The p-values of the differences from the reference, in the order of the labels."""
    change = pl.col("numerator") - pl.col("numerator_reference")
    base = facts.filter(label=reference).select(*FACT, numerator_reference="numerator")
    rows = facts.join(base, on=FACT)
    return [
        None
        if label == reference
        else sign_flip(rows.filter(label=label).select(change).to_series().to_numpy())
        for label in labels
    ]
