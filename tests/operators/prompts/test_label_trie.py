"""Labels behind clozes: the tokens are those of each whole text."""

import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast

from factsweep.operators.errors import InputError
from factsweep.operators.prompts.label_trie import ClozeLabels, Labels, Name, Trie, cuts_at_blanks
from factsweep.operators.prompts.tokens import encode
from tests.messages import naming

WORDS = [
    "Paris",
    "New York",
    "'s-Hertogenbosch",
    "1969",
    "C++",
    "ab",
    "b",
    "a b",
    "(x)",
    "é",
    "中国",
]
CLOZES = ["The capital of France is", "in 19", "it's", "a", "b,", '"', "x (", "中"]
LABEL = st.sampled_from(WORDS) | st.text(st.characters(codec="utf-8"), min_size=1, max_size=5)


def merging(*, pieces: bool) -> Any:
    """A tokenizer with tokens of several letters; without pieces, some reach over a blank."""
    vocabulary = {token: i for i, token in enumerate(["</s>", *"abcdefghij ,", "a b", "ab", " b"])}
    merges = [("a", "b"), (" ", "b"), ("a", " b")]
    backend = Tokenizer(models.BPE(vocab=vocabulary, merges=merges))
    if pieces:
        backend.pre_tokenizer = pre_tokenizers.Split(" ", "merged_with_next")
    return PreTrainedTokenizerFast(tokenizer_object=backend, eos_token="</s>")


def named(labels: list[str]) -> list[Name]:
    return [Name(f"Q{i}", label) for i, label in enumerate(labels)]


def texts(behind: ClozeLabels) -> dict[str, list[int]]:
    """The whole text of each label, by token ids."""
    trie, by_entity = behind.trie, {}
    for node, names in trie.names.items():
        path = [trie.tokens[above] for above in trie.above(node)[-2::-1]]
        by_entity |= {name.entity_id: [*behind.token_ids, *path] for name in names}
    return by_entity


@given(labels=st.lists(LABEL, min_size=1, max_size=20), cloze=st.sampled_from(CLOZES))
def test_behind_is_the_whole_text_of_each_label(
    tokenizer: Any, labels: list[str], cloze: str
) -> None:
    names = named(labels)
    (behind,) = Labels(tokenizer, names).behind([cloze])
    tidy = {name.entity_id: name.label.strip() for name in names if name.label.strip()}
    assert texts(behind) == {
        entity_id: tokenizer(f"{cloze} {label}").input_ids for entity_id, label in tidy.items()
    }


def test_behind_shares_one_trie_where_pieces_begin_at_blanks(tokenizer: Any) -> None:
    labels = Labels(tokenizer, named(WORDS))
    first, second = labels.behind(CLOZES[:2])
    assert first.trie is second.trie
    assert list(first.token_ids) == tokenizer(CLOZES[0]).input_ids


def test_behind_cloze_that_fails_its_check_is_tokenised_whole(
    tokenizer: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    labels = Labels(tokenizer, named(WORDS))
    monkeypatch.setattr(Labels, "_paths", [()] * len(WORDS))
    (behind,) = labels.behind([CLOZES[0]])
    assert texts(behind)["Q0"] == tokenizer(f"{CLOZES[0]} Paris").input_ids


def test_behind_merged_token_belongs_to_no_cloze() -> None:
    """`a b` is one token: the cloze ends in it no more, and is a path of its own."""
    reads = merging(pieces=False)
    (behind,) = Labels(reads, named(["b", "c"])).behind(["da"])
    assert reads.convert_ids_to_tokens(behind.token_ids) == ["d"]
    assert texts(behind) == {"Q0": encode(reads, ["da b"])[0], "Q1": encode(reads, ["da c"])[0]}
    trie = behind.trie
    assert reads.convert_ids_to_tokens([trie.tokens[trie.start]]) == ["a"]
    assert trie.start != 0


def test_cuts_at_blanks_asks_for_pieces_and_trusts_none_that_rewrites_texts(tokenizer: Any) -> None:
    rewriting = merging(pieces=True)
    rewriting.backend_tokenizer.normalizer = normalizers.NFKC()
    reads = (tokenizer, merging(pieces=True), merging(pieces=False), rewriting)
    assert [*map(cuts_at_blanks, reads)] == [True, True, False, False]


def test_labels_tokenizer_that_ends_texts_is_refused() -> None:
    reads = merging(pieces=True)
    reads.backend_tokenizer.post_processor = processors.TemplateProcessing(
        single="$A </s>", special_tokens=[("</s>", 0)]
    )
    with pytest.raises(InputError, match=naming("add_eos_token")):
        Labels(reads, named(["b"])).behind(["d"])


@given(labels=st.lists(st.tuples(st.integers(0, 3), st.lists(st.integers(0, 3), max_size=3))))
def test_trie_any_order_of_labels_is_the_same_trie_with_nodes_after_those_above(
    labels: list[tuple[int, list[int]]],
) -> None:
    paths = [(Name(f"Q{entity}", f"{path}"), tuple(path)) for entity, path in labels]
    shuffled = random.Random(0).sample(paths, len(paths))
    assert Trie.of(paths) == Trie.of(shuffled)
    assert all(parent < node for node, parent in enumerate(Trie.of(paths).parents))


def test_trie_names_that_two_entities_share_end_at_one_node() -> None:
    trie = Trie.of([(Name("Q2", "Georgia"), (4,)), (Name("Q1", "Georgia"), (4,))])
    assert trie.nodes_of == {"Q1": [1], "Q2": [1]}
    assert trie.n_names == [2, 2]


def test_labels_that_stand_twice_count_once(tokenizer: Any) -> None:
    names = [Name("Q1", "Paris"), Name("Q1", " Paris "), Name("Q1", " ")]
    (behind,) = Labels(tokenizer, names).behind(["in"])
    assert [len(nodes) for nodes in behind.trie.nodes_of.values()] == [1]
