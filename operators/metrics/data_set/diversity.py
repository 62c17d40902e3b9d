"""How many and how different the prompts of a set are (BELIEF, appendix B.1)."""

from collections.abc import Callable, Sequence

import numpy as np
import polars as pl
from numpy.typing import NDArray

from factsweep.operators.datasets.facts import Facts
from factsweep.operators.metrics.data_set.lexical_diversity import lexicon
from factsweep.operators.metrics.data_set.semantic_diversity import semantics
from factsweep.operators.metrics.data_set.syntactic_diversity import syntax

# Texts → the place of each word's head, for each text; a root is its own head.
Parse = Callable[[Sequence[str]], Sequence[Sequence[int]]]
# Texts → (texts, dimensions).
Encode = Callable[[Sequence[str]], NDArray[np.floating]]

DIVERSITY = pl.Schema(
    {
        "relation_id": pl.String(),
        "n_pairs": pl.Int64(),
        "n_templates": pl.Int64(),
        **dict.fromkeys(("quantity", "lexicon", "syntax", "semantics"), pl.Float64()),
    }
)


def diversity(
    facts: Facts, *, parse: Parse | None = None, encode: Encode | None = None
) -> pl.DataFrame:
    """Measure each relation, and the set: one row per relation and a last one, relation_id null.

    Columns out: DIVERSITY. `quantity` is the number of prompts per pair: names × templates,
    averaged over the pairs; `lexicon`, `syntax` and `semantics` are mean distances of two templates
    of the relation, in the last row averaged over the relations that have two. Null: fewer than two
    templates, or without `parse` or `encode`. A set of templates alone (no pairs) has no
    `quantity`.

    Source: BELIEF, appendix B.1, Table 8.

    >>> from factsweep.operators.schemas import empty
    >>> texts = ["[X] died in [Y].", "[X] died at [Y]."]
    >>> templates = pl.DataFrame({"relation_id": "P20", "text": texts})
    >>> diversity(Facts(empty("relations"), templates, empty("pairs"))).row(0)
    ('P20', 0, 2, None, 0.4, None, None)
    """
    relations = facts.templates.group_by("relation_id", maintain_order=True).agg("text")
    texts = [each.to_list() for each in relations["text"]]
    spelt = [[spell_slots(text) for text in each] for each in texts]
    names = _names(facts.pairs)
    measured = relations.join(
        names, on="relation_id", how="left", maintain_order="left"
    ).with_columns(
        pl.col("n_pairs").fill_null(0),
        n_templates=pl.col("text").list.len().cast(pl.Int64),
        lexicon=_float([lexicon(each) for each in texts]),
        syntax=_float([syntax(parse(each)) if parse else None for each in spelt]),
        semantics=_float([semantics(encode(each)) if encode else None for each in spelt]),
    )
    by_relation = measured.with_columns(quantity=pl.col("n_names") * pl.col("n_templates"))
    prompts = pl.col("quantity") * pl.col("n_pairs")
    whole = by_relation.select(
        pl.lit(None, pl.String).alias("relation_id"),
        pl.sum("n_pairs", "n_templates"),
        pl.mean("lexicon", "syntax", "semantics"),
        quantity=pl.when(pl.sum("n_pairs") > 0).then(prompts.sum() / pl.sum("n_pairs")),
    )
    return pl.concat(each.select(list(DIVERSITY)) for each in (by_relation, whole))


def spell_slots(text: str) -> str:
    """A template as a parser or an encoder reads it: with the names X and Y, without brackets.

    >>> spell_slots("[X] died in [Y].")
    'X died in Y.'
    """
    return text.replace("[X]", "X").replace("[Y]", "Y")


def _names(pairs: pl.DataFrame) -> pl.DataFrame:
    """The pairs of each relation, and the mean number of their subjects' names."""
    return pairs.group_by("relation_id").agg(
        n_pairs=pl.len().cast(pl.Int64), n_names=pl.col("subjects").list.len().mean()
    )


def _float(values: list[float | None]) -> pl.Series:
    return pl.Series(values, dtype=pl.Float64)
