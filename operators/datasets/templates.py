"""Texts with [X] and [Y] → the canonical table of templates."""

import polars as pl

from factsweep.operators.schemas import empty

_QUESTION = r"\?\s*\[Y\]\s*\.?$"


def numbered(texts: pl.DataFrame) -> pl.DataFrame:
    """The canonical templates of texts, in their order: each gets its number and its style.

    Columns in: relation_id, text, origin (manual, paraphrase), group (null: not known). Columns
    out: those of `operators.schemas.SCHEMAS["templates"]`.

    >>> texts = pl.DataFrame({
    ...     "relation_id": ["P36", "P36"],
    ...     "text": ["[Y] is the capital of [X].", "What is the capital of [X]? [Y]."],
    ...     "origin": ["manual", "manual"],
    ...     "group": [0, 1],
    ... })
    >>> numbered(texts).select("template_id", "style").rows()
    [('P36.000', 'statement'), ('P36.001', 'question')]
    """
    index = pl.int_range(pl.len()).over("relation_id").cast(pl.String).str.zfill(3)
    return texts.select(
        template_id=pl.format("{}.{}", "relation_id", index),
        relation_id="relation_id",
        text="text",
        origin="origin",
        group=pl.col("group").cast(pl.UInt16),
        style=style(pl.col("text")),
    ).cast(empty("templates").schema)


def style(text: pl.Expr) -> pl.Expr:
    """How a template asks: `question` where it ends in `? [Y].`, else `statement`.

    >>> texts = pl.DataFrame({"text": ["Who made [X]? [Y]", "Is [X] by [Y]?"]})
    >>> texts.select(style(pl.col("text"))).to_series().to_list()
    ['question', 'statement']
    """
    return (
        pl.when(text.str.contains(_QUESTION))
        .then(pl.lit("question"))
        .otherwise(pl.lit("statement"))
    )
