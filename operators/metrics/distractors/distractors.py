"""Min@n and Avg@n: how often a right answer is preferred to its first n distractors.

Source: "Factual Knowledge Assessment of Language Models Using Distractors" (COLING 2025), section
3.2, Equations 2 and 3; the grids of all measures' configurations: section 4.2 and Table 2.
"""

from collections.abc import Iterator, Sequence
from itertools import product
from math import inf
from typing import Literal, Unpack

import polars as pl

from factsweep.operators.metrics.shared.bootstrap import Draws, Estimate, bootstrap_ratio
from factsweep.operators.metrics.shared.rows import (
    Metric,
    Row,
    count_answers,
    pair_terms,
    parts,
    ratio_rows,
    table,
)
from factsweep.operators.schemas import SETTING, columns, schema

Aggregation = Literal["min", "avg"]
AGGREGATIONS: tuple[Aggregation, ...] = ("min", "avg")
# The numbers of distractors in the metrics table.
NUMBERS = (1, 2, 5, 10, 20, 50, 100)
# The grid of numbers of distractors, or of next tokens.
N_GRID = (1, 2, 5, 10, *range(20, 201, 20))
# A cloze's place among those of its fact counts from 0.
VALUES = schema("""
    pair_id text, relation_id text, cloze int, measure text, hyperparameters text, value float
""")
CURVE = columns("curve", *SETTING, "sample")
_SAYS = {
    "min": "share of clozes in which the right answer beats all of the first {} distractors",
    "avg": "share of the first {} distractors that the right answer beats",
}
_PROBABILITY = "mean probability of the right answer's names after the cloze, in percent"
METRICS = (
    *(
        Metric(f"{of}_at_{n}", f"{of.capitalize()}@{n}", f"{says.format(n)}, in percent", "higher")
        for of, says in _SAYS.items()
        for n in NUMBERS
    ),
    Metric("probability", "Probability", _PROBABILITY, "higher"),
    *(Metric(f"left_out_at_{n}", heading="", range=(0, inf)) for n in NUMBERS),
)


def distractors(
    preferred: pl.DataFrame,
    details: pl.DataFrame,
    n_failed: pl.DataFrame | None = None,
    **draws: Unpack[Draws],
) -> pl.DataFrame:
    """Measure a setting: `min_at_n`, `avg_at_n`, `left_out_at_n`, `probability` (table ROWS).

    `details` has pair_id, popularity and sample; n is each of `numbers(preferred)`. `left_out_at_n`
    counts the facts with fewer, which `min_at_n` and `avg_at_n` leave out (their `n` counts the
    other prompts). Slices: each relation, popularity decile, sample of the set, and number of
    tokens of the answer's likeliest label. 95 % intervals, of facts resampled in their relations.

    Source: the paper, section 3.2 and Table 2; it has neither slices nor intervals.
    """
    rows: list[Row] = []
    for metric, clozes, terms in _terms(preferred):
        counts = count_answers(clozes, n_failed)
        rows += ratio_rows(metric, terms, counts, **draws)
    counts, n_facts = count_answers(preferred, n_failed), preferred["pair_id"].n_unique()
    for n in numbers(preferred):
        n_left_out = float(n_facts - with_n(preferred, n)["pair_id"].n_unique())
        rows.append(counts.row(f"left_out_at_{n}", Estimate(n_left_out)))
    # A prompt without an answer has no length: none failed in a slice that is no relation.
    for name, part in parts(preferred, details, tokens="n_tokens"):
        for metric, clozes, terms in _terms(part):
            interval = bootstrap_ratio(terms, **draws).overall
            rows.append(Row(None, name, metric, *interval, clozes.height, 0))
    return table(rows)


def _terms(preferred: pl.DataFrame) -> Iterator[tuple[str, pl.DataFrame, pl.DataFrame]]:
    """Each metric: its name, the prompts that enter it, and the terms of its facts."""
    for aggregation in AGGREGATIONS:
        for n in numbers(preferred):
            rows = with_n(preferred, n)
            yield f"{aggregation}_at_{n}", rows, pair_terms(rows, knowledge(aggregation, n).mean())
    scored = preferred.drop_nulls("open_logprob")  # null where another system answered
    if scored.height:
        yield "probability", scored, pair_terms(scored, pl.col("open_logprob").exp().mean())


def with_n(preferred: pl.DataFrame, n: int) -> pl.DataFrame:
    """The rows of the facts that have n distractors after each of their clozes."""
    return preferred.filter(pl.col("n_distractors").min().over("pair_id") >= n)


def knowledge(aggregation: Aggregation, n: int | pl.Expr) -> pl.Expr:
    """K(f|c) over the first n distractors: whether all are beaten (`min`), or the share (`avg`).

    >>> rows = pl.DataFrame({"n_beaten": [[1, 2, 2], [0, 1, 2]]})
    >>> rows.select(knowledge("min", 2).alias("min"), knowledge("avg", 2).alias("avg")).rows()
    [(1.0, 1.0), (0.0, 0.5)]
    """
    beaten = pl.col("n_beaten").list.get(n - 1)
    return (beaten == n).cast(pl.Float64) if aggregation == "min" else beaten / n


def curve(preferred: pl.DataFrame) -> pl.DataFrame:
    """Min@n and Avg@n over facts for every n up to the most distractors: n, min, avg, n_facts.

    Each n is measured on the facts that have n distractors after each of their clozes.

    Source: the paper, Figures 1 and 2.

    >>> counts = {"n_distractors": [2, 1], "n_beaten": [[1, 1], [0]]}
    >>> curve(pl.DataFrame({"pair_id": ["t", "u"], **counts})).rows()
    [(1, 0.5, 0.5, 2), (2, 0.0, 0.5, 1)]
    """
    n_of_fact = pl.col("n_distractors").min().over("pair_id")
    ranks = pl.int_ranges(1, pl.col("n_beaten").list.len().cast(pl.Int64) + 1)
    rows = preferred.select("pair_id", "n_beaten", n=ranks, most=n_of_fact)
    rows = rows.explode("n_beaten", "n").filter(pl.col("n") <= pl.col("most"))
    share = pl.col("n_beaten") / pl.col("n")
    of_facts = rows.group_by("pair_id", "n").agg(min=(share == 1).mean(), avg=share.mean())
    means = of_facts.group_by("n").agg(pl.col("min", "avg").sort().mean(), n_facts=pl.len())
    return means.sort("n").select(CURVE.names()).cast(CURVE)


def numbers(preferred: pl.DataFrame, among: Sequence[int] = NUMBERS) -> list[int]:
    """The numbers of distractors `among` these that some row has; the smallest always.

    >>> [numbers(pl.DataFrame({"n_distractors": [most]})) for most in (7, 0)]
    [[1, 2, 5], [1]]
    """
    most = preferred["n_distractors"].max()
    return [n for n in among if n == among[0] or (isinstance(most, int) and n <= most)]


def of_distractors(preferred: pl.DataFrame) -> pl.DataFrame:
    """K(f|c) for both aggregations and each number of distractors that some cloze has (VALUES).

    A cloze with fewer than n distractors is measured on all it has, so that every configuration
    is about the same facts; one with none is left out.
    """
    rows = preferred.filter(pl.col("n_distractors") > 0)
    most = rows["n_distractors"].max()
    grid = up_to(N_GRID, most if isinstance(most, int) else 0)
    tables = [VALUES.to_frame()]
    for aggregation, n in product(AGGREGATIONS, grid):
        n_measured = pl.min_horizontal(pl.lit(n, pl.Int64), pl.col("n_distractors").cast(pl.Int64))
        value = knowledge(aggregation, n_measured)
        tables.append(values(rows, "distractors", f"{aggregation}@{n}", value))
    return pl.concat(tables)


def of_probability(preferred: pl.DataFrame) -> pl.DataFrame:
    """The probability of the right answer's labels after each cloze (VALUES); without choices.

    The labels need no ending: any continuation counts.

    Source: the paper, Table 2, "Probability".
    """
    return values(
        preferred.drop_nulls("open_logprob"), "probability", "", pl.col("open_logprob").exp()
    )


def values(rows: pl.DataFrame, measure: str, hyperparameters: str, value: pl.Expr) -> pl.DataFrame:
    """One configuration's `value` of each row (VALUES).

    `rows` has prompt_id, relation_id, pair_id, template_id, subject_index, and the inputs of
    `value`.
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


def up_to(grid: Sequence[int], most: int) -> Iterator[int]:
    """The grid up to the most available: a larger number would give the same.

    >>> list(up_to((1, 2, 5, 10), 3)), list(up_to((1, 2), 0))
    ([1, 2, 3], [])
    """
    for n in grid:
        if n >= most:
            break
        yield n
    if most:
        yield min(most, grid[-1])
