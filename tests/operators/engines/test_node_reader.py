"""Tries read text by text, several clozes together: as each by itself, in fewer calls."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from factsweep.operators import seeds
from factsweep.operators.engines.preference import (
    Asked,
    PreferRequest,
    Read,
    Search,
    log_sum,
    preferences,
    preferred,
)
from factsweep.operators.prompts.label_trie import Name, Trie

ENDING = (1, 2)
TOKEN = st.integers(3, 6)
LABELS = st.lists(
    st.tuples(st.integers(0, 5), st.lists(TOKEN, min_size=1, max_size=3)), min_size=2, max_size=12
).map(lambda rows: [(Name(f"Q{e}", str(path)), tuple(path)) for e, path in rows])
SEARCHES: tuple[Search, ...] = ("given", "exact", "optimal")


class Model:
    """Says of every token behind a text what the two determine; counts how often it is asked."""

    def __init__(self) -> None:
        self.n_calls = 0

    def __call__(self, asked: Sequence[Asked]) -> list[Mapping[int, float]]:
        self.n_calls += 1
        return [
            {token: -float(seeds.key(*text, token) % 1000) / 100 for token in tokens}
            for text, tokens in asked
        ]


class Alone:
    """A reader of one cloze, node by node."""

    def __init__(self, request: PreferRequest) -> None:
        self._request, self.n_tokens = request, 0

    def read(self, nodes: Sequence[int]) -> list[Read]:
        return list(map(self._read, nodes))

    def _read(self, node: int) -> Read:
        trie = self._request.trie
        path = [trie.tokens[each] for each in reversed(trie.above(node)[:-1])]
        text = [*self._request.token_ids, *path]
        self.n_tokens += len(text)
        below = [trie.tokens[child] for child in trie.children[node]]
        (said,) = Model()([(text, [*below, *ENDING])])
        return Read([said[each] for each in below], log_sum(said[each] for each in ENDING))


def request(name: str, labels: list[tuple[Name, tuple[int, ...]]], search: Search) -> PreferRequest:
    trie = Trie.of(labels)
    first, *rest = sorted(trie.nodes_of)
    cloze = [int(name), 7]
    distractors = rest if search == "given" else ()
    return PreferRequest(name, cloze, trie, ENDING, first, search, 2, distractors)


@given(st.lists(st.tuples(LABELS, st.sampled_from(SEARCHES)), max_size=7), st.integers(1, 4))
def test_preferences_together_are_those_of_each_alone(
    asked: list[tuple[list[tuple[Name, tuple[int, ...]]], Search]], n_at_once: int
) -> None:
    requests = [request(str(i), *each) for i, each in enumerate(asked)]
    found = {each.request_id: each for each in preferences(requests, Model(), n_at_once=n_at_once)}
    assert found == {each.request_id: preferred(each, Alone(each)) for each in requests}


@pytest.mark.parametrize("search", SEARCHES)
def test_preferences_of_several_clozes_take_as_many_calls_as_one(search: Search) -> None:
    labels = [(Name(f"Q{i}", str(i)), (3 + i % 3, 4 + i)) for i in range(9)]
    one = request("1", labels, search)
    alone, together = Model(), Model()
    list(preferences([one], alone, n_at_once=8))
    found = list(
        preferences([replace(one, request_id=f"{i}") for i in range(8)], together, n_at_once=8)
    )
    assert together.n_calls == alone.n_calls
    assert len(found) == 8
    assert all(math.isfinite(each.answer.logprob) for each in found)


def test_preferences_of_nothing_ask_nothing() -> None:
    model = Model()
    assert list(preferences([], model, n_at_once=3)) == []
    assert model.n_calls == 0
