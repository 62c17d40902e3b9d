"""compare: two runs, prompt by prompt; refused where more than the model differs."""

import shutil
from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest

from operators.errors import InputError
from pipeline.cli import main
from pipeline.config.settings import Run, load
from pipeline.execution.plan import Plan
from pipeline.results import report
from pipeline.results.compare import Comparison, compared, settings
from pipeline.score import score

Settings = Callable[..., Run]
Compute = Callable[..., Plan]


@pytest.fixture(scope="module")
def results_once(
    small: list[str],
    compute_here: Compute,
    make_model: Callable[[str], Path],
    tmp_path_factory: pytest.TempPathFactory,
) -> Path:
    """Runs of two models that answer alike, and answers from elsewhere that are wrong on P36."""
    folder = tmp_path_factory.mktemp("compared")
    common = [*small, f"artifacts={folder}/artifacts", f"results={folder}/results"]
    first = compute_here(load([*common, "run_name=first"]))
    report.write(first, {"total": 0})
    twin = [f"model.id={make_model('twin')}", "model.name=twin", "run_name=twin"]
    report.write(compute_here(load([*common, *twin])), {"total": 0})
    answers = first.branches[0].answers.read_all("generations").select("prompt_id", "text")
    damaged = pl.col("prompt_id").str.starts_with("P36.")
    answers.with_columns(text=pl.when(damaged).then(pl.lit("-")).otherwise("text")).write_parquet(
        folder / "damaged.parquet"
    )
    score(load([*common, f"answers={folder}/damaged.parquet", "run_name=damaged"]))
    return folder / "results"


@pytest.fixture
def results(results_once: Path, tmp_path: Path) -> Path:
    """Those runs, in a folder that more may be added to."""
    return shutil.copytree(results_once, tmp_path / "results")


@pytest.fixture
def given() -> Comparison:
    small = {"smallest_difference": 0.05, "n_rounds": 50, "min_facts": 13}
    return settings({**small, "decides": ["one_word_ratio"]})


def test_compared_models_that_answer_alike_do_not_differ(results: Path, given: Comparison) -> None:
    (found,) = compared("first", "twin", str(results), given, anyway=False)
    assert found.names == ("tiny", "twin")
    assert found.departures == ()
    assert found.report.tables["facts"].is_empty()
    enough = settings({"min_facts": 13})
    (found,) = compared("first", "twin", str(results), enough, anyway=False)
    assert found.verdict.outcome == "no change"
    more = settings({"min_facts": 14})
    (found,) = compared("first", "twin", str(results), more, anyway=False)
    assert found.verdict.reason == "The runs share 13 facts, fewer than comparison.min_facts=14."


def test_compared_lost_facts_are_listed_and_a_regression(results: Path, given: Comparison) -> None:
    (found,) = compared("first", "damaged", str(results), given, anyway=True)
    lost = found.report.tables["facts"].filter(change="lost")
    assert lost.height > 0
    assert lost["relation"].unique().to_list() == ["P36 capital"]
    assert (lost["right after"] == 0).all()
    assert found.verdict.outcome == "regression"
    assert any("generations" in line for line in found.departures)


def test_compared_what_differs_in_more_than_the_model_is_refused(
    results: Path, given: Comparison, small_settings: Settings, compute_here: Compute
) -> None:
    report.write(compute_here(small_settings("seed=1", "run_name=other")), {"total": 0})
    with pytest.raises(InputError, match=r"differ in more than the model.*seed: 0 → 1"):
        list(compared("first", "other", str(results), given, anyway=False))
    (found,) = compared("first", "other", str(results), given, anyway=True)
    assert "prompts seed: 0 → 1" in found.departures
    assert found.report.tables["departures"].height == len(found.departures)


def test_compared_nothing_in_common_says_what_each_has(
    results: Path, given: Comparison, small_settings: Settings, compute_here: Compute
) -> None:
    zero_shot = small_settings("prompt=zero-shot", "run_name=other")
    report.write(compute_here(zero_shot), {"total": 0})
    with pytest.raises(InputError, match="no setting of BELIEF in common: 4-template on"):
        list(compared("first", "other", str(results), given, anyway=False))


@pytest.mark.parametrize(
    ("overrides", "names"),
    [
        ({"alpha": "much"}, "comparison.alpha='much'"),
        ({"beta": 1}, "comparison.beta is no known field"),
        ({"decides": ["quantity"]}, "comparison.decides names quantity"),
    ],
)
def test_settings_what_does_not_fit_is_named(overrides: dict[str, object], names: str) -> None:
    with pytest.raises(InputError, match=names):
        settings(overrides)


def test_compare_command_gate_tells_regression_from_little_evidence(
    results: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    where = [f"results={results}", "--gate"]
    few = "min_facts=13"
    changed = [few, "smallest_difference=0.05", "n_rounds=50", "decides=[one_word_ratio]"]
    assert main(["compare", "first", "damaged", *changed, *where, "--anyway"]) == 3
    printed = capsys.readouterr().out
    assert "regression: one_word_ratio" in printed
    assert "differs in more than the model" in printed
    assert main(["compare", "first", "twin", *where]) == 4
    assert main(["compare", "first", "twin", few, *where]) == 0
    folder = results / "compare" / "first" / "to" / "damaged" / "myriadlama-mini-4-template"
    assert (folder / "figures" / "differences.png").exists()
    assert pl.read_csv(folder / "tables" / "moves.csv").height == 5


def test_compare_command_without_gate_is_0(results: Path) -> None:
    assert main(["compare", "first", "twin", f"results={results}"]) == 0
