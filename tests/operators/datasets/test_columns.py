"""Columns of other names are refused with the lines of the entry that would fit."""

import json
import re

import polars as pl
import pytest

from factsweep.operators.datasets import kamel, probelm
from factsweep.operators.datasets.myriadlama import facts_from_rows
from factsweep.operators.errors import InputError
from tests.messages import naming

OTHER_NAMES = {
    "rel_uri": "predicate",
    "sub_ent": "head",
    "obj_uris": "tail_ids",
    "obj_ents": "tail",
}
ROW = {
    "predicate": ["P36"],
    "template": ["[Y] is the capital of [X]."],
    "is_manual": [True],
    "head": ["France"],
    "tail_ids": [["Q90"]],
    "tail": [["Paris"]],
    "difficulty": [3],
}


def refusal(rows: pl.DataFrame) -> str:
    with pytest.raises(InputError) as error:
        facts_from_rows(rows.lazy())
    return str(error.value)


def test_refusal_lists_expected_and_found_and_the_lines_of_the_entry_that_would_fit() -> None:
    message = refusal(pl.DataFrame(ROW))
    assert message.startswith("column rel_uri is missing, column sub_ent is missing, column obj_")
    assert "  expected: rel_uri: str, template: str, is_manual: bool or int, sub_ent" in message
    assert "uuid?: str" in message
    assert "  found: predicate: str, template: str, is_manual: bool, head: str, tail_id" in message
    lines = [f"  {ours}: {{from: {theirs}}}" for ours, theirs in OTHER_NAMES.items()]
    assert message.splitlines()[-4:] == lines
    lines = refusal(pl.DataFrame(ROW).drop("template", "head")).splitlines()
    assert {"  template: {from: …}", "  sub_ent: {from: …}"} <= {*lines}
    wrong_type = {"sub_ent": [1.5], "sub_label": ["France"]}
    assert "  sub_ent: {from: sub_label}" in refusal(pl.DataFrame(ROW | wrong_type))


def test_fields_of_kamel_of_other_names_are_listed() -> None:
    files = {
        "question-templates.csv": "P36, What is the capital of [S]?",
        "P36/test.jsonl": json.dumps({"subject_label": "France", "objects": ["Paris"]}),
    }
    with pytest.raises(InputError) as error:
        kamel.facts_from_files(files)
    words = ("P36/test.jsonl", "row 0", "sub_label, obj_label", "(subject_label, objects)")
    assert re.search(naming(*words, "KAMEL's files (sub_label, obj_label)"), str(error.value))


def test_fields_of_probelm_of_other_names_are_listed() -> None:
    row = {"id": 1, "subj": "a", "relation": "uses", "object": "b", "label": 1, "rank": 1}
    prompts = "uses, <subject> uses <object>., What does <subject> use? <object>, <object>"
    files = {"prompts.csv": prompts, "112023.json": json.dumps([[row]])}
    with pytest.raises(InputError, match=naming("field subject")):
        probelm.facts_from_files(files)
