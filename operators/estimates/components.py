"""Variance components of a score within facts: templates, facts × templates, names, and the rest.

Each fact met only some templates, so a template's raw mean owes a part to the facts that it met. A
least-squares fit of y = fact + template to the mean of each (fact, template), relation by relation,
gives the templates' effects; in the full run they are the templates' accuracies less their mean.
The variance between templates is that of the effects minus the mean of their noise (Henderson's
method 3). For a prompt of fact f in template t under name k of the fact,

    y = mean_f + template_t + (fact × template)_ft + name_fk + rest_ftk

Half the mean squared difference of two prompts of a fact estimates the sum of the components in
which they differ:

    same template, other name    name + rest
    other template, same name    template + fact × template + rest
    both others                  template + fact × template + name + rest

A component has the divisor (levels − 1), as that of a finite population has.

Source: Searle, Casella and McCulloch 1992, chapter 5 (Henderson's methods 1 and 3; section 5.5).
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from factsweep.operators.estimates.crossed import (
    CrossedSample,
    FloatArray,
    IntArray,
    centre_by_group,
    group_means,
    sum_by_group,
)

# Below this many degrees of freedom a relation's residual is pooled with that of all relations.
FEW = 20.0


class Fit(NamedTuple):
    """A relation's template effects, which sum to 0, and the inverse of their equations.

    `inverse` times the residual variance is the covariance of the effects' errors where templates
    are alike. `sandwich` is that covariance from each template's own residuals, since answers vary
    more in a template that is often right (White 1980, with the leverage correction HC2: MacKinnon
    and White 1985). `is_known` says whether common facts connect all templates.
    """

    effects: FloatArray
    inverse: FloatArray
    sandwich: FloatArray
    squares: float
    degrees: float
    is_known: bool


@dataclass(frozen=True)
class Components:
    """One variance per relation and source, with divisors (levels − 1); `degrees` of the residual.

    `residual` is the variance of the residuals of the (fact, template) means.
    """

    template: FloatArray
    fact_template: FloatArray
    name: FloatArray
    rest: FloatArray
    fits: tuple[Fit, ...]
    residual: FloatArray
    degrees: float


def split_variance(sample: CrossedSample, values: FloatArray) -> Components | None:
    """Split the variance of a score within facts; null where every fact has a single prompt.

    Each relation has its own template variance and its own sum of the others, which is split in the
    same proportion in all relations, since few are large enough for a split of their own. A
    relation whose templates are not connected gets the template variance of all relations.
    """
    fits = _fit_all(sample, values)
    squares = np.array([fit.squares for fit in fits])
    degrees = np.array([fit.degrees for fit in fits])
    if degrees.sum() <= 0:
        return None
    common = squares.sum() / degrees.sum()
    pooled = np.where(degrees < FEW, FEW, 0.0)
    residual = (squares + pooled * common) / (degrees + pooled)
    squared, n_pairs = differences(sample.fact, values)
    typical = max(0.0, squared / max(1, n_pairs) - common)
    template = np.full(len(fits), typical)
    for relation, fit in enumerate(fits):
        if fit.is_known:
            noise_sum = residual[relation] * np.trace(fit.inverse)
            between = float((fit.effects**2).sum() - noise_sum)
            template[relation] = between / max(1, len(fit.effects) - 1)
    cell_share, name_share, rest_share = _shares(sample, values, float(template.mean()))
    # The residuals are those of means over names, which shrink all components but one.
    name_factor, rest_factor = _factors_of_means(sample)
    factor = cell_share + name_share * name_factor + rest_share * rest_factor
    within = residual / factor if factor > 0 else np.zeros_like(residual)
    split = template, cell_share * within, name_share * within, rest_share * within
    return Components(*split, fits, residual, float(degrees.sum()))


def differences(group: IntArray, values: FloatArray) -> tuple[float, float]:
    """Half the sum of squared differences of pairs within groups, and the number of pairs."""
    n = np.bincount(group)
    sums, squares = np.bincount(group, values), np.bincount(group, values**2)
    return float((n * squares - sums**2).sum() / 2), float((n * (n - 1) / 2).sum())


def _fit_all(sample: CrossedSample, values: FloatArray) -> tuple[Fit, ...]:
    fact, group = sample.fact_template
    means = group_means(group, values)
    template = np.empty(len(fact), np.int64)
    template[group] = sample.template
    # Groups are sorted by fact, but facts need not be by relation.
    relation = sample.relation[fact]
    order = np.argsort(relation, kind="stable")
    edges = np.searchsorted(relation[order], np.arange(1, len(sample.n_templates)))
    return tuple(
        _fit(fact[rows], template[rows], means[rows], int(n_templates), sample.n_names)
        for n_templates, rows in zip(sample.n_templates, np.split(order, edges), strict=True)
    )


def _fit(
    fact: IntArray, template: IntArray, means: FloatArray, n_templates: int, n_names: IntArray
) -> Fit:
    ids, fact = np.unique(fact, return_inverse=True)
    met = np.zeros((len(ids), n_templates))
    met[fact, template] = 1.0
    n_met = met.sum(axis=1)
    weight = _weights(n_met, n_names[ids])
    deviations = centre_by_group(fact, means)
    equations = _equations(met, weight)
    inverse = np.asarray(np.linalg.pinv(equations, rcond=1e-10, hermitian=True), np.float64)
    effects: FloatArray = inverse @ sum_by_group(template, weight[fact] * deviations, n_templates)
    rank = int(np.linalg.matrix_rank(equations, hermitian=True)) if len(ids) else 0
    residual: FloatArray = deviations - effects[template] + ((met @ effects) / n_met)[fact]
    degrees = float(len(means) - len(ids) - rank)
    # The influence of a cell on the effects: its template's, less the mean of those of its fact.
    influence = weight[fact, None] * (inverse[template] - ((met @ inverse) / n_met[:, None])[fact])
    leverage = influence[np.arange(len(fact)), template]
    leverage = leverage - ((influence * met[fact]).sum(axis=1) / n_met[fact])
    remainder = np.clip(1 - 1 / n_met[fact] - leverage, 1e-3, None)
    root = influence * (residual / np.sqrt(remainder))[:, None]
    sandwich: FloatArray = root.T @ root
    unit: FloatArray = inverse @ _equations(met, weight**2) @ inverse
    squares = float((residual**2).sum())
    return Fit(effects, unit, sandwich, squares, degrees, rank == n_templates - 1)


def _weights(n_met: FloatArray, n_names: IntArray) -> FloatArray:
    """The weights of facts that give each number of names the weight of its facts.

    A fact contributes as much to the effects as it met templates, less one. Facts with few names
    are exhausted first, and would weigh more than in the full run, where all weigh 1.
    """
    _, group = np.unique(n_names, return_inverse=True)
    contribution = np.bincount(group, n_met - 1) / np.maximum(1, np.bincount(group))
    most, ones = contribution.max(initial=0.0), np.ones_like(contribution)
    weight: FloatArray = np.divide(most, contribution, out=ones, where=contribution > 0)[group]
    return weight


def _equations(met: FloatArray, weight: FloatArray) -> FloatArray:
    """The normal equations of the template effects, with facts eliminated."""
    scaled = met * (weight / met.sum(axis=1))[:, None]
    equations: FloatArray = np.diag(weight @ met) - met.T @ scaled
    return equations


def noise(sample: CrossedSample, parts: Components, relation: int) -> FloatArray:
    """The covariance of a relation's fitted effects about those of the full run.

    Both are best linear estimates, one from a part of the other's answers, so the variance of their
    difference is the difference of their variances (Hausman 1978, lemma 2.1). In the full run every
    fact met every template under each name, so names do not separate templates there. Each
    template's own covariance (`Fit.sandwich`) is scaled to that total; with few degrees of freedom
    templates count as alike.
    """
    fit, residual = parts.fits[relation], parts.residual[relation]
    alike = np.zeros_like(fit.inverse)
    if not sample.is_all:
        is_member = sample.relation == relation
        n = len(alike)
        full = (np.eye(n) - 1 / n) / is_member.sum()
        over_names = (1 / sample.n_names[is_member]).mean()
        variance = parts.fact_template[relation] + parts.rest[relation] * over_names
        alike = residual * fit.inverse - variance * full
    total = float(residual * np.trace(fit.inverse))
    if fit.degrees < FEW or total <= 0:
        return alike
    return max(0.0, float(np.trace(alike))) / total * fit.sandwich


def _factors_of_means(sample: CrossedSample) -> tuple[float, float]:
    """The share of the name variance, and of the rest, that differs between means of templates.

    These are means over a fact's sampled names; a name sampled in all templates of a fact cancels.
    """
    fact, group = sample.fact_template
    n_templates = np.bincount(fact, minlength=sample.n_facts)
    prompt_weight = (1 / np.bincount(group))[group]  # in the mean of its template
    squares = np.bincount(sample.fact, prompt_weight**2, sample.n_facts)
    name_fact, name_group = sample.fact_name
    name_squares = np.bincount(name_group, prompt_weight) ** 2
    shared = np.bincount(name_fact, name_squares, sample.n_facts)
    over = 1 / np.maximum(1, n_templates)
    degrees = max(1, int((n_templates - 1).clip(0).sum()))
    names, remainder = squares - shared * over, squares * (1 - over)
    return float(names.sum()) / degrees, float(remainder.sum()) / degrees


def _shares(
    sample: CrossedSample, values: FloatArray, template: float
) -> tuple[float, float, float]:
    """The shares of fact × template, name and rest in the variance without the templates'."""
    squares, n_pairs = differences(sample.fact, values)
    template_squares, n_template = differences(sample.fact_template[1], values)
    name_squares, n_name = differences(sample.fact_name[1], values)
    n_other = n_pairs - n_template - n_name
    if n_other <= 0 or n_name <= 0:
        return 0.0, 0.0, 1.0
    other_variance = (squares - template_squares - name_squares) / n_other
    name_variance = name_squares / n_name
    name = max(0.0, other_variance - name_variance)
    within = rest_variance = max(0.0, name_variance - template)
    if n_template > 0:
        rest_variance = min(within, max(0.0, template_squares / n_template - name))
    total = name + within
    if total <= 0:
        return 0.0, 0.0, 1.0
    return (within - rest_variance) / total, name / total, rest_variance / total


def template_level(sample: CrossedSample, weights: FloatArray, cell: FloatArray) -> FloatArray:
    """By relation, Σ over templates of (their weight in the sample − in the full run)².

    `weights` are those of facts in the full run, `cell` those of the sampled prompts.
    """
    sampled = np.bincount(sample.in_template, cell, int(sample.n_templates.sum()))
    relation = np.repeat(np.arange(len(sample.n_templates)), sample.n_templates)
    full = np.bincount(sample.relation, weights) / sample.n_templates
    means = np.bincount(relation, sampled) / sample.n_templates
    # A relation whose facts weigh more here than in the full run differs in its mean only.
    scale = np.divide(means, full, out=np.ones_like(full), where=full > 0)
    return sum_by_group(relation, (sampled - (full * scale)[relation]) ** 2)
