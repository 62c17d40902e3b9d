"""The client of OpenAI-compatible endpoints, against a real HTTP server on a real socket.

The server is of this test, and so is its model: it says what the test tells it to, or repeats the
prompt. It keeps the layout of requests and answers of OpenAI's chat completions.
"""

import json
import threading
import time
import traceback
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import polars as pl
import pytest

from operators.construction.paraphrase import MANUAL, paraphrased
from operators.engines.openai_chat import OpenAIChat
from operators.errors import InputError

KEY = "sk-secret-4711"


@dataclass
class Server:
    """What it will say (status and body, in turn; then the prompt), and what it was asked."""

    url: str = ""
    says: list[tuple[int, Any]] = field(default_factory=list)
    asked: list[dict[str, Any]] = field(default_factory=list)
    keys: list[str | None] = field(default_factory=list)
    pause_s: float = 0.0

    def answer(self, request: dict[str, Any]) -> tuple[int, Any]:
        self.asked.append(request)
        prompt = request["messages"][-1]["content"]
        return self.says.pop(0) if self.says else (200, completion(f"You said: {prompt}"))


def completion(text: str | None) -> dict[str, Any]:
    message = {"role": "assistant", "content": text}
    choice = {"index": 0, "message": message, "finish_reason": "stop"}
    return {"id": "1", "object": "chat.completion", "created": 0, "model": "m", "choices": [choice]}


@pytest.fixture
def server() -> Iterator[Server]:
    state = Server()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            assert self.path == "/v1/chat/completions"
            state.keys.append(self.headers["Authorization"])
            body = self.rfile.read(int(self.headers["Content-Length"]))
            status, answer = state.answer(json.loads(body))
            time.sleep(state.pause_s)
            data = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
            try:
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Retry-After-Ms", "1")
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)
            except ConnectionError:  # the client has hung up
                return

        def log_message(self, *args: object) -> None:
            return

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as http:
        state.url = f"http://127.0.0.1:{http.server_port}/v1"
        thread = threading.Thread(target=http.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield state
        http.shutdown()
        thread.join()


def chat(server: Server, **options: Any) -> OpenAIChat:
    return OpenAIChat(server.url, "some-model", KEY, **{"max_retries": 2, **options})


def refusal(server: Server, **options: Any) -> str:
    with pytest.raises(InputError) as caught:
        chat(server, **options)("Hello")
    return str(caught.value)


def test_chat_sends_prompt_model_and_key(server: Server) -> None:
    assert chat(server)("Good day") == "You said: Good day"
    (request,) = server.asked
    assert request == {"model": "some-model", "messages": [{"role": "user", "content": "Good day"}]}
    assert server.keys == [f"Bearer {KEY}"]


def test_chat_temperature_is_sent_where_it_is_given(server: Server) -> None:
    chat(server, temperature=0.0)("Good day")
    assert server.asked[0]["temperature"] == 0.0


@pytest.mark.parametrize("status", [429, 500, 503])
def test_chat_passing_trouble_is_tried_again(server: Server, status: int) -> None:
    server.says = [(status, {"error": {"message": "not now"}})] * 2
    assert chat(server)("Good day") == "You said: Good day"
    assert len(server.asked) == 3


def test_chat_lasting_trouble_is_given_up_after_the_retries(server: Server) -> None:
    server.says = [(503, {"error": {"message": "overloaded"}})] * 9
    message = refusal(server)
    assert len(server.asked) == 3
    for part in ("some-model", server.url, "overloaded"):
        assert part in message


def test_chat_wrong_key_is_not_tried_again_and_never_shown(server: Server) -> None:
    server.says = [(401, {"error": {"message": f"Incorrect API key provided: {KEY}"}})]
    with pytest.raises(InputError, match="Incorrect API key provided: <key>") as caught:
        chat(server)("Hello")
    assert len(server.asked) == 1
    assert KEY not in "".join(traceback.format_exception(caught.value))
    assert KEY not in repr(chat(server))


def test_chat_server_of_ones_own_needs_no_key(server: Server) -> None:
    assert OpenAIChat(server.url, "some-model", "")("Good day") == "You said: Good day"


def test_chat_slow_server_is_timed_out(server: Server) -> None:
    server.pause_s = 1.0
    start = time.monotonic()
    assert "timed out" in refusal(server, timeout_s=0.05, max_retries=0)
    assert time.monotonic() - start < 1.0


@pytest.mark.parametrize(
    "body", [completion(None), completion(""), {"choices": []}, {"detail": "what?"}, b"<html>"]
)
def test_chat_answer_without_a_text_is_said(server: Server, body: Any) -> None:
    server.says = [(200, body)]
    assert "some-model" in refusal(server)


def test_chat_no_server_is_said() -> None:
    with pytest.raises(InputError, match=r"at http://127.0.0.1:9/v1 did not answer .* correct the"):
        OpenAIChat("http://127.0.0.1:9/v1", "m", "k", max_retries=0)("Hello")


def test_chat_paraphrases_a_template(server: Server) -> None:
    server.says = [
        (200, completion("1. [X] lost life in [Y].\n2. [X] died in [Y].")),
        (429, {"error": {"message": "not now"}}),
        (200, completion("1. “[Y] is where [X] died.”")),
    ]
    manual = pl.DataFrame([("P20", "[X] died in [Y].")], schema=MANUAL, orient="row")
    (result,) = paraphrased(chat(server), manual, n=2)
    assert result.paraphrases == ("[X] lost life in [Y].", "[Y] is where [X] died.")
    assert result.n_rounds == 2
