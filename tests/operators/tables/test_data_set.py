"""The figures of a data set as tables."""

from collections.abc import Callable
from typing import Any

import polars as pl
from hypothesis import given
from hypothesis import strategies as st

from factsweep.operators.datasets.facts import Facts
from factsweep.operators.metrics.data_set import diversity
from factsweep.operators.schemas import empty
from factsweep.operators.tables.data_set import (
    DIFFERENCES,
    by_relation,
    distractors_by_relation,
    diversity_with_published,
    missing,
    sizes_with_published,
    template_examples,
)

Strategies = Callable[..., st.SearchStrategy[Facts]]


def paper(*numbers: tuple[str, str, float, str]) -> pl.DataFrame:
    return pl.DataFrame(
        list(numbers), schema=["benchmark", "metric", "value", "table"], orient="row"
    )


@given(data=st.data())
def test_sizes_any_set_are_those_of_nested_loops(
    data: st.DataObject, random_facts: Strategies
) -> None:
    facts = data.draw(random_facts())
    texts = facts.templates.group_by("relation_id").len()
    n_templates = dict(texts.iter_rows())
    derived = triples = prompts = 0
    for pair in facts.pairs.iter_rows(named=True):
        for _ in range(n_templates[pair["relation_id"]]):
            for _ in pair["subjects"]:
                prompts += 1
                derived += sum(len(value["labels"]) for value in pair["objects"])
        triples += len(pair["objects"])
    (row,) = sizes_with_published(facts, "x").rows()
    numbers = [facts.relations.height, facts.templates.height, triples, derived]
    assert row == ("x", "measured", *map(str, [*numbers, facts.pairs.height, prompts]))
    # The relations' rows add up to the set's.
    table = by_relation(facts, diversity(facts))
    for heading, value in zip(table.columns[1:6], row[3:], strict=True):
        assert table[heading].cast(int).sum() == int(value)


def test_sizes_of_a_published_set_stand_beside_what_was_published(mini: Facts) -> None:
    published = paper(
        ("myriadlama-mini", "templates", 100, "000:1"),
        ("myriadlama-mini", "templates", 150, "003:1"),
        ("other", "pairs", 7, "000:1"),
        ("other", "pairs", 9, "000:12"),
    )
    rows = sizes_with_published(mini, "myriadlama-mini", published).select(
        "source", "templates", "pairs"
    )
    assert rows.rows() == [
        ("measured", "170", "553"),
        ("published", "150", "–"),
        ("difference", "+20", "–"),
        ("published", "–", "7"),
    ]


def test_diversity_is_that_of_the_set_and_of_each_relation(mini: Facts) -> None:
    measured = diversity(mini)
    (row,) = diversity_with_published(measured, "x").rows()
    assert row == ("x", "measured", "22.97", ".7197", "–", "–")
    table = by_relation(mini, measured)
    assert table["relation"][0] == "P17 country"
    assert table.height == 17
    lexicon = measured.drop_nulls("relation_id")["lexicon"]
    assert table["lexicon"].to_list() == [f"{value:.4f}"[1:] for value in lexicon]


def test_diversity_has_a_difference_but_for_the_encoders_units() -> None:
    totals = dict.fromkeys(DIFFERENCES, 0.5)
    published = paper(*(("x", figure, 0.25, "003:9") for figure in DIFFERENCES))
    rows = diversity_with_published(pl.DataFrame([{"relation_id": None, **totals}]), "x", published)
    assert rows.filter(source="difference").row(0)[2:] == ("+0.25", "+.2500", "+.2500", "–")


def test_missing_names_every_dash_and_no_number() -> None:
    measured = pl.DataFrame(
        {
            "relation_id": ["P1", "P2", "P3", None],
            "quantity": [2.0, None, 1.0, 1.5],
            "lexicon": [None, 0.5, None, 0.5],
            "syntax": [0.1, 0.1, 0.1, 0.1],
            "semantics": [None, None, None, None],
        }
    )
    reasons = missing(measured, {"semantics": "no encoder"})
    assert reasons.rows() == [
        ("quantity", "P2", "no pairs"),
        ("lexicon", "P1, P3", "fewer than two templates"),
        ("semantics", "all", "no encoder"),
    ]
    totals = measured.with_columns(pl.col(*DIFFERENCES).cast(float).fill_null(1.0))
    assert missing(totals, {}).is_empty()


rows = st.lists(
    st.tuples(
        st.sampled_from(["P1", "P2"]),
        st.none() | st.integers(0, 2),
        st.sampled_from(["manual", "paraphrase"]),
    ),
    max_size=20,
)


def facts_of(rows: list[Any]) -> Facts:
    templates = [
        {"relation_id": relation, "group": group, "origin": origin, "text": f"t{number}"}
        for number, (relation, group, origin) in enumerate(rows)
    ]
    table = pl.DataFrame(templates, schema=empty("templates").schema)
    relations = pl.DataFrame({"relation_id": ["P2", "P1"], "label": ["P2", "capital"]})
    return Facts(relations, table, empty("pairs"))


@given(rows, st.integers(1, 3), st.integers(1, 3))
def test_examples_are_the_first_of_each_relation_and_group(
    rows: list[Any], n_manual: int, n_paraphrases: int
) -> None:
    expected = []
    for relation, name in (("P2", "P2"), ("P1", "P1 capital")):
        templates = [
            (f"t{i}", group, origin) for i, (r, group, origin) in enumerate(rows) if r == relation
        ]
        manual = [(text, group) for text, group, origin in templates if origin == "manual"]
        for text, group in manual[:n_manual]:
            paraphrases = [
                t for t, g, o in templates if o != "manual" and g == group and g is not None
            ]
            expected += [(name, text, other) for other in paraphrases[:n_paraphrases] or [None]]
    table = template_examples(facts_of(rows), n_manual=n_manual, n_paraphrases=n_paraphrases)
    assert table.rows() == expected


def test_distractors_by_relation_of_the_mini_set_add_up(distractors_mini: Facts) -> None:
    table = distractors_by_relation(distractors_mini)
    totals = table.row(-1, named=True)
    assert table.height == 18
    assert (totals["n_facts"], totals["n_without"], totals["n_sharing"]) == (400, 1, 4)
    assert table["n_facts"].head(17).sum() == 400
    assert (
        totals["n_same_type"] - totals["n_right"] - totals["n_sharing"]
        == totals["n_distractors"]
        > 0
    )
