"""A model behind an endpoint, against a server on a real socket that is as bad as the test says."""

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest

from factsweep.operators.engines.endpoint import EndpointEngine
from factsweep.operators.engines.kind import Endpoint, Start
from factsweep.operators.engines.preference import PreferRequest
from factsweep.operators.engines.protocol import (
    Answer,
    Refused,
    Request,
    Sampling,
    ScoreRequest,
    Thinking,
)
from factsweep.operators.errors import InputError
from factsweep.operators.prompts.label_trie import Name, Trie
from tests.chat_server import CUT, HANG_UP, ChatServer, Said, serving
from tests.messages import naming

KEY = "sk-of-the-endpoint-4711"
GREEDY = Sampling(max_tokens=10, stop=("\n",))
Says = Callable[[dict[str, Any]], Said]


def prompt_of(asked: dict[str, Any]) -> str:
    return str(asked.get("prompt") or asked["messages"][-1]["content"])


def body(asked: dict[str, Any], **changed: Any) -> dict[str, Any]:
    """An answer that repeats the prompt, with as many tokens as it has words."""
    text, n = f" re {prompt_of(asked)}", asked.get("n", 1)
    said: dict[str, Any] = {"finish_reason": "stop"}
    choice = changed.pop("choice", {})
    if "messages" in asked:
        said |= {"message": {"role": "assistant", "content": text}}
    else:
        said |= {"text": text}
    usage = {"prompt_tokens": len(prompt_of(asked).split()), "completion_tokens": 3 * n}
    return {
        "id": "1",
        "object": "text_completion",
        "created": 0,
        "model": asked["model"],
        "system_fingerprint": "fp_1",
        "choices": [{"index": i, **said, **choice} for i in range(n)],
        "usage": {**usage, "total_tokens": sum(usage.values())},
        **changed,
    }


def well(asked: dict[str, Any]) -> Said:
    return 200, body(asked)


def error(status: int, message: str, code: str | None = None) -> Said:
    return status, {"error": {"message": message, "code": code}}


@pytest.fixture(autouse=True)
def _key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_API_KEY", KEY)


@contextmanager
def engine(
    server: ChatServer,
    *,
    revision: str = "any",
    arguments: dict[str, Any] | None = None,
    **how: Any,
) -> Iterator[EndpointEngine]:
    client: dict[str, Any] = {
        "timeout_s": 5.0,
        "give_up_s": 20.0,
        "max_concurrent": 16,
        "chat": False,
    }
    endpoint = Endpoint(server.url, "MY_API_KEY", **{**client, **how})
    start = Start(
        "some-model", revision, "auto", 4096, endpoint=endpoint, arguments=arguments or {}
    )
    found = EndpointEngine(start)
    try:
        yield found
    finally:
        found.close()


def requests(n: int, sampling: Sampling = GREEDY) -> list[Request]:
    return [Request(f"p{i}", [], sampling, text=f"prompt number {i}") for i in range(n)]


def asked(says: Says, n: int = 1, sampling: Sampling = GREEDY, **how: Any) -> list[Any]:
    """What an engine says of n prompts, in their order."""
    with serving(says) as server, engine(server, **how) as found:
        answers = list(found.answers(requests(n, sampling)))
    return sorted(answers, key=lambda answer: int(answer.request_id[1:]))


def refused(says: Says, **how: Any) -> Refused:
    """Why the second prompt has no answer, where the first has one."""
    one_by_one = {"max_concurrent": 1, **how}
    first, second = asked(lambda a: says(a) if "1" in prompt_of(a) else well(a), 2, **one_by_one)
    assert isinstance(first, Answer)
    assert isinstance(second, Refused)
    return second


def stopped(says: Says, **how: Any) -> str:
    with pytest.raises(InputError) as caught:
        asked(says, 3, **how)
    return str(caught.value)


def test_endpoint_answers_every_prompt_once_with_its_tokens() -> None:
    with serving(well) as server, engine(server) as found:
        answers = {each.request_id: each for each in found.answers(requests(50))}
    assert len(server.requests) == len(answers) == 50
    first = answers["p7"]
    assert isinstance(first, Answer)
    assert [each.text for each in first.completions] == [" re prompt number 7"]
    assert (first.n_prompt_tokens, first.n_output_tokens) == (3, 3)
    assert first.completions[0].n_tokens == 2  # without the one that ended it
    assert first.served == "some-model fp_1"
    assert {*server.paths} == {"/v1/completions"}
    assert {*server.keys} == {f"Bearer {KEY}"}


def test_endpoint_request_has_what_is_asked_and_nothing_more(subtests: pytest.Subtests) -> None:
    turns = ({"role": "system", "content": "Be brief."}, {"role": "user", "content": "Where?"})
    plain = {"model": "some-model", "max_tokens": 10, "temperature": 0.0, "stop": ["\n"]}
    text = "prompt number 0"
    cases: list[tuple[dict[str, Any], Any, dict[str, Any]]] = [
        ({}, (), {"prompt": text}),
        ({"chat": True}, (), {"messages": [{"role": "user", "content": text}]}),
        ({"chat": True}, turns, {"messages": list(turns)}),
        (
            {"arguments": {"reasoning_effort": "low"}},
            (),
            {"prompt": text, "reasoning_effort": "low"},
        ),
    ]
    for how, own_turns, further in cases:
        with subtests.test(how), serving(well) as server, engine(server, **how) as found:
            (answer,) = found.answers([replace(requests(1)[0], turns=own_turns)])
            assert isinstance(answer, Answer)
            assert server.requests == [{**plain, **further}]
            assert server.paths == [f"/v1/{'chat/' * ('chat' in how)}completions"]


def test_endpoint_samples_are_drawn_in_one_request() -> None:
    sampling = Sampling(10, ("\n",), n=4, temperature=1.0, top_p=0.9)
    with serving(well) as server, engine(server) as found:
        asked = replace(requests(1, sampling)[0], seed=99)
        (answer,) = found.answers([asked])
    assert isinstance(answer, Answer)
    assert (len(answer.completions), answer.n_output_tokens) == (4, 12)
    sent = server.requests[0]
    assert (sent["n"], sent["seed"], sent["temperature"], sent["top_p"]) == (4, 99, 1.0, 0.9)


def samples_of(asked: dict[str, Any], n: int) -> Said:
    return 200, body({**asked, "n": n}, choice={"text": f" {asked.get('seed')}"})


def _ignores(asked: dict[str, Any]) -> Said:
    return samples_of(asked, 1)


def _caps(asked: dict[str, Any]) -> Said:
    return samples_of(asked, min(2, asked.get("n", 1)))


def _refuses(said: Said) -> Says:
    return lambda asked: said if "n" in asked else samples_of(asked, 1)


@pytest.mark.parametrize(
    ("says", "n_requests", "n_wrong"),
    [
        (_ignores, 4, 1),
        (_caps, 2, 1),
        (_refuses(error(400, "Only one completion choice is allowed")), 4, 1),
        (_refuses((422, {"detail": [{"loc": ["body", "n"], "msg": "must be 1"}]})), 4, 1),
        (_refuses((400, b"Bad Request")), 4, 1),
        (_refuses((200, {"error": {"message": "n > 1", "code": 400}})), 4, 1),
        (_refuses((200, {"error": "n must be 1"})), 4, 1),
        (_refuses(error(500, "Only one completion choice is allowed")), 4, 1),
        (lambda asked: samples_of(asked, asked.get("n", 1)), 1, 0),
    ],
)
def test_endpoint_samples_are_asked_for_as_a_server_gives_them(
    says: Says, n_requests: int, n_wrong: int
) -> None:
    """What it gives is learned from the first request, while no other one is sent."""
    sampling = Sampling(10, ("\n",), n=4, temperature=1.0)
    with serving(says) as server, engine(server) as found:
        drawn = [replace(each, seed=100 * i) for i, each in enumerate(requests(6, sampling))]
        answers = sorted(found.answers(drawn), key=lambda answer: answer.request_id)
    assert all(isinstance(answer, Answer) for answer in answers), answers
    for i, answer in enumerate(answers):
        seeds = [int(each.text) for each in answer.completions]
        assert len(seeds) == 4
        assert {*seeds} == {100 * i + first for first in range(0, 4, 4 // n_requests)}
        assert answer.n_requests == n_requests
        assert ("n" in answer.without) == (n_requests > 1)
        assert (answer.n_prompt_tokens, answer.n_output_tokens) == (3 * n_requests, 12)
    asked_for = Counter(request.get("n", 1) for request in server.requests)
    most = 4 // n_requests
    assert sum(n for wanted, n in asked_for.items() if wanted > most) == n_wrong


def test_endpoint_samples_that_fail_midway_cost_what_they_cost() -> None:
    filtered = error(400, "content_filter")
    left = [_ignores, _ignores]
    sampling = Sampling(10, ("\n",), n=4, temperature=1.0)
    (found,) = asked(lambda a: left.pop()(a) if left else filtered, sampling=sampling)
    assert (found.reason, found.n_prompt_tokens, found.n_output_tokens) == ("content_filter", 6, 6)


def test_endpoint_answer_ends_where_a_server_does_not_see_to_it() -> None:
    (answer,) = asked(lambda a: (200, body(a, choice={"text": " Paris\nQ: And"})))
    assert answer.completions[0].text == " Paris"


def test_endpoint_log_probabilities_leave_out_the_last_token() -> None:
    logprobs = {"token_logprobs": [-0.5, -0.25, -9.0], "tokens": list("abc")}
    sampling = replace(GREEDY, logprobs=True)
    (answer,) = asked(lambda a: (200, body(a, choice={"logprobs": logprobs})), sampling=sampling)
    assert answer.completions[0].logprob == -0.75


@pytest.mark.parametrize("name", ["logprobs", "seed"])
def test_endpoint_does_without_what_a_server_does_not_take(name: str) -> None:
    def says(asked: dict[str, Any]) -> Said:
        if name in asked:
            return error(400, f"Unsupported parameter: '{name}' is not supported with this model.")
        return well(asked)

    sampling = replace(GREEDY, logprobs=True)
    with serving(says) as server, engine(server) as found:
        answers = list(found.answers(replace(each, seed=7) for each in requests(20, sampling)))
    assert all(isinstance(each, Answer) for each in answers)
    assert len(server.requests) < 40  # it learns


def test_endpoint_max_tokens_has_the_name_that_a_server_takes() -> None:
    def says(asked: dict[str, Any]) -> Said:
        if "max_tokens" in asked:
            return error(400, "'max_tokens' is not supported; use 'max_completion_tokens' instead.")
        return well(asked)

    (answer,) = asked(says, chat=True)
    assert isinstance(answer, Answer)


@pytest.mark.slow
@pytest.mark.parametrize(
    "trouble",
    [
        (429, {"error": {"message": "slow down"}}),
        (500, b"<html>oops"),
        (503, {}),
        (HANG_UP, ""),
        (CUT, {"choices": [{"text": "half an answer"}]}),
        (200, b"<html>"),
        (200, b'{"choices": [{"text": '),
        (200, {"choices": []}),
        (200, {"error": "not really"}),
    ],
)
def test_endpoint_passing_trouble_is_tried_again(trouble: Said) -> None:
    left = [trouble] * 2
    with serving(lambda a: left.pop() if left else well(a)) as server, engine(server) as found:
        (answer,) = found.answers(requests(1))
        why = "turned_away" if trouble[0] in (429, 503) else "failed"
        assert found.faults() == {why: 2}
        assert found.faults() == {}
    assert isinstance(answer, Answer)


def test_endpoint_tokens_of_replies_without_an_answer_are_counted() -> None:
    """They are billed, whether the prompt is answered in the end or not."""
    empty = {"choices": [], "usage": {"prompt_tokens": 30, "completion_tokens": 2}}
    left: list[Any] = [empty, empty]
    (answer,) = asked(lambda a: (200, left.pop()) if left else well(a))
    assert (answer.n_prompt_tokens, answer.n_output_tokens) == (3 + 60, 3 + 4)
    left = [empty]
    filtered = error(400, "content_filter")
    (answer,) = asked(lambda _: (200, left.pop()) if left else filtered)
    assert (answer.reason, answer.n_prompt_tokens, answer.n_output_tokens) == (
        *("content_filter", 30, 2),
    )


@pytest.mark.parametrize("usage", ["much", None, {"prompt_tokens": "x"}, [1], {}])
def test_endpoint_reply_that_counts_no_tokens_adds_none(usage: Any) -> None:
    left = [{"choices": [], "usage": usage}]
    (answer,) = asked(lambda a: (200, left.pop()) if left else well(a))
    assert (answer.n_prompt_tokens, answer.n_output_tokens) == (3, 3)


def test_endpoint_hanging_server_is_asked_again() -> None:
    seen, again = Counter[str](), threading.Event()

    def says(asked: dict[str, Any]) -> Said:
        seen[prompt_of(asked)] += 1
        if max(seen.values()) == 1:
            again.wait(60)  # nobody is answered before somebody asks again
        again.set()
        return well(asked)

    with serving(says) as server, engine(server, timeout_s=2.0) as found:
        assert all(isinstance(each, Answer) for each in found.answers(requests(3)))
        assert found.faults()["timed_out"] >= 1


def test_endpoint_waits_as_long_as_the_server_says() -> None:
    times: list[float] = []

    def says(asked: dict[str, Any]) -> Said:
        times.append(time.monotonic())
        return (429, {}, {"Retry-After": "1"}) if len(times) == 1 else well(asked)

    asked(says, 5, max_concurrent=1)
    assert times[1] - times[0] >= 1
    assert len(times) == 6


NO = {"message": {"role": "assistant", "content": None, "refusal": "I cannot say."}}
TOO_LONG = "This model's maximum context length is 10 tokens."
REASONS: list[tuple[Says, dict[str, Any], str, str, int]] = [
    (
        lambda a: (200, body(a, choice={"finish_reason": "content_filter"})),
        *({}, "content_filter", "filter ended the answer", 3),
    ),
    (lambda _: error(400, "It was filtered", "content_filter"), {}, "content_filter", "It", 0),
    (lambda a: (200, body(a, choice={"finish_reason": "error"})), {}, "broken_off", "error", 3),
    (lambda a: (200, body(a, choice={"finish_reason": "abort"})), {}, "broken_off", "abort", 3),
    (lambda a: (200, body(a, choice=NO)), {"chat": True}, "refused", "I cannot say", 3),
    (lambda _: error(400, TOO_LONG), {}, "prompt_too_long", "10 tokens", 0),
    (lambda _: error(400, f"odd text, {KEY}"), {}, "bad_request", "odd text, <key>", 0),
    (lambda _: error(500, "boom"), {"give_up_s": 2.0}, "endpoint_failed", "boom", 3),
    (
        lambda a: (200, body(a, model="cheaper-model")),
        *({}, "other_model", "cheaper-model fp_1 answered in place of some-model", 3),
    ),
]


@pytest.mark.parametrize(("says", "how", "reason", "detail", "n_output"), REASONS)
def test_endpoint_prompt_without_an_answer_is_a_row_with_its_reason_and_cost(
    says: Says, how: dict[str, Any], reason: str, detail: str, n_output: int
) -> None:
    found = refused(says, **how)
    assert (found.reason, found.n_output_tokens) == (reason, n_output)
    assert detail in str(found.detail)


def test_endpoint_reply_without_text_is_no_answer_and_costs_what_it_costs() -> None:
    cases = {
        "has no text": {"content": None},
        "reply has no text": {"content": " \n"},
        "thought (9 characters) and said nothing": {
            "content": "",
            "reasoning_content": "Let me se",
        },
        "thought (4 characters)": {"content": None, "reasoning": "Hm …"},
    }
    for said, message in cases.items():
        choice = {"message": {"role": "assistant", **message}}
        found = refused(lambda a, choice=choice: (200, body(a, choice=choice)), chat=True)
        assert found.reason == "no_text"
        assert said in str(found.detail)
        assert found.n_output_tokens == 3


def test_endpoint_content_in_parts_is_read_or_is_the_reason_of_a_row(
    subtests: pytest.Subtests,
) -> None:
    thought = {"type": "thinking", "thinking": [{"type": "text", "text": "Paris?"}]}
    answers: list[tuple[bool, dict[str, Any], str | None]] = [
        (
            True,
            {"message": {"content": [thought, {"type": "text", "text": "Oslo\nand"}]}},
            "Paris?",
        ),
        (True, {"message": {"content": {"type": "text", "text": "Oslo"}}}, None),
        (True, {"message": {"content": "Oslo", "reasoning": [{"text": "Paris?"}]}}, "Paris?"),
        (True, {"message": {"content": "Oslo", "reasoning_content": {"a": 1}}}, '{"a": 1}'),
        (False, {"text": [{"type": "text", "text": "Oslo\r\nand"}]}, None),
    ]
    for chat, choice, kept in answers:
        with subtests.test(choice):
            (given,) = asked(lambda a, choice=choice: (200, body(a, choice=choice)), chat=chat)
            assert isinstance(given, Answer), given
            (completion,) = given.completions
            assert completion.text == "Oslo"
            assert (completion.thought and completion.thought.text) == kept
    reasons: list[tuple[bool, dict[str, Any], str, str]] = [
        (True, {"message": {"content": {"city": "Oslo"}}}, "unknown_content", '{"city": "Oslo"}'),
        (True, {"message": {"content": 5}}, "unknown_content", "5"),
        (True, {"message": "Oslo"}, "unknown_content", "Oslo"),
        (True, {"message": None, "delta": {"content": "Oslo"}}, "no_text", '"delta": {"content"'),
        (True, {"message": {"content": [{"type": "refusal", "refusal": "No."}]}}, "refused", "No"),
        (False, {"text": {"city": "Oslo"}}, "unknown_content", '{"city": "Oslo"}'),
        (False, {"text": None, "message": {"content": "Oslo"}}, "no_text", '"content": "Oslo"'),
    ]
    for chat, choice, reason, quoted in reasons:
        with subtests.test(choice):
            found = refused(lambda a, choice=choice: (200, body(a, choice=choice)), chat=chat)
            assert (found.reason, found.n_output_tokens) == (reason, 3)
            assert quoted in found.detail


def test_endpoint_that_repeats_the_prompt_loses_it_from_the_first_answer_on(
    subtests: pytest.Subtests,
) -> None:
    turns = (
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Where is it?"},
    )
    logprobs = {"token_logprobs": [None, *[-0.5] * 9], "tokens": list("abcdefghij")}
    for chat, prompt, own_turns in (
        (False, "Q: Where?\nA:", ()),
        (True, "Q: Where?\nA:", ()),
        (True, "Where is it?", turns),
        (True, "system\nBe brief.\nuser\nWhere is it?\nassistant\n", turns),
    ):
        with subtests.test(prompt=prompt, chat=chat):
            text = f"{prompt} Oslo\nQ: And"
            choice = {"message": {"content": text}} if chat else {"text": text}
            says = lambda a, c=choice: (200, body(a, choice={**c, "logprobs": logprobs}))  # noqa: E731
            request = Request("p0", [], replace(GREEDY, logprobs=True), None, "Q: Where?\nA:")
            with serving(says) as server, engine(server, chat=chat) as found:
                (answer,) = found.answers([replace(request, turns=own_turns)])
            assert isinstance(answer, Answer), answer
            assert answer.completions[0].text.strip() == "Oslo"
            assert (answer.n_prompts_removed, answer.without) == (1, ("logprobs",))


def test_endpoint_thought_is_cut_from_the_answer_whoever_parts_them() -> None:
    """A server with a parser of its own, one without, one whose template opened the thought."""
    usage = {
        "prompt_tokens": 3,
        "completion_tokens": 9,
        "total_tokens": 12,
        "completion_tokens_details": {"reasoning_tokens": 6},
    }
    cases: list[tuple[dict[str, str], str, str]] = [
        ({"content": "\n\nOslo\nand", "reasoning_content": "a\nb"}, "a\nb", "Oslo"),
        ({"content": "<think>\na\nb\n</think>\n\nOslo\nand"}, "a\nb", "Oslo"),
        ({"content": "a\nb</think>Oslo"}, "a\nb", "Oslo"),
        ({"content": "Oslo\n</s>"}, "", "Oslo"),
    ]
    for message, thought, text in cases:

        def says(asked: dict[str, Any], message: dict[str, str] = message) -> Said:
            assert asked["max_tokens"] == GREEDY.max_tokens + 20
            assert "stop" not in asked
            choice = {"message": {"role": "assistant", **message}}
            return 200, body(asked, choice=choice, usage=usage)

        with serving(says) as server, engine(server, chat=True) as found:
            (given,) = found.answers(replace(e, thinking=Thinking(20)) for e in requests(1))
        assert isinstance(given, Answer), given
        (completion,) = given.completions
        assert completion.text == text, message
        kept = completion.thought
        assert (kept and (kept.text, kept.n_tokens)) == ((thought, 6) if thought else None)
        assert completion.n_tokens == 2  # whether the server tells what was thought or not


def test_endpoint_thought_that_only_the_usage_tells_of_costs_what_it_costs() -> None:
    """In an empty reply; and of a server that leaves it out of the tokens of the answer."""
    told = {"prompt_tokens": 3, "completion_tokens": 20, "total_tokens": 23}
    told["completion_tokens_details"] = {"reasoning_tokens": 20}
    empty = {"message": {"role": "assistant", "content": ""}, "finish_reason": "length"}
    says = lambda a: (200, body(a, choice=empty, usage=told))  # noqa: E731
    found = refused(says, chat=True)
    assert (found.reason, found.n_output_tokens) == ("no_text", 20)
    assert "thought (20 tokens) until its tokens were used up" in found.detail
    beside = {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 25}
    (answer,) = asked(lambda a: (200, body(a, usage=beside)), chat=True)
    assert answer.n_output_tokens == 22


def test_endpoint_thought_without_an_end_is_a_reason_of_its_own() -> None:
    choice = {"message": {"role": "assistant", "content": "<think>a"}, "finish_reason": "length"}
    says = lambda a: (200, body(a, choice=choice))  # noqa: E731
    with serving(says) as server, engine(server, chat=True) as found:
        (given,) = found.answers(replace(e, thinking=Thinking(20)) for e in requests(1))
    assert isinstance(given, Refused)
    assert (given.reason, given.n_output_tokens) == ("thought_not_ended", 3)


@pytest.mark.parametrize(
    "trouble",
    [
        error(401, f"Incorrect API key provided: {KEY}"),
        error(403, "not allowed"),
        error(402, "pay first"),
        error(404, "no model some-model"),
        error(429, "You exceeded your current quota", "insufficient_quota"),
        error(400, "temperature must be 1"),
    ],
)
def test_endpoint_that_answers_nobody_ends_the_run_with_one_sentence(trouble: Said) -> None:
    calls: list[float] = []

    def says(_: dict[str, Any]) -> Said:
        calls.append(time.monotonic())
        return trouble

    message = stopped(says)
    assert message.startswith("model some-model at http://127.0.0.1:")
    assert message.count(". ") == 0
    assert KEY not in message
    assert (
        len(calls) <= 4
    )  # none was sent again; one more prompt may ask whether others fare better


@pytest.mark.parametrize(
    ("body_", "said"),
    [
        ({"error": {"message": "model is loading", "code": 503}}, "model is loading"),
        ({"detail": "Not yet"}, '{"detail": "Not yet"}'),
        (b"<html>Log in", "<html>Log in"),
        (b"", "an empty body"),
    ],
)
def test_endpoint_that_calls_an_error_an_answer_ends_the_run_with_what_it_said(
    body_: Any, said: str
) -> None:
    message = stopped(lambda _: (200, body_), give_up_s=1.5)
    assert f"status 200 without an answer: {said}" in message


@pytest.mark.parametrize("code", [401, "invalid_api_key", 404, "model_not_found", 402])
def test_endpoint_error_in_an_answer_ends_the_run_at_once_if_its_status_does(code: Any) -> None:
    calls: list[dict[str, Any]] = []

    def says(asked: dict[str, Any]) -> Said:
        calls.append(asked)
        return 200, {"error": {"message": f"no {KEY}", "code": code}}

    assert "no <key>" in stopped(says, max_concurrent=1)
    assert len(calls) == 1


def test_endpoint_with_another_model_ends_the_run_with_the_revision_to_give() -> None:
    message = stopped(lambda a: (200, body(a, model="gpt-4o-2024-08-06")))
    assert "gpt-4o-2024-08-06 fp_1 answered in place of some-model" in message
    assert "give model.revision=gpt-4o-2024-08-06;" in message
    message = stopped(well, revision="fp_2")
    assert "fp_1 answered in place of fp_2" in message
    assert "give model.revision=fp_1;" in message
    (answer,) = asked(well, revision="fp_1")
    assert isinstance(answer, Answer)


def test_endpoint_redirect_is_not_followed() -> None:
    with serving(well) as elsewhere:
        there = {"location": f"{elsewhere.url}/chat/completions"}
        message = stopped(lambda _: (307, {}, there))
        assert elsewhere.url in message
        assert not elsewhere.requests


def test_endpoint_that_is_not_there_ends_the_run() -> None:
    nowhere = ChatServer(well, url="http://127.0.0.1:9/v1")
    with engine(nowhere, give_up_s=1.0) as found:
        answers = found.answers(requests(2))
        with pytest.raises(InputError, match=naming("http://127.0.0.1:9/v1")):
            next(answers)


def test_endpoint_without_usage_estimates_tokens() -> None:
    (answer,) = asked(lambda a: (200, body(a, usage=None)))
    assert answer.n_prompt_tokens == 4  # prompt, number and 0 with its blank
    assert answer.n_output_tokens > 0


def test_endpoint_has_no_more_requests_at_once_than_allowed() -> None:
    running, most, lock = 0, 0, threading.Lock()

    def says(asked: dict[str, Any]) -> Said:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        time.sleep(0.01)
        with lock:
            running -= 1
        return well(asked)

    asked(says, 100, max_concurrent=5)
    assert 2 <= most <= 5


def texts(n: int) -> list[ScoreRequest]:
    return [ScoreRequest(f"p{i}", [11, 12, 13, 14 + i], "g", span=(1, 3)) for i in range(n)]


def echoed(asked: dict[str, Any], *, more: int = 1, **changed: Any) -> Said:
    """The log-probabilities of a text, and of one token more."""
    n = len(asked["prompt"]) + more
    found = [None, *(-0.5 * place for place in range(1, n))]
    logprobs = {"token_logprobs": found, "tokens": ["x"] * n} | changed
    usage = {"prompt_tokens": len(asked["prompt"]), "completion_tokens": 1, "total_tokens": 0}
    said = body({**asked, "prompt": "text"}, choice={"logprobs": logprobs}, usage=usage)
    return 200, said


def scores(says: Says, n: int = 1) -> tuple[list[Any], ChatServer]:
    with serving(says) as server, engine(server) as found:
        return list(found.scores(texts(n))), server


def test_endpoint_scores_are_those_of_the_texts_tokens() -> None:
    (found,), server = scores(echoed)
    assert (found.logprob, found.n_tokens) == (-3.0, 3)  # the token more is none of the text's
    assert (found.entity_logprob, found.entity_n_tokens) == (-1.5, 2)
    assert (found.n_prompt_tokens, found.n_output_tokens) == (4, 1)
    short, whole = server.requests  # the first shows whether there are scores at all
    assert (short["prompt"], whole["prompt"]) == ([11, 12], [11, 12, 13, 14])
    assert (whole["echo"], whole["logprobs"], whole["max_tokens"]) == (True, 1, 1)


@pytest.mark.parametrize(
    ("says", "said"),
    [
        (lambda _: error(400, "echo is not supported"), "echo is not supported"),
        (well, "the answer has no log-probabilities"),
        (lambda a: echoed(a, more=-1), "1 log-probabilities, not those of a text of 2 tokens"),
        (lambda a: echoed(a, more=2), "4 log-probabilities, not those of a text of 2 tokens"),
        (lambda a: echoed(a, token_logprobs=[None, None]), "a token of the text has no log-prob"),
        (lambda a: echoed(a, token_logprobs=[-1.0, -0.5]), "not those of a text of 2 tokens"),
    ],
)
def test_endpoint_without_scores_is_refused_after_two_tokens(says: Says, said: str) -> None:
    asked: list[int] = []

    def counted(request: dict[str, Any]) -> Said:
        asked.append(len(request["prompt"]) if isinstance(request["prompt"], list) else 0)
        return says(
            {**request, "prompt": request["prompt"]}
            if says is not well
            else {**request, "prompt": "text"}
        )

    with pytest.raises(InputError, match=naming("log-probabilities")) as caught:
        scores(counted, 5)
    assert said in str(caught.value)
    assert str(caught.value).count(". ") == 0
    assert asked == [2]


def test_endpoint_text_that_gets_no_score_is_its_row() -> None:
    odd = [11, 12, 13, 15]
    found, _ = scores(lambda a: echoed(a, more=-2 if a["prompt"] == odd else 1), 3)
    reasons = {each.request_id: getattr(each, "reason", None) for each in found}
    assert reasons == {"p0": None, "p1": "no_scores", "p2": None}


def behind(asked: dict[str, Any], *, without: int | None = None) -> Said:
    """The log-probability of a token is its number's, whatever the text."""
    said = {f"token_id:{token}": -token / 10 for token in asked["logprob_token_ids"]}
    found = {name: value for name, value in said.items() if name != f"token_id:{without}"}
    choice = {"logprobs": {"token_logprobs": [-1.0], "tokens": ["x"], "top_logprobs": [found]}}
    return 200, body({**asked, "prompt": "text"}, choice=choice)


def preferred(says: Says) -> tuple[list[Any], ChatServer]:
    trie = Trie.of([(Name("Q1", "a b"), (1, 2)), (Name("Q2", "a c"), (1, 3))])
    request = PreferRequest("x", [11, 12, 13], trie, [5], "Q1", "given", 1, ["Q2"])
    with serving(says) as server, engine(server) as found:
        return list(found.preferences([request])), server


def test_endpoint_preferences_sum_the_tokens_of_labels_and_endings() -> None:
    (found,), server = preferred(behind)
    assert found.answer.logprob == pytest.approx(-0.1 - 0.2 - 0.5)
    assert [each.logprob for each in found.distractors] == pytest.approx([-0.1 - 0.3 - 0.5])
    assert server.requests[0]["prompt"] == [11, 12]  # which shows whether it says any of that
    texts = {tuple(each["prompt"]) for each in server.requests[1:]}
    assert texts == {(11, 12, 13), (11, 12, 13, 1), (11, 12, 13, 1, 2), (11, 12, 13, 1, 3)}


@pytest.mark.parametrize(
    ("says", "said"),
    [
        (lambda a: (200, body({**a, "prompt": "text"})), "the answer has no log-probabilities"),
        (lambda a: behind(a, without=a["logprob_token_ids"][0]), "0 of 1 tokens have a log-prob"),
        (lambda _: error(400, "extra fields not permitted"), "extra fields not permitted"),
    ],
)
def test_endpoint_without_preferences_is_refused_after_two_tokens(says: Says, said: str) -> None:
    with pytest.raises(InputError, match=naming("log-probabilities")) as caught:
        preferred(says)
    assert said in str(caught.value)


@pytest.mark.slow
def test_endpoint_asks_for_less_at_once_before_answers_come_too_late() -> None:
    running, seen, lock = 0, list[int](), threading.Lock()

    def says(asked: dict[str, Any]) -> Said:
        nonlocal running
        with lock:
            running += 1
            seen.append(running)
        time.sleep(1.1)
        with lock:
            running -= 1
        return well(asked)

    asked(says, 7, timeout_s=2.0)
    assert len(seen) == 7  # none came too late
    assert (max(seen), seen[-1]) == (4, 1)
