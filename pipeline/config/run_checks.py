"""Checks of a composed run: values that contradict each other, or its model or engine."""

from collections import Counter

from factsweep.operators.engines import ENGINES
from factsweep.operators.engines.protocol import Ability, EngineKind
from factsweep.operators.engines.vllm.source import parsers
from factsweep.operators.errors import InputError
from factsweep.operators.methods.method import GENERATE, PREFER, SCORE
from factsweep.operators.wording import safe_names, suggestion
from factsweep.operators.wording.redaction import is_secret, redactor, texts
from factsweep.pipeline.config.budget import parse_budget, parse_target
from factsweep.pipeline.config.model import Model
from factsweep.pipeline.config.run import Decoding, Run
from factsweep.pipeline.machine.urls import split_address, split_url, split_web_address


def check_run(run: Run) -> None:
    """Refuse values that contradict each other."""
    safe_names.check(run.model.name, "model.name")
    safe_names.check(run.benchmark.name, "benchmark.name")
    safe_names.check_run(run.name)
    _check_urls(run)
    if run.budget is not None:
        parse_budget(run.budget)
    _check_estimate(run)
    _check_engines(run.decoding)
    _check_endpoint(run)
    _check_arguments(run.model, run.engine)
    _check_template(run.model)
    _check_thinking(run)
    _check_samples(run)
    _check_confidence(run)
    model, decoding = run.model, run.decoding
    chats = {as_ for setting in run.settings if (as_ := getattr(setting, "as_", None)) is not None}
    if chats and run.answers is None and not model.chat_template:  # answers may be from elsewhere
        raise InputError(
            f"prompt.as={chats.pop()} asks a chat, and model={model.name} reads raw text; set "
            "model.chat_template=true, if it has a chat template."
        )
    if model.adapter is not None and run.engine.name not in ("vllm", "fake"):
        raise InputError(
            f"model.adapter={model.adapter} is loaded by vLLM, and {run.engine.name} is asked; "
            "merge it into the model's weights (PEFT's merge_and_unload) and give that folder as "
            "model, or set decoding.comparer=vllm or decoding.scorer=vllm, whichever is asked."
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


def _check_urls(run: Run) -> None:
    for name, root in (("artifacts", run.artifacts), ("results", run.results)):
        split_url(root, f"{name}={root.partition('?')[0]}")
    if (address := run.cluster.address) is not None:
        split_address(address, f"cluster.address={address}")
    for name, path in (("benchmark.path", run.benchmark.path), ("answers", run.answers)):
        if "://" in (path or ""):
            raise InputError(f"{name} is a URL; copy the file to this machine and give its path.")


def _check_samples(run: Run) -> None:
    samples = run.decoding.samples
    if samples.n_answers % samples.block_size:
        raise InputError(
            f"decoding.samples.n_answers={samples.n_answers} is no multiple of "
            f"decoding.samples.block_size={samples.block_size}; make it one."
        )
    if samples.until is None:
        return
    field = "decoding.samples.until"
    parse_target(samples.until, run.method.measure.of_samples, field)
    has_samples = samples.n_prompts and samples.n_answers and run.budget is run.answers is None
    if not has_samples:
        raise InputError(
            f"{field}={samples.until}: this run asks no samples; leave it out, or give "
            "decoding.samples.n_prompts and n_answers, and neither budget= nor answers=."
        )


def _check_estimate(run: Run) -> None:
    for name in ("control", "target", "sample_seed"):
        if (value := getattr(run, name)) is not None and run.budget is None:
            raise InputError(
                f"{name}={value} is for an estimate; give budget= too, such as 1%, or leave it out."
            )
    if run.control is not None:
        safe_names.check_run(run.control.partition(":")[0])
    sampling = run.method.measure.sampling
    if run.control is not None and sampling is not None and not sampling.takes_control:
        raise InputError(
            f"control={run.control}: benchmark={run.benchmark.name} is estimated without a control;"
            " leave it out."
        )
    if run.target is not None:
        parse_target(run.target, () if sampling is None else sampling.targets)


def _check_engines(decoding: Decoding) -> None:
    abilities: dict[str, Ability] = {"engine": "generate", "scorer": "score", "comparer": "prefer"}
    for field, ability in abilities.items():
        name = getattr(decoding, field)
        choices = [kind.name for kind in ENGINES.values() if ability in kind.abilities]
        if name not in choices:
            raise InputError(
                f"decoding.{field}={name!r}; it must be {' or '.join(choices)}."
                f"{suggestion(name, choices)}"
            )


def _check_arguments(model: Model, engine: EngineKind) -> None:
    arguments = engine.arguments() if model.engine else None
    for name in (name for name, _ in texts(model.engine) if is_secret(name)):
        raise InputError(
            f"model.engine.{name} is a secret by its name, and results are named by what is here; "
            "put it into the environment, as HF_TOKEN."
        )
    for name in model.engine:
        if name in engine.fields:
            raise InputError(f"model.engine.{name} is what {engine.fields[name]} says; give that.")
        if arguments is not None and name not in arguments:
            raise InputError(
                f"model.engine.{name} is no argument of the engine {engine.name}."
                f"{suggestion(name, arguments)}"
            )
        if (value := model.engine[name]) != (default := engine.server_only.get(name, value)):
            raise InputError(
                f"model.engine.{name}={value} is for a server, and {engine.name} in this process "
                f"takes {default} alone; start the server (`vllm serve "
                f"--{name.replace('_', '-')} …`) and give model=endpoint model.id=<its name there> "
                "model.endpoint.urls=[<URL>,…] (docs/endpoint.md)."
            )


def _check_endpoint(run: Run) -> None:
    model, is_served = run.model, run.model.source == "endpoint"
    serves = getattr(run.cluster.launch, "serve", None)
    is_open = model.urls == ("???",) or not (model.urls or serves)
    if is_served and (is_open or model.id == "???"):
        raise InputError(
            "a model behind an endpoint needs model.id=<its name there> and model.endpoint=<URL>, "
            "or model.endpoint.urls=[<URL>,…] of several servers."
        )
    engines = (run.decoding.engine, run.decoding.scorer, run.decoding.comparer)
    if not is_served and (model.endpoint is not None or "endpoint" in engines):
        raise InputError(
            f"model={model.name} is loaded here; a server is asked with model=endpoint "
            "model.id=<its name there> model.endpoint=<URL>."
        )
    if run.max_cost is not None and model.price_in is None:
        raise InputError(
            "max_cost needs the prices of a model behind an endpoint: model.price_in and "
            "model.price_out, per million tokens."
        )
    if is_served:
        _check_addresses(model)
        _check_server_abilities(run)


def _check_addresses(model: Model) -> None:
    for address in model.urls:
        url = split_web_address(address, "model.endpoint")
        if url.username or url.password or url.query or redactor()(url.geturl()) != url.geturl():
            raise InputError(
                "model.endpoint holds more than an address, such as a key, which others could read;"
                f" put the key into the environment as {model.client.key_variable}."
            )
    repeated = [url for url, n in Counter(url.rstrip("/") for url in model.urls).items() if n > 1]
    if repeated:
        raise InputError(f"model.endpoint.urls has {repeated[0]} twice; name each server once.")
    if (model.price_in is None) != (model.price_out is None):
        raise InputError("model.price_in and model.price_out go together; give both.")
    if not is_secret(model.client.key_variable):
        raise InputError(
            f"model.client.key_variable={model.client.key_variable!r} is no name of a secret, so "
            "its value would not be kept out of logs; name the variable such as MY_API_KEY."
        )


def _check_server_abilities(run: Run) -> None:
    if run.model.architecture != "decoder":
        raise InputError("a model behind an endpoint continues texts; model.architecture=decoder.")
    ability, model = run.method.ask.ability.name, run.model
    if run.answers is not None:
        return
    task = {"score": "scores given texts", "prefer": "compares entities"}.get(ability)
    if task and (model.chat_template or model.tokenizer is None):
        raise InputError(
            f"benchmark={run.benchmark.name} {task} token by token, which needs "
            "model.tokenizer=<the model's own> and model.chat_template=false: chats score nothing."
        )
    if ability == "prefer" and (run.decoding.baselines.beams or run.max_cost is not None):
        raise InputError(
            f"benchmark={run.benchmark.name} compares entities: an endpoint gives no beams, and "
            "what that costs is not known beforehand; leave decoding.baselines.beams and max_cost "
            "out."
        )


def _check_confidence(run: Run) -> None:
    options, model = run.decoding.confidence, run.model
    kinds = options.ask
    if not kinds or run.answers is not None:
        return
    words = {options.true.strip(), options.false.strip()}
    if "" in words or len(words) < 2:
        raise InputError(
            f"decoding.confidence.true={options.true!r} and false={options.false!r} are compared "
            "as answers; give two different words."
        )
    field = f"decoding.confidence.ask=[{','.join(kinds)}]"
    if run.method.ask.ability != GENERATE or not run.method.measure.confidences:
        raise InputError(
            f"{field} asks about answers that a model writes, and benchmark={run.benchmark.name} "
            "measures no confidence in such answers; leave it out."
        )
    if model.thinking:
        raise InputError(f"{field} asks a model that thinks first; set model.thinking=off.")
    is_chat_of_server = model.endpoint is not None and model.chat_template
    lacks_tokens = model.endpoint is not None and model.tokenizer is None
    if "p_true" in kinds and (is_chat_of_server or lacks_tokens):
        raise InputError(
            f"{field}: p_true scores given texts token by token, which needs "
            "model.tokenizer=<the model's own> and model.chat_template=false: chats score nothing. "
            "verbalised needs neither."
        )
    if "p_true" in kinds and "score" not in run.engine.abilities:
        raise InputError(
            f"{field}: p_true scores given texts, which decoding.engine={run.engine.name} does not."
        )


def _check_template(model: Model) -> None:
    """Refuse a template or a prefill where no chat is rendered here, or after a thought."""
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
    parser_names = sorted(parsers() or ())
    if parser_names and model.reasoning_parser not in (None, *parser_names):
        raise InputError(
            f"model.reasoning_parser={model.reasoning_parser} is none of vLLM's; it has "
            f"{', '.join(parser_names)}.{suggestion(str(model.reasoning_parser), parser_names)}"
        )
