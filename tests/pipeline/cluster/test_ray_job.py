"""A job for a running Ray cluster: what is sent, and a job server that takes it."""

import json
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

import pytest
import ray

from factsweep.operators.errors import InputError
from factsweep.pipeline.cli import main
from factsweep.pipeline.cluster import ray_job
from factsweep.pipeline.config.settings import load
from tests.messages import naming

STORES = ("artifacts=s3://sweeps/artifacts", "results=/shared/results")


class JobServer(BaseHTTPRequestHandler):
    """Ray's job server as far as a submission goes: a fake, since a real one takes a minute."""

    def do_GET(self) -> None:
        self.answer(
            {"version": "4", "ray_version": ray.__version__, "ray_commit": "", "session_name": ""}
        )

    def do_POST(self) -> None:
        if "closed" in self.server.jobs:  # type: ignore[attr-defined]
            self.answer({"error": "no token"}, status=401)
            return
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.jobs.append((self.path, json.loads(body)))  # type: ignore[attr-defined]
        self.answer({"job_id": "raysubmit_1", "submission_id": "raysubmit_1"})

    def answer(self, content: dict[str, str], status: int = 200) -> None:
        body = json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Nothing: the test has what was posted."""


@pytest.fixture
def server() -> Iterator[ThreadingHTTPServer]:
    with ThreadingHTTPServer(("127.0.0.1", 0), JobServer) as server:
        server.jobs = []  # type: ignore[attr-defined]
        thread = Thread(target=server.serve_forever)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def test_launch_posts_what_dry_run_prints(server: Any, capsys: pytest.CaptureFixture[str]) -> None:
    address = f"http://127.0.0.1:{server.server_port}"
    given = ["cluster=ray", "seed=1", f"cluster.launch.job_server={address}", *STORES]
    assert main(["launch", "--dry-run", *given]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert server.jobs == []
    assert printed["entrypoint"] == f"factsweep run {' '.join(given)}"

    assert main(["launch", *given]) == 0
    assert "submitted raysubmit_1; follow it with: ray job logs" in capsys.readouterr().out
    [(path, posted)] = server.jobs
    assert path == "/api/jobs/"
    assert posted.items() >= printed.items()


def test_launch_job_server_that_wants_a_token_is_bad_input(
    server: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    server.jobs.append("closed")
    address = f"http://127.0.0.1:{server.server_port}"
    assert main(["launch", "cluster=ray", f"cluster.launch.job_server={address}", *STORES]) == 2
    assert capsys.readouterr().err.startswith(f"factsweep: the job server at {address} did not")


def test_launch_no_job_server_at_the_address_is_bad_input(
    capsys: pytest.CaptureFixture[str],
) -> None:
    nowhere = "cluster.launch.job_server=http://127.0.0.1:9"
    assert main(["launch", "cluster=ray", nowhere, *STORES]) == 2
    assert "check cluster.launch.job_server" in capsys.readouterr().err


def test_launch_without_job_server_is_bad_input(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("RAY_API_SERVER_ADDRESS", raising=False)
    assert main(["launch", "cluster=ray", *STORES]) == 2
    assert "cluster.launch.job_server is null; give" in capsys.readouterr().err


def test_rendered_relative_folder_is_refused() -> None:
    with pytest.raises(InputError, match=naming("results=results")):
        ray_job.rendered(load(["cluster=ray", STORES[0]]), [])
