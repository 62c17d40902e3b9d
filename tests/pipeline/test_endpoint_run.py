"""A model behind an endpoint through the run's own path: clients in Ray, and nights."""

import re
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import polars as pl
import psutil
import pytest

from factsweep.pipeline.cli import main
from factsweep.pipeline.config.run import Run
from factsweep.pipeline.config.settings import load
from factsweep.pipeline.runs.run import run
from factsweep.pipeline.stages import facts
from factsweep.pipeline.stages.expand import with_text
from factsweep.pipeline.stages.plan import build_plan
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


RELATIONS = "P17,P30,P36,P37,P103,P407,P495,P1376"
DAMAGED = "P36"


def right_answers(settings: Run) -> dict[str, tuple[str, str]]:
    """The relation and the right answer of each prompt, which is asked for by its text."""
    (branch,) = build_plan(settings).branches
    branch.step(branch.facts).run()
    branch.step(branch.prompts).run()
    label = pl.col("objects").list.first().struct.field("labels").list.first()
    right = facts.load(branch.facts).pairs.select("pair_id", "relation_id", label=label)
    shards = [with_text(branch.prompts, "prompts", s) for s in branch.prompts.shards("prompts")]
    rows = pl.concat(shards).join(right, on="pair_id").select("text", "relation_id", "label")
    return {text: (relation, answer) for text, relation, answer in rows.iter_rows()}


@pytest.mark.slow
@pytest.mark.usefixtures("shared_ray", "plain")
def test_endpoint_nights_ask_it_afresh_and_find_what_became_worse(
    nightly_file: Callable[..., str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    slice_of = ["prompt=zero-shot", "prompt.templates=manual", f"benchmark.relations=[{RELATIONS}]"]
    sizes = ["benchmark.pairs_per_relation=10", "benchmark.names_per_subject=1"]
    draws = ["metrics.n_draws=100", "metrics.n_rounds=50", "metrics.analyses=[]"]
    decoding = ["decoding=greedy", "decoding.canary_prompts=20"]
    answers: dict[str, tuple[str, str]] = {}
    damaged: set[str] = set()

    def says(request: dict[str, Any]) -> Said:
        relation, answer = answers[request["prompt"]]
        return completion(request, " no idea" if relation in damaged else f" {answer}")

    with serving(says) as server:
        overrides = [*slice_of, *sizes, *draws, *decoding, *at(server, tmp_path)]
        answers |= right_answers(load(overrides))
        nightly_path = nightly_file("served", [overrides])
        folders = [f"artifacts={tmp_path}/artifacts", f"results={tmp_path}/results"]

        def night(day: int) -> int:
            return main(["nightly", nightly_path, *folders, "--date", f"2026-11-0{day}"])

        assert night(1) == 4  # there is no baseline yet
        of_a_night = len(server.requests)
        assert main(["baseline", "accept", nightly_path, "served-2026-11-01", folders[1]]) == 0
        assert night(2) == 0
        assert len(server.requests) == 2 * of_a_night
        damaged.add(DAMAGED)
        capsys.readouterr()
        assert night(3) == 3
    assert f"acc_at_1 in {DAMAGED} fell by" in capsys.readouterr().out
