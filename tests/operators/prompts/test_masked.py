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
    MaskedSetting,
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

ALL = MaskedSetting()
ZERO_SHOT = Setting("zero-shot", 0)


def one_slot(facts: Facts) -> Facts:
    slots = pl.col("text").str.count_matches("[Y]", literal=True)
    return Facts(facts.relations, facts.templates.filter(slots == 1), facts.pairs)


def prompts(facts: Facts, setting: MaskedSetting = ALL, seed: int = 0) -> pl.DataFrame:
    return pl.concat(expansion.prompts for expansion in expand(facts, setting, seed=seed))


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
    for tables in expand(mini, MaskedSetting(), seed=0):
        conform(tables.prompts, "prompts")
        conform(tables.contexts, "contexts")
        assert tables.contexts["text"].to_list() == [""]
        assert set(tables.prompts["context_id"]) == set(tables.contexts["context_id"])
        template_ids = tables.prompts["template_id"]
        assert len(template_ids.rle()) == template_ids.n_unique()


def test_expand_same_text_is_shared_within_a_relation_alone() -> None:
    pairs = {"Q1": (["A"], [["x"]]), "Q2": (["A"], [["y"]])}
    rows = prompts(make_facts({r: (["[X] is [Y]."], pairs) for r in ("P1", "P2")}))
    assert rows["same_as"].to_list() == [None, "P1.Q1.000.0", None, "P2.Q1.000.0"]


def test_expand_manual_uses_manual_templates_alone_and_each_has_one_slot() -> None:
    pairs = {"Q1": (["A"], [["x"]])}
    facts = make_facts({"P1": (["[X] is [Y].", "[Y]: [X]."], pairs)})
    assert prompts(facts, MaskedSetting("manual"))["template_id"].to_list() == ["P1.000"]
    assert (MaskedSetting().variant, MaskedSetting("manual").variant) == (None, "templates=manual")
    paraphrases = facts.templates.with_columns(origin=pl.lit("paraphrase"))
    with pytest.raises(InputError, match=naming("relation P1")):
        prompts(Facts(facts.relations, paraphrases, facts.pairs), MaskedSetting("manual"))
    with pytest.raises(InputError, match=naming("template P1.000", "2 [Y]")):
        prompts(make_facts({"P1": (["[X] is [Y] and [Y]."], pairs)}))


def test_content_free_mini_has_three_prompts_a_template(mini: Facts) -> None:
    rows = content_free(mini.templates)
    assert rows.columns == ["template_id", "relation_id", "subject", "query", "prompt_id"]
    assert rows["prompt_id"].n_unique() == rows.height == 3 * mini.templates.height
    assert rows["query"].str.count_matches("[MASK]", literal=True).unique().to_list() == [1]


def test_encode_mask_is_the_tokenizers_own_and_stands_once(tiny_bert: Any, tokenizer: Any) -> None:
    of_bert = tiny_bert.tokenizer
    (ids,) = encode(of_bert, ["Paris lies in [MASK]."])
    assert of_bert.decode(ids) == "[CLS] paris lies in [MASK]. [SEP]"
    assert encode(of_bert, []) == []
    for query in ("no mask", "[MASK] or [MASK]"):
        with pytest.raises(InputError, match=naming("masks", "instead")):
            encode(of_bert, ["Fine [MASK].", query])
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
    rows = candidates(labels)
    assert rows["label"].to_list() == ["US", "Rome"]
    assert rows["token_id"].to_list() == tokenizer(" us rome").input_ids


def test_label_tokens_every_label_has_a_row_in_order() -> None:
    rows = label_tokens(one_relation(), word_piece())
    assert rows.select("pair_id", "object_id", "label_index", "label", "token_id").rows() == [
        ("P1.Q1", "O0", 0, "US", 1),
        ("P1.Q1", "O0", 1, "us", 1),
        ("P1.Q1", "O0", 2, "Us", 1),
        ("P1.Q1", "O1", 0, "New York", None),
        ("P1.Q1", "O1", 1, "Rome", 2),
        ("P1.Q2", "O0", 0, "Atlantis", None),
        ("P1.Q2", "O1", 0, "New York", None),
    ]


def test_count_left_out_counts_labels_objects_and_pairs() -> None:
    counts = count_left_out(label_tokens(one_relation(), word_piece()))
    assert counts.row(0, named=True) == {
        "relation_id": "P1",
        "n_labels": 6,
        "n_labels_left_out": 2,
        "n_objects": 4,
        "n_objects_left_out": 2,
        "n_pairs": 2,
        "n_pairs_left_out": 1,
    }
