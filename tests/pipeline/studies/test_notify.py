"""What a web hook is told about a night: a real server on this machine takes it."""

import json
import re
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

import pytest

from factsweep.operators.errors import DecodingError, InputError
from factsweep.pipeline.cli import main
from factsweep.pipeline.studies import night as module
from factsweep.pipeline.studies.night import Judged, Night
from tests.messages import naming

SECRET = "hf_planted0123456789abcdefgh"
JUDGED = Judged("n/m-b", "4-template", "regression", f"it fell, {SECRET}", lost=("a", "b"))
NIGHT = Night("demo-2026-11-21", "results", "regression", None, (), (JUDGED,))


class Hook:
    """A server that keeps what it is sent."""

    def __init__(self, status: int = 200) -> None:
        self.told = list[dict[str, Any]]()
        self.status = status
        hook = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                assert self.headers["content-type"] == "application/json"
                hook.told.append(json.loads(self.rfile.read(int(self.headers["content-length"]))))
                self.send_response(hook.status)
                self.end_headers()

            def log_message(self, *_: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/hooks/very-secret-path"


@pytest.fixture
def hook() -> Iterator[Hook]:
    found = Hook()
    thread = Thread(target=found.server.serve_forever)
    thread.start()
    yield found
    found.server.shutdown()
    thread.join()
    found.server.server_close()


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
    (told,) = hook.told
    assert re.search(naming("demo-2026-11-21", "code 3", "n/m-b, 4-template"), told["text"])
    assert (told["outcome"], told["exit_code"]) == ("regression", 3)
    assert told["settings"][0]["lost"] == 2
    assert told["verdict"] == "results/demo-2026-11-21/verdict.json"
    assert SECRET not in json.dumps(told)
    assert "very-secret-path" not in "".join(capsys.readouterr())


def test_notify_address_of_the_environment_is_told_of_a_failure(
    hook: Hook, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(module.VARIABLE, hook.url)
    nights(monkeypatch, DecodingError(f"no engine was ready, {SECRET}."))
    assert main(["nightly", "demo", "--date", "2026-11-21"]) == 1
    (told,) = hook.told
    assert re.search(naming("demo-2026-11-21", "code 1", "no engine"), told["text"])
    assert SECRET not in json.dumps(told)


@pytest.mark.parametrize(
    ("error", "code"),
    [(InputError("no."), 2), (ValueError("a fault"), 1), (KeyboardInterrupt(), 130)],
)
def test_notify_tells_the_exit_code_of_any_end(
    hook: Hook, monkeypatch: pytest.MonkeyPatch, error: BaseException, code: int
) -> None:
    nights(monkeypatch, error)
    assert main(["nightly", "demo", "--notify", hook.url]) == code
    assert hook.told[0]["exit_code"] == code


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


@pytest.mark.parametrize("url", ["ftp://x/secret", "secret", "https://"])
def test_notify_no_address_is_refused_before_the_night(
    url: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    nights(monkeypatch, AssertionError("the night began"))
    assert main(["nightly", "demo", "--notify", url]) == 2
    err = capsys.readouterr().err
    assert re.search(naming("--notify", "FACTSWEEP_NOTIFY_URL"), err)
    assert "secret" not in err
