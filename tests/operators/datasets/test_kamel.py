"""KAMEL's files and rows to tables and back; every unfit line is refused with its fix."""

import json
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from factsweep.operators.datasets.facts import Facts, Slice
from factsweep.operators.datasets.kamel import (
    DATE,
    counts,
    facts_from_files,
    files_from_facts,
    find_marked_labels,
    is_literal,
    slice_queries,
    split_sizes,
)
from factsweep.operators.errors import InputError
from tests.messages import naming

QUESTIONS = "P36, What is the capital of [S]?\nP530,Who has ties with [S]?\n"
TRAIN = {"index": [1, 2], "sub_label": "Bolivia", "obj_label": ["Sucre", "La Paz"]}
PARIS = {"alternative": ["City of Light"], "rdf": "Paris", "chosen": "Paris"}
TEST = {"index": [3], "sub_label": "France", "obj_uri": ["Q90"], "obj_label": [PARIS]}
YEAR = {"rdf": None, "chosen": "1949", "alternative": ["16 December 1949", "1949"]}


def files(*test: dict[str, Any], questions: str = QUESTIONS) -> dict[str, str]:
    lines = "".join(json.dumps(row) + "\n" for row in test or (TEST,))
    return {
        "question-templates.csv": questions,
        "P36/train.jsonl": json.dumps(TRAIN) + "\n",
        "P36/test.jsonl": lines,
    }


def only_test(facts: Facts) -> pl.DataFrame:
    return facts.pairs.filter(split="test")


def objects(facts: Facts) -> list[dict[str, Any]]:
    entities: list[dict[str, Any]] = only_test(facts)["objects"][0].to_list()
    return entities


def test_facts_train_and_test_rows_become_pairs() -> None:
    facts = facts_from_files(files(), {"P36": "capital", "P530": "diplomatic relation"})
    assert facts.relations.rows() == [("P36", "capital")]
    assert facts.pairs.to_dicts() == [
        {
            "pair_id": "P36.test.0000",
            "relation_id": "P36",
            "subject_id": "test.0000",
            "subjects": ["France"],
            "objects": [{"object_id": "Q90", "labels": ["Paris", "City of Light"]}],
            "split": "test",
        },
        {
            "pair_id": "P36.train.0000",
            "relation_id": "P36",
            "subject_id": "train.0000",
            "subjects": ["Bolivia"],
            "objects": [
                {"object_id": None, "labels": ["Sucre"]},
                {"object_id": None, "labels": ["La Paz"]},
            ],
            "split": "train",
        },
    ]


@pytest.mark.parametrize(("labels", "literal"), [(YEAR, True), (PARIS, False), ("Paris", False)])
def test_facts_without_ids_an_answer_without_rdf_label_is_a_literal(
    labels: Any, literal: bool
) -> None:
    row = {"sub_label": "X", "obj_label": [labels]}
    answers = only_test(facts_from_files(files(row)))["objects"].explode().struct.unnest()
    assert answers.select(is_literal(pl.col("object_id"))).to_series().to_list() == [literal]


def test_facts_questions_are_templates_with_their_answer_behind() -> None:
    questions = "\nP36,  Where, in [S], is the capital of [S]? \n"
    template = facts_from_files(files(questions=questions)).templates.row(0, named=True)
    assert template["text"] == "Where, in [X], is the capital of [X]? [Y]"
    assert (template["template_id"], template["style"]) == ("P36.000", "question")


def test_facts_labels_are_those_of_the_rdf_then_the_shown_one_or_of_a_literal_the_first() -> None:
    labels = {"rdf": "Paris", "chosen": "Paname", "alternative": ["Paris", "Paname", "Lutetia"]}
    facts = facts_from_files(files({**TEST, "obj_label": [labels]}))
    assert objects(facts)[0]["labels"] == ["Paris", "Paname", "Lutetia"]
    facts = facts_from_files(files({**TEST, "obj_uri": [DATE], "obj_label": [YEAR]}))
    assert objects(facts) == [{"object_id": DATE, "labels": ["16 December 1949", "1949"]}]
    assert json.loads(files_from_facts(facts)["P36/test.jsonl"])["obj_label"] == [YEAR]
    # A model is shown a literal in its shortest form.
    examples = only_test(facts).with_columns(split=pl.lit("train"))
    lines = files_from_facts(Facts(facts.relations, facts.templates, examples))["P36/train.jsonl"]
    assert json.loads(lines)["obj_label"] == ["1949"]


def test_facts_are_the_same_from_files_that_say_the_same() -> None:
    expected = facts_from_files(files())
    for equal_files in (
        files(questions=QUESTIONS + QUESTIONS),
        {path: text.replace("\n", "\r\n") + "\r\n" for path, text in files().items()},
        {f"KAMEL/data/{path}": text for path, text in files().items()} | {"KAMEL/README.md": "?"},
        files_from_facts(expected),
    ):
        facts = facts_from_files(equal_files)
        assert facts.pairs.equals(expected.pairs)
        assert facts.templates.equals(expected.templates)


def test_facts_subjects_of_one_name_stay_apart_and_a_label_may_hold_a_line_separator() -> None:
    line = json.dumps({**TEST, "sub_label": "Fra\u2028nce"}, ensure_ascii=False)
    pairs = only_test(facts_from_files({**files(), "P36/test.jsonl": f"{line}\n{line}"}))
    assert pairs["pair_id"].to_list() == ["P36.test.0000", "P36.test.0001"]
    assert pairs["subjects"].to_list() == [["Fra\u2028nce"]] * 2


def test_facts_survive_the_round_trip() -> None:
    rows = [TEST, {**TEST, "obj_uri": [DATE, "Q1"], "obj_label": [YEAR, PARIS]}]
    facts = facts_from_files(files(*rows))
    assert facts_from_files(files_from_facts(facts)).pairs.equals(facts.pairs)


_QUESTIONS = (
    ("P36 What is the capital of [S]?", r"line 1: .* is not `P36, question`; write it so"),
    ("\nP36, ", r"line 2: .* is not `P36, question`"),
    (", What is [S]?", r"line 1: .* is not `P36, question`"),
    ("P36, What is it?", r"line 1: .* has no \[S\]; put it where the subject belongs"),
    ("P36, [S]?\nP36, Is [S]?", r"line 2: P36 has another question already \('\[S\]\?'\); "),
)
_CHANGES: tuple[tuple[dict[str, Any], str], ...] = (
    ({"sub_label": None}, "sub_label is empty"),
    ({"sub_label": " "}, "sub_label is empty"),
    ({"obj_label": None}, "obj_label is no list"),
    ({"obj_label": []}, "obj_label is no list"),
    ({"obj_label": "Paris"}, "obj_label is no list"),
    ({"obj_label": [" "]}, "obj_label has an empty label"),
    ({"obj_label": [1]}, "obj_label holds no text and no labels"),
    ({"obj_label": [{"rdf": 1}]}, "obj_label holds a label that is no text"),
    ({"obj_label": [{"rdf": "x", "alternative": [1]}]}, "obj_label holds a label that is no"),
    ({"obj_label": [{"rdf": "x", "alternative": "y"}]}, "alternative is no list"),
    ({"obj_label": [{"rdf": None, "alternative": []}]}, "obj_label has an answer without a"),
    ({"obj_uri": ["Q1", "Q2"]}, "obj_uri and obj_label differ in length"),
    ({"obj_uri": "Q"}, "obj_uri and obj_label differ in length"),
    ({"obj_uri": [1]}, "obj_uri holds no text"),
)
_LINE = json.dumps(TEST)
_UNFIT = [
    *((files(questions=q), f"^question-templates.csv, {words}") for q, words in _QUESTIONS),
    *(
        (
            files(TEST, {**TEST, **change}),
            rf"^P36/test.jsonl, row 1 \(counted from 0\): {problem}.*; correct or drop the row",
        )
        for change, problem in _CHANGES
    ),
    *(
        ({**files(), "P36/dev.jsonl": line}, rf"^P36/dev.jsonl, row 0 .*: {words}.*correct or drop")
        for line, words in (("{", "no JSON "), ("[]", "no JSON object"), ("", "no JSON "))
    ),
    *(
        ({**files(), path: _LINE}, naming(path, "rename"))
        for path in ("P36/valid.jsonl", "test.jsonl")
    ),
    ({"P36/test.jsonl": _LINE}, naming("question-templates.csv", "put")),
    (files(questions="P17, Where is [S]?"), naming("relation P36", "add")),
    ({"question-templates.csv": QUESTIONS}, naming("subject-relation")),
]


def test_facts_unfit_files_are_refused_by_their_place_with_the_fix(
    subtests: pytest.Subtests,
) -> None:
    for content, words in _UNFIT:
        with subtests.test(words), pytest.raises(InputError, match=words):
            facts_from_files(content)
    with pytest.raises(InputError, match=naming("P36/test.jsonl", "relation P36", "add")):
        facts_from_files(files(), {"P17": "country"})


def test_sliced_first_queries_are_asked_and_all_may_be_shown() -> None:
    facts = facts_from_files(files(TEST, TEST, TEST))
    part = slice_queries(facts, Slice(pairs_per_relation=2))
    sizes = [counts(part)[name] for name in ("relations", "train_rows", "dev_rows", "test_rows")]
    assert sizes == [1, 1, 0, 2]
    assert counts(slice_queries(facts, Slice(relations=("P36",)))) == counts(facts)


@pytest.fixture(scope="module")
def published(shared_data: Path) -> Facts:
    folder = shared_data / "kamel"
    paths = [folder / "question-templates.csv", *folder.glob("P*/*.jsonl")]
    return facts_from_files({str(path): path.read_text("utf-8") for path in paths})


def test_facts_published_files_load_as_they_are(published: Facts) -> None:
    assert counts(published) == {
        "relations": 24,
        "train_rows": 24_000,
        "dev_rows": 4_800,
        "test_rows": 4_800,
        "test_queries_of_several_answers": 699,
        "test_labels_per_answer": 3.25,
    }


def test_labels_published_few_besides_flags_keep_special_characters(published: Facts) -> None:
    apart = find_marked_labels(only_test(published))
    words = apart.filter(pl.col("bare") != "")
    assert words["full"].to_list() == ["pop-rock", "pop/rock", "sci-fi", "scifi", "b&h", "bh"]
    assert apart.filter(pl.col("bare") == "").height > 100  # flags of countries


def test_split_sizes_of_a_set_without_a_split_are_nought() -> None:
    sizes = split_sizes(facts_from_files(files()))
    assert sizes.rows() == [
        ("train", 1, 1, 2, 1, 1.0),
        ("dev", 0, 0, 0, 0, None),
        ("test", 1, 1, 1, 0, 2.0),
    ]


@pytest.mark.parametrize(
    ("relation_id", "n_answers", "n_multiple", "literal"),
    [
        ("P106", 228, 25, False),
        ("P161", 646, 132, False),
        ("P47", 683, 160, False),
        ("P1350", 212, 11, True),
        ("P569", 200, 0, True),
    ],
)
def test_facts_published_figures_are_right(
    published: Facts, relation_id: str, n_answers: int, n_multiple: int, literal: bool
) -> None:
    pairs = only_test(published.of(relation_id))
    sizes = pairs["objects"].list.len()
    assert (sizes.sum(), (sizes > 1).sum()) == (n_answers, n_multiple)
    ids = pairs.select(pl.col("objects").explode().struct.field("object_id"))
    assert ids.select(is_literal(pl.col("object_id")).unique()).to_series().to_list() == [literal]
