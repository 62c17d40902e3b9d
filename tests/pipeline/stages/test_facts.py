"""facts: which part of which files, and what is published of it."""

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest
from polars.testing import assert_frame_equal

from factsweep.operators.errors import InputError
from factsweep.pipeline.config.benchmark import Benchmark
from factsweep.pipeline.config.run import Run
from factsweep.pipeline.config.settings import load
from factsweep.pipeline.inputs import catalog
from factsweep.pipeline.results import report
from factsweep.pipeline.runs.run import measured, score
from factsweep.pipeline.stages import facts
from factsweep.pipeline.stages.facts import ReadFacts
from factsweep.pipeline.stages.plan import Plan, planned, warnings
from tests.messages import naming
from tests.pipeline.here import make_here

Settings = Callable[..., Run]


def reading(benchmark: Benchmark) -> ReadFacts:
    return ReadFacts(benchmark, catalog.entry(benchmark.data))


def test_make_published_facts_are_the_data_sets(done: Plan) -> None:
    published = facts.load(done.branches[0].facts)
    benchmark = done.run.benchmark
    read = catalog.read(catalog.entry(benchmark.data), benchmark.path)
    assert_frame_equal(published.pairs, read.pairs)
    assert_frame_equal(published.templates, read.templates)


def test_make_counts_stand_in_the_manifest(done: Plan) -> None:
    counts = done.branches[0].facts.manifest().counts
    assert (counts["pairs"], counts["templates"], counts["prompts"]) == (13, 8, 72)


def test_make_rows_that_contradict_each_other_are_said_by_every_run(
    small_settings: Settings,
    small_rows: pl.DataFrame,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(report, "write", lambda *_, **__: None)
    last = pl.int_range(pl.len()) == small_rows.height - 1
    rows = small_rows.with_columns(sub_ent=pl.when(last).then(pl.lit("Rome")).otherwise("sub_ent"))
    rows.write_parquet(tmp_path / "rows.parquet")
    few = ("decoding.samples.n_prompts=0", "decoding.canary_prompts=0", "metrics.n_rounds=2")
    run = small_settings(f"benchmark.path={tmp_path}/rows.parquet", "prompt=zero-shot", *few)
    for _ in range(2):  # the second finds everything complete
        caplog.clear()
        measured(run, make_here)
        assert re.search(naming("myriadlama-mini", "1 contradicting pair"), caplog.text)


def test_make_file_that_changed_since_the_plan_is_refused(
    small_settings: Settings, small_rows: pl.DataFrame, tmp_path: Path
) -> None:
    small_rows.write_parquet(tmp_path / "rows.parquet")
    run = small_settings(f"benchmark.path={tmp_path}/rows.parquet")
    artifact = planned(run).branches[0].facts
    small_rows[:-1].write_parquet(tmp_path / "rows.parquet")
    with pytest.raises(InputError, match=naming("rows.parquet", "run again")):
        reading(run.benchmark).make(artifact)
    assert not Path(artifact.store.where(artifact.folder)).exists()


def test_make_slice_takes_the_first_of_each(small_settings: Settings) -> None:
    overrides = ("relations=[P36]", "pairs_per_relation=3", "names_per_subject=1")
    run = small_settings(*(f"benchmark.{override}" for override in overrides))
    artifact = planned(run).branches[0].facts
    reading(run.benchmark).make(artifact)
    pairs = facts.load(artifact).pairs
    assert pairs["subjects"].to_list() == [["France"], ["Georgia"], ["Georgia"]]


def test_make_given_its_entry_looks_for_none(
    small_settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = small_settings()
    artifact, entry = planned(run).branches[0].facts, catalog.entry(run.benchmark.data)
    monkeypatch.setattr(catalog, "entry", None)  # a worker elsewhere has not the user's folder
    ReadFacts(run.benchmark, entry).make(artifact)
    assert artifact.is_complete()


def test_make_unknown_relation_names_those_there_are(small_settings: Settings) -> None:
    run = small_settings("benchmark.relations=[P36,P1]")
    with pytest.raises(InputError, match=naming("benchmark.relations", "P1", "P30", "P36")):
        reading(run.benchmark).make(planned(run).branches[0].facts)


def test_recipe_same_rows_at_another_path_is_the_same(
    small_settings: Settings, small_rows: pl.DataFrame, tmp_path: Path
) -> None:
    benchmark = small_settings().benchmark
    small_rows.write_parquet(tmp_path / "rows.parquet")
    moved = replace(benchmark, path=f"{tmp_path}/rows.parquet", name="other")
    assert reading(moved).recipe.fingerprint == reading(benchmark).recipe.fingerprint


def test_recipe_one_row_changed_is_another(
    small_settings: Settings, small_rows: pl.DataFrame, tmp_path: Path
) -> None:
    benchmark = small_settings().benchmark
    small_rows[1:].write_parquet(tmp_path / "copy.parquet")
    changed = replace(benchmark, path=f"{tmp_path}/copy.parquet")
    assert reading(changed).recipe.fingerprint != reading(benchmark).recipe.fingerprint


def test_recipe_changes_with_the_columns_that_the_entry_maps(
    small_settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    benchmark = small_settings().benchmark
    entry, plain = catalog.entry(benchmark.data), reading(benchmark).recipe
    mapped = replace(entry, columns={**entry.columns, "sub_ent": {"from": "rel_uri"}})
    monkeypatch.setattr(catalog, "entry", lambda *_: mapped)
    assert reading(benchmark).recipe != plain


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
    given = [f"benchmark={table}", f"artifacts={tmp_path}/a", f"results={tmp_path}/r"]
    sentences = {}
    for name, text in rows.items():
        table.write_text(head + text, encoding="utf-8")
        plan = planned(load(given))
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
    scored = load([*given, f"answers={answers}", "prompt=zero-shot", "model.name=x"])
    metrics = score(scored)
    assert metrics.filter(pl.col("slice").is_null(), metric="acc_at_1")["value"].to_list() == [1.0]
    assert "benchmark.unseen=remove" in caplog.text
    assert re.search(naming("1 of 1 answer", "special tokens", "U2</s>"), caplog.text)
