"""Settings: what one command needs to know, composed of conf/ and checked once, here."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from pydantic import Field

from operators.engines import ENGINES
from operators.engines.kind import Ability, EngineKind
from operators.errors import InputError
from operators.methods import METHODS
from operators.methods.ability import FILL
from operators.methods.method import Asked, Method
from operators.names import check, check_run
from operators.redact import is_secret, redactor, texts
from pipeline.config.benchmark import Benchmark
from pipeline.config.budget import budget
from pipeline.config.cluster import Cluster
from pipeline.config.compose import choices, composed
from pipeline.config.decoding import Decoding, Samples
from pipeline.config.described import OPEN, described
from pipeline.config.limits import Text
from pipeline.config.measuring import Matching
from pipeline.config.model import Model, Replicas
from pipeline.config.recipe import InRecipe, NoNumber
from pipeline.config.suggestion import suggestion
from pipeline.config.sweep import Sweep
from pipeline.config.typed import build

__all__ = [
    "Benchmark",
    "Cluster",
    "Config",
    "Decoding",
    "Matching",
    "Model",
    "Replicas",
    "Run",
    "Samples",
    "choices",
    "load",
]

Seed = InRecipe[Annotated[int, Field(ge=0, le=999_999_999_999)]]
_WHERE = NoNumber("it says where files are, not what is in them")
Where = Annotated[Text, _WHERE]
Answers = Annotated[Text | None, NoNumber("recipes have the checksum of the file")]
MaxCost = Annotated[
    Annotated[float, Field(gt=0, le=1_000_000_000)] | None,
    NoNumber("it says when to stop asking, not what is answered"),
]
BudgetText = Annotated[
    Text | Annotated[int, Field(ge=1, le=1_000_000_000)] | None,
    NoNumber("it says how many of the prompts are asked, not what is answered"),
]
Log = Annotated[Literal["text", "json"], NoNumber("it says how log lines are written")]

MASKED = "prompt=masked"  # how an encoder is asked


@dataclass(frozen=True)
class Run:
    """All that one command needs to know: one model, one benchmark, one or more settings."""

    model: Model
    benchmark: Benchmark
    settings: InRecipe[tuple[Asked, ...]]
    decoding: Decoding
    matching: Matching
    metrics: InRecipe[Any]
    cluster: Cluster
    seed: Seed
    name: Where
    artifacts: Where
    results: Where
    answers: Answers
    max_cost: MaxCost
    budget: BudgetText
    log: Log

    @property
    def method(self) -> Method:
        """How the benchmark is measured."""
        return METHODS[self.benchmark.method]

    @property
    def engine(self) -> EngineKind:
        """The engine that does what the method asks."""
        return self.decoding.engine_for(self.method.ask.ability.name)


@dataclass(frozen=True)
class Config:
    """What conf/config.yaml composes."""

    model: Model
    benchmark: Benchmark
    prompt: InRecipe[dict[str, Any]]
    decoding: Decoding
    matching: Matching
    metrics: InRecipe[dict[str, Any]]
    cluster: Cluster
    sweep: Sweep
    seed: Seed
    run_name: Annotated[Text | None, _WHERE]
    artifacts: Where
    results: Where
    answers: Answers
    max_cost: MaxCost
    budget: BudgetText
    log: Log


def load(overrides: Sequence[str]) -> Run:
    """The run that the overrides describe.

    Raises:
        InputError: an unknown override, group or value, or one of the wrong type or out of range.
    """
    config = _described(overrides)
    given = build(Config, config, "")
    benchmark = _benchmark(given)
    settings = tuple(
        _as_chat(_setting(prompt, benchmark), given.model) for prompt in _prompts(overrides, given)
    )
    run = Run(
        model=given.model,
        benchmark=benchmark,
        settings=settings,
        decoding=given.decoding,
        matching=given.matching,
        metrics=_options(given.metrics, benchmark),
        cluster=given.cluster,
        seed=given.seed,
        name=given.run_name or _default_name(given, settings),
        artifacts=given.artifacts,
        results=given.results,
        answers=given.answers,
        max_cost=given.max_cost,
        budget=given.budget,
        log=given.log,
    )
    if run.model.source == "endpoint":
        run = replace(run, decoding=_at_endpoint(run.decoding))
    _check(run)
    return replace(run, decoding=_filling(run.decoding)) if run.method.ask.ability == FILL else run


def _described(overrides: Sequence[str]) -> dict[str, Any]:
    """What conf/ composes, with what is to be read from the model itself.

    An encoder is asked with masks, unless a prompt is named.
    """
    config = composed(overrides)
    if "model" not in config:
        return config  # `build` says that it is missing
    known = {name: value for name, value in config["model"].items() if value is not None}
    stood_in = {name: value for name, value in OPEN.items() if name in config["model"]}
    build(Config, {**config, "model": {**config["model"], **stood_in, **known}}, "")
    config["model"] = described(config["model"], config["cluster"])
    encoder = config["model"]["architecture"] == "encoder"
    if encoder and not any(each.startswith(("prompt=", "prompt@")) for each in overrides):
        config["prompt"] = composed([*overrides, MASKED])["prompt"]
    return config


def _prompts(overrides: Sequence[str], given: Config) -> list[dict[str, Any]]:
    """Each setting that is measured, as conf/prompt/ has it: those of the sweep, or the one."""
    sweep = given.sweep.of(given.model)
    if sweep.prompts is None:
        return [given.prompt]
    if any(override.startswith("prompt=") for override in overrides):
        raise InputError("sweep and prompt both name settings; give one of the two.")
    prompts = [composed([*overrides, f"prompt={name}"])["prompt"] for name in sweep.prompts]
    changed = {} if sweep.templates is None else {"templates": sweep.templates}
    return [{**prompt, **changed} for prompt in prompts]


def _filling(decoding: Decoding) -> Decoding:
    """What is left of the decoding where one token is predicted, and nothing sampled."""
    samples = replace(decoding.samples, n_prompts=0)
    return replace(decoding, max_tokens=0, canary_prompts=0, samples=samples)


def _at_endpoint(decoding: Decoding) -> Decoding:
    """The decoding of a model that a server has: there, and nowhere here; the fake engine stays."""
    if decoding.engine == "fake":
        return decoding
    return replace(decoding, engine="endpoint", scorer="endpoint", comparer="endpoint")


def _benchmark(given: Config) -> Benchmark:
    """The benchmark, with the method that goes with the model's architecture."""
    benchmark, model = given.benchmark, given.model
    if benchmark.method not in METHODS:
        known = ", ".join(METHODS)
        raise InputError(
            f"benchmark.method={benchmark.method!r}; it must be one of {known}."
            f"{suggestion(benchmark.method, METHODS)}"
        )
    if model.architecture == "decoder":
        return benchmark
    masked = METHODS[benchmark.method].ask.masked
    if masked is None:
        raise InputError(
            f"model={model.name} is an encoder, and benchmark={benchmark.name} asks for answers "
            "that only decoders give; choose one of them, or another benchmark."
        )
    return replace(benchmark, method=masked)


def _setting(prompt: Mapping[str, Any], benchmark: Benchmark) -> Asked:
    kind = METHODS[benchmark.method].ask.setting
    known = {each.name.rstrip("_") for each in fields(kind)}  # `as` is a word of Python
    if unknown := [name for name in prompt if name not in known]:
        raise InputError(
            f"prompt.{unknown[0]} is nothing that benchmark={benchmark.name} can be asked with; "
            f"choose prompt={' or '.join(_prompts_of(benchmark))}."
        )
    setting: Asked = build(kind, prompt, "prompt")
    return setting


def _as_chat(setting: Asked, model: Model) -> Asked:
    """The setting, with what the model says of how it is asked where the prompt says nothing."""
    if not model.chat_template or getattr(setting, "as_", "turns") is not None:
        return setting
    return replace(setting, as_="chat")  # type: ignore[type-var]


def _check_chat(run: Run) -> None:
    """Refuse to ask a model for chats that reads raw text; another system may have read them."""
    chats = {as_ for each in run.settings if (as_ := getattr(each, "as_", None)) is not None}
    if chats and run.answers is None and not run.model.chat_template:
        raise InputError(
            f"prompt.as={chats.pop()} asks a chat, and model={run.model.name} reads raw text; set "
            "model.chat_template=true, if it has a chat template."
        )


def _options(metrics: Mapping[str, Any], benchmark: Benchmark) -> Any:
    """What the benchmark's method reads of conf/metrics/; the rest is what others read."""
    kind = METHODS[benchmark.method].measure.options
    own = {field.name for field in fields(kind)}
    others = {f.name for method in METHODS.values() for f in fields(method.measure.options)} - own
    mine = {name: value for name, value in metrics.items() if name not in others}
    return build(kind, mine, "metrics")


def _prompts_of(benchmark: Benchmark) -> list[str]:
    """The prompts of the benchmark's paper."""
    fill = METHODS[benchmark.method].ask.ability == FILL
    plan = benchmark.paper.encoders if fill else benchmark.paper
    return [] if plan is None else list(plan.prompts or ())


def _default_name(given: Config, settings: Sequence[Asked]) -> str:
    """The model or the file of answers, the benchmark, and the setting or `sweep`.

    What the fake engine makes up is named so, and no run of a real engine is overwritten by it.
    """
    swept = given.sweep.of(given.model).prompts is not None
    first = given.model.name if given.answers is None else Path(given.answers).stem
    fake = ["fake"] if given.decoding.engine == "fake" and given.answers is None else []
    asked = "sweep" if swept else settings[0].name
    part = [] if given.budget is None else ["estimate"]
    return "-".join([*fake, first, given.benchmark.name, asked, *part])


def _check_engines(decoding: Decoding) -> None:
    abilities: dict[str, Ability] = {
        "engine": "generate",
        "scorer": "score",
        "comparer": "prefer",
    }
    for field, ability in abilities.items():
        named = getattr(decoding, field)
        known = [kind.name for kind in ENGINES.values() if ability in kind.abilities]
        if named not in known:
            raise InputError(
                f"decoding.{field}={named!r}; it must be {' or '.join(known)}."
                f"{suggestion(named, known)}"
            )


def _check_arguments(model: Model, engine: EngineKind) -> None:
    known = engine.arguments() if model.engine else None
    for name in (name for name, _ in texts(model.engine) if is_secret(name)):
        raise InputError(
            f"model.engine.{name} is a secret by its name, and results are named by what is here; "
            "put it into the environment, as HF_TOKEN."
        )
    for name in model.engine:
        if name in engine.fields:
            raise InputError(f"model.engine.{name} is what {engine.fields[name]} says; give that.")
        if known is not None and name not in known:
            raise InputError(
                f"model.engine.{name} is no argument of the engine {engine.name}."
                f"{suggestion(name, known)}"
            )


def _check_endpoint(run: Run) -> None:
    model, served = run.model, run.model.source == "endpoint"
    if served and (model.endpoint in (None, "???") or model.id == "???"):
        raise InputError(
            "a model behind an endpoint needs model.id=<its name there> and model.endpoint=<URL>."
        )
    here = (run.decoding.engine, run.decoding.scorer, run.decoding.comparer)
    if not served and (model.endpoint is not None or "endpoint" in here):
        raise InputError(
            f"model={model.name} is loaded here; a server is asked with model=endpoint "
            "model.id=<its name there> model.endpoint=<URL>."
        )
    if run.max_cost is not None and model.price_in is None:
        raise InputError(
            "max_cost needs the prices of a model behind an endpoint: model.price_in and "
            "model.price_out, per million tokens."
        )
    if served:
        _check_address(model)
        _check_asked(run)


def _check_address(model: Model) -> None:
    url = urlsplit(str(model.endpoint))
    if url.scheme not in ("http", "https") or not url.hostname:
        raise InputError("model.endpoint is no URL; give one such as https://host/v1.")
    if url.username or url.password or url.query or redactor()(url.geturl()) != url.geturl():
        raise InputError(
            "model.endpoint holds more than an address, such as a key, which others could read; "
            f"put the key into the environment as {model.client.key_variable}."
        )
    if (model.price_in is None) != (model.price_out is None):
        raise InputError("model.price_in and model.price_out go together; give both.")
    if not is_secret(model.client.key_variable):
        raise InputError(
            f"model.client.key_variable={model.client.key_variable!r} is no name of a secret, so "
            "its value would not be kept out of logs; name the variable such as MY_API_KEY."
        )


def _check_asked(run: Run) -> None:
    """Refuse to ask an endpoint what none offers."""
    if run.model.architecture != "decoder":
        raise InputError("a model behind an endpoint continues texts; model.architecture=decoder.")
    asked, model = run.method.ask.ability.name, run.model
    if run.answers is not None:
        return
    if asked in ("score", "prefer") and (model.chat_template or model.tokenizer is None):
        what = "scores given texts" if asked == "score" else "compares entities"
        raise InputError(
            f"benchmark={run.benchmark.name} {what} token by token, which needs "
            "model.tokenizer=<the model's own> and model.chat_template=false: chats score nothing."
        )
    if asked == "prefer" and (run.decoding.baselines.beams or run.max_cost is not None):
        raise InputError(
            f"benchmark={run.benchmark.name} compares entities: an endpoint gives no beams, and "
            "what that costs is not known beforehand; leave decoding.baselines.beams and max_cost "
            "out."
        )


def _check(run: Run) -> None:
    """Refuse values that do not go with each other.

    Raises:
        InputError: it names both fields.
    """
    check(run.model.name, "model.name")
    check(run.benchmark.name, "benchmark.name")
    check_run(run.name)
    if run.budget is not None:
        budget(run.budget)
    _check_engines(run.decoding)
    _check_endpoint(run)
    _check_arguments(run.model, run.engine)
    _check_chat(run)
    model, decoding, samples = run.model, run.decoding, run.decoding.samples
    if samples.n_answers % samples.block_size:
        raise InputError(
            f"decoding.samples.n_answers={samples.n_answers} is no multiple of "
            f"decoding.samples.block_size={samples.block_size}; make it one."
        )
    if model.billions_of_parameters is None and model.source != "endpoint":
        raise InputError("model.billions_of_parameters is missing; give it a value.")
    if model.replicas.max < model.replicas.min:
        raise InputError(
            f"model.replicas.max={model.replicas.max}; it must be at least model.replicas.min="
            f"{model.replicas.min}."
        )
    if model.replicas.per_gpu > 1 and model.tensor_parallel * model.pipeline_parallel > 1:
        raise InputError(
            f"model.replicas.per_gpu={model.replicas.per_gpu}, and a replica is spread over "
            f"{model.tensor_parallel * model.pipeline_parallel} GPUs; only engines that fit one "
            "GPU can share it, so set one of them to 1."
        )
    if model.max_model_len <= decoding.max_tokens:
        raise InputError(
            f"model.max_model_len={model.max_model_len}; it must be more than "
            f"decoding.max_tokens={decoding.max_tokens}."
        )
