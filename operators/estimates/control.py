"""A control: an earlier run's answers to all prompts, which narrow the estimates of a sample.

Another model, or the same one an earlier night, was asked every prompt of the full run. With g a
prediction of each prompt's score from its answers,

    estimate = mean of g over all prompts + mean of y − g over the sample

is unbiased for any g, and varies as y − g does: the difference estimator (Särndal, Swensson and
Wretman 1992, section 6.3), also called augmented inverse probability weighting (AIPW; Robins,
Rotnitzky and Zhao 1994). Its variance is that of y − g by component (`means.py`); with all prompts
sampled the estimate is the mean of y itself.

g is linear in the control's score, split as answers are (`components.py`): one coefficient for its
mean over the fact, and one each for fact × template, name and rest. Templates are left out, since a
sample asks all alike. The coefficients for the facts of a fifth are fitted to the other four fifths
(cross-fitting; Chernozhukov et al. 2018), so that no answer predicts itself, and are shrunk by
1 − 1/F (0 where F < 1), F being the ratio that tests them (positive-part James and Stein 1961): an
irrelevant control has coefficients, and a cost, next to 0.

Where y − g is nearly always 0, few prompts say how often it is not. So the variance has two further
changes in it (as Agresti and Coull 1998 add to a count): a sample of n without any has a half-width
of 3/n, which is the rule of three (Hanley and Lippman-Hand 1983).
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import polars as pl

from factsweep.operators.estimates.crossed import (
    BoolArray,
    CrossedSample,
    FloatArray,
    IntArray,
    centre_by_group,
    group_means,
    sum_by_group,
)
from factsweep.operators.estimates.intervals import IntervalEstimate, exact_estimate
from factsweep.operators.estimates.means import estimate_mean
from factsweep.operators.seeds import generator

N_FOLDS = 5
_UNSEEN = (3 / 1.96) ** 2
PARTS = ("fact_template", "name", "rest")
# The score of an answer for each mean that a control narrows.
SCORES = {"acc_at_1": pl.col("correct"), "one_word_ratio": pl.col("n_lemmas") == 1}


class Control(NamedTuple):
    """The scores of a control: the mean of each fact of the full run, and parts of each prompt.

    `within` has a row per sampled prompt and a column for each of PARTS, which sum to 0 over all
    prompts of a fact. Facts that the control answered only in part are not `whole`: their means are
    those of the whole ones of their relation, their parts 0.
    """

    means: FloatArray
    within: FloatArray
    is_whole: BoolArray


class ControlledEstimate(NamedTuple):
    """An estimate with a control.

    `by_fact` are the facts' means, corrected for the difficulty of the sampled prompts.
    `n_effective` is the number of prompts that would say as much without a control; null: unknown.
    """

    estimate: IntervalEstimate
    by_fact: FloatArray
    n_effective: float | None


def parts(fact: IntArray, template: IntArray, name: IntArray, score: FloatArray) -> FloatArray:
    """Split scores of all prompts of a relation: a row per prompt, a column for each of PARTS."""
    cells = fact * (int(template.max(initial=0)) + 1) + template
    names = fact * (int(name.max(initial=0)) + 1) + name
    of_fact, cell, of_name = (group_means(group, score)[group] for group in (fact, cells, names))
    of_template = group_means(template, cell - of_fact)[template]
    return np.stack(
        [cell - of_fact - of_template, of_name - of_fact, score - cell - of_name + of_fact], axis=1
    )


def controls(
    pairs: pl.DataFrame, answers: pl.DataFrame, earlier: Callable[[str], pl.DataFrame]
) -> dict[str, Control]:
    """Read the control of each of SCORES for a sample, a relation at a time.

    `pairs` are those of the full run, and `answers` those of the sample; `earlier` gives the
    control's matched answers to all prompts of a relation. Facts are numbered by relation_id and
    pair_id.
    """
    within = np.zeros((len(SCORES), answers.height, len(PARTS)))
    means, whole_by_relation = [], []
    ids = pl.col("relation_id", "pair_id").cast(pl.String)
    sampled = answers.with_columns(pl.col("relation_id").cast(pl.String)).with_row_index()
    facts = pairs.with_columns(ids).sort("relation_id", "pair_id")
    n_prompts = (pl.col("n_names") * pl.col("n_templates")).cast(pl.Int64)
    for (relation_id,), members in facts.group_by("relation_id", maintain_order=True):
        numbers = members.select("pair_id", fact=pl.int_range(pl.len()), n=n_prompts)
        rows = earlier(str(relation_id)).with_columns(pl.col("pair_id").cast(pl.String))
        rows = rows.join(numbers, on="pair_id", maintain_order="left")
        rows = rows.filter(pl.len().over("pair_id") == pl.col("n")).with_columns(
            template=pl.col("template_id").cast(pl.String).rank("dense").cast(pl.Int64) - 1,
            name=pl.col("subject_index").cast(pl.Int64),
        )
        prompts = rows.select("prompt_id").with_row_index("row")
        shared = sampled.filter(relation_id=str(relation_id))
        shared = shared.join(prompts, on="prompt_id", maintain_order="left")
        fact, template, name = (rows[col].to_numpy() for col in ("fact", "template", "name"))
        scores = rows.select(**{name: score.cast(pl.Float64) for name, score in SCORES.items()})
        for number, score in enumerate(scores.iter_columns()):
            split = parts(fact, template, name, score.to_numpy())
            within[number, shared["index"].to_numpy()] = split[shared["row"].to_numpy()]
        n_facts = members.height
        means.append(np.stack([group_means(fact, score.to_numpy(), n_facts) for score in scores]))
        whole_by_relation.append(np.bincount(fact, minlength=n_facts) > 0)
    relation, is_whole = (
        np.repeat(np.arange(len(whole_by_relation)), list(map(len, whole_by_relation))),
        np.concatenate(whole_by_relation),
    )
    return {
        name: Control(_fill_means(mean, is_whole, relation), split, is_whole)
        for name, mean, split in zip(SCORES, np.concatenate(means, axis=1), within, strict=True)
    }


def _fill_means(means: FloatArray, is_whole: BoolArray, relation: IntArray) -> FloatArray:
    """The facts' means; a fact that is not whole has the mean of its relation, or of all."""
    filled = np.where(is_whole, means, 0.0)
    for group in (np.zeros_like(relation), relation):
        n = np.bincount(group, is_whole)
        centre = np.bincount(group, np.where(is_whole, means, 0.0)) / np.maximum(1, n)
        filled = np.where(is_whole | (n[group] == 0), filled, centre[group])
    return filled


def controlled_mean(
    sample: CrossedSample, values: FloatArray, weights: FloatArray, control: Control, *, seed: int
) -> ControlledEstimate:
    """Estimate Σ weight · mean over the fact's prompts / Σ weight with a control."""
    without = estimate_mean(sample, values, weights)
    if sample.is_all:
        return ControlledEstimate(exact_estimate(without.value), sample.mean_by_fact(values), None)
    fold = generator(seed, "folds").permutation(sample.n_facts) % N_FOLDS
    # The predicted difference of each sampled prompt's score from its fact's others.
    x = np.stack([centre_by_group(sample.fact, part) for part in control.within.T], axis=1)
    degrees = sum_by_group(fold, np.maximum(0.0, sample.n_asked - 1.0), N_FOLDS)
    of_prompt = fold[sample.fact]
    coefficients = cross_fitted(x, centre_by_group(sample.fact, values), of_prompt, degrees)
    easier: FloatArray = (control.within * coefficients[of_prompt]).sum(axis=1)
    by_fact = sample.mean_by_fact(values - easier)
    of_facts = np.zeros(sample.n_facts)  # with all facts sampled they cancel
    if not sample.is_asked.all():
        # The predicted difference of each fact's score from its stratum.
        sampled, stratum = np.flatnonzero(sample.is_asked), sample.strata
        x = centre_by_group(stratum[sampled], control.means[sampled])[:, None]
        y = centre_by_group(stratum[sampled], by_fact[sampled])
        own_degrees = np.bincount(fold[sampled], minlength=N_FOLDS)
        slopes = cross_fitted(x, y, fold[sampled], own_degrees)[fold]
        of_facts = centre_by_group(stratum, control.means) * slopes[:, 0]
    mean = estimate_mean(sample, values - easier - of_facts[sample.fact], weights)
    mean = mean._replace(value=mean.value + float(of_facts @ weights / weights.sum()))
    if without.variance is None or mean.variance is None:
        return ControlledEstimate(mean.estimate, by_fact, None)
    n = len(sample.fact)
    variance = mean.variance + _UNSEEN * sample.unsampled_share / n**2
    estimate = mean._replace(variance=variance).estimate
    return ControlledEstimate(estimate, by_fact, n * without.variance / variance)


def cross_fitted(
    x: FloatArray, y: FloatArray, fold: IntArray, degrees: FloatArray | IntArray
) -> FloatArray:
    """The coefficients of y on x for each fold, fitted to the other folds: folds × columns of x.

    Least squares, times 1 − 1/F; `degrees` of freedom are those of each fold.
    """
    rows = []
    for number, n in enumerate(degrees.sum() - degrees):
        of_others = fold != number
        squares, products = x[of_others].T @ x[of_others], x[of_others].T @ y[of_others]
        rank = int(np.linalg.matrix_rank(squares, hermitian=True))
        fitted = np.linalg.pinv(squares, rcond=1e-10, hermitian=True) @ products
        explained = float(fitted @ products)
        shrinkage = 0.0
        if rank and n > rank and explained > 0:
            noise = max(0.0, float(y[of_others] @ y[of_others]) - explained) / (n - rank)
            shrinkage = max(0.0, 1 - rank * noise / explained)
        rows.append(fitted * shrinkage)
    return np.stack(rows)
