"""Candidates: labels that are one token, under several kinds of tokenizer."""

from typing import Any

import pytest
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from factsweep.operators.datasets.facts import Facts
from factsweep.operators.prompts.masked import candidates, count_left_out, label_tokens


def reads(backend: Tokenizer) -> Any:
    return PreTrainedTokenizerFast(tokenizer_object=backend, unk_token="[UNK]")


def word_piece() -> Any:
    words = ["[UNK]", "us", "rome", "new", "york", "paris", "##ian"]
    backend = Tokenizer(models.WordPiece({w: i for i, w in enumerate(words)}, unk_token="[UNK]"))
    backend.normalizer = normalizers.BertNormalizer(lowercase=True)
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    return reads(backend)


def sentence_piece() -> Any:
    words = ["[UNK]", "▁us", "▁rome", "▁new", "▁york", "▁paris", "ian"]
    backend = Tokenizer(models.Unigram([(word, -1.0) for word in words], unk_id=0))
    backend.normalizer = normalizers.Lowercase()
    backend.pre_tokenizer = pre_tokenizers.Metaspace()
    return reads(backend)


def byte_level() -> Any:
    # The word at the start of a text is another token than the word in a sentence.
    words = ["[UNK]", "rome", "Ġus", "Ġrome", "Ġnew", "Ġyork", "Ġparis", "ian"]
    backend = Tokenizer(models.WordLevel({w: i for i, w in enumerate(words)}, unk_token="[UNK]"))
    backend.normalizer = normalizers.Lowercase()
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    return reads(backend)


def one_relation(make_facts: Any) -> Facts:
    pairs = {
        "Q1": (["A"], [["US", "us", "Us"], ["New York", "Rome"]]),
        "Q2": (["B"], [["Atlantis"], ["New York"]]),
    }
    return make_facts({"P1": (["[X] is [Y]."], pairs)})


@pytest.mark.parametrize("tokenizer", [word_piece(), sentence_piece(), byte_level()])
def test_candidates_any_kind_of_tokenizer_are_words_of_a_sentence(
    tokenizer: Any, make_facts: Any
) -> None:
    labels = label_tokens(one_relation(make_facts), tokenizer)
    found = candidates(labels)
    assert found["label"].to_list() == ["US", "Rome"]
    assert found["token_id"].to_list() == tokenizer(" us rome").input_ids


def test_label_tokens_every_label_has_a_row_in_order(make_facts: Any) -> None:
    found = label_tokens(one_relation(make_facts), word_piece())
    assert found.select("pair_id", "object_id", "label_index", "label", "token_id").rows() == [
        ("P1.Q1", "O0", 0, "US", 1),
        ("P1.Q1", "O0", 1, "us", 1),
        ("P1.Q1", "O0", 2, "Us", 1),
        ("P1.Q1", "O1", 0, "New York", None),
        ("P1.Q1", "O1", 1, "Rome", 2),
        ("P1.Q2", "O0", 0, "Atlantis", None),
        ("P1.Q2", "O1", 0, "New York", None),
    ]


def test_count_left_out_counts_labels_objects_and_pairs(make_facts: Any) -> None:
    found = count_left_out(label_tokens(one_relation(make_facts), word_piece()))
    assert found.row(0, named=True) == {
        "relation_id": "P1",
        "n_labels": 6,
        "n_labels_left_out": 2,
        "n_objects": 4,
        "n_objects_left_out": 2,
        "n_pairs": 2,
        "n_pairs_left_out": 1,
    }


def test_candidates_mini_decode_to_their_labels(mini: Facts, tiny_bert: Any) -> None:
    labels = label_tokens(mini, tiny_bert.tokenizer)
    found = candidates(labels)
    assert found.select("relation_id", "token_id").is_unique().all()
    folded = tiny_bert.tokenizer.backend_tokenizer.normalizer.normalize_str
    words = [tiny_bert.tokenizer.decode([token]) for token in found["token_id"]]
    assert words == [folded(label) for label in found["label"]]
    counts = count_left_out(labels)
    assert counts["n_labels_left_out"].sum() > 0
    assert (counts["n_pairs_left_out"] < counts["n_pairs"]).all()
