"""Other ways to spend a budget of prompts: one prompt at random, whole templates, and PromptEval.

Each is asked for Acc@1 of the full run and for how far templates differ in it, from answers to `n`
prompts, relations in proportion to their prompts. PromptEval is written from the formulas of Polo
et al. 2024, "Efficient multi-prompt evaluation of LLMs" (NeurIPS; arXiv 2405.17202), section 3.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from _simulation import Made
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

# What PromptEval's authors set: the variance of the normal prior of an effect.
_PRIOR_VARIANCE = 100.0


class Guess(NamedTuple):
    """What a peer says of the full run; null where it says nothing.

    `templates` is the variance of Acc@1 over draws of a template per relation.
    """

    acc_at_1: float | None
    templates: float | None


class Relation(NamedTuple):
    """A relation's answers in the full run: one row per fact under one of its names × templates.

    `weight` is what such a row counts in Acc@1: one over the names of its fact.
    """

    right: NDArray[np.bool_]
    fact: IntArray
    weight: FloatArray
    n_facts: int


def relations(made: Made) -> list[Relation]:
    """The relations of a full run."""
    return [_relation(*each) for each in zip(made.answers_of, made.n_names_of, strict=True)]


def _relation(answers: IntArray, n_names: IntArray) -> Relation:
    there = np.arange(answers.shape[2]) < n_names[:, None]
    fact, name = np.nonzero(there)
    return Relation(answers[fact, :, name] == 0, fact, 1 / n_names[fact], len(n_names))


def _budgets(of: list[Relation], n: int) -> list[int]:
    """The prompts that each relation gets, in proportion to what it has; all sum up to n."""
    edges = np.cumsum([0, *(each.right.size for each in of)])
    return [int(each) for each in np.diff(np.round(edges * (n / edges[-1])))]


def uniform(of: list[Relation], n: int, rng: np.random.Generator) -> Guess:
    """Prompts drawn at random from all, and the mean of their answers, as Acc@1 weighs them.

    Templates differ by the variance of their means, lessened by what the choice of their prompts
    adds to it (the analysis of variance; Searle, Casella and McCulloch 1992, section 3.6).
    """
    edges = np.cumsum([0, *(each.right.size for each in of)])
    drawn = np.sort(rng.choice(edges[-1], n, replace=False))
    parts = np.split(drawn, np.searchsorted(drawn, edges[1:-1]))
    total = known = variance = 0.0
    for each, mine, start, share in zip(of, parts, edges[:-1], _shares(of), strict=True):
        row, template = np.divmod(mine - start, each.right.shape[1])
        right, weight = each.right[row, template].astype(np.float64), each.weight[row]
        total, known = total + right @ weight, known + weight.sum()
        variance += share**2 * _between(template, right, weight, len(each.fact)) * _whole(each)
    return Guess(total / known, max(0.0, variance))


def _between(template: IntArray, right: FloatArray, weight: FloatArray, n_full: int) -> float:
    """The variance between templates, of weighted answers to some of their `n_full` prompts."""
    n = np.bincount(template)
    several = n > 1
    if several.sum() < 2:
        return 0.0
    sums = np.bincount(template, weight)
    means = np.divide(np.bincount(template, right * weight), sums, out=0 * sums, where=sums > 0)
    noise = np.bincount(template, (weight * (right - means[template])) ** 2)[several]
    noise *= (1 - n[several] / n_full) / sums[several] ** 2 * n[several] / (n[several] - 1)
    return float(means[several].var(ddof=1) - noise.mean())


def whole_templates(of: list[Relation], n: int, rng: np.random.Generator) -> Guess:
    """One template for all facts, drawn at random; a larger budget asks a second one, and so on.

    In a template each fact is asked under one name, then under the next. How far templates differ
    is told by those that were asked as a whole, if there are two.
    """
    accuracy, variance = 0.0, 0.0
    for each, budget, share in zip(of, _budgets(of, n), _shares(of), strict=True):
        rows = _by_name(each, rng)
        n_rows, n_templates = each.right.shape
        templates = rng.permutation(n_templates)
        whole, more = divmod(budget, n_rows)
        if not budget:
            return Guess(None, None)
        accuracies = [each.weight @ each.right[:, t] / each.n_facts for t in templates[:whole]]
        between = np.var(accuracies, ddof=1) if whole > 1 else np.nan
        variance += share**2 * between * _whole(each)
        if more:
            some = rows[:more]
            weight = 1 / np.bincount(each.fact[some], minlength=each.n_facts)[each.fact[some]]
            accuracies += [np.average(each.right[some, templates[whole]], weights=weight)]
        weights = [n_rows] * whole + ([more] if more else [])
        accuracy += share * float(np.average(accuracies, weights=weights))
    return Guess(accuracy, None if np.isnan(variance) else float(variance))


def _whole(of: Relation) -> float:
    """What makes a variance of divisor T − 1 one of divisor T."""
    return 1 - 1 / of.right.shape[1]


def _by_name(of: Relation, rng: np.random.Generator) -> IntArray:
    """The rows in an order in which every fact comes under one name before any under two."""
    order = rng.permutation(len(of.fact))
    fact = of.fact[order]
    by_fact = np.argsort(fact, kind="stable")
    n = np.bincount(fact, minlength=of.n_facts)
    visit = np.empty(len(fact), np.int64)
    visit[by_fact] = np.arange(len(fact)) - np.repeat(np.cumsum(n) - n, n)
    return order[np.argsort(visit, kind="stable")]


def prompt_eval(of: list[Relation], n: int, rng: np.random.Generator) -> Guess:
    """PromptEval without covariates, one model per relation, since templates belong to relations.

    An example is a fact under one of its names. An answer to example j in template i is right with
    probability σ(θ_i − β_j) (the Rasch model); θ and β are fitted by logistic regression with a
    normal prior to a sample that is balanced over both. A template's performance is the mean of its
    answers and, where it was not asked, of the fitted probabilities. Acc@1 is the mean of these;
    their distribution is what the paper estimates.
    """
    accuracy, variance = 0.0, 0.0
    for each, budget, share in zip(of, _budgets(of, n), _shares(of), strict=True):
        if not budget:
            return Guess(None, None)
        row, template = balanced(each.right.shape, budget, rng)
        expected = _fitted(row, template, each.right[row, template], each.right.shape)
        expected[row, template] = each.right[row, template]
        performance = each.weight @ expected / each.n_facts
        accuracy += share * float(performance.mean())
        variance += share**2 * float(performance.var())
    return Guess(accuracy, variance)


def balanced(shape: tuple[int, int], n: int, rng: np.random.Generator) -> tuple[IntArray, IntArray]:
    """A sample of examples × templates, each example and each template as often as any other.

    The paper draws the next cell at random among the least seen templates and examples; this is a
    Latin square of the two in random order, which keeps both counts within one of each other.
    """
    n_rows, n_templates = shape
    rows, templates = rng.permutation(n_rows), rng.permutation(n_templates)
    shifts = rng.permutation(n_templates)
    visit, place = np.divmod(np.arange(n), n_rows)
    return rows[place], templates[(place + shifts[visit]) % n_templates]


def _fitted(
    row: IntArray, template: IntArray, right: NDArray[np.bool_], shape: tuple[int, int]
) -> FloatArray:
    """The fitted probabilities of all examples × templates."""
    from scipy.sparse import csr_matrix
    from scipy.special import expit
    from sklearn.linear_model import LogisticRegression

    if right.all() or not right.any():
        return np.full(shape, float(right[0]))
    n, columns = len(row), np.stack([row, shape[0] + template], axis=1).ravel()
    effects = csr_matrix((np.ones(2 * n), columns, np.arange(0, 2 * n + 1, 2)), (n, sum(shape)))
    model = LogisticRegression(C=_PRIOR_VARIANCE, fit_intercept=False, solver="liblinear")
    found = model.fit(effects, right).coef_[0]
    probabilities: FloatArray = expit(found[: shape[0], None] + found[None, shape[0] :])
    return probabilities


def _shares(of: list[Relation]) -> Iterator[float]:
    n = sum(each.n_facts for each in of)
    return (each.n_facts / n for each in of)
