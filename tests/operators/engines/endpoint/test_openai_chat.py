"""The client of OpenAI-compatible endpoints, against a real HTTP server on a real socket.

The model behind it is of this test: it says what the test tells it to, or repeats the prompt.
"""

import traceback
from collections.abc import Iterator
from typing import Any

import polars as pl
import pytest

from factsweep.operators.construction.paraphrase import MANUAL, paraphrased
from factsweep.operators.engines.endpoint.openai_client import OpenAIChat
from factsweep.operators.errors import InputError
from tests.chat_server import ChatServer, completion, serving
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
    return str(caught.value)


def test_chat_sends_prompt_model_and_key(server: ChatServer) -> None:
    assert chat(server)("Good day") == "You said: Good day"
    (request,) = server.requests
    assert request == {"model": "some-model", "messages": [{"role": "user", "content": "Good day"}]}
    assert server.keys == [f"Bearer {KEY}"]


def test_chat_temperature_is_sent_where_it_is_given(server: ChatServer) -> None:
    chat(server, temperature=0.0)("Good day")
    assert server.requests[0]["temperature"] == 0.0


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
    with pytest.raises(InputError, match=naming("API", "<key>")) as caught:
        chat(server)("Hello")
    assert len(server.requests) == 1
    assert KEY not in "".join(traceback.format_exception(caught.value))
    assert KEY not in repr(chat(server))


def test_chat_server_of_ones_own_needs_no_key(server: ChatServer) -> None:
    assert OpenAIChat(server.url, "some-model", "")("Good day") == "You said: Good day"


def test_chat_slow_server_is_timed_out(server: ChatServer) -> None:
    server.pause_s = 1.0
    assert "timed out" in refusal(server, timeout_s=0.05, max_retries=0)


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


def test_chat_no_server_is_said() -> None:
    with pytest.raises(InputError, match=naming("http://127.0.0.1:9/v1")):
        OpenAIChat("http://127.0.0.1:9/v1", "m", "k", max_retries=0)("Hello")


def test_chat_paraphrases_a_template(server: ChatServer, model: Model) -> None:
    model.says = [
        (200, completion("1. [X] lost life in [Y].\n2. [X] died in [Y].")),
        (429, {"error": {"message": "not now"}}),
        (200, completion("1. “[Y] is where [X] died.”")),
    ]
    manual = pl.DataFrame([("P20", "[X] died in [Y].")], schema=MANUAL, orient="row")
    (result,) = paraphrased(chat(server), manual, n=2)
    assert [text for _, _, text in result] == ["[X] lost life in [Y].", "[Y] is where [X] died."]
    assert len(server.requests) == 3  # two rounds, the second of them tried again
