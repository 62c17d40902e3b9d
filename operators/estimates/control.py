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

from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

import numpy as np
import polars as pl

from factsweep.operators.estimates.crossed import (
    BoolArray,
    Crossed,
    FloatArray,
    IntArray,
    centred,
    group_means,
    summed,
)
from factsweep.operators.estimates.intervals import Estimated, exactly
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
    whole: BoolArray


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
    """Split scores of all prompts of a relation: a row per prompt, a column for each of PARTS."""
    cells = fact * (int(template.max(initial=0)) + 1) + template
    names = fact * (int(name.max(initial=0)) + 1) + name
    of_fact, cell, of_name = (group_means(each, score)[each] for each in (fact, cells, names))
    of_template = group_means(template, cell - of_fact)[template]
    return np.stack(
        [cell - of_fact - of_template, of_name - of_fact, score - cell - of_name + of_fact], axis=1
    )


def controls(
    pairs: pl.DataFrame,
    answers: pl.DataFrame,
    earlier: Callable[[str], pl.DataFrame],
    scores: Mapping[str, pl.Expr],
) -> dict[str, Control]:
    """Read a control: for each score, what it says of a sample.

    `pairs` is what the full run asks, and `answers` are those of the sample; `earlier` gives the
    control's matched answers to all prompts of a relation. Facts are numbered by relation_id and
    pair_id.
    """
    within = np.zeros((len(scores), answers.height, len(PARTS)))
    means, whole = [], []
    for n_facts, rows, asked in by_relation(pairs, answers, earlier):
        fact, template, name = (rows[each].to_numpy() for each in ("fact", "template", "name"))
        values = [
            rows.select(each.cast(pl.Float64)).to_series().to_numpy() for each in scores.values()
        ]
        place, row = asked["index"].to_numpy(), asked["row"].to_numpy()
        for number, value in enumerate(values):
            within[number, place] = parts(fact, template, name, value)[row]
        means.append(np.stack([group_means(fact, value, n_facts) for value in values]))
        whole.append(np.bincount(fact, minlength=n_facts) > 0)
    relation, known = np.repeat(np.arange(len(whole)), list(map(len, whole))), np.concatenate(whole)
    found = (_filled(each, known, relation) for each in np.concatenate(means, axis=1))
    each_of = zip(scores, found, within, strict=True)
    return {name: Control(mean, split, known) for name, mean, split in each_of}


def by_relation(
    pairs: pl.DataFrame, answers: pl.DataFrame, earlier: Callable[[str], pl.DataFrame]
) -> Iterator[tuple[int, pl.DataFrame, pl.DataFrame]]:
    """Read a control, a relation at a time; the tables are those of `controls`.

    How many facts there are, the control's rows of those that it answered as a whole (with fact,
    template and name), and the sampled answers to the same prompts (with their index in the sample
    and the row of the control).
    """
    ids = pl.col("relation_id", "pair_id").cast(pl.String)
    asked = answers.with_columns(pl.col("relation_id").cast(pl.String)).with_row_index()
    facts = pairs.with_columns(ids).sort("relation_id", "pair_id")
    n = (pl.col("n_names") * pl.col("n_templates")).cast(pl.Int64)
    for (relation_id,), mine in facts.group_by("relation_id", maintain_order=True):
        numbers = mine.select("pair_id", fact=pl.int_range(pl.len()), n=n)
        rows = earlier(str(relation_id)).with_columns(pl.col("pair_id").cast(pl.String))
        rows = rows.join(numbers, on="pair_id", maintain_order="left")
        rows = rows.filter(pl.len().over("pair_id") == pl.col("n")).with_columns(
            template=pl.col("template_id").cast(pl.String).rank("dense").cast(pl.Int64) - 1,
            name=pl.col("subject_index").cast(pl.Int64),
        )
        prompts = rows.select("prompt_id").with_row_index("row")
        here = asked.filter(relation_id=str(relation_id))
        yield mine.height, rows, here.join(prompts, on="prompt_id", maintain_order="left")


def _filled(means: FloatArray, whole: BoolArray, relation: IntArray) -> FloatArray:
    """The facts' means; one that is not whole has that of its relation, or of all."""
    filled = np.where(whole, means, 0.0)
    for group in (np.zeros_like(relation), relation):
        n = np.bincount(group, whole)
        centre = np.bincount(group, np.where(whole, means, 0.0)) / np.maximum(1, n)
        filled = np.where(whole | (n[group] == 0), filled, centre[group])
    return filled


def controlled_mean(
    sample: Crossed, values: FloatArray, weights: FloatArray, control: Control, *, seed: int
) -> Controlled:
    """Estimate Σ weight · mean over the fact's prompts / Σ weight with a control."""
    without = measured(sample, values, weights)
    if sample.is_all:
        return Controlled(exactly(without.value), sample.mean_by_fact(values), None)
    fold = generator(seed, "folds").permutation(sample.n_facts) % N_FOLDS
    easier = _within(sample, values, control, fold)
    by_fact = sample.mean_by_fact(values - easier)
    of_facts = np.zeros(sample.n_facts)  # where all are asked, they would cancel
    if not sample.is_asked.all():
        asked = np.flatnonzero(sample.is_asked)
        of_facts = foreseen(by_fact[asked], control.means, asked, sample.strata, fold)
    left = measured(sample, values - easier - of_facts[sample.fact], weights)
    left = left._replace(value=left.value + float(of_facts @ weights / weights.sum()))
    if without.variance is None or left.variance is None:
        return Controlled(left.estimated, by_fact, None)
    variance = left.variance + of_unseen(sample)
    n_effective = len(sample.fact) * without.variance / variance
    return Controlled(left._replace(variance=variance).estimated, by_fact, n_effective)


def of_unseen(sample: Crossed) -> float:
    """What two further changed answers add to the variance of a mean over the sample."""
    n = len(sample.fact)
    return _UNSEEN * (1 - n / int(sample.n_prompts.sum())) / n**2


def _within(sample: Crossed, values: FloatArray, control: Control, fold: IntArray) -> FloatArray:
    """What each sampled prompt is expected to score more than its fact's others."""
    parts = np.stack([centred(sample.fact, each) for each in control.within.T], axis=1)
    degrees = summed(fold, np.maximum(0.0, sample.n_asked - 1.0), N_FOLDS)
    of_prompt = fold[sample.fact]
    coefficients = cross_fitted(parts, centred(sample.fact, values), of_prompt, degrees)
    predicted: FloatArray = (control.within * coefficients[of_prompt]).sum(axis=1)
    return predicted


def foreseen(
    scores: FloatArray,
    known: FloatArray,
    asked: IntArray,
    stratum: IntArray,
    fold: IntArray,
) -> FloatArray:
    """How much more each unit (a fact, or a query) is expected to score than its stratum.

    `scores` are those of the `asked` units, by number; `known` is what a control scored of all.
    """
    x = centred(stratum[asked], known[asked])[:, None]
    y = centred(stratum[asked], scores)
    slopes = cross_fitted(x, y, fold[asked])[fold]
    return centred(stratum, known) * slopes[:, 0]


def cross_fitted(
    x: FloatArray, y: FloatArray, fold: IntArray, degrees: FloatArray | None = None
) -> FloatArray:
    """The shrunk coefficients of y on x for each fold, fitted to all other folds: folds × x's.

    `degrees` of freedom of each fold; null: as many as it has rows.
    """
    own = np.bincount(fold, minlength=N_FOLDS) if degrees is None else degrees
    left = enumerate(own.sum() - own)
    return np.stack([_shrunk(x[fold != each], y[fold != each], float(n)) for each, n in left])


def _shrunk(x: FloatArray, y: FloatArray, degrees: float) -> FloatArray:
    """Least squares, times 1 − 1/F."""
    squares, products = x.T @ x, x.T @ y
    rank = int(np.linalg.matrix_rank(squares, hermitian=True))
    fitted = np.linalg.pinv(squares, rcond=1e-10, hermitian=True) @ products
    explained = float(fitted @ products)
    if not rank or degrees <= rank or explained <= 0:
        return np.zeros(len(products))
    noise = max(0.0, float(y @ y) - explained) / (degrees - rank)
    return fitted * max(0.0, 1 - rank * noise / explained)
