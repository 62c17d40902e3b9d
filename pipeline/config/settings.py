"""Settings: what one command needs to know, composed of conf/ and checked once, here."""

from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from factsweep.operators.errors import InputError, refusing
from factsweep.operators.matching.normalise import BLANK
from factsweep.operators.methods import METHODS
from factsweep.operators.methods.ability import FILL
from factsweep.operators.methods.method import Asked
from factsweep.operators.prompts.setting import Words
from factsweep.operators.wording import suggestion
from factsweep.pipeline.config import folders
from factsweep.pipeline.config.benchmark import Benchmark, Matching
from factsweep.pipeline.config.checks import check_run
from factsweep.pipeline.config.cluster import Cluster
from factsweep.pipeline.config.compose import composed
from factsweep.pipeline.config.decoding import Decoding
from factsweep.pipeline.config.described import OPEN, described
from factsweep.pipeline.config.model import Model
from factsweep.pipeline.config.run import Config, Run
from factsweep.pipeline.config.typed import build

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
