"""Counting, checking and slicing facts, and invisible characters in them."""

from collections.abc import Callable
from dataclasses import replace

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from factsweep.operators.datasets.facts import (
    Facts,
    Slice,
    check_facts,
    counts,
    find_invisible,
    slice_facts,
    treat_invisible,
)
from factsweep.operators.datasets.myriadlama import facts_from_rows
from factsweep.operators.errors import InputError
from tests.builders import facts as make_facts
from tests.messages import naming

Strategies = Callable[..., st.SearchStrategy[Facts]]
SOLID = {"P1": (["[X] lies in [Y]."], {"Q1": (["A", "B"], [["x"]]), "Q2": (["C"], [["y", "z"]])})}


def naive_counts(facts: Facts) -> dict[str, int]:
    relation_of = facts.templates["relation_id"].to_list()
    pairs = facts.pairs.to_dicts()
    prompts = [len(p["subjects"]) * relation_of.count(p["relation_id"]) for p in pairs]
    labels = [sum(len(o["labels"]) for o in p["objects"]) for p in pairs]
    return {
        "relations": len(facts.relations),
        "templates": len(relation_of),
        "pairs": len(pairs),
        "unique_triples": sum(len(p["objects"]) for p in pairs),
        "derived_triples": sum(n * m for n, m in zip(prompts, labels, strict=True)),
        "prompts": sum(prompts),
    }


@given(data=st.data())
def test_counts_any_facts_equal_naive_loops(data: st.DataObject, random_facts: Strategies) -> None:
    facts = data.draw(random_facts())
    assert counts(facts) == naive_counts(facts)


def test_counts_paper_sized_names_do_not_overflow() -> None:
    names = [str(i) for i in range(3000)]
    facts = make_facts({"P1": (["[X] is [Y]."] * 500, {"Q1": (names, [names])})})
    assert counts(facts)["derived_triples"] == 3000 * 3000 * 500


@given(data=st.data())
def test_checked_any_good_facts_are_given_back(
    data: st.DataObject, random_facts: Strategies
) -> None:
    facts = data.draw(random_facts())
    assert check_facts(facts) is facts


@pytest.mark.parametrize(
    ("relation", "sentence"),
    [
        ((["no slot [Y]."], {"Q1": (["A"], [["x"]])}), r"P2.000 \('no slot .* has no \[X\]; put"),
        ((["[X] is."], {"Q1": (["A"], [["x"]])}), r"P2.000 \('\[X\] is.'\) has no \[Y\]; put"),
        ((["[X] [Y]"], {"Q1": (["A"], [])}), "pair P2.Q1 has no objects; add one or drop"),
        ((["[X] [Y]"], {"Q1": ([], [["x"]])}), "pair P2.Q1 has no subject name; add one or drop"),
        (([], {"Q1": (["A"], [["x"]])}), "relation P2 has pairs but no templates; add one or drop"),
        ((["[X] [Y]"], {}), "relation P2 has no pairs; add one or drop"),
    ],
)
def test_checked_unusable_relation_is_refused(relation: object, sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        check_facts(make_facts({**SOLID, "P2": relation}))


def test_checked_templates_of_unknown_relations_or_one_number_are_refused() -> None:
    facts = make_facts(SOLID)
    stray = facts.templates.with_columns(relation_id=pl.lit("P9"))
    tables = [facts.templates[:1], facts.templates[:1].with_columns(template_id=pl.lit("P1.a.000"))]
    for templates, words in (
        (stray, ("template P1.000", "relation P9", "add")),
        (pl.concat(tables), ("template P1.000", "relation P1", "another number")),
    ):
        with pytest.raises(InputError, match=naming(*words)):
            check_facts(replace(facts, templates=templates))
    with pytest.raises(InputError, match=naming("subject-relation", "give")):
        check_facts(make_facts({}))


def test_sliced_relations_keep_the_order_of_the_set(mini: Facts) -> None:
    all_facts, part = slice_facts(mini, Slice()), slice_facts(mini, Slice(relations=("P36", "P17")))
    assert all_facts.pairs.equals(mini.pairs)
    assert all_facts.templates.equals(mini.templates)
    for facts, ids in ((part, ["P17", "P36"]), (mini.of("P36"), ["P36"])):
        for table in (facts.relations, facts.templates, facts.pairs):
            assert table["relation_id"].unique(maintain_order=True).to_list() == ids


@pytest.mark.parametrize("number", [1, 3, 10_000])
def test_sliced_pairs_and_names_are_the_first_of_each(mini: Facts, number: int) -> None:
    part = slice_facts(mini, Slice(pairs_per_relation=number, names_per_subject=number))
    for relation in mini.relations["relation_id"]:
        every = mini.of(relation).pairs.to_dicts()[:number]
        expected = [{**pair, "subjects": pair["subjects"][:number]} for pair in every]
        assert part.of(relation).pairs.to_dicts() == expected


def test_sliced_unknown_relation_and_empty_parts_are_refused(mini: Facts) -> None:
    with pytest.raises(InputError, match=naming("benchmark.relations", "P2", "P17", "P19")):
        slice_facts(mini, Slice(relations=("P17", "P2")))
    for part in (Slice(relations=()), Slice(pairs_per_relation=0), Slice(names_per_subject=0)):
        with pytest.raises(InputError, match="has no"):
            slice_facts(mini, part)


NAMES = ["relation", "template", "subject", "object"]


def plain_facts(template: str, subject: str, label: str):
    row = ("capital", template, subject, label)
    return facts_from_rows(pl.LazyFrame([row], NAMES, orient="row"))


@pytest.mark.parametrize("hidden", ["\u200b", "\ufeff", "\u00ad", "\ue000", "\u200e"])
def test_unseen_characters_are_found_in_every_text(hidden: str) -> None:
    clean = ("[Y] of [X].", "France", "Paris")
    assert find_invisible(plain_facts(*clean)).is_empty()
    for place, noun in enumerate(("template", "pair", "pair")):
        texts = [*clean]
        texts[place] = texts[place][:2] + hidden + texts[place][2:]
        if place == 0:
            texts[place] = f"[Y]{hidden} of [X]."
        facts = plain_facts(*texts)
        assert find_invisible(treat_invisible(facts, "keep")).height == 1
        with pytest.raises(InputError, match=naming(noun, "benchmark.unseen=remove")):
            treat_invisible(facts, "refuse")
        cleaned = treat_invisible(facts, "remove")
        assert cleaned.pairs["subjects"].to_list() == [["France"]]
        assert [o["labels"] for o in cleaned.pairs["objects"][0]] == [["Paris"]]
        assert cleaned.templates["text"].to_list() == ["[Y] of [X]."]


def test_joiners_are_letters_of_their_languages() -> None:
    joined = plain_facts("[Y] of [X].", "می\u200cخواهم", "\U0001f469\u200d\U0001f680")
    assert find_invisible(joined).is_empty()


def test_object_of_which_nothing_is_left_is_refused() -> None:
    with pytest.raises(InputError, match=naming("has no objects")):
        treat_invisible(plain_facts("[Y] of [X].", "France", "\u200b"), "remove")
