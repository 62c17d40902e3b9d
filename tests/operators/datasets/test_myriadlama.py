"""MyriadLAMA rows to tables and back; every unfit row is refused with its fix."""

from collections.abc import Callable
from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from factsweep.operators.datasets.facts import Facts
from factsweep.operators.datasets.myriadlama import facts_from_rows, rows_from_facts
from factsweep.operators.errors import InputError
from tests.messages import naming

NAMES = pl.List(pl.String)
SCHEMA = {
    "uuid": pl.String,
    "rel_uri": pl.String,
    "is_manual": pl.Boolean,
    "template": pl.String,
    "sub_ent": pl.String,
    "sub_uri": pl.String,
    "sub_aliases": NAMES,
    "obj_uris": NAMES,
    "obj_ents": NAMES,
    "obj_aliases": pl.List(NAMES),
}
FRANCE: dict[str, Any] = {
    "uuid": "P36.Q142",
    "rel_uri": "P36",
    "is_manual": True,
    "template": "[Y] is the capital of [X].",
    "sub_ent": "France",
    "sub_uri": "Q142",
    "sub_aliases": ["République française"],
    "obj_uris": ["Q90"],
    "obj_ents": ["Paris"],
    "obj_aliases": [["City of Light"]],
}
ITALY = {**FRANCE, "uuid": "P36.Q38", "sub_ent": "Italy", "sub_uri": "Q38"}


def table(*rows: dict[str, Any]) -> pl.DataFrame:
    return pl.DataFrame(list(rows), schema=SCHEMA)


def read(rows: pl.DataFrame, labels: dict[str, str] | None = None) -> Facts:
    return facts_from_rows(rows.lazy(), labels)


def tables(facts: Facts) -> list[list[dict[str, Any]]]:
    return [t.to_dicts() for t in (facts.relations, facts.templates, facts.pairs)]


def test_facts_mini_set_survives_the_round_trip(mini: Facts) -> None:
    again = read(rows_from_facts(mini), dict(mini.relations.iter_rows()))
    assert again.relations.equals(mini.relations)
    assert again.templates.equals(mini.templates)
    assert again.pairs.equals(mini.pairs)


@given(data=st.data())
def test_facts_any_facts_survive_the_round_trip(
    data: st.DataObject, random_facts: Callable[..., st.SearchStrategy[Facts]]
) -> None:
    facts = data.draw(random_facts())
    assert tables(read(rows_from_facts(facts))) == tables(facts)


def test_facts_shuffled_rows_hold_the_same_pairs(mini: Facts) -> None:
    rows = rows_from_facts(mini).sample(fraction=1, shuffle=True, seed=3)
    assert read(rows).pairs.sort("pair_id").equals(mini.pairs.sort("pair_id"))


def test_facts_relation_url_is_its_last_part() -> None:
    rows = table({**FRANCE, "rel_uri": "http://www.wikidata.org/entity/P36"})
    assert read(rows, {"P36": "capital"}).relations.rows() == [("P36", "capital")]


def test_facts_names_put_the_label_first_and_stand_once() -> None:
    aliases = ["République", "France", None, "", " ", "Gaul", "République", "Albion"]
    pair = read(table({**FRANCE, "sub_aliases": aliases})).pairs.row(0, named=True)
    assert pair["subjects"] == ["France", "République", "Gaul", "Albion"]


@pytest.mark.parametrize("aliases", [None, [], [None], [[]], [["Paris"]]])
def test_facts_no_object_alias_leaves_the_label(aliases: list[Any] | None) -> None:
    objects = read(table({**FRANCE, "obj_aliases": aliases})).pairs["objects"][0]
    assert objects.to_list() == [{"object_id": "Q90", "labels": ["Paris"]}]


def test_facts_nested_object_aliases_stay_with_their_object() -> None:
    two = {"obj_uris": ["Q1", "Q2"], "obj_ents": ["a", "b"], "obj_aliases": [["x", "a"], ["y"]]}
    objects = read(table({**FRANCE, **two}, ITALY)).pairs["objects"][0].to_list()
    assert [each["labels"] for each in objects] == [["a", "x"], ["b", "y"]]


def test_facts_flat_object_aliases_go_to_the_first_object() -> None:
    two = {"obj_uris": ["Q1", "Q2"], "obj_ents": ["a", "b"]}
    rows = table({**FRANCE, **two}, ITALY)
    flat = rows.with_columns(obj_aliases=pl.Series([["x", "y"], ["z"]]))
    objects = read(flat).pairs["objects"].to_list()
    assert [[each["labels"] for each in of_pair] for of_pair in objects] == [
        [["a", "x", "y"], ["b"]],
        [["Paris", "z"]],
    ]


@pytest.mark.parametrize(
    ("missing", "uuids", "subjects"),
    [
        ([], ["a", "a"], ["Q142", "Q38"]),
        (["sub_uri"], ["a", "b", "a"], ["a", "b"]),  # of the pair: repeated
        (["sub_uri"], ["a", "b", "c"], ["France", "Italy"]),  # of the row: tells no subjects apart
        (["sub_uri", "uuid"], ["a", "b", "c"], ["France", "Italy"]),
    ],
)
def test_facts_subject_is_known_by_the_best_column_there_is(
    missing: list[str], uuids: list[str], subjects: list[str]
) -> None:
    given_rows = [FRANCE, ITALY, {**FRANCE, "template": "[X] is run from [Y]."}]
    rows = table(*({**r, "uuid": u} for r, u in zip(given_rows, uuids, strict=False)))
    assert read(rows.drop(missing)).pairs["subject_id"].to_list() == subjects


def test_facts_missing_subject_aliases_leave_the_label() -> None:
    rows = table(FRANCE).drop("sub_aliases")
    assert read(rows).pairs["subjects"].to_list() == [["France"]]


def templates(*marks: str) -> list[dict[str, Any]]:
    rows = [
        {**FRANCE, "template": f"{i} [X] [Y]", "is_manual": m == "m"} for i, m in enumerate(marks)
    ]
    return read(table(*rows)).templates.to_dicts()


def test_facts_templates_are_numbered_in_order_of_appearance() -> None:
    found = templates("m", "p", "m", "p")
    assert [t["template_id"] for t in found] == ["P36.000", "P36.001", "P36.002", "P36.003"]
    assert [t["origin"] for t in found] == ["manual", "paraphrase"] * 2


@pytest.mark.parametrize(
    ("marks", "groups"),
    [
        ("mpmp", [0, 0, 1, 1]),
        ("mmm", [0, 1, 2]),
        ("mmpp", [None] * 4),  # manual templates first: whose paraphrase is which is not known
        ("pm", [None] * 2),  # led by none
    ],
)
def test_facts_template_group_is_known_by_its_place(marks: str, groups: list[int | None]) -> None:
    assert [t["group"] for t in templates(*marks)] == groups


@pytest.mark.parametrize(
    ("text", "style"),
    [
        ("Where is [X]? [Y].", "question"),
        ("Where is [X]? [Y]", "question"),
        ("Where is [X]?[Y] .", "question"),
        ("[Y] is where [X] is.", "statement"),
        ("Is it [Y] where [X] is?", "statement"),
        ("Where is [X]? It is in [Y].", "statement"),
    ],
)
def test_facts_template_style_is_a_question_before_its_answer(text: str, style: str) -> None:
    assert read(table({**FRANCE, "template": text})).templates["style"].to_list() == [style]


@pytest.mark.parametrize(
    "column", ["rel_uri", "template", "is_manual", "sub_ent", "obj_uris", "obj_ents"]
)
def test_facts_missing_column_is_named_with_its_fix(column: str) -> None:
    with pytest.raises(InputError, match=naming(f"column {column}", "map")):
        read(table(FRANCE).drop(column))


@pytest.mark.parametrize("column", list(SCHEMA))
def test_facts_wrong_type_is_named_with_the_right_one(column: str) -> None:
    rows = table(FRANCE).with_columns(pl.lit(0.5).alias(column))
    with pytest.raises(InputError, match=naming(f"column {column}")):
        read(rows)


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"rel_uri": None}, "rel_uri is empty"),
        ({"rel_uri": "http://www.wikidata.org/entity/"}, "rel_uri names no relation"),
        ({"template": " "}, "template is empty"),
        ({"is_manual": None}, "is_manual is empty"),
        ({"sub_ent": None}, "sub_ent is empty"),
        ({"sub_uri": None}, "sub_uri is empty"),
        ({"obj_ents": None}, "obj_ents is empty"),
        ({"obj_ents": [], "obj_uris": []}, "obj_ents is empty"),
        ({"obj_ents": [None]}, "obj_ents has an empty label"),
        ({"obj_ents": [" "]}, "obj_ents has an empty label"),
        ({"obj_uris": None}, "obj_uris and obj_ents differ in length"),
        ({"obj_uris": ["Q1", "Q2"]}, "obj_uris and obj_ents differ in length"),
        ({"rel_uri": "P999"}, "the catalog entry does not name its relation"),
    ],
)
def test_facts_unfit_row_is_named_with_its_fix(change: dict[str, Any], problem: str) -> None:
    rows = table(FRANCE, {**ITALY, **change})
    with pytest.raises(InputError, match=rf"row 1 \(.*\): {problem}; correct or drop the row"):
        read(rows, {"P36": "capital"})


@pytest.mark.parametrize("slot", ["[X]", "[Y]"])
def test_facts_template_without_slot_is_refused(slot: str) -> None:
    text = "[Y] is the capital of [X].".replace(slot, "it")
    with pytest.raises(InputError, match=naming("template P36.000", slot, "put")):
        read(table({**FRANCE, "template": text}))


def test_facts_empty_set_is_refused() -> None:
    with pytest.raises(InputError, match=naming("subject-relation", "give")):
        read(table())
