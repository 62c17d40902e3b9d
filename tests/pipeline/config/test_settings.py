"""Settings: every file in conf/ composes, and what does not fit is refused by name."""

import dataclasses
import json
import pickle
import re
from collections.abc import Iterator
from dataclasses import asdict
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import TypeAdapter

from factsweep.operators.engines import ENGINES
from factsweep.operators.errors import InputError
from factsweep.operators.methods import METHODS
from factsweep.operators.prompts.tokens import visible
from factsweep.operators.wording import first_of
from factsweep.pipeline.config import settings
from factsweep.pipeline.config.budget import Target, parse_target
from factsweep.pipeline.config.compose import choices, compose_config
from factsweep.pipeline.config.folders import CONF
from factsweep.pipeline.config.recipe import in_recipe
from factsweep.pipeline.config.run import Config
from factsweep.pipeline.config.settings import load, run_of_record
from factsweep.pipeline.inputs import models
from factsweep.pipeline.results.compare import Comparison
from factsweep.pipeline.stages.plan import build_plan
from factsweep.pipeline.studies.night import Nightly
from tests.messages import naming

# Those that a run is composed of; `compare`, `nightly` and `study` read theirs by themselves, and a
# language and its refusals are named by the benchmark.
APART = {"comparison", "language", "nightly", "refusals", "study"}
GROUPS = sorted({p.name for p in CONF.iterdir() if p.is_dir()} - APART)
MODELS = {
    name: yaml.safe_load((CONF / f"model/{name}.yaml").read_text())
    for name in choices("model")
    if name != "endpoint"  # any model at any address
}
# Of these no more than the id is written down; the rest is read from the hub.
READ = {name for name, model in MODELS.items() if "base/any@_here_" in model["defaults"]}
DEFAULTS = compose_config([])
ENCODERS = [name for name, model in MODELS.items() if "base/encoder@_here_" in model["defaults"]]
RETRIEVALS = ("random", "semantic", "temporal", "optimal", "exact")
SET_OF = {
    "model=endpoint": [
        "model.name=endpoint",
        "model.id=some-model",
        "model.endpoint=http://127.0.0.1:8000/v1",
    ],
    "prompt=masked": ["model=bert-base-uncased"],
    "prompt=plausibility": ["benchmark=probelm-mini"],
    "prompt=answer-space": ["benchmark=bear"],
    "prompt=judge": ["benchmark=judge"],
    **{f"prompt=questions{shots}": ["benchmark=nq-open"] for shots in ("", "-5-shot")},
    **{f"prompt={shots}-shot": ["benchmark=kamel-mini"] for shots in (1, 5, 10)},
    **{f"prompt={each}": ["benchmark=distractors-mini"] for each in RETRIEVALS},
}
FILES = [f"{g}={n}" for g in GROUPS for n in choices(g) if g != "model" or n not in READ]
TABLE_2 = {"bert-base-uncased", "bert-large-uncased", "bert-large-uncased-whole-word-masking"} | {
    *("albert-base-v2", "albert-xxlarge-v2", "phi3-mini", "phi3-small", "phi3-medium"),
    *(f"llama2-{size}{tuned}" for size, tuned in product(("7b", "13b", "70b"), ("", "-it"))),
    *("llama3-8b", "llama3-8b-it", "llama3-70b", "smollm2-135m"),
}


def test_conf_every_file_composes(subtests: pytest.Subtests) -> None:
    for override in FILES:
        with subtests.test(override):
            group, _, name = override.partition("=")
            run = load([override, *SET_OF.get(override, [])])
            if group in ("model", "benchmark"):
                assert getattr(run, group).name == name
            if group == "model" and name != "endpoint":
                assert run.model.dtype == ("float32" if name in ENCODERS else "auto")


def test_conf_model_that_is_read_is_no_more_than_an_id_of_the_hub() -> None:
    assert {name: model["name"] for name, model in MODELS.items()} == {n: n for n in MODELS}
    assert {tuple(MODELS[name]) for name in READ} == {("defaults", "name", "id", "source")}
    assert all(MODELS[name]["id"].count("/") == 1 for name in READ)
    ids = [model["id"] for model in MODELS.values()]
    assert len(set(ids)) == len(ids)


@pytest.mark.parametrize("name", ENCODERS)
def test_load_encoder_brings_its_prompt_and_samples_nothing(name: str) -> None:
    for sweep in ("single", "paper"):
        run = load([f"model={name}", f"sweep={sweep}"])
        assert [setting.name for setting in run.settings] == ["masked"]
    assert (run.benchmark.method, run.decoding.samples.n_prompts) == ("belief-masked", 0)


def test_conf_has_every_model_of_the_papers() -> None:
    assert set(choices("model")) >= TABLE_2


@pytest.mark.parametrize("model", ["llama2-70b", "llama2-70b-it", "llama3-70b"])
def test_conf_model_of_70b_needs_four_gpus(model: str) -> None:
    assert load([f"model={model}"]).model.tensor_parallel == 4


@pytest.mark.parametrize("name", choices("prompt"))
def test_conf_prompt_is_named_as_in_the_tables(name: str) -> None:
    (setting,) = load([f"prompt={name}", *SET_OF.get(f"prompt={name}", [])]).settings
    # PRobELM's prompt has three types, each a setting in the tables.
    expected = {"plausibility": "all"}.get(name, name)
    assert (setting.name, setting.variant) == (expected, None)


def test_load_nothing_given_is_the_demo_model_on_the_mini_set() -> None:
    run = load([])
    assert (run.model.name, run.benchmark.name) == ("smollm2-135m", "myriadlama-mini")
    assert run.name == "smollm2-135m-myriadlama-mini-4-template"


@pytest.mark.parametrize(
    ("model", "n"), [("gpt2", 4), ("llama3-8b", 4), ("opt-13b", 2), ("llama3-70b", 2)]
)
def test_load_sweep_of_the_paper_depends_on_the_size(model: str, n: int) -> None:
    names = ("zero-shot", "4-template", "4-random", "4-relation")[:n]
    settings = load([f"model={model}", "sweep=paper"]).settings
    pairs = {(setting.name, setting.templates) for setting in settings}
    assert pairs == {(name, "all" if n == 4 else "manual") for name in names}


@pytest.mark.parametrize("model", ["gpt2-xl", "opt-13b"])
def test_load_sweep_of_kamel_is_the_same_for_every_size(model: str) -> None:
    run = load([f"model={model}", "benchmark=kamel", "sweep=paper"])
    assert [setting.name for setting in run.settings] == ["1-shot", "5-shot", "10-shot"]


def test_load_benchmark_brings_its_prompt_and_what_ends_an_answer() -> None:
    run = load(["benchmark=kamel-mini", "decoding=greedy"])
    assert [setting.name for setting in run.settings] == ["5-shot"]
    assert (run.decoding.max_tokens, run.decoding.stop) == (100, ("%",))


def test_load_prompt_given_stands_over_that_of_the_benchmark() -> None:
    (setting,) = load(["benchmark=kamel-mini", "prompt=10-shot", "prompt.shots=7"]).settings
    assert setting.name == "7-shot"


def test_load_demo_keeps_to_the_promised_slice() -> None:
    run = load(["sweep=demo"])
    assert len(run.benchmark.relations or ()) >= 8
    assert run.decoding.samples.n_prompts >= 20
    assert [setting.name for setting in run.settings] == ["zero-shot", "4-template"]


def test_load_sweep_with_overrides_changes_every_setting() -> None:
    run = load(["sweep=demo", "prompt.style=question", "seed=7"])
    assert [setting.style for setting in run.settings] == ["question", "question"]
    assert (run.seed, run.name) == (7, "demo")


@pytest.mark.parametrize("group", GROUPS)
def test_load_unknown_choice_names_group_and_choices(group: str) -> None:
    with pytest.raises(InputError) as error:
        load([f"{group}=nope"])
    names = first_of(choices(group))
    message = f"there is no {group} 'nope' in conf/{group}/; it has {names}."
    assert str(error.value).startswith(message)


ESTIMATE = ["budget=1%", "decoding.engine=fake"]
# What a run refuses as a whole, and the words that the refusal has.
REFUSED: dict[tuple[str, ...], list[list[str]]] = {
    ("Did you mean seed?",): [["sede=1"]],
    ("Did you mean model?",): [["mdoel=gpt2"]],
    ("Did you mean decoding.max_tokens?",): [["decoding.max_token=3"]],
    ("Did you mean smollm2-135m?",): [["model=smolm2-135m"]],
    ("Did you mean belief?",): [["benchmark.method=beleif"]],
    ("Did you mean template_spread?",): [["metrics.analyses=[template_sprad]"]],
    ("Did you mean model.adapter?",): [["model.lora=x"]],
    ("Did you mean n_bins?",): [["+metrics.n_bin=3"]],
    ("nope",): [["nope=1"], ["model.nope=1"], ["+model.nope=1"], ["+nope=1"]],
    ("a b c",): [["a b c"]],
    ("max_cost", "model.price_in"): [["max_cost=20"]],
    ("decoding.nope is no known field; decoding has engine, scorer",): [["+decoding.nope=1"]],
    ("model",): [["~model"]],
    ("seed",): [["~seed"]],
    ("decoding.stop",): [["~decoding.stop"]],
    ("model.tensor_parallel", "give"): [["~model.tensor_parallel"]],
    ("model.max_model_len", "give"): [["~model.max_model_len"]],
    ("model.id", "give"): [["~model.id"]],
    (
        "prompt.context is nothing that benchmark=kamel can be asked with; choose prompt=1-shot or "
        "5-shot or 10-shot.",
    ): [["benchmark=kamel", "prompt=4-template"]],
    ("benchmark.method='lama'; it must be one of belief, belief-masked, kamel, probelm,",): [
        ["benchmark.method=lama"]
    ],
    ("sweep", "prompt"): [["sweep=paper", "prompt=zero-shot"]],
    ("prompt.prompt_types=", "name"): [
        ["benchmark=probelm-mini", "prompt.prompt_types=[]"],
        ["benchmark=probelm-mini", "prompt.prompt_types=[statement,statement]"],
    ],
    ("metrics.n_bins=0.5",): [["metrics.n_bins=0.5"]],
    ("prompt.shots=-1", "greater than or equal to"): [["benchmark=kamel-mini", "prompt.shots=-1"]],
    ("n_answers=90", "block_size=25"): [["decoding.samples.n_answers=90"]],
    ("prompt.context=", "prompt.shots="): [["prompt.shots=0"], ["prompt.context=zero-shot"]],
    ("run_name='.hidden", "'.'", "give"): [["answers=/tmp/.hidden"]],
    ("model.engine.max_num_seq", "max_num_seqs?"): [["model.engine.max_num_seq=512"]],
    ("max_model_len", "is what model.max_model_len says"): [["model.engine.max_model_len=512"]],
    ("for a server", "model.endpoint.urls=", "vllm serve"): [
        [f"model.engine.{argument}"]
        for argument in ("data_parallel_size=2", "data_parallel_rank=0", "nnodes=2")
    ],
    ("argument", "engine"): [
        ["benchmark=probelm-mini", "decoding.scorer=transformers", "model.engine.max_num_seqs=512"]
    ],
    ("per_gpu=2", "4 GPUs"): [["model.replicas.per_gpu=2", "model.tensor_parallel=4"]],
    ("secret", "name"): [
        ["+model.engine.hf_token=abc"],
        ["+model.engine.speculative_config={api_key: abc}"],
    ],
    ("the metrics that can be a target are acc_at_1, one_word_ratio, consist",): [
        [*ESTIMATE, "target=acc±0.003"]
    ],
    ("precision, recall, f1",): [[*ESTIMATE, "benchmark=kamel-mini", "target=acc_at_1±0.003"]],
    ("control=before", "kamel-mini", "without a control"): [
        [*ESTIMATE, "benchmark=kamel-mini", "control=before"]
    ],
    ("more than 0 and less than 1, such as acc_at_1±0.003",): [
        [*ESTIMATE, "target=acc_at_1±0"],
        [*ESTIMATE, "target=acc_at_1±5"],
    ],
    ("it must be a metric and half the width of its interval",): [
        [*ESTIMATE, f"target=acc_at_1{each}"] for each in ("", "±many", "±nan")
    ],
    ("target=acc_at_1±0.1", "budget=", "give"): [["target=acc_at_1±0.1"]],
    ("1%",): [["decoding.engine=fake", f"budget={text}"] for text in ("0%", "101%", "many", "5kk")],
}


@pytest.mark.parametrize(
    ("words", "overrides"), [(words, line) for words, lines in REFUSED.items() for line in lines]
)
def test_load_what_cannot_be_is_refused_in_a_sentence(
    words: tuple[str, ...], overrides: list[str]
) -> None:
    with pytest.raises(InputError, match=naming(*words)) as error:
        load(overrides)
    assert error.value.exit_code == 2
    assert "\n" not in str(error.value)


# Each limit of conf/ that a slip would cross, and what must be said of it.
WRONG = {
    "a valid integer": ["seed=abc", "seed='1'", "seed=1.5", "seed=null", "prompt.shots=four"],
    "be a valid integer.": ["decoding.max_tokens=true"],
    "a valid string": ["artifacts=null", "run_name=5", "benchmark.relations.0=36"],
    "at least 1 character": ["artifacts=''", "decoding.stop.1=''"],
    "be a list": ["decoding.stop=x", "benchmark.relations=P36"],
    "at least 1 item": ["benchmark.relations=[]", "sweep.prompts=[]"],
    "be a group of fields": ["model.replicas=2"],
    "be vllm or endpoint or fake.": ["decoding.engine=nope"],
    "be 'shared' or 'prompt'.": ["prompt.scope=nope"],
    "be more than decoding.max_tokens=10.": ["model.max_model_len=1"],
    "a finite number": ["decoding.samples.temperature=.inf", "decoding.samples.top_p=.nan"],
    "greater than 0.": ["decoding.samples.top_p=0", "cluster.answers_per_s=0"],
    "greater than or equal to 0.": [
        *("seed=-1", "prompt.shots=-1", "decoding.max_tokens=-1"),
        *("decoding.samples.n_prompts=-1", "decoding.samples.n_answers=-25"),
    ],
    "greater than or equal to 0.01.": ["decoding.samples.temperature=0"],
    "greater than or equal to 1.": [
        *("decoding.samples.block_size=0", "metrics.n_draws=0", "metrics.n_rounds=0"),
        *("cluster.rows_per_shard=0", "cluster.rows_per_chunk=0", "cluster.seconds_per_chunk=0"),
        *("cluster.num_cpus=0", "cluster.max_deaths=0", "cluster.stall_s=0"),
        *("model.replicas.min=0", "model.tensor_parallel=0", "benchmark.pairs_per_relation=0"),
    ],
    "less than or equal to 1.": ["decoding.max_failed_share=2", "decoding.samples.top_p=2"],
    "less than or equal to 100.": ["decoding.samples.temperature=9500"],
    "less than or equal to 1000.": [
        *("metrics.n_bins=100000000000", "cluster.max_deaths=1001", "prompt.shots=1001")
    ],
    "less than or equal to 1024.": ["model.tensor_parallel=1025"],
    "less than or equal to 10000.": [
        *("decoding.samples.block_size=10001", "cluster.num_cpus=10001", "model.replicas.min=10001")
    ],
    "less than or equal to 604800.": ["cluster.stall_s=604801", "cluster.seconds_per_chunk=604801"],
    "less than or equal to 1000000.": [
        *("decoding.samples.n_answers=1000001", "metrics.n_rounds=1000001")
    ],
    "less than or equal to 10000000.": [
        *("decoding.max_tokens=10000001", "decoding.samples.n_prompts=10000001"),
        *("cluster.rows_per_shard=10000001", "cluster.rows_per_chunk=10000001"),
        *("metrics.n_draws=10000001", "benchmark.pairs_per_relation=10000001"),
    ],
    "less than or equal to 1000000000.": ["cluster.answers_per_s=1000000001"],
    "less than or equal to 999999999999.": ["seed=1000000000000"],
}


@pytest.mark.parametrize(
    ("override", "expected"), [(line, words) for words, lines in WRONG.items() for line in lines]
)
def test_load_value_that_does_not_fit_is_refused_with_what_does(
    override: str, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    name, _, value = override.partition("=")
    path, index = re.fullmatch(r"(.*?)(?:\.(\d+))?", name).groups()
    new_value = yaml.safe_load(value)
    new_value = new_value if index is None else [*"a" * int(index), new_value]
    changed = with_value(DEFAULTS, path.split("."), new_value)
    monkeypatch.setattr(settings, "compose_fitting", lambda _: (changed, []))
    with pytest.raises(InputError, match=naming(f"{name}=", expected)):
        load([])


def with_value(values: dict[str, Any], path: list[str], value: Any) -> dict[str, Any]:
    name, *inner = path
    return {**values, name: with_value(values[name], inner, value) if inner else value}


SETTINGS = dict.fromkeys(method.ask.setting for method in METHODS.values())
OPTIONS = dict.fromkeys(method.measure.options for method in METHODS.values())


ENDS = ("minimum", "maximum")


def numbers(schema: Any) -> Iterator[dict[str, Any]]:
    """The parts of a JSON schema that are numbers."""
    if isinstance(schema, dict):
        if schema.get("type") in ("integer", "number"):
            yield schema
        schema = list(schema.values())
    for part in schema if isinstance(schema, list) else ():
        yield from numbers(part)


def test_conf_every_number_has_a_range() -> None:
    kinds = (Config, Comparison, Nightly, *SETTINGS, *OPTIONS)
    schemas = [schema for kind in kinds for schema in numbers(TypeAdapter(kind).json_schema())]
    assert len(schemas) > 40
    highest = {16, 1024, 65_535, 7 * 24 * 3600, 10**12 - 1, *(10**n for n in range(11))}
    for schema in schemas:
        least, most = (schema.keys() & {name, f"exclusive{name.capitalize()}"} for name in ENDS)
        assert {schema[name] for name in least} <= {0, 0.01, 1, 1024}, schema
        assert {schema[name] for name in most} <= highest, schema
        assert (len(least), len(most)) == (1, 1), schema


ABSURD = [
    ("run_name", "a\0b", r"run_name='a\x00b'; it must be text of more than blanks, without the"),
    ("matching.pipeline", " ", "matching.pipeline=' '; it must be text of more than blanks"),
    ("run_name", "x" * 5000, "it must have at most 4096 characters"),
    ("decoding.stop", ["\0"], r"decoding.stop.0='\x00'; it must be text of more than blanks"),
    ("cluster.rows_per_shard", 10**9, "less than or equal to 10000000."),
    ("metrics.n_rounds", 10**9, "less than or equal to 1000000."),
    ("metrics.n_bins", 10**4000, "metrics.n_bins"),
    ("run_name", "\ud800", "the configuration holds text that is no Unicode"),
]


@pytest.mark.parametrize(("name", "value", "sentence"), ABSURD)
def test_load_absurd_value_is_refused_with_what_is_allowed(
    name: str, value: Any, sentence: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    changed = with_value(DEFAULTS, name.split("."), value)
    monkeypatch.setattr(settings, "compose_fitting", lambda _: (changed, []))
    with pytest.raises(InputError) as error:
        load([])
    assert sentence in str(error.value)
    assert len(str(error.value)) < 500


def test_run_pickled_for_a_worker_is_the_same() -> None:
    run = load(["cluster=kuberay", "sweep=demo"])
    assert pickle.loads(pickle.dumps(run)) == run
    assert json.loads(json.dumps(dataclasses.asdict(run)))["cluster"]["launch"]["kind"] == "kuberay"


@pytest.mark.parametrize("field", ["model.name", "benchmark.name", "run_name"])
@pytest.mark.parametrize("name", ["../x", ".x", "x:y", "'x '"])
def test_load_name_that_is_unfit_names_the_field(field: str, name: str) -> None:
    with pytest.raises(InputError, match=rf"^{field}[= ]"):
        load([f"{field}='{name}'" if "'" not in name else f"{field}={name}"])


def test_run_is_read_from_its_record_as_it_was() -> None:
    lines = [
        ["prompt=4-template", "seed=3", "budget=5%"],
        ["sweep=paper", "benchmark=myriadlama", "model=llama3-8b"],
        ["model=bert-base-uncased", "benchmark=myriadlama"],
        ["benchmark=kamel-mini", "prompt=5-shot"],
        ["benchmark=probelm-mini"],
        ["benchmark=distractors-mini", "sweep=distractors"],
        ["model=endpoint", "model.id=x", "model.endpoint=http://127.0.0.1:9/v1"],
        ["cluster=slurm", "model=llama3-70b", "cluster.hardware=H100"],
        ["cluster=kuberay", "model=llama3-8b", "artifacts=s3://b/a", "results=s3://b/r"],
        ["prompt.as=turns", "model.chat_template=true", "model.thinking=true"],
    ]
    wrong = []
    for line in lines:
        run = load(line)
        recorded = json.loads(json.dumps(dataclasses.asdict(run)))
        if recorded["model"]["prefill"] is None:
            del recorded["model"]["prefill"]  # as an earlier version wrote it
            recorded["model"]["instruction_tuned"] = None
        if run_of_record(recorded) != run:
            wrong.append(line)
    assert wrong == []


def test_argument_of_the_engine_is_part_of_a_recipe_unless_it_changes_no_answer() -> None:
    model = load(["model.engine.max_num_seqs=512", "model.engine.quantization=fp8"]).model
    assert model.engine == {"max_num_seqs": 512, "quantization": "fp8"}
    assert in_recipe(model)["engine"] == {"quantization": "fp8"}
    assert in_recipe(load(["model.engine.max_num_seqs=512"]).model)["engine"] == {}


def test_model_with_arguments_is_a_key_of_its_own() -> None:
    first, other = (load([f"model.engine.max_num_seqs={n}"]).model for n in (1, 2))
    assert len({first, other}) == 2


def test_arguments_of_vllm_are_those_of_its_engine() -> None:
    vllm = ENGINES["vllm"]
    arguments = vllm.arguments()
    assert arguments is not None
    assert {"quantization", "max_num_batched_tokens", *vllm.fields, *vllm.server_only} <= arguments


@pytest.mark.parametrize(
    "text", ["acc_at_1±0.003", "'acc_at_1±0.003'", "acc_at_1+-0.003", "acc_at_1 ± .003"]
)
def test_target_is_read_as_it_is_typed(text: str) -> None:
    target_text = load([*ESTIMATE, f"target={text}"]).target
    assert target_text is not None
    assert parse_target(target_text, ["acc_at_1"]) == Target("acc_at_1", 0.003)


TEMPLATE = "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}"


def test_template_and_prefill_are_read_by_the_model_and_stand_in_the_recipe(tmp_path: Path) -> None:
    template = tmp_path / "own.jinja"
    template.write_text(TEMPLATE)
    (tmp_path / "system.txt").write_text("You are a pirate.", "utf-16")
    artifacts = f"artifacts={tmp_path}/a"
    turns = ["prompt=zero-shot", "prompt.as=turns", f"prompt.system=@{tmp_path}/system.txt"]
    chat = [f"model.chat_template={template}", "model.prefill=Arr:", *turns, artifacts]
    run = load(chat)
    assert run.model.chat_template is True
    assert run.settings[0].system == "You are a pirate."  # type: ignore[attr-defined]
    plan = build_plan(run)
    (branch,) = plan.branches
    task = next(question for _, question in branch.list_questions()).task
    text = '{"role":"system","content":"S"}\n{"role":"user","content":"U"}\n'
    tokenizer = models.tokenizer(plan.weights)
    (ids,) = task.token_ids(tokenizer, [text])
    assert visible(tokenizer, ids) == "<system>S<user>U<assistant>Arr:"
    template.write_text(TEMPLATE + "!")
    other_plans = [build_plan(load(chat)), build_plan(load([*chat, "model.prefill=Ahoy:"]))]
    for stage in ("admitted", "generations"):
        names = {
            next(a.folder for a in any_plan.branches[0].artifacts() if a.stage == stage)
            for any_plan in (plan, *other_plans)
        }
        assert len(names) == 3, stage
    plain = asdict(load([artifacts]).model)
    assert (plain["chat_template_text"], plain["prefill"]) == (None, None)


def test_what_is_no_chat_is_refused(tmp_path: Path) -> None:
    cases = {
        ("model.prefill=A:",): ("model.prefill", "model.chat_template=true"),
        ("model.chat_template=true", "model.prefill=A:", "model.thinking=on"): ("thinking",),
        (f"model.chat_template={tmp_path}/none.jinja",): ("none.jinja",),
        ("prompt.as=turns", f"prompt.system=@{tmp_path}/none.txt"): ("none.txt", "prompt.system"),
    }
    for overrides, words in cases.items():
        with pytest.raises(InputError, match=naming(*words)):
            load(list(overrides))
    (tmp_path / "wide.txt").write_bytes("Answer ä.".encode("utf-16-be"))
    with pytest.raises(InputError, match=naming("wide.txt", "iconv -f UTF-16BE")):
        load(["prompt.as=turns", f"prompt.system=@{tmp_path}/wide.txt"])
    (tmp_path / "empty.txt").touch()
    with pytest.raises(InputError, match=naming("empty.txt")):
        load(["prompt.as=turns", f"prompt.system=@{tmp_path}/empty.txt"])
