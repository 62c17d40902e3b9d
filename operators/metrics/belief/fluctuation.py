"""Fluctuation: how far accuracy moves with the choice of prompts."""

from typing import Literal, NamedTuple, get_args

import numpy as np
import polars as pl
from numpy.typing import NDArray

from factsweep.operators.metrics.belief.acc_at_1 import acc_at_1_terms
from factsweep.operators.metrics.shared.metric import Metric
from factsweep.operators.schemas import schema
from factsweep.operators.seeds import generator

Draw = Literal["template", "pair"]
DRAWS: tuple[Draw, ...] = get_args(Draw)


class Fluctuation(NamedTuple):
    """Range (max − min) and population SD of the drawn accuracies; None without answers."""

    range: float | None
    sd: float | None


def fluctuation(
    answers: pl.DataFrame, *, draw: Draw, n_draws: int = 50_000, seed: int
) -> Fluctuation:
    """Give range and SD (accuracy, 0 to 1) over random choices of one prompt per pair.

    `draw="template"` draws one template per relation, then a subject name per pair; `draw="pair"`
    draws a prompt for each pair by itself.

    Source: BELIEF, section 2.2, "Fluctuation of accuracy". Its text describes `pair`, but its
    figures (SD 0.0350 for 24,643 pairs) need `template`: independent draws give 0.003 at most.

    >>> answers = pl.DataFrame({
    ...     "relation_id": ["P1"] * 4,
    ...     "pair_id": ["t1", "t1", "t2", "t2"],
    ...     "template_id": ["a", "b", "a", "b"],
    ...     "correct": [True, False, True, False],
    ... })
    >>> found = fluctuation(answers, draw="template", n_draws=1000, seed=1)
    >>> found.range, round(found.sd, 2)
    (1.0, 0.5)
    """
    if draw == "template":
        return spread(template_draws(template_rates(answers), n_draws=n_draws, seed=seed))
    return spread(pair_draws(acc_at_1_terms(answers), n_draws=n_draws, seed=seed))


def spread(accuracies: NDArray[np.float64]) -> Fluctuation:
    """Give range and SD of drawn accuracies."""
    if not accuracies.size:
        return Fluctuation(None, None)
    return Fluctuation(float(np.ptp(accuracies)), float(accuracies.std()))


def pair_draws(terms: pl.DataFrame, *, n_draws: int, seed: int) -> NDArray[np.float64]:
    """Draw a prompt per pair, from the terms of Acc@1.

    That is a sum of binomials, one for each distinct rate of correct prompts.
    """
    if terms.is_empty():
        return np.empty(0)
    rates = terms.group_by(rate="numerator").agg(n_pairs=pl.len()).sort("rate")
    rng, n_correct = generator(seed, "draw=pair"), np.zeros(n_draws, np.int64)
    for rate, n_pairs in rates.iter_rows():
        n_correct += rng.binomial(n_pairs, rate, n_draws)
    return n_correct / terms.height


RATES = schema("relation_id text, template_id text, n_names int, n_correct int, n_pairs int")
_TEMPLATE = ("relation_id", "template_id")


def template_rates(answers: pl.DataFrame) -> pl.DataFrame:
    """How many pairs have so many right answers, of so many names, under each template (RATES)."""
    cells = answers.group_by(*_TEMPLATE, "pair_id").agg(
        n_names=pl.len(), n_correct=pl.sum("correct")
    )
    sizes = cells.group_by(*_TEMPLATE, "n_names", "n_correct").agg(n_pairs=pl.len())
    return sizes.select(pl.col(name).cast(dtype) for name, dtype in RATES.items())


def template_draws(rates: pl.DataFrame, *, n_draws: int, seed: int) -> NDArray[np.float64]:
    """Draw a template per relation, then a subject name per pair, from `template_rates`.

    A pair without an answer under the drawn template is left out of that draw.
    """
    if rates.is_empty():
        return np.empty(0)
    shares = rates.with_columns(rate=pl.col("n_correct") / pl.col("n_names"))
    distinct = shares.group_by(*_TEMPLATE, "rate").agg(pl.sum("n_pairs")).sort(*_TEMPLATE, "rate")
    n_correct, n_pairs = np.zeros((2, n_draws), np.int64)
    for relation in distinct.partition_by("relation_id", maintain_order=True):
        rng = generator(seed, "draw=template", relation["relation_id"][0])
        right, asked = _relation_draws(relation, rng, n_draws)
        n_correct += right
        n_pairs += asked
    return n_correct / n_pairs


def _relation_draws(
    rates: pl.DataFrame, rng: np.random.Generator, n_draws: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Per draw, the number of correct pairs and of pairs."""
    template, sizes = rates["template_id"].rle_id().to_numpy(), rates["n_pairs"].to_numpy()
    n_pairs = np.bincount(template, weights=sizes).astype(np.int64)
    drawn = rng.integers(len(n_pairs), size=n_draws)
    n_drawn = np.bincount(drawn, minlength=len(n_pairs))
    ends = np.cumsum(n_drawn)
    by_template, n_correct = np.zeros((2, n_draws), np.int64)
    for place, rate, n in zip(template, rates["rate"], rates["n_pairs"], strict=True):
        mine = slice(ends[place] - n_drawn[place], ends[place])
        by_template[mine] += rng.binomial(n, rate, n_drawn[place])
    n_correct[np.argsort(drawn, kind="stable")] = by_template
    return n_correct, n_pairs[drawn]


_BETWEEN_ENDS = "accuracy of the best draw of prompts minus that of the worst"
_SD = "standard deviation of accuracy over draws of prompts"
FLUCTUATION_RANGE = Metric("fluctuation_range", "range", _BETWEEN_ENDS, "lower")
FLUCTUATION_SD = Metric("fluctuation_sd", "SD", _SD, "lower")
