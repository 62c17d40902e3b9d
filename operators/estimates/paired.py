"""Two models' answers to the same sample of prompts: what their full runs differ by.

Two estimates from the same prompts err in the same direction as far as prompts are hard for both
models. So what is estimated is the mean of the differences of what the two score at each prompt:
a mean of the full run as any other, with the variance of the differences (`means.py`; Cochran 1977,
section 2.14, of paired samples). Nothing is assumed of the models.

Where differences are nearly all 0, few prompts say how often they are not: the variance has two
further changes in it, as with a control (`control.py`).
"""

import polars as pl

from factsweep.operators.estimates.controls.control import of_unseen
from factsweep.operators.estimates.crossed import Crossed, FloatArray
from factsweep.operators.estimates.intervals import half_width
from factsweep.operators.estimates.means import measured
from factsweep.operators.estimates.table import scored_twice
from factsweep.operators.schemas import schema

PAIRED = schema("metric text, difference float, ci_low float, ci_high float")


def paired(pairs: pl.DataFrame, first: pl.DataFrame, second: pl.DataFrame) -> pl.DataFrame:
    """What the second full run's means are more than the first's: the table PAIRED.

    `pairs` and the two tables of answers are those of `table.scored_twice`: prompts that only one
    has answered are left out. A mean that has no interval has no row.
    """
    both = scored_twice(pairs, first, second)
    if both is None:
        return pl.DataFrame(schema=PAIRED)
    one, other = (each.means for each in both)
    rows = [
        (name, *found)
        for name, (values, weights) in one.items()
        if (found := mean_difference(both[0].sample, other[name][0] - values, weights))
    ]
    return pl.DataFrame(rows, schema=PAIRED, orient="row")


def mean_difference(
    sample: Crossed, values: FloatArray, weights: FloatArray
) -> tuple[float, float, float] | None:
    """The mean of differences over the full run, with its interval; null: it has none."""
    found = measured(sample, values, weights)
    if found.variance is None:
        return None
    half = half_width(found.variance + of_unseen(sample), found.degrees)
    return found.value, found.value - half, found.value + half
