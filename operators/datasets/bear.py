"""BEAR: relations with templates and an answer space each, in its authors' files.

A pair is an instance, named after its line: P6.0004. Its object is the right answer; the whole
answer space of its relation is the table `answer_spaces`.

Source: BEAR (Wiland, Ploner and Akbik 2024), section 3; the files of lm-pub-quiz/BEAR.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import PurePosixPath
from typing import Any

import polars as pl

from factsweep.operators.datasets.facts import (
    Facts,
    Relations,
    check_facts,
    number_templates,
    relation_table,
)
from factsweep.operators.datasets.table_files import check, parse_json, rows
from factsweep.operators.errors import InputError
from factsweep.operators.schemas import empty

METADATA = "metadata_relations.json"
DOMAINS = "relation_info.json"  # in the authors' repository, next to the folders of instances
LITE = "bear_lite_indices.json"  # the instances of BEAR-lite: line numbers by relation


def facts_from_files(files: Mapping[str, str], relation_labels: Relations = None) -> Facts:
    """The canonical tables of the authors' files: their path in the set → their content.

    Raises:
        InputError: a file, a template or an answer is missing or unfit; the message names it.
    """
    by_name = {PurePosixPath(path).name: path for path in files}
    if METADATA not in by_name:
        raise InputError(f"{METADATA} is missing; put it next to the files of the relations.")
    relations = _read_object(files, by_name, METADATA)
    lite = _read_object(files, by_name, LITE) if LITE in by_name else None
    domains = _read_object(files, by_name, DOMAINS) if DOMAINS in by_name else {}
    names = [name for name in relations if f"{name}.jsonl" in by_name]
    templates: list[tuple[str, str]] = []
    pairs: list[tuple[Any, ...]] = []
    spaces: list[tuple[str, int, str]] = []
    groups: list[tuple[str, str]] = []
    for name in names:
        place = f"{METADATA}, relation {name}"
        texts = relations[name].get("templates")
        check(place, isinstance(texts, list) and texts, "templates must be a list of texts", texts)
        templates += [(name, text) for text in texts]
        answers = relations[name].get("answer_space_labels")
        check(place, _is_answer_space(answers), "answer_space_labels must be texts", answers)
        spaces += [(name, number, answer) for number, answer in enumerate(answers)]
        path = by_name[f"{name}.jsonl"]
        kept_lines = None if lite is None else set(lite.get(name, ()))
        own_pairs = _read_pairs(name, path, files[path], answers, kept_lines)
        pairs += own_pairs
        labels = [objects[0]["labels"][0] for *_, objects, _split in own_pairs]
        cardinality = "1:1" if len(set(labels)) == len(labels) else "1:N"
        groups += [(name, f"cardinality={cardinality}")]
        groups += [(name, f"domain={name_}") for name_ in domains.get(name, {}).get("domains", ())]
    texts_of = pl.DataFrame(templates, {"relation_id": pl.String, "text": pl.String}, orient="row")
    numbered = number_templates(  # not `manual_templates`: one of BEAR's stands twice
        texts_of.with_columns(
            origin=pl.lit("manual"), group=pl.int_range(pl.len()).over("relation_id")
        )
    )
    facts = Facts(
        relation_table(names, relation_labels),
        numbered,
        pl.DataFrame(pairs, empty("pairs").schema, orient="row"),
    )
    extra_tables = {
        "answer_spaces": pl.DataFrame(spaces, empty("answer_spaces").schema, orient="row"),
        "relation_groups": pl.DataFrame(groups, empty("relation_groups").schema, orient="row"),
    }
    return replace(check_facts(facts), extra_tables=extra_tables)


def _read_object(files: Mapping[str, str], by_name: Mapping[str, str], name: str) -> dict[str, Any]:
    values = parse_json(files[by_name[name]], by_name[name], "correct the file")
    check(by_name[name], isinstance(values, dict), "it must be one object, by relation", values)
    return dict(values)


def _is_answer_space(answers: Any) -> bool:
    return (
        isinstance(answers, list)
        and all(isinstance(answer, str) and answer.strip() for answer in answers)
        and len(set(answers)) == len(answers) > 1
    )


def _read_pairs(
    relation: str, path: str, content: str, answers: Sequence[str], kept_lines: set[int] | None
) -> list[tuple[Any, ...]]:
    """The pairs of a relation; `kept_lines` are the numbers of lines, counted from 0; null: all."""
    pairs = []
    for number, (place, row) in enumerate(rows(path, content)):
        if kept_lines is not None and number not in kept_lines:
            continue
        subject, index = row.get("sub_label"), row.get("answer_idx")
        check(place, isinstance(subject, str) and subject.strip(), "sub_label must be a text", row)
        is_place = isinstance(index, int) and 0 <= index < len(answers)
        check(place, is_place, "answer_idx is no place of the relation's answer space", row)
        objects = [{"object_id": row.get("obj_id"), "labels": [answers[int(str(index))]]}]
        pair_id = f"{relation}.{number:04d}"
        pairs.append((pair_id, relation, row.get("sub_id"), [subject], objects, None))
    return pairs
