"""The variance of a mean over facts that comes of asking only some prompts of each fact.

A fact's sampled prompts are a simple random sample of its prompts, drawn for each fact by itself:
its mean varies by (1/n − 1/N) s², with s² the variance among the sampled ones (Cochran 1977,
sections 2.6 and 5.4). That is without bias whatever the facts are, with one name or with twelve.
What is not drawn for each fact by itself are the templates, which all facts together are asked in
alike. So the templates' part is taken out of s² (the residual of fact + template, over the degrees
that it has left), and what is left of their imbalance is added: the templates' variance times
Σ (what a template weighs in the sample − in the full run)² (`components.py`). Where a relation's
templates were not compared, their variance in all relations is subtracted in place of their fit.
"""

import numpy as np

from factsweep.operators.estimates.crossed import Crossed, FloatArray, summed
from factsweep.operators.estimates.fluctuations.components import Components, template_level
from factsweep.operators.estimates.fluctuations.templates import FEW


def within_variance(
    sample: Crossed, values: FloatArray, weights: FloatArray, found: Components | None
) -> FloatArray:
    """The variance of Σ w · mean over the sampled prompts about that of the full run, by relation.

    All facts were asked; `weights` has what each weighs. Without components nothing is known of
    templates, and nothing taken out.
    """
    left = weights**2 * (sample.fact_means - 1 / sample.n_prompts)
    if found is None:
        return summed(sample.relation, left * _spread(sample, values))
    imbalance = template_level(sample, weights, (weights * sample.fact_means)[sample.fact])
    known, scale = _known(sample, found)
    effects = np.concatenate([fit.effects for fit in found.fits.each])[sample.in_template]
    without = values - np.where(known[sample.cell_relation], effects, 0.0)
    by_fact = left * _spread(sample, without)
    fitted = summed(sample.relation, by_fact) * scale + found.template * imbalance
    # Of a prompt's variance the templates' part, as a fact has each as often as it has names.
    share = (sample.n_prompts - sample.n_names) / np.maximum(1, sample.n_prompts - 1)
    alone = summed(sample.relation, by_fact) - found.template * (
        summed(sample.relation, left * share) - imbalance
    )
    return np.where(known, fitted, np.maximum(0.0, alone))


def _known(sample: Crossed, found: Components) -> tuple[FloatArray, FloatArray]:
    """Which relations' templates were compared well, and what their residuals lost to the fit."""
    degrees = summed(sample.relation, np.maximum(0.0, sample.n_asked - 1.0))
    lost = np.array([len(fit.effects) - 1.0 for fit in found.fits.each])
    compared = np.array([fit.known for fit in found.fits.each])
    known = compared & (degrees - lost >= FEW)
    return known, np.where(known, degrees / np.maximum(1.0, degrees - lost), 1.0)


def _spread(sample: Crossed, values: FloatArray) -> FloatArray:
    """The variance among the sampled prompts of each fact; 0 of a single one."""
    centred = values - sample.mean_by_fact(values)[sample.fact]
    squares = np.bincount(sample.fact, centred**2, sample.n_facts)
    spread: FloatArray = squares / np.maximum(1, sample.n_asked - 1)
    return spread
