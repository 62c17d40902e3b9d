"""Means over the prompts of facts, as Acc@1 and the one-word ratio are."""

from typing import NamedTuple

import numpy as np

from operators.metrics.sampled.components import components, error_variance
from operators.metrics.sampled.crossed import (
    Crossed,
    Estimated,
    FloatArray,
    exactly,
    half_width,
    within_bounds,
)

ONCE = "no fact was asked twice, so nothing says how far its answers vary"


class Mean(NamedTuple):
    """A mean over a sample, its variance about the full run's, and the variance's degrees.

    `variance` is null where nothing says how far a fact's answers vary.
    """

    value: float
    variance: float | None
    degrees: float

    @property
    def estimated(self) -> Estimated:
        """The mean with its interval."""
        if self.variance is None:
            return Estimated(self.value, None, None, ONCE)
        return within_bounds(self.value, half_width(self.variance, self.degrees))


def mean_of_facts(sample: Crossed, values: FloatArray) -> Estimated:
    """Estimate the mean over facts of the mean over their prompts."""
    return weighted_mean(sample, values, np.ones(sample.n_facts))


def mean_of_prompts(sample: Crossed, values: FloatArray) -> Estimated:
    """Estimate the mean over prompts: facts weigh as many prompts as they have."""
    return weighted_mean(sample, values, sample.n_prompts.astype(np.float64))


def weighted_mean(sample: Crossed, values: FloatArray, weights: FloatArray) -> Estimated:
    """Estimate Σ weight · mean over the fact's prompts / Σ weight, with its interval."""
    found = measured(sample, values, weights)
    return exactly(found.value) if sample.is_all else found.estimated


def measured(sample: Crossed, values: FloatArray, weights: FloatArray) -> Mean:
    """Estimate Σ weight · mean over the fact's prompts / Σ weight, with its variance.

    The estimate is the same mean over the sampled prompts; every prompt of a fact has the same
    chance, so it is unbiased. Its variance is that of the answers about it by component
    (`components.error_variance`), and, where not all facts were asked, between facts.
    """
    share = weights / weights.sum()
    means = sample.mean_by_fact(values)
    here = sample.sampled_weights(share)
    value = float(here @ means)
    if sample.is_all:
        return Mean(value, 0.0, 0.0)
    found = components(sample, values)
    if not sample.is_asked.all():
        variance, degrees = between_facts(sample, means, share)
        if not degrees:
            return Mean(value, None, 0.0)
        if found is not None:  # the facts' own means are known as well as they were asked
            asked = sample.only(sample.is_asked)
            within = error_variance(asked, here[sample.is_asked], found)
            variance += float(within.sum() * sample.is_asked.mean())
        return Mean(value, variance, degrees)
    if found is None:
        return Mean(value, None, 0.0)
    return Mean(value, float(error_variance(sample, share, found).sum()), found.degrees)


def between_facts(sample: Crossed, means: FloatArray, share: FloatArray) -> tuple[float, float]:
    """The variance that comes of asking only some facts, and its degrees of freedom.

    Stratified by relation where two facts of each were asked (Cochran 1977, sections 5.4 and 10.3:
    the first of two stages, with the second stage's noise in the facts' means).
    """
    variance, degrees = 0.0, 0.0
    for stratum in np.unique(sample.strata):
        mine = sample.strata == stratum
        asked = mine & sample.is_asked
        n = int(asked.sum())
        if n < 2:
            return 0.0, 0.0
        weight = share[mine].sum()
        relative = share[asked] / share[asked].mean()
        centre = (relative * means[asked]).mean()
        spread = float(((relative * (means[asked] - centre)) ** 2).sum() / (n - 1))
        variance += weight**2 * (1 - n / mine.sum()) * spread / n
        degrees += n - 1
    return variance, degrees
