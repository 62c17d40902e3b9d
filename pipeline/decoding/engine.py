"""The engine of a run, loaded where Ray put this process; also as a callable: prompt → text."""

import fcntl
import os
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

from factsweep.operators.construction.paraphrase import Ask
from factsweep.operators.engines.kind import Endpoint, Start
from factsweep.operators.engines.protocol import Refused, Request, Sampling
from factsweep.operators.errors import InputError
from factsweep.operators.prompts.tokens import encode
from factsweep.pipeline.cluster.hardware import check_build, device
from factsweep.pipeline.config.model import Model
from factsweep.pipeline.config.run import Run
from factsweep.pipeline.inputs import adapters, models
from factsweep.pipeline.inputs.models import Weights

_SAMPLING = Sampling(max_tokens=512, stop=(), temperature=0.7)


class Used(NamedTuple):
    """Seconds of an engine, and those of them in which it had nothing to answer."""

    seconds: float
    idle_seconds: float


class Clocked:
    """An engine, and how much of its time since it was loaded it has nothing to answer.

    A request is being answered from when it is handed out until its answer is there. Whatever is
    done meanwhile, the engine does not wait for it.

    An engine lives in one thread, that in which this is made, and is asked and stepped in no other:
    vLLM's is not safe there, and OpenMP's threads, with the cores that vLLM binds them to, belong
    to the thread that first asks for them.
    """

    def __init__(self, engine: Any) -> None:
        self._engine = engine
        self._thread = threading.get_ident()
        self._n_asked = 0  # and not answered
        self._since = self._idle_since = time.monotonic()
        self._idle_s = 0.0

    @property
    def is_paid(self) -> bool:
        """Whether somebody charges what it is asked."""
        return bool(getattr(self._engine, "is_paid", False))

    def used(self) -> Used:
        """Its seconds since the last time that somebody asked."""
        now = time.monotonic()
        if not self._n_asked:
            self._rested(now)
        used = Used(now - self._since, self._idle_s)
        self._since, self._idle_s = now, 0.0
        return used

    def faults(self) -> Mapping[str, float]:
        """The calls of a server that went wrong since the last time that somebody asked, by how."""
        ask = getattr(self._engine, "faults", None)
        return {} if ask is None else dict(ask())

    def answers(self, requests: Iterable[Any]) -> Iterator[Any]:
        """The engine's answers."""
        return self._clocked(self._engine.answers, requests)

    def scores(self, requests: Iterable[Any]) -> Iterator[Any]:
        """The engine's scores."""
        return self._clocked(self._engine.scores, requests)

    def predictions(self, requests: Iterable[Any]) -> Iterator[Any]:
        """The engine's predictions."""
        return self._clocked(self._engine.predictions, requests)

    def preferences(self, requests: Iterable[Any]) -> Iterator[Any]:
        """The engine's preferences."""
        return self._clocked(self._engine.preferences, requests)

    def beams(self, requests: Iterable[Any]) -> Iterator[Any]:
        """The engine's beams."""
        return self._clocked(self._engine.beams, requests)

    def _clocked(self, ask: Callable[..., Iterator[Any]], requests: Iterable[Any]) -> Iterator[Any]:
        self._check_thread()
        try:
            for answer in ask(map(self._asked, requests)):
                self._answered(1)
                yield answer
                self._check_thread()
        finally:
            self._answered(self._n_asked)  # what is left is dropped

    def _check_thread(self) -> None:
        if threading.get_ident() != self._thread:
            here = threading.current_thread().name
            raise RuntimeError(f"an engine is asked in the thread {here}, which is not its own")

    def _asked(self, request: Any) -> Any:
        if not self._n_asked:
            self._rested(time.monotonic())
        self._n_asked += 1
        return request

    def _answered(self, n: int) -> None:
        if n and self._n_asked == n:
            self._idle_since = time.monotonic()
        self._n_asked -= n

    def _rested(self, now: float) -> None:
        self._idle_s += now - self._idle_since
        self._idle_since = now


def load(run: Run, weights: Weights) -> Any:
    """The engine that the configuration names, with the model loaded.

    Raises:
        InputError: the model's files on this machine are not those of the plan, or the engine
            cannot compute on the GPUs that it holds.
    """
    check_build(run)
    models.verify(weights)
    model = weights.model
    place = _place()
    start = Start(
        model=models.location(weights),
        revision=weights.revision if model.source in ("hub", "endpoint") else None,
        dtype=model.dtype,
        max_model_len=model.max_model_len,
        ability=run.method.ask.ability.name,
        device=device(run.cluster),
        tensor_parallel=model.tensor_parallel,
        pipeline_parallel=model.pipeline_parallel,
        gpu_memory_utilization=model.gpu_memory_utilization / model.replicas.per_gpu,
        trust_remote_code=model.trust_remote_code,
        place=place,
        arguments=model.arguments,
        endpoint=_endpoint(model),
        adapter=None if model.adapter is None else adapters.folder(model.adapter),
    )
    with in_turn(place.get("gpus", []) if model.replicas.per_gpu > 1 else []):
        loaded = run.engine.load(start)
    models.verify(weights)  # nothing changed while it was loaded
    return loaded


@contextmanager
def in_turn(gpus: Sequence[str]) -> Iterator[None]:
    """Engines of this user that share a GPU load one after the other.

    While vLLM loads it measures the memory of the whole GPU, and takes what another takes
    meanwhile for its own.
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


def _endpoint(model: Model) -> Endpoint | None:
    """The server that has the model, if it is not loaded here."""
    if model.endpoint is None:
        return None
    client = model.client
    return Endpoint(
        url=model.endpoint,
        key=client.key_variable,
        timeout_s=client.timeout_s,
        give_up_s=client.give_up_s,
        max_concurrent=client.max_concurrent,
        chat=model.chat_template,
    )


def _place() -> dict[str, Any]:
    """Where Ray put this process: its node, its GPUs, the bundles of its placement group."""
    import ray

    if not ray.is_initialized():  # to ask would start one, or join some other
        return {}
    context = ray.get_runtime_context()
    group = ray.util.get_current_placement_group()
    return {
        "node": context.get_node_id(),
        "gpus": context.get_accelerator_ids()["GPU"],
        "bundles": group.bundle_specs if group else [],
    }


def prompted(name: str) -> Ask:
    """The model of that name in conf/model/, id of the hub or folder, asked as a chat if it is one.

    The same prompt gets another answer each time, and the same ones in the same order.

    Raises:
        InputError: there is no such model, or (when it is asked) it cannot be loaded or answer.
    """
    from factsweep.pipeline.config import settings  # loads Hydra, which no engine of a run needs

    run = settings.load([f"model={name}", "decoding=greedy"])
    seeds = count()

    @cache
    def loaded() -> tuple[Any, Any]:
        weights = models.resolve(models.settled(run.model, run.cluster.device))
        return load(run, weights), models.tokenizer(weights)

    def ask(prompt: str) -> str:
        engine, tokenizer = loaded()
        is_chat = bool(getattr(tokenizer, "chat_template", None))
        (ids,) = encode(tokenizer, [prompt], chat_template=is_chat)
        (answer,) = engine.answers([Request("asked", ids, _SAMPLING, next(seeds), prompt)])
        if isinstance(answer, Refused):
            raise InputError(f"model {name} does not answer ({answer.reason}); choose another.")
        return str(answer.completions[0].text)

    return ask
