"""Facts that people put into sentences of their own."""

from pathlib import Path
from typing import Any

import polars as pl
import pytest

from factsweep.operators.datasets.distractors import n_sentences as counts
from factsweep.operators.datasets.distractors import n_verbalised, probed, verbalised
from factsweep.operators.datasets.facts import Slice
from factsweep.operators.datasets.facts import slice_single_objects as sliced
from factsweep.operators.errors import InputError
from factsweep.operators.prompts.clozes import clozes
from tests.messages import naming


def asked(element: str, sentence: str, gold: str, **more: Any) -> dict[str, Any]:
    row = {"fact_id": "7", "relation": "P36", "element": element, "sentence": sentence}
    row |= {"gold": gold, "gold_corrected": gold, "disambiguation": None, "human_score": 0.4}
    return row | more


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
    facts = sliced(probed(probing()), Slice())
    assert clozes(facts)["query"].to_list() == [
        "The capital of France is",
        "France is governed from",
    ]
    row = facts.pairs.row(0, named=True)
    assert (row["pair_id"], row["subject_id"]) == ("P36.7", "France")
    assert row["objects"] == [{"object_id": "Paris", "labels": ["Paris"]}]
    assert facts.further["details"]["human_score"].to_list() == [0.4]


def test_probed_id_of_an_ambiguous_label_is_taken() -> None:
    rows = [{**row, "disambiguation": "Q90"} if row["element"] == "object" else row for row in ROWS]
    found = probed(probing(*rows)).pairs["objects"].to_list()
    assert found == [[{"object_id": "Q90", "labels": ["Paris"]}]]


def test_probed_fact_without_a_subject_is_named() -> None:
    with pytest.raises(InputError, match=naming("fact 7")):
        probed(probing(*ROWS[1:]))


def test_probed_missing_column_is_named() -> None:
    for column in ROWS[0]:
        with pytest.raises(InputError, match=naming(f"column {column}")):
            probed({"probing": probing()["probing"].drop(column)})


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
    found = verbalised(tables).pairs["subjects"].to_list()
    assert found == [["It is", "It is the"], *([clozes] if clozes else [])]
    n_corrected = 1 if corrected is None else 2
    assert n_verbalised(tables) == {"corrected": n_corrected, "left_out": n_corrected - len(found)}


def test_real_sets_have_230_probed_facts_and_33_pairs_of_sentences(shared_data: Path) -> None:
    folder = shared_data / "distractors"
    facts = probed({"p": pl.read_parquet(folder / "probing-gpt2-xl.parquet")})
    assert counts(facts) == {"relations": 46, "pairs": 230, "sentences": 580}
    tables = {"v": pl.read_parquet(folder / "verbalisations.parquet")}
    assert counts(verbalised(tables))["pairs"] == 33
    assert n_verbalised(tables) == {"corrected": 60, "left_out": 27}
