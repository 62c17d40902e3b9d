"""Columns of other names: refused side by side, with the lines of the entry that would fit."""

import json
import re

import polars as pl
import pytest

from factsweep.operators.datasets import kamel, probelm
from factsweep.operators.datasets.columns import guessed
from factsweep.operators.datasets.myriadlama import COLUMNS, facts_from_rows
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


def test_refusal_shows_expected_and_found_side_by_side() -> None:
    lines = [line.split() for line in refusal(pl.DataFrame(ROW)).splitlines()]
    assert ["expected", "found"] in lines
    assert ["rel_uri:", "str", "predicate:", "str", "(likely", "this)"] in lines
    assert ["uuid?:", "str", "–"] in lines
    assert ["difficulty:", "int"] in lines


def test_refusal_ends_with_the_lines_of_the_entry_that_would_fit() -> None:
    message = refusal(pl.DataFrame(ROW))
    lines = [f"  {ours}: {{from: {theirs}}}" for ours, theirs in OTHER_NAMES.items()]
    assert message.splitlines()[-4:] == lines


def test_refusal_column_that_nothing_resembles_is_left_open() -> None:
    message = refusal(pl.DataFrame(ROW).drop("template", "head"))
    assert "  template: {from: …} # no column looks like it" in message
    assert "  sub_ent: {from: …} # no column looks like it" in message


@pytest.mark.parametrize(
    ("name", "value", "guess"),
    [
        ("a", "P36", "rel_uri"),  # a relation's id tells more than any name
        ("a", "http://www.wikidata.org/entity/P36", "rel_uri"),
        ("b", "[X] has the capital [Y].", "template"),
        ("subject_label", "France", "sub_ent"),
        ("subject_label", "Q142", None),  # ids are no names
        ("subject_uri", "Q142", "sub_uri"),
        ("manual", True, "is_manual"),
        ("object_label", ["Paris"], "obj_ents"),
        ("object_label", 3, None),
    ],
)
def test_guess_goes_by_content_type_and_name(name: str, value: object, guess: str | None) -> None:
    found = guessed(COLUMNS, pl.DataFrame({name: [value]}))
    assert found == ({guess: name} if guess else {})


def test_fields_of_kamel_of_other_names_are_shown_side_by_side() -> None:
    files = {
        "question-templates.csv": "P36, What is the capital of [S]?",
        "P36/test.jsonl": json.dumps({"subject_label": "France", "objects": ["Paris"]}),
    }
    with pytest.raises(InputError) as error:
        kamel.facts_from_files(files)
    first, *table = str(error.value).splitlines()
    assert re.search(naming("P36/test.jsonl", "row 0", "sub_label, obj_label"), first)
    assert first.endswith("those of KAMEL's files, subject_label to sub_label.")
    assert [line.split() for line in table] == [
        ["expected", "found"],
        ["sub_label", "subject_label"],
        ["obj_label", "objects"],
    ]


def test_fields_of_probelm_of_other_names_are_shown_side_by_side() -> None:
    row = {"id": 1, "subj": "a", "relation": "uses", "object": "b", "label": 1, "rank": 1}
    prompts = "uses, <subject> uses <object>., What does <subject> use? <object>, <object>"
    files = {"prompts.csv": prompts, "112023.json": json.dumps([[row]])}
    with pytest.raises(InputError, match=naming("field subject")):
        probelm.facts_from_files(files)
