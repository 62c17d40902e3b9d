"""Exports: what is written reads back as the run's metrics, in every format."""

import json
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
from factsweep.pipeline.results import report
from factsweep.pipeline.results.results import FORMATS, export
from factsweep.pipeline.stages.plan import Plan
from tests.messages import naming
from tests.pipeline.here import rewrite

Compute = Callable[..., Plan]


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
def name(reported: Run) -> str:
    return reported.name


@pytest.fixture
def metrics(results: Path, name: str) -> pl.DataFrame:
    return pl.read_parquet(results / name / "metrics.parquet")


def exported(results: Path, name: str, form: str) -> Path:
    return Path(export(name, str(results), form, None))


def test_export_parquet_reads_back(results: Path, name: str, metrics: pl.DataFrame) -> None:
    assert pl.read_parquet(exported(results, name, "parquet")).equals(metrics)


def test_export_csv_reads_back(results: Path, name: str, metrics: pl.DataFrame) -> None:
    found = pl.read_csv(exported(results, name, "csv"), schema=metrics.schema)
    assert found.equals(metrics.with_columns(pl.col("value", "ci_low", "ci_high").round(4)))


def test_export_markdown_reads_back(results: Path, name: str, metrics: pl.DataFrame) -> None:
    lines = exported(results, name, "markdown").read_text().splitlines()
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    assert rows[0] == metrics.columns
    (accuracy,) = (row for row in rows[2:] if row[4:6] == ["–", "acc_at_1"])
    value = metrics.filter(pl.col("slice").is_null(), metric="acc_at_1")["value"][0]
    assert accuracy[6] == f"{value:.4f}".removeprefix("0")


def test_export_latex_has_a_line_a_number(results: Path, name: str, metrics: pl.DataFrame) -> None:
    body = exported(results, name, "latex").read_text()
    assert body.count(r" \\") == metrics.height + 1
    row = metrics.filter(metric="acc_at_1").row(0, named=True)
    assert rf"acc\_at\_1 & {row['value']:.4f}".replace("& 0.", "& .") in body


def test_export_lm_eval_has_the_numbers_at_the_harness_place(
    results: Path, name: str, metrics: pl.DataFrame
) -> None:
    path = exported(results, name, "lm-eval")
    record = json.loads((results / name / "run.json").read_text())
    time = record["started"].removesuffix("+00:00").replace(":", "-")
    assert path.name == f"results_{time}.json"
    whole = metrics.filter(pl.col("slice").is_null(), metric="acc_at_1")
    found = json.loads(path.read_text())["results"]["myriadlama-mini_4-template"]
    assert found["acc_at_1,none"] == whole["value"][0]


def test_export_lm_eval_of_a_run_without_a_start_says_so(results: Path, name: str) -> None:
    path = results / name / "run.json"
    rewrite(path, lambda record: record.pop("started"))
    with pytest.raises(InputError, match=naming("note", "when", "run")):
        export(name, str(results), "lm-eval", None)


def test_export_twice_is_the_same_file(results: Path, name: str) -> None:
    first, second = (exported(results, name, "lm-eval") for _ in range(2))
    assert first == second


@pytest.mark.parametrize("form", FORMATS)
def test_export_command_says_where(
    results: Path, name: str, form: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "elsewhere"
    options = ["--format", form, "--out", str(out), f"results={results}"]
    assert main(["export", name, *options]) == 0
    written = Path(capsys.readouterr().out.strip())
    assert written.is_file()
    assert written.is_relative_to(out)


def test_export_unknown_run_is_refused(results: Path) -> None:
    with pytest.raises(InputError, match="has no run other; it has"):
        export("other", str(results), "csv", None)


def test_export_mlflow_missing_says_how_to_install(
    results: Path, name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "mlflow", None)
    assert main(["export", name, "--format", "mlflow", f"results={results}"]) == 2
    assert "pip install 'factsweep[mlflow]'" in capsys.readouterr().err


def test_export_mlflow_without_a_place_says_how_to_name_one(
    results: Path, name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    assert main(["export", name, "--format", "mlflow", f"results={results}"]) == 2
    assert "MLFLOW_TRACKING_URI is not set; set it" in capsys.readouterr().err


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
def test_export_mlflow_out_is_a_local_folder(
    results: Path, name: str, metrics: pl.DataFrame, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mlflow = pytest.importorskip("mlflow")
    for variable in ("MLFLOW_ALLOW_FILE_STORE", "MLFLOW_TRACKING_URI"):
        monkeypatch.delenv(variable, raising=False)
    out = tmp_path / "runs"
    said = export(name, str(results), "mlflow", str(out))
    assert said.startswith(f"file://{out}, run ")
    found = mlflow.MlflowClient(out.as_uri()).get_run(said.rpartition(" ")[2])
    assert found.data.metrics == mlflow_metrics(metrics)
    mlflow.set_tracking_uri(None)


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
def test_export_mlflow_its_client_reads_the_run_back(
    results: Path, name: str, metrics: pl.DataFrame, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mlflow = pytest.importorskip("mlflow")
    monkeypatch.delenv("MLFLOW_ALLOW_FILE_STORE", raising=False)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"file://{tmp_path}/mlruns")
    run_id = export(name, str(results), "mlflow", None).rpartition(" ")[2]
    client = mlflow.MlflowClient()
    found = client.get_run(run_id)
    assert found.data.metrics == mlflow_metrics(metrics)
    assert found.data.params["model.name"] == "tiny"
    assert found.data.params["decoding.samples.n_prompts"] == "8"
    assert found.data.tags["version.factsweep"]
    assert "tables/headline.md" in [each.path for each in client.list_artifacts(run_id, "tables")]
