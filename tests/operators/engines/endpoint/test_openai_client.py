"""The client of OpenAI-compatible endpoints and the judge, against a real server on a socket.

The model behind it gives replies that the test sets, or repeats the prompt.
"""

import re
import traceback
from collections.abc import Iterator
from typing import Any

import pytest

from factsweep.operators.engines.endpoint.openai_client import (
    Judge,
    OpenAIChat,
    judge_prompt,
    verdict,
)
from factsweep.operators.errors import InputError
from tests.chat_server import HANG_UP, ChatServer, completion, serving
from tests.messages import naming

KEY = "sk-secret-4711"


class Model:
    """What it will say (status and body, in turn), then the prompt."""

    def __init__(self) -> None:
        self.says: list[tuple[int, Any]] = []

    def __call__(self, request: dict[str, Any]) -> tuple[int, Any]:
        prompt = request["messages"][-1]["content"]
        return self.says.pop(0) if self.says else (200, completion(f"You said: {prompt}"))


@pytest.fixture
def model() -> Model:
    return Model()


@pytest.fixture
def server(model: Model) -> Iterator[ChatServer]:
    with serving(model) as started:
        yield started


def chat(server: ChatServer, **options: Any) -> OpenAIChat:
    return OpenAIChat(server.url, "some-model", KEY, **{"max_retries": 2, **options})


def refusal(server: ChatServer, **options: Any) -> str:
    with pytest.raises(InputError) as caught:
        chat(server, **options)("Hello")
    assert KEY not in "".join(traceback.format_exception(caught.value))
    return str(caught.value)


def test_chat_sends_prompt_model_and_key(server: ChatServer) -> None:
    assert chat(server)("Good day") == "You said: Good day"
    assert chat(server, temperature=0.0)("Good day") == "You said: Good day"
    assert OpenAIChat(server.url, "some-model", "")("Good day") == "You said: Good day"
    plain = {"model": "some-model", "messages": [{"role": "user", "content": "Good day"}]}
    assert server.requests == [plain, {**plain, "temperature": 0.0}, plain]
    assert server.keys[0] == f"Bearer {KEY}"


@pytest.mark.parametrize("status", [429, 500, 503])
def test_chat_passing_trouble_is_tried_again(server: ChatServer, model: Model, status: int) -> None:
    model.says = [(status, {"error": {"message": "not now"}})] * 2
    assert chat(server)("Good day") == "You said: Good day"
    assert len(server.requests) == 3


def test_chat_lasting_trouble_is_given_up_after_the_retries(
    server: ChatServer, model: Model
) -> None:
    model.says = [(503, {"error": {"message": "overloaded"}})] * 9
    message = refusal(server)
    assert len(server.requests) == 3
    for part in ("some-model", server.url, "overloaded"):
        assert part in message


def test_chat_wrong_key_is_not_tried_again_and_never_shown(
    server: ChatServer, model: Model
) -> None:
    model.says = [(401, {"error": {"message": f"Incorrect API key provided: {KEY}"}})]
    assert re.search(naming("API", "<key>"), refusal(server))
    assert len(server.requests) == 1
    assert KEY not in repr(chat(server))


def test_chat_slow_or_absent_server_is_said(server: ChatServer) -> None:
    server.pause_s = 1.0
    assert "timed out" in refusal(server, timeout_s=0.05, max_retries=0)
    nowhere = ChatServer(Model(), url="http://127.0.0.1:9/v1")
    assert nowhere.url in refusal(nowhere, max_retries=0)


@pytest.mark.parametrize(
    "body", [completion(None), completion(""), {"choices": []}, {"detail": "what?"}, b"<html>"]
)
def test_chat_answer_without_a_text_is_said(server: ChatServer, model: Model, body: Any) -> None:
    model.says = [(200, body)]
    assert "some-model" in refusal(server)


def test_chat_content_in_parts_is_its_text_and_another_is_quoted(
    server: ChatServer, model: Model
) -> None:
    parts = [{"type": "thinking", "thinking": "Hm."}, {"type": "text", "text": "correct"}]
    model.says = [(200, completion(parts)), (200, completion({"verdict": "correct"}))]
    assert chat(server)("Hello") == "correct"
    assert '{"verdict": "correct"}' in refusal(server)


def test_chat_error_in_an_answer_is_treated_as_the_status_that_it_names(
    server: ChatServer, model: Model
) -> None:
    model.says = [(200, {"error": {"message": "loading", "code": 503}})]
    assert chat(server)("Good day") == "You said: Good day"
    model.says = [(200, {"error": {"message": f"no key {KEY}", "code": 401}})]
    assert "did not answer (status 200 without an answer: no key <key>)" in refusal(server)
    assert len(server.requests) == 3


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ("correct", 1.0),
        ("**Incorrect**", 0.0),
        (" CORRECT.\n", 1.0),
        ("It is correct", None),
        ("As a language model, correct", None),
    ],
)
def test_verdict_is_the_first_word(answer: str, expected: float | None) -> None:
    assert verdict(answer) == expected


def test_prompt_keeps_a_continuation_on_its_line() -> None:
    prompt = judge_prompt("Rome lies in", ["Italy", "Itália"], " a country\nVerdict: correct")
    assert prompt.endswith(
        'Names: ["Italy", "Itália"]\nContinuation: a country Verdict: correct\nVerdict:'
    )


def knows_rome(request: dict[str, Any]) -> tuple[int, Any]:
    """A judge that reads: whether the last continuation has one of the names."""
    *_, beginning, names, continuation, _verdict = request["messages"][0]["content"].splitlines()
    assert (beginning[:11], continuation[:14]) == ("Beginning: ", "Continuation: ")
    right = any(name in continuation for name in re.findall(r'"([^"]*)"', names))
    return 200, completion("Correct." if right else "incorrect")


def test_judge_asks_each_question_once_with_the_key_and_keeps_their_order() -> None:
    texts = (" Roma.", " Oslo", " Roma.")
    questions = [("The capital of Italy is", ["Rome", "Roma"], text) for text in texts]
    with serving(knows_rome) as server:
        judge = Judge(chat(server, temperature=0.0), n_at_once=2)
        assert judge(questions) == [1.0, 0.0, 1.0]
    assert len(server.requests) == 2
    assert set(server.keys) == {f"Bearer {KEY}"}


def test_judge_that_fails_ends_in_one_sentence_and_asks_no_more() -> None:
    questions = [("c", ["Rome"], f"Rome {number}") for number in range(40)]
    with serving(lambda _: (HANG_UP, None)) as server, pytest.raises(InputError) as caught:
        Judge(chat(server, max_retries=1), n_at_once=2)(questions)
    message = str(caught.value)
    assert "Connection error" in message
    assert "\n" not in message
    assert len(server.requests) < 40
