"""95 % intervals: resample the pairs, with replacement, within each relation.

Pairs are nested in relations, which are all there are: each keeps its weight in every round. A
round is a vector of weights; round 0 takes every unit once, which gives the value of the sample
itself. The weights of a relation are drawn from (seed, relation) alone: a slice of one relation
and a table of all agree.

Sums of rounds that take all n pairs have (n − 1)/n of the right variance. So a round takes n − 1,
each for n/(n − 1) pairs, with no weight below 0 (the rescaling bootstrap of Rao, Wu and Yue 1992).
The variance itself is known from few pairs: as in Student's interval, the quantiles of the rounds
are further out (the expanded percentiles of Hesterberg 2015, section 4.3), by the degrees of
freedom of all pairs within their relations. Metrics that sort the units of a round (ECE, AUROC,
medians) take n whole units (`weight_blocks`), and plain percentiles.

Source: Efron and Tibshirani 1993, chapter 13 (percentile intervals); the paper has no intervals.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import NamedTuple, NotRequired, TypedDict, Unpack

import numpy as np
import polars as pl
from numpy.typing import NDArray

from factsweep.operators.seeds import generator

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

CELLS_PER_BLOCK = 2**21
_TAILS = (0.025, 0.975)


class Estimate(NamedTuple):
    """A value with its 95 % percentile interval, in the metric's own unit."""

    value: float | None
    ci_low: float | None = None
    ci_high: float | None = None


UNDEFINED = Estimate(None)


class Draws(TypedDict):
    """The seed of the rounds, and their number (default: 1,000), as keyword arguments."""

    seed: int
    n_rounds: NotRequired[int]


class BootstrapResult(NamedTuple):
    """A metric over all pairs and for each relation that has any."""

    overall: Estimate
    by_relation: dict[str, Estimate]


def bootstrap_ratio(terms: pl.DataFrame, **draws: Unpack[Draws]) -> BootstrapResult:
    """Estimate a ratio of two sums from the terms of its pairs (columns: `rows.TERMS`)."""
    return bootstrap_ratios({"": terms}, **draws)[""]


def bootstrap_ratios(
    terms: Mapping[str, pl.DataFrame], *, seed: int, n_rounds: int = 1000
) -> dict[str, BootstrapResult]:
    """Estimate several ratios as `bootstrap_ratio` does; common draws are made once."""
    matrices: dict[str, dict[str, FloatArray]] = {}
    for name, terms_of_metric in terms.items():
        for relation, rows in relations(terms_of_metric, "pair_id"):
            matrix = rows.select("numerator", "denominator").to_numpy()
            matrices.setdefault(relation, {})[name] = matrix
    sums: dict[str, dict[str, tuple[FloatArray, int]]] = {name: {} for name in terms}
    for relation, by_name in sorted(matrices.items()):
        resampled = _resample_matrices(list(by_name.values()), seed, relation, n_rounds)
        for (name, matrix), rounds in zip(by_name.items(), resampled, strict=True):
            sums[name][relation] = rounds, len(matrix) - 1
    return {
        name: BootstrapResult(
            _pool_relations(by_relation.values()),
            {relation: _pool_relations([rounds]) for relation, rounds in by_relation.items()},
        )
        for name, by_relation in sums.items()
    }


def _pool_relations(relations: Collection[tuple[FloatArray, int]]) -> Estimate:
    """The ratio over relations, from the two sums of each round and the degrees of freedom."""
    numerator, denominator = (
        np.sum([rounds[:, column] for rounds, _ in relations], axis=0) for column in range(2)
    )
    ratios = np.full(np.shape(numerator), np.nan)
    np.divide(numerator, denominator, out=ratios, where=denominator > 0)
    return estimate(np.atleast_1d(ratios), sum(degrees for _, degrees in relations))


def estimate(rounds: FloatArray, degrees: int | None = None) -> Estimate:
    """Read the value from round 0 and the interval from the others; NaN is undefined.

    `degrees` of freedom widen the interval as Student's; null: infinitely many.
    """
    if not rounds.size or np.isnan(rounds[0]):
        return UNDEFINED
    resampled = rounds[1:][~np.isnan(rounds[1:])]
    if not resampled.size:
        return Estimate(float(rounds[0]))
    tails = _TAILS
    if degrees is not None:
        # scipy.stats takes a second to import.
        from scipy.special import ndtr, stdtrit

        tail = float(ndtr(stdtrit(max(1, degrees), _TAILS[0])))
        tails = tail, 1 - tail
    low, high = np.quantile(resampled, tails)
    return Estimate(float(rounds[0]), float(low), float(high))


def weight_blocks(
    n_units: int, rng: np.random.Generator, n_rounds: int, n_taken: int | None = None
) -> Iterator[IntArray]:
    """Yield how often rounds take each unit (rounds × units): the sample itself, then blocks.

    Every round takes `n_taken` units; null: as many as there are.
    """
    yield np.ones((1, n_units), np.int64)
    rounds_per_block = max(1, CELLS_PER_BLOCK // n_units)
    for start in range(0, n_rounds, rounds_per_block):
        n = min(rounds_per_block, n_rounds - start)
        taken_units = rng.integers(n_units, size=(n, n_taken or n_units))
        flat = taken_units + n_units * np.arange(n)[:, None]
        yield np.bincount(flat.ravel(), minlength=n * n_units).reshape(n, n_units)


def relation_weights(rows: pl.DataFrame, seed: int, n_rounds: int) -> dict[str, IntArray]:
    """How often each round takes each row of a relation: rounds × rows, by relation."""
    sizes = rows.group_by("relation_id", maintain_order=True).len()
    weights = {}
    for relation, n in sizes.iter_rows():
        blocks = weight_blocks(n, generator(seed, "bootstrap", relation), n_rounds)
        weights[relation] = np.concatenate(list(blocks))
    return weights


def resampled_sums(statistics: FloatArray, seed: int, relation: str, n_rounds: int) -> FloatArray:
    """Sum the statistics (pairs × statistics) over each round's pairs: rounds × statistics.

    A round takes one pair less than there are, and its sums are scaled to all of them.

    >>> sums = resampled_sums(np.array([[1.0], [1.0], [4.0]]), seed=1, relation="P1", n_rounds=3)
    >>> sums.ravel().tolist()
    [6.0, 7.5, 7.5, 3.0]
    """
    return _resample_matrices([statistics], seed, relation, n_rounds)[0]


def _resample_matrices(
    matrices: Sequence[FloatArray], seed: int, relation: str, n_rounds: int
) -> list[FloatArray]:
    """The `resampled_sums` of each matrix; those of as many pairs share their draws."""
    sums_by_place: dict[int, FloatArray] = {}
    for n in {len(matrix) for matrix in matrices}:
        places = [place for place, matrix in enumerate(matrices) if len(matrix) == n]
        n_taken = max(1, n - 1)
        blocks = weight_blocks(n, generator(seed, "bootstrap", relation), n_rounds, n_taken)
        # One product per matrix: one of all might add in another order, and differ in a last digit.
        weights = (block.astype(np.float64) for block in blocks)
        sums = [[block @ matrices[place] for place in places] for block in weights]
        for place, (sample, *rounds) in zip(places, zip(*sums, strict=True), strict=True):
            # In this order, so that n pairs of 1 sum up to exactly n.
            scaled = (block * n / n_taken for block in rounds)
            sums_by_place[place] = np.concatenate([sample, *scaled])
    return [sums_by_place[place] for place in range(len(matrices))]


def relations(rows: pl.DataFrame, *order: str) -> Iterator[tuple[str, pl.DataFrame]]:
    """Each relation's rows, relations and rows sorted by the text of their ids."""
    columns = ("relation_id", *order)
    by_text = rows.with_columns(pl.col(columns).cast(pl.String)).sort(columns)
    for relation in by_text.partition_by("relation_id", maintain_order=True):
        yield relation["relation_id"][0], relation


@contextmanager
def single_threaded_blas() -> Iterator[None]:
    """Limit the BLAS of NumPy and SciPy to one thread; as a context or as a decorator.

    OpenBLAS splits even small products among all cores, and its threads wait actively: on two busy
    cores an estimate over 4,100 templates took 109 s, and 5 s in one thread. The limit is the
    process's; of several threads the first sets it, and lifts it when it is done (threadpoolctl).
    """
    from threadpoolctl import threadpool_limits

    with threadpool_limits(1, user_api="blas"):
        yield
