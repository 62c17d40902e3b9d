"""The effect of a setting: the same prompts asked in two ways, or of two models."""

from functools import reduce

import polars as pl

from operators.metrics.belief.acc_at_1 import acc_at_1_terms
from operators.metrics.belief.consist import By, consist_terms
from operators.metrics.belief.one_word_ratio import one_word_ratio_terms
from operators.metrics.estimates.bootstrap import bootstrap_ratio
from operators.metrics.estimates.terms import ratio

EFFECT = pl.Schema(
    {
        "slice": pl.String,
        "metric": pl.String,
        "first": pl.Float64,
        "second": pl.Float64,
        "difference": pl.Float64,
        "ci_low": pl.Float64,
        "ci_high": pl.Float64,
        "n": pl.Int64,
        "n_left_out": pl.Int64,
    }
)

_DIFFERENCES = {
    "relation_id": pl.String,
    "difference": pl.Float64,
    "ci_low": pl.Float64,
    "ci_high": pl.Float64,
}


def setting_effect(
    first: pl.DataFrame,
    second: pl.DataFrame,
    *,
    by: By = "match",
    seed: int,
    n_rounds: int = 1000,
) -> pl.DataFrame:
    r"""Compare two runs on the prompts that both have an answer to: the table EFFECT.

    One row for `acc_at_1`, `consist` and `one_word_ratio`, over all (slice null) and per relation:
    the values of both runs on those prompts, and difference = second − first with its 95 %
    interval. Every round draws the same pairs, within their relation, for both runs. `n` counts the
    prompts of both, `n_left_out` those that only one has. Both tables need prompt_id, relation_id,
    pair_id, key, n_lemmas and correct; their prompts are matched by prompt_id.

    It serves mask against question style (BELIEF, appendix D.2, Table 14: the values on the shared
    templates), base against instruction-tuned models (2025, section 6.1, item 4, and Table 7) and
    the effect of demonstrations (Table 4; 2025, section 6.1, item 5). The paper has no intervals.

    >>> prompts = {"prompt_id": ["p", "q"], "relation_id": ["P1"] * 2, "pair_id": ["t"] * 2}
    >>> words = {"key": ["\x1frome\x1f"] * 2, "n_lemmas": [1, 1]}
    >>> first = pl.DataFrame({**prompts, **words, "correct": [True, False]})
    >>> second = pl.DataFrame({**prompts, **words, "correct": [True, True]})
    >>> setting_effect(first, second, seed=1, n_rounds=10).head(1).select(
    ...     "metric", "first", "second", "difference", "n"
    ... ).row(0)
    ('acc_at_1', 0.5, 1.0, 0.5, 2)
    """
    one = first.join(second, on="prompt_id", how="semi", maintain_order="left")
    other = second.join(first, on="prompt_id", how="semi", maintain_order="left")
    terms = {
        "acc_at_1": (acc_at_1_terms(one), acc_at_1_terms(other)),
        "consist": (consist_terms(one, by=by), consist_terms(other, by=by)),
        "one_word_ratio": (one_word_ratio_terms(one), one_word_ratio_terms(other)),
    }
    counts = _counts(one, first, second)
    found = [
        counts.join(
            _differences(before, after, seed=seed, n_rounds=n_rounds),
            on="relation_id",
            how="left",
            nulls_equal=True,
            maintain_order="left",
        ).with_columns(metric=pl.lit(metric))
        for metric, (before, after) in terms.items()
    ]
    part = pl.format("relation={}", pl.col("relation_id"))
    rows = pl.concat(found).with_columns(slice=part)
    return rows.select(pl.col(name).cast(dtype) for name, dtype in EFFECT.items())


def _differences(
    first: pl.DataFrame, second: pl.DataFrame, *, seed: int, n_rounds: int
) -> pl.DataFrame:
    """Compare the terms of the same pairs, over all (relation_id null) and per relation."""
    both = first.join(second, on=["relation_id", "pair_id"], suffix="_second")
    change = both.with_columns(numerator=pl.col("numerator_second") - pl.col("numerator"))
    found = bootstrap_ratio(change, seed=seed, n_rounds=n_rounds)
    estimates = [(None, *found.overall), *((r, *each) for r, each in found.by_relation.items())]
    rows = pl.DataFrame(estimates, schema=_DIFFERENCES, orient="row")
    for name, terms in {"first": first, "second": second}.items():
        rows = rows.join(_values(terms, name), on="relation_id", how="left", nulls_equal=True)
    return rows


def _values(terms: pl.DataFrame, name: str) -> pl.DataFrame:
    """The metric of one run, over all and per relation."""
    by_relation = terms.group_by("relation_id", maintain_order=True)
    sums = by_relation.agg(pl.sum("numerator", "denominator"))
    values = sums.select("relation_id", (pl.col("numerator") / pl.col("denominator")).alias(name))
    overall = pl.DataFrame(
        [(None, ratio(terms))], schema={"relation_id": pl.String, name: pl.Float64}, orient="row"
    )
    return pl.concat([overall, values])


def _counts(shared: pl.DataFrame, first: pl.DataFrame, second: pl.DataFrame) -> pl.DataFrame:
    """Over all and per relation, in this order: relation_id, n and n_left_out."""
    relation = pl.col("relation_id").cast(pl.String)
    sides = [
        rows.group_by(relation).agg(pl.len().cast(pl.Int64).alias(name))
        for name, rows in {"n": shared, "first": first, "second": second}.items()
    ]
    sizes = reduce(
        lambda one, other: one.join(other, on="relation_id", how="full", coalesce=True), sides
    ).with_columns(pl.exclude("relation_id").fill_null(0))
    left_out = pl.col("first") + pl.col("second") - 2 * pl.col("n")
    by_relation = sizes.select("relation_id", "n", n_left_out=left_out).sort("relation_id")
    overall = by_relation.select(
        pl.lit(None, pl.String).alias("relation_id"), pl.exclude("relation_id").sum()
    )
    return pl.concat([overall, by_relation])
