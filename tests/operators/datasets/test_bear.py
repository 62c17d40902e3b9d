"""BEAR's files to tables; unfit files and lines are refused."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from factsweep.operators.datasets.bear import facts_from_files
from factsweep.operators.datasets.facts import Slice, slice_facts
from factsweep.operators.errors import InputError
from tests.messages import naming

RELATION = {
    "templates": ["[X] is in [Y].", "[Y] has [X]."],
    "answer_space_labels": ["Asia", "Europe", "Africa"],
}
INSTANCES = [
    {"sub_id": "Q1", "sub_label": "Japan", "obj_id": "Q48", "answer_idx": 0},
    {"sub_id": "Q2", "sub_label": "France", "obj_id": "Q46", "answer_idx": 1},
    {"sub_id": "Q3", "sub_label": "Spain", "obj_id": "Q46", "answer_idx": 1},
]


def files(
    relation: Mapping[str, Any] = RELATION, instances: Any = INSTANCES, **more: Any
) -> dict[str, str]:
    """The files of a set of one relation, and more by their names."""
    return {
        "BEAR/metadata_relations.json": json.dumps({"P30": relation}),
        "BEAR/P30.jsonl": "\n".join(map(json.dumps, instances)),
        **{f"bear/{name}.json": json.dumps(content) for name, content in more.items()},
    }


def test_facts_from_files() -> None:
    facts = facts_from_files(files(relation_info={"P30": {"domains": ["Geographic"]}}))
    assert facts.pairs["pair_id"].to_list() == ["P30.0000", "P30.0001", "P30.0002"]
    labels = facts.pairs["objects"].explode().struct.field("labels").list.first()
    assert labels.to_list() == ["Asia", "Europe", "Europe"]
    assert facts.templates["text"].to_list() == RELATION["templates"]
    spaces = facts.extra_tables["answer_spaces"]
    assert spaces.rows() == [("P30", 0, "Asia"), ("P30", 1, "Europe"), ("P30", 2, "Africa")]
    groups = facts.extra_tables["relation_groups"]["name"].to_list()
    assert groups == ["cardinality=1:N", "domain=Geographic"]


def test_facts_from_files_of_the_lite_set_are_the_lines_that_it_names() -> None:
    facts = facts_from_files(files(bear_lite_indices={"P30": [0, 2]}))
    assert facts.pairs["pair_id"].to_list() == ["P30.0000", "P30.0002"]
    assert facts.extra_tables["relation_groups"]["name"].to_list() == ["cardinality=1:1"]


def test_slice_facts_keeps_the_answer_space_whole() -> None:
    facts = slice_facts(facts_from_files(files()), Slice(pairs_per_relation=1))
    assert (facts.pairs.height, facts.extra_tables["answer_spaces"].height) == (1, 3)


UNFIT: dict[str, tuple[dict[str, str], tuple[str, ...]]] = {
    "the right answer is in no answer space": (
        files(instances=[{"sub_label": "Japan", "answer_idx": 3}]),
        ("P30.jsonl", "line 1", "answer_idx", "answer space"),
    ),
    "no subject": (files(instances=[{"answer_idx": 0}]), ("P30.jsonl", "line 1", "sub_label")),
    "no metadata": ({"BEAR/P30.jsonl": "{}"}, ("metadata_relations.json", "missing")),
    "an answer twice": (
        files({**RELATION, "answer_space_labels": ["Asia", "Asia"]}),
        ("metadata_relations.json", "P30", "answer_space_labels"),
    ),
    "no templates": (files({**RELATION, "templates": []}), ("P30", "templates")),
    "a template without [Y]": (
        files({**RELATION, "templates": ["[X] is there."]}),
        ("[X] is there.", "[Y]"),
    ),
}


@pytest.mark.parametrize("fault", UNFIT)
def test_facts_from_files_refuses(fault: str) -> None:
    content, parts = UNFIT[fault]
    with pytest.raises(InputError, match=naming(*parts)):
        facts_from_files(content)


def test_facts_from_files_of_the_authors(shared_data: Path) -> None:
    folder = shared_data / "bear" / "BEAR"
    if not folder.is_dir():
        pytest.skip(f"{folder} is missing")
    content = {f"BEAR/{path.name}": path.read_text() for path in folder.iterdir()}
    facts = facts_from_files(content)
    assert (facts.relations.height, facts.pairs.height, facts.templates.height) == (60, 7731, 180)
