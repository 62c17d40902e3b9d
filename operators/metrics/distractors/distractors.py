"""All numbers of the distractor measure in one setting, as rows of the metrics table."""

from collections.abc import Iterator
from math import inf

import polars as pl

from factsweep.operators.metrics.distractors.preference import (
    AGGREGATIONS,
    NUMBERS,
    knowledge_terms,
    numbers,
    probability_terms,
    with_n,
)
from factsweep.operators.metrics.shared.bootstrap import Estimate, bootstrap_ratio
from factsweep.operators.metrics.shared.metric import Metric
from factsweep.operators.metrics.shared.rows import Counts, Row, counted, table
from factsweep.operators.metrics.shared.slices import parts

_SAYS = {
    "min": "share of clozes in which the right answer beats all of the first {n} distractors",
    "avg": "share of the first {n} distractors that the right answer beats",
}
METRICS = (
    *(
        Metric(
            f"{aggregation}_at_{n}",
            heading=f"{aggregation.capitalize()}@{n}",
            says=f"{_SAYS[aggregation].format(n=n)}, in percent",
            better="higher",
        )
        for aggregation in AGGREGATIONS
        for n in NUMBERS
    ),
    Metric(
        "probability",
        heading="Probability",
        says="mean probability of the right answer's names after the cloze, in percent",
        better="higher",
    ),
    *(Metric(f"left_out_at_{n}", range=(0, inf)) for n in NUMBERS),
)


def distractors(
    preferred: pl.DataFrame,
    details: pl.DataFrame,
    n_failed: pl.DataFrame | None = None,
    *,
    seed: int,
    n_rounds: int = 1000,
) -> pl.DataFrame:
    """Measure a setting: `min_at_n`, `avg_at_n`, `left_out_at_n`, `probability` (table ROWS).

    `details` has pair_id, popularity and sample; n is each of `numbers(preferred)`. `left_out_at_n`
    counts the facts with fewer, which `min_at_n` and `avg_at_n` leave out (their `n` counts the
    prompts that are in). Slices: each relation, popularity decile, sample of the set, and number of
    tokens of the answer's likeliest label. 95 % intervals, of facts resampled in their relations.

    Source: the paper, section 3.2 and Table 2; it has neither slices nor intervals.
    """
    drawn = (seed, n_rounds)
    return table([*_overall(preferred, n_failed, *drawn), *_sliced(preferred, details, *drawn)])


def _overall(
    preferred: pl.DataFrame, n_failed: pl.DataFrame | None, seed: int, n_rounds: int
) -> Iterator[Row]:
    for metric, rows, terms in _terms(preferred):
        found = bootstrap_ratio(terms, seed=seed, n_rounds=n_rounds)
        yield from counted(rows, n_failed).rows(metric, found)
    counts = counted(preferred, n_failed)
    n_facts = preferred["pair_id"].n_unique()
    for n in numbers(preferred):
        n_left_out = float(n_facts - with_n(preferred, n)["pair_id"].n_unique())
        yield counts.row(f"left_out_at_{n}", Estimate(n_left_out, None, None))


def _sliced(
    preferred: pl.DataFrame, details: pl.DataFrame, seed: int, n_rounds: int
) -> Iterator[Row]:
    """Over each other slice; a prompt without an answer has no length, and none failed."""
    for part in parts(preferred, details):
        for metric, rows, terms in _terms(part.rows):
            found = bootstrap_ratio(terms, seed=seed, n_rounds=n_rounds).overall
            yield Counts({"": rows.height}, {}).row(metric, found, part=part.name)


def _terms(preferred: pl.DataFrame) -> Iterator[tuple[str, pl.DataFrame, pl.DataFrame]]:
    """Each metric: its name, the prompts that enter it, and the terms of its facts."""
    for aggregation in AGGREGATIONS:
        for n in numbers(preferred):
            rows = with_n(preferred, n)
            yield f"{aggregation}_at_{n}", rows, knowledge_terms(rows, aggregation, n)
    known = preferred.drop_nulls("open_logprob")  # of another system it may not be known
    if known.height:
        yield "probability", known, probability_terms(known)
