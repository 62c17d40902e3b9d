"""What a web hook is told about a night: a real server on this machine takes it."""

import json
import re
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from factsweep.operators.errors import DecodingError, InputError
from factsweep.pipeline.cli import main
from factsweep.pipeline.studies import night as module
from factsweep.pipeline.studies.night import JudgedSetting, Night
from tests.messages import naming

SECRET = "hf_planted0123456789abcdefgh"
JUDGED = JudgedSetting("n/m-b", "4-template", "regression", f"it fell, {SECRET}", lost=("a", "b"))
NIGHT = Night("demo-2026-11-21", "results", "regression", None, (), (JUDGED,))


class Hook:
    """A server that keeps what it is sent."""

    def __init__(self, status: int = 200) -> None:
        self.requests = list[dict[str, Any]]()
        self.status = status
        hook = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                assert self.headers["content-type"] == "application/json"
                hook.requests.append(
                    json.loads(self.rfile.read(int(self.headers["content-length"])))
                )
                self.send_response(hook.status)
                self.end_headers()

            def log_message(self, *_: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/hooks/very-secret-path"


@pytest.fixture
def hook() -> Iterator[Hook]:
    hook_server = Hook()
    thread = Thread(target=hook_server.server.serve_forever)
    thread.start()
    yield hook_server
    hook_server.server.shutdown()
    thread.join()
    hook_server.server.server_close()


def nights(monkeypatch: pytest.MonkeyPatch, error: BaseException | None = None) -> None:
    """The next night ends so."""

    def night(*_: object) -> Night:
        if error is not None:
            raise error
        return NIGHT

    monkeypatch.setattr(module, "night", night)


def test_notify_verdict_is_told_without_secrets(
    hook: Hook, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    nights(monkeypatch)
    assert main(["nightly", "demo", "--notify", hook.url]) == 3
    (request,) = hook.requests
    assert re.search(naming("demo-2026-11-21", "code 3", "n/m-b, 4-template"), request["text"])
    assert (request["outcome"], request["exit_code"]) == ("regression", 3)
    assert request["settings"][0]["lost"] == 2
    assert request["verdict"] == "results/demo-2026-11-21/verdict.json"
    assert SECRET not in json.dumps(request)
    assert "very-secret-path" not in "".join(capsys.readouterr())


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (DecodingError(f"no engine was ready, {SECRET}."), 1),
        (InputError("no."), 2),
        (ValueError("a fault"), 1),
        (KeyboardInterrupt(), 130),
    ],
)
def test_notify_sends_a_failure_to_the_address_of_the_environment(
    hook: Hook, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, error: BaseException, code: int
) -> None:
    monkeypatch.setenv(module.VARIABLE, hook.url)
    nights(monkeypatch, error)
    results = f"results={tmp_path}"
    assert main(["nightly", "demo", "--date", "2026-11-21", results]) == code
    if code == InputError.exit_code:  # what was never valid is not worth a message
        assert hook.requests == []
        (tmp_path / "demo-2026-11-20").mkdir()
        assert main(["nightly", "demo", "--date", "2026-11-21", results]) == code
    (request,) = hook.requests
    assert (request["exit_code"], request["outcome"]) == (code, "failed")
    assert re.search(naming("demo-2026-11-21", f"code {code}"), request["text"])
    assert SECRET not in json.dumps(request)


def test_notify_refused_or_unreachable_changes_no_exit_code(
    hook: Hook, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    nights(monkeypatch)
    hook.status = 500
    assert main(["nightly", "demo", "--notify", hook.url]) == 3
    assert re.search(naming("127.0.0.1", "500"), caplog.text)
    monkeypatch.setattr(module, "_RETRIES", 0)
    assert main(["nightly", "demo", "--notify", "http://127.0.0.1:1/secret"]) == 3
    assert "127.0.0.1 cannot be reached (ConnectError)." in caplog.text
    assert "secret" not in caplog.text
