"""facts: which part of which files, and what is published of it."""

import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from polars.testing import assert_frame_equal

from factsweep.operators.datasets.readers import READERS
from factsweep.operators.errors import InputError
from factsweep.operators.prompts.clozes import Distractors
from factsweep.pipeline.config.run import Benchmark, Run, Sweep
from factsweep.pipeline.config.settings import load
from factsweep.pipeline.inputs import catalog
from factsweep.pipeline.runs.prompts import iterate_prompts as prompts_of
from factsweep.pipeline.runs.run import measure_run, score
from factsweep.pipeline.stages import facts
from factsweep.pipeline.stages.expand import Expand
from factsweep.pipeline.stages.facts import ReadFacts, ReadKnowledgeBase
from factsweep.pipeline.stages.plan import Plan, build_plan, warnings
from factsweep.pipeline.stages.step import Stage
from factsweep.pipeline.storage.artifact import Artifact
from factsweep.pipeline.storage.store import Store
from tests.messages import naming
from tests.pipeline.here import make_here

Settings = Callable[..., Run]


def reading(benchmark: Benchmark) -> ReadFacts:
    return ReadFacts(benchmark, catalog.entry(benchmark.data))


def test_make_published_facts_are_the_data_sets(done: Plan) -> None:
    published = facts.load(done.branches[0].facts)
    benchmark = done.run.benchmark
    read = catalog.read_facts(catalog.entry(benchmark.data), benchmark.path)
    assert_frame_equal(published.pairs, read.pairs)
    assert_frame_equal(published.templates, read.templates)
    counts = done.branches[0].facts.manifest().counts
    assert (counts["pairs"], counts["templates"], counts["prompts"]) == (13, 8, 72)


def test_make_rows_that_contradict_each_other_are_said_by_every_run(
    small_settings: Settings,
    small_rows: pl.DataFrame,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    last = pl.int_range(pl.len()) == small_rows.height - 1
    rows = small_rows.with_columns(sub_ent=pl.when(last).then(pl.lit("Rome")).otherwise("sub_ent"))
    rows.write_parquet(tmp_path / "rows.parquet")
    overrides = ("decoding.samples.n_prompts=0", "decoding.canary_prompts=0", "metrics.n_rounds=2")
    run = small_settings(f"benchmark.path={tmp_path}/rows.parquet", "prompt=zero-shot", *overrides)
    for _ in range(2):  # the second finds everything complete
        caplog.clear()
        measure_run(run, make_here)
        assert re.search(naming("myriadlama-mini", "1 contradicting pair"), caplog.text)


def test_make_slice_takes_the_first_of_each(small_settings: Settings) -> None:
    overrides = ("relations=[P36]", "pairs_per_relation=3", "names_per_subject=1")
    run = small_settings(*(f"benchmark.{override}" for override in overrides))
    artifact = build_plan(run).branches[0].facts
    reading(run.benchmark).make(artifact)
    pairs = facts.load(artifact).pairs
    assert pairs["subjects"].to_list() == [["France"], ["Georgia"], ["Georgia"]]


def test_make_given_its_entry_looks_for_none(
    small_settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = small_settings()
    artifact, entry = build_plan(run).branches[0].facts, catalog.entry(run.benchmark.data)
    monkeypatch.setattr(catalog, "entry", None)  # a worker elsewhere has not the user's folder
    ReadFacts(run.benchmark, entry).make(artifact)
    assert artifact.is_complete()


def test_make_unknown_relation_names_those_there_are(small_settings: Settings) -> None:
    run = small_settings("benchmark.relations=[P36,P1]")
    with pytest.raises(InputError, match=naming("benchmark.relations", "P1", "P30", "P36")):
        reading(run.benchmark).make(build_plan(run).branches[0].facts)


def test_labels_that_no_answer_can_match_are_named_before_anything_is_asked(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    table, answers = tmp_path / "bands.csv", tmp_path / "answers.jsonl"
    head = "relation,template,subject,object,object_aliases\n"
    rows = {
        "alone": "band,[X] is in [Y].,Bono,U2,\nband,[X] is in [Y].,Nic Offer,!!!,\n",
        "alias": 'band,[X] is in [Y].,Nic Offer,!!!,"[""Chk Chk Chk""]"\n',
        "hidden": "band,[X] is in [Y].,Bono,U\u200b2,\n",
    }
    changed = [f"benchmark={table}", f"artifacts={tmp_path}/a", f"results={tmp_path}/r"]
    sentences = {}
    for name, text in rows.items():
        table.write_text(head + text, encoding="utf-8")
        plan = build_plan(load(changed))
        try:
            sentences[name] = [line for line in warnings(plan) if "bands: " in line]
        except InputError as error:
            sentences[name] = [str(error)]
    assert len(sentences["alone"]) == len(sentences["alias"]) == len(sentences["hidden"]) == 1
    assert re.search(
        naming("1 of the right", "Nic Offer", "!!!", "object_aliases"), *sentences["alone"]
    )
    assert re.search(naming("!!!", "0 facts"), *sentences["alias"])
    assert re.search(naming("1 text", r"U\u200b2", "benchmark.unseen=remove"), *sentences["hidden"])
    answers.write_text('{"prompt_id": "band.Bono.000.0", "text": "U2</s>"}\n')
    scored = load([*changed, f"answers={answers}", "prompt=zero-shot", "model.name=x"])
    metrics = score(scored)
    assert metrics.filter(pl.col("slice").is_null(), metric="acc_at_1")["value"].to_list() == [1.0]
    assert "benchmark.unseen=remove" in caplog.text
    assert re.search(naming("1 of 1 answer", "special tokens", "U2</s>"), caplog.text)


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
    monkeypatch.setattr(facts, "ROWS_PER_SHARD", 500)
    artifact = made(ReadKnowledgeBase(benchmark, ENTRY), tmp_path / "store")
    assert artifact.shards("triples") == ["0000", "0001", "0002", "0003"]
    base = facts.load_knowledge_base(artifact)
    assert base.entities.equals(facts.read_knowledge_base(benchmark, ENTRY).entities)
    assert artifact.manifest().counts["triples"] == base.triples.height == 1686


def test_recipe_of_a_folder_follows_its_content_alone(benchmark: Benchmark, folder: Path) -> None:
    changed = replace(benchmark, knowledge_base=str(folder))
    full_set = replace(changed, relations=None, pairs_per_relation=None, name="other")
    assert ReadKnowledgeBase(full_set, ENTRY).recipe == ReadKnowledgeBase(changed, ENTRY).recipe
    fingerprint_before = ReadKnowledgeBase(changed, ENTRY).recipe.fingerprint
    assert fingerprint_before != ReadKnowledgeBase(benchmark, ENTRY).recipe.fingerprint
    rows = pl.read_parquet(folder / "entities.parquet")
    rows.head(2).write_parquet(folder / "entities.parquet")
    assert ReadKnowledgeBase(changed, ENTRY).recipe.fingerprint != fingerprint_before


@pytest.mark.parametrize(
    "change",
    [
        {"relations": {"P36": "seat"}},
        {"columns": {"sub_ent": {"from": "subject"}}},
        {"reader": "probing"},
    ],
)
def test_recipe_of_a_set_follows_its_entry(benchmark: Benchmark, change: dict[str, Any]) -> None:
    fingerprint_before = ReadKnowledgeBase(benchmark, ENTRY).recipe.fingerprint
    assert (
        ReadKnowledgeBase(benchmark, replace(ENTRY, **change)).recipe.fingerprint
        != fingerprint_before
    )


def test_recipe_of_a_set_follows_its_files_and_its_reader(
    benchmark: Benchmark, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(catalog.list_files(ENTRY)[0].parent, tmp_path / "set")
    changed = replace(benchmark, path=str(tmp_path / "set"))
    fingerprints = [ReadKnowledgeBase(changed, ENTRY).recipe.fingerprint]
    path = catalog.list_files(ENTRY, changed.path)[0]
    path.write_bytes(path.read_bytes() + b" ")
    fingerprints.append(ReadKnowledgeBase(changed, ENTRY).recipe.fingerprint)
    reader = READERS[ENTRY.reader]
    monkeypatch.setitem(READERS, ENTRY.reader, replace(reader, version=reader.version + 1))
    fingerprints.append(ReadKnowledgeBase(changed, ENTRY).recipe.fingerprint)
    assert len(set(fingerprints)) == len(fingerprints)


@pytest.mark.parametrize("reader", [ReadFacts, ReadKnowledgeBase])
def test_make_of_files_that_changed_since_the_plan_is_refused(
    benchmark: Benchmark, tmp_path: Path, reader: type[ReadFacts | ReadKnowledgeBase]
) -> None:
    shutil.copytree(catalog.list_files(ENTRY)[0].parent, tmp_path / "set")
    stage = reader(replace(benchmark, path=str(tmp_path / "set")), ENTRY)
    artifact = Artifact(Store(str(tmp_path / "store")), stage.recipe)
    path = catalog.list_files(ENTRY, stage.benchmark.path)[0]
    rows = pl.read_parquet(path)
    rows.head(rows.height - 1).write_parquet(path)
    with pytest.raises(InputError, match=naming("changed", "run again")):
        stage.make(artifact)
    assert not Path(artifact.store.where(artifact.folder)).exists()


def test_expand_draws_from_the_folder_that_the_benchmark_names(
    benchmark: Benchmark, folder: Path, tmp_path: Path
) -> None:
    changed, store = replace(benchmark, knowledge_base=str(folder)), tmp_path / "store"
    read = made(ReadFacts(changed, ENTRY), store)
    assert set(read.manifest().tables) == {*facts.TABLES, "details"}
    base = made(ReadKnowledgeBase(changed, ENTRY), store)
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
    changed = replace(benchmark, knowledge_base=str(folder))
    with pytest.raises(InputError, match=naming(name, "`factsweep", "knowledge-base`")):
        _ = ReadKnowledgeBase(changed, ENTRY).recipe


def test_read_unfit_folder_names_folder_and_row(benchmark: Benchmark, folder: Path) -> None:
    rows = pl.read_parquet(folder / "entities.parquet")
    pl.concat([rows, rows]).write_parquet(folder / "entities.parquet")
    changed = replace(benchmark, knowledge_base=str(folder))
    with pytest.raises(InputError, match=naming("knowledge_base=", "table entities", "row 3")):
        facts.read_knowledge_base(changed, ENTRY)


RIGHT = {
    "1879-03-14": ("March 14, 1879", True),
    "7 November 1867": ("1867-11-08", False),
    "May 4, 1900": ("04/05/1900", True),
    "1912-06-23": ("in 1912", False),
    "1777-04-30": ("30 April 1777 in Brunswick", True),
    "Pretoria; Cape Town": ("Cape Town", False),
    "8,849 m": ("29,032 feet", True),
}
RELATIONS = dict.fromkeys(RIGHT, "born") | {"Pretoria; Cape Town": "capital", "8,849 m": "height"}


@pytest.fixture
def table_run(small: list[str], tmp_path: Path) -> Settings:
    """Settings of a table of seven facts."""
    rows = [(RELATIONS[text], "[X]: [Y].", f"S{n}", text) for n, text in enumerate(RIGHT)]
    columns = ["relation", "template", "subject", "object"]
    path = tmp_path / "facts.csv"
    pl.DataFrame(rows, columns, orient="row").write_csv(path)
    model = [override for override in small if override.startswith(("model.", "model="))]

    def table_run(*overrides: str) -> Run:
        places = (f"artifacts={tmp_path}/artifacts", f"results={tmp_path}/results")
        return load([f"benchmark={path}", *model, "decoding.engine=fake", *places, *overrides])

    return table_run


def fingerprint(run: Run) -> str:
    return build_plan(run).branches[0].prompts.fingerprint


def test_score_compares_values_and_splits_cells(table_run: Settings, tmp_path: Path) -> None:
    prompts = pl.concat(prompts_of(table_run()))
    place = pl.col("prompt_id").str.extract(r"\.S(\d)\.").cast(pl.Int64)
    answers = prompts.select("prompt_id", place=place)
    texts = pl.DataFrame(
        [(n, text) for n, (text, _) in enumerate(RIGHT.values())], ["place", "text"], orient="row"
    )
    answers.join(texts, on="place").select("prompt_id", "text").write_ndjson(tmp_path / "a.jsonl")
    n_right = sum(is_right for _, is_right in RIGHT.values())
    for overrides, difference in (
        ((), 0),
        (("benchmark.separator=;",), 1),
        (("benchmark.types=names",), -4),
    ):
        metrics = score(table_run(f"answers={tmp_path}/a.jsonl", *overrides))
        accuracy = metrics.filter(pl.col("slice").is_null(), metric="acc_at_1")["value"].item()
        assert accuracy == pytest.approx((n_right + difference) / len(RIGHT))


def test_plan_names_types_cells_and_the_form_of_demonstrations(table_run: Settings) -> None:
    run = table_run("prompt=4-relation", "benchmark.relations=[born]")
    lines = "\n".join(warnings(build_plan(run)))
    assert "objects of born are compared as dates: 5 of 5" in lines
    assert "demonstrations write dates and numbers in one way: born as '1879-03-14'" in lines
    assert "row 5: object 'Pretoria; Cape Town'" in lines


def test_each_part_of_a_split_cell_is_checked_before_the_first_run(
    table_run: Settings, tmp_path: Path
) -> None:
    table = pl.read_csv(tmp_path / "facts.csv")
    cells = pl.col("object").replace("Pretoria; Cape Town", "Pretoria; ?")
    table.with_columns(cells).write_csv(tmp_path / "facts.csv")
    lines = "\n".join(warnings(build_plan(table_run("benchmark.separator=;"))))
    assert "no answer can match 1 of the right answers" in lines
    assert "no answer can match" not in "\n".join(warnings(build_plan(table_run())))


def test_room_is_made_for_the_longest_answer_and_a_smaller_limit_is_named(
    table_run: Settings,
) -> None:
    assert build_plan(table_run()).run.decoding.max_tokens > 10
    assert build_plan(table_run("benchmark.relations=[capital]")).run.decoding.max_tokens == 10
    plan = build_plan(table_run("benchmark.max_tokens=3"))
    assert plan.run.decoding.max_tokens == 3
    assert any("decoding.max_tokens=3 cuts it" in line for line in warnings(plan))


def test_prompts_change_only_where_demonstrations_do(table_run: Settings) -> None:
    names, typed = table_run("benchmark.types=names"), table_run()
    assert fingerprint(names) == fingerprint(typed)
    shots = [
        table_run("prompt=4-relation", "benchmark.relations=[born]", f"benchmark.types={types}")
        for types in ("names", "recognised")
    ]
    assert len({*map(fingerprint, shots)}) == 2
    assert fingerprint(table_run("benchmark.separator=;")) != fingerprint(typed)
    assert replace(typed, name="x").benchmark == typed.benchmark
