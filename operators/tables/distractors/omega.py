"""How many distractors the facts of a set have, and what is left out of them, by reason."""

import polars as pl

from factsweep.operators.datasets.facts import Facts, Slice
from factsweep.operators.datasets.single_objects import sliced
from factsweep.operators.knowledge_base.omega import counted
from factsweep.operators.prompts.clozes import answers

_SUMS = ("n_same_type", "n_right", "n_sharing", "n_distractors")


def distractors_by_relation(facts: Facts) -> pl.DataFrame:
    """One row per relation, and one for all (relation_id null).

    Columns: relation_id, n_facts, n_without (facts that have no distractor), n_below_100 (that have
    fewer than 100), and sums over facts: n_same_type (other entities that share a type with the
    answer), n_right (of these other right objects), n_sharing (of the others those that share a
    label with the answer), n_distractors (the rest).
    """
    single = sliced(facts, Slice())
    assert single.knowledge_base is not None
    asked = answers(single)
    sizes = counted(single.knowledge_base, asked)
    rows = sizes.join(asked.select("pair_id", "relation_id"), on="pair_id", maintain_order="left")
    left = pl.col("n_distractors")
    figures = {
        "n_facts": pl.len(),
        "n_without": (left == 0).sum(),
        "n_below_100": (left < 100).sum(),
        **{name: pl.col(name).sum() for name in _SUMS},
    }
    by_relation = rows.group_by("relation_id", maintain_order=True).agg(**figures)
    everything = rows.select(relation_id=pl.lit(None, pl.String), **figures)
    return pl.concat([by_relation, everything])
