"""Methods: each benchmark goes through the same stages, and a new one needs no change to them."""

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import polars as pl
import pytest
from polars.testing import assert_frame_equal

from operators.datasets.facts import Facts, sliced
from operators.datasets.readers import READERS, Reader
from operators.matching.answer_set import END, SEPARATOR
from operators.methods import METHODS
from operators.methods.method import Ask, Evidence, Measure, Method, Report, Show
from operators.metrics.estimates.rows import ROWS
from operators.prompts.expansion import Expansion
from operators.schemas import empty
from pipeline.config.settings import Run, load
from pipeline.execution.plan import Plan
from pipeline.results import report
from pipeline.score import score
from pipeline.stages.expand import with_text

Settings = Callable[..., Run]
Compute = Callable[..., Plan]


@pytest.fixture
def kamel_settings(small: list[str], tmp_path: Path) -> Settings:
    """Loads a small KAMEL run with the fake engine."""
    plain = [each for each in small if not each.startswith(("benchmark.path", "decoding.samples"))]
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


def values(metrics: pl.DataFrame) -> dict[str, float]:
    whole = metrics.filter(pl.col("slice").is_null(), pl.col("variant").is_null())
    return dict(whole.select("metric", "value").iter_rows())


def test_kamel_prompts_are_questions_after_their_relations_training_queries(
    kamel_settings: Settings, compute_here: Compute
) -> None:
    plan = compute_here(kamel_settings())
    (branch,) = plan.branches
    lines = with_text(branch.prompts, "prompts", "P30.0000")["text"].str.split("\n")
    assert (lines.list.len() == 2).all()
    assert lines.list.first().str.ends_with(END).all()
    assert lines.list.last().str.ends_with("?").all()
    assert branch.metrics.read_all("metrics")["setting"].unique().to_list() == ["1-shot"]


def test_kamel_score_right_answers_are_all_found(
    kamel_settings: Settings, compute_here: Compute, tmp_path: Path
) -> None:
    right_answers(compute_here(kamel_settings())).write_ndjson(tmp_path / "right.jsonl")
    metrics = score(kamel_settings(f"answers={tmp_path}/right.jsonl"))
    found = values(metrics)
    assert (found["precision"], found["recall"], found["f1"]) == (1, 1, 1)
    assert found["year_error_mean"] == 0
    assert 0 < found["baseline_f1"] < 1
    assert metrics.filter(metric="f1")["n_failed"].sum() == 0


def test_kamel_score_own_answers_give_the_runs_own_numbers(
    kamel_settings: Settings, compute_here: Compute, tmp_path: Path
) -> None:
    (branch,) = compute_here(kamel_settings()).branches
    branch.answers.read_all("generations").write_parquet(tmp_path / "answers.parquet")
    own = branch.metrics.read_all("metrics").filter(pl.col("metric") != "flip_rate")
    assert_frame_equal(score(kamel_settings(f"answers={tmp_path}/answers.parquet")), own)


def test_kamel_report_has_the_papers_tables_and_figures(
    kamel_settings: Settings, compute_here: Compute, tmp_path: Path
) -> None:
    plan = compute_here(kamel_settings("run_name=kamel"))
    report.write(plan, {"total": 0})
    folder = tmp_path / "results" / "kamel"
    tables = {path.stem for path in (folder / "tables").glob("*.md")}
    assert tables >= {"overview", "headline", "relations", "extremes", "lama", "years"}
    assert {path.name for path in (folder / "figures").iterdir()} == {
        f"{name}.{kind}" for name in ("cardinality", "kind") for kind in ("png", "svg")
    }
    assert "most frequent answer" in (folder / "tables" / "headline.md").read_text()


@dataclass(frozen=True)
class Plain:
    """The toy benchmark's one setting."""

    mark: str

    name = "plain"
    variant = None


def _facts(texts: Mapping[str, str], _relations: object) -> Facts:
    """Lines such as `France: Paris`."""
    (text,) = texts.values()
    pairs = [
        {
            "pair_id": f"P36.{subject}",
            "relation_id": "P36",
            "subject_id": subject,
            "subjects": [subject],
            "objects": [{"object_id": None, "labels": [label]}],
        }
        for subject, label in (line.split(": ") for line in text.splitlines())
    ]
    template = {"template_id": "P36.000", "relation_id": "P36", "text": "[X] [Y]"}
    rows = {"relations": [{"relation_id": "P36"}], "templates": [template], "pairs": pairs}
    return Facts(*(pl.DataFrame(each, schema=empty(name).schema) for name, each in rows.items()))


def _expand(facts: Facts, setting: Plain, *, seed: int) -> Iterator[Expansion]:
    prompts = facts.pairs.select(
        "pair_id",
        prompt_id="pair_id",
        template_id=pl.lit("P36.000"),
        subject_index=pl.lit(0),
        context_id=pl.lit("none"),
        query=pl.col("subjects").list.first() + setting.mark,
        same_as=pl.lit(None, pl.String),
        calibration_rank=pl.int_range(pl.len()),
    )
    context = {"context_id": "none", "setting": "plain", "text": "", "demonstrations": []}
    contexts = pl.DataFrame([context], schema=empty("contexts").schema)
    yield Expansion("P36", prompts, contexts)


def _measure(evidence: Evidence) -> dict[str, pl.DataFrame]:
    n = evidence.tables["given"].height
    row = (None, None, "answered", n / evidence.facts.pairs.height, None, None, n, 0)
    return {"metrics": pl.DataFrame([row], schema=ROWS, orient="row")}


TOY = Method(
    Ask(setting=Plain, sliced=sliced, expand=_expand),
    Measure(
        version=1,
        answers="given",
        matcher=lambda *_: lambda answers, _further: {"given": answers},
        versions=lambda _pipeline: {},
        compute=_measure,
        main_metric="answered",
    ),
    Show(
        report=lambda result: Report({"headline": result.tables["metrics"]}),
        card=lambda metrics: metrics.select("metric", "value"),
        published="toy",
    ),
)


def test_new_method_runs_through_the_pipeline_as_it_is(
    small: list[str], compute_here: Compute, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(METHODS, "toy", TOY)  # type: ignore[arg-type]
    lines = Reader("texts", _facts, lambda _: [], lambda _, facts: {"rows": facts.pairs.height})
    monkeypatch.setitem(READERS, "myriadlama", lines)  # type: ignore[arg-type]
    (tmp_path / "facts.txt").write_text("France: Paris\nPeru: Lima\n")
    folders = [f"artifacts={tmp_path}/artifacts", f"results={tmp_path}/results", "run_name=toy"]
    path = f"benchmark.path={tmp_path}/facts.txt"
    toy = [*small, *folders, path, "benchmark.method=toy", "decoding.samples.n_prompts=0"]
    drop = ["~prompt.context", "~prompt.shots", "~prompt.style", "~prompt.templates"]
    plan = compute_here(load([*toy, *drop, "~prompt.scope", "+prompt.mark='?'"]))
    report.write(plan, {"total": 0})
    (branch,) = plan.branches
    assert branch.prompts.read_all("prompts")["query"].to_list() == ["France?", "Peru?"]
    assert values(branch.metrics.read_all("metrics"))["answered"] == 1
    written = json.loads((tmp_path / "results/toy/run.json").read_text())
    assert written["run"]["benchmark"]["method"] == "toy"
