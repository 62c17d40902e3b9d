"""Labels that differ in their special characters alone: C, C++ and C#."""

import polars as pl

from factsweep.operators.datasets.kamel import is_literal
from factsweep.operators.matching.answer_set import answer_forms


def told_apart(pairs: pl.DataFrame) -> pl.DataFrame:
    """The labels that keep their special characters: relation_id, bare, full (`answer_forms`).

    A label keeps them if it would be equal, without them, to another label of another object of its
    relation, or if nothing would be left of it. Two answers without an id, and two literals, are
    one object if their first labels are equal.

    Source: KAMEL, section 3.2, which removes all special characters; kept here, or "C" would be
    right for C++ and C#.

    >>> objects = [[{"object_id": q, "labels": [name]}] for q, name in (("Q1", "C"), ("Q2", "C++"))]
    >>> told_apart(pl.DataFrame({"relation_id": ["P277"] * 2, "objects": objects})).rows()
    [('P277', 'c', 'c'), ('P277', 'c', 'c++')]
    """
    objects = pairs.select("relation_id", "objects").explode("objects").unnest("objects")
    first = pl.col("labels").list.first().str.to_lowercase()
    object_id = pl.col("object_id").cast(pl.String)
    named = object_id.is_not_null() & ~is_literal(object_id)
    labels = objects.select(
        "relation_id", "labels", object=pl.when(named).then("object_id").otherwise(first)
    ).explode("labels")
    parts = labels.select("relation_id", "object", part=answer_forms(pl.col("labels")))
    forms = parts.explode("part").unnest("part").filter(pl.col("full") != "")
    same = ["relation_id", "bare"]
    several = (pl.n_unique("object") > 1) & (pl.n_unique("full") > 1)
    shared = forms.group_by(same).agg(several=several)
    kept = shared.filter(pl.col("several") | (pl.col("bare") == ""))
    found = forms.join(kept, on=same, how="semi").select("relation_id", "bare", "full")
    return found.unique().sort(found.columns)


def answers_told_apart(texts: pl.DataFrame, apart: pl.DataFrame) -> pl.DataFrame:
    """The strictly read answers of texts (relation_id, text, others): a row each, in `answer`.

    An answer has no special characters, unless `apart` (`told_apart`) has its bare form in its
    relation. What has nothing but special characters, and is none of those labels, is no answer.
    A final stop ends a sentence, unless one of these labels has it: "C#." is C#.
    """
    forms = texts.select(pl.exclude("text"), part=answer_forms(pl.col("text")))
    forms = _without_final_stops(forms.explode("part").unnest("part").drop_nulls("full"), apart)
    same = ["relation_id", "bare"]
    marked = apart.select(same).unique().with_columns(apart=pl.lit(value=True))
    known = apart.filter(pl.col("bare") == "").with_columns(known=pl.lit(value=True))
    forms = forms.join(marked, on=same, how="left").join(known, on=[*same, "full"], how="left")
    keeps = pl.when(pl.col("bare") == "").then("known").otherwise("apart").fill_null(value=False)
    answers = forms.with_columns(answer=pl.when(keeps).then("full").otherwise("bare"))
    return answers.filter(pl.col("answer") != "").drop("full", "bare", "apart", "known").unique()


def _without_final_stops(forms: pl.DataFrame, apart: pl.DataFrame) -> pl.DataFrame:
    """The forms, in `full` without a final stop where that makes one of the labels of it."""
    labels = apart.select("relation_id", "bare", full="full", label="full")
    same = ["relation_id", "bare", "full"]
    stopped = forms.with_columns(pl.col("full").str.replace(r"\s*\.$", ""))
    unstopped = stopped.join(labels, on=same, how="left", maintain_order="left")["label"]
    as_given = forms.join(labels, on=same, how="left", maintain_order="left")["label"]
    return forms.with_columns(full=pl.coalesce(as_given, unstopped, "full"))
