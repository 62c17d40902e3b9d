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
    reread = read(rows_from_facts(mini), dict(mini.relations.iter_rows()))
    assert reread.relations.equals(mini.relations)
    assert reread.templates.equals(mini.templates)
    assert reread.pairs.equals(mini.pairs)


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


def test_facts_names_put_the_label_first_and_stand_once() -> None:
    aliases = ["République", "France", None, "", " ", "Gaul", "République", "Albion"]
    rows = table({**FRANCE, "sub_aliases": aliases})
    assert read(rows).pairs["subjects"][0].to_list() == ["France", "République", "Gaul", "Albion"]
    assert read(rows.drop("sub_aliases")).pairs["subjects"].to_list() == [["France"]]


def test_facts_aliases_stay_with_their_object_and_flat_ones_go_to_the_first() -> None:
    for aliases in (None, [], [None], [[]], [["Paris"]]):
        objects = read(table({**FRANCE, "obj_aliases": aliases})).pairs["objects"][0]
        assert objects.to_list() == [{"object_id": "Q90", "labels": ["Paris"]}]
    two = {"obj_uris": ["Q1", "Q2"], "obj_ents": ["a", "b"]}
    rows = table({**FRANCE, **two, "obj_aliases": [["x", "a"], ["y"]]}, ITALY)
    flat = rows.with_columns(obj_aliases=pl.Series([["x", "y"], ["z"]]))
    for given_rows, expected in (
        (rows, [[["a", "x"], ["b", "y"]], [["Paris", "City of Light"]]]),
        (flat, [[["a", "x", "y"], ["b"]], [["Paris", "z"]]]),
    ):
        objects_of_pairs = read(given_rows).pairs["objects"].to_list()
        assert [
            [entity["labels"] for entity in of_pair] for of_pair in objects_of_pairs
        ] == expected


def templates(*marks: str) -> list[dict[str, Any]]:
    rows = [
        {**FRANCE, "template": f"{i} [X] [Y]", "is_manual": m == "m"} for i, m in enumerate(marks)
    ]
    return read(table(*rows)).templates.to_dicts()


def test_facts_template_group_is_known_by_its_place(subtests: pytest.Subtests) -> None:
    for marks, groups in (
        ("mpmp", [0, 0, 1, 1]),
        ("mmm", [0, 1, 2]),
        ("mmpp", [None] * 4),  # manual templates first: whose paraphrase is which is not known
        ("pm", [None] * 2),  # led by none
    ):
        rows, n = templates(*marks), len(marks)
        with subtests.test(marks):
            assert [t["group"] for t in rows] == groups
            assert [t["template_id"] for t in rows] == [f"P36.00{i}" for i in range(n)]
            assert ["mp"[t["origin"] == "paraphrase"] for t in rows] == [*marks]


def test_facts_template_style_is_a_question_before_its_answer() -> None:
    for style, texts in (
        ("question", ["Where is [X]? [Y].", "Where is [X]? [Y]", "Where is [X]?[Y] ."]),
        (
            "statement",
            ["[Y] is where [X] is.", "Is it [Y] where [X] is?", "Where is [X]? It is in [Y]."],
        ),
    ):
        for text in texts:
            rows = table({**FRANCE, "template": text})
            assert read(rows).templates["style"].to_list() == [style], text


_CHANGES = (
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
)
_NEEDED = ("rel_uri", "template", "is_manual", "sub_ent", "obj_uris", "obj_ents")
_UNFIT = [
    *((table(FRANCE).drop(name), naming(f"column {name}", "map")) for name in _NEEDED),
    *(
        (table(FRANCE).with_columns(pl.lit(0.5).alias(name)), naming(f"column {name}"))
        for name in SCHEMA
    ),
    *(
        (table(FRANCE, {**ITALY, **change}), rf"row 1 \(.*\): {words}; correct or drop the row")
        for change, words in _CHANGES
    ),
    *(
        (
            table({**FRANCE, "template": FRANCE["template"].replace(slot, "it")}),
            naming("template P36.000", slot, "put"),
        )
        for slot in ("[X]", "[Y]")
    ),
    (table(), naming("subject-relation", "give")),
]


def test_facts_unfit_rows_are_refused_with_their_fix(subtests: pytest.Subtests) -> None:
    for rows, words in _UNFIT:
        with subtests.test(words), pytest.raises(InputError, match=words):
            read(rows, {"P36": "capital"})
