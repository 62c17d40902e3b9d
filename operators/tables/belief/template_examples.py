"""Examples of a set's templates (Tables 19 to 24 of BELIEF, 20 to 25 of its 2025 version)."""

import polars as pl

from factsweep.operators.datasets.facts import Facts
from factsweep.operators.tables.shared.relations import named


def template_examples(facts: Facts, *, n_manual: int = 2, n_paraphrases: int = 3) -> pl.DataFrame:
    """The first manual templates of each relation, each with its first paraphrases.

    One row per paraphrase: relation (id and label), manual template, paraphrased template. The
    papers choose theirs by chance. Without a group, it is not known whose a paraphrase is, and a
    manual template stands alone.

    >>> templates = pl.DataFrame({
    ...     "relation_id": ["P19"] * 3, "group": [0, 0, 0],
    ...     "origin": ["manual", "paraphrase", "paraphrase"],
    ...     "text": ["[X] was born in [Y].", "[X] is from [Y].", "[Y] saw the birth of [X]."],
    ... })
    >>> relations = pl.DataFrame({"relation_id": ["P19"], "label": ["place of birth"]})
    >>> facts = Facts(relations, templates, pl.DataFrame())
    >>> template_examples(facts, n_paraphrases=1).row(0)
    ('P19 place of birth', '[X] was born in [Y].', '[X] is from [Y].')
    """
    manual = facts.templates.filter(pl.col("origin") == "manual")
    first = manual.filter(pl.int_range(pl.len()).over("relation_id") < n_manual)
    others = facts.templates.filter(pl.col("origin") != "manual")
    place = pl.int_range(pl.len()).over("relation_id", "group")
    paraphrases = others.filter(place < n_paraphrases).drop_nulls("group")
    return (
        facts.relations.join(first, on="relation_id", maintain_order="left_right")
        .join(
            paraphrases.select("relation_id", "group", paraphrase="text"),
            on=["relation_id", "group"],
            how="left",
            maintain_order="left_right",
        )
        .select(
            named(pl.col("relation_id"), pl.col("label")).alias("relation"),
            pl.col("text").alias("manual template"),
            pl.col("paraphrase").alias("paraphrased template"),
        )
    )
