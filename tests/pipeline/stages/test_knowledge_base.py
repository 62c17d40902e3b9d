"""knowledge-base: an artifact of its own, of a data set or of a folder."""

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from factsweep.operators.datasets.readers import READERS
from factsweep.operators.errors import InputError
from factsweep.operators.prompts.clozes import Distractors
from factsweep.pipeline.config.benchmark import Benchmark, Sweep
from factsweep.pipeline.inputs import catalog
from factsweep.pipeline.stages import facts, knowledge_base
from factsweep.pipeline.stages.expand import Expand
from factsweep.pipeline.stages.facts import ReadFacts
from factsweep.pipeline.stages.knowledge_base import ReadKnowledgeBase
from factsweep.pipeline.stages.stage import Stage
from factsweep.pipeline.storage.artifact import Artifact
from factsweep.pipeline.storage.store import Store
from tests.messages import naming

ENTRY = catalog.entry("distractors-mini")
NONE = Sweep(prompts=None, over_8b=None, encoders=None)


@pytest.fixture
def benchmark() -> Benchmark:
    """Two relations of distractors-mini."""
    return Benchmark(
        name="distractors-mini",
        method="distractors",
        data="distractors-mini",
        path=None,
        relations=("P17", "P36"),
        pairs_per_relation=4,
        names_per_subject=1,
        max_tokens=1,
        stop=(),
        sampled_prompts=0,
        canary_prompts=0,
        paper=NONE,
    )


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A knowledge base of three cities, one of which was a capital."""
    cities = {"Q90": "Paris", "Q64": "Berlin", "Q586": "Bonn"}
    rows = [{"entity_id": q, "labels": [label], "types": ["Q515"]} for q, label in cities.items()]
    pl.DataFrame(rows).write_parquet(tmp_path / "entities.parquet")
    triple = {"subject_id": "Q183", "relation_id": "P36", "object_id": "Q586", "end": "1990"}
    pl.DataFrame([triple]).write_parquet(tmp_path / "triples.parquet")
    return tmp_path


def made(stage: Stage, store: Path) -> Artifact:
    artifact = Artifact(Store(str(store)), stage.recipe)
    stage.make(artifact)
    return artifact


def test_make_of_a_set_publishes_its_base_in_shards(
    benchmark: Benchmark, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(knowledge_base, "ROWS_PER_SHARD", 500)
    artifact = made(ReadKnowledgeBase(benchmark, ENTRY), tmp_path / "store")
    assert artifact.shards("triples") == ["0000", "0001", "0002", "0003"]
    base = knowledge_base.load(artifact)
    assert base.entities.equals(knowledge_base.read(benchmark, ENTRY).entities)
    assert artifact.manifest().counts["triples"] == base.triples.height == 1686


def test_recipe_is_the_same_whatever_part_of_the_facts_is_asked(benchmark: Benchmark) -> None:
    other = replace(benchmark, relations=None, pairs_per_relation=None, name="other")
    one, two = (ReadKnowledgeBase(each, ENTRY).recipe.fingerprint for each in (benchmark, other))
    assert one == two


def test_recipe_of_a_folder_follows_its_content(benchmark: Benchmark, folder: Path) -> None:
    given = replace(benchmark, knowledge_base=str(folder))
    before = ReadKnowledgeBase(given, ENTRY).recipe.fingerprint
    assert before != ReadKnowledgeBase(benchmark, ENTRY).recipe.fingerprint
    rows = pl.read_parquet(folder / "entities.parquet")
    rows.head(2).write_parquet(folder / "entities.parquet")
    assert ReadKnowledgeBase(given, ENTRY).recipe.fingerprint != before


@pytest.mark.parametrize(
    "change",
    [
        {"relations": {"P36": "seat"}},
        {"columns": {"sub_ent": {"from": "subject"}}},
        {"reader": "probing"},
    ],
)
def test_recipe_of_a_set_follows_its_entry(benchmark: Benchmark, change: dict[str, Any]) -> None:
    before = ReadKnowledgeBase(benchmark, ENTRY).recipe.fingerprint
    assert ReadKnowledgeBase(benchmark, replace(ENTRY, **change)).recipe.fingerprint != before


def test_recipe_of_a_set_follows_its_files_and_its_reader(
    benchmark: Benchmark, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(catalog.files(ENTRY)[0].parent, tmp_path / "set")
    given = replace(benchmark, path=str(tmp_path / "set"))
    found = [ReadKnowledgeBase(given, ENTRY).recipe.fingerprint]
    path = catalog.files(ENTRY, given.path)[0]
    path.write_bytes(path.read_bytes() + b" ")
    found.append(ReadKnowledgeBase(given, ENTRY).recipe.fingerprint)
    reader = READERS[ENTRY.reader]
    monkeypatch.setitem(READERS, ENTRY.reader, replace(reader, version=reader.version + 1))
    found.append(ReadKnowledgeBase(given, ENTRY).recipe.fingerprint)
    assert len(set(found)) == len(found)


def test_make_of_files_that_changed_since_the_plan_is_refused(
    benchmark: Benchmark, folder: Path, tmp_path: Path
) -> None:
    stage = ReadKnowledgeBase(replace(benchmark, knowledge_base=str(folder)), ENTRY)
    artifact = Artifact(Store(str(tmp_path / "store")), stage.recipe)
    pl.read_parquet(folder / "entities.parquet").head(2).write_parquet(folder / "entities.parquet")
    with pytest.raises(InputError, match=naming("run again")):
        stage.make(artifact)
    assert artifact.published("entities") == []


def test_expand_draws_from_the_folder_that_the_benchmark_names(
    benchmark: Benchmark, folder: Path, tmp_path: Path
) -> None:
    given, store = replace(benchmark, knowledge_base=str(folder)), tmp_path / "store"
    read = made(ReadFacts(given, ENTRY), store)
    assert set(read.manifest().tables) == {*facts.TABLES, "details"}
    base = made(ReadKnowledgeBase(given, ENTRY), store)
    stage = Expand(read, "distractors", Distractors("temporal"), 0, 100, base)
    assert stage.recipe.inputs["knowledge_base"] == base.fingerprint
    prompts = made(stage, store)
    sets = prompts.read("candidate_sets", "P36.0000").filter(candidates_id="P36.Q183")
    assert sets["entity_id"].to_list() == ["Q64", "Q586", "Q90"]


@pytest.mark.parametrize("name", ["entities.parquet", "triples.parquet"])
def test_recipe_of_a_folder_without_a_table_names_it(
    benchmark: Benchmark, folder: Path, name: str
) -> None:
    (folder / name).unlink()
    given = replace(benchmark, knowledge_base=str(folder))
    with pytest.raises(InputError, match=naming(name, "`factsweep", "knowledge-base`")):
        _ = ReadKnowledgeBase(given, ENTRY).recipe


def test_read_unfit_folder_names_folder_and_row(benchmark: Benchmark, folder: Path) -> None:
    rows = pl.read_parquet(folder / "entities.parquet")
    pl.concat([rows, rows]).write_parquet(folder / "entities.parquet")
    given = replace(benchmark, knowledge_base=str(folder))
    with pytest.raises(InputError, match=naming("knowledge_base=", "table entities", "row 3")):
        knowledge_base.read(given, ENTRY)
