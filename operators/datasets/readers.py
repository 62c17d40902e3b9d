"""READERS: how the files of each layout become facts, and where rows contradict each other."""

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import polars as pl

from factsweep.operators.datasets import (
    bear,
    distractors,
    kamel,
    layouts,
    myriadlama,
    probelm,
    questions,
    triples,
)
from factsweep.operators.datasets import facts as facts_of
from factsweep.operators.datasets.facts import Facts, Relations
from factsweep.operators.datasets.kamel import is_literal

# How rows that contradict each other are treated.
DONE: Mapping[str, str] = {
    "contradicting_pairs": "rows of one pair name other subjects or objects; its first row counts",
    "subjects_of_two_labels": "one subject id has several labels; each pair keeps its own",
    "objects_of_two_labels": "one object id has several labels; each pair keeps its own",
    "questions_of_two_answers": "pairs of one relation have a subject of the same name, and other "
    "right objects; each pair is asked, and keeps its own",
    "merged_subjects": "triples of one subject name several objects; each of them is right",
    "relations_left_out": "they have a file, but no template or no facts; nothing is asked of them",
}


def count_contradictions(facts: Facts) -> dict[str, int]:
    """How many objects have several labels, and how many questions several answers."""
    label = pl.element().struct.field("labels").list.first()
    answers = pl.col("objects").list.eval(label).list.sort().hash()
    subject = pl.col("subjects").list.first()
    questions = facts.pairs.group_by("relation_id", "split", subject).agg(answers.n_unique() > 1)
    objects = facts.pairs.select(pl.col("objects").explode()).unnest("objects")
    objects = objects.filter(pl.col("object_id").is_not_null() & ~is_literal(pl.col("object_id")))
    first = pl.col("labels").list.first()
    labels = objects.group_by("object_id").agg(first.n_unique() > 1)
    return {
        "objects_of_two_labels": int(labels["labels"].sum()),
        "questions_of_two_answers": int(questions["objects"].sum()),
    }


def describe_contradictions(counts: Mapping[str, object]) -> Iterator[str]:
    """A line for each count above 0, with the consequence."""
    for name, consequence in DONE.items():
        if n := counts.get(name):
            words = name.replace("_", " ")
            words = re.sub(r"s\b", "", words, count=1) if n == 1 else words
            yield f"{n:,} {words}: {consequence}"


# Counts that are 0 in a sound set, and how the reader treats such rows.
FAULTS: Mapping[str, str] = {
    name: DONE[name] for name in ("contradicting_pairs", "subjects_of_two_labels")
}
# Optional columns; where they are missing, these counts are smaller.
NEEDS: Mapping[str, Sequence[str]] = {
    "prompts": ("sub_aliases",),
    "derived_triples": ("sub_aliases", "obj_aliases"),
}


@dataclass(frozen=True)
class Reader:
    """Reads a layout; `content` is the type of its input.

    rows: all rows as one LazyFrame; texts: those of the files by their last two path parts; tables:
    by the file's name up to its first full stop; files: by the file's name.
    """

    content: Literal["rows", "texts", "tables", "files"]
    facts: Callable[[Any, Relations], Facts]
    columns: Callable[[Any], Sequence[str]]  # that the files have
    figures: Callable[[Any, Facts], Mapping[str, float]] = lambda _, facts: facts_of.counts(facts)
    names_ids: bool = True  # the files name relations by id, and a label is only shown
    version: int = 1  # raised when the same files become other facts
    stands_in: str | None = None  # a table that the catalog has for sets without one
    by_language: bool = False  # the files of one language are read
    # How many rows contradict each other.
    contradictions: Callable[[Any, Facts], Mapping[str, int]] = lambda _, facts: (
        count_contradictions(facts)
    )
    # The columns that are read as others.
    guess_columns: Callable[[Sequence[str]], Mapping[str, str]] = lambda _: {}


def _fields_of(suffix: str) -> Callable[[Mapping[str, str]], Sequence[str]]:

    def fields(texts: Mapping[str, str]) -> Sequence[str]:
        rows = (text for name, text in sorted(texts.items()) if name.endswith(suffix))
        return list(json.loads(next(rows, "{}").partition("\n")[0]))

    return fields


def _columns_of(name: str) -> Callable[[Mapping[str, pl.DataFrame]], Sequence[str]]:
    return lambda tables: next((t.columns for n, t in tables.items() if n.startswith(name)), [])


READERS: Mapping[str, Reader] = {
    "myriadlama": Reader(
        content="rows",
        facts=myriadlama.facts_from_rows,
        columns=lambda rows: rows.collect_schema().names(),
        figures=lambda rows, facts: {
            "rows": rows.select(pl.len()).collect().item(),
            **facts_of.counts(facts),
            **myriadlama.contradictions(rows),
        },
        version=2,
        guess_columns=layouts.match_columns,
        contradictions=lambda rows, facts: (
            myriadlama.contradictions(rows) | count_contradictions(facts)
        ),
    ),
    "kamel": Reader(
        content="texts",
        facts=kamel.facts_from_files,
        columns=_fields_of("test.jsonl"),  # the other splits show less
        figures=lambda _, facts: {
            **kamel.counts(facts),
            "test_labels_told_apart": kamel.find_marked_labels(
                facts.pairs.filter(split="test")
            ).height,
        },
        version=2,
    ),
    "pararel": Reader(
        content="texts",
        facts=triples.pararel,
        columns=lambda _: ("pattern", "sub_label", "obj_label"),  # a line without one is refused
        contradictions=lambda texts, facts: {
            "merged_subjects": int((facts.pairs["objects"].list.len() > 1).sum()),
            **triples.count_left_out(texts, facts),
        },
    ),
    "xfactr": Reader(
        content="texts",
        facts=triples.xfactr,
        by_language=True,
        columns=lambda _: ("sub_uri", "sub_label", "obj_uri", "obj_label"),  # others are refused
    ),
    "mlama": Reader(
        content="texts",
        facts=triples.mlama,
        by_language=True,
        columns=lambda _: ("template", "sub_label", "obj_label"),  # a line without one is refused
        contradictions=lambda texts, facts: (
            count_contradictions(facts) | triples.count_left_out(texts, facts)
        ),
    ),
    "bear": Reader(content="texts", facts=bear.facts_from_files, columns=_fields_of(".jsonl")),
    "questions": Reader(
        content="files",
        facts=questions.facts_from_tables,
        columns=questions.columns_of,
        names_ids=False,
    ),
    "probelm": Reader(
        content="texts",
        facts=probelm.facts_from_files,
        columns=lambda _: probelm.ROWS.names(),  # a row without one of them is refused
        figures=lambda texts, _: probelm.counts(probelm.groups_from_files(texts)),
        names_ids=False,
        version=2,  # 2: candidates are a table of their own
        contradictions=lambda _, facts: {  # object_ids are ranks
            "questions_of_two_answers": count_contradictions(facts)["questions_of_two_answers"]
        },
    ),
    "distractors": Reader(
        content="tables",
        facts=distractors.facts_from_tables,
        columns=_columns_of("facts"),
        figures=distractors.figures,
        stands_in="templates",
    ),
    "probing": Reader(
        content="tables",
        facts=distractors.read_probed,
        columns=_columns_of("probing"),
        figures=lambda _, facts: distractors.n_sentences(facts),
    ),
    "verbalisations": Reader(
        content="tables",
        facts=distractors.read_verbalised,
        columns=_columns_of("verbalisations"),
        figures=lambda tables, facts: (
            distractors.n_sentences(facts) | distractors.n_verbalised(tables)
        ),
    ),
}
