"""Relations in tables: the slices of the metrics table that are one, their ids and labels."""

from collections.abc import Mapping

import polars as pl

from factsweep.operators.tables.shared.numbers import percent

_SLICE = "relation="
_WHOLE = percent(0)


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
    first, last = pl.first("share"), pl.last("share")
    ends = {
        "best template": pl.first("text"),
        "best right": first,
        "worst template": pl.last("text"),
        "worst right": last,
        "gap": first - last,
    }
    several = ranked.group_by("relation_id").agg(**ends, n=pl.len()).filter(pl.col("n") > 1)
    rows = several.join(relations, on="relation_id", how="left")
    relation = named(pl.col("relation_id"), pl.col("label")).alias("relation")
    rows = rows.sort("gap", "relation_id", descending=[True, False]).select(relation, *ends)
    return rows.with_columns(_WHOLE.column(pl.col(each)) for each in ends if "template" not in each)
