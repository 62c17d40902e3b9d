"""Each template's accuracy in the full run, shrunk towards its relation's by what it is unsure of.

The fitted effects of templates (`templates.py`) are noisy: the best of a hundred owes a good part
of its lead to chance. With a normal prior of variance V (that of the effects, without their noise)
and the covariance E of their errors, what is expected of the effects e is

    V P (V P + E)⁻ e,   with the covariance  V P − V P (V P + E)⁻ V P,   P = I − 1/T

which is the empirical Bayes estimate (Efron and Morris 1973), and the best linear prediction of
random effects (Henderson 1975). Selecting by it needs no further correction: the maximum of draws
from it is what the sample says of the best template (Efron 2011, "Tweedie's formula and selection
bias"). In the full run E is 0, and each template keeps its accuracy.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from factsweep.operators.estimates.crossed import Crossed, FloatArray, IntArray
from factsweep.operators.estimates.fluctuations.components import Components, errors, noise
from factsweep.operators.estimates.intervals import half_width


class Accuracies(NamedTuple):
    """A relation's: how often each template was asked, its accuracy as fitted, and shrunk.

    `covariance` is that of the shrunk ones' errors.
    """

    n: IntArray
    fitted: FloatArray
    shrunk: FloatArray
    covariance: FloatArray

    def intervals(self) -> FloatArray:
        """The 95 % intervals: templates × (low, high), within 0 and 1.

        Student's, as the variance between the templates is known from as many as there are.
        """
        half = np.array([half_width(each, len(self.n) - 1) for each in np.diag(self.covariance)])
        return np.clip(np.stack([self.shrunk - half, self.shrunk + half], axis=1), 0.0, 1.0)


def accuracies(sample: Crossed, values: FloatArray, found: Components) -> Iterator[Accuracies]:
    """Estimate the accuracies of each relation's templates; all must have been compared."""
    weights = 1.0 / np.bincount(sample.relation)[sample.relation]
    means = np.bincount(sample.relation, sample.mean_by_fact(values) * weights)
    variance = errors(sample, weights, found).sum(axis=0)
    asked = np.bincount(sample.in_template, minlength=int(sample.n_templates.sum()))
    for relation, n in enumerate(np.split(asked, np.cumsum(sample.n_templates)[:-1])):
        effects = found.fits.each[relation].effects
        shrunk, covariance = _shrunk(effects, noise(sample, found, relation))
        mean = means[relation]
        yield Accuracies(n, mean + effects, mean + shrunk, covariance + variance[relation])


def drawn(of: Accuracies, n_draws: int, rng: np.random.Generator) -> FloatArray:
    """Accuracies as uncertain as they are: draws × templates."""
    values, vectors = np.linalg.eigh(of.covariance)
    # The symmetric root: signs and order of the vectors, which CPUs choose otherwise, drop out.
    root = (vectors * np.sqrt(np.clip(values, 0, None))) @ vectors.T
    draws: FloatArray = of.shrunk + rng.standard_normal((n_draws, len(values))) @ root
    return draws


def _shrunk(effects: FloatArray, error: FloatArray) -> tuple[FloatArray, FloatArray]:
    n = len(effects)
    if n < 2 or not error.any():
        return effects, np.zeros((n, n))
    between = max(0.0, float((effects**2).sum() - np.trace(error)) / (n - 1))
    prior = between * (np.eye(n) - 1 / n)
    gain = prior @ np.linalg.pinv(prior + error, rcond=1e-10, hermitian=True)
    return gain @ effects, prior - gain @ prior
