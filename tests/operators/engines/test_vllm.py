"""vLLM with real weights, compared with transformers reading the same tokens."""

import copy
from collections.abc import Callable
from dataclasses import astuple, replace
from typing import Any, NamedTuple

import pytest

from factsweep.operators.engines.protocol import Answer, Request, Sampling, Thinking
from factsweep.operators.engines.vllm import ThoughtMarks, VllmEngine, find_marks
from factsweep.operators.engines.vllm.source import parsers
from factsweep.operators.errors import InputError
from factsweep.operators.prompts.tokens import encode
from factsweep.pipeline.inputs import models
from factsweep.pipeline.inputs.models import Weights
from tests.messages import naming

pytestmark = pytest.mark.engine

MAX_TOKENS = 8
GREEDY = Sampling(max_tokens=MAX_TOKENS, stop=("\n",))
ONE_TOKEN = replace(GREEDY, max_tokens=1)
SAMPLED = Sampling(max_tokens=2, stop=("\n",), n=25, temperature=1.0)
PROMPTS = [
    "Predict the [MASK] in each sentence in one word.\nQ: [MASK] is the capital of France.\nA:",
    "Answer each question in one word.\nQ: Where is Rome?\nA: Italy.\nQ: Where is Oslo?\nA:",
    "The capital of France is",
    "1 2 3 4 5",
]
CHAT = "<|im_start|>user\nSay only: yes<|im_end|>\n<|im_start|>assistant\n"  # ends of itself


class Reference(NamedTuple):
    """What transformers answers: up to, and without, the token that ends it."""

    text: str
    n_tokens: int
    logprob: float
    finish_reason: str
    token_ids: list[int]


@pytest.fixture(scope="module")
def reference(smollm2: Weights, tokenizer: Any) -> Callable[..., Reference]:
    """Transformers' answer behind some token ids, with the ids of its tokens."""
    import torch
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(models.location(smollm2), dtype=torch.float32)

    def answer(read: list[int], max_tokens: int = MAX_TOKENS, stop: str = "\n") -> Reference:
        ids = torch.tensor([read])
        output = model.generate(
            ids,
            attention_mask=torch.ones_like(ids),
            do_sample=False,
            max_new_tokens=max_tokens,
            pad_token_id=tokenizer.eos_token_id,
            return_dict_in_generate=True,
            output_logits=True,
        )
        tokens = output.sequences[0, ids.shape[1] :].tolist()
        ends = [t == tokenizer.eos_token_id or stop in tokenizer.decode([t]) for t in tokens]
        length = [*ends, True].index(True)
        of_step = [logits[0].log_softmax(-1) for logits in output.logits[:length]]
        total = sum(float(logprobs[t]) for logprobs, t in zip(of_step, tokens, strict=False))
        reason = "stop" if any(ends) else "length"
        return Reference(tokenizer.decode(tokens[:length]), length, total, reason, tokens)

    return answer


@pytest.fixture(scope="module")
def references(reference: Callable[..., Reference], tokenizer: Any) -> dict[str, Reference]:
    ids = encode(tokenizer, [*PROMPTS, CHAT])
    return {
        prompt: reference(token_ids)
        for prompt, token_ids in zip((*PROMPTS, CHAT), ids, strict=True)
    }


@pytest.fixture(scope="module")
def ask(engine: VllmEngine, tokenizer: Any) -> Callable[..., dict[str, Answer]]:
    def answers(prompts: list[str], sampling: Sampling) -> dict[str, Answer]:
        ids = encode(tokenizer, prompts)
        requests = [Request(p, i, sampling) for p, i in zip(prompts, ids, strict=True)]
        return {answer.request_id: answer for answer in engine.answers(iter(requests))}

    return answers


Ask = Callable[..., dict[str, Answer]]


def test_greedy_answers_equal_transformers(ask: Ask, references: dict[str, Reference]) -> None:
    # By a newline or by length, and by the end of the turn.
    assert {references[prompt].finish_reason for prompt in PROMPTS} == {"stop", "length"}
    assert references[CHAT].finish_reason == "stop"
    answers = ask(list(references), replace(GREEDY, logprobs=True))
    for prompt, expected in references.items():
        (completion,) = answers[prompt].completions
        assert astuple(completion)[:4] == pytest.approx(expected[:4], abs=1e-3)


def test_marks_of_a_thought_are_those_of_a_parser_that_fits_the_tokenizer(tokenizer: Any) -> None:
    for parser, words in (
        ("nope", ("reasoning_parser=nope", "deepseek_r1", "qwen3")),
        ("deepseek_r1", ("deepseek_r1 does not fit", tokenizer.name_or_path)),
        ("granite", ("no marks", "reasoning_parser")),
        (None, ("no marks", "reasoning_parser", "qwen3")),
    ):
        with pytest.raises(InputError, match=naming(*words)):
            find_marks(tokenizer, parser)
    thinker = copy.deepcopy(tokenizer)
    thinker.add_tokens(["<think>", "</think>"])
    for own, parser in ((thinker, None), (thinker, "deepseek_r1"), (tokenizer, "qwen3")):
        assert find_marks(own, parser)[1:] == ("<think>", "</think>")


def test_thought_ends_at_its_mark_its_budget_or_in_silence_and_the_answer_is_read_behind_it(
    engine: VllmEngine,
    reference: Callable[..., Reference],
    tokenizer: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    budget, closing = 12, tokenizer.encode("\n</think>\n\n")
    free = {p: reference(encode(tokenizer, [p])[0], budget, "never") for p in (*PROMPTS, CHAT)}
    mark = tokenizer.decode(free[PROMPTS[0]].token_ids[3:5])
    cases = {
        # which marks → prompt → the tokens of the thought, and how it ended
        "</think>": {
            PROMPTS[1]: (free[PROMPTS[1]].token_ids, "budget", closing),
            CHAT: (free[CHAT].token_ids, "silence", closing),
        },
        mark: {PROMPTS[0]: (free[PROMPTS[0]].token_ids[:5], "itself", tokenizer.encode("\n\n"))},
    }
    assert free[CHAT].token_ids[-1] == tokenizer.eos_token_id, "it must end its turn"
    for end, prompts in cases.items():
        monkeypatch.setattr(engine, "_known_marks", ThoughtMarks(tokenizer, "<think>", end))
        ids = encode(tokenizer, list(prompts))
        requests = [
            Request(p, i, GREEDY, thinking=Thinking(budget))
            for p, i in zip(prompts, ids, strict=True)
        ]
        answers = {answer.request_id: answer for answer in engine.answers(iter(requests))}
        for (prompt, (tokens, ended, behind)), read in zip(prompts.items(), ids, strict=True):
            thought = [token for token in tokens if token != tokenizer.eos_token_id]
            expected = reference([*read, *thought, *behind])
            (completion,) = answers[prompt].completions
            assert astuple(completion)[:2] == expected[:2]
            assert completion.thought is not None
            assert completion.thought.ended == ended
            assert completion.thought.n_tokens == len(tokens)
            assert completion.thought.text == tokenizer.decode(thought).removesuffix(end).strip()


def test_stop_at_newline_cuts_the_answer_there(ask: Ask) -> None:
    stopped, running = (
        ask(PROMPTS[:1], replace(GREEDY, stop=stop))[PROMPTS[0]].completions[0].text
        for stop in (GREEDY.stop, ())
    )
    assert "\n" in running
    assert stopped == running.partition("\n")[0]


def test_block_is_the_same_beside_others_and_differs_by_seed_and_draw(
    engine: VllmEngine, tokenizer: Any
) -> None:
    (ids,) = encode(tokenizer, PROMPTS[2:3])
    names = {"alone": 7, "together": 7, "other seed": 1007}
    single, *pair = (Request(name, ids, SAMPLED, seed) for name, seed in names.items())
    completions = {
        a.request_id: a.completions
        for requests in ([single], pair)
        for a in engine.answers(requests)
    }
    assert len(completions["alone"]) == 25
    assert completions["alone"] == completions["together"] != completions["other seed"]
    assert len({completion.text for completion in completions["alone"]}) > 1


def test_long_shared_prefix_comes_from_the_cache(ask: Ask) -> None:
    prefix = "A sentence that is repeated. " * 20
    (first,) = ask([prefix + "One"], ONE_TOKEN).values()
    (second,) = ask([prefix + "Two"], ONE_TOKEN).values()
    assert first.n_cached_tokens == 0
    assert 0.6 * second.n_prompt_tokens < second.n_cached_tokens < second.n_prompt_tokens


def test_answers_come_for_every_request_under_its_own_id(engine: VllmEngine) -> None:
    requests = [Request(f"p{i}", [100] * (i % 9 + 1), ONE_TOKEN) for i in range(30)]
    answers = list(engine.answers(iter(requests)))
    assert len(answers) == 30
    lengths = {answer.request_id: answer.n_prompt_tokens for answer in answers}
    assert lengths == {request.request_id: len(request.token_ids) for request in requests}


def test_answers_abandoned_midway_do_not_reach_the_next_call(engine: VllmEngine) -> None:
    short, long = Request("short", [100], ONE_TOKEN), Request("long", [200], GREEDY)
    abandoned = engine.answers([long, short])
    assert next(iter(abandoned)).request_id == "short"
    del abandoned
    answers = list(engine.answers([Request("next", [100, 200], GREEDY)]))
    assert [answer.request_id for answer in answers] == ["next"]


def test_answers_refused_prompt_leaves_the_engine_usable(engine: VllmEngine) -> None:
    from vllm.exceptions import VLLMValidationError

    first, endless = Request("first", [100], GREEDY), Request("endless", [100] * 512, GREEDY)
    with pytest.raises(VLLMValidationError, match="maximum model length"):
        list(engine.answers([first, endless]))
    answers = list(engine.answers([Request("next", [100, 200], ONE_TOKEN)]))
    assert [answer.request_id for answer in answers] == ["next"]


@pytest.mark.slow
def test_more_seeded_prompts_than_a_step_has_room_for_are_all_answered(engine: VllmEngine) -> None:
    sampling = replace(SAMPLED, n=2)
    prompts = [[number + 100] * 60 for number in range(9)]  # vLLM reads 512 tokens per step
    requests = [Request(f"p{i}", ids, sampling, seed=i) for i, ids in enumerate(prompts)]
    assert {answer.request_id for answer in engine.answers(requests)} == {
        request.request_id for request in requests
    }


def test_parsers_read_from_the_source_are_those_that_vllm_has() -> None:
    from vllm.reasoning import ReasoningParserManager

    assert parsers() == {*ReasoningParserManager.list_registered()}
