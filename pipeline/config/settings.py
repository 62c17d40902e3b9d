"""Settings: the run that one command describes, composed of conf/; `run_checks` checks it."""

from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from factsweep.operators.errors import InputError, collect_faults, input_errors
from factsweep.operators.matching.normalise import BLANK
from factsweep.operators.methods import METHODS
from factsweep.operators.methods.method import FILL, SCORE, PromptSetting
from factsweep.operators.prompts.setting import LanguageWords
from factsweep.operators.wording import join_sentences, suggestion
from factsweep.pipeline.config import folders
from factsweep.pipeline.config.cluster import Cluster
from factsweep.pipeline.config.compose import compose_config, compose_fitting
from factsweep.pipeline.config.model import Model, Pool
from factsweep.pipeline.config.model_metadata import OPEN, describe
from factsweep.pipeline.config.recipe import build
from factsweep.pipeline.config.run import Benchmark, Config, Decoding, Matching, Run
from factsweep.pipeline.config.run_checks import check_run
from factsweep.pipeline.machine.text_files import text

_TEXTS = ("chat_template_text", "prefill")
_MASKED = "prompt=masked"  # the prompt of encoders


def load(overrides: Sequence[str]) -> Run:
    """The run that the overrides describe; an InputError names a wrong one."""
    config = build(Config, _describe(overrides), "")
    benchmark = _resolve_benchmark(config)
    settings = [
        _translate_setting(_build_setting(prompt, benchmark, config.model), benchmark)
        for prompt in _list_prompts(overrides, config)
    ]
    own_fields: dict[str, Any] = {
        "benchmark": benchmark,
        "settings": tuple(settings),
        "matching": _resolve_matching(config.matching, benchmark),
        "metrics": _build_options(config.metrics, benchmark),
        "name": config.run_name or _default_name(config, settings),
    }
    names = {field.name for field in fields(Run)} - own_fields.keys()
    run = Run(**{name: getattr(config, name) for name in names}, **own_fields)
    if run.model.endpoint == "???" and getattr(run.cluster.launch, "serve", None):
        run = replace(run, model=replace(run.model, endpoint=Pool(())))  # the job knows them
    if run.model.source == "endpoint" and run.decoding.engine != "fake":  # which runs here
        served = replace(run.decoding, engine="endpoint", scorer="endpoint", comparer="endpoint")
        run = replace(run, decoding=served)
    elif run.model.architecture == "encoder":  # vLLM scores no masked model
        run = replace(run, decoding=replace(run.decoding, scorer="transformers"))
    check_run(run)
    fills_masks = run.method.ask.ability == FILL
    return replace(run, decoding=_fill_decoding(run.decoding)) if fills_masks else run


def run_of_record(recorded: Mapping[str, Any]) -> Run:
    """The run of a run.json or an estimate.json; an InputError if its fields are too old or new."""
    benchmark = build(Benchmark, recorded["benchmark"], "benchmark")
    method = METHODS[benchmark.method]
    # Fields that earlier versions lacked are null.
    samples = {"until": None, **recorded["decoding"]["samples"]}
    content = folders.content(folders.files("decoding")["default"])
    confidence = {"confidence": content["confidence"]} if isinstance(content, dict) else {}
    fields_of_record = {**confidence, **recorded["decoding"], "samples": samples}
    decoding = build(Decoding, fields_of_record, "decoding")
    new_fields = dict.fromkeys(field.name for field in fields(Model))
    model = {**new_fields, **recorded["model"]}
    model.pop("instruction_tuned", None)  # of earlier versions
    cluster_fields = {field.name for field in fields(Cluster)}
    cluster = {name: x for name, x in recorded["cluster"].items() if name in cluster_fields}
    built: dict[str, Any] = {
        "model": build(Model, model, "model"),
        "benchmark": benchmark,
        "settings": tuple(
            # with the names of conf/: `as` is a keyword of Python
            build(method.ask.setting, {n.rstrip("_"): x for n, x in setting.items()}, "prompt")
            for setting in recorded["settings"]
        ),
        "decoding": _fill_decoding(decoding) if method.ask.ability == FILL else decoding,
        "matching": build(Matching, recorded["matching"], "matching"),
        "metrics": build(method.measure.options, recorded["metrics"], "metrics"),
        "cluster": build(Cluster, cluster, "cluster"),
    }
    if recorded.get("judges"):
        built["judges"] = tuple(recorded["judges"])
    return Run(**{**{field.name: recorded.get(field.name) for field in fields(Run)}, **built})


def _describe(overrides: Sequence[str]) -> dict[str, Any]:
    """The composed configuration, with fields read from the model itself.

    Encoders are asked with masks, unless a prompt is named.
    """
    config, faults = compose_fitting(overrides)
    if "model" not in config:
        return config  # `build` refuses it
    model = config["model"]
    if (thinking := model.get("thinking")) in ("on", "off"):
        model["thinking"] = thinking == "on"  # booleans of YAML, which Hydra reads as texts
    if str(model.get("chat_template")).endswith(".jinja"):
        file = model["chat_template"].removeprefix("@")
        model |= {"chat_template": True, "chat_template_text": f"@{file}"}
    model |= {name: _read_text(f"model.{name}", model[name]) for name in _TEXTS if name in model}
    placeholders = {name: value for name, value in OPEN.items() if model.get(name, "") is None}
    with collect_faults(faults):
        build(Config, {**config, "model": {**model, **placeholders}}, "")
    if faults:
        raise InputError(join_sentences(faults))
    config["model"] = model = describe(model, config["cluster"])
    has_prompt = any(override.startswith(("prompt=", "prompt@")) for override in overrides)
    method = METHODS.get(config["benchmark"]["method"])
    is_replaced = method is None or method.ask.ability != SCORE  # which masked models do, too
    if model["architecture"] == "encoder" and not has_prompt and is_replaced:
        config["prompt"] = compose_config([*overrides, _MASKED])["prompt"]
    return config


def _read_text(name: str, value: Any) -> Any:
    """A text, or the content of the file after an @."""
    if not isinstance(value, str) or not value.startswith("@"):
        return value
    with input_errors(value[1:], f"{name}=@FILE reads a text from it"):
        path = Path(value[1:]).expanduser()
        path.open("rb").close()  # the error of a missing file names the field
        content = text(path)
    if not content.strip():
        raise InputError(f"{value[1:]} is empty; {name}=@FILE reads a text from it.")
    return content


def _list_prompts(overrides: Sequence[str], config: Config) -> list[dict[str, Any]]:
    """The settings to measure, with the fields of conf/prompt/: those of the sweep, or the one."""
    sweep = config.sweep.of(config.model)
    if sweep.prompts is None:
        return [config.prompt]
    if any(override.startswith("prompt=") for override in overrides):
        raise InputError("sweep and prompt both name settings; give one of the two.")
    prompts = [compose_config([*overrides, f"prompt={name}"])["prompt"] for name in sweep.prompts]
    changes = {} if sweep.templates is None else {"templates": sweep.templates}
    return [{**prompt, **changes} for prompt in prompts]


def _fill_decoding(decoding: Decoding) -> Decoding:
    """The decoding of methods that predict one token, without samples."""
    samples = replace(decoding.samples, n_prompts=0)
    return replace(decoding, max_tokens=0, canary_prompts=0, samples=samples)


def _resolve_benchmark(config: Config) -> Benchmark:
    benchmark, model = config.benchmark, config.model
    if benchmark.method not in METHODS:
        raise InputError(
            f"benchmark.method={benchmark.method!r}; it must be one of {', '.join(METHODS)}."
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


def _build_setting(prompt: Mapping[str, Any], benchmark: Benchmark, model: Model) -> PromptSetting:
    ask = METHODS[benchmark.method].ask
    field_names = {field.name.rstrip("_") for field in fields(ask.setting)}  # `as` is a keyword
    if unknown := [name for name in prompt if name not in field_names]:
        paper = benchmark.paper.encoders if ask.ability == FILL else benchmark.paper
        choices = () if paper is None else paper.prompts or ()
        raise InputError(
            f"prompt.{unknown[0]} is nothing that benchmark={benchmark.name} can be asked with; "
            f"choose prompt={' or '.join(choices)}."
        )
    if "system" in prompt:
        prompt = {**prompt, "system": _read_text("prompt.system", prompt["system"])}
    setting: PromptSetting = build(ask.setting, prompt, "prompt")
    if model.chat_template and getattr(setting, "as_", "turns") is None:
        return replace(setting, as_="chat")  # type: ignore[type-var]
    return setting


def _translate_setting(setting: PromptSetting, benchmark: Benchmark) -> PromptSetting:
    language = benchmark.language
    if language == "en" or not hasattr(setting, "shots"):  # masked sentences have no other words
        return setting
    if not hasattr(setting, "words"):
        raise InputError(
            f"benchmark.language={language}: {benchmark.name} is asked in English alone; only "
            "BELIEF's way to ask (benchmark.method=belief) has words of other languages."
        )
    languages = folders.files("language")
    if language not in languages:
        raise InputError(
            f"there are no words for benchmark.language={language}; conf/language/ has "
            f"{', '.join(languages)}, and the papers en. Give "
            f"{folders.OWN}/language/{language}.yaml with mask, question, asks and "
            f"answers.{suggestion(language.lower(), languages)}"
        )
    content = {"language": language, **folders.content(languages[language])}
    return replace(setting, words=build(LanguageWords, content, str(languages[language])))  # type: ignore[type-var]


def _resolve_matching(matching: Matching, benchmark: Benchmark) -> Matching:
    if benchmark.types == "recognised":
        matching = replace(matching, values_in=benchmark.language)
    if METHODS[benchmark.method].measure.reads_refusals:
        matching = replace(matching, refusals=_load_refusals(benchmark.language))
    if benchmark.language == "en" or matching.pipeline != BLANK:
        return matching
    return replace(matching, pipeline=f"{BLANK}-{benchmark.language}")


def _load_refusals(language: str) -> tuple[str, ...]:
    lists = folders.files("refusals")
    if language not in lists:
        raise InputError(
            f"there are no refusals for benchmark.language={language}; conf/refusals/ has "
            f"{', '.join(lists)}. Give {folders.OWN}/refusals/{language}.yaml, a list of texts."
        )
    texts = folders.content(lists[language])
    if not isinstance(texts, list) or not all(isinstance(text, str) and text for text in texts):
        raise InputError(f"{lists[language]} must be a list of texts; correct it.")
    return tuple(texts)


def _build_options(metrics: Mapping[str, Any], benchmark: Benchmark) -> Any:
    kind = METHODS[benchmark.method].measure.options
    own_fields = {field.name for field in fields(kind)}
    all_fields = {f.name for method in METHODS.values() for f in fields(method.measure.options)}
    foreign = all_fields - own_fields
    return build(kind, {name: x for name, x in metrics.items() if name not in foreign}, "metrics")


def _default_name(config: Config, settings: Sequence[PromptSetting]) -> str:
    """The model or the file of answers, the benchmark, and the setting or `sweep`.

    Runs of the fake engine are marked, so that they overwrite no run of a real one.
    """
    is_sweep = config.sweep.of(config.model).prompts is not None
    is_fake = config.decoding.engine == "fake" and config.answers is None
    parts = [
        "fake" if is_fake else "",
        config.model.name if config.answers is None else Path(config.answers).stem,
        config.benchmark.name,
        "sweep" if is_sweep else settings[0].name,
        "estimate" if config.budget is not None else "",
    ]
    return "-".join(filter(None, parts))
