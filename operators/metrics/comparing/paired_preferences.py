"""Two runs of the distractor measure set side by side, fact by fact: what each adds to each metric.

Every table here can be made relation by relation and put together (`pl.concat`).
"""

import polars as pl

from factsweep.operators.errors import InputError
from factsweep.operators.metrics.comparing.paired_terms import PAIRED
from factsweep.operators.metrics.comparing.pairing import FACT, Unit
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
_SECOND = "_second"


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
    for name, run in {"first": first, "second": second}.items():
        if run["prompt_id"].is_duplicated().any():
            raise InputError(f"the {name} run has a prompt_id twice; give one answer per prompt.")
    if unit == "prompt":
        first, second = (
            own.join(other, on="prompt_id", how="semi")
            for own, other in ((first, second), (second, first))
        )
    shared = [n for n in numbers(first) if n in numbers(second)]
    found = [
        _terms(first, second, aggregation, n, unit) for n in shared for aggregation in AGGREGATIONS
    ]
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
    """One metric's rows."""
    values, others = pl.col("values"), pl.col(f"values{_SECOND}")
    facts = [_by_fact(run, aggregation, n) for run in (first, second)]
    changes = (others - values).list.eval(pl.element() ** 2).list.mean()
    terms = facts[0].join(facts[1], on=FACT, suffix=_SECOND).sort(FACT)
    terms = terms.with_columns(
        metric=pl.lit(f"{aggregation}_at_{n}"),
        first=values.list.mean(),
        second=others.list.mean(),
        denominator=pl.lit(1),
        squares=changes if unit == "prompt" else None,
        n_prompts=values.list.len() if unit == "prompt" else None,
    )
    return terms.select(pl.col(name).cast(kind) for name, kind in PAIRED.items())


def _by_fact(run: pl.DataFrame, aggregation: Aggregation, n: int) -> pl.DataFrame:
    """K after each cloze of each fact that has n distractors, in the order of the clozes."""
    own = knowledge(aggregation, n).sort_by("prompt_id")
    return with_n(run, n).group_by(pl.col(FACT).cast(pl.String)).agg(values=own)
