"""PRobELM's files to tables; every unfit line is refused with its fix."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from factsweep.operators.datasets.probelm import (
    COPY,
    DROPPED,
    DUPLICATE,
    ROWS,
    candidates,
    counts,
    facts_from_files,
    file_of_rows,
    groups_from_files,
)
from factsweep.operators.errors import InputError
from tests.messages import naming

PROMPTS = (
    "uses, <subject> uses <object>., Question: What uses <subject>? Answer: <object>., <object>"
    "\n"
    "editor, <subject> edits <object>., Question: Who edits <object>? Answer: <subject>., <subject>"
)
LABELS = {"P2283": "uses", "P98": "editor"}
Row = dict[str, Any]


def row(subject: str, object_: str, rank: int, relation: str = "uses", number: int = 7) -> Row:
    return {
        "subject": subject,
        "relation": relation,
        "object": object_,
        "id": number,
        "label": int(rank == 1),
        "rank": rank,
    }


GROUP = [row("A", "x", 1), row("B", "x", 2), row("A", "y", 2), row("A", "z", 3)]


def files(*groups: list[Row], prompts: str = PROMPTS, name: str = "112023.json") -> dict[str, str]:
    return {name: json.dumps(groups or [GROUP]), "prompts.csv": prompts, "README.md": "a,b"}


def labels(*groups: list[Row]) -> list[list[str]]:
    ranked = candidates(facts_from_files(files(*groups)))
    by_pair = ranked.group_by("pair_id", maintain_order=True).agg("label")
    return by_pair["label"].to_list()


def test_facts_group_becomes_a_pair_of_the_asked_slot() -> None:
    facts = facts_from_files(files(), LABELS)
    assert facts.relations.rows() == [("P2283", "uses")]
    assert facts.pairs.to_dicts() == [
        {
            "pair_id": "P2283.2023-11.7",
            "relation_id": "P2283",
            "subject_id": "2023-11.7",
            "subjects": ["A"],
            "objects": [{"object_id": "1", "labels": ["x"]}],
            "split": "2023-11",
        }
    ]


def test_facts_asked_subject_stands_in_place_of_y() -> None:
    group = [row("A", "x", 1, "editor"), row("B", "x", 2, "editor"), row("A", "y", 2, "editor")]
    facts = facts_from_files(files(group))
    assert facts.templates["text"].to_list() == [
        "[Y] edits [X].",
        "Question: Who edits [X]? Answer: [Y].",
    ]
    assert facts.pairs["subjects"].to_list() == [["x"]]
    assert labels(group) == [["A", "B"]]


def test_groups_copies_and_duplicates_are_dropped_and_counted() -> None:
    ranks = enumerate(["x", "y", "z", "y", "z", "Y"], start=2)
    assert groups_from_files(files()).dropped.equals(DROPPED.to_frame())
    groups = groups_from_files(files([*GROUP[:2], *(row("A", o, rank) for rank, o in ranks)]))
    dropped = [("uses.2023-11.7", COPY, 1), ("uses.2023-11.7", DUPLICATE, 2)]
    assert groups.dropped.rows() == dropped
    ranked = candidates(groups.facts)
    assert ranked.select("label", "rank").rows() == [("x", 1), ("y", 3), ("z", 4), ("Y", 7)]
    assert ranked["is_positive"].to_list() == [True, False, False, False]
    assert counts(groups) == {
        "relations": 1,
        "groups": 1,
        "full_groups": 0,
        "candidates": 4,
        "copies_of_positive": 1,
        "duplicate_alternatives": 2,
    }


def test_facts_frames_of_several_files_stand_beside_each_other() -> None:
    facts = facts_from_files({**files(), **files(name="sub/102020.json")})
    assert facts.pairs["pair_id"].to_list() == ["uses.2023-11.7", "uses.2020-10.7"]
    assert candidates(facts)["candidate_id"].is_unique().all()


def test_facts_labels_with_brackets_commas_and_dashes_stay_as_they_are() -> None:
    names = ["x, y - z (w)", "[Y]", " <object>"]
    assert labels([row("A", name, rank) for rank, name in enumerate(names, 1)]) == [names]


def changed(place: int, **fields: Any) -> list[Row]:
    return [
        {**row_of_group, **(fields if i == place else {})} for i, row_of_group in enumerate(GROUP)
    ]


_UNFIT: tuple[tuple[dict[str, str], str], ...] = (
    ({"112023.json": "[]"}, "prompts.csv is missing"),
    (files(name="2023.json"), "2023.json: the name is no time frame"),
    (files(name="132023.json"), "the name is no time frame"),
    ({**files(), "112023.json": "[["}, "112023.json: no JSON"),
    ({**files(), "112023.json": "{}"}, "no list of groups"),
    (files(GROUP, []), r"group 1 \(counted from 0\): no list of rows"),
    (files(GROUP, GROUP), "group 1 .* its id stands in an earlier group"),
    (files(changed(2, object=None)), "group 0 .*, row 2: object must be a text"),
    (files(changed(2, object=" ")), "row 2: object must be a text"),
    (files(changed(0, rank=True)), "row 0: rank must be a number"),
    (files(changed(1, id=8)), "row 1: relation or id differs"),
    (files(changed(0, label=0)), "row 0: the first row must have label 1"),
    (files(changed(3, label=1)), "row 3: label must be 0"),
    (files(changed(3, rank=1)), "row 3: rank must be 2 or more"),
    (files(changed(3, rank=2)), "two alternatives of one rank"),
    (files(GROUP[:2]), "no alternative differs in the object alone"),
    (files([row("A", "x", 1, "likes")]), "no line for its relation likes"),
    (files(prompts="uses, <subject>, <object>"), "line 1: 3 fields, expected relation, "),
    (files(prompts=f"{PROMPTS}\n{PROMPTS}"), "line 3: uses has a line already"),
    (files(prompts=PROMPTS.replace(", <object>", ", object")), "line 1: asked slot 'object'"),
    (files(prompts=PROMPTS.replace("<subject> edits", "edits")), "line 2: .* has no <subject>"),
)


def test_facts_unfit_files_are_refused_by_their_place(subtests: pytest.Subtests) -> None:
    for content, words in _UNFIT:
        with subtests.test(words), pytest.raises(InputError, match=words):
            facts_from_files(content)
    with pytest.raises(InputError, match=naming("relation uses")):
        facts_from_files(files(), {"P98": "editor"})
    with pytest.raises(InputError, match=naming("run again")):
        candidates(replace(facts_from_files(files()), extra_tables={}))


def test_file_of_rows_is_read_back() -> None:
    rows = pl.DataFrame([*GROUP, row("C", "q", 1, number=8), row("C", "r", 2, number=8)], ROWS)
    content = file_of_rows(rows)
    assert json.loads(content)[0] == GROUP
    read = facts_from_files({"112023.json": content, "prompts.csv": PROMPTS})
    assert read.pairs["subjects"].to_list() == [["A"], ["C"]]


@pytest.mark.parametrize(("name", "n_groups", "n_copied"), [("102020", 498, 6), ("112023", 484, 9)])
def test_authors_files_have_the_groups_and_copies_that_were_counted(
    shared_data: Path, name: str, n_groups: int, n_copied: int
) -> None:
    paths = [shared_data / "probelm" / file_name for file_name in (f"{name}.json", "prompts.csv")]
    groups = groups_from_files({path.name: path.read_text() for path in paths})
    assert groups.facts.pairs.height == n_groups
    assert groups.dropped.filter(reason=COPY)["pair_id"].n_unique() == n_copied
    sizes = candidates(groups.facts).group_by("pair_id", "relation_id").len()
    small = sizes.filter(pl.col("len") < 9)["relation_id"].unique()
    assert set(small) <= {"elected in", "for work", "parliamentary term"}
    assert sizes["len"].min() == 3
