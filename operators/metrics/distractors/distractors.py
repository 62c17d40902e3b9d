"""All numbers of the distractor measure in one setting, as rows of the metrics table."""

from collections.abc import Iterator
from math import inf

import polars as pl

from factsweep.operators.metrics.distractors import preference
from factsweep.operators.metrics.shared.bootstrap import Estimate, bootstrap_ratio
from factsweep.operators.metrics.shared.metric import Metric
from factsweep.operators.metrics.shared.rows import Counts, Row, counted, ratio_rows, table
from factsweep.operators.metrics.shared.slices import parts

_SAYS = {
    "min": "share of clozes in which the right answer beats all of the first {} distractors",
    "avg": "share of the first {} distractors that the right answer beats",
}
_PROBABILITY = "mean probability of the right answer's names after the cloze, in percent"
METRICS = (
    *(
        Metric(f"{of}_at_{n}", f"{of.capitalize()}@{n}", f"{says.format(n)}, in percent", "higher")
        for of, says in _SAYS.items()
        for n in preference.NUMBERS
    ),
    Metric("probability", "Probability", _PROBABILITY, "higher"),
    *(Metric(f"left_out_at_{n}", range=(0, inf)) for n in preference.NUMBERS),
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
    found: list[Row] = []
    for metric, rows, terms in _terms(preferred):
        counts = counted(rows, n_failed)
        found += ratio_rows(metric, terms, counts, seed=seed, n_rounds=n_rounds)
    found += _left_out(preferred, counted(preferred, n_failed))
    # A prompt without an answer has no length: none failed in a slice that is no relation.
    for name, part in parts(preferred, details):
        for metric, rows, terms in _terms(part):
            estimate = bootstrap_ratio(terms, seed=seed, n_rounds=n_rounds).overall
            found.append(Row(None, name, metric, *estimate, rows.height, 0))
    return table(found)


def _left_out(preferred: pl.DataFrame, counts: Counts) -> Iterator[Row]:
    n_facts = preferred["pair_id"].n_unique()
    for n in preference.numbers(preferred):
        n_left_out = float(n_facts - preference.with_n(preferred, n)["pair_id"].n_unique())
        yield counts.row(f"left_out_at_{n}", Estimate(n_left_out))


def _terms(preferred: pl.DataFrame) -> Iterator[tuple[str, pl.DataFrame, pl.DataFrame]]:
    """Each metric: its name, the prompts that enter it, and the terms of its facts."""
    for aggregation in preference.AGGREGATIONS:
        for n in preference.numbers(preferred):
            rows = preference.with_n(preferred, n)
            yield f"{aggregation}_at_{n}", rows, preference.knowledge_terms(rows, aggregation, n)
    known = preferred.drop_nulls("open_logprob")  # of another system it may not be known
    if known.height:
        yield "probability", known, preference.probability_terms(known)
