"""Two runs of the distractor measure set side by side, fact by fact: what each adds to each metric.

Every table here can be made relation by relation and put together (`pl.concat`).
"""

import polars as pl

from factsweep.operators.metrics.comparing.paired_terms import PAIRED, terms
from factsweep.operators.metrics.comparing.pairing import FACT, Unit, check_prompts, in_both
from factsweep.operators.metrics.distractors import distractors
from factsweep.operators.metrics.distractors.preference import (
    AGGREGATIONS,
    Aggregation,
    knowledge,
    numbers,
    with_n,
)

METRICS = tuple(
    metric for metric in distractors.METRICS if metric.name.startswith(("min_at_", "avg_at_"))
)


def paired_preferences(
    first: pl.DataFrame, second: pl.DataFrame, *, unit: Unit = "prompt"
) -> pl.DataFrame:
    """Give each fact's Min@n and Avg@n in both runs (columns: PAIRED).

    Both tables are `preferred`. Of each n those facts count that have n distractors after all their
    clozes in both runs; with the unit `prompt`, only clozes that both runs have an answer to. Each
    run has its own distractors: where a model finds them (`optimal`), they are others.

    Raises:
        InputError: a prompt stands twice in a run.
    """
    check_prompts(first, second)
    runs = in_both(first, second, unit)
    shared = [n for n in numbers(runs[0]) if n in numbers(runs[1])]
    found = [_terms(*runs, aggregation, n, unit) for n in shared for aggregation in AGGREGATIONS]
    return pl.concat([PAIRED.to_frame(), *found])


def known(preferred: pl.DataFrame) -> pl.DataFrame:
    """Whether the right answer beats every distractor, after each cloze that has any.

    Columns: those of the table, and `correct`.

    >>> row = {"n_distractors": [2, 0], "n_beaten": [[1, 2], []]}
    >>> known(pl.DataFrame(row))["correct"].to_list()
    [True]
    """
    compared = preferred.filter(pl.col("n_distractors") > 0)
    return compared.with_columns(correct=pl.col("n_beaten").list.last() == pl.col("n_distractors"))


def _terms(
    first: pl.DataFrame, second: pl.DataFrame, aggregation: Aggregation, n: int, unit: Unit
) -> pl.DataFrame:
    values, others = pl.col("values"), pl.col("values_second")
    # K after each cloze of each fact that has n distractors, in the order of the clozes.
    own = knowledge(aggregation, n).sort_by("prompt_id")
    one, other = (
        with_n(run, n).group_by(pl.col(FACT).cast(pl.String)).agg(values=own)
        for run in (first, second)
    )
    facts = one.join(other, on=FACT, suffix="_second").sort(FACT)
    facts = facts.with_columns(mean=values.list.mean(), mean_second=others.list.mean())
    changes = (others - values).list.eval(pl.element() ** 2).list.mean()
    squares, n_prompts = (changes, values.list.len()) if unit == "prompt" else (pl.lit(None),) * 2
    facts = facts.with_columns(n_prompts=n_prompts)
    return terms(facts, f"{aggregation}_at_{n}", "mean", squares=squares)
