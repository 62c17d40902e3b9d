"""The layout of facts with entities: what is read, and what is refused."""

import polars as pl
import pytest

from factsweep.operators.datasets.distractors import counts, facts_from_tables, figures
from factsweep.operators.datasets.facts import Facts
from factsweep.operators.errors import InputError
from factsweep.operators.prompts.clozes import answers
from factsweep.operators.prompts.retrieval import counted
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
    details = facts.further["details"].select("pair_id", "object_id", "popularity", "start")
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


@pytest.mark.parametrize("table", ["facts", "templates"])
def test_facts_missing_table_is_named(table: str) -> None:
    others = {name: rows for name, rows in TABLES.items() if name != table}
    with pytest.raises(InputError, match=naming(f"file {table}.*")):
        facts_from_tables(others)


def test_facts_missing_column_is_named_with_the_likely_one() -> None:
    renamed = FACTS.rename({"subject_label": "subject_name"})
    with pytest.raises(InputError, match=naming("column subject_label", "subject_name")):
        facts_from_tables({**TABLES, "facts": renamed})


def test_mini_kinds_of_thirty_have_thirty_distractors(distractors_mini: Facts) -> None:
    base = distractors_mini.knowledge_base
    assert base is not None
    types = base.entities.explode("types").group_by("types").len().sort("len")
    sizes = dict(types.drop_nulls().iter_rows())
    assert min(sizes[q] for q in ("Q515", "Q6256", "Q34770", "Q28640", "Q4830453")) >= 30
    omega = counted(base, answers(distractors_mini))
    assert (omega["n_distractors"] >= 25).mean() > 0.8  # type: ignore[operator]
    assert omega.filter(n_distractors=0)["pair_id"].to_list() == ["P1376.Q1726"]  # of no type
    assert omega["n_right"].sum() > 0
    assert omega["n_sharing"].sum() > 0  # Greek and Ancient Greek


def test_mini_past_facts_are_known_and_not_asked(distractors_mini: Facts) -> None:
    base = distractors_mini.knowledge_base
    assert base is not None
    ended = base.triples.drop_nulls("end")
    asked = answers(distractors_mini).rename({"answer_id": "object_id"})
    key = ["subject_id", "relation_id", "object_id"]
    assert ended.join(asked, on=key).is_empty()
    assert counts(distractors_mini)["ended_triples"] == ended.height == 27
