"""The oracle's bracket: facts that were seen right, and those that more prompts would show right.

A sample cannot say how many facts are right under at least one of all prompts: a fact that was
wrong in all that it was asked may be right in the next. So there is no estimate, but a bracket.

- Below: the facts that were right at least once. All of them are right in the full run.
- Above: how many would be if the shares of right prompts of a relation's facts were a beta
  distribution (`beta_binomial.py`), at the upper end of what the fit leaves open: three standard
  errors, since the shape is an assumption. A model that never says some facts under any prompt has
  fewer than it says. Below a fifth of the prompts the shape decides nearly everything, and made-up
  models have more than it says: there the end above is all facts.
"""

from collections.abc import Iterator

import numpy as np

from factsweep.operators.estimates.crossed import Crossed, FloatArray, IntArray
from factsweep.operators.estimates.fluctuations.beta_binomial import any_right, drawn, fitted, shape
from factsweep.operators.estimates.intervals import Estimated, exactly
from factsweep.operators.seeds import generator

BRACKET = (
    "more prompts would show more facts right: from those seen right to what a beta-binomial "
    "distribution of their prompts extrapolates"
)
FAR = (
    "too few prompts were asked to say how many more facts are right: from those seen right to all"
)

# Relations with fewer asked facts are fitted together with all others.
_FEW_FACTS = 30
_N_DRAWS = 400
# The share of the prompts from which on the shape of the distribution decides little.
_ENOUGH = 0.19
_ERRORS = 3.0


def oracle(sample: Crossed, correct: FloatArray, *, seed: int) -> Estimated:
    """Bracket the share of facts that are right under at least one prompt of the full run."""
    right = np.bincount(sample.fact, correct, sample.n_facts).astype(np.int64)
    seen = float((right > 0).sum() / sample.n_facts)
    if sample.is_all:
        return exactly(seen)
    if len(sample.fact) < _ENOUGH * sample.n_prompts.sum():
        return Estimated(None, seen, 1.0, FAR)
    unseen = right == 0
    more = np.zeros(_N_DRAWS)
    for relation, logits in enumerate(_fits(sample, right, generator(seed, "oracle"))):
        mine = unseen & (sample.relation == relation)
        more += _extrapolated(sample.n_prompts[mine], sample.n_asked[mine], logits)
    # Which of the facts it is in the end is as uncertain as coins with these chances, at most.
    chance = more.mean() / max(1, unseen.sum())
    coins = chance * (1 - chance) * unseen.sum()
    high = more.mean() + _ERRORS * np.sqrt(more.var() + coins)
    return Estimated(None, seen, min(1.0, seen + float(high) / sample.n_facts), BRACKET)


def _fits(sample: Crossed, right: IntArray, rng: np.random.Generator) -> Iterator[FloatArray]:
    """For each relation, draws of the logits of its own distribution, or of that of all."""
    asked = sample.is_asked
    everyone = fitted(sample.n_asked[asked], right[asked])
    flat = np.zeros((_N_DRAWS, 2)) if everyone is None else drawn(everyone, _N_DRAWS, rng)
    for relation in range(len(sample.n_templates)):
        mine = asked & (sample.relation == relation)
        own = fitted(sample.n_asked[mine], right[mine]) if mine.sum() >= _FEW_FACTS else None
        yield flat if own is None else drawn(own, _N_DRAWS, rng)


def _extrapolated(n_prompts: IntArray, n_asked: IntArray, logits: FloatArray) -> FloatArray:
    """In each draw, how many of the facts that were never right yet would be."""
    counts, times = np.unique(np.stack([n_prompts, n_asked]), axis=1, return_counts=True)
    of = shape(logits[:, None, :])
    whole, wrong = counts.astype(np.float64)
    return any_right(of, whole - wrong, wrong) @ times
