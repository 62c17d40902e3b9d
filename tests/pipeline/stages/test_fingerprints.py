"""Fingerprints: what is declared part of a recipe changes some, and nothing else changes any."""

import json
import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields, is_dataclass, replace
from hashlib import sha256
from pathlib import Path
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import pytest

from factsweep.operators.matching import normalise
from factsweep.operators.methods import METHODS
from factsweep.operators.prompts.answer_space import AnswerSpace
from factsweep.operators.prompts.clozes import Distractors
from factsweep.operators.prompts.few_shot import FewShot
from factsweep.operators.prompts.judge import JudgePrompt
from factsweep.operators.prompts.masked import MaskedSetting
from factsweep.operators.prompts.open_question import OpenQuestion
from factsweep.operators.prompts.plausibility import PROMPT_TYPES, Plausibility
from factsweep.operators.prompts.setting import Setting
from factsweep.pipeline.config.cluster import RayJob
from factsweep.pipeline.config.recipe import NoNumber, declarations
from factsweep.pipeline.config.run import Baselines, Confidence, Run, Samples
from factsweep.pipeline.config.settings import load
from factsweep.pipeline.inputs import catalog, models
from factsweep.pipeline.inputs.models import Weights
from factsweep.pipeline.stages.plan import Plan, build_plan

Fingerprints = Callable[[Run], set[str]]
Before = dict[str, tuple[Run, set[str]]]

RUNS = {
    "generate": ["benchmark=myriadlama-mini"],
    "score": ["benchmark=probelm-mini"],
    "fill": ["benchmark=myriadlama-mini", "model=bert-base-uncased"],
    "prefer": [
        "benchmark=distractors-mini",
        "decoding.baselines.beams=2",
        "decoding.baselines.others=1",
    ],
}
# A repetition, without which `repeats` says nothing; fewer samples than the canary has prompts.
COMMON = [
    "model.dtype=float32",
    "decoding.repetition=night",
    "decoding.repeats=all",
    "decoding.samples.n_prompts=8",
]

# What another value is, where it cannot be made from the type alone.
VALUES: Mapping[str, Callable[[Run], Any]] = {
    "benchmark.method": lambda run: next(m for m in METHODS if m != run.benchmark.method),
    "benchmark.data": lambda _: "kamel-mini",  # must be in the catalog
    "decoding.engine": lambda run: "vllm" if run.decoding.engine == "fake" else "fake",
    "decoding.scorer": lambda _: "transformers",
    "decoding.comparer": lambda _: "vllm",
    "decoding.samples.n_answers": lambda run: 2 * run.decoding.samples.n_answers,  # whole blocks
    "benchmark.paper": lambda run: replace(run.benchmark.paper, prompts=("zero-shot",)),
    "metrics": lambda run: replace(run.metrics, n_rounds=run.metrics.n_rounds + 1),
    "cluster.launch": lambda _: RayJob("ray", None),
}

# What is asked about candidates alone.
COMPARED = {
    "decoding.comparer",
    *(f"decoding.baselines.{field.name}" for field in fields(Baselines)),
}
CONFIDENCE = {f"decoding.confidence.{field.name}" for field in fields(Confidence)}
SAMPLES = {f"decoding.samples.{field.name}" for field in fields(Samples)}
# Where files lie, whose content is part of a recipe: each has a test of its own.
FILES = ("benchmark.path", "benchmark.knowledge_base", "judges")
# Parts of recipes that need not change a fingerprint of a run that asks something else of engines.
SILENT = {
    # It scores given texts; questions about answers have a test of their own.
    "generate": {*COMPARED, *CONFIDENCE, "decoding.scorer"},
    # Nothing is generated, and scores of another tensor_parallel are always others.
    "score": {*SAMPLES, *COMPARED, *CONFIDENCE, "decoding.stop", "decoding.mix_tensor_parallel"},
    # Candidates are compared, and some sequences searched for.
    "prefer": {
        *SAMPLES,
        *CONFIDENCE,
        "decoding.scorer",
        "decoding.stop",
        "decoding.mix_tensor_parallel",
    },
    # Predicted by transformers on one device: not generated, not sampled, not by kernels of vLLM.
    "fill": {
        *SAMPLES,
        *CONFIDENCE,
        *COMPARED,
        *(f"decoding.{name}" for name in ("scorer", "stop", "canary_prompts", "determinism")),
        *("decoding.mix_tensor_parallel", "model.tensor_parallel", "model.pipeline_parallel"),
    },
}


def leaves(section: Any, path: str = "") -> Iterator[tuple[str, bool]]:
    """The declared fields of a run, by dotted name, and whether each is part of a recipe."""
    for name, declared in declarations(type(section)).items():
        if declared is None:
            yield from leaves(getattr(section, name), f"{path}{name}.")
        else:
            yield f"{path}{name}", not isinstance(declared, NoNumber)


def value_at(section: Any, path: str) -> Any:
    for name in path.split("."):
        section = getattr(section, name)
    return section


def changed(section: Any, path: str, value: Any) -> Any:
    name, _, inner = path.partition(".")
    return replace(
        section, **{name: changed(getattr(section, name), inner, value) if inner else value}
    )


def hint_at(kind: Any, path: str) -> Any:
    for name in path.split("."):
        kind = get_type_hints(kind)[name]
    return kind


def another(hint: Any, value: Any) -> Any:
    """Another value of the type."""
    either = get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)
    first = next(choice for choice in either if choice is not type(None))
    if get_origin(first) is Literal:
        return [choice for choice in get_args(first) if choice != value][-1]
    kind = get_origin(first) or first
    if kind is bool:
        return not value
    if kind in (int, float):
        return kind(1) if value is None else value * 2 + 1
    if kind is str:
        return f"{value}x"
    if is_dataclass(kind):
        field_name = fields(kind)[-1].name
        return replace(
            value,
            **{field_name: another(type(getattr(value, field_name)), getattr(value, field_name))},
        )
    return {"x": 1} if kind is dict else (*(value or ()), "x")


@pytest.fixture(scope="module")
def _anywhere() -> Iterator[None]:
    """Missing models, and a spaCy pipeline that is not installed."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            models, "resolve", lambda model: Weights(model, f"commit of {model.revision}")
        )
        patch.setattr(normalise.Normaliser, "versions", {})
        yield


def folders(plan: Plan) -> set[str]:
    """The names of all artifacts of a plan."""
    return {a.folder for branch in plan.branches for a in branch.artifacts()}


@pytest.fixture(scope="module")
def fingerprints(_anywhere: None) -> Fingerprints:
    """Names every artifact of a run."""
    return lambda run: folders(build_plan(run))


@pytest.fixture(scope="module")
def before(fingerprints: Fingerprints) -> Before:
    """A run of each ability, and the artifacts that it is made of."""
    runs = {ability: load([*overrides, *COMMON]) for ability, overrides in RUNS.items()}
    return {ability: (run, fingerprints(run)) for ability, run in runs.items()}


def with_another(run: Run, path: str) -> Run:
    """The run with another value of one field."""
    if path in VALUES:
        return changed(run, path, VALUES[path](run))
    return changed(run, path, another(hint_at(Run, path), value_at(run, path)))


LEAVES = list(leaves(load([])))
PARTS = [
    (ability, path)
    for ability in RUNS
    for path, part in LEAVES
    if part and path != "settings" and path not in SILENT[ability]
]
# A file of answers takes the engine's place, and the plan is another.
OTHERS = [path for path, part in LEAVES if not part and path not in (*FILES, "answers")]


# The first artifact of a branch that depends on a field; all that is made of it does, too.
ROLES = ("facts", "prompts", "admitted", "answers", "matched", "metrics")
FIRST = {
    **dict.fromkeys(("model.name", "benchmark.name", "metrics"), "metrics"),
    **{name: "facts" for name, _ in LEAVES if name.startswith("benchmark.")},
    "seed": "prompts",
    **dict.fromkeys(("model.id", "model.revision", "model.max_model_len"), "admitted"),
    **dict.fromkeys(("model.chat_template", "model.trust_remote_code"), "admitted"),
    "decoding.max_tokens": "admitted",
    **dict.fromkeys(("model.source", "model.gguf_file", "model.dtype", "model.engine"), "answers"),
    **dict.fromkeys(("model.tensor_parallel", "model.pipeline_parallel"), "answers"),
    **dict.fromkeys(("decoding.engine", "decoding.repetition", "decoding.repeats"), "answers"),
    **dict.fromkeys(("decoding.stop", "decoding.determinism"), "answers"),
    "decoding.samples.n_prompts": "matched",
    "matching.pipeline": "matched",
}
FIRST["benchmark.name"] = "metrics"


@pytest.mark.parametrize("ability", RUNS)
def test_fingerprints_part_of_a_recipe_changed_are_others_from_its_first_stage_on(
    ability: str, before: Before, subtests: pytest.Subtests
) -> None:
    run, _ = before[ability]
    plan = build_plan(run)
    for path in (path for part_ability, path in PARTS if part_ability == ability):
        with subtests.test(path):
            other = build_plan(with_another(run, path))
            assert folders(other) != folders(plan)
            if path in FIRST:
                new_names, old_names = (
                    {role: getattr(branch_plan.branches[0], role).folder for role in ROLES}
                    for branch_plan in (other, plan)
                )
                changed_roles = {role for role in ROLES if new_names[role] != old_names[role]}
                assert changed_roles >= set(ROLES[ROLES.index(FIRST[path]) :])


def test_fingerprints_a_question_about_answers_is_further_answers_and_its_words_are_others(
    before: Before, fingerprints: Fingerprints
) -> None:
    run, names_before = before["generate"]
    asked = changed(run, "decoding.confidence.ask", ("p_true", "verbalised"))
    names = fingerprints(asked)
    outputs = {name for name in names_before if not name.startswith(("matched/", "metrics/"))}
    assert outputs < names
    for path in CONFIDENCE - {"decoding.confidence.ask"}:
        assert len(fingerprints(with_another(asked, path)) & names) < len(names)
        assert outputs < fingerprints(with_another(asked, path))


@pytest.mark.parametrize("ability", RUNS)
def test_fingerprints_anything_else_changed_are_the_same(
    ability: str, before: Before, fingerprints: Fingerprints, subtests: pytest.Subtests
) -> None:
    """All fields at once; only where that gives others, each by itself, to name the guilty."""
    run, names_before = before[ability]
    everything = run
    for path in OTHERS:
        everything = with_another(everything, path)
        assert with_another(run, path) != run, path
    if fingerprints(everything) != names_before:
        for path in OTHERS:
            with subtests.test(path):
                assert fingerprints(with_another(run, path)) == names_before
        pytest.fail("all of them together give other artifacts")


# A digest of the recipes of prompts and answers, and one of those of the tables made of them. A new
# one of the first kind asks again what was paid for; one of the second computes tables anew.
RECIPES = {
    "generate": ("8809fb9e", "56f742a5"),
    "score": ("6c57b354", "5e1d3f9e"),
    "fill": ("fea9aabd", "ae0ec31c"),
    "prefer": ("cd9662a1", "89ec5986"),
}
OF_LIBRARIES = ("software", "versions")


def lasting(value: Any) -> Any:
    """A part of a recipe without the versions of libraries."""
    if isinstance(value, Mapping):
        return {name: lasting(part) for name, part in value.items() if name not in OF_LIBRARIES}
    return [lasting(part) for part in value] if isinstance(value, list | tuple) else value


@pytest.mark.parametrize("ability", RUNS)
def test_recipes_are_those_of_what_was_paid_for(ability: str, before: Before) -> None:
    run, _ = before[ability]
    recipes = [
        (recipe.stage, recipe.version, sorted(recipe.inputs), lasting(recipe.fields))
        for branch in build_plan(run).branches
        for recipe in (artifact.recipe for artifact in branch.artifacts())
    ]
    tables = [recipe for recipe in recipes if recipe[0] in ("matched", "metrics")]
    answers = [recipe for recipe in recipes if recipe not in tables]
    digests = (
        sha256(json.dumps(part, sort_keys=True, default=str).encode()) for part in (answers, tables)
    )
    assert tuple(digest.hexdigest()[:8] for digest in digests) == RECIPES[ability]


def test_fingerprints_same_files_elsewhere_are_the_same(
    before: Before, fingerprints: Fingerprints, tmp_path: Path
) -> None:
    run, names_before = before["generate"]
    (file,) = catalog.list_files(catalog.entry(run.benchmark.data))
    shutil.copy(file, tmp_path)
    assert fingerprints(changed(run, "benchmark.path", str(tmp_path))) == names_before


@pytest.mark.parametrize(
    ("variable", "engine", "is_same"),
    [
        ("VLLM_CPU_INT4_W4A8", "vllm", False),
        ("VLLM_NOBODY_KNOWS", "vllm", False),
        ("VLLM_LOGGING_LEVEL", "vllm", True),
        ("VLLM_CPU_INT4_W4A8", "fake", True),
        ("NVIDIA_TF32_OVERRIDE", "vllm", False),
        ("NVIDIA_TF32_OVERRIDE", "fake", True),
        ("FACTSWEEP_FAKE_ENGINE", "fake", True),
    ],
)
def test_fingerprints_switch_of_the_engine_in_the_environment_gives_others(
    variable: str,
    engine: str,
    is_same: bool,
    before: Before,
    fingerprints: Fingerprints,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    run = changed(before["generate"][0], "decoding.engine", engine)
    names_before = fingerprints(run)
    monkeypatch.setenv(variable, "{}")
    assert (fingerprints(run) == names_before) == is_same


@pytest.mark.parametrize("ability", RUNS)
def test_fingerprints_less_precision_by_the_environment_gives_others(
    ability: str, before: Before, fingerprints: Fingerprints, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, names_before = before[ability]
    monkeypatch.setenv("ONEDNN_DEFAULT_FPMATH_MODE", "BF16")
    assert fingerprints(run) != names_before


SETTINGS = {
    "generate": Setting("template", 4, as_="turns"),
    "score": Plausibility(PROMPT_TYPES),
    "fill": MaskedSetting(),
    "kamel": FewShot(5, as_="turns"),
    "prefer": Distractors("random"),
    "qa": OpenQuestion("random", 4, as_="turns"),
    "judge": JudgePrompt("random", 4, as_="turns", instruct="I", reminder="R", with_reminder=True),
    "bear": AnswerSpace(),
}


@pytest.mark.parametrize("ability", SETTINGS)
def test_fingerprints_any_field_of_a_setting_changed_are_others(
    ability: str, before: Before, fingerprints: Fingerprints, subtests: pytest.Subtests
) -> None:
    run, _ = before[ability if ability in before else "generate"]
    setting = SETTINGS[ability]
    names_before = fingerprints(replace(run, settings=(setting,)))
    # Open questions have one style, and their templates are questions.
    fixed = {"style", "templates"} if ability in ("qa", "judge") else set()
    for path in {field.name for field in fields(setting)} - fixed:
        with subtests.test(path):
            value = another(hint_at(type(setting), path), getattr(setting, path))
            other = changed(setting, path, value)
            assert other != setting
            assert fingerprints(replace(run, settings=(other,))) != names_before


def test_settings_are_those_of_all_methods() -> None:
    assert {type(setting) for setting in SETTINGS.values()} == {
        m.ask.setting for m in METHODS.values()
    }
