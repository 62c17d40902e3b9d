"""Contradictions: what rows of a set cannot all be right about, counted for every reader."""

import re
from collections.abc import Iterator, Mapping

import polars as pl

from factsweep.operators.datasets.facts import Facts
from factsweep.operators.datasets.kamel import is_literal

# What is done where rows contradict each other.
DONE: Mapping[str, str] = {
    "contradicting_pairs": "rows of one pair name other subjects or objects; its first row counts",
    "subjects_of_two_labels": "one subject id has several labels; each pair keeps its own",
    "objects_of_two_labels": "one object id has several labels; each pair keeps its own",
    "questions_of_two_answers": "pairs of one relation have a subject of the same name, and other "
    "right objects; each pair is asked, and keeps its own",
    "unseen_characters": "texts hold a character that nobody sees; benchmark.unseen says whether "
    "it is kept or removed",
    "labels_without_letters": "they have no digit either, so no answer is right by them",
    "merged_subjects": "triples of one subject name several objects; each of them is right",
}


def in_facts(facts: Facts, *, ids: bool = True) -> dict[str, int]:
    """How many objects have several labels, and how many questions several answers.

    Without `ids` objects have none of their own.

    >>> pairs = pl.DataFrame({
    ...     "relation_id": ["P36", "P36"], "split": [None, None], "subjects": [["Peru"], ["Peru"]],
    ...     "objects": [[{"object_id": "Q2868", "labels": [name]}] for name in ("Lima", "Cusco")],
    ... })
    >>> in_facts(Facts(pl.DataFrame(), pl.DataFrame(), pairs))
    {'objects_of_two_labels': 1, 'questions_of_two_answers': 1}
    """
    label = pl.element().struct.field("labels").list.first()
    answers = pl.col("objects").list.eval(label).list.sort().hash()
    subject = pl.col("subjects").list.first()
    questions = facts.pairs.group_by("relation_id", "split", subject).agg(answers.n_unique() > 1)
    objects = facts.pairs.select(pl.col("objects").explode()).unnest("objects")
    objects = objects.filter(pl.col("object_id").is_not_null() & ~is_literal(pl.col("object_id")))
    first = pl.col("labels").list.first()
    labels = objects.group_by("object_id").agg(first.n_unique() > 1)
    return {
        **({"objects_of_two_labels": int(labels["labels"].sum())} if ids else {}),
        "questions_of_two_answers": int(questions["objects"].sum()),
    }


def without_letters(facts: Facts) -> dict[str, int]:
    """How many labels of objects have neither a letter nor a digit; nothing if none has."""
    labels = facts.pairs.select(pl.col("objects").explode().struct.field("labels").explode())
    n = int((~labels["labels"].str.contains(r"[\p{L}\p{N}]")).sum())
    return {"labels_without_letters": n} if n else {}


def merged_subjects(facts: Facts) -> dict[str, int]:
    """How many subjects have several objects, in a set whose triples name one each."""
    several = facts.pairs["objects"].list.len() > 1
    return {"merged_subjects": int(several.sum())}


def sentences(counts: Mapping[str, object]) -> Iterator[str]:
    """What was counted and what is done about it, one line each; nothing of what is nought.

    >>> list(sentences({"pairs": 9, "subjects_of_two_labels": 2, "merged_subjects": 0}))
    ['2 subjects of two labels: one subject id has several labels; each pair keeps its own']
    >>> next(sentences({"merged_subjects": 1})).partition(":")[0]
    '1 merged subject'
    """
    for name, done in DONE.items():
        if found := counts.get(name):
            words = name.replace("_", " ")
            what = re.sub(r"s\b", "", words, count=1) if found == 1 else words
            yield f"{found:,} {what}: {done}"
