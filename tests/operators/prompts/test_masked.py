"""Prompts of masked models, and the labels that they can give: one token, to any tokenizer."""

from collections.abc import Callable
from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from factsweep.operators.datasets.facts import Facts
from factsweep.operators.errors import InputError
from factsweep.operators.prompts import expansion
from factsweep.operators.prompts.masked import (
    Masked,
    candidates,
    content_free,
    count_left_out,
    encode,
    expand,
    label_tokens,
)
from factsweep.operators.prompts.setting import Setting
from factsweep.operators.schemas import conform
from tests.builders import facts as make_facts
from tests.messages import naming

ALL = Masked()
ZERO_SHOT = Setting("zero-shot", 0)


def one_slot(facts: Facts) -> Facts:
    slots = pl.col("text").str.count_matches("[Y]", literal=True)
    return Facts(facts.relations, facts.templates.filter(slots == 1), facts.pairs)


def prompts(facts: Facts, setting: Masked = ALL, seed: int = 0) -> pl.DataFrame:
    return pl.concat(each.prompts for each in expand(facts, setting, seed=seed))


@given(data=st.data())
def test_expand_any_facts_writes_each_name_into_each_template(
    data: st.DataObject, random_facts: Callable[..., st.SearchStrategy[Facts]]
) -> None:
    facts = one_slot(data.draw(random_facts()))
    expected = {
        f"{pair['pair_id']}.{template['template_id'][-3:]}.{index}": template["text"]
        .replace("[Y]", "[MASK]")
        .replace("[X]", name)
        for pair in facts.pairs.to_dicts()
        for template in facts.templates.filter(relation_id=pair["relation_id"]).to_dicts()
        for index, name in enumerate(pair["subjects"])
    }
    assert dict(prompts(facts).select("prompt_id", "query").iter_rows()) == expected


@given(data=st.data())
def test_expand_any_facts_ids_and_ranks_are_those_of_zero_shot(
    data: st.DataObject, random_facts: Callable[..., st.SearchStrategy[Facts]]
) -> None:
    facts = one_slot(data.draw(random_facts()))
    columns = ("prompt_id", "pair_id", "template_id", "subject_index", "calibration_rank")
    decoders = pl.concat(e.prompts for e in expansion.expand(facts, ZERO_SHOT, seed=3))
    assert prompts(facts, seed=3).select(columns).equals(decoders.select(columns))


def test_expand_tables_are_canonical_with_one_empty_context_and_a_template_together(
    mini: Facts,
) -> None:
    for each in expand(mini, Masked(), seed=0):
        conform(each.prompts, "prompts")
        conform(each.contexts, "contexts")
        assert each.contexts["text"].to_list() == [""]
        assert set(each.prompts["context_id"]) == set(each.contexts["context_id"])
        assert len(each.prompts["template_id"].rle()) == each.prompts["template_id"].n_unique()


def test_expand_same_text_is_shared_within_a_relation_alone() -> None:
    pairs = {"Q1": (["A"], [["x"]]), "Q2": (["A"], [["y"]])}
    found = prompts(make_facts({r: (["[X] is [Y]."], pairs) for r in ("P1", "P2")}))
    assert found["same_as"].to_list() == [None, "P1.Q1.000.0", None, "P2.Q1.000.0"]


def test_expand_manual_uses_manual_templates_alone_and_each_has_one_slot() -> None:
    pairs = {"Q1": (["A"], [["x"]])}
    facts = make_facts({"P1": (["[X] is [Y].", "[Y]: [X]."], pairs)})
    assert prompts(facts, Masked("manual"))["template_id"].to_list() == ["P1.000"]
    assert (Masked().variant, Masked("manual").variant) == (None, "templates=manual")
    others = facts.templates.with_columns(origin=pl.lit("paraphrase"))
    with pytest.raises(InputError, match=naming("relation P1")):
        prompts(Facts(facts.relations, others, facts.pairs), Masked("manual"))
    with pytest.raises(InputError, match=naming("template P1.000", "2 [Y]")):
        prompts(make_facts({"P1": (["[X] is [Y] and [Y]."], pairs)}))


def test_content_free_mini_has_three_prompts_a_template(mini: Facts) -> None:
    found = content_free(mini.templates)
    assert found.columns == ["template_id", "relation_id", "subject", "query", "prompt_id"]
    assert found["prompt_id"].n_unique() == found.height == 3 * mini.templates.height
    assert found["query"].str.count_matches("[MASK]", literal=True).unique().to_list() == [1]


def test_encode_mask_is_the_tokenizers_own_and_stands_once(tiny_bert: Any, tokenizer: Any) -> None:
    own = tiny_bert.tokenizer
    (ids,) = encode(own, ["Paris lies in [MASK]."])
    assert own.decode(ids) == "[CLS] paris lies in [MASK]. [SEP]"
    assert encode(own, []) == []
    for query in ("no mask", "[MASK] or [MASK]"):
        with pytest.raises(InputError, match=naming("masks", "instead")):
            encode(own, ["Fine [MASK].", query])
    with pytest.raises(InputError, match=naming("mask", "token")):
        encode(tokenizer, ["[MASK]"])


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


def one_relation() -> Facts:
    pairs = {
        "Q1": (["A"], [["US", "us", "Us"], ["New York", "Rome"]]),
        "Q2": (["B"], [["Atlantis"], ["New York"]]),
    }
    return make_facts({"P1": (["[X] is [Y]."], pairs)})


@pytest.mark.parametrize("tokenizer", [word_piece(), sentence_piece(), byte_level()])
def test_candidates_any_kind_of_tokenizer_are_words_of_a_sentence(tokenizer: Any) -> None:
    labels = label_tokens(one_relation(), tokenizer)
    found = candidates(labels)
    assert found["label"].to_list() == ["US", "Rome"]
    assert found["token_id"].to_list() == tokenizer(" us rome").input_ids


def test_label_tokens_every_label_has_a_row_in_order() -> None:
    found = label_tokens(one_relation(), word_piece())
    assert found.select("pair_id", "object_id", "label_index", "label", "token_id").rows() == [
        ("P1.Q1", "O0", 0, "US", 1),
        ("P1.Q1", "O0", 1, "us", 1),
        ("P1.Q1", "O0", 2, "Us", 1),
        ("P1.Q1", "O1", 0, "New York", None),
        ("P1.Q1", "O1", 1, "Rome", 2),
        ("P1.Q2", "O0", 0, "Atlantis", None),
        ("P1.Q2", "O1", 0, "New York", None),
    ]


def test_count_left_out_counts_labels_objects_and_pairs() -> None:
    found = count_left_out(label_tokens(one_relation(), word_piece()))
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
