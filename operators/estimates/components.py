"""Where the variance of a score comes from: templates, facts × templates, names, and the rest.

The accuracies of templates come from a sample in which each fact met only some of them.

Facts are not alike, so a template's raw mean owes a part to the facts that it met. The additive
model y = fact + template is fitted to the mean of each (fact, template) by least squares, a
relation at a time: facts are taken out, and what remains are T equations of T unknowns. In the full
run the fitted effects are the templates' accuracies, but for their mean. The variance between
templates is that of the effects, minus what their noise adds to it on average (Henderson's
method 3).

For a prompt of fact f in template t under name k of the fact,

    y = mean_f + template_t + (fact × template)_ft + name_fk + rest_ftk

Within facts, half the mean squared difference of two prompts estimates the sum of the components
in which they differ; that is all that is used to split them:

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
    Crossed,
    FloatArray,
    IntArray,
    centred,
    group_means,
    summed,
)

# Below this many degrees of freedom a relation's residual leans on that of all.
FEW = 20.0


class Fit(NamedTuple):
    """One relation's: the templates' effects, which sum to 0, and the inverse of their equations.

    `inverse` times the residual variance is the covariance of the effects' errors, where templates
    are alike. They are not: the answers in one that is often right vary more than in one that never
    is. `sandwich` is their covariance from each template's own residuals (White 1980, with what
    leverage takes from these put back: MacKinnon and White 1985, HC2). `known` says whether all
    templates were compared with each other, by facts that met both.
    """

    effects: FloatArray
    inverse: FloatArray
    sandwich: FloatArray
    squares: float
    degrees: float
    known: bool


@dataclass(frozen=True)
class Components:
    """One variance per relation and source, with divisors (levels − 1); `degrees` of the residual.

    `residual` is the variance of the fits' residuals, which are of the mean of a (fact, template)
    over the names that were asked.
    """

    template: FloatArray
    fact_template: FloatArray
    name: FloatArray
    rest: FloatArray
    fits: tuple[Fit, ...]
    residual: FloatArray
    degrees: float


def components(sample: Crossed, values: FloatArray) -> Components | None:
    """Split the variance of a score within facts; null where no fact was asked twice.

    Relations have their own templates' variance and their own sum of the others, which is split in
    the same proportion in all: few relations are large enough for more. Where templates were not
    all compared, their variance is what a fact's prompts differ by beyond the residual, in all
    relations.
    """
    fits = _fits(sample, values)
    squares = np.array([fit.squares for fit in fits])
    degrees = np.array([fit.degrees for fit in fits])
    if degrees.sum() <= 0:
        return None
    common = squares.sum() / degrees.sum()
    lean = np.where(degrees < FEW, FEW, 0.0)
    residual = (squares + lean * common) / (degrees + lean)
    squared, n_pairs = differences(sample.fact, values)
    typical = max(0.0, squared / max(1, n_pairs) - common)
    template = np.array(
        [_between(fit, of, typical) for fit, of in zip(fits, residual, strict=True)]
    )
    of_cell, name, rest = _shares(sample, values, float(template.mean()))
    # The fit's residual is of means over the names asked in a template, which lessen all but one.
    of_name, of_rest = _left_by_means(sample)
    kept = of_cell + name * of_name + rest * of_rest
    within = residual / kept if kept > 0 else np.zeros_like(residual)
    split = template, of_cell * within, name * within, rest * within
    return Components(*split, fits, residual, float(degrees.sum()))


def differences(group: IntArray, values: FloatArray) -> tuple[float, float]:
    """Half the sum of squared differences of two within a group, and how many such two there are.

    Their ratio is the variance within groups that are alike.
    """
    n = np.bincount(group)
    sums, squares = np.bincount(group, values), np.bincount(group, values**2)
    return float((n * squares - sums**2).sum() / 2), float((n * (n - 1) / 2).sum())


def _between(fit: Fit, residual: float, typical: float) -> float:
    if not fit.known:
        return typical
    noise = residual * np.trace(fit.inverse)
    return float(((fit.effects**2).sum() - noise) / max(1, len(fit.effects) - 1))


def _fits(sample: Crossed, values: FloatArray) -> tuple[Fit, ...]:
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
    n = met.sum(axis=1)
    weight: FloatArray = _weights(n, n_names[ids])
    off = centred(fact, means)
    equations = _equations(met, weight)
    inverse = np.asarray(np.linalg.pinv(equations, rcond=1e-10, hermitian=True), np.float64)
    effects: FloatArray = inverse @ summed(template, weight[fact] * off, n_templates)
    rank = int(np.linalg.matrix_rank(equations, hermitian=True)) if len(ids) else 0
    residual: FloatArray = off - effects[template] + ((met @ effects) / n)[fact]
    degrees = float(len(means) - len(ids) - rank)
    sandwich = _sandwich(met, weight, residual, inverse, (fact, template))
    unit: FloatArray = inverse @ _equations(met, weight**2) @ inverse
    squares = float((residual**2).sum())
    return Fit(effects, unit, sandwich, squares, degrees, rank == n_templates - 1)


def _weights(n: FloatArray, n_names: IntArray) -> FloatArray:
    """What facts weigh, so that those of one number of names count for as much as they are.

    A fact says as much about templates as it met, less one. Facts with few names have been asked
    all that there is when others have not, and would weigh more than in the full run, where each
    weighs the same. All weigh 1 there.
    """
    _, group = np.unique(n_names, return_inverse=True)
    says = np.bincount(group, n - 1) / np.maximum(1, np.bincount(group))
    most = says.max(initial=0.0)
    weight: FloatArray = np.divide(most, says, out=np.ones_like(says), where=says > 0)[group]
    return weight


def _equations(met: FloatArray, weight: FloatArray) -> FloatArray:
    """The sum over facts of what each says about differences of templates, times its weight."""
    each = weight / met.sum(axis=1)
    found: FloatArray = np.diag(weight @ met) - met.T @ (met * each[:, None])
    return found


def _sandwich(
    met: FloatArray,
    weight: FloatArray,
    residual: FloatArray,
    inverse: FloatArray,
    cells: tuple[IntArray, IntArray],
) -> FloatArray:
    """The covariance of the effects' errors, from the squared residual of each (fact, template)."""
    fact, template = cells
    n = met.sum(axis=1)
    # What a cell's answer pulls: its template's effect, less those that its fact met on average.
    pull = weight[fact, None] * (inverse[template] - ((met @ inverse) / n[:, None])[fact])
    own = pull[np.arange(len(fact)), template] - ((pull * met[fact]).sum(axis=1) / n[fact])
    kept = np.clip(1 - 1 / n[fact] - own, 1e-3, None)
    root = pull * (residual / np.sqrt(kept))[:, None]
    product: FloatArray = root.T @ root
    return product


def noise(sample: Crossed, found: Components, relation: int) -> FloatArray:
    """The covariance of a relation's fitted effects about those of the full run.

    Both are best linear estimates, one from a part of the other's answers, so that the variance of
    their difference is the difference of their variances (Hausman 1978, lemma 2.1). In the full run
    every fact met every template under each of its names, so that names differ between no two
    templates there. So much of each template's own (`Fit.sandwich`) is left as of all of them
    together; with too few degrees of freedom to tell them apart they are alike.
    """
    fit, residual = found.fits[relation], found.residual[relation]
    alike = np.zeros_like(fit.inverse)
    if not sample.is_all:
        mine = sample.relation == relation
        n = len(alike)
        full = (np.eye(n) - 1 / n) / mine.sum()
        over_names = (1 / sample.n_names[mine]).mean()
        kept = found.fact_template[relation] + found.rest[relation] * over_names
        alike = residual * fit.inverse - kept * full
    whole = float(residual * np.trace(fit.inverse))
    if fit.degrees < FEW or whole <= 0:
        return alike
    return max(0.0, float(np.trace(alike))) / whole * fit.sandwich


def _left_by_means(sample: Crossed) -> tuple[float, float]:
    """What of the variance of names, and of the rest, differs between the means of templates.

    They are over the names that a fact was asked under in each; names that it was asked under in
    all of its templates differ between none of them.
    """
    of, group = sample.fact_template
    n_templates = np.bincount(of, minlength=sample.n_facts)
    each = (1 / np.bincount(group))[group]  # what a prompt weighs in the mean of its template
    alone = np.bincount(sample.fact, each**2, sample.n_facts)
    of_name, in_name = sample.fact_name
    shared = np.bincount(of_name, np.bincount(in_name, each) ** 2, sample.n_facts)
    over = 1 / np.maximum(1, n_templates)
    degrees = max(1, int((n_templates - 1).clip(0).sum()))
    left = alone - shared * over, alone * (1 - over)
    return float(left[0].sum()) / degrees, float(left[1].sum()) / degrees


def _shares(sample: Crossed, values: FloatArray, template: float) -> tuple[float, float, float]:
    """The shares of fact × template, name and rest in what is not the templates'."""
    every, n_every = differences(sample.fact, values)
    by_template, n_template = differences(sample.fact_template[1], values)
    by_name, n_name = differences(sample.fact_name[1], values)
    n_other = n_every - n_template - n_name
    both = (every - by_template - by_name) / n_other if n_other > 0 else None
    names = by_name / n_name if n_name > 0 else None
    if both is None or names is None:
        return 0.0, 0.0, 1.0
    name = max(0.0, both - names)
    within = max(0.0, names - template)
    rest = min(within, max(0.0, by_template / n_template - name)) if n_template > 0 else within
    total = name + within
    if total <= 0:
        return 0.0, 0.0, 1.0
    return (within - rest) / total, name / total, rest / total


def template_level(sample: Crossed, weights: FloatArray, cell: FloatArray) -> FloatArray:
    """By relation, Σ over templates of (their weight in the sample − in the full run)².

    `weights` has what a fact weighs in the full run, `cell` what a sampled prompt does.
    """
    asked = np.bincount(sample.in_template, cell, int(sample.n_templates.sum()))
    relation = np.repeat(np.arange(len(sample.n_templates)), sample.n_templates)
    full = np.bincount(sample.relation, weights) / sample.n_templates
    own = np.bincount(relation, asked) / sample.n_templates
    # A relation whose facts weigh more here than in the full run differs in its mean, no template.
    scale = np.divide(own, full, out=np.ones_like(full), where=full > 0)
    return summed(relation, (asked - (full * scale)[relation]) ** 2)
