"""The best template of each relation, without the winner's curse.

Two numbers. `coverage_maximum` is that of the full run, which takes the best template of each
relation and the best name of each fact: what the sample leaves open of the templates
(`accuracies.py`) says how high the best of them is, whichever it is. `template_chosen` is what a
user gets who chooses a template by this sample: chosen on one half of the facts, judged on the
other, and the other way round (cross-fitting, Chernozhukov et al. 2018), so that it says what the
choice gives for facts that had no part in it.
"""

from typing import NamedTuple

import numpy as np

from factsweep.operators.estimates.crossed import BoolArray, Crossed, FloatArray, IntArray
from factsweep.operators.estimates.fluctuations.accuracies import accuracies, drawn
from factsweep.operators.estimates.fluctuations.beta_binomial import any_right, correlation, shape
from factsweep.operators.estimates.fluctuations.components import compared, components, errors
from factsweep.operators.estimates.fluctuations.fluctuation import told_apart
from factsweep.operators.estimates.fluctuations.templates import Fits
from factsweep.operators.estimates.fluctuations.templates import fitted as effects_of
from factsweep.operators.estimates.intervals import Estimated, exactly, half_width, within_bounds
from factsweep.operators.metrics.shared.metric import Metric
from factsweep.operators.seeds import generator

NAMES = (
    "no fact was asked in one template under two of its names, so nothing says how often the best "
    "of them is right"
)
HALVES = "the templates of some relations were not yet compared with each other in half the facts"

_N_DRAWS = 1000


class Hits(NamedTuple):
    """Of each (fact, template) that was asked, the chance that any of the fact's names is right.

    1 where one was; 0 where all were asked and wrong. `sample` has one row for each of them.
    """

    sample: Crossed
    chance: FloatArray


def maximum(sample: Crossed, correct: FloatArray, *, seed: int) -> Estimated:
    """Estimate the share of facts right under the relation's best template and the best name.

    What the names that were not asked would give is taken from a beta-binomial distribution of
    the names within a (fact, template), whose correlation is that of all that were asked under
    several (`hits`). The templates are then compared by these chances. The best one's lead is in
    proportion to how far the templates are apart, whose error the interval has, too. Chances that
    are the same for all facts leave most open, and certain facts nothing: the interval has both.

    The value is the best of the shrunk templates. The ends are about two other numbers: what
    templates give that one half of the facts chose, judged on the other half, and what they give
    that all facts chose, judged on the same. The first is too low on average and the second too
    high, however the templates' accuracies are distributed: a few good ones among many bad are not
    normal, which shrinking takes them to be.
    """
    if sample.is_all:
        return exactly(_best_of_all(sample, correct))
    apart = told_apart(sample, correct)
    if isinstance(apart, Estimated):
        return apart
    means = np.concatenate([each.fitted for each in accuracies(sample, correct, apart.split)])
    found = hits(sample, correct, means)
    of = None if found is None else compared(*found)
    if found is None or of is None:
        return Estimated(None, None, None, NAMES)
    rng = generator(seed, "coverage_maximum")
    share = np.bincount(sample.relation) / sample.n_facts
    unknown = np.split(_unknown(found), np.cumsum(sample.n_templates)[:-1])
    made = choice(*found, seed=seed)
    if made is None:
        return Estimated(None, None, None, HALVES)
    total, lead, coins, naive, value = np.zeros(_N_DRAWS), 0.0, 0.0, 0.0, 0.0
    for weight, each, noise in zip(share, accuracies(*found, of), unknown, strict=True):
        draws = drawn(each, _N_DRAWS, rng)
        tossed = draws + np.sqrt(noise) * rng.standard_normal(draws.shape)
        best, other = (np.clip(ends, 0.0, 1.0).max(axis=1) for ends in (draws, tossed))
        total += weight * (best + other) / 2
        coins += weight * float((other - best).mean()) / 2
        lead += weight * float(best.mean() - each.shrunk.mean())
        naive += weight * float(each.fitted.max())
        value += weight * float(each.shrunk.max())
    judged, _ = _judged(*found, made)
    half = abs(coins) + float(np.hypot(1.96 * total.std(), apart.error * lead))
    low, high = min(judged, value) - half, max(naive, value) + half
    return Estimated(value, max(0.0, low), min(1.0, high))


def _judged(sample: Crossed, values: FloatArray, made: "Choice") -> tuple[float, float]:
    """What each half's choices give on the half that did not choose, and its variance.

    That is the variance about the facts' means.
    """
    shares = np.bincount(sample.relation) / sample.n_facts
    value, variance = float(sample.mean_by_fact(values).mean()), 0.0
    for relation, (share, best) in enumerate(zip(shares, made.templates, strict=True)):
        for template, judge in zip(best, made.judged_by, strict=True):
            fit, residual = judge.each[relation], judge.residual[relation]
            value += share * float(fit.effects[template]) / 2
            variance += share**2 * float(residual * fit.inverse[template, template]) / 4
    return value, variance


def hits(sample: Crossed, correct: FloatArray, means: FloatArray) -> Hits | None:
    """Give each (fact, template) its chance; null where nothing says how alike names are.

    `means` are the accuracies of the templates, relations one after the other.
    """
    fact, group = sample.fact_template
    n, right = np.bincount(group), np.bincount(group, correct)
    template, number = np.empty((2, len(fact)), np.int64)
    template[group], number[group] = sample.template, sample.in_template
    chance = (right > 0).astype(np.float64)
    left = np.where(right == 0, sample.n_names[fact] - n, 0)
    if left.any():
        # A template has its own mean, and the correlation of all.
        mean = np.clip(means[number], 1e-6, 1 - 1e-6)
        alike = correlation(n, right.astype(np.int64), mean)
        if alike is None:
            return None
        of = shape(np.stack([np.log(mean / (1 - mean)), np.full(len(mean), alike)], axis=1))
        chance = np.where(left > 0, any_right(of, left, n), chance)
    one = np.ones(sample.n_facts, np.int64)
    cells = (fact, template, np.zeros_like(template))
    return Hits(Crossed(sample.relation, one, sample.n_templates, *cells), chance)


def _unknown(of: Hits) -> FloatArray:
    """The variance of each template's share of hits that the chances leave open.

    That of a coin per fact: a chance is what is expected of a hit, and stands for all facts.
    """
    n = int(of.sample.n_templates.sum())
    coins = np.bincount(of.sample.in_template, of.chance * (1 - of.chance), n)
    asked = np.bincount(of.sample.in_template, minlength=n)
    facts = np.repeat(np.bincount(of.sample.relation), of.sample.n_templates)
    variance: FloatArray = coins / np.maximum(asked, 1) / facts
    return variance


def _best_of_all(sample: Crossed, correct: FloatArray) -> float:
    """What the full run gives, of which this is the whole."""
    _, group = sample.fact_template
    template = np.empty(int(group.max()) + 1, np.int64)
    template[group] = sample.in_template
    right = np.bincount(group, correct) > 0
    by_template = np.bincount(template, right, int(sample.n_templates.sum()))
    relations = np.split(by_template, np.cumsum(sample.n_templates)[:-1])
    return float(sum(each.max() for each in relations) / sample.n_facts)


class Choice(NamedTuple):
    """The template that each half of the facts chooses in each relation, and the halves' fits.

    `templates` is relations × halves; `judged_by` has for each half the fit of the other, and
    `first` says of which facts the first half is.
    """

    first: BoolArray
    templates: IntArray
    judged_by: tuple[Fits, Fits]


def choice(sample: Crossed, correct: FloatArray, *, seed: int) -> Choice | None:
    """Let each half choose; null where a half has not compared all templates."""
    first = _half(sample, seed)
    halves = ((sample.only(mine), correct[mine[sample.fact]]) for mine in (first, ~first))
    one, other = (effects_of(*half) for half in halves)
    if one is None or other is None or not (one.known and other.known):
        return None
    best = [[int(fit.effects.argmax()) for fit in half.each] for half in (one, other)]
    return Choice(first, np.transpose(best), (other, one))


def chosen(sample: Crossed, correct: FloatArray, *, seed: int) -> Estimated:
    """Estimate the accuracy under the template that half of the facts chooses in each relation.

    It is that of the other half, over all names. The halves are drawn in each relation.
    """
    found, made = components(sample, correct), choice(sample, correct, seed=seed)
    if found is None or made is None or not sample.is_asked.all():
        return Estimated(None, None, None, HALVES)
    value, variance = _judged(sample, correct, made)
    if sample.is_all:
        return exactly(value)
    weights = np.ones(sample.n_facts) / sample.n_facts
    variance += float(errors(sample, weights, found).sum(axis=0).sum())
    return within_bounds(value, half_width(variance, found.degrees))


def _half(sample: Crossed, seed: int) -> BoolArray:
    """Half of each relation's facts, at random."""
    rank = generator(seed, "template_chosen").random(sample.n_facts)
    order = np.lexsort((rank, sample.relation))
    first = np.empty(sample.n_facts, np.bool_)
    first[order] = np.arange(sample.n_facts) % 2 == 0
    return first


TEMPLATE_CHOSEN = Metric(
    "template_chosen",
    heading="chosen template",
    says="accuracy under the template that half of the facts chooses, judged on the other half",
    better="higher",
)
