"""A model behind an endpoint, against a saysr on a real socket that is as bad as the test serve."""

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest

from factsweep.operators.engines.endpoint import EndpointEngine
from factsweep.operators.engines.preference import PreferRequest
from factsweep.operators.engines.protocol import (
    Answer,
    Endpoint,
    RefusedRequest,
    Request,
    Sampling,
    ScoreRequest,
    Start,
    Thinking,
)
from factsweep.operators.errors import InputError
from factsweep.operators.prompts.label_trie import Name, Trie
from tests.chat_server import CUT, HANG_UP, ChatServer, Said, serving
from tests.messages import naming

KEY = "sk-of-the-endpoint-4711"
GREEDY = Sampling(max_tokens=10, stop=("\n",))
FOUR = Sampling(10, ("\n",), n=4, temperature=1.0)
Says = Callable[[dict[str, Any]], Said]


def prompt_of(request: dict[str, Any]) -> str:
    return str(request.get("prompt") or request["messages"][-1]["content"])


def body(request: dict[str, Any], **fields: Any) -> dict[str, Any]:
    """An answer that repeats the prompt, with as many tokens as it has words."""
    text, n = f" re {prompt_of(request)}", request.get("n", 1)
    choice: dict[str, Any] = {"finish_reason": "stop"}
    if "messages" in request:
        choice |= {"message": {"role": "assistant", "content": text}}
    else:
        choice |= {"text": text}
    choice |= fields.pop("choice", {})
    usage = {"prompt_tokens": len(prompt_of(request).split()), "completion_tokens": 3 * n}
    return {
        "id": "1",
        "object": "text_completion",
        "created": 0,
        "model": request["model"],
        "system_fingerprint": "fp_1",
        "choices": [{"index": i, **choice} for i in range(n)],
        "usage": {**usage, "total_tokens": sum(usage.values())},
        **fields,
    }


def well(request: dict[str, Any]) -> Said:
    return 200, body(request)


def chosen(**choice: Any) -> Says:
    """A server whose answers have these fields."""
    return lambda request: (200, body(request, choice=choice))


def messages(**message: Any) -> Says:
    return chosen(message={"role": "assistant", **message})


def error(status: int, message: str, code: str | None = None) -> Said:
    return status, {"error": {"message": message, "code": code}}


@pytest.fixture(autouse=True)
def _key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_API_KEY", KEY)


@contextmanager
def engine(
    *servers: ChatServer,
    revision: str = "any",
    arguments: dict[str, Any] | None = None,
    **options: Any,
) -> Iterator[EndpointEngine]:
    limits = {"timeout_s": 5.0, "give_up_s": 20.0, "max_concurrent": 16, "chat": False}
    endpoint = Endpoint(tuple(s.url for s in servers), "MY_API_KEY", **{**limits, **options})
    start = Start(
        "some-model", revision, "auto", 4096, endpoint=endpoint, arguments=arguments or {}
    )
    started = EndpointEngine(start)
    try:
        yield started
    finally:
        started.close()


def requests(n: int, sampling: Sampling = GREEDY) -> list[Request]:
    return [Request(f"p{i}", [], sampling, text=f"prompt number {i}") for i in range(n)]


def ask(serve: Says, n: int = 1, sampling: Sampling = GREEDY, **options: Any) -> list[Any]:
    """The results of n prompts, in their order."""
    changes = {"thinking": options.pop("thinking", None), "turns": options.pop("turns", ())}
    with serving(serve) as server, engine(server, **options) as started:
        results = list(started.answers(replace(r, **changes) for r in requests(n, sampling)))
    return sorted(results, key=lambda result: int(result.request_id[1:]))


def refused(serve: Says, **options: Any) -> RefusedRequest:
    """The result of the second prompt without an answer, where the first has one."""
    options = {"max_concurrent": 1, **options}
    first, second = ask(lambda a: serve(a) if "1" in prompt_of(a) else well(a), 2, **options)
    assert isinstance(first, Answer)
    assert isinstance(second, RefusedRequest)
    return second


def stopped(serve: Says, **options: Any) -> str:
    with pytest.raises(InputError) as caught:
        ask(serve, 3, **options)
    assert str(caught.value).count(". ") == 0
    return str(caught.value)


def test_endpoint_answers_every_prompt_once_with_its_tokens() -> None:
    with serving(well) as server, engine(server) as started:
        answers = {answer.request_id: answer for answer in started.answers(requests(50))}
    assert len(server.requests) == len(answers) == 50
    first = answers["p7"]
    assert isinstance(first, Answer)
    assert [completion.text for completion in first.completions] == [" re prompt number 7"]
    assert (first.n_prompt_tokens, first.n_output_tokens) == (3, 3)
    assert first.completions[0].n_tokens == 2  # without the one that ended it
    assert first.served == "some-model fp_1"
    assert isinstance(ask(well, revision="fp_1")[0], Answer)
    assert {*server.paths} == {"/v1/completions"}
    assert {*server.keys} == {f"Bearer {KEY}"}


def test_endpoint_request_has_its_parameters_and_no_others(subtests: pytest.Subtests) -> None:
    turns = ({"role": "system", "content": "Be brief."}, {"role": "user", "content": "Where?"})
    plain = {"model": "some-model", "max_tokens": 10, "temperature": 0.0, "stop": ["\n"]}
    text = "prompt number 0"
    cases: list[tuple[dict[str, Any], Any, dict[str, Any]]] = [
        ({}, (), {"prompt": text}),
        ({"chat": True}, (), {"messages": [{"role": "user", "content": text}]}),
        ({"chat": True}, turns, {"messages": list(turns)}),
        ({"arguments": {"effort": "low"}}, (), {"prompt": text, "effort": "low"}),
    ]
    for options, own_turns, parameters in cases:
        with subtests.test(options), serving(well) as server, engine(server, **options) as started:
            (answer,) = started.answers([replace(requests(1)[0], turns=own_turns)])
            assert isinstance(answer, Answer)
            assert server.requests == [{**plain, **parameters}]
            assert server.paths == [f"/v1/{'chat/' * ('chat' in options)}completions"]


def samples_of(request: dict[str, Any], n: int) -> Said:
    return 200, body({**request, "n": n}, choice={"text": f" {request.get('seed')}"})


def _ignores(request: dict[str, Any]) -> Said:
    return samples_of(request, 1)


def _caps(request: dict[str, Any]) -> Said:
    return samples_of(request, min(2, request.get("n", 1)))


def _refuses(reply: Said) -> Says:
    return lambda request: reply if "n" in request else samples_of(request, 1)


@pytest.mark.parametrize(
    ("serve", "n_requests", "n_wrong"),
    [
        (_ignores, 4, 1),
        (_caps, 2, 1),
        (_refuses((422, {"detail": [{"loc": ["body", "n"], "msg": "must be 1"}]})), 4, 1),
        (_refuses((400, b"Bad Request")), 4, 1),
        (_refuses((200, {"error": {"message": "n > 1", "code": 400}})), 4, 1),
        (_refuses((200, {"error": "n must be 1"})), 4, 1),
        (_refuses(error(500, "Only one completion choice is allowed")), 4, 1),
        (lambda request: samples_of(request, request.get("n", 1)), 1, 0),
    ],
)
def test_endpoint_samples_are_requested_as_a_server_gives_them(
    serve: Says, n_requests: int, n_wrong: int
) -> None:
    """The number is learned from the first request, while no other one is sent."""
    sampling = replace(FOUR, top_p=0.9)
    with serving(serve) as server, engine(server) as started:
        seeded = [replace(r, seed=100 * i) for i, r in enumerate(requests(6, sampling))]
        answers = sorted(started.answers(seeded), key=lambda answer: answer.request_id)
    assert all(isinstance(answer, Answer) for answer in answers), answers
    for i, answer in enumerate(answers):
        assert isinstance(answer, Answer)
        seeds = [int(completion.text) for completion in answer.completions]
        assert len(seeds) == 4
        assert {*seeds} == {100 * i + first for first in range(0, 4, 4 // n_requests)}
        assert answer.n_requests == n_requests
        assert ("n" in answer.without) == (n_requests > 1)
        assert (answer.n_prompt_tokens, answer.n_output_tokens) == (3 * n_requests, 12)
    sizes = Counter(request.get("n", 1) for request in server.requests)
    assert sum(n for size, n in sizes.items() if size > 4 // n_requests) == n_wrong
    assert {(r["temperature"], r["top_p"]) for r in server.requests} == {(1.0, 0.9)}


def test_endpoint_samples_that_fail_midway_cost_tokens() -> None:
    filtered = error(400, "content_filter")
    replies = [_ignores, _ignores]
    (result,) = ask(lambda a: replies.pop()(a) if replies else filtered, sampling=FOUR)
    assert (result.reason, result.n_prompt_tokens, result.n_output_tokens) == (
        *("content_filter", 6, 6),
    )


@pytest.mark.parametrize("name", ["logprobs", "seed"])
def test_endpoint_parameter_that_a_server_refuses_is_left_out(name: str) -> None:
    def serve(request: dict[str, Any]) -> Said:
        if name in request:
            return error(400, f"Unsupported parameter: '{name}' is not supported with this model.")
        return well(request)

    sampling = replace(GREEDY, logprobs=True)
    with serving(serve) as server, engine(server) as started:
        answers = list(started.answers(replace(r, seed=7) for r in requests(20, sampling)))
    assert all(isinstance(answer, Answer) for answer in answers)
    assert len(server.requests) < 40  # it learns


def test_endpoint_max_tokens_has_the_name_that_a_server_takes() -> None:
    def serve(request: dict[str, Any]) -> Said:
        if "max_tokens" in request:
            return error(400, "'max_tokens' is not supported; use 'max_completion_tokens' instead.")
        return well(request)

    (answer,) = ask(serve, chat=True)
    assert isinstance(answer, Answer)


@pytest.mark.slow
@pytest.mark.parametrize(
    "trouble",
    [
        (429, {"error": {"message": "slow down"}}),
        (500, b"<html>oops"),
        (HANG_UP, ""),
        (CUT, {"choices": [{"text": "half an answer"}]}),
        (200, b'{"choices": [{"text": '),
        (200, {"error": "not really"}),
    ],
)
def test_endpoint_transient_trouble_is_retried_and_counted(trouble: Said) -> None:
    troubles = [trouble] * 2
    serve = lambda a: troubles.pop() if troubles else well(a)  # noqa: E731
    with serving(serve) as server, engine(server) as started:
        (answer,) = started.answers(requests(1))
        assert started.faults() == {"turned_away" if trouble[0] == 429 else "failed": 2}
        assert started.faults() == {}
    assert isinstance(answer, Answer)


@pytest.mark.parametrize("usage", ["much", None, {"prompt_tokens": "x"}, [1], {}])
def test_endpoint_tokens_of_replies_without_an_answer_are_counted(usage: Any) -> None:
    """They are billed, whether the prompt is answered in the end or not."""
    empty = {"choices": [], "usage": {"prompt_tokens": 30, "completion_tokens": 2}}
    filtered, uncounted = error(400, "content_filter"), {"choices": [], "usage": usage}
    replies: list[Any] = [empty, uncounted, empty]
    (result,) = ask(lambda a: (200, replies.pop()) if replies else well(a))
    assert (result.n_prompt_tokens, result.n_output_tokens) == (3 + 60, 3 + 4)
    replies = [empty]
    (result,) = ask(lambda _: (200, replies.pop()) if replies else filtered)
    assert (result.reason, result.n_prompt_tokens, result.n_output_tokens) == (
        *("content_filter", 30, 2),
    )


def test_endpoint_hanging_server_is_asked_again() -> None:
    counts, repeated = Counter[str](), threading.Event()

    def serve(request: dict[str, Any]) -> Said:
        counts[prompt_of(request)] += 1
        if max(counts.values()) == 1:
            repeated.wait(60)  # no request is answered before one is sent again
        repeated.set()
        return well(request)

    with serving(serve) as server, engine(server, timeout_s=2.0) as started:
        assert all(isinstance(answer, Answer) for answer in started.answers(requests(3)))
        assert started.faults()["timed_out"] >= 1


def test_endpoint_waits_as_long_as_the_server_says() -> None:
    times: list[float] = []

    def serve(request: dict[str, Any]) -> Said:
        times.append(time.monotonic())
        return (429, {}, {"Retry-After": "1"}) if len(times) == 1 else well(request)

    ask(serve, 5, max_concurrent=1)
    assert times[1] - times[0] >= 1
    assert len(times) == 6


CHAT = {"chat": True}
THINKS = {"chat": True, "thinking": Thinking(20)}
TOO_LONG = "This model's maximum context length is 10 tokens."
OF_THOUGHT = {
    "prompt_tokens": 3,
    "completion_tokens": 20,
    "total_tokens": 23,
    "completion_tokens_details": {"reasoning_tokens": 20},
}
EMPTY = {"message": {"role": "assistant", "content": ""}, "finish_reason": "length"}
REASONS: list[tuple[Says, dict[str, Any], str, str, int]] = [
    (chosen(finish_reason="content_filter"), {}, "content_filter", "filter ended the answer", 3),
    (lambda _: error(400, "It was filtered", "content_filter"), {}, "content_filter", "It", 0),
    (chosen(finish_reason="error"), {}, "broken_off", "error", 3),
    (chosen(finish_reason="abort"), {}, "broken_off", "abort", 3),
    (messages(content=None, refusal="I cannot say."), CHAT, "refused", "I cannot say", 3),
    (messages(content=[{"type": "refusal", "refusal": "No."}]), CHAT, "refused", "No", 3),
    (lambda _: error(400, TOO_LONG), {}, "prompt_too_long", "10 tokens", 0),
    (lambda _: error(400, f"odd text, {KEY}"), {}, "bad_request", "odd text, <key>", 0),
    (lambda _: error(500, "boom"), {"give_up_s": 2.0}, "endpoint_failed", "boom", 3),
    (
        lambda a: (200, body(a, model="cheaper-model")),
        *({}, "other_model", "cheaper-model fp_1 answered in place of some-model", 3),
    ),
    (messages(content=None), CHAT, "no_text", "has no text", 3),
    (messages(content=" \n"), CHAT, "no_text", "reply has no text", 3),
    (
        messages(content="", reasoning_content="Let me se"),
        *(CHAT, "no_text", "thought (9 characters) and said nothing", 3),
    ),
    (messages(content=None, reasoning="Hm …"), CHAT, "no_text", "thought (4 characters)", 3),
    (
        lambda a: (200, body(a, choice=EMPTY, usage=OF_THOUGHT)),
        *(CHAT, "no_text", "thought (20 tokens) until its tokens were used up", 20),
    ),
    (messages(content="<think>a"), THINKS, "thought_not_ended", "8 characters", 3),
    (messages(content={"city": "Oslo"}), CHAT, "unknown_content", '{"city": "Oslo"}', 3),
    (messages(content=5), CHAT, "unknown_content", "5", 3),
    (chosen(message="Oslo"), CHAT, "unknown_content", "Oslo", 3),
    (chosen(message=None, delta={"content": "Oslo"}), *(CHAT, "no_text", '"delta": {"content"', 3)),
    (chosen(text={"city": "Oslo"}), {}, "unknown_content", '{"city": "Oslo"}', 3),
    (chosen(text=None, message={"content": "Oslo"}), *({}, "no_text", '"content": "Oslo"', 3)),
]


@pytest.mark.parametrize(("serve", "options", "reason", "detail", "n_output"), REASONS)
def test_endpoint_prompt_without_an_answer_is_a_row_with_its_reason_and_cost(
    serve: Says, options: dict[str, Any], reason: str, detail: str, n_output: int
) -> None:
    result = refused(serve, **options)
    assert (result.reason, result.n_output_tokens) == (reason, n_output)
    assert detail in str(result.detail)


THOUGHT = {"type": "thinking", "thinking": [{"type": "text", "text": "Paris?"}]}
ANSWERS: list[tuple[Says, dict[str, Any], str | None]] = [
    (chosen(text="Oslo\nQ: And"), {}, None),
    (chosen(text=[{"type": "text", "text": "Oslo\r\nand"}]), {}, None),
    (messages(content=[THOUGHT, {"type": "text", "text": "Oslo\nand"}]), CHAT, "Paris?"),
    (messages(content={"type": "text", "text": "Oslo"}), CHAT, None),
    (messages(content="Oslo", reasoning=[{"text": "Paris?"}]), CHAT, "Paris?"),
    (messages(content="Oslo", reasoning_content={"a": 1}), CHAT, '{"a": 1}'),
    (messages(content="\n\nOslo\nand", reasoning_content="a\nb"), THINKS, "a\nb"),
    (messages(content="<think>\na\nb\n</think>\n\nOslo\nand"), THINKS, "a\nb"),
    (messages(content="a\nb</think>Oslo"), THINKS, "a\nb"),
    (messages(content="Oslo\n</s>"), THINKS, None),
]


@pytest.mark.parametrize(("serve", "options", "thought"), ANSWERS)
def test_endpoint_answer_is_the_text_up_to_its_stop_without_the_thought(
    serve: Says, options: dict[str, Any], thought: str | None
) -> None:
    """Of servers with a parser of their own, without one, or whose template opens the thought."""
    usage = {**OF_THOUGHT, "completion_tokens": 9, "total_tokens": 12}
    usage["completion_tokens_details"] = {"reasoning_tokens": 6}

    def of_thought(request: dict[str, Any]) -> Said:
        assert request["max_tokens"] == GREEDY.max_tokens + 20 * ("thinking" in options)
        assert ("stop" in request) == ("thinking" not in options)
        status, reply, *_ = serve(request)
        return status, {**reply, "usage": usage}

    (answer,) = ask(of_thought, **options)
    assert isinstance(answer, Answer), answer
    (completion,) = answer.completions
    assert completion.text == "Oslo"
    assert completion.n_tokens == 2  # whether the server shows the thought or not
    of_answer = completion.thought
    assert (of_answer and (of_answer.text, of_answer.n_tokens)) == (thought and (thought, 6))


def test_endpoint_output_tokens_include_a_thought_that_only_the_total_counts() -> None:
    usage = {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 25}
    (answer,) = ask(lambda a: (200, body(a, usage=usage)), chat=True)
    assert answer.n_output_tokens == 22


def test_endpoint_log_probabilities_leave_out_the_last_token() -> None:
    logprobs = {"token_logprobs": [-0.5, -0.25, -9.0], "tokens": list("abc")}
    (answer,) = ask(chosen(logprobs=logprobs), sampling=replace(GREEDY, logprobs=True))
    assert answer.completions[0].logprob == -0.75


def test_endpoint_that_repeats_the_prompt_loses_it_from_the_first_answer_on(
    subtests: pytest.Subtests,
) -> None:
    turns = (
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Where is it?"},
    )
    logprobs = {"token_logprobs": [None, *[-0.5] * 9], "tokens": list("abcdefghij")}
    for chat, prompt, own_turns in (
        (False, "prompt number 0", ()),
        (True, "prompt number 0", ()),
        (True, "Where is it?", turns),
        (True, "system\nBe brief.\nuser\nWhere is it?\nassistant\n", turns),
    ):
        with subtests.test(prompt=prompt, chat=chat):
            text = f"{prompt} Oslo\nQ: And"
            choice = {"message": {"content": text}} if chat else {"text": text}
            serve, sampling = chosen(**choice, logprobs=logprobs), replace(GREEDY, logprobs=True)
            (answer,) = ask(serve, sampling=sampling, chat=chat, turns=own_turns)
            assert answer.completions[0].text.strip() == "Oslo"
            assert (answer.n_prompts_removed, answer.without) == (1, ("logprobs",))


REVISION = "gpt-4o-2024-08-06 fp_1 answered in place of some-model"
STOPPED: list[tuple[Says, dict[str, Any], tuple[str, ...], int]] = [
    (lambda _: error(401, f"Incorrect API key provided: {KEY}"), {}, ("provided: <key>",), 3),
    (lambda _: error(403, "not allowed"), {}, ("not allowed",), 3),
    (lambda _: error(402, "pay first"), {}, ("pay first",), 3),
    (lambda _: error(404, "no model some-model"), {}, ("no model",), 3),
    (lambda _: error(429, "You exceeded your quota", "insufficient_quota"), {}, ("quota",), 3),
    # One more prompt shows whether others fare better.
    (lambda _: error(400, "temperature must be 1"), {}, ("temperature must be 1",), 4),
    *(
        (
            lambda _, code=code: (200, {"error": {"message": f"no {KEY}", "code": code}}),
            *({"max_concurrent": 1}, ("no <key>",), 1),
        )
        for code in (401, "invalid_api_key", 404, "model_not_found", 402)
    ),
    (
        lambda _: (200, {"error": {"message": "model is loading", "code": 503}}),
        *({"give_up_s": 2.0}, ("status 200 without an answer: model is loading",), 999),
    ),
    (
        lambda a: (200, body(a, model="gpt-4o-2024-08-06")),
        *({}, (REVISION, "give model.revision=gpt-4o-2024-08-06;"), 4),
    ),
    (
        *(well, {"revision": "fp_2"}),
        *(("fp_1 answered in place of fp_2", "give model.revision=fp_1;"), 4),
    ),
]


@pytest.mark.parametrize(("serve", "options", "parts", "n_calls"), STOPPED)
def test_endpoint_that_answers_no_prompt_ends_the_run_with_one_sentence(
    serve: Says, options: dict[str, Any], parts: tuple[str, ...], n_calls: int
) -> None:
    calls: list[dict[str, Any]] = []

    def counted(request: dict[str, Any]) -> Said:
        calls.append(request)
        return serve(request)

    message = stopped(counted, **options)
    assert message.startswith("model some-model at http://127.0.0.1:")
    assert all(part in message for part in parts), message
    assert KEY not in message
    assert len(calls) <= n_calls


def test_endpoint_that_answers_another_prompt_is_asked_so_once() -> None:
    probes = list[str]()

    def serve(request: dict[str, Any]) -> Said:
        if "number" in (prompt := prompt_of(request)):
            return error(400, "unsuitable")
        probes.append(prompt)
        return well(request)

    assert {result.reason for result in ask(serve, 5)} == {"bad_request"}
    assert len(probes) == 1


def test_endpoint_redirect_is_not_followed() -> None:
    with serving(well) as elsewhere:
        place = {"location": f"{elsewhere.url}/chat/completions"}
        message = stopped(lambda _: (307, {}, place))
        assert elsewhere.url in message
        assert not elsewhere.requests


def test_endpoint_that_does_not_exist_ends_the_run() -> None:
    nowhere = ChatServer(well, url="http://127.0.0.1:9/v1")
    with engine(nowhere, give_up_s=1.0) as started:
        answers = started.answers(requests(2))
        with pytest.raises(InputError, match=naming("http://127.0.0.1:9/v1")):
            next(answers)


def test_endpoint_without_usage_estimates_tokens() -> None:
    (answer,) = ask(lambda a: (200, body(a, usage=None)))
    assert answer.n_prompt_tokens == 4  # prompt, number and 0 with its blank
    assert answer.n_output_tokens > 0


def concurrent(seconds: float) -> tuple[Says, list[int]]:
    """A server that needs so many seconds per answer, and its numbers of concurrent requests."""
    running, numbers, lock = [0], list[int](), threading.Lock()

    def serve(request: dict[str, Any]) -> Said:
        with lock:
            running[0] += 1
            numbers.append(running[0])
        time.sleep(seconds)
        with lock:
            running[0] -= 1
        return well(request)

    return serve, numbers


def test_endpoint_has_no_more_concurrent_requests_than_allowed() -> None:
    serve, numbers = concurrent(0.01)
    ask(serve, 100, max_concurrent=5)
    assert 2 <= max(numbers) <= 5
    numbers.clear()
    ask(serve, 100, max_concurrent=64)
    assert max(numbers) > 4  # with which it begins


@pytest.mark.slow
def test_endpoint_sends_fewer_requests_before_answers_come_too_late() -> None:
    serve, numbers = concurrent(1.1)
    ask(serve, 7, timeout_s=2.0)
    assert len(numbers) == 7  # none came too late
    assert (max(numbers), numbers[-1]) == (4, 1)


OF_TOKENS = {"model": "some-model", "max_tokens": 1, "temperature": 0.0, "logprobs": 1}


def echoed(request: dict[str, Any], *, n_more: int = 1, **changes: Any) -> Said:
    """The log-probabilities of a text, and of one token more."""
    n = len(request["prompt"]) + n_more
    values = [None, *(-0.5 * place for place in range(1, n))]
    logprobs = {"token_logprobs": values, "tokens": ["x"] * n} | changes
    usage = {"prompt_tokens": len(request["prompt"]), "completion_tokens": 1, "total_tokens": 0}
    return 200, body({**request, "prompt": "text"}, choice={"logprobs": logprobs}, usage=usage)


def scores(serve: Says, n: int = 1) -> tuple[list[Any], ChatServer]:
    texts = [ScoreRequest(f"p{i}", [11, 12, 13, 14 + i], "g", span=(1, 3)) for i in range(n)]
    with serving(serve) as server, engine(server) as started:
        return list(started.scores(texts)), server


def test_endpoint_scores_are_those_of_the_texts_tokens() -> None:
    (scored,), server = scores(echoed)
    assert (scored.logprob, scored.n_tokens) == (-3.0, 3)  # without the one token more
    assert (scored.entity_logprob, scored.entity_n_tokens) == (-1.5, 2)
    assert (scored.n_prompt_tokens, scored.n_output_tokens) == (4, 1)
    short, full = server.requests  # the first shows whether there are scores at all
    assert short["prompt"] == [11, 12]
    assert full == {**OF_TOKENS, "prompt": [11, 12, 13, 14], "echo": True}


def behind(request: dict[str, Any], *, without: int | None = None) -> Said:
    """The log-probability of a token is its number's, whatever the text."""
    tokens = [token for token in request["logprob_token_ids"] if token != without]
    values = {f"token_id:{token}": -token / 10 for token in tokens}
    choice = {"logprobs": {"token_logprobs": [-1.0], "tokens": ["x"], "top_logprobs": [values]}}
    return 200, body({**request, "prompt": "text"}, choice=choice)


def preferred(serve: Says, _n: int = 1) -> tuple[list[Any], ChatServer]:
    trie = Trie.of([(Name("Q1", "a b"), (1, 2)), (Name("Q2", "a c"), (1, 3))])
    request = PreferRequest("x", [11, 12, 13], trie, [5], "Q1", "given", 1, ["Q2"])
    with serving(serve) as server, engine(server) as started:
        return list(started.preferences([request])), server


def test_endpoint_preferences_sum_the_tokens_of_labels_and_endings() -> None:
    (preference,), server = preferred(behind)
    assert preference.answer.logprob == pytest.approx(-0.1 - 0.2 - 0.5)
    assert [d.logprob for d in preference.distractors] == pytest.approx([-0.1 - 0.3 - 0.5])
    assert server.requests[0]["prompt"] == [11, 12]  # which shows whether there are scores at all
    texts = {tuple(request.pop("prompt")) for request in server.requests[1:]}
    assert texts == {(11, 12, 13), (11, 12, 13, 1), (11, 12, 13, 1, 2), (11, 12, 13, 1, 3)}
    for request in server.requests[1:]:
        assert request.pop("logprob_token_ids")
        assert request == {**OF_TOKENS, "return_tokens_as_token_ids": True}


def unscored(request: dict[str, Any]) -> Said:
    return 200, body({**request, "prompt": "text"})


@pytest.mark.parametrize(
    ("ability", "serve", "part"),
    [
        (scores, lambda _: error(400, "echo is not supported"), "echo is not supported"),
        (scores, unscored, "the answer has no log-probabilities"),
        (
            scores,
            lambda a: echoed(a, n_more=-1),
            "1 log-probabilities, not those of a text of 2 tok",
        ),
        (
            scores,
            lambda a: echoed(a, n_more=2),
            "4 log-probabilities, not those of a text of 2 tok",
        ),
        (
            *(scores, lambda a: echoed(a, token_logprobs=[None, None])),
            "a token of the text has no log-prob",
        ),
        (
            *(scores, lambda a: echoed(a, token_logprobs=[-1.0, -0.5])),
            "not those of a text of 2 tokens",
        ),
        (preferred, unscored, "the answer has no log-probabilities"),
        (preferred, lambda a: behind(a, without=a["logprob_token_ids"][0]), "0 of 1 tokens have"),
        (preferred, lambda _: error(400, "extra fields not permitted"), "extra fields not permi"),
    ],
)
def test_endpoint_without_scores_is_refused_after_two_tokens(
    ability: Callable[[Says, int], Any], serve: Says, part: str
) -> None:
    lengths: list[int] = []

    def counted(request: dict[str, Any]) -> Said:
        lengths.append(len(request["prompt"]))
        return serve(request)

    with pytest.raises(InputError, match=naming("log-probabilities")) as caught:
        ability(counted, 5)
    assert part in str(caught.value)
    assert str(caught.value).count(". ") == 0
    assert lengths == [2]


def test_endpoint_text_that_gets_no_score_is_its_row() -> None:
    odd = [11, 12, 13, 15]
    results, _ = scores(lambda a: echoed(a, n_more=-2 if a["prompt"] == odd else 1), 3)
    reasons = {result.request_id: getattr(result, "reason", None) for result in results}
    assert reasons == {"p0": None, "p1": "no_scores", "p2": None}
