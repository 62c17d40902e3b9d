"""Prompts of masked models: the sentence with one mask, and those whose subject says nothing."""

from collections.abc import Callable
from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from factsweep.operators.datasets.facts import Facts
from factsweep.operators.errors import InputError
from factsweep.operators.prompts import expansion
from factsweep.operators.prompts.masked import Masked, content_free, encode, expand
from factsweep.operators.prompts.setting import Setting
from factsweep.operators.schemas import conform
from tests.messages import naming

MakeFacts = Callable[..., Facts]
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


def test_expand_tables_have_the_canonical_columns_and_one_empty_context(mini: Facts) -> None:
    first = next(expand(mini, Masked(), seed=0))
    conform(first.prompts, "prompts")
    conform(first.contexts, "contexts")
    assert first.contexts["text"].to_list() == [""]
    assert set(first.prompts["context_id"]) == set(first.contexts["context_id"])


def test_expand_prompts_of_a_template_stand_together(mini: Facts) -> None:
    for each in expand(mini, Masked(), seed=0):
        runs = each.prompts["template_id"].rle()
        assert len(runs) == each.prompts["template_id"].n_unique()


def test_expand_same_text_is_shared_within_a_relation_alone(make_facts: MakeFacts) -> None:
    pairs = {"Q1": (["A"], [["x"]]), "Q2": (["A"], [["y"]])}
    found = prompts(make_facts({r: (["[X] is [Y]."], pairs) for r in ("P1", "P2")}))
    assert found["same_as"].to_list() == [None, "P1.Q1.000.0", None, "P2.Q1.000.0"]


def test_expand_manual_uses_manual_templates_alone(make_facts: MakeFacts) -> None:
    facts = make_facts({"P1": (["[X] is [Y].", "[Y]: [X]."], {"Q1": (["A"], [["x"]])})})
    assert prompts(facts, Masked("manual"))["template_id"].to_list() == ["P1.000"]
    assert (Masked().variant, Masked("manual").variant) == (None, "templates=manual")


def test_expand_two_slots_are_refused(make_facts: MakeFacts) -> None:
    facts = make_facts({"P1": (["[X] is [Y] and [Y]."], {"Q1": (["A"], [["x"]])})})
    with pytest.raises(InputError, match=naming("template P1.000", "2 [Y]")):
        list(expand(facts, Masked(), seed=0))


def test_expand_relation_without_template_is_refused(make_facts: MakeFacts) -> None:
    facts = make_facts({"P1": (["[X] is [Y]."], {"Q1": (["A"], [["x"]])})})
    templates = facts.templates.with_columns(origin=pl.lit("paraphrase"))
    facts = Facts(facts.relations, templates, facts.pairs)
    with pytest.raises(InputError, match=naming("relation P1")):
        list(expand(facts, Masked("manual"), seed=0))


def test_content_free_mini_has_three_prompts_a_template(mini: Facts) -> None:
    found = content_free(mini.templates)
    assert found.columns == ["template_id", "relation_id", "subject", "query", "prompt_id"]
    assert found["prompt_id"].n_unique() == found.height == 3 * mini.templates.height
    assert found["query"].str.count_matches("[MASK]", literal=True).unique().to_list() == [1]


def test_encode_mask_is_the_tokenizers_own(tiny_bert: Any) -> None:
    tokenizer = tiny_bert.tokenizer
    (ids,) = encode(tokenizer, ["Paris lies in [MASK]."])
    assert tokenizer.decode(ids) == "[CLS] paris lies in [MASK]. [SEP]"
    assert encode(tokenizer, []) == []


@pytest.mark.parametrize("query", ["no mask", "[MASK] or [MASK]"])
def test_encode_not_one_mask_is_refused(tiny_bert: Any, query: str) -> None:
    with pytest.raises(InputError, match=naming("masks", "instead")):
        encode(tiny_bert.tokenizer, ["Fine [MASK].", query])


def test_encode_decoder_tokenizer_is_refused(tokenizer: Any) -> None:
    with pytest.raises(InputError, match=naming("mask", "token")):
        encode(tokenizer, ["[MASK]"])
