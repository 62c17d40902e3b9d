"""Min@n and Avg@n: how often a right answer is preferred to its first n distractors.

Source: "Factual Knowledge Assessment of Language Models Using Distractors" (COLING 2025), section
3.2, Equations 2 and 3.
"""

from collections.abc import Sequence
from typing import Literal

import polars as pl

from factsweep.operators.metrics.shared.terms import pair_terms
from factsweep.operators.schemas import SETTING, columns

Aggregation = Literal["min", "avg"]
AGGREGATIONS: tuple[Aggregation, ...] = ("min", "avg")
# The numbers of distractors that stand in the metrics table.
NUMBERS = (1, 2, 5, 10, 20, 50, 100)


def with_n(preferred: pl.DataFrame, n: int) -> pl.DataFrame:
    """The rows of the facts that have n distractors after each of their clozes."""
    return preferred.filter(pl.col("n_distractors").min().over("pair_id") >= n)


def knowledge(aggregation: Aggregation, n: int) -> pl.Expr:
    """K(f|c) over the first n distractors: whether all are beaten (`min`), or the share (`avg`).

    >>> rows = pl.DataFrame({"n_beaten": [[1, 2, 2], [0, 1, 2]]})
    >>> rows.select(knowledge("min", 2).alias("min"), knowledge("avg", 2).alias("avg")).rows()
    [(1.0, 1.0), (0.0, 0.5)]
    """
    beaten = pl.col("n_beaten").list.get(n - 1)
    return (beaten == n).cast(pl.Float64) if aggregation == "min" else beaten / n


def knowledge_terms(preferred: pl.DataFrame, aggregation: Aggregation, n: int) -> pl.DataFrame:
    """K(f): the mean over a fact's clozes, as terms of a mean over facts.

    `preferred` is the canonical table. Columns: `estimates.terms.TERMS`, one row per fact that has
    n distractors after each of its clozes.
    """
    return pair_terms(with_n(preferred, n), knowledge(aggregation, n).mean(), pl.lit(1))


def probability_terms(preferred: pl.DataFrame) -> pl.DataFrame:
    """The probability of the right answer's labels, mean over a fact's clozes, as terms.

    The labels need no ending: whatever follows them counts. Columns: `estimates.terms.TERMS`.

    Source: the paper, Table 2, "Probability".

    >>> rows = pl.DataFrame({
    ...     "relation_id": ["P36"] * 2, "pair_id": ["t"] * 2, "open_logprob": [0.0, float("-inf")],
    ... })
    >>> probability_terms(rows).rows()
    [('P36', 't', 0.5, 1.0)]
    """
    return pair_terms(preferred, pl.col("open_logprob").exp().mean(), pl.lit(1))


def curve(preferred: pl.DataFrame) -> pl.DataFrame:
    """Min@n and Avg@n over facts for every n up to the most distractors: n, min, avg, n_facts.

    Each n is measured on the facts that have n distractors after each of their clozes.

    Source: the paper, Figures 1 and 2.

    >>> rows = pl.DataFrame({
    ...     "relation_id": ["P36"] * 2, "pair_id": ["t", "u"], "n_distractors": [2, 1],
    ...     "n_beaten": [[1, 1], [0]],
    ... })
    >>> curve(rows).rows()
    [(1, 0.5, 0.5, 2), (2, 0.0, 0.5, 1)]
    """
    n_of_fact = pl.col("n_distractors").min().over("pair_id")
    ranks = pl.int_ranges(1, pl.col("n_beaten").list.len().cast(pl.Int64) + 1)
    rows = preferred.select("pair_id", "n_beaten", n=ranks, most=n_of_fact)
    rows = rows.explode("n_beaten", "n").filter(pl.col("n") <= pl.col("most"))
    share = pl.col("n_beaten") / pl.col("n")
    of_facts = rows.group_by("pair_id", "n").agg(min=(share == 1).mean(), avg=share.mean())
    means = of_facts.group_by("n").agg(
        pl.col("min").sort().mean(), pl.col("avg").sort().mean(), n_facts=pl.len()
    )
    return means.sort("n").select(pl.col(name).cast(kind) for name, kind in CURVE.items())


CURVE = columns("curve", *SETTING, "sample")


def numbers(preferred: pl.DataFrame, among: Sequence[int] = NUMBERS) -> list[int]:
    """Those numbers of distractors that some row has; the smallest always.

    >>> [numbers(pl.DataFrame({"n_distractors": [most]})) for most in (7, 0)]
    [[1, 2, 5], [1]]
    """
    most = preferred["n_distractors"].max()
    return [n for n in among if n == among[0] or (isinstance(most, int) and n <= most)]
