"""A model behind an endpoint through the run's own path: clients in Ray."""

import re
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
import pytest

from factsweep.pipeline.config.settings import load
from factsweep.pipeline.runs.run import run
from tests.chat_server import ChatServer, Said, serving

AT_ONCE, PER_S = 5.0, 5.0
GREEDY = ("decoding.samples.n_prompts=0", "decoding.canary_prompts=0")


def completion(body: dict[str, Any], text: str) -> Said:
    choice = {"index": 0, "text": text, "finish_reason": "stop"}
    usage = {"prompt_tokens": 7, "completion_tokens": 2, "total_tokens": 9}
    kind = {"id": "1", "object": "text_completion", "created": 0, "model": body["model"]}
    return 200, {**kind, "choices": [choice], "usage": usage}


def at(server: ChatServer, folder: Path) -> list[str]:
    """The overrides that ask this server, and write there."""
    model = ["model=endpoint", "model.id=some-model", f"model.endpoint={server.url}"]
    return [*model, f"artifacts={folder}/artifacts", f"results={folder}/results"]


@dataclass
class Bucket:
    """A server that answers five requests a second, for all clients; the rest is turned away."""

    left: float = AT_ONCE
    last: float = field(default_factory=time.monotonic)
    answered: list[tuple[int, str]] = field(default_factory=list)  # by which client
    lock: Any = field(default_factory=threading.Lock)

    def __call__(self, body: dict[str, Any]) -> Said:
        with self.lock:
            time_s = time.monotonic()
            self.left = min(AT_ONCE, self.left + PER_S * (time_s - self.last))
            self.last = time_s
            if self.left < 1:
                return 429, {"error": {"message": "slow down"}}, {"Retry-After-Ms": "200"}
            self.left -= 1
            self.answered.append((client(), body["prompt"]))
        return completion(body, " Paris")


def client() -> int:
    """The process of the client that this thread of the server answers."""
    _, ours, _, to = threading.current_thread().name.split()
    # Both ends: another process may have the same port of its own, towards another server.
    for process in psutil.net_connections("tcp4"):
        if (
            process.pid
            and process.raddr
            and (process.laddr.port, process.raddr.port) == (int(ours), int(to))
        ):
            return process.pid
    raise AssertionError(f"no client asks from port {ours}")


@pytest.mark.slow
@pytest.mark.usefixtures("shared_ray", "plain")
def test_endpoint_two_clients_of_a_run_share_a_limit_and_neither_starves(
    small: list[str], tmp_path: Path
) -> None:
    settings_left = [
        override for override in small if not override.startswith(("model.", "decoding.engine"))
    ]
    replicas = ["model.replicas.min=2", "model.replicas.max=2", "cluster.rows_per_shard=9"]
    bucket = Bucket()
    with serving(bucket) as server:
        settings = load([*settings_left, *at(server, tmp_path), *replicas, *GREEDY])
        run(settings)
    log = (tmp_path / f"results/{settings.name}/logs/run.log").read_text()
    assert re.search(r"70/70 answers · 8/8 shards · [\d,]+ calls turned away · .* in all", log)
    clients = [client for client, _ in bucket.answered]
    assert len({prompt for _, prompt in bucket.answered}) == len(clients) == 70
    first, second = dict.fromkeys(clients)
    since_second = clients[clients.index(second) :]
    assert min(since_second.count(first), since_second.count(second)) >= len(since_second) / 4
