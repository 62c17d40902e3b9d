"""The layouts of the paper on distractors: facts with entities, and facts in sentences."""

from pathlib import Path
from typing import Any

import polars as pl
import pytest

from factsweep.operators.datasets.distractors import (
    counts,
    facts_from_tables,
    figures,
    n_sentences,
    n_verbalised,
    read_probed,
    read_verbalised,
)
from factsweep.operators.datasets.facts import Facts, Slice
from factsweep.operators.datasets.facts import slice_single_objects as sliced
from factsweep.operators.errors import InputError
from factsweep.operators.prompts.clozes import answers, clozes
from factsweep.operators.prompts.retrieval import count_distractors
from tests.messages import naming

FACTS = pl.DataFrame(
    {
        "subject": ["Q142", "Q142", "Q17", "Q17", "Q90"],
        "subject_label": ["France", "France", "Japan", "Japan", "Paris"],
        "relation": ["P36", "P36", "P36", "P38", "P31"],
        "object": ["Q90", "Q456", "Q1490", "Q8146", "Q515"],
        "object_label": ["Paris", "Lyon", "Tokyo", "yen", "city"],
        "popularity": [9.0, 1.0, 8.0, 2.0, 3.0],
        "start": ["0987", None, "1868", None, None],
    }
)
TEMPLATES = pl.DataFrame(
    {"relation_id": ["P36", "P36", "P31"], "text": ["[X] has [Y].", "Of [X]? [Y].", "[X]: [Y]"]}
)
ALIASES = pl.DataFrame(
    {"entity_id": ["Q142", "Q1", "Q90"], "labels": [["Gaul"], ["x"], ["Paname"]]}
)
TABLES = {"facts": FACTS, "templates": TEMPLATES}


def base_of(facts: Facts) -> dict[str, dict[str, object]]:
    assert facts.knowledge_base is not None
    rows = facts.knowledge_base.entities.iter_rows(named=True)
    return {row["entity_id"]: row for row in rows}


def test_facts_of_one_subject_are_a_pair_with_all_objects() -> None:
    facts = facts_from_tables({**TABLES, "aliases": ALIASES})
    assert facts.pairs["pair_id"].to_list() == ["P36.Q142", "P36.Q17", "P31.Q90"]
    assert facts.pairs["subjects"].to_list() == [["France", "Gaul"], ["Japan"], ["Paris", "Paname"]]
    assert [o["labels"] for o in facts.pairs["objects"][0]] == [["Paris", "Paname"], ["Lyon"]]
    details = facts.extra_tables["details"].select("pair_id", "object_id", "popularity", "start")
    assert details.row(0) == ("P36.Q142", "Q90", 9.0, "0987")


def test_facts_without_a_template_are_known_and_not_asked() -> None:
    facts = facts_from_tables(TABLES)
    assert facts.relations["relation_id"].to_list() == ["P36", "P31"]
    assert base_of(facts)["Q8146"]["types"] == ["P38"]
    assert figures(TABLES, facts)["without_template"] == 1


def test_facts_own_base_has_relations_and_classes_as_types() -> None:
    base = base_of(facts_from_tables({**TABLES, "aliases": ALIASES}))
    assert base["Q90"]["types"] == ["P36", "Q515"]
    assert base["Q142"]["labels"] == ["France", "Gaul"]
    assert "Q1" not in base


def test_facts_given_base_is_taken() -> None:
    entities = pl.DataFrame({"entity_id": ["Q90"], "labels": [["Paris"]], "types": [["Q515"]]})
    triples = pl.DataFrame(
        {"subject_id": ["Q142"], "relation_id": ["P36"], "object_id": ["Q90"], "end": [None]}
    )
    facts = facts_from_tables({**TABLES, "entities": entities, "triples": triples})
    assert list(base_of(facts)) == ["Q90"]
    with pytest.raises(InputError, match=naming("entities.parquet", "entities")):
        facts_from_tables({**TABLES, "entities": entities})


def test_facts_relations_that_are_named_are_taken_alone() -> None:
    facts = facts_from_tables(TABLES, {"P31": "instance of"})
    assert facts.relations.rows() == [("P31", "instance of")]
    assert len(base_of(facts)) == 7


def test_facts_missing_table_or_column_is_named(subtests: pytest.Subtests) -> None:
    renamed = FACTS.rename({"subject_label": "subject_name"})
    for tables, words in (
        ({"templates": TEMPLATES}, ["file facts.*"]),
        ({"facts": FACTS}, ["file templates.*"]),
        ({**TABLES, "facts": renamed}, ["column subject_label", "subject_name"]),
    ):
        with subtests.test(words), pytest.raises(InputError, match=naming(*words)):
            facts_from_tables(tables)


def test_mini_kinds_of_thirty_have_thirty_distractors(distractors_mini: Facts) -> None:
    base = distractors_mini.knowledge_base
    assert base is not None
    types = base.entities.explode("types").group_by("types").len().sort("len")
    sizes = dict(types.drop_nulls().iter_rows())
    assert min(sizes[q] for q in ("Q515", "Q6256", "Q34770", "Q28640", "Q4830453")) >= 30
    omega = count_distractors(base, answers(distractors_mini))
    assert (omega["n_distractors"] >= 25).mean() > 0.8  # type: ignore[operator]
    assert omega.filter(n_distractors=0)["pair_id"].to_list() == ["P1376.Q1726"]  # of no type
    assert omega["n_right"].sum() > 0
    assert omega["n_sharing"].sum() > 0  # Greek and Ancient Greek


def test_mini_past_facts_are_known_and_not_asked(distractors_mini: Facts) -> None:
    base = distractors_mini.knowledge_base
    assert base is not None
    ended = base.triples.drop_nulls("end")
    facts_asked = answers(distractors_mini).rename({"answer_id": "object_id"})
    key = ["subject_id", "relation_id", "object_id"]
    assert ended.join(facts_asked, on=key).is_empty()
    assert counts(distractors_mini)["ended_triples"] == ended.height == 27


def asked(element: str, sentence: str, gold: str, **fields: Any) -> dict[str, Any]:
    row = {"fact_id": "7", "relation": "P36", "element": element, "sentence": sentence}
    row |= {"gold": gold, "gold_corrected": gold, "disambiguation": None, "human_score": 0.4}
    return row | fields


ROWS = [
    asked("subject", "Paris is the capital of ", "France"),
    asked("object", "The capital of France is ", "Paris"),
    asked("object", "The capital of France is ", "Paris"),
    asked("relation", "Paris is France's ", "capital"),
    asked("object", "France is governed from ", "Paris"),
]


def probing(*rows: dict[str, Any]) -> dict[str, pl.DataFrame]:
    return {"probing": pl.DataFrame(rows or ROWS, schema_overrides={"disambiguation": pl.String})}


def test_probed_sentences_that_leave_the_object_open_are_the_clozes() -> None:
    facts = sliced(read_probed(probing()), Slice())
    assert clozes(facts)["query"].to_list() == [
        "The capital of France is",
        "France is governed from",
    ]
    row = facts.pairs.row(0, named=True)
    assert (row["pair_id"], row["subject_id"]) == ("P36.7", "France")
    assert row["objects"] == [{"object_id": "Paris", "labels": ["Paris"]}]
    assert facts.extra_tables["details"]["human_score"].to_list() == [0.4]


def test_probed_id_of_an_ambiguous_label_is_taken() -> None:
    rows = [{**row, "disambiguation": "Q90"} if row["element"] == "object" else row for row in ROWS]
    objects = read_probed(probing(*rows)).pairs["objects"].to_list()
    assert objects == [[{"object_id": "Q90", "labels": ["Paris"]}]]


def test_probed_fact_without_a_subject_or_missing_column_is_named() -> None:
    with pytest.raises(InputError, match=naming("fact 7")):
        read_probed(probing(*ROWS[1:]))
    for column in ROWS[0]:
        with pytest.raises(InputError, match=naming(f"column {column}")):
            read_probed({"probing": probing()["probing"].drop(column)})


def verbalisation(flawed: str, corrected: str | None, triple: str) -> dict[str, Any]:
    return {
        "triples_raw": "('Q1', 'P1', 'Q2')",
        "triples": f"({triple}, start=None, end=None)",
        "popularity": "2.5",
        "verbalization": flawed,
        "correction": corrected,
    }


@pytest.mark.parametrize(
    ("flawed", "corrected", "triple", "clozes"),
    [
        ("He plays UK.", "He plays the UK", "He, is in, UK", ["He plays", "He plays the"]),
        ("He is in X, Y", "He was in X, Y", "He, is in, X, Y", ["He is in", "He was in"]),
        ("UK has him", "The UK has him", "He, is in, UK", None),
        ("He won Cup", "He won “Cup”", "He, won, Cup", None),
        ("He won Cup", None, "He, won, Cup", None),
    ],
)
def test_verbalised_pairs_both_end_in_the_object(
    flawed: str, corrected: str | None, triple: str, clozes: list[str] | None
) -> None:
    sound = verbalisation("It is sea", "It is the sea", "It, is, sea")
    tables = {"verbalisations": pl.DataFrame([sound, verbalisation(flawed, corrected, triple)])}
    sentences = read_verbalised(tables).pairs["subjects"].to_list()
    assert sentences == [["It is", "It is the"], *([clozes] if clozes else [])]
    n_corrected = 1 if corrected is None else 2
    assert n_verbalised(tables) == {
        "corrected": n_corrected,
        "left_out": n_corrected - len(sentences),
    }


def test_real_sets_have_230_probed_facts_and_33_pairs_of_sentences(shared_data: Path) -> None:
    folder = shared_data / "distractors"
    facts = read_probed({"p": pl.read_parquet(folder / "probing-gpt2-xl.parquet")})
    assert n_sentences(facts) == {"relations": 46, "pairs": 230, "sentences": 580}
    tables = {"v": pl.read_parquet(folder / "verbalisations.parquet")}
    assert n_sentences(read_verbalised(tables))["pairs"] == 33
    assert n_verbalised(tables) == {"corrected": 60, "left_out": 27}
