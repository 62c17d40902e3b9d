"""The best and the worst template of each relation."""

import polars as pl

from factsweep.operators.tables.shared.numbers import percent
from factsweep.operators.tables.shared.relations import named

_PERCENT = percent(0)


def best_and_worst(
    shares: pl.DataFrame, templates: pl.DataFrame, relations: pl.DataFrame
) -> pl.DataFrame:
    """One row per relation of several templates, the widest gap first; shares in percent.

    `shares` has template_id and share (of its prompts that were answered right).

    >>> templates = pl.DataFrame({
    ...     "template_id": ["a", "b"], "relation_id": ["P36"] * 2, "text": ["[X]: [Y]", "[Y], [X]"],
    ... })
    >>> relations = pl.DataFrame({"relation_id": ["P36"], "label": ["capital"]})
    >>> shares = pl.DataFrame({"template_id": ["a", "b"], "share": [0.5, 0.25]})
    >>> best_and_worst(shares, templates, relations).row(0)
    ('P36 capital', '[X]: [Y]', '50%', '[Y], [X]', '25%', '25%')
    """
    known = shares.join(templates.select("template_id", "relation_id", "text"), on="template_id")
    ranked = known.sort("share", "template_id", descending=[True, False])
    ends = ranked.group_by("relation_id").agg(
        best=pl.first("text"),
        best_share=pl.first("share"),
        worst=pl.last("text"),
        worst_share=pl.last("share"),
        gap=pl.first("share") - pl.last("share"),
        n=pl.len(),
    )
    several = ends.filter(pl.col("n") > 1).join(relations, on="relation_id", how="left")
    return several.sort("gap", "relation_id", descending=[True, False]).select(
        named(pl.col("relation_id"), pl.col("label")).alias("relation"),
        pl.col("best").alias("best template"),
        _PERCENT.column(pl.col("best_share")).alias("best right"),
        pl.col("worst").alias("worst template"),
        _PERCENT.column(pl.col("worst_share")).alias("worst right"),
        _PERCENT.column(pl.col("gap")).alias("gap"),
    )
