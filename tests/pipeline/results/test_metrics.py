"""The numbers of a past run: forged files, names and values are refused."""

import hashlib
import logging
import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import factsweep
from factsweep.operators.errors import DamagedFileError
from factsweep.pipeline.cli import main
from factsweep.pipeline.config.settings import load
from factsweep.pipeline.results import report
from factsweep.pipeline.results.record import METRICS, NAME
from factsweep.pipeline.runs.verify import verify
from factsweep.pipeline.stages.plan import Plan
from factsweep.pipeline.storage.shard import Place, encode
from tests.messages import naming
from tests.pipeline.here import rewrite


@pytest.fixture
def written(finished: Plan) -> Path:
    """The results of a finished run."""
    report.write(finished, {"total": 0})
    return Path(finished.run.results, finished.run.name)


def forge(folder: Path, change: pl.Expr) -> None:
    """Change the numbers, and let run.json speak of the changed file."""
    found = pl.read_parquet(folder / METRICS).with_columns(change)
    content = encode(found, Place("metrics", "", "metrics"))
    (folder / METRICS).write_bytes(content)
    digest = hashlib.sha256(content).hexdigest()
    rewrite(folder / NAME, lambda record: record["files"].update({METRICS: digest}))


def test_forged_numbers_are_refused_by_every_reader(
    written: Path, finished: Plan, capsys: pytest.CaptureFixture[str]
) -> None:
    forge(written, pl.col("value") * 0.9)
    with pytest.raises(DamagedFileError, match=naming(METRICS, "artifacts", "run again")):
        factsweep.load(written).metrics  # noqa: B018
    assert main(["export", finished.run.name, f"results={finished.run.results}"]) == 2
    assert METRICS in capsys.readouterr().err
    assert any(METRICS in each for each in verify(finished.run).problems)


def test_values_out_of_range_are_refused_where_the_artifacts_are_gone(written: Path) -> None:
    forge(written, pl.lit(1.0656).alias("value"))
    rewrite(written / NAME, lambda record: record["run"].update(artifacts="/nowhere"))
    with pytest.raises(DamagedFileError, match=naming("acc_at_1", "1.066", "0 to 1")):
        factsweep.load(written).metrics  # noqa: B018


def test_a_name_that_was_not_measured_is_refused(
    written: Path, finished: Plan, capsys: pytest.CaptureFixture[str]
) -> None:
    before = (written / NAME).read_bytes()
    for noun, change in {
        "model": {"model": {"name": "nonesuch"}},
        "benchmark": {"benchmark": {"name": "nonesuch"}},
        "seed": {"seed": 4711},
        "method": {"benchmark": {"method": "kamel"}},
    }.items():
        (written / NAME).write_bytes(before)
        rewrite(written / NAME, lambda record, change=change: put(record["run"], change))
        said = naming(NAME, noun, str(change).rpartition(": ")[2].strip("{}'"))
        with pytest.raises(DamagedFileError, match=said):
            factsweep.load(written).metrics  # noqa: B018
        assert main(["report", finished.run.name, f"results={finished.run.results}"]) == 2
        assert re.search(said, capsys.readouterr().err)
        assert any(re.search(said, each) for each in verify(finished.run).problems)


def put(record: dict[str, Any], change: dict[str, Any]) -> None:
    """Change some values of a record, at any depth."""
    for name, value in change.items():
        if isinstance(value, dict):
            put(record[name], value)
        else:
            record[name] = value


def test_results_of_another_run_are_named(
    written: Path, finished: Plan, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    shutil.copytree(written, tmp_path / "results" / "other")
    with caplog.at_level(logging.WARNING, "factsweep"):
        main(["report", "other", f"results={tmp_path}/results", f"--out={tmp_path}/out"])
    assert any("other" in each and finished.run.name in each for each in caplog.messages)


@pytest.mark.slow
def test_artifacts_are_found_from_any_folder(
    compute_here: Callable[..., Plan],
    small: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (tmp_path / "there").mkdir()
    monkeypatch.chdir(tmp_path / "there")
    folders = ["artifacts=artifacts", "results=results", "run_name=here"]
    report.write(compute_here(load([*small, *folders])), {"total": 0})
    monkeypatch.chdir(os.sep)
    assert factsweep.load(tmp_path / "there/results/here").answers().height


def test_record_that_lists_other_artifacts_is_named_by_whoever_reads_it(
    written: Path, finished: Plan
) -> None:
    """One of its own artifacts gone, one of another run, or none at all."""
    before = (written / NAME).read_bytes()
    other = "matched/0123456789abcdef"

    def swap(record: dict[str, Any]) -> None:
        folders = next(iter(record["artifacts"].values()))
        folders[[each.startswith("matched/") for each in folders].index(True)] = other

    for change in (
        swap,
        lambda record: record["artifacts"].update({"zero-shot": [other]}),
        lambda record: record["run"].update(settings=[]),
        lambda record: record.update(artifacts={}),
        lambda record: record["files"].clear(),
    ):
        (written / NAME).write_bytes(before)
        rewrite(written / NAME, change)
        assert any(str(written) in each for each in verify(finished.run).problems)


def test_copy_of_results_is_verified_itself(written: Path, finished: Plan) -> None:
    copy = shutil.copytree(written, written.parent / "copy")
    (copy / METRICS).write_bytes(b"x")
    assert main(["verify", "copy", f"results={finished.run.results}"]) == 2
    assert main(["verify", finished.run.name, f"results={finished.run.results}"]) == 0


@pytest.mark.slow
def test_record_of_another_shape_is_one_sentence(
    written: Path, finished: Plan, capsys: pytest.CaptureFixture[str]
) -> None:
    before = (written / NAME).read_bytes()
    for change in (
        {"run": None},
        {"run": {"model": None}},
        {"run": {"model": {"billions_of_parameters": "lots"}}},
        {"run": {"benchmark": {"method": "nope"}}},
        {"run": {"seed": 0.9}},
        {"run": {"settings": 5}},
        {"artifacts": []},
        {"artifacts": {"zero-shot": []}},
        {"manifests": {"x": 5}},
        {"files": []},
        {"versions": None},
        {"hardware": None},
        {"model_revision": "\ud800"},
    ):
        (written / NAME).write_bytes(before)
        rewrite(written / NAME, lambda record, change=change: put(record, change))
        for verb in ("verify", "report", "export", "status"):
            assert main([verb, finished.run.name, f"results={finished.run.results}"]) in (1, 2), (
                change
            )
            said = capsys.readouterr()
            assert "Traceback" not in said.err + said.out
