"""The numbers of the baselines in one setting, as rows of the metrics table."""

from collections.abc import Iterator

import polars as pl

from factsweep.operators.metrics.distractors.configurations import N_GRID
from factsweep.operators.metrics.distractors.preference import NUMBERS
from factsweep.operators.metrics.shared.bootstrap import bootstrap_ratio
from factsweep.operators.metrics.shared.metric import Metric
from factsweep.operators.metrics.shared.rows import Row, counted, table
from factsweep.operators.metrics.shared.terms import pair_terms

_WIDTH = "width="
# The numbers of next tokens that stand in the metrics table.
_N_TOKENS = tuple(n for n in NUMBERS if n in N_GRID)
METRICS = (
    *(
        Metric(
            f"precision_at_{n}",
            heading=f"Precision@{n}",
            says=f"share of clozes with a right name among the {n} likeliest next tokens",
            better="higher",
        )
        for n in _N_TOKENS
    ),
    *(
        Metric(
            name,
            heading=heading,
            says=f"{says}, mean over clozes",
            better="higher",
            range=(-1, 1),  # BERTScore is a mean of cosines
        )
        for name, heading, says in (
            ("rouge_l", "ROUGE-L", "best overlap of words of a right name and a continuation"),
            ("bertscore", "BERTScore", "best likeness of a right name and a continuation"),
            ("judge", "LLM-as-a-judge", "whether a judge finds a continuation correct"),
        )
    ),
)


def baselines(
    clozes: pl.DataFrame, n_failed: pl.DataFrame, *, seed: int, n_rounds: int
) -> pl.DataFrame:
    """The mean over facts of each measure of continuations (table ROWS).

    `clozes` has the columns `configurations.VALUES`. `precision_at_n` has a row for each n of
    NUMBERS that is in the grid; the other measures have one for the largest width, which stands in
    the variant (`width=5`). A cloze without a value, such as one that the judge gave no verdict on,
    counts in `n_failed`. Slices: each relation.

    >>> clozes = pl.DataFrame({
    ...     "relation_id": ["P36"] * 2, "pair_id": ["t", "u"], "measure": "rouge_l",
    ...     "hyperparameters": "width=5", "value": [1.0, 0.5],
    ... })
    >>> none = pl.DataFrame(schema={"relation_id": pl.String, "n_failed": pl.Int64})
    >>> rows = baselines(clozes, none, seed=1, n_rounds=10)
    >>> rows.select("variant", "slice", "metric", "value").rows()
    [('width=5', None, 'rouge_l', 0.75), ('width=5', 'relation=P36', 'rouge_l', 0.75)]
    """
    rows: list[Row] = []
    for metric, variant, mine in _measured(clozes):
        known = mine.drop_nulls("value")
        absent = (
            mine.filter(pl.col("value").is_null()).group_by("relation_id").agg(n_failed=pl.len())
        )
        failed = pl.concat([n_failed, absent.cast({"n_failed": pl.Int64})], how="vertical_relaxed")
        terms = pair_terms(known, pl.col("value").mean(), pl.lit(1))
        found = bootstrap_ratio(terms, seed=seed, n_rounds=n_rounds)
        rows += counted(known, failed).rows(metric, found, variant)
    return table(rows)


def _measured(clozes: pl.DataFrame) -> Iterator[tuple[str, str | None, pl.DataFrame]]:
    """Each metric, its variant, and its clozes."""
    for n in _N_TOKENS:
        mine = clozes.filter(measure="precision", hyperparameters=f"n={n}")
        if mine.height:
            yield f"precision_at_{n}", None, mine
    for measure in ("rouge_l", "bertscore", "judge"):
        mine = clozes.filter(measure=measure)
        widths = mine["hyperparameters"].str.strip_prefix(_WIDTH).cast(pl.Int64).to_list()
        if widths:
            variant = f"{_WIDTH}{max(widths)}"
            yield measure, variant, mine.filter(hyperparameters=variant)
