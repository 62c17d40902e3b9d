"""Estimates from a budget of prompts: its answers stay, and the full run continues from them."""

import re
import shutil
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from polars.testing import assert_frame_equal

from factsweep.operators.engines.fake import FakeEngine
from factsweep.operators.errors import InputError
from factsweep.pipeline.commands import api
from factsweep.pipeline.config.budget import Budget, Target
from factsweep.pipeline.config.run import Run
from factsweep.pipeline.config.settings import load
from factsweep.pipeline.decoding import remaining_prompts
from factsweep.pipeline.decoding.open_shard import Trial, write_trial
from factsweep.pipeline.decoding.remaining_prompts import list_work
from factsweep.pipeline.inputs.models import tokenizer
from factsweep.pipeline.runs import estimate as estimating
from factsweep.pipeline.runs.run import measure_run
from factsweep.pipeline.stages.plan import Plan, build_plan, sample_plan
from factsweep.pipeline.storage.integrity import check_listing
from factsweep.pipeline.storage.store import Store
from tests.messages import naming
from tests.pipeline.here import decode_here, make_here, opened

Settings = Callable[..., Run]
Compute = Callable[..., Plan]

GREEDY = ("decoding.samples.n_prompts=0", "decoding.canary_prompts=0")


class Counting(FakeEngine):
    """Counts how often each prompt is asked; dies at the answer of a number, if one is given."""

    def __init__(self) -> None:
        super().__init__()
        self.asked = Counter[str]()
        self.dies_at: int | None = None

    def answers(self, requests: Iterable[Any]) -> Iterator[Any]:
        for answer in super().answers(requests):
            if self.dies_at == 0:
                raise RuntimeError
            if self.dies_at is not None:
                self.dies_at -= 1
            self.asked[answer.request_id] += 1
            yield answer


def estimate(settings: Run) -> pl.DataFrame:
    return estimating.estimate(settings)


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> Counting:
    """The engine of all estimates of a test, which are made in this process."""
    engine = Counting()
    monkeypatch.setattr(estimating, "compute", lambda plan: make_here(plan, engine))
    return engine


@pytest.mark.slow
def test_estimate_then_more_then_all_asks_no_prompt_twice(
    small_settings: Settings, compute_here: Compute, engine: Counting
) -> None:
    tables = [estimate(small_settings(*GREEDY, f"budget={share}%")) for share in (20, 60)]
    assert [round(table["share"][0], 2) for table in tables] == [0.19, 0.58]
    assert sum(engine.asked.values()) < 60
    full_branch = compute_here(small_settings(*GREEDY), engine).branches[0]
    assert set(engine.asked.values()) == {1}
    separate_plan = compute_here(
        small_settings(*GREEDY, "artifacts=" + small_settings().artifacts + "2")
    )
    other = separate_plan.branches[0]
    for shard in other.answers.shards("generations"):
        assert_frame_equal(
            full_branch.answers.read("generations", shard), other.answers.read("generations", shard)
        )
    assert_frame_equal(full_branch.metrics.read_all("metrics"), other.metrics.read_all("metrics"))
    repeated = estimate(small_settings(*GREEDY, "budget=20%"))
    assert_frame_equal(repeated, tables[0])
    assert sum(engine.asked.values()) == len(engine.asked)


def test_left_of_a_budget_is_what_each_shard_lacks_of_it(
    small_settings: Settings, engine: Counting
) -> None:
    estimate(small_settings(*GREEDY, "budget=20%"))
    larger_plan = sample_plan(build_plan(small_settings(*GREEDY, "budget=60%")))
    for step in larger_plan.steps:
        if step.artifact == larger_plan.branches[0].chosen:
            assert step.stage is not None
            step.stage.make(step.artifact)
    items = list_work(larger_plan)
    n_asked = sum(engine.asked.values())
    assert remaining_prompts.count_left(items) == [opened(item).n_left for item in items]
    estimate(small_settings(*GREEDY, "budget=60%"))
    assert sum(remaining_prompts.count_left(items)) == 0
    assert sum(engine.asked.values()) > n_asked


def test_prompt_of_a_budget_that_engines_die_of_is_asked_once(
    small_settings: Settings, engine: Counting
) -> None:
    settings = small_settings(*GREEDY, "budget=20%")
    plan = sample_plan(build_plan(settings))
    for step in plan.steps:
        if step.artifact.stage in ("facts", "prompts", "admitted", "chosen"):
            step.run()
    item = next(task for task in list_work(plan) if opened(task).n_left > 1)
    poison = opened(item).pending_prompts()["prompt_id"][0]
    write_trial(item, Trial(condemned=(poison,)))
    decode_here(item, engine, tokenizer(plan.weights), lambda _: False)
    assert remaining_prompts.count_left([item]) == [0]
    assert remaining_prompts.read_refusals(item).select("prompt_id", "reason").rows() == [
        (poison, "engine_died")
    ]
    assert estimate(settings).height
    assert poison not in engine.asked


def test_estimate_of_all_prompts_is_the_full_run(
    small_settings: Settings, compute_here: Compute, engine: Counting
) -> None:
    values = dict(
        estimate(small_settings(*GREEDY, "budget=100%")).select("metric", "value").iter_rows()
    )
    n = sum(engine.asked.values())
    branch = compute_here(small_settings(*GREEDY), engine).branches[0]
    assert sum(engine.asked.values()) == n
    metrics = branch.metrics.read_all("metrics").filter(pl.col("slice").is_null())
    full = dict(metrics.filter(pl.col("variant").is_null()).select("metric", "value").iter_rows())
    for name in ("acc_at_1", "consist", "one_word_ratio"):
        assert values[name] == pytest.approx(full[name])


def test_estimate_of_a_killed_engine_resumes_from_its_chunks(
    small_settings: Settings, engine: Counting, caplog: pytest.LogCaptureFixture
) -> None:
    settings = small_settings(*GREEDY, "budget=50%", "cluster.rows_per_chunk=1")
    engine.dies_at = 9
    with pytest.raises(RuntimeError):
        estimate(settings)
    engine.dies_at = None
    table = estimate(settings)
    assert table["n"][0] > 30
    # The one that was under way when the engine died may be asked again.
    n = sum(engine.asked.values())
    assert n <= len(engine.asked) + 1
    answers = build_plan(settings).branches[0].answers
    assert not answers.is_complete()
    assert answers.list_published("generations") == []
    assert "Set aside" not in caplog.text
    assert list(check_listing(answers)) == []
    assert_frame_equal(estimate(settings), table)  # nothing more is asked
    assert sum(engine.asked.values()) == n


def test_estimate_says_as_the_plan_that_a_budget_is_small(
    small_settings: Settings, engine: Counting, caplog: pytest.LogCaptureFixture
) -> None:
    small_budget, enough = (small_settings(*GREEDY, f"budget={share}%") for share in (20, 60))
    estimate(small_budget)
    (sentence,) = re.findall(r"too few to ask each of \d+ facts twice: .*estimated", caplog.text)
    assert sentence in str(api.forecast_of(small_budget))
    caplog.clear()
    estimate(enough)
    assert "too few" not in caplog.text + str(api.forecast_of(enough))


def test_estimate_in_the_place_of_a_full_run_is_refused(
    small_settings: Settings, engine: Counting
) -> None:
    settings = small_settings(*GREEDY, "budget=40%", "run_name=full")
    Store(settings.folder).put("run.json", b"{}")
    with pytest.raises(InputError, match=naming("run_name")):
        estimate(settings)


def test_run_of_the_api_with_a_budget_names_estimate() -> None:
    with pytest.raises(InputError, match=naming("`estimate`")):
        api.run("budget=1%")


OTHERS = {
    "kamel-mini": (("prompt=1-shot",), ("precision", "recall", "f1", "f1_relation_mean")),
    "probelm-mini": ((), ("accuracy", "mrr", "plausibility")),
}


@pytest.mark.slow
@pytest.mark.parametrize("benchmark", OTHERS)
def test_estimate_of_queries_then_all_is_the_full_run(
    benchmark: str, make_model: Callable[[str], Path], tmp_path: Path, engine: Counting
) -> None:
    overrides, names = OTHERS[benchmark]
    common = [
        *("model.source=path", "model.name=tiny", f"model.id={make_model('tiny')}"),
        *(f"benchmark={benchmark}", "decoding.engine=fake", "metrics.n_rounds=20", *overrides),
        *(f"artifacts={tmp_path}/artifacts", f"results={tmp_path}/results", *GREEDY),
    ]
    part = estimate(load([*common, "budget=60%"]))
    assert 0.3 < part["share"][0] <= 0.6
    table = estimate(load([*common, "budget=100%"]))
    full = load([*common, "run_name=full"])
    metrics = measure_run(full, lambda plan: make_here(plan, engine))
    full_rows = metrics.filter(pl.col("slice").is_null(), pl.col("variant").is_null())
    on = [name for name in ("setting", "metric") if name in full_rows.columns]
    rows = table.join(full_rows, on=on, suffix="_known").filter(pl.col("metric").is_in(names))
    assert set(rows["metric"]) == set(names)
    assert rows["value"].to_list() == pytest.approx(rows["value_known"].to_list())
    assert rows["full_low"].to_list() == pytest.approx(rows["full_high"].to_list())


@pytest.fixture
def earlier(
    sound: Path,
    two_runs: dict[str, list[str]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    engine: Counting,
) -> Callable[..., Run]:
    """Loads an estimate by a new model, next to the full runs `one` and `two` of others."""
    for folder in ("artifacts", "results"):
        shutil.copytree(sound / folder, tmp_path / folder)
    monkeypatch.chdir(tmp_path)
    third = [
        "model.name=third",
        "model.max_model_len=1024",
        "budget=60%",
        "run_name=third",
        *GREEDY,
    ]
    return lambda *overrides: load([*two_runs["two"], *third, *overrides])


def test_estimate_with_a_control_says_how_many_prompts_it_is_worth(
    earlier: Callable[..., Run], caplog: pytest.LogCaptureFixture
) -> None:
    without, controlled = estimate(earlier()), estimate(earlier("control=one"))
    assert without["n_effective"].null_count() == without.height
    assert without["control"].null_count() == without.height
    narrowed = controlled.filter(pl.col("n_effective").is_not_null())["metric"].to_list()
    assert sorted(narrowed) == ["acc_at_1", "one_word_ratio"]
    (folder,) = set(controlled["control"])
    assert folder.startswith("matched/")
    (other,) = set(estimate(earlier("control=two"))["control"])
    assert other != folder
    assert re.search(naming("facts", "not all answered"), caplog.text)
    table = Path("results/third/estimates.md").read_text()
    assert "worth prompts" in table


REFUSED = {
    "control=none": "has no run none",
    "control=one:zero-shot": "one has no setting zero-shot",
    "control=part": "has estimates from a part of the prompts, where a full run is needed",
    "benchmark.relations=[P30]": "was asked other prompts than 4-template asks now",
    "prompt.templates=manual": "was asked other prompts than 4-template asks now",
    "budget=null": "is for an estimate; give budget= too",
}


@pytest.mark.parametrize("override", REFUSED)
def test_control_that_says_nothing_of_the_prompts_is_refused(
    earlier: Callable[..., Run], override: str
) -> None:
    if override == "control=part":
        estimate(earlier("run_name=part"))
    with pytest.raises(InputError, match=REFUSED[override]):
        estimate(earlier("control=one", override))


@pytest.mark.parametrize(
    ("low", "high", "part", "half_width", "pattern", "next_budget"),
    [
        (
            0.4,
            0.6,
            Budget(0.2, None),
            0.2,
            ".5000 ± .1000 from 20.00% .* no wider than ±.2000",
            None,
        ),
        (
            0.4,
            0.6,
            Budget(0.2, None),
            0.05,
            r"from 20.00% .*, wider than ±.0500 \(look 1",
            "56.5685%",
        ),
        (0.4, 0.6, Budget(1.0, None), 0.05, "from 100.00% .*, wider than ±.0500", None),
        (None, None, Budget(None, 100), 0.1, "from 20.00% .* without an interval yet", "40%"),
        (0.5, 0.5, Budget(1.0, None), 0.1, "of all prompts: exactly, since ±.1000 took", None),
    ],
)
def test_look_says_how_far_it_got_and_what_to_ask_next(
    low: float | None,
    high: float | None,
    part: Budget,
    half_width: float,
    pattern: str,
    next_budget: str,
) -> None:
    names = ["metric", "value", "full_low", "full_high", "n", "share"]
    rows = [("consist", 0.5, low, high, 100, 0.2), ("acc_at_1", 0.5, 0.1, 0.9, 100, 0.2)]
    table = pl.DataFrame(rows, names, orient="row")
    wider, sentence, following_budget = estimating._look(
        table, Target("consist", half_width), part, []
    )
    assert re.search(pattern, sentence)
    assert following_budget == next_budget
    assert wider.row(1) == table.row(1)


@pytest.mark.slow
def test_target_asks_more_until_the_interval_is_as_narrow(
    small_settings: Settings, engine: Counting, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    overrides = (*GREEDY, "budget=20%", "run_name=sure", "target=consist±0.12")
    table = estimating.estimate(small_settings(*overrides))
    row = table.row(by_predicate=pl.col("metric") == "consist", named=True)
    assert row["full_high"] - row["full_low"] <= 0.24
    assert 0.2 < row["share"] <= 1
    looks = [line for line in caplog.messages if "consist is" in line]
    assert len(looks) > 1
    assert all("wider than ±.1200" in line for line in looks[:-1])
    assert "no wider than ±.1200" in looks[-1] or "exactly" in looks[-1]
    assert set(engine.asked.values()) == {1}
    report = Store(small_settings(*overrides).folder).get("estimates.md").decode()
    assert report.endswith(f"{looks[-1]}\n")
    repeated = estimate(small_settings(*overrides))
    assert_frame_equal(repeated, table)
    assert set(engine.asked.values()) == {1}


@pytest.mark.slow
def test_target_that_takes_all_prompts_ends_with_the_exact_number(
    small_settings: Settings, engine: Counting
) -> None:
    table = estimate(small_settings(*GREEDY, "budget=30", "target=one_word_ratio+-.0001"))
    row = table.row(by_predicate=pl.col("metric") == "one_word_ratio", named=True)
    assert row["value"] == row["full_low"] == row["full_high"]
    assert row["share"] == 1


@pytest.mark.slow
@pytest.mark.usefixtures("shared_ray")
def test_estimate_with_engines_ends_with_its_table(small_settings: Settings) -> None:
    run = small_settings(*GREEDY, "budget=50%")
    table = estimating.estimate(run)
    assert table["share"][0] == 0.5
    folder = Path(run.results) / run.name
    assert (folder / "estimates.md").exists()
    assert "index.html" not in {path.name for path in folder.iterdir()}
