"""The hub's .eval_results, and the section of a model card."""

import logging
from pathlib import Path

import polars as pl
import pytest
import yaml
from huggingface_hub import parse_eval_result_entries

from factsweep.operators.tables.shared.numbers import as_printed, numbers_of
from factsweep.pipeline.config.run import Run
from factsweep.pipeline.exports.export import export
from factsweep.pipeline.exports.exported_run import ExportedRun
from factsweep.pipeline.results.results import load
from tests.pipeline.here import rewrite


def numbers(run: Run) -> pl.DataFrame:
    return load(run.folder).metrics.filter(pl.col("slice").is_null()).drop_nulls("value")


def test_hub_card_has_each_number_over_everything_with_its_interval_and_direction(
    run: Run, tmp_path: Path
) -> None:
    card = Path(export(run.name, run.results, "hf", str(tmp_path))).read_text()
    lines = [line for line in card.splitlines() if line.startswith("|")][2:]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    rows, declared = numbers(run), ExportedRun(load(run.folder)).metric_by_name
    printed = rows.with_columns(
        as_printed(name, numbers=numbers_of(declared.values())).alias(name)
        for name in ("value", "ci_low", "ci_high")
    )
    assert len(cells) == rows.height
    for row, values in zip(printed.iter_rows(named=True), cells, strict=True):
        metric = declared.get(row["metric"])
        better = "–" if metric is None else metric.better or "neither"
        names = ("setting", "variant", "metric", "value", "ci_low", "ci_high")
        expected = [row[name] or "–" for name in names]
        assert values == [*expected, better, str(row["n"]), str(row["n_failed"])]
    assert ExportedRun(load(run.folder)).id in card


def test_hub_results_of_a_set_of_the_hub_are_read_by_its_own_library(
    belief_run: Run, tmp_path: Path
) -> None:
    rewrite(
        Path(belief_run.folder, "run.json"),
        lambda record: record["run"]["benchmark"].update(path=None, data="myriadlama"),
    )
    export(belief_run.name, belief_run.results, "hf", str(tmp_path))
    (path,) = (tmp_path / ".eval_results").iterdir()
    entries = parse_eval_result_entries(yaml.safe_load(path.read_text()))
    rows = numbers(belief_run)
    assert [entry.value for entry in entries] == rows["value"].to_list()
    assert {entry.dataset_id for entry in entries} == {"iszhaoxin/MyriadLAMA"}
    assert len({entry.task_id for entry in entries}) == rows.height
    first = rows.row(0, named=True)
    assert f"{first['ci_low']} to {first['ci_high']}" in str(entries[0].notes)
    assert "engine fake 1" in str(entries[0].notes)


def test_hub_results_of_other_data_are_the_card_alone(
    kamel_run: Run, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "factsweep"):
        export(kamel_run.name, kamel_run.results, "hf", str(tmp_path / "out"))
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["model-card.md"]
    assert "kamel-mini is not on the hub" in caplog.text
