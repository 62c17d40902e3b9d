"""Sums, means and variances of values by group: of prompts by fact, of facts by relation."""

import numpy as np

from factsweep.operators.estimates.crossed import FloatArray, IntArray


def summed(group: IntArray, values: FloatArray, n: int = 0) -> FloatArray:
    """The sum of the values of each group, numbered from 0; of `n` groups at least."""
    return np.bincount(group, values, n).astype(np.float64)


def group_means(group: IntArray, values: FloatArray, n: int = 0) -> FloatArray:
    """The mean of the values of each group, numbered from 0; of an empty one 0."""
    means: FloatArray = summed(group, values, n) / np.maximum(1, np.bincount(group, minlength=n))
    return means


def centred(group: IntArray, values: FloatArray) -> FloatArray:
    """The values less the mean of their group."""
    return values - group_means(group, values)[group]


def spread(group: IntArray, values: FloatArray, n: int = 0) -> FloatArray:
    """The variance of each group's values (divisor n − 1), numbered from 0; 0 of a single one.

    It is half the mean squared difference of two of them.

    >>> spread(np.array([0, 0, 1]), np.array([1.0, 0.0, 1.0])).tolist()
    [0.5, 0.0]
    """
    squares = summed(group, centred(group, values) ** 2, n)
    variance: FloatArray = squares / np.maximum(1, np.bincount(group, minlength=n) - 1)
    return variance
