"""The diversity of a set's templates, against a literal reading of each formula."""

import math
from collections.abc import Callable, Mapping, Sequence
from itertools import combinations
from statistics import mean

import networkx as nx
import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from factsweep.operators.datasets.facts import Facts, counts
from factsweep.operators.errors import InputError
from factsweep.operators.metrics.data_set import (
    DIVERSITY,
    centrality,
    diversity,
    lexicon,
    semantics,
    syntax,
    words,
)
from factsweep.operators.schemas import empty

MakeFacts = Callable[[Mapping[str, object]], Facts]

texts = st.lists(
    st.lists(st.sampled_from(["[X]", "[Y]", "is", "Is", "a.", "b?", "-"])).map(" ".join), max_size=6
)


@st.composite
def trees(draw: st.DrawFn) -> list[int]:
    """Heads of a tree whose words stand in a random order; sometimes of several sentences."""
    n = draw(st.integers(1, 9))
    heads = [draw(st.integers(0, max(0, place - 1))) for place in range(n)]
    for place in draw(st.lists(st.integers(0, n - 1), max_size=2)):
        heads[place] = place
    order = draw(st.permutations(range(n)))
    moved = [0] * n
    for place, head in enumerate(heads):
        moved[order[place]] = order[head]
    return moved


def length_in_words(sentences: Sequence[str]) -> NDArray[np.floating]:
    """An encoder that knows the number of words alone."""
    return np.array([[float(len(sentence.split()))] for sentence in sentences])


def chains(sentences: Sequence[str]) -> list[list[int]]:
    """A parser for which every word hangs from the one before it."""
    return [[max(0, place - 1) for place in range(len(sentence.split()))] for sentence in sentences]


def naive_mean(items: Sequence[object], distance: Callable[..., float]) -> float | None:
    pairs = list(combinations(items, 2))
    return mean(distance(a, b) for a, b in pairs) if pairs else None


@given(texts)
def test_lexicon_is_the_mean_jaccard_distance(sentences: list[str]) -> None:
    def distance(a: str, b: str) -> float:
        first, second = words(a), words(b)
        return 1 - len(first & second) / len(first | second) if first | second else 0.0

    assert lexicon(sentences) == pytest.approx(naive_mean(sentences, distance))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("[X] was born in [Y] .", {"[X]", "was", "born", "in", "[Y]"}),
        ("[X]'s capital, [Y].", {"[X]", "s", "capital", "[Y]"}),
        ("The X-ray of [X] is [Y]", {"The", "X", "ray", "of", "[X]", "is", "[Y]"}),
        ("?!", set()),
    ],
)
def test_words_are_runs_of_letters_and_slots(text: str, expected: set[str]) -> None:
    assert words(text) == expected


@given(trees())
def test_centrality_is_that_of_networkx(heads: list[int]) -> None:
    roots = [place for place, head in enumerate(heads) if place == head]
    graph = nx.Graph()
    graph.add_nodes_from(range(len(heads)))
    graph.add_edges_from((place, head) for place, head in enumerate(heads) if place != head)
    graph.add_edges_from((roots[0], root) for root in roots[1:])
    expected = (0.0, 0.0)
    if len(heads) > 1:
        degrees, closeness = nx.degree_centrality(graph), nx.closeness_centrality(graph)
        expected = (max(degrees.values()), max(closeness.values()))
    assert centrality(heads) == pytest.approx(expected)


@given(st.lists(trees(), max_size=4))
def test_syntax_is_the_mean_euclidean_distance(several: list[list[int]]) -> None:
    expected = naive_mean(several, lambda a, b: math.dist(centrality(a), centrality(b)))
    assert syntax(several) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("heads", "message"), [([1, 0], "have no root"), ([0, 2, 1], "they have a circle")]
)
def test_centrality_heads_that_make_no_tree_are_refused(heads: list[int], message: str) -> None:
    with pytest.raises(InputError, match=message):
        centrality(heads)


@given(st.lists(st.lists(st.floats(-10, 10), min_size=2, max_size=2), max_size=6))
def test_semantics_is_the_mean_euclidean_distance(points: list[list[float]]) -> None:
    table = np.array(points).reshape(-1, 2)
    assert semantics(table) == pytest.approx(naive_mean(points, math.dist))


@given(data=st.data())
def test_diversity_quantity_is_the_prompts_a_pair(
    random_facts: Callable[[], st.SearchStrategy[Facts]], data: st.DataObject
) -> None:
    facts = data.draw(random_facts())
    *relation_rows, (_, n_pairs, n_templates, quantity, *_) = diversity(facts).rows()
    figures = counts(facts)
    assert (n_pairs, n_templates) == (figures["pairs"], figures["templates"])
    assert quantity * n_pairs == pytest.approx(figures["prompts"])
    for relation_id, _, _, relation_quantity, *_ in relation_rows:
        part = counts(facts.of(relation_id))
        assert relation_quantity == pytest.approx(part["prompts"] / part["pairs"])


def test_diversity_of_the_whole_is_the_mean_over_relations_with_two_templates(
    make_facts: MakeFacts,
) -> None:
    pair = {"Q1": (["one"], [["other"]])}
    facts = make_facts(
        {
            "P1": (["[X] is [Y].", "[X] [Y]", "so [X] is [Y]"], pair),
            "P2": (["[X] is [Y].", "[X] was [Y]."], pair),
            "P3": (["[X] is [Y]."], pair),
        }
    )
    table = diversity(facts, parse=chains, encode=length_in_words)
    assert table.schema == DIVERSITY
    measured = table.select("lexicon", "syntax", "semantics")
    assert measured.row(2) == (None, None, None)
    assert measured.row(3) == pytest.approx(measured[:2].mean().row(0))
    assert measured["semantics"].to_list()[:2] == pytest.approx([4 / 3, 0.0])


def test_diversity_without_parser_and_encoder_leaves_them_null(make_facts: MakeFacts) -> None:
    facts = make_facts({"P1": (["[X] [Y].", "[X] is [Y]."], {"Q1": (["one"], [["other"]])})})
    assert diversity(facts).select("syntax", "semantics").rows() == [(None, None)] * 2


def test_diversity_templates_without_pairs_have_no_quantity() -> None:
    templates = pl.DataFrame({"relation_id": "P1", "text": ["[X] [Y].", "[X] is [Y]."]})
    table = diversity(Facts(empty("relations"), templates, empty("pairs")))
    assert table.select("n_pairs", "quantity").rows() == [(0, None)] * 2


def test_diversity_parser_and_encoder_read_names_for_slots(make_facts: MakeFacts) -> None:
    read: list[str] = []

    def parse(sentences: Sequence[str]) -> list[list[int]]:
        read.extend(sentences)
        return chains(sentences)

    facts = make_facts({"P1": (["[X] is [Y]."], {"Q1": (["one"], [["other"]])})})
    diversity(facts, parse=parse)
    assert read == ["X is Y."]
