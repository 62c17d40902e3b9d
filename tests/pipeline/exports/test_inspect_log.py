"""Inspect's logs: a sample per fact, with all of its prompts and answers."""

import json
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import polars as pl
import pytest

from factsweep.pipeline.config.run import Run
from factsweep.pipeline.exports.export import export
from factsweep.pipeline.results.results import load


def read_log(run: Run, folder: Path) -> dict[str, Any]:
    """Each JSON file of the only log, by its name."""
    with ZipFile(export(run.name, run.results, "inspect", str(folder))) as archive:
        return {name: json.loads(archive.read(name)) for name in archive.namelist()}


def test_inspect_log_has_each_fact_with_its_prompts_answers_and_score(
    run: Run, tmp_path: Path
) -> None:
    content, answers = read_log(run, tmp_path), load(run.folder).answers().drop_nulls("answer")
    samples = {
        sample["id"]: sample for name, sample in content.items() if name.startswith("samples/")
    }
    assert set(samples) == set(answers["pair_id"])
    assert [summary["id"] for summary in content["summaries.json"]] == list(samples)
    assert content["header.json"]["eval"]["dataset"]["sample_ids"] == list(samples)
    assert len({sample["uuid"] for sample in samples.values()}) == len(samples)
    for (pair_id,), rows in answers.group_by("pair_id", maintain_order=True):
        sample = samples[str(pair_id)]
        turns = [(turn["role"], turn["content"]) for turn in sample["messages"]]
        expected = zip(rows["prompt"], rows["answer"], strict=True)
        assert turns == [
            turn
            for prompt, answer in expected
            for turn in (("user", prompt), ("assistant", answer))
        ]
        if "correct" in rows.columns:
            (score,) = sample["scores"].values()
            assert score["value"] == pytest.approx(rows["correct"].mean())


def test_inspect_log_has_the_numbers_and_the_run(run: Run, tmp_path: Path) -> None:
    header, metrics = read_log(run, tmp_path)["header.json"], load(run.folder).metrics
    (score,) = header["results"]["scores"]
    rows = metrics.drop_nulls("value")
    overall = rows.filter(pl.col("slice").is_null())
    assert len(score["metrics"]) == overall.height
    for row in overall.iter_rows(named=True):
        name = ",".join(filter(None, (row["metric"], row["variant"])))
        metric = score["metrics"][name]
        assert metric["value"] == row["value"]
        names = ("ci_low", "ci_high", "n", "n_failed")
        assert [metric["metadata"][field] for field in names] == [row[field] for field in names]
    assert len(header["results"]["metadata"]["slices"]) == rows.height - overall.height
    config = header["eval"]["model_generate_config"]
    assert config["max_tokens"] == run.decoding.max_tokens
    assert config["stop_seqs"] == list(run.decoding.stop)
    assert header["eval"]["metadata"]["engine"] == "fake"
    assert header["eval"]["viewer"] == {"trust_content": False}


def test_inspect_log_is_read_by_inspect(run: Run, tmp_path: Path) -> None:
    """With inspect_ai 0.3.285, where it is installed (docs/exports.md)."""
    log = pytest.importorskip("inspect_ai.log", reason="inspect_ai is not installed")
    path = export(run.name, run.results, "inspect", str(tmp_path))
    read = log.read_eval_log(path)
    assert read.status == "success"
    facts = load(run.folder).answers().drop_nulls("answer")["pair_id"].unique()
    assert sorted(sample.id for sample in read.samples) == facts.sort().to_list()
    assert len(list(log.read_eval_log_samples(path))) == len(facts)
