"""Expansion, repeated texts, and names that prompts show, each against nested loops."""

import unicodedata
from collections.abc import Callable
from dataclasses import replace
from typing import Any
from unittest.mock import patch

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import chisquare

from factsweep.operators.datasets.facts import Facts
from factsweep.operators.errors import InputError
from factsweep.operators.prompts.expansion import (
    NOTHING,
    DemonstrationCounts,
    RepeatedTexts,
    count_demonstrations,
    expand,
    prompts_showing,
    prompts_telling,
)
from factsweep.operators.prompts.setting import Setting
from factsweep.operators.schemas import SCHEMAS, conform
from tests.builders import facts as make_facts
from tests.messages import naming

Strategies = Callable[..., st.SearchStrategy[Facts]]
ZERO_SHOT = Setting("zero-shot", 0)
SETTINGS = [
    ZERO_SHOT,
    *(
        Setting(c, 2, scope=s)
        for c in ("random", "relation", "template")
        for s in ("shared", "prompt")
    ),
    Setting("template", 1, "question"),
    Setting("random", 1, "question", scope="prompt"),
    Setting("relation", 1, templates="manual"),
    Setting("template", 1, templates="question"),
]
ORDER = ["template_id", "context_id", "pair_id", "subject_index"]
each_setting = pytest.mark.parametrize("setting", SETTINGS, ids=lambda s: f"{s.name},{s.variant}")


def expanded(facts: Facts, setting: Setting, seed: int = 0) -> pl.DataFrame:
    """All prompts, in order, with their context and whole text."""
    parts = []
    for expansion in expand(facts, setting, seed=seed):
        contexts = expansion.contexts.rename({"text": "context"})
        parts.append(expansion.prompts.join(contexts, "context_id", "left", maintain_order="left"))
    return pl.concat(parts).with_columns(text=pl.concat_str("context", "query"))


def naive_queries(facts: Facts, setting: Setting) -> dict[str, str]:
    queries = {}
    for template in facts.templates.to_dicts():
        text, number = template["text"], template["template_id"].partition(".")[2]
        if setting.templates == "manual" and template["origin"] != "manual":
            continue
        is_question = setting.style == "question"
        if (is_question or setting.templates == "question") and template["style"] != "question":
            continue
        if is_question:
            text = text[: text.index("?") + 1]
        sentence = text.replace("[Y]", "[MASK]")
        for pair in facts.pairs.filter(relation_id=template["relation_id"]).to_dicts():
            for index, name in enumerate(pair["subjects"]):
                prompt_id = f"{pair['pair_id']}.{number}.{index}"
                queries[prompt_id] = f"Q: {name.join(sentence.split('[X]'))}\nA:"
    return queries


@each_setting
@given(data=st.data())
def test_expand_any_facts_equals_nested_loops(
    setting: Setting, data: st.DataObject, random_facts: Strategies
) -> None:
    facts = data.draw(random_facts(min_pairs=3))
    prompts = expanded(facts, setting)
    assert dict(prompts.select("prompt_id", "query").iter_rows()) == naive_queries(facts, setting)
    assert prompts["prompt_id"].is_unique().all()


@each_setting
def test_expand_mini_set_stands_in_prefix_order_and_conforms_to_the_schemas(
    mini: Facts, setting: Setting
) -> None:
    for expansion in expand(mini, setting, seed=1):
        assert expansion.prompts.equals(expansion.prompts.sort(ORDER))
        assert set(expansion.contexts["context_id"]) == set(expansion.prompts["context_id"])
    assert conform(expansion.prompts, "prompts").schema == SCHEMAS["prompts"]
    assert conform(expansion.contexts, "contexts").schema == SCHEMAS["contexts"]


@each_setting
def test_expand_same_seed_any_order_of_rows_gives_the_same_prompts(
    mini: Facts, setting: Setting
) -> None:
    tables = (mini.relations, mini.templates, mini.pairs)
    part = Facts(*(t.filter(pl.col("relation_id").is_in(["P30", "P36"])) for t in tables))
    shuffled = replace(
        part,
        templates=part.templates.sample(fraction=1, shuffle=True, seed=2),
        pairs=part.pairs.sample(fraction=1, shuffle=True, seed=3),
    )
    assert expanded(shuffled, setting, seed=5).equals(expanded(part, setting, seed=5))


@pytest.mark.slow
@each_setting
def test_expand_other_seed_draws_others(mini: Facts, setting: Setting) -> None:
    first, other = expanded(mini, setting, seed=0), expanded(mini, setting, seed=1)
    ranks = ["prompt_id", "calibration_rank"]
    assert not first.sort("prompt_id").select(ranks).equals(other.sort("prompt_id").select(ranks))
    assert (set(first["text"]) == set(other["text"])) == (setting == ZERO_SHOT)


@given(data=st.data())
def test_same_as_zero_shot_is_the_first_prompt_of_the_text(
    data: st.DataObject, random_facts: Strategies
) -> None:
    prompts = expanded(data.draw(random_facts()), ZERO_SHOT)
    first: dict[str, str] = {}
    for prompt_id, text, same_as in prompts.select("prompt_id", "text", "same_as").iter_rows():
        assert same_as == first.get(text)
        first.setdefault(text, prompt_id)


def test_same_as_equal_texts_across_relations_share_one_answer() -> None:
    relation = (["[X] is in [Y]."], {"Q1": (["A", "B"], [["x"]]), "Q2": (["A"], [["y"]])})
    prompts = expanded(make_facts({"P1": relation, "P2": relation}), ZERO_SHOT)
    assert prompts.filter(pl.col("same_as").is_null())["prompt_id"].to_list() == [
        "P1.Q1.000.0",
        "P1.Q1.000.1",
    ]


@each_setting
@given(data=st.data())
def test_calibration_any_facts_rank_one_prompt_a_pair(
    setting: Setting, data: st.DataObject, random_facts: Strategies
) -> None:
    facts = data.draw(random_facts(min_pairs=3))
    ranked = expanded(facts, setting).drop_nulls("calibration_rank")
    assert sorted(ranked["pair_id"]) == sorted(facts.pairs["pair_id"])
    assert sorted(ranked["calibration_rank"]) == list(range(facts.pairs.height))


def test_calibration_samples_pairs_whatever_their_names_and_templates_evenly(mini: Facts) -> None:
    fewer = replace(mini, pairs=mini.pairs.with_columns(pl.col("subjects").list.head(1)))
    ranked, other = (
        expanded(facts, ZERO_SHOT, seed=4).drop_nulls("calibration_rank") for facts in (mini, fewer)
    )
    ranks = ["pair_id", "calibration_rank"]
    assert ranked.select(ranks).sort(ranks).equals(other.select(ranks).sort(ranks))
    numbers = ranked["template_id"].str.tail(3).value_counts()["count"]
    assert (len(numbers), numbers.sum()) == (10, 553)
    assert chisquare(numbers).pvalue > 1e-4


@pytest.mark.parametrize("scope", ["shared", "prompt"])
def test_expand_too_few_pairs_or_no_question_names_relation_and_number(scope: Any) -> None:
    pairs = {f"Q{i}": (["A"], [["x"]]) for i in range(3)}
    facts = make_facts({"P1": (["[X] [Y]"], pairs)})
    for context in ("random", "relation", "template"):
        assert list(expand(facts, Setting(context, 2, scope=scope), seed=0))
        with pytest.raises(InputError, match=naming("4 pairs", "relation P1", "ask")):
            list(expand(facts, Setting(context, 3, scope=scope), seed=0))
    facts = make_facts({"P1": (["Where is [X]? [Y]."], pairs), "P2": (["[X] [Y]"], pairs)})
    for setting in (Setting("zero-shot", 0, "question"), Setting("random", 1, "question")):
        with pytest.raises(InputError, match=naming("relation P2", "prompt.style=question")):
            list(expand(facts, setting, seed=0))


texts = st.tuples(st.sampled_from(["", "a", "ab"]), st.sampled_from(["b", "bc", "c", "d"]))


def weak_hash(value: pl.Expr, seed: int, hash_: Any = pl.Expr.hash) -> pl.Expr:
    """The other hash of a text as it is; the first is one of few."""
    return hash_(value, seed) if seed % 2 else hash_(value, seed) % 2


@pytest.mark.parametrize("hashed", [pl.Expr.hash, weak_hash])
@given(batches=st.lists(st.lists(texts, max_size=8), max_size=5))
def test_mark_any_texts_names_the_first_prompt_of_each(
    hashed: Any, batches: list[list[tuple[str, str]]]
) -> None:
    with patch.object(pl.Expr, "hash", hashed):
        assert_first_of_each(batches)


def assert_first_of_each(batches: list[list[tuple[str, str]]]) -> None:
    repeated, first, number = RepeatedTexts(), dict[tuple[str, str], str](), 0
    for batch in batches:
        expected = list[str | None]()
        ids = [f"p{number + place}" for place in range(len(batch))]
        number += len(batch)
        for prompt_id, text in zip(ids, batch, strict=True):
            expected.append(first.get(text))
            first.setdefault(text, prompt_id)
        rows = pl.DataFrame(
            {"prompt_id": ids, "context_id": [c for c, _ in batch], "query": [q for _, q in batch]},
            schema=dict.fromkeys(("prompt_id", "context_id", "query"), pl.String),
        )
        assert repeated.mark(rows)["same_as"].to_list() == expected


def test_shown_counts_prompts_with_a_right_object_and_with_the_subject() -> None:
    pairs = {"Q1": (["A"], [["x"]]), "Q2": (["B"], [["x"]]), "Q3": (["x"], [["y"]])}
    facts = make_facts({"P1": (["[X] is in [Y]."], pairs)})
    (expansion,) = expand(facts, Setting("template", 2), seed=0)
    assert count_demonstrations(expansion, facts.pairs) == DemonstrationCounts(
        objects=2, subjects=1
    )
    (expansion,) = expand(facts, ZERO_SHOT, seed=0)
    assert count_demonstrations(expansion, facts.pairs) == NOTHING


# Names that are in each other, of letters with marks, and some that stand without blanks.
_NAMES = ["York", "New York", "Yorks", "e\u0301", "東", "東京", ""]
_NAME = st.lists(st.sampled_from(_NAMES), min_size=1, max_size=3)
_PAIRS = st.lists(st.tuples(_NAME, _NAME), min_size=1, max_size=4)


@given(st.data(), _PAIRS)
def test_shown_names_are_those_of_a_loop(
    data: st.DataObject, facts: list[tuple[list[str], list[str]]]
) -> None:
    ids = st.integers(0, len(facts) - 1).map(str)
    contexts = pl.DataFrame(
        data.draw(
            st.lists(
                st.tuples(_NAME.map(" ".join), st.lists(ids, max_size=2)), min_size=1, max_size=3
            )
        ),
        {"text": pl.String, "demonstrations": pl.List(pl.String)},
        orient="row",
    ).with_row_index("context_id")
    pairs = _pairs(facts)
    places = st.tuples(st.integers(0, contexts.height - 1), ids)
    questions = data.draw(st.lists(places, max_size=6))
    prompts = pl.DataFrame(
        questions, {"context_id": pl.UInt32, "pair_id": pl.String}, orient="row"
    ).with_row_index("prompt_id")
    for part in (1, 0):
        expected = {
            number
            for number, (context, pair) in enumerate(questions)
            if not set(facts[int(pair)][part]).isdisjoint(
                name
                for demonstration in contexts["demonstrations"][context]
                for names in facts[int(demonstration)]
                for name in names
                if name in contexts["text"][context]
            )
        }
        prompt_ids = prompts_showing(prompts, contexts, pairs, "object" if part else "subject")
        assert sorted(prompt_ids) == sorted(expected)


_QUERY = st.lists(st.sampled_from([*_NAMES, *" -.s"]), max_size=6).map("".join)


@given(_PAIRS, st.lists(st.tuples(st.integers(0, 3), _QUERY)))
def test_telling_prompts_are_those_of_a_loop(
    facts: list[tuple[list[str], list[str]]], questions: list[tuple[int, str]]
) -> None:
    rows = [(n, str(pair % len(facts)), query) for n, (pair, query) in enumerate(questions)]
    schema = {"prompt_id": pl.UInt32, "pair_id": pl.String, "query": pl.String}
    prompt_ids = prompts_telling(pl.DataFrame(rows, schema, orient="row"), _pairs(facts))
    expected = [
        n for n, pair, query in rows if any(_tells(query, name) for name in facts[int(pair)][1])
    ]
    assert sorted(prompt_ids) == expected


def _tells(query: str, name: str) -> bool:
    return name in query if name[:1] == "東" else f" {_words(name)} " in f" {_words(query)} "


def _words(text: str) -> str:
    return " ".join(
        "".join(c if unicodedata.category(c)[0] in "LMN" else " " for c in text).split()
    )


def _pairs(facts: list[tuple[list[str], list[str]]]) -> pl.DataFrame:
    rows = [(str(n), names, [{"labels": labels}]) for n, (names, labels) in enumerate(facts)]
    return pl.DataFrame(rows, ["pair_id", "subjects", "objects"], orient="row")
