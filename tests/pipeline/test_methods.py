"""Methods: each benchmark goes through the same stages."""

from collections.abc import Callable
from pathlib import Path

import polars as pl
import polars.selectors as cs
import pytest

from factsweep.operators.matching.answer_set import END, SEPARATOR
from factsweep.pipeline.config.run import Run
from factsweep.pipeline.config.settings import load
from factsweep.pipeline.results import report
from factsweep.pipeline.runs.run import score
from factsweep.pipeline.stages.expand import with_text
from factsweep.pipeline.stages.plan import Plan

Settings = Callable[..., Run]
Compute = Callable[..., Plan]


@pytest.fixture
def kamel_settings(small: list[str], tmp_path: Path) -> Settings:
    """Loads a small KAMEL run with the fake engine."""
    plain = [
        option for option in small if not option.startswith(("benchmark.path", "decoding.samples"))
    ]
    ours = ["benchmark=kamel-mini", "benchmark.relations=[P30,P569,P1412]", "prompt=1-shot"]
    folders = [f"artifacts={tmp_path}/artifacts", f"results={tmp_path}/results"]
    return lambda *overrides: load([*plain, *ours, *folders, *overrides])


def right_answers(plan: Plan) -> pl.DataFrame:
    """Each prompt with all its right answers, as a model would write them."""
    (branch,) = plan.branches
    labels = pl.col("objects").list.eval(pl.element().struct.field("labels").list.first())
    answers = branch.facts.read_all("pairs").select("pair_id", labels.list.join(f"{SEPARATOR} "))
    prompts = branch.prompts.read_all("prompts").join(answers, on="pair_id")
    return prompts.select("prompt_id", text=pl.lit(" ") + pl.col("objects") + pl.lit(END))


def test_kamel_prompts_are_questions_after_training_queries_and_right_answers_are_all_found(
    kamel_settings: Settings, compute_here: Compute, tmp_path: Path
) -> None:
    plan = compute_here(kamel_settings())
    (branch,) = plan.branches
    lines = with_text(branch.prompts, "prompts", "P30.0000")["text"].str.split("\n")
    assert (lines.list.len() == 2).all()
    assert lines.list.first().str.ends_with(END).all()
    assert lines.list.last().str.ends_with("?").all()
    assert branch.metrics.read_all("metrics")["setting"].unique().to_list() == ["1-shot"]
    right_answers(plan).write_ndjson(tmp_path / "right.jsonl")
    metrics = score(kamel_settings(f"answers={tmp_path}/right.jsonl"))
    totals = metrics.filter(pl.col("slice").is_null(), pl.col("variant").is_null())
    value_by_metric = dict(totals.select("metric", "value").iter_rows())
    assert (value_by_metric["precision"], value_by_metric["recall"], value_by_metric["f1"]) == (
        1,
        1,
        1,
    )
    assert value_by_metric["year_error_mean"] == 0
    assert 0 < value_by_metric["baseline_f1"] < 1
    assert metrics.filter(metric="f1")["n_failed"].sum() == 0


@pytest.mark.parametrize(
    ("relation", "years"),
    [("P30", []), ("P569", ["59.0"])],  # entities alone, literals alone
)
def test_kamel_report_of_a_part_shows_no_difference_from_the_whole(
    kamel_settings: Settings,
    compute_here: Compute,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    relation: str,
    years: list[str],
) -> None:
    part = (f"benchmark.relations=[{relation}]", "prompt=10-shot")
    names = ("benchmark.name=kamel", "model.name=opt-13b", "run_name=part")
    report.write(compute_here(kamel_settings(*part, *names)), {"total": 0})
    assert "1 of 234 relations, 10 of 46,800 facts" in caplog.text
    folder = tmp_path / "results" / "part"
    tables = {
        name: pl.read_csv(folder / "tables" / f"{name}.csv", infer_schema=False)
        for name in ("years", "headline", "relations")
    }
    assert tables["headline"]["source"].unique().sort().to_list() == [
        "measured",
        "most frequent answer",
        "published, of other facts",
    ]
    assert "published F1, of other facts" in tables["relations"].columns
    published = tables["years"].select(cs.starts_with("published mean, of"))
    assert sorted(published.to_series().drop_nulls().to_list() if published.width else []) == years
    assert "difference" not in (folder / "index.html").read_text().partition("Beside the")[2][:2000]


def test_kamel_report_has_the_papers_tables_and_figures(
    kamel_settings: Settings, compute_here: Compute, tmp_path: Path
) -> None:
    plan = compute_here(kamel_settings("run_name=kamel"))
    report.write(plan, {"total": 0})
    folder = tmp_path / "results" / "kamel"
    tables = {path.stem for path in (folder / "tables").glob("*.md")}
    assert tables >= {"overview", "headline", "relations", "extremes", "lama", "years"}
    assert {path.name for path in (folder / "figures").iterdir()} == {
        f"{name}.{kind}"
        for name in ("cardinality", "kind", "calibration", "risk-coverage")
        for kind in ("png", "svg")
    }
    assert "most frequent answer" in (folder / "tables" / "headline.md").read_text()
