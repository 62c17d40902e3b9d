"""Masked models, against transformers' own fill-mask pipeline."""

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
from tokenizers import AddedToken, Tokenizer
from tokenizers.models import BPE
from tokenizers.pre_tokenizers import ByteLevel, Metaspace
from tokenizers.processors import TemplateProcessing
from tokenizers.trainers import BpeTrainer
from transformers import (
    AlbertConfig,
    AlbertForMaskedLM,
    AutoModelForMaskedLM,
    DebertaV2Config,
    FillMaskPipeline,
    ModernBertConfig,
    PreTrainedTokenizerFast,
    RobertaConfig,
    XLMRobertaConfig,
)

from factsweep.operators.datasets.facts import Facts
from factsweep.operators.engines import transformers as batched_lm
from factsweep.operators.engines.protocol import MaskedRequest, Prediction
from factsweep.operators.engines.transformers import MaskedLM
from factsweep.operators.engines.transformers.batches import cut_batches
from factsweep.operators.prompts.masked import MaskedSetting, encode, expand, label_tokens
from tests.messages import naming

CANDIDATES = [11, 7, 300, 7]


def requests(tokenizer: Any, queries: list[str]) -> list[MaskedRequest]:
    ids = encode(tokenizer, queries)
    return [MaskedRequest(str(i), token_ids, CANDIDATES) for i, token_ids in enumerate(ids)]


def by_id(predictions: Iterator[Prediction]) -> dict[str, Prediction]:
    return {prediction.request_id: prediction for prediction in predictions}


@pytest.fixture(scope="module")
def queries(mini: Facts) -> list[str]:
    prompts = next(expand(mini, MaskedSetting(), seed=0)).prompts
    return prompts["query"].sample(40, seed=1).to_list()


@pytest.fixture(scope="module")
def tiny_albert(tiny_bert: Any) -> Any:
    torch.manual_seed(0)
    config = AlbertConfig(
        vocab_size=len(tiny_bert.tokenizer),
        embedding_size=16,
        hidden_size=32,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=32,
    )
    return AlbertForMaskedLM(config)


def pieces(texts: list[str], *, of_bytes: bool) -> PreTrainedTokenizerFast:
    """A tokenizer whose words carry their space: as RoBERTa's (bytes), or XLM-R's (characters)."""
    mask = AddedToken("<mask>", lstrip=True, special=True)
    special = ["<s>", "</s>", "<pad>", "<unk>"]
    backend = Tokenizer(BPE(unk_token="<unk>"))
    backend.pre_tokenizer = ByteLevel(add_prefix_space=False) if of_bytes else Metaspace()
    backend.train_from_iterator(texts, BpeTrainer(vocab_size=2000, special_tokens=special))
    names = {"bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>", "unk_token": "<unk>"}
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend, mask_token=mask, **names)
    ids = [("<s>", tokenizer.bos_token_id), ("</s>", tokenizer.eos_token_id)]
    backend.post_processor = TemplateProcessing(single="<s> $A </s>", special_tokens=ids)
    return tokenizer


def encoders(texts: list[str]) -> dict[str, tuple[Any, Any]]:
    """Tiny random models of today's kinds, each with a tokenizer of its kind."""
    sizes = {
        "hidden_size": 32,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "intermediate_size": 32,
        "max_position_embeddings": 80,
    }
    # DeBERTa-v3's head and distances between words; ModernBERT looks both near and far.
    deberta = {"relative_attention": True, "pos_att_type": ["p2c", "c2p"], "position_buckets": 8}
    modern = {"reference_compile": False, "local_attention": 8, "global_attn_every_n_layers": 2}
    kinds = {
        "roberta": (RobertaConfig, {}, True),
        "xlm-roberta": (XLMRobertaConfig, {}, False),
        "deberta-v2": (DebertaV2Config, {**deberta, "legacy": False}, False),
        "modernbert": (ModernBertConfig, modern, True),
    }
    models = {}
    torch.manual_seed(0)
    for name, (config, options, of_bytes) in kinds.items():
        tokenizer = pieces(texts, of_bytes=of_bytes)
        ids = {"pad_token_id": tokenizer.pad_token_id, "bos_token_id": tokenizer.bos_token_id}
        model_config = config(vocab_size=len(tokenizer), **sizes, **options, **ids)
        models[name] = AutoModelForMaskedLM.from_config(model_config), tokenizer
    return models


def test_predictions_equal_the_fill_mask_pipeline(
    tiny_bert: Any, tiny_albert: Any, queries: list[str], mini: Facts, subtests: pytest.Subtests
) -> None:
    models = {"bert": (tiny_bert.model, tiny_bert.tokenizer)}
    models["albert"] = tiny_albert, tiny_bert.tokenizer
    models |= encoders([*mini.templates["text"], *label_tokens(mini, tiny_bert.tokenizer)["label"]])
    for name, (model, tokenizer) in models.items():
        with subtests.test(name):
            assert_equal_to_peer(model, tokenizer, queries)


def test_label_of_pieces_with_a_space_is_the_token_of_a_word_in_a_sentence(mini: Facts) -> None:
    tokenizer = pieces(["It is Paris .", "Paris is here ."] * 9, of_bytes=True)
    inside, at_start = tokenizer(["It is Paris", "Paris"], add_special_tokens=False).input_ids
    assert inside[-1] != at_start[0]
    token_ids = label_tokens(mini, tokenizer).filter(label="Paris")["token_id"]
    assert set(token_ids) == {inside[-1]}


def assert_equal_to_peer(model: Any, tokenizer: Any, queries: list[str]) -> None:
    predictions = by_id(MaskedLM(model, tokenizer).predictions(requests(tokenizer, queries)))
    assert len(predictions) == len(queries)
    peer = FillMaskPipeline(model=model, tokenizer=tokenizer, device="cpu", top_k=len(tokenizer))
    texts = [query.replace("[MASK]", tokenizer.mask_token) for query in queries[:10]]
    for i, ranked in enumerate(peer(texts)):
        ours = predictions[str(i)]
        scores = {entry["token"]: entry["score"] for entry in ranked}
        assert ours.token_id == ranked[0]["token"]
        assert tokenizer.decode([ours.token_id]) == ranked[0]["token_str"]
        assert ours.probability == pytest.approx(ranked[0]["score"], rel=1e-4)
        expected = [scores[token] for token in CANDIDATES]
        assert ours.candidate_probabilities == pytest.approx(expected, rel=1e-4)


def test_predictions_any_batches_are_the_same(
    tiny_bert: Any, queries: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = MaskedLM(tiny_bert.model, tiny_bert.tokenizer)
    requests_ = requests(tiny_bert.tokenizer, queries)
    by_default = by_id(engine.predictions(requests_))
    monkeypatch.setattr(batched_lm, "MASKED_TOKENS", 40)
    monkeypatch.setattr(batched_lm, "_PROMPTS_PER_WINDOW", 7)
    apart = by_id(engine.predictions(requests_))
    assert {i: p.token for i, p in apart.items()} == {i: p.token for i, p in by_default.items()}
    for i, prediction in apart.items():
        expected = by_default[i].candidate_probabilities
        np.testing.assert_allclose(prediction.candidate_probabilities, expected, rtol=1e-4)


def test_predictions_requests_are_taken_a_window_at_a_time(
    tiny_bert: Any, queries: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batched_lm, "_PROMPTS_PER_WINDOW", 5)
    waiting = iter(requests(tiny_bert.tokenizer, queries))
    next(MaskedLM(tiny_bert.model, tiny_bert.tokenizer).predictions(waiting))
    assert len(list(waiting)) == len(queries) - 5


@pytest.mark.parametrize("lengths", [[1, 1, 1], [3, 3, 4, 9], [10, 12], [2] * 11, [1, 5, 5, 5, 10]])
def test_batches_hold_ten_padded_tokens_at_most_and_every_request_once(lengths: list[int]) -> None:
    all_requests = [MaskedRequest(str(i), [0] * length, []) for i, length in enumerate(lengths)]
    batches = list(cut_batches(all_requests, lambda each: len(each.token_ids), 10))
    assert [request for batch in batches for request in batch] == all_requests
    for batch in batches:
        assert len(batch) == 1 or len(batch) * len(batch[-1].token_ids) <= 10
    for batch, following in pairwise(batches):
        assert (len(batch) + 1) * len(following[0].token_ids) > 10


def test_predictions_no_candidates_is_an_empty_list(tiny_bert: Any) -> None:
    (ids,) = encode(tiny_bert.tokenizer, ["Paris lies in [MASK]."])
    (prediction,) = MaskedLM(tiny_bert.model, tiny_bert.tokenizer).predictions(
        [MaskedRequest("p", ids, [])]
    )
    assert prediction.candidate_probabilities == []


def test_predictions_two_masks_are_refused(tiny_bert: Any) -> None:
    mask = tiny_bert.tokenizer.mask_token_id
    engine = MaskedLM(tiny_bert.model, tiny_bert.tokenizer)
    with pytest.raises(ValueError, match=naming("2 masks")):
        list(engine.predictions([MaskedRequest("p", [mask, mask], [])]))


def test_predictions_leave_the_model_as_it_was(tiny_bert: Any, queries: list[str]) -> None:
    list(
        MaskedLM(tiny_bert.model, tiny_bert.tokenizer).predictions(
            requests(tiny_bert.tokenizer, queries[:2])
        )
    )
    inputs = tiny_bert.tokenizer(queries[:1], return_tensors="pt")
    assert tiny_bert.model(**inputs).logits.shape[1] == inputs.input_ids.shape[1]
