"""The engine of a run, loaded where Ray put this process; also as a callable: prompt → text."""

import fcntl
import os
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from itertools import count
from pathlib import Path
from typing import Any

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


def load(run: Run, weights: Weights, *further: Weights) -> Any:
    """The engine that the configuration names, with the model loaded; `further`: other adapters.

    Raises:
        InputError: the model's files on this machine are not those of the plan, or the engine
            cannot compute on the GPUs that it holds.
    """
    check_build(run)
    for each in (weights, *further):
        models.verify(each)
    model = weights.model
    names = [each.model.adapter for each in (weights, *further)]
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
        adapters={name: adapters.folder(name) for name in names if name},
    )
    with in_turn(place.get("gpus", []) if model.replicas.per_gpu > 1 else []):
        loaded = run.engine.load(start)
    for each in (weights, *further):
        models.verify(each)  # nothing changed while it was loaded
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
