"""Shown: prompts whose demonstrations have their answer or subject, against a loop over texts."""

import unicodedata

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from factsweep.operators.datasets.facts import Facts
from factsweep.operators.prompts.expansion import Expansion, Shown, expand, showing, shown, telling
from factsweep.operators.prompts.setting import Setting


@pytest.mark.parametrize(
    "setting",
    [Setting("template", 4), Setting("random", 4, scope="prompt"), Setting("zero-shot", 0)],
)
def test_shown_answers_are_those_of_a_loop(mini: Facts, setting: Setting) -> None:
    pairs = mini.pairs.rows_by_key("pair_id", named=True, unique=True)
    counts = []
    for expansion in expand(mini, setting, seed=1):
        expected = _by_hand(expansion, pairs)
        assert shown(expansion, mini.pairs) == expected
        counts.append(expected)
    assert any(each.objects for each in counts) == bool(setting.shots)


def _by_hand(expansion: Expansion, pairs: dict[str, dict[str, list[str]]]) -> Shown:
    contexts = expansion.contexts.rows_by_key("context_id", named=True, unique=True)
    objects = subjects = 0
    for prompt in expansion.prompts.iter_rows(named=True):
        context = contexts[prompt["context_id"]]
        known = {
            name
            for each in context["demonstrations"]
            for name in (*pairs[each]["subjects"], *_labels(pairs[each]))
            if name in context["text"]
        }
        asked = pairs[prompt["pair_id"]]
        objects += not known.isdisjoint(_labels(asked))
        subjects += not known.isdisjoint(asked["subjects"])
    return Shown(objects, subjects)


def _labels(pair: dict[str, list]) -> list[str]:  # type: ignore[type-arg]
    return [label for each in pair["objects"] for label in each["labels"]]


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
    asked = data.draw(st.lists(places, max_size=6))
    prompts = pl.DataFrame(
        asked, {"context_id": pl.UInt32, "pair_id": pl.String}, orient="row"
    ).with_row_index("prompt_id")
    for part in (1, 0):
        expected = {
            number
            for number, (context, pair) in enumerate(asked)
            if not set(facts[int(pair)][part]).isdisjoint(
                name
                for shown in contexts["demonstrations"][context]
                for names in facts[int(shown)]
                for name in names
                if name in contexts["text"][context]
            )
        }
        found = showing(prompts, contexts, pairs, "object" if part else "subject")
        assert sorted(found) == sorted(expected)


_QUERY = st.lists(st.sampled_from([*_NAMES, *" -.s"]), max_size=6).map("".join)


@given(_PAIRS, st.lists(st.tuples(st.integers(0, 3), _QUERY)))
def test_telling_prompts_are_those_of_a_loop(
    facts: list[tuple[list[str], list[str]]], asked: list[tuple[int, str]]
) -> None:
    rows = [(n, str(pair % len(facts)), query) for n, (pair, query) in enumerate(asked)]
    schema = {"prompt_id": pl.UInt32, "pair_id": pl.String, "query": pl.String}
    found = telling(pl.DataFrame(rows, schema, orient="row"), _pairs(facts))
    expected = [
        n for n, pair, query in rows if any(_tells(query, it) for it in facts[int(pair)][1])
    ]
    assert sorted(found) == expected


def _tells(query: str, name: str) -> bool:
    return name in query if name[:1] == "東" else f" {_words(name)} " in f" {_words(query)} "


def _words(text: str) -> str:
    return " ".join(
        "".join(c if unicodedata.category(c)[0] in "LMN" else " " for c in text).split()
    )


def _pairs(facts: list[tuple[list[str], list[str]]]) -> pl.DataFrame:
    rows = [(str(n), names, [{"labels": labels}]) for n, (names, labels) in enumerate(facts)]
    return pl.DataFrame(rows, ["pair_id", "subjects", "objects"], orient="row")
