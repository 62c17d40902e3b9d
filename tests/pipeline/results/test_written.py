"""Estimates next to full runs: each verb marks them with their share and interval, or refuses."""

import re
import shutil
from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest

from factsweep.operators.errors import InputError
from factsweep.pipeline.cli import main
from factsweep.pipeline.commands import api
from factsweep.pipeline.config.run import Run
from factsweep.pipeline.config.settings import load
from factsweep.pipeline.results import estimates, past_runs, report
from factsweep.pipeline.results.run_record import ESTIMATE, ESTIMATES
from factsweep.pipeline.runs import estimate as estimating
from factsweep.pipeline.runs.verify import verify
from factsweep.pipeline.stages.plan import Plan
from tests.messages import naming
from tests.pipeline.here import make_here

Settings = Callable[..., Run]
Compute = Callable[..., Plan]

FEW = ("decoding.samples.n_prompts=0", "decoding.canary_prompts=0")


@pytest.fixture(scope="module")
def results_once(
    small: list[str], compute_here: Compute, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """A full run, and estimates of it from a part of its prompts and from all."""
    folder = tmp_path_factory.mktemp("estimates")
    common = [*small, *FEW, f"artifacts={folder}/artifacts", f"results={folder}/results"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(estimating, "compute", make_here)
        for name, budget in (("part", "60%"), ("all", "100%")):
            estimating.estimate(load([*common, f"run_name={name}", f"budget={budget}"]))
    report.write(compute_here(load([*common, "run_name=full"])), {"total": 0})
    return folder / "results"


@pytest.fixture
def results(results_once: Path, tmp_path: Path) -> Path:
    """Those results, in a folder that more may be added to."""
    return shutil.copytree(results_once, tmp_path / "results")


def said(results: Path, *words: str, capsys: pytest.CaptureFixture[str]) -> tuple[int, str]:
    """The exit code of a command, and its output and errors as one line."""
    code = main([*words, f"results={results}"])
    output = capsys.readouterr()
    return code, " ".join((output.out + output.err).split())


def test_estimate_writes_what_its_record_lists_and_it_reads_back(results: Path) -> None:
    file_names = {path.name for path in (results / "part").iterdir() if path.is_file()}
    assert file_names >= set(ESTIMATES)
    assert "run.json" not in file_names
    estimate = estimates.read(str(results), "part")
    assert estimate.record["run"]["budget"] == "60%"
    assert estimate.estimates.equals(pl.read_parquet(results / "part" / "estimates.parquet"))
    assert past_runs.list_runs(str(results), ESTIMATE) == ["all", "part"]


def test_estimates_of_another_run_are_refused(results: Path) -> None:
    shutil.copy(results / "all" / "estimates.parquet", results / "part")
    with pytest.raises(InputError, match=naming("part/estimates.parquet", "run again")):
        estimates.read(str(results), "part")


def test_verify_names_files_of_an_estimate_that_are_gone(
    results: Path, results_once: Path, small: list[str]
) -> None:
    places = [f"artifacts={results_once.parent}/artifacts", f"results={results}"]
    run = load([*small, *FEW, *places, "run_name=part", "budget=60%"])
    assert verify(run).problems == []
    (results / "part" / "estimates.md").unlink()
    assert any("estimates.md" in problem for problem in verify(run).problems)


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["compare", "part:4-template", "full", "--gate"], "part .* has estimates from a part"),
        (["compare", "full", "part"], "part .* has estimates from a part"),
        (["baseline", "accept", "demo", "part"], "part .* has estimates from a part"),
        (["export", "part", "--format", "lm-eval"], "--format lm-eval cannot mark"),
        (["export", "part", "--format", "mlflow"], "--format mlflow cannot mark"),
    ],
)
def test_verb_that_takes_full_runs_refuses_an_estimate_in_a_sentence(
    results: Path, words: list[str], reason: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code, text = said(results, *words, capsys=capsys)
    assert code == 2
    assert re.search(reason, text)


def test_score_with_a_budget_is_refused(small_settings: Settings) -> None:
    from factsweep.pipeline.runs.run import measure_run

    with pytest.raises(InputError, match=naming("`estimate`")):
        measure_run(small_settings("budget=5%"), make_here)


def test_load_of_an_estimate_says_what_it_is(results: Path) -> None:
    with pytest.raises(InputError, match=naming("estimates", "part")):
        api.load(results / "part")


@pytest.mark.parametrize("form", ["csv", "markdown", "latex", "parquet"])
def test_export_of_an_estimate_has_its_share_in_each_row(results: Path, form: str) -> None:
    from factsweep.pipeline.exports.export import export

    file = Path(export("part", str(results), form, None))
    assert file.stem == "estimates"
    if form == "parquet":
        assert pl.read_parquet(file)["share"].unique().to_list() == [
            pytest.approx(0.5833, abs=1e-4)
        ]
    else:
        rows = [
            line for line in file.read_text().splitlines() if "acc_at_1" in line or "Acc@1" in line
        ]
        assert rows
        assert all("58.33" in row or "0.5833" in row for row in rows)


def test_report_keeps_estimates_apart_from_full_numbers(
    results: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, _ = said(results, "report", capsys=capsys)
    assert code == 0
    apart = results / "report" / "estimates"
    page = (results / "report" / "index.html").read_text()
    assert "58.33% to 100.00% of the prompts" in page
    assert 'href="estimates/tables/estimates.md"' in page
    assert "58.33%" in (apart / "tables" / "estimates.md").read_text()
    other_tables = [
        path for path in (results / "report").glob("*/tables/*.md") if apart not in path.parents
    ]
    assert other_tables
    assert not any("58.33" in path.read_text() for path in other_tables)
    assert said(results, "report", "part", capsys=capsys)[0] == 0
    assert [path.name for path in (results / "report").iterdir() if path.is_dir()] == ["estimates"]
