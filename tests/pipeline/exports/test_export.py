"""Exports: what is written reads back as the run's metrics, in every format."""

import importlib.util
import json
import re
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest

from factsweep.operators.errors import InputError
from factsweep.operators.tables.trackers import mlflow_metrics
from factsweep.pipeline.cli import main
from factsweep.pipeline.config.run import Run
from factsweep.pipeline.config.settings import load
from factsweep.pipeline.exports.export import FORMATS, export
from factsweep.pipeline.results import report
from factsweep.pipeline.stages.plan import Plan
from tests.messages import naming
from tests.pipeline.here import rewrite

Compute = Callable[..., Plan]
NAME = "fake-tiny-myriadlama-mini-4-template"


@pytest.fixture(scope="module")
def reported(
    small: list[str], compute_here: Compute, tmp_path_factory: pytest.TempPathFactory
) -> Run:
    """The small run, with its results."""
    folder = tmp_path_factory.mktemp("reported")
    run = load([*small, f"artifacts={folder}/artifacts", f"results={folder}/results"])
    report.write(compute_here(run), {"total": 0})
    return run


@pytest.fixture
def results(reported: Run, tmp_path: Path) -> Path:
    """A copy of the results, to export beside them."""
    return shutil.copytree(reported.results, tmp_path / "results")


@pytest.fixture
def metrics(results: Path) -> pl.DataFrame:
    return pl.read_parquet(results / NAME / "metrics.parquet")


def exported(results: Path, form: str) -> Path:
    return Path(export(NAME, str(results), form, None))


def test_export_tables_read_back(results: Path, metrics: pl.DataFrame) -> None:
    assert pl.read_parquet(exported(results, "parquet")).equals(metrics)
    read_metrics = pl.read_csv(exported(results, "csv"), schema=metrics.schema)
    assert read_metrics.equals(metrics.with_columns(pl.col("value", "ci_low", "ci_high").round(4)))
    lines = exported(results, "markdown").read_text().splitlines()
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    assert rows[0] == metrics.columns
    (accuracy,) = (row for row in rows[2:] if row[4:6] == ["–", "acc_at_1"])
    value = metrics.filter(pl.col("slice").is_null(), metric="acc_at_1")["value"][0]
    assert accuracy[6] == f"{value:.4f}".removeprefix("0")
    body = exported(results, "latex").read_text()
    assert body.count(r" \\") == metrics.height + 1
    row = metrics.filter(metric="acc_at_1").row(0, named=True)
    assert rf"acc\_at\_1 & {row['value']:.4f}".replace("& 0.", "& .") in body


def test_export_lm_eval_has_the_numbers_at_the_harness_place(
    results: Path, metrics: pl.DataFrame
) -> None:
    path = exported(results, "lm-eval")
    file = results / NAME / "run.json"
    time = json.loads(file.read_text())["started"].removesuffix("+00:00").replace(":", "-")
    assert path.name == f"results_{time}.json"
    overall = metrics.filter(pl.col("slice").is_null(), metric="acc_at_1")
    harness = json.loads(path.read_text())["results"]["myriadlama-mini_4-template"]
    assert harness["acc_at_1,none"] == overall["value"][0]
    assert exported(results, "lm-eval") == path
    rewrite(file, lambda record: record.pop("started"))
    with pytest.raises(InputError, match=naming("note", "when", "run")):
        export(NAME, str(results), "lm-eval", None)


def test_export_command_says_where(
    results: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], subtests: pytest.Subtests
) -> None:
    out = tmp_path / "elsewhere"
    for form in FORMATS:
        with subtests.test(form):
            options = ["--format", form, "--out", str(out), f"results={results}"]
            assert main(["export", NAME, *options]) == 0
            written = Path(capsys.readouterr().out.strip())
            assert written.is_file()
            assert written.is_relative_to(out)


def test_export_that_cannot_be_is_refused_with_the_fix(
    results: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    mlflow = ["export", NAME, "--format", "mlflow", f"results={results}"]
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    if importlib.util.find_spec("mlflow"):
        assert main(mlflow) == 2
        assert "MLFLOW_TRACKING_URI is not set; set it" in capsys.readouterr().err
    monkeypatch.setitem(sys.modules, "mlflow", None)
    assert main(mlflow) == 2
    assert "pip install 'factsweep[mlflow]'" in capsys.readouterr().err
    with pytest.raises(InputError, match="has no run other; it has"):
        export("other", str(results), "csv", None)


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
def test_export_mlflow_is_read_back_from_a_folder_and_from_its_server(
    results: Path, metrics: pl.DataFrame, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mlflow = pytest.importorskip("mlflow")
    for variable in ("MLFLOW_ALLOW_FILE_STORE", "MLFLOW_TRACKING_URI"):
        monkeypatch.delenv(variable, raising=False)
    out = tmp_path / "runs"
    address = export(NAME, str(results), "mlflow", str(out))
    assert address.startswith(f"file://{out}, run ")
    mlflow_run = mlflow.MlflowClient(out.as_uri()).get_run(address.rpartition(" ")[2])
    assert mlflow_run.data.metrics == mlflow_metrics(metrics)
    mlflow.set_tracking_uri(None)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"file://{tmp_path}/mlruns")
    run_id = export(NAME, str(results), "mlflow", None).rpartition(" ")[2]
    client = mlflow.MlflowClient()
    mlflow_run = client.get_run(run_id)
    assert mlflow_run.data.metrics == mlflow_metrics(metrics)
    assert mlflow_run.data.params["model.name"] == "tiny"
    assert mlflow_run.data.params["decoding.samples.n_prompts"] == "8"
    assert mlflow_run.data.tags["version.factsweep"]
    assert "tables/headline.md" in [
        artifact.path for artifact in client.list_artifacts(run_id, "tables")
    ]


def test_export_chooses_columns_and_rows_and_refuses_those_that_do_not_exist(
    results: Path, metrics: pl.DataFrame, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["export", NAME, f"results={results}", "--metrics", "consist,acc_at_1"]
    overall = metrics.filter(pl.col("slice").is_null())
    value = dict(overall.filter(pl.col("variant").is_null()).select("metric", "value").iter_rows())
    assert main([*command, "--settings", "4-template"]) == 0
    table = pl.read_csv(capsys.readouterr().out.strip())
    assert table.columns[4:6] == ["value_consist", "value_acc_at_1"]
    assert table["value_acc_at_1"].to_list() == [round(value["acc_at_1"], 4)]
    assert main([*command, "--format", "latex"]) == 0
    lines = Path(capsys.readouterr().out.strip()).read_text().splitlines()
    assert lines[2] == r"model & setting & Consist & Acc@1 \\"
    assert lines[4].startswith(f"tiny & 4-template & {value['consist']:.4f} (".replace("& 0", "& "))
    assert len(lines) == 7
    for options, words in (
        (["--metrics", "acc_at_2"], ["metric 'acc_at_2'", "consist", "Did you mean acc_at_1"]),
        (["--settings", "5-shot"], ["setting '5-shot'", "4-template"]),
        (["--format", "lm-eval"], ["--format lm-eval has all", "csv, markdown, latex"]),
    ):
        assert main([*command, *options]) == 2
        assert re.search(naming(*words), capsys.readouterr().err)
