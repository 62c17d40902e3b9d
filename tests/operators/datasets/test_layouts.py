"""Layouts of MyriadLAMA rows: each says the same facts as one row per pair and template."""

import datetime
import json
import re
from collections.abc import Mapping
from pathlib import Path

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from polars.testing import assert_frame_equal

from factsweep.operators.datasets.facts import Facts, counts
from factsweep.operators.datasets.layouts import (
    check_aliases,
    join_aliases,
    split_cells,
    warn_of_joined_cells,
)
from factsweep.operators.datasets.myriadlama import facts_from_rows, rows_from_facts
from factsweep.operators.errors import InputError
from tests.messages import naming

COLUMNS = pl.exclude("uuid")


@pytest.fixture
def rows(mini: Facts) -> pl.DataFrame:
    """Some pairs with several objects and names, in all templates of their relations."""
    some = mini.pairs.filter(pl.col("relation_id").is_in(["P37", "P47", "P36"]))
    facts = Facts(mini.relations, mini.templates, some)
    return rows_from_facts(facts).select(COLUMNS)


def same(rows: pl.DataFrame | pl.LazyFrame, expected: pl.DataFrame) -> None:
    read, right = facts_from_rows(rows.lazy()), facts_from_rows(expected.lazy())
    assert_frame_equal(read.templates, right.templates)
    assert_frame_equal(read.pairs, right.pairs)


def test_rows_truth_values_as_texts_are_read_beside_any_other_column(rows: pl.DataFrame) -> None:
    texts = rows.with_columns(pl.col("is_manual").cast(pl.String), row=pl.lit(7))
    same(texts, rows)


def test_plain_table_needs_no_ids_and_no_marks() -> None:
    facts = facts_from_rows(
        pl.LazyFrame(
            [
                ("capital of", "[Y] is the capital of [X].", "France", "Paris"),
                ("work/language", "[X] is written in [Y].", "Candide", "French"),
                ("work/language", "[X] is written in [Y].", "Candide", "Latin"),
            ],
            ["relation", "template", "subject", "object"],
            orient="row",
        )
    )
    assert facts.relations["relation_id"].to_list() == ["capital of", "work language"]
    assert facts.templates["group"].to_list() == [0, 0]  # each was written by hand
    assert counts(facts)["pairs"] == 2
    assert counts(facts)["unique_triples"] == 3


_TEMPLATE = "The capital of [X] is [Y]."


def _plain(*rows: Mapping[str, object]) -> pl.LazyFrame:
    """A plain table; each row has other values than these."""
    usual = {"relation": "capital", "template": _TEMPLATE, "subject": "Peru", "object": "Lima"}
    return pl.LazyFrame([{**usual, **row} for row in rows])


def test_plain_table_with_lists_in_cells_has_several_objects_in_any_order() -> None:
    several = '["Sucre", "La Paz"]'
    for cells in (
        [several],
        ["['Sucre', 'La Paz']"],
        ["Sucre", "La Paz"],
        ["Sucre", '["La Paz"]'],
        [several, "La Paz"],
    ):
        bolivia = [{"subject": "Bolivia", "object": cell} for cell in cells]
        for rows in ([{}, *bolivia], [*bolivia, {}]):
            facts = facts_from_rows(_plain(*rows))
            objects = dict(facts.pairs.select("subject_id", "objects").iter_rows())
            labels = {
                subject: [entity["labels"] for entity in entities]
                for subject, entities in objects.items()
            }
            assert labels == {"Peru": [["Lima"]], "Bolivia": [["Sucre"], ["La Paz"]]}, cells


def test_plain_table_with_lists_keeps_ids_and_other_names_beside_their_objects() -> None:
    several = {"object": ["Sucre", "La Paz"], "object_id": ["Q2907", "Q1491"]}
    single = {"subject": "Chile", "object": ["Santiago"], "object_id": ["Q2887"]}
    for names in (["Chuquisaca"], [["Chuquisaca"], []]):
        other = [] if names == ["Chuquisaca"] else [[]]
        facts = facts_from_rows(
            _plain({**several, "object_aliases": names}, {**single, "object_aliases": other})
        )
        assert [[*entity.values()] for entity in facts.pairs["objects"][0]] == [
            ["Q2907", ["Sucre", "Chuquisaca"]],
            ["Q1491", ["La Paz"]],
        ]


def test_plain_table_whole_numbers_days_and_truth_values_are_their_texts() -> None:
    day = datetime.date(2020, 1, 1)
    for value, text in ((1945, "1945"), (day, "2020-01-01"), (True, "true"), ([7, 8], "7")):
        facts = facts_from_rows(_plain({"object": value}))
        assert facts.pairs["objects"][0][0]["labels"] == [text]
    assert facts_from_rows(_plain({"relation": 36})).labels == {"36": "36"}


_UNFIT: tuple[tuple[tuple[object, ...], str, tuple[str, ...]], ...] = (
    (("Lima", '["Sucre", "La Paz"'), "object", ("row 1", "no list")),
    (("Lima", '"Sucre", "La Paz"]'), "object", ("no list",)),
    (('["Sucre"]', '"Sucre", "La Paz"]'), "object", ("row 1", "no list")),
    (("Lima", '{"a": 1}'), "object", ("row 1", "write a text")),
    ((None, {"a": 1}), "object", ("row 1", "write a text")),
    ((None, 1.5), "object", ("row 1", "1.5", "write a text")),
    (("Lima", "[1945, 1946]"), "object", ("row 1", "1945", "quotation marks")),
    (("Lima", '["Sucre", null]'), "object", ("row 1", "None")),
    (('["Sucre"]', '[["La Paz"]]'), "object", ("row 1", "list of names")),
    ((["a"],), "template", ("row 0", "one text")),
    (('["a", "b"]',), "subject", ("row 0", "one text")),
    (("Lima", "[]"), "object", ("row 1", "is empty")),
    (("capital", '["capital"]'), "relation", ("row 1", "one text")),
    ((["capital"],), "relation", ("row 0", "one text")),
    (("a", '["a"]'), "sample", ("row 1", "one text")),
    (("Paname",), "subject_aliases", ("row 0", "no list")),
    (("[Paname; La Cité]",), "subject_aliases", ("row 0", 'write ["Paname", "La Cité"]')),
    (('["Paname"; "Lutèce"]',), "object_aliases", ('write ["Paname", "Lutèce"]',)),
    (('[["Paname"; "Lutèce"]]',), "object_aliases", ("correct it",)),
)


def test_aliases_in_one_cell_are_refused_with_the_option_that_splits_them() -> None:
    rows = _plain({"subject_aliases": "Paname; City of Light"})
    words = "row 0", "split such cells with --separator ';'", 'write ["Paname", "City of Light"]'
    with pytest.raises(InputError, match=naming(*words)):
        check_aliases(rows, "--separator ")


def test_plain_table_with_what_is_no_name_is_refused_with_row_and_column(
    subtests: pytest.Subtests,
) -> None:
    for values, column, words in _UNFIT:
        table = _plain(*({"subject": f"x{n}", column: value} for n, value in enumerate(values)))
        with subtests.test(values=values), pytest.raises(InputError, match=naming(column, *words)):
            facts_from_rows(table)


def test_plain_table_with_brackets_in_a_name_has_it_as_it_is() -> None:
    names = ["[6]-gingerol", "[X] file", "Theme [2]", "[sic]", 'Song ["Remix"]']
    rows = [{"subject": f"x{n}", "object": name} for n, name in enumerate(names)]
    facts = facts_from_rows(_plain(*rows))
    assert [objects[0]["labels"] for objects in facts.pairs["objects"]] == [[n] for n in names]


def test_plain_table_is_known_by_other_names_of_its_columns() -> None:
    columns = ["relation", "template", "subject", "object"]
    row = [("capital", "[Y] of [X]", "France", "Paris")]
    plain = facts_from_rows(pl.LazyFrame(row, columns, orient="row"))
    for names in (
        ["Relation", "TEMPLATE", "subject", "Object"],
        ["rel", "sentence", "head", "tail"],
    ):
        facts = facts_from_rows(pl.LazyFrame(row, names, orient="row"))
        assert_frame_equal(facts.pairs, plain.pairs)
    with pytest.raises(InputError, match=naming("template", "factsweep build facts")):
        facts_from_rows(pl.LazyFrame(row, columns, orient="row").drop("template"))


def test_plain_table_is_the_same_with_capitals_and_blanks() -> None:
    row = {"relation": "born", "template": "[X] [Y]", "subject": "Al", "object": "1900"}
    row |= {"Type": "name", "object_aliases": '["MCM"]', "note": "x"}
    plain = facts_from_rows(pl.LazyFrame([row]))
    other_names = ["Relation", " template", "SUBJECT", "object ", "Type", "Object_Aliases", "Note"]
    other = dict(zip(other_names, (f" {cell}\u00a0" for cell in row.values()), strict=True))
    facts = facts_from_rows(pl.LazyFrame([other]))
    assert_frame_equal(facts.pairs, plain.pairs)
    assert_frame_equal(facts.templates, plain.templates)
    assert facts.extra_tables["object_types"]["type"].to_list() == ["name"]
    categories = pl.LazyFrame([row]).with_columns(pl.col("template").cast(pl.Categorical))
    assert_frame_equal(facts_from_rows(categories).templates, plain.templates)


def test_plain_table_is_refused_by_the_names_of_its_columns(subtests: pytest.Subtests) -> None:
    row = {"relation": "born", "template": "[X] [Y]", "subject": "Al", "object": "1900"}
    for name in row:
        with subtests.test(name), pytest.raises(InputError, match=naming("row 0", name)) as refusal:
            facts_from_rows(pl.LazyFrame([{**row, name: None}, row]))
        assert not re.search("rel_|sub_|obj_", str(refusal.value))


def test_plain_table_may_say_how_popular_a_fact_is_and_its_sample() -> None:
    facts = facts_from_rows(_plain({"popularity": "3.5", "sample": "late"}))
    (details,) = facts.extra_tables["details"].to_dicts()
    assert (details["pair_id"], details["object_id"]) == ("capital.Peru", "Lima")
    assert (details["popularity"], details["sample"]) == (3.5, "late")
    for wrong in ("many", "nan"):
        with pytest.raises(InputError, match=naming("row 1", "popularity")):
            facts_from_rows(_plain({"popularity": None}, {"popularity": wrong}))


def per_object(rows: pl.DataFrame) -> pl.DataFrame:
    return rows.explode("obj_uris", "obj_ents", "obj_aliases")


def as_texts(rows: pl.DataFrame, *, python: bool) -> pl.DataFrame:
    """The rows as a CSV file has them: a list as pandas writes it, or as JSON."""
    write = str if python else json.dumps
    lists = [n for n, dtype in rows.schema.items() if isinstance(dtype, pl.List)]
    texts = [pl.Series(n, [write(values) for values in rows[n].to_list()]) for n in lists]
    return rows.with_columns(*texts).cast(pl.String)


def test_layouts_of_rows_say_the_same(
    rows: pl.DataFrame, tmp_path: Path, subtests: pytest.Subtests
) -> None:
    assert rows["obj_ents"].list.len().max() > 1  # type: ignore[operator]
    bare = rows.drop("sub_aliases")
    unnamed = bare.drop("obj_aliases")
    texts = as_texts(rows, python=True)
    none = pl.Series([[]] * rows.height, dtype=pl.List(pl.Null))
    for name, other, expected in (
        ("a row per object", per_object(rows), rows),
        ("lists as Python writes them", texts, rows),
        ("lists as JSON writes them", as_texts(rows, python=False), rows),
        (
            "a row per object without aliases",
            per_object(rows).drop("sub_aliases", "obj_aliases"),
            unnamed,
        ),
        ("no alias at all", texts.with_columns(sub_aliases=pl.lit(None, pl.String)), bare),
        ("blank aliases", texts.with_columns(sub_aliases=pl.lit("")), bare),
        ("lists that are all empty", rows.with_columns(sub_aliases=none), bare),
    ):
        with subtests.test(name):
            same(other, expected)
            if all(not isinstance(dtype, pl.List) for dtype in other.schema.values()):
                other.write_csv(tmp_path / "rows.csv")
                same(pl.read_csv(tmp_path / "rows.csv", infer_schema=False), expected)


def test_layout_aliases_missing_leave_the_labels(rows: pl.DataFrame) -> None:
    bare = facts_from_rows(rows.drop("sub_aliases", "obj_aliases").lazy())
    assert bare.pairs["subjects"].list.len().to_list() == [1] * bare.pairs.height
    figures = counts(bare)
    assert figures["prompts"] == 10 * figures["pairs"]
    assert figures["derived_triples"] == 10 * figures["unique_triples"]


def test_layout_flat_aliases_with_all_labels_count_each_name_once(rows: pl.DataFrame) -> None:
    flat = [
        [*labels, *(name for of_object in aliases for name in of_object)]
        for labels, aliases in rows.select("obj_ents", "obj_aliases").iter_rows()
    ]
    facts = facts_from_rows(rows.with_columns(obj_aliases=pl.Series(flat)).lazy())
    right = facts_from_rows(rows.lazy())
    for actual, expected in zip(facts.pairs["objects"], right.pairs["objects"], strict=True):
        names = [
            [n for entity in objects for n in entity["labels"]] for objects in (actual, expected)
        ]
        assert len(names[0]) == len(set(names[0]))
        assert set(names[0]) == set(names[1])


def test_layout_text_that_is_no_list_or_truth_value_is_refused(rows: pl.DataFrame) -> None:
    texts = as_texts(rows, python=True)
    is_fourth = pl.int_range(pl.len()) == 3
    for text in ("['Paris'", "[1, 2", '["a" "b"]', "['a'\n 'b']"):
        broken = pl.when(is_fourth).then(pl.lit(text)).otherwise("obj_ents")
        with pytest.raises(InputError, match=naming("row 3", "obj_ents")):
            facts_from_rows(texts.with_columns(obj_ents=broken).lazy())
    with pytest.raises(InputError, match=naming("is_manual", "'perhaps'", "write")):
        facts_from_rows(texts.with_columns(is_manual=pl.lit("perhaps")).lazy())
    labels = pl.DataFrame({"entity_id": ["Q142"], "labels": [["France", "Gaul"]]})
    with pytest.raises(InputError, match=naming("obj_aliases", "no column obj_uris")):
        join_aliases(pl.LazyFrame({"sub_uri": ["Q142"]}), "obj_aliases", labels)


CELLS = st.lists(st.text("abc de", min_size=1).filter(str.strip), min_size=1, max_size=4)


@given(st.lists(CELLS, min_size=1, max_size=4), st.sampled_from([";", "|", " / ", "; "]))
def test_split_gives_the_names_that_were_joined(names: list[list[str]], separator: str) -> None:
    cells = [separator.join(row) for row in names]
    rows = split_cells(pl.DataFrame({"subject": range(len(cells)), "object": cells}), separator)
    stripped = [(n, name.strip()) for n, row in enumerate(names) for name in row]
    assert rows.rows() == stripped


def test_split_takes_ids_along_and_makes_lists_of_aliases() -> None:
    cells = {
        "object": ["a;b", "c"],
        "object_id": ["1;2", "3"],
        "object_aliases": ["x; y", '["z;"]'],
    }
    assert split_cells(pl.DataFrame(cells), ";").rows() == [
        *(("a", "1", ["x", "y"]), ("b", "2", ["x", "y"]), ("c", "3", ["z;"]))
    ]
    with pytest.raises(InputError, match=naming("row 0", "object", "2 parts", "object_id")):
        split_cells(pl.DataFrame({"object": ["a;b"], "object_id": ["1"]}), ";")


def test_several_counts_cells_once_and_names_the_first_three() -> None:
    cells = ["A; B", "AC/DC", "C|D", "E / F", "A; B", "G ;H", "Yahoo!;", '["a;b"]', None]
    (sentence,) = warn_of_joined_cells(pl.LazyFrame({"object": cells}), "separator=", None)
    assert sentence.startswith("4 cells seem to hold several answers (row 0: object 'A; B', row 2:")
    assert "separator=';'" in sentence
    assert not warn_of_joined_cells(
        pl.LazyFrame({"object": ["A; B"], "note": "a;b"}), "separator=", ";"
    )


def test_check_aliases_that_are_no_list_offers_the_list_and_the_split() -> None:
    rows = pl.LazyFrame({"object_aliases": ["", '["x"]', "Paname; Lutèce"]})
    with pytest.raises(InputError, match=naming("row 2", '["Paname", "Lutèce"]', "separator=';'")):
        check_aliases(rows, "separator=")
