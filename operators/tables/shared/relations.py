"""Relations in tables: the slices of the metrics table that are one, their ids and labels."""

from collections.abc import Mapping

import polars as pl

_SLICE = "relation="


def is_relation() -> pl.Expr:
    """Whether a row of the metrics table is of one relation."""
    return pl.col("slice").str.starts_with(_SLICE)


def relation_id() -> pl.Expr:
    """The id of the relation that a row of the metrics table is of: `relation=P36` is P36."""
    return pl.col("slice").str.strip_prefix(_SLICE)


def label_of(relation: pl.Expr, labels: Mapping[str, str]) -> pl.Expr:
    """The relation's label, or else its id."""
    return relation.replace_strict(dict(labels), default=relation, return_dtype=pl.String)


def named(relation: pl.Expr, label: pl.Expr) -> pl.Expr:
    """A relation as its id and its label; a label that is missing or the id adds nothing.

    >>> table = pl.DataFrame({"id": ["P36", "P19"], "label": ["capital", "P19"]})
    >>> table.select(named(pl.col("id"), pl.col("label")))["id"].to_list()
    ['P36 capital', 'P19']
    """
    further = pl.when(label != relation).then(label)
    return pl.concat_str(relation, further, separator=" ", ignore_nulls=True)
