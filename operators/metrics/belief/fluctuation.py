"""Fluctuation: how far accuracy moves with the choice of prompts."""

from typing import Literal, NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from factsweep.operators.metrics.shared.metric import Metric
from factsweep.operators.seeds import generator

Draw = Literal["template", "pair"]


class Fluctuation(NamedTuple):
    """Range (max − min) and population SD of the drawn accuracies; None without answers."""

    range: float | None
    sd: float | None


class Draws(NamedTuple):
    """Per draw, the number of correct pairs and of pairs."""

    n_correct: NDArray[np.int64]
    n_pairs: NDArray[np.int64]


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
    accuracies = drawn_accuracies(answers, draw=draw, n_draws=n_draws, seed=seed)
    if not accuracies.size:
        return Fluctuation(None, None)
    return Fluctuation(float(np.ptp(accuracies)), float(accuracies.std()))


def drawn_accuracies(
    answers: pl.DataFrame, *, draw: Draw, n_draws: int, seed: int
) -> NDArray[np.float64]:
    """Give the accuracy of each draw; nothing without answers.

    A pair without an answer under the drawn template is left out of that draw.
    """
    if answers.is_empty():
        return np.empty(0)
    draws = template_draws if draw == "template" else pair_draws
    n_correct, n_pairs = draws(answers, n_draws=n_draws, seed=seed)
    return n_correct / n_pairs


def pair_draws(answers: pl.DataFrame, *, n_draws: int, seed: int) -> Draws:
    """Draw a prompt per pair: a sum of binomials, one for each distinct rate of correct prompts."""
    rates = _distinct_rates(answers, [])
    n_correct = _successes(rates, generator(seed, "draw=pair"), n_draws)
    return Draws(n_correct, np.full(n_draws, rates["n_pairs"].sum()))


def template_draws(answers: pl.DataFrame, *, n_draws: int, seed: int) -> Draws:
    """Draw a template per relation, then a subject name per pair."""
    n_correct, n_pairs = np.zeros((2, n_draws), np.int64)
    rates = _distinct_rates(answers, ["template_id"])
    for relation in rates.partition_by("relation_id", maintain_order=True):
        rng = generator(seed, "draw=template", relation["relation_id"][0])
        drawn = _relation_draws(relation, rng, n_draws)
        n_correct += drawn.n_correct
        n_pairs += drawn.n_pairs
    return Draws(n_correct, n_pairs)


def _relation_draws(rates: pl.DataFrame, rng: np.random.Generator, n_draws: int) -> Draws:
    templates = rates.partition_by("template_id", maintain_order=True)
    drawn = rng.integers(len(templates), size=n_draws)
    sizes = np.bincount(drawn, minlength=len(templates)).tolist()
    drawn_by = zip(templates, sizes, strict=True)
    parts = [_successes(template, rng, size) for template, size in drawn_by]
    n_correct = np.empty(n_draws, np.int64)
    n_correct[np.argsort(drawn, kind="stable")] = np.concatenate(parts)
    n_pairs = np.array([template["n_pairs"].sum() for template in templates])
    return Draws(n_correct, n_pairs[drawn])


def _distinct_rates(answers: pl.DataFrame, within: list[str]) -> pl.DataFrame:
    """How many pairs have each rate of correct prompts (per relation and template, if asked)."""
    cells = answers.group_by("relation_id", *within, "pair_id").agg(rate=pl.mean("correct"))
    group = ["relation_id", *within] if within else []
    named = cells.with_columns(pl.col(group).cast(pl.String)) if group else cells
    return named.group_by(*group, "rate").agg(n_pairs=pl.len()).sort(*group, "rate")


def _successes(rates: pl.DataFrame, rng: np.random.Generator, size: int) -> NDArray[np.int64]:
    total = np.zeros(size, np.int64)
    for rate, n_pairs in rates.select("rate", "n_pairs").iter_rows():
        total += rng.binomial(n_pairs, rate, size)
    return total


_BETWEEN_ENDS = "accuracy of the best draw of prompts minus that of the worst"
_SD = "standard deviation of accuracy over draws of prompts"
FLUCTUATION_RANGE = Metric("fluctuation_range", "range", _BETWEEN_ENDS, "lower")
FLUCTUATION_SD = Metric("fluctuation_sd", "SD", _SD, "lower")
