"""The accuracies of templates, from a sample in which each fact met only some of them.

Facts are not alike, so a template's raw mean owes a part to the facts that it met. The additive
model y = fact + template is fitted to the mean of each (fact, template) by least squares, a
relation at a time: facts are taken out, and what remains are T equations of T unknowns. In the full
run the fitted effects are the templates' accuracies, but for their mean. The variance between
templates is that of the effects, minus what their noise adds to it on average (Henderson's
method 3).

Source: Searle, Casella and McCulloch 1992, section 5.5.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from factsweep.operators.estimates.crossed import Crossed, FloatArray, IntArray
from factsweep.operators.estimates.groups import centred, group_means, summed

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
class Fits:
    """The fits of all relations, their residual variances, and the variances between templates.

    A residual is of the mean of a (fact, template) over the names that were asked. Where templates
    were not all compared, their variance is what a fact's prompts differ by beyond the residual, in
    all relations. Variances have the divisor T − 1.
    """

    each: tuple[Fit, ...]
    residual: FloatArray
    variance: FloatArray
    degrees: float

    @property
    def known(self) -> bool:
        """Whether the templates of every relation were all compared."""
        return all(fit.known for fit in self.each)


def fitted(sample: Crossed, values: FloatArray) -> Fits | None:
    """Fit every relation; null where there is nothing to tell the noise by."""
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
    variance = [_between(fit, own, typical) for fit, own in zip(fits, residual, strict=True)]
    return Fits(fits, residual, np.array(variance), float(degrees.sum()))


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
