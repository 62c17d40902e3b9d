"""The configurations of each knowledge measure, and what each says of every cloze.

Source: "Factual Knowledge Assessment of Language Models Using Distractors", section 4.2 and
Table 2: the grids that a measure's hyperparameters are chosen from.
"""

from collections.abc import Iterator, Sequence

import polars as pl

from factsweep.operators.metrics.distractors.preference import AGGREGATIONS, Aggregation
from factsweep.operators.metrics.shared.bootstrap import bootstrap_ratio
from factsweep.operators.metrics.shared.rows import Row, counted
from factsweep.operators.metrics.shared.terms import pair_terms
from factsweep.operators.schemas import schema

# The most distractors, or next tokens, that are looked at.
N_GRID = (1, 2, 5, 10, *range(20, 201, 20))
WIDTHS = (1, 2, 5, 10, 20, 30, 50, 100)  # beams of ROUGE-L and BERTScore
JUDGE_WIDTHS = (1, 2, 5)
# A cloze's place among those of its fact counts from 0.
VALUES = schema("""
    pair_id text, relation_id text, cloze int, measure text, hyperparameters text, value float
""")


def of_distractors(preferred: pl.DataFrame) -> pl.DataFrame:
    """K(f|c) for both aggregations and each number of distractors that some cloze has (VALUES).

    A cloze with fewer than n distractors is measured on all it has, so that every configuration
    is about the same facts; one with none is left out.
    """
    rows = preferred.filter(pl.col("n_distractors") > 0)
    most = rows["n_distractors"].max()
    grid = list(up_to(N_GRID, most if isinstance(most, int) else 0))
    found = [
        values(rows, "distractors", f"{aggregation}@{n}", _capped(aggregation, n))
        for aggregation in AGGREGATIONS
        for n in grid
    ]
    return pl.concat([VALUES.to_frame(), *found])


def of_probability(preferred: pl.DataFrame) -> pl.DataFrame:
    """The probability of the right answer's labels after each cloze (VALUES); it has no choices."""
    return values(
        preferred.drop_nulls("open_logprob"), "probability", "", pl.col("open_logprob").exp()
    )


def values(rows: pl.DataFrame, measure: str, hyperparameters: str, value: pl.Expr) -> pl.DataFrame:
    """One configuration's value of each row (VALUES).

    `rows` has prompt_id, relation_id, pair_id, template_id, subject_index, and what `value` reads.
    """
    order = pl.struct("template_id", "subject_index", "prompt_id").rank("ordinal").over("pair_id")
    return rows.select(
        "pair_id",
        "relation_id",
        cloze=order.cast(pl.Int64) - 1,
        measure=pl.lit(measure),
        hyperparameters=pl.lit(hyperparameters),
        value=value.cast(pl.Float64),
    )


def of_facts(clozes: pl.DataFrame, n_clozes: int) -> pl.DataFrame:
    """The mean over each fact's first n clozes: pair_id, measure, hyperparameters, value.

    `clozes` has the columns VALUES. A fact with fewer takes all it has.
    """
    keys = ["measure", "hyperparameters", "pair_id"]
    first = clozes.filter(pl.col("cloze") < n_clozes)
    return first.group_by(keys, maintain_order=True).agg(pl.col("value").mean())


def cloze_rows(
    metric: str,
    clozes: pl.DataFrame,
    n_failed: pl.DataFrame,
    of_fact: pl.Expr,
    *,
    variant: str | None = None,
    seed: int,
    n_rounds: int,
) -> list[Row]:
    """The mean over facts of what a fact's clozes say; one without a value counts in `n_failed`."""
    known, absent = clozes.drop_nulls("value"), clozes.filter(pl.col("value").is_null())
    more = absent.group_by("relation_id").agg(n_failed=pl.len().cast(pl.Int64))
    failed = pl.concat([n_failed, more], how="vertical_relaxed")
    terms = pair_terms(known, of_fact, pl.lit(1))
    found = bootstrap_ratio(terms, seed=seed, n_rounds=n_rounds)
    return counted(known, failed).rows(metric, found, variant)


def up_to(grid: Sequence[int], most: int) -> Iterator[int]:
    """The grid up to the most that there are: a larger number would say the same.

    >>> list(up_to((1, 2, 5, 10), 3)), list(up_to((1, 2), 0))
    ([1, 2, 3], [])
    """
    for n in grid:
        if n >= most:
            break
        yield n
    if most:
        yield min(most, grid[-1])


def _capped(aggregation: Aggregation, n: int) -> pl.Expr:
    """K(f|c) over the first n distractors, or over all there are."""
    counted = pl.min_horizontal(pl.lit(n, pl.Int64), pl.col("n_distractors").cast(pl.Int64))
    beaten = pl.col("n_beaten").list.get(counted - 1)
    return (beaten == counted) if aggregation == "min" else beaten / counted
