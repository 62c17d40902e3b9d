"""Types of objects: which relations have values, and how demonstrations write them."""

import polars as pl
import pytest

from factsweep.operators.datasets.facts import Facts
from factsweep.operators.datasets.myriadlama import facts_from_rows
from factsweep.operators.datasets.object_types import (
    describe_types,
    longest_answer,
    recognise_types,
    typed_objects,
    unify_labels,
    warn_of_unread_types,
)
from factsweep.operators.errors import InputError
from tests.messages import naming

OBJECTS = {
    "born": ["1879-03-14", "7 November 1867", "March 23, 1882", "1912-06-23", "1777-04-30"],
    "founded": ["1855", "1861", "753 BC", "1209", "1636"],
    "height": ["8,849 m", "8611 m", "8,586 m", "8,516 m", "8,485 m"],
    "population": ["12", "35,000", "1.2 million", "7", "1900"],
    "film": ["1984", "Up", "Heat", "300", "21 Grams"],
    "code": ["004", "008", "012", "016", "020"],
    "capital": ["Paris", "Lima", "Tokyo", "Rome", "Oslo"],
    "address": ["10 Downing Street", "221B Baker Street", "4 Privet Drive", "1 Way", "2 Way"],
}


def table(objects: dict[str, list[str]], **columns: list[str]) -> Facts:
    rows = [
        {"relation": relation, "template": "[X]: [Y]", "subject": f"S{n}", "object": text}
        for relation, texts in objects.items()
        for n, text in enumerate(texts)
    ]
    return facts_from_rows(pl.DataFrame(rows).with_columns(**columns).lazy())


def test_relations_of_values_are_recognised_and_names_are_not() -> None:
    kinds = {
        relation: type_.kind for relation, type_ in recognise_types(table(OBJECTS), "en").items()
    }
    dates = dict.fromkeys(["born", "founded"], "date")
    assert kinds == {**dates, "height": "quantity", "population": "number"}


def test_language_of_the_table_decides_how_its_numbers_are_read() -> None:
    facts = table({"height": ["8.849 m", "4.810 m"]})
    readings = [
        str(recognise_types(facts, language)["height"].reading) for language in ("de", "en")
    ]
    assert readings == ["8849 meter", "8.849 meter"]


def test_sentences_name_an_object_with_its_reading_and_ambiguous_dates() -> None:
    (born,) = describe_types(table({"born": ["03/04/1879", "25/12/1900"]}), "en")
    assert "2 of 2 can be read" in born
    assert "1 can be read as two days" in born


def test_declared_types_replace_what_is_recognised() -> None:
    facts = table({"born": ["1879", "1900"]}, type=pl.Series(["name", ""]))
    assert typed_objects(facts, "en", 0).kinds == {"born.S1": "date"}
    facts = table({"r": ["soon", "1900"]}, type=pl.Series(["date", ""]))
    with pytest.raises(InputError, match=naming("soon", "r.S0", "date", "name")):
        list(describe_types(facts, "en"))


def test_column_type_of_something_else_is_named_and_one_of_both_is_refused() -> None:
    columns = {"type": pl.Series(["city", "town"])}
    assert not table({"capital": ["Paris", "Lima"]}, **columns).extra_tables
    assert len([*warn_of_unread_types(pl.LazyFrame({"type": ["city"]}))]) == 1
    assert not [*warn_of_unread_types(pl.LazyFrame({"type": ["", "Date"]}))]
    with pytest.raises(InputError, match=naming("row 1", "type", "quantity")):
        table({"capital": ["1900", "Lima"]}, type=pl.Series(["date", "town"]))


def test_demonstrations_write_dates_and_numbers_in_the_most_frequent_form() -> None:
    facts, examples = unify_labels(table(OBJECTS), "en")
    label = pl.col("objects").list.first().struct.field("labels").list.first()
    labels = facts.pairs.group_by("relation_id", maintain_order=True).agg(label=label)
    by_relation = dict(labels.iter_rows())
    assert by_relation["born"][:3] == ["1879-03-14", "1867-11-07", "1882-03-23"]
    assert by_relation["height"][1] == "8,611 m"
    assert [by_relation[name] for name in ("founded", "film")] == [
        OBJECTS["founded"],
        OBJECTS["film"],
    ]
    assert sorted(examples) == ["born", "height", "population"]
    german, _ = unify_labels(table({"born": ["14. März 1879", "5. Mai 1900", "1.2.1903"]}), "de")
    assert german.pairs["objects"][2][0]["labels"] == ["1. Februar 1903", "1.2.1903"]


def test_facts_in_one_form_are_the_same_facts() -> None:
    facts = table({"born": ["1879-03-14", "1900-05-02"], "capital": ["Paris", "Lima"]})
    assert unify_labels(facts, "en") == (facts, {})


def test_longest_answer_spells_the_month() -> None:
    assert longest_answer(table({"born": ["1879-09-14", "May 2, 1900"]}), "en", "recognised") == (
        *("born", "September 14, 1879"),
    )
