"""A control: what an earlier run answered to all prompts, which narrows what a sample says of them.

Another model, or the same one an earlier night, was asked every prompt of the full run. With g a
prediction of each prompt's score from its answers,

    estimate = mean of g over all prompts + mean of y − g over the sample

which is unbiased whatever g is, and varies as y − g does: the difference estimator (Särndal,
Swensson and Wretman 1992, section 6.3), also called augmented inverse probability weighting (AIPW;
Robins, Rotnitzky and Zhao 1994). The variance is that of y − g by component, as of any mean
(`means.py`); of all prompts the estimate is the mean of y itself.

g is linear in what the control scored, split as answers are (`components.py`): a coefficient each
for its mean over the fact, and within a fact for fact × template, name and rest. What it says of
templates is left out, since a sample asks all alike. The coefficients for the facts of a fifth are
fitted to the other four fifths (cross-fitting; Chernozhukov et al. 2018), so that no answer
predicts itself, and are shrunk by 1 − 1/F (0 where F < 1), F being the ratio that tests them
(positive-part James and Stein 1961): of a control that says nothing they are next to 0, and so is
its cost.

Where y − g is nearly always 0, as of a model that did not change, few prompts say how often it is
not. So the variance has two further changes in it (as Agresti and Coull 1998 add to a count): a
sample of n without any has a half-width of 3/n, which is the rule of three (Hanley and
Lippman-Hand 1983).
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from factsweep.operators.estimates.crossed import (
    Crossed,
    Estimated,
    FloatArray,
    IntArray,
    exactly,
    summed,
)
from factsweep.operators.estimates.means import measured
from factsweep.operators.seeds import generator

N_FOLDS = 5
_UNSEEN = (3 / 1.96) ** 2
PARTS = ("fact_template", "name", "rest")


class Control(NamedTuple):
    """What a control scored: the mean over each fact of the full run, and parts of each prompt.

    `within` has a row per sampled prompt and a column for each of PARTS, which sum to 0 over all
    prompts of a fact. Facts whose prompts the control has not all answered are not `whole`: their
    means are those of the whole ones of their relation, their parts 0.
    """

    means: FloatArray
    within: FloatArray
    whole: NDArray[np.bool_]


class Controlled(NamedTuple):
    """An estimate with a control.

    `by_fact` are the facts' means without what the sampled prompts, by the control, are easier or
    harder than the fact's others. `n_effective` is how many prompts without a control would say as
    much; null where that is not known.
    """

    found: Estimated
    by_fact: FloatArray
    n_effective: float | None


def parts(fact: IntArray, template: IntArray, name: IntArray, score: FloatArray) -> FloatArray:
    """Split scores of all prompts of a relation: a row per prompt, a column for each of PARTS.

    >>> fact, template = np.array([0, 0, 1, 1]), np.array([0, 1, 0, 1])
    >>> parts(fact, template, np.zeros(4, np.int64), np.array([1.0, 1.0, 1.0, 0.0]))[:, 0].tolist()
    [-0.25, 0.25, 0.25, -0.25]
    """
    of_fact = group_means(fact, score)
    cell = group_means(fact * (int(template.max(initial=0)) + 1) + template, score)
    of_name = group_means(fact * (int(name.max(initial=0)) + 1) + name, score)
    of_template = group_means(template, cell - of_fact)
    return np.stack(
        [cell - of_fact - of_template, of_name - of_fact, score - cell - of_name + of_fact], axis=1
    )


def group_means(group: IntArray, values: FloatArray) -> FloatArray:
    """The mean of its group, for each row."""
    n = np.bincount(group)
    sums = np.bincount(group, values)
    means: FloatArray = (sums / np.maximum(1, n))[group]
    return means


def controls(
    pairs: pl.DataFrame,
    answers: pl.DataFrame,
    earlier: Callable[[str], pl.DataFrame],
    scores: tuple[pl.Expr, ...],
) -> tuple[Control, ...]:
    """Read a control, a relation at a time: for each score, what it says of a sample.

    `pairs` is what the full run asks, and `answers` are those of the sample; `earlier` gives the
    control's matched answers to all prompts of a relation. Facts are numbered by relation_id and
    pair_id.
    """
    parts_of = []
    pairs = pairs.with_columns(pl.col("relation_id", "pair_id").cast(pl.String))
    pairs = pairs.sort("relation_id", "pair_id")
    asked = answers.select("prompt_id", pl.col("relation_id").cast(pl.String)).with_row_index()
    within = np.zeros((len(scores), answers.height, len(PARTS)))
    for (relation_id,), mine in pairs.group_by("relation_id", maintain_order=True):
        rows = whole_facts(mine, earlier(str(relation_id)))
        values = [rows.select(score.cast(pl.Float64)).to_series().to_numpy() for score in scores]
        fact, template, name = (rows[each].to_numpy() for each in ("fact", "template", "name"))
        here = asked.filter(relation_id=str(relation_id)).join(
            rows.select("prompt_id").with_row_index("row"), on="prompt_id"
        )
        for number, value in enumerate(values):
            split = parts(fact, template, name, value)
            within[number, here["index"].to_numpy()] = split[here["row"].to_numpy()]
        parts_of.append((_of_facts(fact, values, mine.height), mine.height, fact))
    means = np.concatenate([found for found, *_ in parts_of], axis=1)
    whole = np.concatenate([np.bincount(f, minlength=n) > 0 for _, n, f in parts_of])
    filled = _filled(means, whole)
    return tuple(Control(mean, split, whole) for mean, split in zip(filled, within, strict=True))


def whole_facts(pairs: pl.DataFrame, earlier: pl.DataFrame) -> pl.DataFrame:
    """The control's rows of facts that it answered as a whole: with fact, template and name."""
    n = (pl.col("n_names") * pl.col("n_templates")).cast(pl.Int64)
    numbers = pairs.select(pl.col("pair_id").cast(pl.String), fact=pl.int_range(pl.len()), n=n)
    rows = earlier.with_columns(pl.col("pair_id").cast(pl.String))
    rows = rows.join(numbers, on="pair_id", maintain_order="left")
    rows = rows.filter(pl.len().over("pair_id") == pl.col("n"))
    return rows.with_columns(
        template=pl.col("template_id").cast(pl.String).rank("dense").cast(pl.Int64) - 1,
        name=pl.col("subject_index").cast(pl.Int64),
    )


def _of_facts(fact: IntArray, values: list[FloatArray], n_facts: int) -> FloatArray:
    """Scores × facts: the mean, or that of all facts where there is none."""
    n = np.bincount(fact, minlength=n_facts)
    sums = np.stack([np.bincount(fact, value, n_facts) for value in values])
    means = np.divide(sums, n, out=np.full(sums.shape, np.nan), where=n > 0)
    centre = means[:, n > 0].mean(axis=1, keepdims=True) if n.any() else np.nan
    filled: FloatArray = np.where(n > 0, means, centre)
    return filled


def _filled(means: FloatArray, whole: NDArray[np.bool_]) -> FloatArray:
    """The means, with that of all facts where a whole relation has none."""
    if not whole.any():
        return np.zeros_like(means)
    filled: FloatArray = np.where(
        np.isnan(means), means[:, whole].mean(axis=1, keepdims=True), means
    )
    return filled


def controlled_mean(
    sample: Crossed, values: FloatArray, weights: FloatArray, control: Control, *, seed: int
) -> Controlled:
    """Estimate Σ weight · mean over the fact's prompts / Σ weight with a control."""
    if sample.is_all:
        without = measured(sample, values, weights)
        return Controlled(exactly(without.value), sample.mean_by_fact(values), None)
    fold = generator(seed, "folds").permutation(sample.n_facts) % N_FOLDS
    easier = _within(sample, values, control, fold)
    of_facts = _between(sample, values - easier, control, fold)
    left = measured(sample, values - easier - of_facts[sample.fact], weights)
    value = left.value + float(of_facts @ weights / weights.sum())
    by_fact = sample.mean_by_fact(values - easier)
    plain = measured(sample, values, weights).variance
    if plain is None or left.variance is None:
        return Controlled(left._replace(value=value).estimated, by_fact, None)
    variance = left.variance + of_unseen(sample)
    found = left._replace(value=value, variance=variance).estimated
    return Controlled(found, by_fact, len(sample.fact) * plain / variance)


def of_unseen(sample: Crossed) -> float:
    """What two further changed answers add to the variance of a mean over the sample."""
    n = len(sample.fact)
    return _UNSEEN * (1 - n / int(sample.n_prompts.sum())) / n**2


def _within(sample: Crossed, values: FloatArray, control: Control, fold: IntArray) -> FloatArray:
    """What each sampled prompt is expected to score more than its fact's others."""
    centred = values - sample.mean_by_fact(values)[sample.fact]
    parts = np.stack([p - sample.mean_by_fact(p)[sample.fact] for p in control.within.T], axis=1)
    degrees = summed(fold, np.maximum(0.0, sample.n_asked - 1.0), N_FOLDS)
    coefficients = cross_fitted(parts, centred, fold[sample.fact], degrees)
    predicted: FloatArray = (control.within * coefficients[fold[sample.fact]]).sum(axis=1)
    return predicted


def _between(sample: Crossed, values: FloatArray, control: Control, fold: IntArray) -> FloatArray:
    """What each fact is expected to score more than others of its stratum.

    Nothing, where all facts were asked: then what is said of facts cancels.
    """
    if sample.is_asked.all():
        return np.zeros(sample.n_facts)
    stratum, asked = sample.strata, sample.is_asked
    means = sample.mean_by_fact(values)[asked]
    known = control.means[asked]
    y, x = (each - group_means(stratum[asked], each) for each in (means, known))
    degrees = summed(fold[asked], np.ones(int(asked.sum())), N_FOLDS)
    coefficients = cross_fitted(x[:, None], y, fold[asked], degrees)
    more: FloatArray = (control.means - group_means(stratum, control.means)) * coefficients[fold, 0]
    return more


def cross_fitted(x: FloatArray, y: FloatArray, fold: IntArray, degrees: FloatArray) -> FloatArray:
    """The shrunk coefficients of y on x for each fold, fitted to all other folds: folds × x's."""
    n = x.shape[1]
    squares, products, totals = np.zeros((N_FOLDS, n, n)), np.zeros((N_FOLDS, n)), np.zeros(N_FOLDS)
    for each in range(N_FOLDS):
        mine = fold == each
        squares[each] = x[mine].T @ x[mine]
        products[each], totals[each] = x[mine].T @ y[mine], (y[mine] ** 2).sum()
    return np.stack(
        [
            _shrunk(
                squares.sum(0) - squares[each],
                products.sum(0) - products[each],
                float(totals.sum() - totals[each]),
                float(degrees.sum() - degrees[each]),
            )
            for each in range(N_FOLDS)
        ]
    )


def _shrunk(squares: FloatArray, products: FloatArray, total: float, degrees: float) -> FloatArray:
    """Least squares from sums, times 1 − 1/F."""
    rank = int(np.linalg.matrix_rank(squares, hermitian=True))
    left = degrees - rank
    if not rank or left <= 0:
        return np.zeros(len(products))
    fitted = np.linalg.pinv(squares, rcond=1e-10, hermitian=True) @ products
    explained = float(fitted @ products)
    if explained <= 0:
        return np.zeros(len(products))
    noise = max(0.0, total - explained) / left
    shrunk: FloatArray = fitted * max(0.0, 1 - rank * noise / explained)
    return shrunk
