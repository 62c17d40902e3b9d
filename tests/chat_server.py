"""An OpenAI-compatible endpoint on a real socket; each test decides its replies."""

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

HANG_UP = 0  # in place of a status: the connection is closed without an answer
CUT = -1  # likewise: in the middle of the answer
Said = tuple[int, Any] | tuple[int, Any, dict[str, str]]  # status, body, headers


@dataclass
class ChatServer:
    """What was asked of it, and with which key; `answer` gives a status (or HANG_UP) and a body."""

    answer: Callable[[dict[str, Any]], Said]
    url: str = ""
    requests: list[dict[str, Any]] = field(default_factory=list)
    keys: list[str | None] = field(default_factory=list)
    paths: list[str] = field(default_factory=list)
    pause_s: float = 0.0
    page: Callable[[str], Said] = lambda _: (404, {})  # of GET, by path


def completion(text: Any) -> dict[str, Any]:
    """An answer in the layout of chat completions."""
    message = {"role": "assistant", "content": text}
    choice = {"index": 0, "message": message, "finish_reason": "stop"}
    return {"id": "1", "object": "chat.completion", "created": 0, "model": "m", "choices": [choice]}


@contextmanager
def serving(answer: Callable[[dict[str, Any]], Said]) -> Iterator[ChatServer]:
    """The server, for the time of the block."""
    state = ChatServer(answer)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"  # connections are kept, as real servers do

        def do_GET(self) -> None:
            self._reply(*state.page(self.path))

        def do_POST(self) -> None:
            ends = self.client_address[1], self.server.server_address[1]
            threading.current_thread().name = "from {} to {}".format(*ends)
            state.paths.append(self.path)
            request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            state.keys.append(self.headers["Authorization"])
            state.requests.append(request)
            said = state.answer(request)
            time.sleep(state.pause_s)
            self._reply(*said)

        def _reply(self, status: int, body: Any, *further_headers: dict[str, Any]) -> None:
            headers = further_headers[0] if further_headers else {"Retry-After-Ms": "1"}
            if status == HANG_UP:
                self.close_connection = True
                return
            data = body if isinstance(body, bytes) else json.dumps(body).encode()
            try:
                self.send_response(200 if status == CUT else status)
                self.send_header("Content-Type", "application/json")
                for name, value in headers.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data[: len(data) // 2] if status == CUT else data)
                self.close_connection = self.close_connection or status == CUT
            except ConnectionError:  # the client has hung up
                return

        def log_message(self, *args: object) -> None:
            return

    class Server(ThreadingHTTPServer):
        daemon_threads = True  # a client that keeps its connection keeps its thread
        block_on_close = False
        request_queue_size = 512

        def handle_error(self, *args: object) -> None:
            return

    with Server(("127.0.0.1", 0), Handler) as http:
        state.url = f"http://127.0.0.1:{http.server_port}/v1"
        thread = threading.Thread(target=http.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield state
        finally:
            http.shutdown()
            thread.join()
