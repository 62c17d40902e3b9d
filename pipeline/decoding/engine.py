"""Loads the engine of a run in this process; also as a callable: prompt → text."""

import fcntl
import os
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache, partial
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

from factsweep.operators.construction.paraphrase import AskAll
from factsweep.operators.engines.protocol import Endpoint, RefusedRequest, Request, Sampling, Start
from factsweep.operators.errors import InputError
from factsweep.operators.prompts.tokens import encode
from factsweep.pipeline.cluster.hardware import check_build
from factsweep.pipeline.config.folders import home
from factsweep.pipeline.config.model import Model
from factsweep.pipeline.config.run import Run
from factsweep.pipeline.inputs import models
from factsweep.pipeline.inputs.checkpoints import find_difference
from factsweep.pipeline.inputs.models import Weights

_SAMPLING = Sampling(max_tokens=512, stop=(), temperature=0.7)


class EngineTime(NamedTuple):
    """Seconds of an engine, and those of them in which it had nothing to answer."""

    seconds: float
    idle_seconds: float


class TimedEngine:
    """An engine, and its idle time: the time in which no request is under way.

    Its methods are those of the engine (`answers`, `scores`, `preferences`, …). They may be called
    only in the thread in which this is made: vLLM is not safe elsewhere, and OpenMP's threads, with
    the cores that vLLM binds them to, belong to the thread that asks for them first.
    """

    def __init__(self, engine: Any) -> None:
        self._engine = engine
        self._thread = threading.get_ident()
        self._n_open = 0  # requests without an answer
        self._since = self._idle_since = time.monotonic()
        self._idle_s = 0.0

    @property
    def is_paid(self) -> bool:
        """Whether requests cost money."""
        return bool(getattr(self._engine, "is_paid", False))

    def take_usage(self) -> EngineTime:
        """Its seconds since the last call."""
        time_s = time.monotonic()
        if not self._n_open:
            self._add_idle_time(time_s)
        used = EngineTime(time_s - self._since, self._idle_s)
        self._since, self._idle_s = time_s, 0.0
        return used

    def faults(self) -> Mapping[str, float]:
        """The failed calls of a server since the last call, by reason."""
        faults = getattr(self._engine, "faults", None)
        return {} if faults is None else dict(faults())

    def __getattr__(self, name: str) -> Callable[[Iterable[Any]], Iterator[Any]]:
        return partial(self._time_answers, getattr(self._engine, name))

    def _time_answers(
        self, ask: Callable[..., Iterator[Any]], requests: Iterable[Any]
    ) -> Iterator[Any]:
        self._check_thread()
        try:
            for answer in ask(map(self._count_request, requests)):
                self._close_requests(1)
                yield answer
                self._check_thread()
        finally:
            self._close_requests(self._n_open)  # open requests are dropped

    def _check_thread(self) -> None:
        if threading.get_ident() != self._thread:
            thread_name = threading.current_thread().name
            raise RuntimeError(
                f"an engine is asked in the thread {thread_name}, which is not its own"
            )

    def _count_request(self, request: Any) -> Any:
        if not self._n_open:
            self._add_idle_time(time.monotonic())
        self._n_open += 1
        return request

    def _close_requests(self, n: int) -> None:
        if n and self._n_open == n:
            self._idle_since = time.monotonic()
        self._n_open -= n

    def _add_idle_time(self, time_s: float) -> None:
        self._idle_s += time_s - self._idle_since
        self._idle_since = time_s


def load(run: Run, weights: Weights) -> Any:
    """Load the engine of the configuration with its model.

    Raises:
        InputError: the model's files on this machine differ from those of the plan, or the engine
            cannot compute on its GPUs.
    """
    check_build(run)
    models.verify(weights)
    if os.environ.get("FACTSWEEP_HOME"):  # of all nodes and jobs: one compiles for all
        os.environ.setdefault("VLLM_CACHE_ROOT", str(home() / "vllm"))
    start = _build_start(run, weights)
    with hold_gpus(start.place.get("gpus", []) if run.model.replicas.per_gpu > 1 else []):
        loaded = run.engine.load(start)
    models.verify(weights)  # nothing changed while it was loaded
    return loaded


def reload(loaded: Any, old: Weights, run: Run, weights: Weights) -> str | None:
    """Have a loaded engine take other weights in place, in the thread that it was loaded in.

    Returns why its answers may differ from those of a new one, and null if they may not.

    Raises:
        InputError: the model's files on this machine differ from those of the plan.
    """
    if (difference := find_difference(old, weights)) is not None:
        return difference  # a new engine verifies the files
    models.verify(weights)
    obstacle: str | None = loaded.reload(_build_start(run, weights))
    models.verify(weights)  # nothing changed while it was loaded
    return obstacle


def _build_start(run: Run, weights: Weights) -> Start:
    model = weights.model
    return Start(
        model=models.location(weights),
        revision=weights.revision if model.source in ("hub", "endpoint") else None,
        dtype=model.dtype,
        max_model_len=model.max_model_len,
        ability=run.method.ask.ability.name,
        device=run.device,
        tensor_parallel=model.tensor_parallel,
        pipeline_parallel=model.pipeline_parallel,
        gpu_memory_utilization=model.gpu_memory_utilization / model.replicas.per_gpu,
        trust_remote_code=model.trust_remote_code,
        place=_ray_placement(),
        arguments=model.arguments,
        endpoint=None if model.endpoint is None else endpoint(model),
        adapter=None if model.adapter is None else models.adapter_folder(model.adapter),
        is_masked=model.architecture == "encoder",
    )


def endpoint(model: Model) -> Endpoint:
    """The servers of a model, and how they are asked."""
    client = model.client
    return Endpoint(
        urls=model.urls,
        key=client.key_variable,
        timeout_s=client.timeout_s,
        give_up_s=client.give_up_s,
        max_concurrent=client.max_concurrent,
        chat=model.chat_template,
    )


def find_silent_servers(run: Run) -> list[str]:
    """The servers of a pool that do not answer.

    Raises:
        InputError: the servers have different models.
    """
    if run.engine.name != "endpoint" or len(run.model.urls) < 2:
        return []
    from factsweep.operators.engines.endpoint.servers import check_servers  # it takes time to load

    return check_servers(endpoint(run.model), run.model.id)


@contextmanager
def hold_gpus(gpus: Sequence[str]) -> Iterator[None]:
    """Have engines of this user that share a GPU load in turn.

    While vLLM loads, it measures the memory of the whole GPU and counts all of it as its own.
    """
    if not gpus:
        yield
        return
    name = f"factsweep-{os.getuid()}-gpu-{'-'.join(gpus)}.lock"
    path = Path(tempfile.gettempdir(), name)
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(file, fcntl.LOCK_EX)  # it ends with the process, however that ends
        yield
    finally:
        os.close(file)


def _ray_placement() -> dict[str, Any]:
    """The node, the GPUs and the bundles of the placement group of this process."""
    import ray

    if not ray.is_initialized():  # a query would start Ray, or join another one
        return {}
    context = ray.get_runtime_context()
    group = ray.util.get_current_placement_group()
    return {
        "node": context.get_node_id(),
        "gpus": context.get_accelerator_ids()["GPU"],
        "bundles": group.bundle_specs if group else [],
    }


def build_prompter(name: str) -> AskAll:
    """A function that prompts a model (of conf/model/, the hub or a folder), a chat model as such.

    Repeated prompts get other answers: the seeds count up from 0.

    Raises:
        InputError: the model does not exist, or (at the first prompt) it does not load or answer.
    """
    from factsweep.pipeline.config import settings  # loads Hydra, which engines of a run do without

    run = settings.load([f"model={name}", "decoding=greedy"])
    seeds = count()

    @cache
    def load_engine() -> tuple[Any, Any]:
        weights = models.resolve(models.resolve_dtype(run.model, run.cluster.device))
        return load(run, weights), models.tokenizer(weights)

    def ask_all(prompts: Sequence[str]) -> Iterator[tuple[int, str]]:
        engine, tokenizer = load_engine()
        is_chat = bool(getattr(tokenizer, "chat_template", None))
        token_ids = encode(tokenizer, list(prompts), chat_template=is_chat)
        requests = (
            Request(str(place), ids, _SAMPLING, next(seeds), prompt)
            for place, (ids, prompt) in enumerate(zip(token_ids, prompts, strict=True))
        )
        for answer in engine.answers(requests):
            if isinstance(answer, RefusedRequest):
                raise InputError(f"model {name} does not answer ({answer.reason}); choose another.")
            yield int(answer.request_id), str(answer.completions[0].text)

    return ask_all
