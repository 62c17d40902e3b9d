"""Checks of a run: which values do not go with each other. Ranges are those of the fields."""

from urllib.parse import urlsplit

from factsweep.operators.engines import ENGINES
from factsweep.operators.engines.kind import Ability, EngineKind
from factsweep.operators.engines.vllm.source import parsers
from factsweep.operators.errors import InputError
from factsweep.operators.methods.ability import PREFER, SCORE
from factsweep.operators.wording import names, suggestion
from factsweep.operators.wording.redact import is_secret, redactor, texts
from factsweep.pipeline.config.budget import budget, target
from factsweep.pipeline.config.decoding import Decoding
from factsweep.pipeline.config.model import Model
from factsweep.pipeline.config.run import Run


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
