"""Configuration at the edge: Hydra's YAML becomes frozen dataclasses, checked once, here."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from operator import attrgetter
from pathlib import Path
from typing import Any, Literal

from hydra import compose, initialize_config_dir
from hydra.core.config_search_path import ConfigSearchPath
from hydra.core.plugins import Plugins
from hydra.errors import HydraException
from hydra.plugins.search_path_plugin import SearchPathPlugin
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from operators.engines import ENGINES
from operators.engines.kind import Ability, EngineKind
from operators.errors import InputError
from operators.methods import METHODS
from operators.methods.method import Asked, Method
from operators.metrics.belief.analyses import ANALYSES
from pipeline.config import folders
from pipeline.config.launch import KubeRay, RayJob, Slurm
from pipeline.config.typed import build


@dataclass(frozen=True)
class Replicas:
    """How many engines of the model run side by side."""

    min: int
    max: int


@dataclass(frozen=True)
class Model:
    """A model, and what an engine needs to load it (conf/model/)."""

    name: str
    architecture: Literal["decoder", "encoder"]
    source: Literal["hub", "package", "path"]
    id: str
    revision: str
    gguf_file: str | None
    billions_of_parameters: float
    instruction_tuned: bool
    training_cutoff: str | None
    chat_template: bool
    dtype: Literal["auto", "bfloat16", "float16", "float32"]
    max_model_len: int
    tensor_parallel: int
    pipeline_parallel: int
    replicas: Replicas
    trust_remote_code: bool
    gpu_memory_utilization: float


@dataclass(frozen=True)
class Benchmark:
    """A set of facts, or the part of it that is measured, and how (conf/benchmark/)."""

    name: str
    method: str
    data: str
    path: str | None
    relations: tuple[str, ...] | None
    pairs_per_relation: int | None
    names_per_subject: int | None
    max_tokens: int
    stop: tuple[str, ...]
    sampled_prompts: int
    canary_prompts: int
    paper: dict[str, Any]


@dataclass(frozen=True)
class Samples:
    """The sampled answers: `n_answers` for each of `n_prompts` prompts, in blocks of one seed."""

    n_prompts: int
    n_answers: int
    block_size: int
    temperature: float
    top_p: float


@dataclass(frozen=True)
class Decoding:
    """How answers are decoded (conf/decoding/)."""

    engine: str
    scorer: str
    max_tokens: int
    stop: tuple[str, ...]
    samples: Samples
    canary_prompts: int
    determinism: Literal["default", "batch_invariant"]
    mix_tensor_parallel: bool
    max_failed_share: float
    max_permutation_difference: float
    repetition: str | None
    repeats: Literal["canary", "all"]

    def engine_for(self, ability: Ability) -> EngineKind:
        """The engine that does what a method asks; the fake one stands in for every other."""
        if self.engine == "fake":
            return ENGINES["fake"]
        names = {"generate": self.engine, "score": self.scorer, "fill": "transformers"}
        return ENGINES[names[ability]]

    def anew(self, *, canary: bool = False) -> dict[str, str]:
        """What a recipe holds beside the rest, so that an engine answers once more.

        Without a repetition it is nothing: the artifact is the one that there is.
        """
        repeated = self.repetition is not None and (canary or self.repeats == "all")
        return {"repetition": str(self.repetition)} if repeated else {}


@dataclass(frozen=True)
class Matching:
    """How answers are normalised (conf/matching/)."""

    pipeline: str


@dataclass(frozen=True)
class Metrics:
    """How much is drawn for fluctuation and intervals (conf/metrics/)."""

    n_draws: int
    n_rounds: int
    n_bins: int
    analyses: tuple[str, ...]


@dataclass(frozen=True)
class Cluster:
    """Where it runs (conf/cluster/); nothing here changes a result."""

    address: str | None
    device: Literal["auto", "cpu", "cuda"]
    num_cpus: int | None
    rows_per_shard: int
    rows_per_chunk: int
    max_deaths: int
    stall_s: float
    start_s: float
    when_held: Literal["leave", "wait"]
    cpu_kvcache_gib: int
    answers_per_s: float | None
    launch: RayJob | Slurm | KubeRay | None
    hardware: str | None


@dataclass(frozen=True)
class Run:
    """All that one command needs to know: one model, one benchmark, one or more settings."""

    model: Model
    benchmark: Benchmark
    settings: tuple[Asked, ...]
    decoding: Decoding
    matching: Matching
    metrics: Metrics
    cluster: Cluster
    seed: int
    name: str
    artifacts: str
    results: str
    answers: str | None

    @property
    def method(self) -> Method:
        """How the benchmark is measured."""
        return METHODS[self.benchmark.method]

    @property
    def engine(self) -> EngineKind:
        """The engine that does what the method asks."""
        return self.decoding.engine_for(self.method.ability)


@dataclass(frozen=True)
class _Config:
    """What conf/config.yaml composes."""

    model: Model
    benchmark: Benchmark
    prompt: dict[str, Any]
    decoding: Decoding
    matching: Matching
    metrics: Metrics
    cluster: Cluster
    sweep: dict[str, Any]
    seed: int
    run_name: str | None
    artifacts: str
    results: str
    answers: str | None


def load(overrides: Sequence[str]) -> Run:
    """The run that the overrides describe.

    Raises:
        InputError: an unknown override, group or value, or one of the wrong type.
    """
    config = _compose(overrides)
    given = build(_Config, config, "")
    sweep = _sweep_plan(config)
    names = sweep.get("prompts")
    if names is not None and any(o.startswith("prompt=") for o in overrides):
        raise InputError("sweep and prompt both name settings; give one of the two.")
    prompts = [config["prompt"]] if names is None else [_prompt(overrides, name) for name in names]
    if "templates" in sweep:
        prompts = [{**prompt, "templates": sweep["templates"]} for prompt in prompts]
    benchmark = _benchmark(given)
    settings = tuple(_setting(prompt, benchmark) for prompt in prompts)
    run = Run(
        model=given.model,
        benchmark=benchmark,
        settings=settings,
        decoding=given.decoding,
        matching=given.matching,
        metrics=given.metrics,
        cluster=given.cluster,
        seed=given.seed,
        name=given.run_name or _default_name(config, settings, names is not None),
        artifacts=given.artifacts,
        results=given.results,
        answers=given.answers,
    )
    _check(run)
    return replace(run, decoding=_filling(run.decoding)) if run.method.ability == "fill" else run


def _filling(decoding: Decoding) -> Decoding:
    """What is left of the decoding where one token is predicted, and nothing sampled."""
    samples = replace(decoding.samples, n_prompts=0)
    return replace(decoding, max_tokens=0, canary_prompts=0, samples=samples)


def choices(group: str) -> list[str]:
    """The names in a group of conf/ and of the user's own folder."""
    return list(folders.files(group))


class _OwnFolder(SearchPathPlugin):
    """Has Hydra look into the user's own folder before conf/."""

    def manipulate_search_path(self, search_path: ConfigSearchPath) -> None:
        """Put the folder first, if there is one."""
        if (folder := folders.own()) is not None:
            search_path.prepend(folders.VARIABLE, f"file://{folder}")


Plugins.instance().register(_OwnFolder)


def _compose(overrides: Sequence[str]) -> dict[str, Any]:
    for override in overrides:
        group, _, name = override.partition("=")
        if group in folders.groups() and name not in choices(group):
            known = ", ".join(choices(group))
            raise InputError(f"there is no {group} {name!r} in conf/{group}/; it has {known}.")
    try:
        with initialize_config_dir(str(folders.CONF), version_base="1.3"):
            config = compose("config", overrides=list(overrides))
        resolved = OmegaConf.to_container(config, resolve=True)
    except (HydraException, OmegaConfBaseException) as error:
        first = str(error).strip().splitlines()[0]
        raise InputError(
            f"the overrides {' '.join(overrides)} do not fit conf/: {first}"
        ) from error
    assert isinstance(resolved, dict)
    return {str(name): value for name, value in resolved.items()}


def _sweep_plan(config: Mapping[str, Any]) -> dict[str, Any]:
    """The sweep's part for a model of this kind and size."""
    sweep, model = dict(config["sweep"]), config["model"]
    large, encoders = (sweep.pop(part, None) for part in ("over_8b", "encoders"))
    if encoders and model["architecture"] == "encoder":
        return dict(encoders)
    return dict(large) if large and model["billions_of_parameters"] > 8 else sweep


def _prompt(overrides: Sequence[str], name: str) -> dict[str, Any]:
    prompt: dict[str, Any] = _compose([*overrides, f"prompt={name}"])["prompt"]
    return prompt


def _benchmark(given: _Config) -> Benchmark:
    """The benchmark, with the method that goes with the model's architecture."""
    benchmark, model = given.benchmark, given.model
    if benchmark.method not in METHODS:
        known = ", ".join(METHODS)
        raise InputError(f"benchmark.method={benchmark.method}; it must be one of {known}.")
    if model.architecture == "decoder":
        return benchmark
    masked = METHODS[benchmark.method].masked
    if masked is None:
        raise InputError(
            f"model={model.name} is an encoder, and benchmark={benchmark.name} asks for answers "
            "that only decoders give; choose one of them, or another benchmark."
        )
    return replace(benchmark, method=masked)


def _setting(prompt: Mapping[str, Any], benchmark: Benchmark) -> Asked:
    kind = METHODS[benchmark.method].setting
    unknown = [name for name in prompt if name not in {each.name for each in fields(kind)}]
    if unknown:
        raise InputError(
            f"prompt.{unknown[0]} is nothing that benchmark={benchmark.name} can be asked with; "
            f"choose prompt={' or '.join(_prompts_of(benchmark))}."
        )
    setting: Asked = build(kind, prompt, "prompt")
    return setting


def _prompts_of(benchmark: Benchmark) -> list[str]:
    """The prompts of the benchmark's paper."""
    fill = METHODS[benchmark.method].ability == "fill"
    plan = benchmark.paper["encoders"] if fill else benchmark.paper
    return list(plan["prompts"])


def _default_name(config: Mapping[str, Any], settings: Sequence[Asked], sweep: bool) -> str:
    last = "sweep" if sweep else settings[0].name
    if config["answers"] is not None:
        return "-".join([Path(config["answers"]).stem, config["benchmark"]["name"], last])
    return "-".join([config["model"]["name"], config["benchmark"]["name"], last])


def _check_engines(decoding: Decoding) -> None:
    abilities: dict[str, Ability] = {"engine": "generate", "scorer": "score"}
    for field, ability in abilities.items():
        named = getattr(decoding, field)
        known = [kind.name for kind in ENGINES.values() if ability in kind.abilities]
        if named not in known:
            raise InputError(f"decoding.{field}={named}; it must be one of {', '.join(known)}.")


def _check(run: Run) -> None:
    _check_engines(run.decoding)
    for limit, (names, holds) in _LIMITS.items():
        for name in names.split():
            value = attrgetter(name)(run)
            if value is not None and not holds(value):
                raise InputError(f"{name}={value}; it must be {limit}.")
    samples, replicas = run.decoding.samples, run.model.replicas
    if samples.n_answers % samples.block_size:
        raise InputError(
            f"decoding.samples.n_answers={samples.n_answers} is no multiple of "
            f"decoding.samples.block_size={samples.block_size}; make it one."
        )
    if replicas.max < replicas.min:
        raise InputError(
            f"model.replicas.max={replicas.max}; it must be at least model.replicas.min="
            f"{replicas.min}."
        )
    if run.model.max_model_len <= run.decoding.max_tokens:
        raise InputError(
            f"model.max_model_len={run.model.max_model_len}; it must be more than "
            f"decoding.max_tokens={run.decoding.max_tokens}."
        )
    for name in run.metrics.analyses:
        if name not in ANALYSES:
            known = ", ".join(ANALYSES)
            raise InputError(f"metrics.analyses names {name}; there are {known}.")
    if run.benchmark.relations == ():
        raise InputError("benchmark.relations=[]; it must be null or name a relation.")


_LIMITS: Mapping[str, tuple[str, Callable[[Any], bool]]] = {
    "at least 1": (
        "cluster.rows_per_shard cluster.rows_per_chunk cluster.num_cpus cluster.cpu_kvcache_gib "
        "cluster.max_deaths "
        "decoding.max_tokens decoding.samples.block_size metrics.n_draws metrics.n_rounds "
        "metrics.n_bins model.replicas.min model.tensor_parallel model.pipeline_parallel "
        "benchmark.pairs_per_relation benchmark.names_per_subject",
        lambda value: value >= 1,
    ),
    "at least 0": (
        "decoding.samples.n_prompts decoding.samples.n_answers decoding.samples.temperature "
        "decoding.max_failed_share decoding.canary_prompts",
        lambda value: value >= 0,
    ),
    "more than 0": (
        "decoding.samples.top_p cluster.answers_per_s cluster.stall_s cluster.start_s "
        "model.gpu_memory_utilization",
        lambda value: value > 0,
    ),
    "at most 1": (
        "decoding.samples.top_p decoding.max_failed_share model.gpu_memory_utilization",
        lambda value: value <= 1,
    ),
}
