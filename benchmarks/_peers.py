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
    """A peer's estimates of the full run; null where it has none.

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


def relations(model: Made) -> list[Relation]:
    """The relations of a full run."""
    return [
        _relation(*answers_and_names)
        for answers_and_names in zip(model.answers_of, model.n_names_of, strict=True)
    ]


def _relation(answers: IntArray, n_names: IntArray) -> Relation:
    is_name = np.arange(answers.shape[2]) < n_names[:, None]
    fact, name = np.nonzero(is_name)
    return Relation(answers[fact, :, name] == 0, fact, 1 / n_names[fact], len(n_names))


def _budgets(all_relations: list[Relation], n: int) -> list[int]:
    """The number of prompts per relation, proportional to its size; they sum to n."""
    edges = np.cumsum([0, *(relation.right.size for relation in all_relations)])
    return [int(size) for size in np.diff(np.round(edges * (n / edges[-1])))]


def uniform(all_relations: list[Relation], n: int, rng: np.random.Generator) -> Guess:
    """Prompts drawn at random from all, and the mean of their answers, as Acc@1 weighs them.

    Templates differ by the variance of their means, lessened by what the choice of their prompts
    adds to it (the analysis of variance; Searle, Casella and McCulloch 1992, section 3.6).
    """
    edges = np.cumsum([0, *(relation.right.size for relation in all_relations)])
    places = np.sort(rng.choice(edges[-1], n, replace=False))
    parts = np.split(places, np.searchsorted(places, edges[1:-1]))
    total = total_weight = variance = 0.0
    for relation, places_of_relation, start, share in zip(
        all_relations, parts, edges[:-1], _shares(all_relations), strict=True
    ):
        row, template = np.divmod(places_of_relation - start, relation.right.shape[1])
        right, weight = relation.right[row, template].astype(np.float64), relation.weight[row]
        total, total_weight = total + right @ weight, total_weight + weight.sum()
        variance += (
            share**2 * _between(template, right, weight, len(relation.fact)) * _whole(relation)
        )
    return Guess(total / total_weight, max(0.0, variance))


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


def whole_templates(all_relations: list[Relation], n: int, rng: np.random.Generator) -> Guess:
    """One template for all facts, drawn at random; a larger budget asks a second one, and so on.

    In a template each fact is asked under one name, then under the next. How far templates differ
    is told by those that were asked as a whole, if there are two.
    """
    accuracy, variance = 0.0, 0.0
    for relation, budget, share in zip(
        all_relations, _budgets(all_relations, n), _shares(all_relations), strict=True
    ):
        rows = _by_name(relation, rng)
        n_rows, n_templates = relation.right.shape
        templates = rng.permutation(n_templates)
        n_whole, n_more = divmod(budget, n_rows)
        if not budget:
            return Guess(None, None)
        accuracies = [
            relation.weight @ relation.right[:, t] / relation.n_facts for t in templates[:n_whole]
        ]
        between = np.var(accuracies, ddof=1) if n_whole > 1 else np.nan
        variance += share**2 * between * _whole(relation)
        if n_more:
            some = rows[:n_more]
            weight = (
                1
                / np.bincount(relation.fact[some], minlength=relation.n_facts)[relation.fact[some]]
            )
            accuracies += [np.average(relation.right[some, templates[n_whole]], weights=weight)]
        weights = [n_rows] * n_whole + ([n_more] if n_more else [])
        accuracy += share * float(np.average(accuracies, weights=weights))
    return Guess(accuracy, None if np.isnan(variance) else float(variance))


def _whole(relation: Relation) -> float:
    """What makes a variance of divisor T − 1 one of divisor T."""
    return 1 - 1 / relation.right.shape[1]


def _by_name(relation: Relation, rng: np.random.Generator) -> IntArray:
    """The rows in an order in which every fact comes under one name before any under two."""
    order = rng.permutation(len(relation.fact))
    fact = relation.fact[order]
    by_fact = np.argsort(fact, kind="stable")
    n = np.bincount(fact, minlength=relation.n_facts)
    visit = np.empty(len(fact), np.int64)
    visit[by_fact] = np.arange(len(fact)) - np.repeat(np.cumsum(n) - n, n)
    return order[np.argsort(visit, kind="stable")]


def prompt_eval(all_relations: list[Relation], n: int, rng: np.random.Generator) -> Guess:
    """PromptEval without covariates, one model per relation, since templates belong to relations.

    An example is a fact under one of its names. An answer to example j in template i is right with
    probability σ(θ_i − β_j) (the Rasch model); θ and β are fitted by logistic regression with a
    normal prior to a sample that is balanced over both. A template's performance is the mean of its
    answers and, where it was not asked, of the fitted probabilities. Acc@1 is the mean of these;
    the paper estimates their distribution.
    """
    accuracy, variance = 0.0, 0.0
    for relation, budget, share in zip(
        all_relations, _budgets(all_relations, n), _shares(all_relations), strict=True
    ):
        if not budget:
            return Guess(None, None)
        row, template = balanced(relation.right.shape, budget, rng)
        expected = _fitted(row, template, relation.right[row, template], relation.right.shape)
        expected[row, template] = relation.right[row, template]
        performance = relation.weight @ expected / relation.n_facts
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
    coefficients = model.fit(effects, right).coef_[0]
    probabilities: FloatArray = expit(
        coefficients[: shape[0], None] + coefficients[None, shape[0] :]
    )
    return probabilities


def _shares(all_relations: list[Relation]) -> Iterator[float]:
    n = sum(relation.n_facts for relation in all_relations)
    return (relation.n_facts / n for relation in all_relations)
