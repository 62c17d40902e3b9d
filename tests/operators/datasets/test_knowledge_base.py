"""Knowledge bases: what is refused, and one made of facts."""

import polars as pl
import pytest

from factsweep.operators.datasets.facts import Facts
from factsweep.operators.datasets.facts import knowledge_base_of as knowledge_base
from factsweep.operators.datasets.knowledge_base import KnowledgeBase, check_knowledge_base, counts
from factsweep.operators.errors import InputError
from factsweep.operators.schemas import empty
from tests.builders import facts as make_facts
from tests.messages import naming

ENTITIES = pl.DataFrame(
    {"entity_id": ["Q1", "Q2"], "labels": [["a", "b"], ["c"]], "types": [["t"], []]}
)
TRIPLES = pl.DataFrame({"subject_id": ["Q1"], "relation_id": ["P1"], "object_id": ["Q2"]})


def test_checked_missing_optional_columns_are_null() -> None:
    base = check_knowledge_base(KnowledgeBase(ENTITIES, TRIPLES))
    assert base.entities.schema == empty("entities").schema
    assert base.triples.schema == empty("triples").schema
    assert base.triples["end"].to_list() == [None]


def test_checked_unfit_tables_are_refused(subtests: pytest.Subtests) -> None:
    changed = {
        ("entity_id", ("Q1", None)): "table entities, row 1 .* has no entity_id",
        ("entity_id", ("Q1", "Q1")): "table entities, row 1 .* has the entity_id of an earlier row",
        ("labels", (("a",), ())): "table entities, row 1 .* has no label",
        ("labels", (("a", ""), ("b",))): "table entities, row 0 .* has no label, or an empty one",
        ("labels", ("a", "a")): naming("column labels", "convert"),
    }
    cases = [
        *(
            (ENTITIES.with_columns(pl.Series(*column)), TRIPLES, words)
            for column, words in changed.items()
        ),
        *(
            (ENTITIES.drop(name), TRIPLES, naming("table entities", f"column {name}"))
            for name in ("entity_id", "labels", "types")
        ),
        *(
            (
                ENTITIES,
                TRIPLES.with_columns(pl.lit(None, pl.String).alias(name)),
                naming("table triples", "row 0", name),
            )
            for name in TRIPLES.columns
        ),
        (ENTITIES.clear(), TRIPLES, naming("table entities")),
    ]
    for entities, triples, words in cases:
        with subtests.test(words), pytest.raises(InputError, match=words):
            check_knowledge_base(KnowledgeBase(entities, triples))


def test_knowledge_base_of_facts_has_relations_as_types() -> None:
    facts = make_facts(
        {
            "P36": (["[X]: [Y]."], {"Q1": (["France", "Gaul"], [["Paris"], ["Versailles"]])}),
            "P31": (["[X]: [Y]."], {"O1": (["Versailles"], [["city"]])}),
        }
    )
    base = check_knowledge_base(knowledge_base(facts))
    row_by_id = {row["entity_id"]: row for row in base.entities.iter_rows(named=True)}
    assert row_by_id["Q1"]["labels"] == ["France", "Gaul"]
    assert row_by_id["Q1"]["types"] == []
    assert row_by_id["O0"]["labels"] == ["Paris", "city"]  # one id, two facts
    assert row_by_id["O0"]["types"] == ["P31", "P36"]
    assert row_by_id["O1"]["types"] == ["O0", "P36"]
    assert counts(base) == {
        "entities": 3,
        "labels": 5,
        "types": 3,
        "triples": 3,
        "ended_triples": 0,
    }


def test_knowledge_base_of_facts_counts_triples_as_popularity(mini: Facts) -> None:
    base = check_knowledge_base(knowledge_base(mini))
    (paris,) = base.entities.filter(entity_id="Q90").iter_rows(named=True)
    triples = base.triples.filter(pl.any_horizontal(pl.col("subject_id", "object_id") == "Q90"))
    assert round(2.718281828459045 ** paris["popularity"]) == triples.height + 1 > 2


def test_knowledge_base_of_objects_without_ids_goes_by_label() -> None:
    pairs = pl.DataFrame(
        {
            "pair_id": ["P103.0"],
            "relation_id": ["P103"],
            "subject_id": ["0"],
            "subjects": [["Kant"]],
            "objects": [[{"object_id": None, "labels": ["German"]}]],
        },
        schema={name: dtype for name, dtype in empty("pairs").schema.items() if name != "split"},
    )
    base = knowledge_base(Facts(empty("relations"), empty("templates"), pairs))
    assert base.entities["entity_id"].to_list() == ["0", "German"]
    assert base.triples.rows() == [("0", "P103", "German", None, None)]
