"""A real server: vLLM's own, with SmolLM2 on loopback, against the engine in this process."""

import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from transformers import LlamaConfig, LlamaForCausalLM

from factsweep.operators.datasets.facts import Facts
from factsweep.operators.engines.endpoint import EndpointEngine
from factsweep.operators.engines.protocol import (
    Answer,
    Endpoint,
    Request,
    Sampling,
    Scored,
    Start,
    score_requests,
)
from factsweep.operators.engines.vllm import VllmEngine
from factsweep.operators.prompts.chat import turns
from factsweep.operators.prompts.expansion import expand
from factsweep.operators.prompts.plausibility import items
from factsweep.operators.prompts.setting import Setting
from factsweep.operators.prompts.tokens import encode
from factsweep.pipeline.config.settings import load
from factsweep.pipeline.inputs import catalog, models
from factsweep.pipeline.inputs.models import Weights
from factsweep.pipeline.results import run_record
from factsweep.pipeline.runs import run as runner
from factsweep.pipeline.stages.plan import build_plan
from factsweep.pipeline.storage.store import Store
from tests.chat_server import HANG_UP, Said, serving
from tests.operators.engines.test_vllm_preferences import asked as candidates
from tests.operators.engines.test_vllm_preferences import close

pytestmark = [pytest.mark.slow, pytest.mark.engine, pytest.mark.timeout(900)]

GREEDY = Sampling(max_tokens=10, stop=("\n",))
N = 12
START_S = 600


@pytest.fixture(scope="module")
def url(smollm2: Weights, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    log = tmp_path_factory.mktemp("vllm") / "server.log"
    with start(models.location(smollm2), log) as server:
        wait(server, log)
        yield server.url


@dataclass
class Server:
    """A process of vLLM's server, the leader of its group, and its URL."""

    process: "subprocess.Popen[bytes]"
    url: str


@contextmanager
def start(model: str, log: Path) -> Iterator[Server]:
    with socket.create_server(("127.0.0.1", 0)) as socket_:
        port = socket_.getsockname()[1]
    command = [
        *(sys.executable, "-m", "vllm.entrypoints.openai.api_server"),
        *("--model", model, "--served-model-name", "smollm2"),
        *("--dtype", "float32", "--max-model-len", "1024", "--enforce-eager"),
        *("--host", "127.0.0.1", "--port", str(port), "--block-size", "32"),
    ]
    variables = {**os.environ, "VLLM_CPU_KVCACHE_SPACE": "1"}
    with log.open("w") as output:
        process = subprocess.Popen(
            command, stdout=output, stderr=output, env=variables, start_new_session=True
        )
    try:
        yield Server(process, f"http://127.0.0.1:{port}/v1")
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGTERM)
        process.wait(60)


def wait(server: Server, log: Path) -> None:
    ends = time.monotonic() + START_S
    while time.monotonic() < ends:
        assert server.process.poll() is None, log.read_text()[-3000:]
        try:
            with urllib.request.urlopen(server.url.replace("/v1", "/health"), timeout=5):
                return
        except OSError:
            time.sleep(1)
    pytest.fail(log.read_text()[-3000:])


def requests(facts: Facts, tokenizer: Any, *, chat: bool) -> list[Request]:
    """Prompts of several relations, greedy, with log-probabilities; raw text, or chats of turns."""
    setting = Setting("template", 4, as_="turns" if chat else None)
    texts = [
        row
        for expansion in expand(facts, setting, seed=0)
        for row in expansion.of("prompts").head(2).select("prompt_id", "text").iter_rows()
    ][:N]
    ids = encode(tokenizer, [text for _, text in texts], chat_template=chat, as_turns=chat)
    sampling = replace(GREEDY, logprobs=True)
    return [
        Request(name, token_ids, sampling, text=text, turns=tuple(turns(text)) if chat else ())
        for (name, text), token_ids in zip(texts, ids, strict=True)
    ]


@contextmanager
def client(url: str, *, chat: bool = False) -> Iterator[EndpointEngine]:
    endpoint = Endpoint((url,), "MY_API_KEY", 120.0, 240.0, 8, chat=chat)
    loaded = EndpointEngine(Start("smollm2", "any", "auto", 1024, endpoint=endpoint))
    yield loaded
    loaded.close()


def by_id(answers: Iterator[Any]) -> dict[str, Answer]:
    return {answer.request_id: answer for answer in answers}


@pytest.mark.parametrize("chat", [False, True])
def test_endpoint_answers_of_vllm_are_those_of_the_engine_in_the_process(
    url: str, mini: Facts, tokenizer: Any, engine: VllmEngine, chat: bool
) -> None:
    requests_ = requests(mini, tokenizer, chat=chat)
    with client(url, chat=chat) as client_:
        served = by_id(client_.answers(requests_))
    local = by_id(engine.answers(requests_))
    assert served.keys() == local.keys()
    for name, answer in local.items():
        theirs = served[name]
        assert isinstance(theirs, Answer), theirs
        (expected,), (served_completion,) = answer.completions, theirs.completions
        assert (served_completion.text, served_completion.n_tokens) == (
            expected.text,
            expected.n_tokens,
        )
        assert served_completion.finish_reason == expected.finish_reason
        assert served_completion.logprob == pytest.approx(expected.logprob, abs=1e-3)
        assert theirs.n_prompt_tokens == answer.n_prompt_tokens


def test_endpoint_scores_of_vllm_are_those_of_the_engine_in_the_process(
    url: str, tokenizer: Any, engine: VllmEngine
) -> None:
    facts = catalog.read_facts(catalog.entry("probelm-mini"))
    requests_ = list(score_requests(tokenizer, items(facts, "statement", seed=0).head(11)))
    with client(url) as client_:
        served = {score.request_id: score for score in client_.scores(requests_)}
    for answer in engine.scores(iter(requests_)):
        theirs = served[answer.request_id]
        assert isinstance(theirs, Scored), theirs
        assert theirs.logprob == pytest.approx(answer.logprob, abs=1e-3)
        assert theirs.entity_logprob == pytest.approx(answer.entity_logprob, abs=1e-3)
        assert (theirs.n_tokens, theirs.entity_n_tokens) == (
            answer.n_tokens,
            answer.entity_n_tokens,
        )
        assert theirs.n_prompt_tokens == answer.n_prompt_tokens


def test_endpoint_preferences_of_vllm_are_those_of_the_engine_in_the_process(
    url: str, tokenizer: Any, engine: VllmEngine
) -> None:
    request = candidates(tokenizer, "exact", 3)
    with client(url) as client_:
        (theirs,) = client_.preferences([request])
    (answer,) = engine.preferences([request])
    assert close(answer.answer, theirs.answer)
    assert len(answer.distractors) == len(theirs.distractors) > 0
    assert all(map(close, answer.distractors, theirs.distractors))


@pytest.fixture(scope="module")
def tiny_llama(tokenizer: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Random weights with two KV heads, one for each worker."""
    folder = tmp_path_factory.mktemp("models") / "tiny-llama"
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=2,
        max_position_embeddings=1024,
    )
    LlamaForCausalLM(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


@pytest.mark.skipif((os.cpu_count() or 1) < 2, reason="two workers need two cores")
def test_tensor_parallel_2_answers_every_prompt(tiny_llama: Path, tmp_path: Path) -> None:
    run = load(
        [
            *("model.source=path", f"model.id={tiny_llama}", "model.name=tiny-llama"),
            *("model.gguf_file=null", "model.tensor_parallel=2", "model.max_model_len=512"),
            *("benchmark.relations=[P36]", "benchmark.pairs_per_relation=2", "prompt=zero-shot"),
            *("decoding=greedy", "decoding.canary_prompts=0", "cluster.device=cpu"),
            *("metrics.n_draws=5", "metrics.n_rounds=2"),
            *(f"artifacts={tmp_path}/artifacts", f"results={tmp_path}/results"),
        ]
    )
    metrics = runner.run(run)
    assert metrics.filter(metric="acc_at_1")["n_failed"].max() == 0
    (counts,) = build_plan(run).branches[0].answers.counts("generations").values()
    assert counts["prompts at tensor_parallel=2"] == counts["prompts"]


@dataclass
class Gate:
    """Hands requests to a server, and counts its answers; kills it after the `last` one."""

    server: Server
    last: int | None = None
    answered: Counter[str] = field(default_factory=Counter)

    def __call__(self, request: dict[str, Any]) -> Said:
        content = json.dumps(request).encode()
        reply = self._forward("/completions", content)
        if reply[0] == 200:
            self.answered[f"{request['prompt']} {request.get('seed')}"] += 1
        if self.answered.total() == self.last:
            os.killpg(self.server.process.pid, signal.SIGKILL)
        return reply

    def page(self, path: str) -> Said:
        return self._forward(path.removeprefix("/v1"), None)

    def _forward(self, path: str, content: bytes | None) -> Said:
        headers = {"Content-Type": "application/json"}
        url = self.server.url if path != "/version" else self.server.url.removesuffix("/v1")
        try:
            request = urllib.request.Request(f"{url}{path}", content, headers)
            with urllib.request.urlopen(request, timeout=120) as reply:
                return reply.status, reply.read()
        except (OSError, http.client.HTTPException):
            return HANG_UP, b""


def answers_of(endpoint: str, folder: Path) -> tuple[pl.DataFrame, dict[str, Any]]:
    """The answers of a run of this endpoint, and its record."""
    run = load(
        [
            *("model=endpoint", "model.id=smollm2", f"model.endpoint{endpoint}"),
            *("benchmark.relations=[P36,P37]", "benchmark.pairs_per_relation=6"),
            *("prompt=4-template", "decoding=greedy", "decoding.canary_prompts=0"),
            *("cluster.device=cpu", "metrics.n_draws=5", "metrics.n_rounds=2"),
            *(f"artifacts={folder}/artifacts", f"results={folder}/results"),
        ]
    )
    metrics = runner.run(run)
    assert metrics.filter(metric="acc_at_1")["n_failed"].max() == 0
    answers = build_plan(run).branches[0].answers.read_all("generations")
    return answers.sort("prompt_id").select("prompt_id", "text"), run_record.read(Store(run.folder))


@pytest.mark.usefixtures("shared_ray", "plain")
def test_endpoint_pool_of_two_servers_answers_as_one_though_one_is_killed(
    tiny_llama: Path, tmp_path: Path
) -> None:
    with ExitStack() as stack:
        logs = [tmp_path / f"server-{i}.log" for i in range(2)]
        started = [stack.enter_context(start(str(tiny_llama), log)) for log in logs]
        for server, log in zip(started, logs, strict=True):
            wait(server, log)
        alone, _ = answers_of(f"={started[0].url}", tmp_path / "alone")
        gates = [Gate(started[0]), Gate(started[1], last=30)]
        urls = []
        for gate in gates:
            served = stack.enter_context(serving(gate))
            served.page = gate.page
            urls.append(served.url)
        together, record = answers_of(f".urls=[{','.join(urls)}]", tmp_path / "together")
    assert started[1].process.poll() == -signal.SIGKILL
    assert together.equals(alone)
    answered = gates[0].answered + gates[1].answered
    assert answered.total() == len(answered) == together.height
    assert gates[1].answered.total() >= 30
    assert record["run"]["model"]["endpoint"] == {"urls": urls}
