"""How often things are right that are tried several times: a beta distribution of their chances.

A unit (a fact, or a fact in a template) has N prompts, of which some number is right. If over units
that number is beta-binomial of N, α and β, the number among n of them drawn at random is
beta-binomial of n with the same α and β: what a sample shows says what all prompts hold, and no
correction for the finite N is needed.

Source: Skellam 1948; fitted by maximum likelihood, with the mean μ = α / (α + β) and the
correlation ρ = 1 / (α + β + 1) of two prompts of a unit as parameters (Griffiths 1973).
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from factsweep.operators.estimates.crossed import FloatArray, IntArray

Number = FloatArray | IntArray | int

# Of the logits of mean and correlation: beyond these nothing changes that a sample could show.
_BOUNDS = ((-12.0, 12.0), (-8.0, 8.0))
_STEP = 1e-3


class Fit(NamedTuple):
    """The logits of mean and correlation, and the covariance of their errors."""

    logits: FloatArray
    covariance: FloatArray


class Shape(NamedTuple):
    """α and β, of one fit or of many draws."""

    alpha: FloatArray
    beta: FloatArray


def fitted(n: IntArray, n_right: IntArray) -> Fit | None:
    """Fit the distribution to units with `n` prompts each; null where none has two.

    >>> found = fitted(np.array([4, 4, 4, 4]), np.array([0, 4, 0, 4]))
    >>> (1 / (1 + np.exp(-found.logits))).round(2).tolist()
    [0.5, 1.0]
    """
    from scipy.optimize import minimize
    from scipy.special import betaln

    if not (n > 1).any():
        return None
    counts, times = np.unique(np.stack([n, n_right]), axis=1, return_counts=True)

    def loss(logits: FloatArray) -> float:
        alpha, beta = shape(logits)
        likelihood = betaln(alpha + counts[1], beta + counts[0] - counts[1]) - betaln(alpha, beta)
        return float(-times @ likelihood)

    start = np.array([np.log((n_right.sum() + 0.5) / ((n - n_right).sum() + 0.5)), 0.0])
    found = minimize(loss, np.clip(start, *np.transpose(_BOUNDS)), bounds=_BOUNDS)
    return Fit(found.x, _covariance(loss, found.x))


def correlation(n: IntArray, n_right: IntArray, mean: FloatArray) -> float | None:
    """The logit of the correlation, where each unit's mean is known; null where none has two."""
    from scipy.optimize import minimize_scalar
    from scipy.special import betaln

    several = n > 1
    if not several.any():
        return None
    logit = np.log(mean / (1 - mean))[several]
    wrong, right = (n - n_right)[several], n_right[several]

    def loss(value: float) -> float:
        alpha, beta = shape(np.stack([logit, np.full(len(logit), value)], axis=1))
        return float((betaln(alpha, beta) - betaln(alpha + right, beta + wrong)).sum())

    found = minimize_scalar(loss, bounds=_BOUNDS[1], method="bounded", options={"xatol": 1e-3})
    return float(found.x)


def shape(logits: FloatArray) -> Shape:
    """α and β from the logits of mean and correlation, which may have more rows than one."""
    mean, correlation = np.moveaxis(1 / (1 + np.exp(-logits)), -1, 0)
    size = 1 / correlation - 1
    return Shape(mean * size, (1 - mean) * size)


def drawn(fit: Fit, n_draws: int, rng: np.random.Generator) -> FloatArray:
    """Logits as uncertain as the fit: draws × 2, within the bounds."""
    draws = rng.multivariate_normal(fit.logits, fit.covariance, n_draws)
    return np.clip(draws, *np.transpose(_BOUNDS))


def any_right(of: Shape, n_more: Number, n_wrong: Number) -> FloatArray:
    """The chance that any of `n_more` prompts is right, of a unit that was wrong in `n_wrong`.

    >>> even = Shape(np.array(1.0), np.array(1.0))
    >>> any_right(even, np.array([1.0, 3.0]), np.array([0.0, 0.0])).round(4).tolist()
    [0.5, 0.75]
    """
    from scipy.special import betaln

    beta = of.beta + n_wrong
    none: FloatArray = np.exp(betaln(of.alpha, beta + n_more) - betaln(of.alpha, beta))
    return 1 - none


def _covariance(loss: Callable[[FloatArray], float], at: FloatArray) -> FloatArray:
    """The inverse of the curvature; a direction that the sample says nothing of is as wide as 1."""

    def bent(a: FloatArray, b: FloatArray) -> float:
        around = loss(at + a + b) - loss(at + a - b) - loss(at - a + b) + loss(at - a - b)
        return around / (4 * _STEP**2)

    steps = _STEP * np.eye(2)
    curvature = np.array([[bent(a, b) for b in steps] for a in steps])
    values, vectors = np.linalg.eigh(curvature)
    inverse: FloatArray = (vectors / np.maximum(values, 1.0)) @ vectors.T
    return inverse
