"""Contradictions: what rows of a set cannot all be right about, counted for every reader."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Literal

import polars as pl

from factsweep.operators.datasets.facts import Facts, checked
from factsweep.operators.datasets.kamel import is_literal
from factsweep.operators.schemas.checks import refuse

# What is done where rows contradict each other.
DONE: Mapping[str, str] = {
    "contradicting_pairs": "rows of one pair name other subjects or objects; its first row counts",
    "subjects_of_two_labels": "one subject id has several labels; each pair keeps its own",
    "objects_of_two_labels": "one object id has several labels; each pair keeps its own",
    "questions_of_two_answers": "pairs of one relation have a subject of the same name, and other "
    "right objects; each pair is asked, and keeps its own",
    "merged_subjects": "triples of one subject name several objects; each of them is right",
    "relations_left_out": "they have a file, but no template or no facts; nothing is asked of them",
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
    found = {"objects_of_two_labels": int(labels["labels"].sum())} if ids else {}
    return found | {"questions_of_two_answers": int(questions["objects"].sum())}


def merged_subjects(facts: Facts) -> dict[str, int]:
    """How many subjects have several objects, in a set whose triples name one each."""
    return {"merged_subjects": int((facts.pairs["objects"].list.len() > 1).sum())}


def sentences(counts: Mapping[str, object]) -> Iterator[str]:
    """What was counted and what is done about it, one line each; nothing of what is nought."""
    for name, done in DONE.items():
        if found := counts.get(name):
            words = name.replace("_", " ")
            what = re.sub(r"s\b", "", words, count=1) if found == 1 else words
            yield f"{found:,} {what}: {done}"


_HIDDEN = (
    "{where}: {text!a} holds a character that nobody sees; take it out, or let it be removed: "
    "benchmark.unseen=remove."
)
Unseen = Literal["keep", "remove", "refuse"]
_JOINERS = r"\u{200c}\u{200d}"
_IGNORABLE = r"\p{Default_Ignorable_Code_Point}"
_CHARACTER = rf"[\p{{Cc}}\p{{Cf}}\p{{Co}}{_IGNORABLE}--[{_JOINERS}]]"


def treated(facts: Facts, how: Unseen) -> Facts:
    """The facts with these characters kept or removed.

    They are Unicode's Cc, Cf, Cs and Co, and what it calls default ignorable beside these. Joiners
    of letters are none of them: Persian and Hindi are written with them.

    Raises:
        InputError: there are, and they are to be refused; or nothing is left of a text.
    """
    if how == "keep" or (texts := unseen(facts)).is_empty():
        return facts
    if how == "refuse":
        refuse(texts, {_HIDDEN: pl.col("text").is_not_null()}, ["where", "text"])
    templates = facts.templates.with_columns(seen(pl.col("text")))
    text, of_object = seen(pl.element()), pl.element().struct.field("labels")
    filled = text.filter(text.str.strip_chars() != "")
    names = pl.col("subjects").list.eval(filled)
    labels = pl.element().struct.with_fields(labels=of_object.list.eval(filled))
    objects = pl.col("objects").list.eval(labels)
    objects = objects.list.eval(pl.element().filter(of_object.list.len() > 0))
    pairs = facts.pairs.with_columns(subjects=names, objects=objects)
    return checked(replace(facts, templates=templates, pairs=pairs))


def seen(text: pl.Expr) -> pl.Expr:
    """A text without these characters."""
    return text.str.replace_all(_CHARACTER, "")


def unseen(facts: Facts) -> pl.DataFrame:
    """The texts that hold one, each with where it stands: where, text."""
    of_template = pl.format("template {}", "template_id").alias("where")
    of_pair = pl.format("pair {}", "pair_id").alias("where")
    labels = pl.col("objects").struct.field("labels")
    texts = (
        facts.templates.select(of_template, "text"),
        facts.pairs.select(of_pair, text="subjects").explode("text"),
        facts.pairs.explode("objects").select(of_pair, text=labels).explode("text"),
    )
    return pl.concat(texts).filter(pl.col("text").str.contains(_CHARACTER))
