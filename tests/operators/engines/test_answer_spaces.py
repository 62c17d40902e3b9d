"""Sentences of answer spaces, scored as lm-pub-quiz scores them: causal and masked models."""

from pathlib import Path
from string import ascii_lowercase
from typing import Any

import polars as pl
import pytest
import torch
import transformers
from lm_pub_quiz.evaluators import Evaluator
from tokenizers import ByteLevelBPETokenizer

from factsweep.operators.datasets.bear import facts_from_files
from factsweep.operators.engines.protocol import Scored, Start, score_requests
from factsweep.operators.engines.transformers import load
from factsweep.operators.engines.transformers.likelihood import Likelihood, PseudoLikelihood
from factsweep.operators.prompts.answer_space import AnswerSpace, expand
from tests import tiny_bert
from tests.operators.datasets.test_bear import INSTANCES, RELATION, files

ANSWERS = ["Asia", "Europe", "southern Africa"]
FACTS = facts_from_files(files({**RELATION, "answer_space_labels": ANSWERS}, INSTANCES[:2]))
SIZES = {"vocab_size": 400, "bos_token_id": 0, "eos_token_id": 0}


def items() -> pl.DataFrame:
    """The sentences as an engine's requests need them."""
    (expansion,) = expand(FACTS, AnswerSpace(), seed=0)
    return expansion.of("prompts").with_columns(
        item_id="prompt_id",
        setting=pl.col("context_id").str.split(".").list.last(),
        context=pl.lit(""),
        continuation="text",
    )


def causal() -> tuple[Any, Any]:
    """A GPT-2 of random weights; its tokenizer has BOS, and writes none."""
    bytewise = ByteLevelBPETokenizer()
    bytewise.train_from_iterator(items()["text"], 300, special_tokens=["<|endoftext|>"])
    names = dict.fromkeys(("bos_token", "eos_token"), "<|endoftext|>")
    backend = bytewise._tokenizer
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=backend, **names)
    torch.manual_seed(0)
    config = transformers.GPT2Config(n_embd=16, n_layer=1, n_head=2, n_positions=64, **SIZES)
    return transformers.GPT2LMHeadModel(config), tokenizer


def masked() -> tuple[Any, Any]:
    """A BERT of random weights that knows half of the words; others are in parts."""
    tokenizer = tiny_bert.tokenizer([*items()["text"][:2], " ".join(ascii_lowercase)])
    torch.manual_seed(0)
    config = transformers.BertConfig(
        vocab_size=len(tokenizer),
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=32,
    )
    return transformers.BertForMaskedLM(config), tokenizer


def scores(engine: Any, tokenizer: Any, *, is_masked: bool) -> dict[str, Scored]:
    groups = items().partition_by("context_id", maintain_order=True)
    requests = (
        request
        for group in groups
        for request in score_requests(tokenizer, group, adds_bos=True, is_masked=is_masked)
    )
    return {scored.request_id: scored for scored in engine.scores(requests)}


@pytest.mark.parametrize("kind", ["causal", "masked"])
def test_scores_are_those_of_lm_pub_quiz(kind: str) -> None:
    is_masked = kind == "masked"
    model, tokenizer = masked() if is_masked else causal()
    engine = PseudoLikelihood(model, tokenizer) if is_masked else Likelihood(model)
    own = scores(engine, tokenizer, is_masked=is_masked)
    evaluator = Evaluator.from_model(
        model, model_type="MLM" if is_masked else "CLM", tokenizer=tokenizer, device="cpu"
    )
    for pair_id, subjects in FACTS.pairs.select("pair_id", "subjects").iter_rows():
        for number, template in enumerate(FACTS.templates["text"]):
            expected = evaluator.score_answers(
                template=template, subject=subjects[0], answers=ANSWERS, reduction="sum"
            )
            names = [f"{pair_id}.{number:03d}.{place}" for place in range(len(ANSWERS))]
            assert [own[name].logprob for name in names] == pytest.approx(expected, abs=1e-4)


def test_pseudo_likelihood_hides_the_rest_of_a_word() -> None:
    model, tokenizer = masked()
    (request,) = score_requests(tokenizer, items()[2:3], is_masked=True)
    engine = PseudoLikelihood(model, tokenizer)
    (scored,) = engine.scores([request])
    assert len(set(request.words)) < len(request.words) - 1  # some word has several tokens
    total = 0.0
    for place, word in enumerate(request.words):
        if word is None:
            continue
        hidden = torch.tensor([list(request.token_ids)])
        for later in range(place, len(request.words)):
            if request.words[later] == word:
                hidden[0, later] = tokenizer.mask_token_id
        with torch.inference_mode():
            logprobs = model.eval()(input_ids=hidden).logits[0, place].log_softmax(-1)
        total += float(logprobs[request.token_ids[place]])
    assert scored.logprob == pytest.approx(total, abs=1e-4)


def test_expand_capitalises_and_cuts_before_the_answer() -> None:
    (expansion,) = expand(FACTS, AnswerSpace(), seed=0)
    first = expansion.of("prompts").filter(pl.col("pair_id") == "P30.0000")
    assert first["text"].to_list() == [
        *("Japan is in Asia.", "Japan is in Europe.", "Japan is in southern Africa."),
        *("Asia has Japan.", "Europe has Japan.", "Southern Africa has Japan."),
    ]
    assert expansion.contexts["text"].unique().sort().to_list() == [
        "",
        "France is in",
        "Japan is in",
    ]


def test_load_a_masked_model_as_a_scorer(tmp_path: Path) -> None:
    for part in masked():
        part.save_pretrained(tmp_path)
    start = Start(str(tmp_path), None, "float32", max_model_len=64, ability="score", is_masked=True)
    assert isinstance(load(start), PseudoLikelihood)
