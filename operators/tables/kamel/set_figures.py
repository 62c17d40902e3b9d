"""The figures of a set like KAMEL: those of each split, and labels that keep special characters."""

import polars as pl

from factsweep.operators.datasets.facts import Facts
from factsweep.operators.datasets.kamel import split_sizes
from factsweep.operators.datasets.told_apart import told_apart
from factsweep.operators.tables.shared.numbers import decimal

_HEADINGS = {
    "split": "Split",
    "relations": "Relations",
    "queries": "Queries",
    "answers": "Right answers",
    "several": "Queries with several",
    "labels": "Labels per answer",
}


def splits(facts: Facts) -> pl.DataFrame:
    """Table 1 of KAMEL for each split: one row per split."""
    sizes = split_sizes(facts).with_columns(decimal(2).dashed(pl.col("labels")))
    return sizes.select(list(_HEADINGS)).cast(pl.String).rename(_HEADINGS)


def labels_told_apart(facts: Facts) -> pl.DataFrame:
    """Labels of test queries that keep their special characters: one row per relation with any."""
    kept = told_apart(facts.pairs.filter(split="test"))
    found = kept.group_by("relation_id").agg(
        Labels=pl.len().cast(pl.String), Examples=pl.col("full").head(6).str.join(" · ")
    )
    return found.sort("relation_id").rename({"relation_id": "Relation"})
