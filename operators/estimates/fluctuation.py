"""The fluctuation's standard deviation, without the noise of sampling."""

import math

import numpy as np

from factsweep.operators.estimates.components import noise, split_variance
from factsweep.operators.estimates.crossed import (
    Crossed,
    FloatArray,
    group_means,
    spread,
    sum_by_group,
)
from factsweep.operators.estimates.intervals import UNSEEN, Estimated, half_width

APART = "the templates of some relations were not yet compared with each other"
FEW = "templates have {n:.1f} answers on average, and fewer than {least:g} make it too high"
_FEWEST = 6.0  # answers per template: the interval covers from there on (benchmarks/README.md)


def fluctuation_sd(sample: Crossed, values: FloatArray) -> Estimated:
    """Estimate the standard deviation of accuracy over draws of a template per relation.

    In the full run a draw takes one template per relation, then a name per fact. Over all draws the
    variance of accuracy is Σ_r w_r² · (V_r + Σ_f v_f / F_r²): w_r the relation's share of facts,
    V_r the variance of its templates' accuracies, v_f that of a fact's names within a template.
    The fitted effects of a sample vary more, by their noise about the full run's accuracies, which
    V_r is corrected for. The interval is that of the sum, from the variance of a quadratic form of
    normal noise (Searle, Casella and McCulloch 1992, appendix S.4): 4 e'Me + 2 tr(M²).

    Null with few answers per template, where the noise of the effects is underestimated.
    """
    n = answers_per_template(sample)
    if not sample.is_all and n < _FEWEST:
        # A larger budget is suggested: two prompts per fact at least, so that all facts are asked.
        share = max(
            2 * sample.n_facts / int(sample.n_prompts.sum()),
            (1 - sample.left) * _FEWEST / max(n, 1e-9),
        )
        digits = 1 - math.floor(math.log10(100 * share))
        percent = math.ceil(100 * share * 10**digits) / 10**digits  # rounded up, to two digits
        remedy = f"ask budget={percent:g}%" if percent < 100 else "only all prompts give it"
        return Estimated(None, None, None, f"{FEW.format(n=n, least=_FEWEST)}; {remedy}")
    parts = split_variance(sample, values)
    if parts is None or not (sample.is_asked.all() and all(fit.known for fit in parts.fits)):
        return Estimated(None, None, None, APART)
    # The unseen events, as many in all as for a share (`intervals.py`), are noise, too.
    unseen = UNSEEN * sample.left / max(1.0, parts.degrees)
    names = of_names(sample, values, parts.name + parts.rest)
    n_facts = np.bincount(sample.relation)
    total, variance = 0.0, 0.0
    for relation, share in enumerate(n_facts / n_facts.sum()):
        fit, error = parts.fits[relation], noise(sample, parts, relation)
        n_templates = len(fit.effects)
        # It may be below 0 by chance; only the sum over relations is bounded.
        between = float((fit.effects**2).sum() - np.trace(error)) / n_templates
        total += share**2 * (between + names[relation])
        wider = error + fit.inverse * unseen
        least = 2 * (wider**2).sum()
        # The effects have their own noise in them, which adds 4 tr(M²) to the first term.
        squared_error = max(least, 4 * fit.effects @ wider @ fit.effects - least)
        variance += share**4 * float(squared_error) / n_templates**2
    half = half_width(variance, parts.degrees)
    low, value, high = (np.sqrt(max(0.0, total + sign * half)) for sign in (-1, 0, 1))
    return Estimated(float(value), float(low), float(high))


def answers_per_template(sample: Crossed) -> float:
    """The mean over relations, weighted by their squared share of the facts."""
    weights = np.bincount(sample.relation).astype(np.float64) ** 2
    n_answers = np.bincount(sample.cell_relation, minlength=len(weights)) / sample.n_templates
    return float(weights @ n_answers / weights.sum())


def of_names(sample: Crossed, values: FloatArray, within: FloatArray) -> FloatArray:
    """Per relation, Σ v_f / F²: the variance of accuracy that the draw of names adds.

    From the templates that a fact was asked in under several names; a relation without any takes
    the mean of all, and a sample without any half the variance `within` templates.
    """
    fact, group = sample.fact_template
    is_several = np.bincount(group) > 1
    n_names, relation = sample.n_names[fact][is_several], sample.relation[fact][is_several]
    variances = spread(group, values)[is_several] * (n_names - 1) / n_names
    n_cells = np.bincount(relation, minlength=len(sample.n_templates))
    typical = variances.mean() if is_several.any() else within / 2
    mean = np.where(n_cells > 0, group_means(relation, variances, len(n_cells)), typical)
    n_facts = np.bincount(sample.relation)
    return (
        mean * sum_by_group(sample.relation, (sample.n_names > 1).astype(np.float64)) / n_facts**2
    )
