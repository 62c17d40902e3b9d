"""Leaks: prompts whose demonstrations show a right answer of theirs, or name their subject.

The papers ask them like all others, and so does factsweep: a draw without them would tell a model
which answers are wrong. They are counted, so that one knows how many there are.
"""

from typing import NamedTuple

import polars as pl

from factsweep.operators.prompts.expansion import Expansion


class Shown(NamedTuple):
    """How many prompts show a right object of theirs, and how many their subject."""

    objects: int
    subjects: int


NOTHING = Shown(0, 0)


def shown(expansion: Expansion, pairs: pl.DataFrame) -> Shown:
    """Count the prompts of a relation; `pairs` has all pairs that may be demonstrated.

    A demonstration shows a name of its pair where that stands in the context, in the same case.
    """
    labels = pl.col("objects").list.eval(pl.element().struct.field("labels").explode())
    names = pairs.select("pair_id", object=labels, subject="subjects")
    contexts = expansion.contexts.select("context_id", "text", pair_id="demonstrations")
    said = (
        contexts.explode("pair_id")
        .join(names, on="pair_id")
        .select("context_id", "text", name=pl.concat_list("object", "subject"))
        .explode("name")
        .filter(pl.col("text").str.contains(pl.col("name"), literal=True))
    )
    counts = []
    for part in ("object", "subject"):
        asked = expansion.prompts.select("prompt_id", "context_id", "pair_id")
        asked = asked.join(names.select("pair_id", name=part), on="pair_id").explode("name")
        found = asked.join(said, on=["context_id", "name"], how="semi")
        counts.append(found["prompt_id"].n_unique())
    return Shown(*counts)
