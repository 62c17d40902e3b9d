"""The fluctuation's standard deviation, with the noise of sampling taken out."""

import math

import numpy as np

from factsweep.operators.estimates.components import Components, components, noise
from factsweep.operators.estimates.crossed import Crossed, FloatArray, group_means, spread, summed
from factsweep.operators.estimates.intervals import UNSEEN, Estimated, half_width

APART = "the templates of some relations were not yet compared with each other"
FEW = "templates have {n:.1f} answers on average, and fewer than {least:g} make it too high"
_FEWEST = 6.0  # answers per template: the interval covers from there on (benchmarks/README.md)


def fluctuation_sd(sample: Crossed, values: FloatArray) -> Estimated:
    """Estimate the standard deviation of accuracy over draws of a template per relation.

    In the full run a draw takes one template per relation, then a name per fact. Over all draws the
    variance of accuracy is Σ_r w_r² · (V_r + Σ_f v_f / F_r²): w_r the relation's share of facts,
    V_r the variance of its templates' accuracies, v_f that of a fact's names within a template.
    The fitted effects of a sample vary more, by their noise: V_r is what is left when that is taken
    out. It is the noise about the full run's accuracies, so a part of it goes as a template's
    prompts are asked up. The interval is that of the sum, from the variance of a quadratic form of
    normal noise (Searle, Casella and McCulloch 1992, appendix S.4): 4 e'Me + 2 tr(M²).

    With few answers per template the noise of the effects is underestimated: then it is null.
    """
    n = answers_per_template(sample)
    if not sample.is_all and n < _FEWEST:
        return Estimated(None, None, None, f"{FEW.format(n=n, least=_FEWEST)}{_remedy(sample, n)}")
    found = components(sample, values)
    if found is None or not (sample.is_asked.all() and all(fit.known for fit in found.fits)):
        return Estimated(None, None, None, APART)
    names = of_names(sample, values, found)
    facts = np.bincount(sample.relation)
    total, variance = 0.0, 0.0
    for relation, share in enumerate(facts / facts.sum()):
        between, error = _between(sample, found, relation)
        total += share**2 * (between + names[relation])
        variance += share**4 * error
    half = half_width(variance, found.degrees)
    low, value, high = (np.sqrt(max(0.0, total + sign * half)) for sign in (-1, 0, 1))
    return Estimated(float(value), float(low), float(high))


def answers_per_template(sample: Crossed) -> float:
    """The mean over relations: each counts by its squared share of the facts."""
    weights = np.bincount(sample.relation).astype(np.float64) ** 2
    n = np.bincount(sample.cell_relation, minlength=len(weights)) / sample.n_templates
    return float(weights @ n / weights.sum())


def _remedy(sample: Crossed, n: float) -> str:
    """The budget with enough answers: two per fact at least, so that every fact is asked.

    A budget asks the relations in proportion to their prompts.
    """
    n_prompts = int(sample.n_prompts.sum())
    share = max(2 * sample.n_facts / n_prompts, (1 - sample.left) * _FEWEST / max(n, 1e-9))
    percent = 100 * share
    digits = 1 - math.floor(math.log10(percent))
    percent = math.ceil(percent * 10**digits) / 10**digits  # rounded up, to two digits
    return f"; ask budget={percent:g}%" if percent < 100 else "; only all prompts give it"


def _between(sample: Crossed, found: Components, relation: int) -> tuple[float, float]:
    """The variance between a relation's templates (divisor T), and the variance of its error."""
    effects = found.fits[relation].effects
    n = len(effects)
    error = noise(sample, found, relation)
    # Below 0 by chance: what counts is the sum over relations.
    between = float((effects**2).sum() - np.trace(error)) / n
    # The events that were not seen, as many in all as of a share (`intervals.py`), are noise, too.
    unseen = UNSEEN * sample.left / max(1.0, found.degrees)
    wider = error + found.fits[relation].inverse * unseen
    least = 2 * (wider**2).sum()
    # The effects have their own noise in them, which adds 4 tr(M²) to the first term.
    spread = max(least, 4 * effects @ wider @ effects - least)
    return between, float(spread) / n**2


def of_names(sample: Crossed, values: FloatArray, found: Components) -> FloatArray:
    """Per relation, Σ v_f / F²: the variance of accuracy that the draw of names adds.

    From the templates that a fact was asked in under several names; a relation without any takes
    the mean of all, and a sample without any what `components` makes of other templates.
    """
    of, group = sample.fact_template
    several = np.bincount(group) > 1
    n_names, relation = sample.n_names[of][several], sample.relation[of][several]
    own = spread(group, values)[several] * (n_names - 1) / n_names
    count = np.bincount(relation, minlength=len(sample.n_templates))
    typical = own.mean() if several.any() else (found.name + found.rest) / 2
    mean = np.where(count > 0, group_means(relation, own, len(count)), typical)
    n_facts = np.bincount(sample.relation)
    return mean * summed(sample.relation, (sample.n_names > 1).astype(np.float64)) / n_facts**2
