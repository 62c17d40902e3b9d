"""The fluctuation's range, over the same draws that the full run makes."""

from collections.abc import Sequence

import numpy as np

from factsweep.operators.estimates.crossed import (
    Crossed,
    Estimated,
    FloatArray,
    IntArray,
    within_bounds,
)
from factsweep.operators.estimates.fluctuations.accuracies import accuracies, drawn
from factsweep.operators.estimates.fluctuations.components import APART, compared
from factsweep.operators.estimates.fluctuations.fluctuation import ALIKE, of_names, told_apart
from factsweep.operators.seeds import generator

# Sets of accuracies that the sample leaves open, over each of which the draws are made.
_N_SETS = 24


def fluctuation_range(
    sample: Crossed, values: FloatArray, relation_ids: Sequence[str], *, n_draws: int, seed: int
) -> Estimated:
    """Estimate the range of accuracy over so many draws of a template per relation.

    Which templates are drawn is known: those that the full run draws (the same seed, the same
    generator of each relation). What is not are the templates' accuracies: sets of them are taken
    from what the sample leaves open (`accuracies.py`), which vary as much as the templates do, and
    each gives a range. Their mean is the estimate; the interval is theirs, with the SD's error.
    """
    found = compared(sample, values)
    if found is None:
        return Estimated(None, None, None, APART)
    error = told_apart(sample, values)
    if error is None:
        return Estimated(None, None, None, ALIKE)
    rng = generator(seed, "fluctuation_range")
    share = np.bincount(sample.relation) / sample.n_facts
    names = np.sqrt(max(0.0, float(share**2 @ of_names(sample, values, found))))
    totals = names * rng.standard_normal((_N_SETS, n_draws))
    each = zip(accuracies(sample, values, found), share, relation_ids, strict=True)
    for of, weight, relation_id in each:
        templates = drawn_templates(len(of.n), n_draws, seed, relation_id)
        totals += (weight * drawn(of, _N_SETS, rng))[:, templates]
    ranges = np.ptp(totals, axis=1)
    value = float(ranges.mean())
    half = float(np.hypot(2 * ranges.std(ddof=1), error * value))
    return within_bounds(value, half)


def drawn_templates(n_templates: int, n_draws: int, seed: int, relation_id: str) -> IntArray:
    """The templates, by number, that `fluctuation` draws for a relation."""
    rng = generator(seed, "draw=template", relation_id)
    return rng.integers(n_templates, size=n_draws)
