"""Settings: what one command needs to know, composed of conf/ and checked once, here."""

from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from factsweep.operators.engines import ENGINES
from factsweep.operators.engines.kind import Ability, EngineKind
from factsweep.operators.engines.vllm.source import parsers
from factsweep.operators.errors import InputError, refusing
from factsweep.operators.matching.normalise import BLANK
from factsweep.operators.methods import METHODS
from factsweep.operators.methods.ability import FILL, PREFER, SCORE
from factsweep.operators.methods.method import Asked
from factsweep.operators.prompts.setting import Words
from factsweep.operators.wording import names, suggestion
from factsweep.operators.wording.redact import is_secret, redactor, texts
from factsweep.pipeline.config import folders
from factsweep.pipeline.config.benchmark import Benchmark, Matching
from factsweep.pipeline.config.budget import budget, target
from factsweep.pipeline.config.cluster import Cluster
from factsweep.pipeline.config.compose import composed
from factsweep.pipeline.config.decoding import Decoding
from factsweep.pipeline.config.described import OPEN, described
from factsweep.pipeline.config.model import Model
from factsweep.pipeline.config.recipe import build
from factsweep.pipeline.config.run import Config, Run

_TEXTS = ("chat_template_text", "prefill")
MASKED = "prompt=masked"  # how an encoder is asked


def load(overrides: Sequence[str]) -> Run:
    """The run that the overrides describe.

    Raises:
        InputError: an unknown override, group or value, or one of the wrong type or out of range.
    """
    config = _described(overrides)
    given = build(Config, config, "")
    benchmark = _benchmark(given)
    settings = tuple(
        _in_language(_as_chat(_setting(prompt, benchmark), given.model), benchmark)
        for prompt in _prompts(overrides, given)
    )
    made: dict[str, Any] = {
        "benchmark": benchmark,
        "settings": settings,
        "matching": _matching(given.matching, benchmark),
        "metrics": _options(given.metrics, benchmark),
        "name": given.run_name or _default_name(given, settings),
    }
    same = {each.name for each in fields(Run)} - made.keys()
    run = Run(**made, **{name: getattr(given, name) for name in same})
    if run.model.source == "endpoint" and run.decoding.engine != "fake":  # which stays here
        there = replace(run.decoding, engine="endpoint", scorer="endpoint", comparer="endpoint")
        run = replace(run, decoding=there)
    check_run(run)
    return replace(run, decoding=_filling(run.decoding)) if run.method.ask.ability == FILL else run


def _current_fields(kind: type[Any], recorded: Mapping[str, Any]) -> dict[str, Any]:
    """The recorded fields without those that this version no longer has."""
    names = {field.name for field in fields(kind)}
    return {name: value for name, value in recorded.items() if name in names}


def of_record(recorded: Mapping[str, Any]) -> Run:
    """The run whose fields a run.json or an estimate.json holds.

    Raises:
        InputError: it was written by another version, and a field is unknown or of another type.
    """
    benchmark = build(Benchmark, recorded["benchmark"], "benchmark")
    method = METHODS[benchmark.method]
    decoding = build(Decoding, recorded["decoding"], "decoding")
    # A field is null, as before there was such a key.
    given_since = dict.fromkeys(each.name for each in fields(Model))
    made: dict[str, Any] = {
        "model": build(Model, {**given_since, **recorded["model"]}, "model"),
        "benchmark": benchmark,
        "settings": tuple(
            # as conf/ has its fields: `as` is a word of Python
            build(method.ask.setting, {n.rstrip("_"): v for n, v in each.items()}, "prompt")
            for each in recorded["settings"]
        ),
        "decoding": _filling(decoding) if method.ask.ability == FILL else decoding,
        "matching": build(Matching, recorded["matching"], "matching"),
        "metrics": build(method.measure.options, recorded["metrics"], "metrics"),
        "cluster": build(Cluster, _current_fields(Cluster, recorded["cluster"]), "cluster"),
    }
    whole: dict[str, Any] = {each.name: recorded.get(each.name) for each in fields(Run)}
    return Run(**{**whole, **made})


def _described(overrides: Sequence[str]) -> dict[str, Any]:
    """What conf/ composes, with what is to be read from the model itself.

    An encoder is asked with masks, unless a prompt is named.
    """
    config = composed(overrides)
    if "model" not in config:
        return config  # `build` says that it is missing
    model = config["model"]
    if (thinking := model.get("thinking")) in ("on", "off"):
        model["thinking"] = thinking == "on"  # as YAML reads these, and Hydra does not
    if str(model.get("chat_template")).endswith(".jinja"):
        file = model["chat_template"].removeprefix("@")
        model |= {"chat_template": True, "chat_template_text": f"@{file}"}
    model |= {name: _text(f"model.{name}", model[name]) for name in _TEXTS if name in model}
    stood_in = {name: value for name, value in OPEN.items() if model.get(name, "") is None}
    build(Config, {**config, "model": {**model, **stood_in}}, "")
    config["model"] = model = described(model, config["cluster"])
    is_encoder = model["architecture"] == "encoder"
    if is_encoder and not any(each.startswith(("prompt=", "prompt@")) for each in overrides):
        config["prompt"] = composed([*overrides, MASKED])["prompt"]
    return config


def _text(name: str, value: Any) -> Any:
    """A text, or what the file says that stands behind an @."""
    if not isinstance(value, str) or not value.startswith("@"):
        return value
    with refusing(value[1:], f"{name}=@FILE reads a text from it"):
        found = Path(value[1:]).expanduser().read_text(encoding="utf-8")
    if not found.strip():
        raise InputError(f"{value[1:]} is empty; {name}=@FILE reads a text from it.")
    return found


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
    if "system" in prompt:
        prompt = {**prompt, "system": _text("prompt.system", prompt["system"])}
    setting: Asked = build(kind, prompt, "prompt")
    return setting


def _as_chat(setting: Asked, model: Model) -> Asked:
    """The setting, with what the model says of how it is asked where the prompt says nothing."""
    if not model.chat_template or getattr(setting, "as_", "turns") is not None:
        return setting
    return replace(setting, as_="chat")  # type: ignore[type-var]


def _in_language(setting: Asked, benchmark: Benchmark) -> Asked:
    language = benchmark.language
    if language == "en" or not hasattr(setting, "shots"):  # a masked sentence has no words around
        return setting
    if not hasattr(setting, "words"):
        raise InputError(
            f"benchmark.language={language}: {benchmark.name} is asked in English alone; only "
            "BELIEF's way to ask (benchmark.method=belief) has words of other languages."
        )
    known = folders.files("language")
    if language not in known:
        raise InputError(
            f"there are no words for benchmark.language={language}; conf/language/ has "
            f"{', '.join(known)}, and the papers en. Give "
            f"{folders.OWN}/language/{language}.yaml with mask, question, asks and "
            f"answers.{suggestion(language.lower(), known)}"
        )
    content = {"language": language, **folders.content(known[language])}
    return replace(setting, words=build(Words, content, str(known[language])))  # type: ignore[type-var]


def _matching(given: Matching, benchmark: Benchmark) -> Matching:
    """By the rules of the facts' language, unless a pipeline is named."""
    if benchmark.types == "recognised":
        given = replace(given, values_in=benchmark.language)
    if benchmark.language == "en" or given.pipeline != BLANK:
        return given
    return replace(given, pipeline=f"{BLANK}-{benchmark.language}")


def _options(metrics: Mapping[str, Any], benchmark: Benchmark) -> Any:
    """What the benchmark's method reads of conf/metrics/; the rest is what others read."""
    kind = METHODS[benchmark.method].measure.options
    own = {field.name for field in fields(kind)}
    others = {f.name for method in METHODS.values() for f in fields(method.measure.options)} - own
    mine = {name: value for name, value in metrics.items() if name not in others}
    return build(kind, mine, "metrics")


def _prompts_of(benchmark: Benchmark) -> list[str]:
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


def check_run(run: Run) -> None:
    """Refuse values that do not go with each other."""
    names.check(run.model.name, "model.name")
    names.check(run.benchmark.name, "benchmark.name")
    names.check_run(run.name)
    if run.budget is not None:
        budget(run.budget)
    _check_estimate(run)
    _check_engines(run.decoding)
    _check_endpoint(run)
    _check_arguments(run.model, run.engine)
    _check_adapter(run.model, run.engine)
    _check_chat(run)
    _check_template(run.model)
    _check_thinking(run)
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
    gpus = model.tensor_parallel * model.pipeline_parallel
    if model.replicas.per_gpu > 1 and gpus > 1:
        raise InputError(
            f"model.replicas.per_gpu={model.replicas.per_gpu}, and a replica is spread over {gpus} "
            "GPUs; only engines that fit one GPU can share it, so set one of them to 1."
        )
    if not decoding.max_tokens and run.method.ask.ability in (SCORE, PREFER):
        raise InputError("decoding.max_tokens=0 is for questions with answers; give at least 1.")
    if model.max_model_len <= decoding.max_tokens:
        raise InputError(
            f"model.max_model_len={model.max_model_len}; it must be more than "
            f"decoding.max_tokens={decoding.max_tokens}."
        )


def _check_estimate(run: Run) -> None:
    """Refuse what only an estimate takes, and a target that is none."""
    asked = {"control": run.control, "target": run.target, "sample_seed": run.sample_seed}
    for name, given in asked.items():
        if given is not None and run.budget is None:
            raise InputError(
                f"{name}={given} is for an estimate; give budget= too, such as 1%, or leave it out."
            )
    if run.control is not None:
        names.check_run(run.control.partition(":")[0])
    sampling = run.method.measure.sampling
    if run.target is not None:
        target(run.target, () if sampling is None else sampling.targets)


def _check_engines(decoding: Decoding) -> None:
    abilities: dict[str, Ability] = {"engine": "generate", "scorer": "score", "comparer": "prefer"}
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


def _check_adapter(model: Model, engine: EngineKind) -> None:
    if model.adapter is not None and engine.name not in ("vllm", "fake"):
        raise InputError(
            f"model.adapter={model.adapter} is loaded by vLLM, and {engine.name} is asked; "
            "merge it into the model's weights (PEFT's merge_and_unload) and give that folder as "
            "model, or set decoding.comparer=vllm or decoding.scorer=vllm, whichever is asked."
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
    what = {"score": "scores given texts", "prefer": "compares entities"}.get(asked)
    if what and (model.chat_template or model.tokenizer is None):
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


def _check_template(model: Model) -> None:
    """Refuse what begins or shapes a chat where none is rendered here, or a thought comes first."""
    for name in ("chat_template_text", "prefill"):
        if getattr(model, name) is None:
            continue
        if model.source == "endpoint" or not model.chat_template:
            raise InputError(
                f"model.{name} is for a chat whose template is rendered here; set "
                "model.chat_template=true, or leave it out (a server renders its own)."
            )
    if model.prefill is not None and model.thinking:
        raise InputError(
            "model.prefill begins the answer, and model.thinking=on puts a thought before it; "
            "leave one of them out."
        )


def _check_thinking(run: Run) -> None:
    """Refuse a thought where nothing is said behind one, or no template has one."""
    model = run.model
    if model.thinking is None or run.answers is not None:
        return
    if not model.chat_template:
        raise InputError(
            "model.thinking is for a model that is asked through its chat template, and raw text "
            "has none; set model.chat_template=true, or leave it out."
        )
    if model.thinking and run.method.ask.ability.name != "generate":
        raise InputError(
            f"benchmark={run.benchmark.name} reads probabilities, before which no model thinks; "
            "set model.thinking=off."
        )
    known = sorted(parsers() or ())
    if known and model.reasoning_parser not in (None, *known):
        raise InputError(
            f"model.reasoning_parser={model.reasoning_parser} is none of vLLM's; it has "
            f"{', '.join(known)}.{suggestion(str(model.reasoning_parser), known)}"
        )


def _check_chat(run: Run) -> None:
    """Refuse to ask a model for chats that reads raw text; another system may have read them."""
    chats = {as_ for each in run.settings if (as_ := getattr(each, "as_", None)) is not None}
    if chats and run.answers is None and not run.model.chat_template:
        raise InputError(
            f"prompt.as={chats.pop()} asks a chat, and model={run.model.name} reads raw text; set "
            "model.chat_template=true, if it has a chat template."
        )
