"""report: the results of a run, for people and for programs."""

import json
import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest

from factsweep.operators.errors import InputError
from factsweep.pipeline.config.run import Run
from factsweep.pipeline.config.settings import load
from factsweep.pipeline.exports.export import export
from factsweep.pipeline.results import report
from factsweep.pipeline.results.run_record import (
    ESTIMATES,
    TAKEN,
    read_earlier,
    warn_of_replacement,
)
from factsweep.pipeline.runs.run import run
from factsweep.pipeline.stages.plan import Plan, build_plan
from factsweep.pipeline.storage.store import Store
from tests.messages import naming

Settings = Callable[..., Run]
Compute = Callable[..., Plan]


@pytest.fixture(scope="module")
def done(small: list[str], _finished_once: Path, tmp_path_factory: pytest.TempPathFactory) -> Plan:
    """The small run when its results are written, while a secret is in the environment."""
    folder = tmp_path_factory.mktemp("reported")
    shutil.copytree(_finished_once, folder / "artifacts")
    settings = load([*small, f"artifacts={folder}/artifacts", f"results={folder}/results"])
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HF_TOKEN", "hf_notforanyone")
        run(settings)
    return build_plan(settings)


@pytest.fixture(scope="module")
def results(done: Plan) -> Path:
    """Those results, which no test changes."""
    return Path(done.run.results) / done.run.name


def test_report_writes_metrics_tables_and_a_record_without_secrets(
    done: Plan, results: Path
) -> None:
    metrics = pl.read_parquet(results / "metrics.parquet")
    assert metrics.equals(done.branches[0].metrics.read_all("metrics"))
    for name in ("headline", "calibration"):
        rows = pl.read_csv(results / f"tables/{name}.csv", infer_schema=False).rows()
        lines = (results / f"tables/{name}.md").read_text().splitlines()
        cells = [tuple(cell.strip() for cell in line.strip("|").split("|")) for line in lines[2:]]
        assert cells == [tuple("–" if v is None else v for v in row) for row in rows]
    record = json.loads((results / "run.json").read_text())
    assert record["model_revision"] == done.weights.revision
    assert record["run"]["model"]["name"] == "tiny"
    assert record["versions"].keys() >= {"python", "ray", "polars", "transformers"}
    folders = [artifact.folder for artifact in done.branches[0].artifacts()]
    assert record["artifacts"] == {"4-template": folders}
    for path in results.rglob("*"):
        assert path.is_dir() or b"hf_notforanyone" not in path.read_bytes()


@pytest.mark.slow
def test_report_is_written_again_and_keeps_when_the_run_began_and_its_cost(
    done: Plan, results: Path, tmp_path: Path
) -> None:
    folder = tmp_path / done.run.name
    shutil.copytree(results, folder)
    plan = replace(done, run=replace(done.run, results=str(tmp_path)))
    table, name = folder / "tables/cost.md", folder / "run.json"
    text, old_record = table.read_text(), json.loads(name.read_text())
    for harm in (
        lambda: table.write_text("| stage |"),
        (folder / "metrics.parquet").unlink,
        (folder / "estimates.md").touch,
    ):
        harm()
        metrics = run(plan.run)
        assert metrics.equals(pl.read_parquet(results / "metrics.parquet"))
        assert table.read_text() == text
        new_record = json.loads(name.read_text())
        assert [new_record[field] for field in TAKEN] == [old_record[field] for field in TAKEN]
    assert not (folder / "estimates.md").exists()


@pytest.mark.slow
def test_report_of_another_run_of_that_name_leaves_no_table_of_the_first(
    small_settings: Settings, compute_here: Compute
) -> None:
    fewer = ("decoding.samples.n_prompts=0", "decoding.canary_prompts=0")
    for overrides in ((), fewer):
        plan = compute_here(small_settings("run_name=mine", "prompt=zero-shot", *overrides))
        report.write(plan, {"total": 0}, read_earlier(Store(plan.run.folder)))
        top = Path(plan.run.results) / "mine"
        files = {str(path.relative_to(top)) for path in top.rglob("*") if path.is_file()}
        assert files == {"run.json", *json.loads((top / "run.json").read_text())["files"]}
        if not overrides:
            first = files
    assert files < first


@pytest.mark.slow
def test_report_of_other_numbers_removes_exports_and_estimates_of_the_first(
    small_settings: Settings, compute_here: Compute
) -> None:
    overrides = ("run_name=mine", "prompt=zero-shot", "decoding.samples.n_prompts=0")
    first = compute_here(small_settings(*overrides))
    report.write(first, {"total": 0})
    exported = Path(export("mine", first.run.results, "csv", None))
    report.write(first, {"total": 0}, read_earlier(Store(first.run.folder)))
    assert exported.is_file()
    estimates = [exported.parents[1] / name for name in (*ESTIMATES, "variance.parquet")]
    for path in estimates:
        path.touch()
    report.write(
        compute_here(small_settings(*overrides, "benchmark.relations=[P36]")), {"total": 0}
    )
    assert not any(path.exists() for path in (exported, *estimates))


def test_replaced_results_of_another_run_are_announced_with_what_differs(
    done: Plan, results: Path, small: list[str], tmp_path: Path
) -> None:
    store = Store(done.run.folder)
    record = read_earlier(store)
    assert warn_of_replacement(store, record, done) is None
    common = [*small, f"artifacts={done.run.artifacts}", f"results={done.run.results}", "seed=1"]
    warning = warn_of_replacement(store, record, build_plan(load([*common, "prompt=zero-shot"])))
    assert '(seed: 0 → 1; settings: "4-template" → "zero-shot")' in str(warning)
    warning = warn_of_replacement(
        store, record, build_plan(load([*common, f"run_name={done.run.name}"]))
    )
    assert re.search(
        naming(results, "(seed: 0 → 1)", "will be replaced", "run_name=…"), str(warning)
    )
    (tmp_path / "run.json").write_text("{}")
    assert read_earlier(Store(str(tmp_path))) == {}
    assert warn_of_replacement(Store(str(tmp_path)), {}, done) is None


def test_report_folder_that_cannot_be_written_names_it(finished: Plan) -> None:
    Path(finished.run.results).write_text("a file where the folder should be")
    with pytest.raises(InputError, match=naming("results/", "/metrics.parquet")):
        run(finished.run)
