"""compare: settings of past runs, by prompt or by fact; refused where other facts were asked."""

import re
import shutil
from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest

from factsweep.operators.errors import InputError
from factsweep.operators.metrics.comparing.comparison import holm
from factsweep.pipeline.cli import main
from factsweep.pipeline.config.settings import load
from factsweep.pipeline.results import report
from factsweep.pipeline.results.compare import Comparison, compare_runs, settings
from factsweep.pipeline.runs.run import score
from factsweep.pipeline.stages.plan import Plan
from tests.messages import naming

Compute = Callable[..., Plan]
Add = Callable[..., None]


@pytest.fixture(scope="module")
def common(small: list[str], tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """What all runs of this module share, a store as well: what two need is made once."""
    store = tmp_path_factory.mktemp("compared") / "artifacts"
    return [*small, f"artifacts={store}", "cluster.rows_per_shard=99", "cluster.rows_per_chunk=99"]


@pytest.fixture(scope="module")
def results_once(
    common: list[str],
    plain: None,
    compute_here: Compute,
    make_model: Callable[[str], Path],
    tmp_path_factory: pytest.TempPathFactory,
) -> Path:
    """Runs of two models that answer alike, and answers from elsewhere that are wrong on P36."""
    folder = tmp_path_factory.mktemp("results")
    overrides = [*common, f"results={folder}"]
    first = compute_here(load([*overrides, "run_name=first"]))
    report.write(first, {"total": 0})
    twin = [f"model.id={make_model('twin')}", "model.name=twin", "run_name=twin"]
    report.write(compute_here(load([*overrides, *twin])), {"total": 0})
    answers = first.branches[0].answers.read_all("generations").select("prompt_id", "text")
    damaged = pl.col("prompt_id").str.starts_with("P36.")
    answers_path = tmp_path_factory.mktemp("given") / "damaged.parquet"
    answers.with_columns(text=pl.when(damaged).then(pl.lit("-")).otherwise("text")).write_parquet(
        answers_path
    )
    score(load([*overrides, f"answers={answers_path}", "run_name=damaged"]))
    return folder


@pytest.fixture
def results(results_once: Path, tmp_path: Path) -> Path:
    """Those runs, in a folder that more may be added to."""
    return shutil.copytree(results_once, tmp_path / "results")


@pytest.fixture
def add(results: Path, common: list[str], compute_here: Compute) -> Add:
    """Adds the results of another run, of that name and with those overrides."""

    def add(name: str, *overrides: str) -> None:
        run = load([*common, f"results={results}", f"run_name={name}", *overrides])
        report.write(compute_here(run), {"total": 0})

    return add


@pytest.fixture
def options() -> Comparison:
    small = {"smallest_difference": 0.05, "n_rounds": 50, "min_facts": 13}
    return settings({**small, "decides": ["one_word_ratio"]})


def test_compared_models_that_answer_alike_do_not_differ(
    results: Path, options: Comparison
) -> None:
    (result,) = compare_runs("first", "twin", str(results), options, anyway=False)
    assert result.pair.names == ("tiny", "twin")
    assert result.pair.departures == ()
    assert result.report.tables["facts"].is_empty()
    enough = settings({"min_facts": 13})
    (result,) = compare_runs("first", "twin", str(results), enough, anyway=False)
    assert result.verdict.outcome == "no difference"
    stricter = settings({"min_facts": 14})
    (result,) = compare_runs("first", "twin", str(results), stricter, anyway=False)
    assert re.search(naming("13 facts", "comparison.min_facts=14"), result.verdict.reason)


def test_compared_lost_facts_are_listed_and_a_regression(
    results: Path, options: Comparison
) -> None:
    (result,) = compare_runs("first", "damaged", str(results), options, anyway=True)
    lost = result.report.tables["facts"].filter(change="lost")
    assert lost.height > 0
    assert lost["relation"].unique().to_list() == ["P36 capital"]
    assert (lost["right after"] == 0).all()
    assert result.verdict.outcome == "lower"
    assert re.search(naming("damaged is lower than first", "is lower by"), result.conclusion)
    assert any("generations" in line for line in result.pair.departures)


def test_compared_other_facts_are_refused_and_marked_anyway(
    results: Path, options: Comparison, add: Add
) -> None:
    add("fewer", "benchmark.pairs_per_relation=5")
    with pytest.raises(InputError, match=naming("slice.pairs_per_relation")):
        list(compare_runs("first", "fewer", str(results), options, anyway=False))
    (result,) = compare_runs("first", "fewer", str(results), options, anyway=True)
    assert result.pair.departures == ("facts slice.pairs_per_relation: null → 5",)
    assert result.report.tables["departures"].height == 1
    assert result.report.tables["headline"].columns[1:3] == ["first (!)", "fewer (!)"]
    assert set(result.report.raw["comparison"]["departures"]) == {result.pair.departures[0]}
    assert re.search(naming("20 prompts of the first", "0 of the second"), result.paired)


def test_compared_relations_of_one_run_alone_are_counted_as_not_paired(
    results: Path, add: Add
) -> None:
    add("p30", "benchmark.relations=[P30]")
    loose = settings({"min_facts": 1, "n_rounds": 20})
    (result,) = compare_runs("first", "p30", str(results), loose, anyway=True)
    (row,) = result.report.tables["paired"].to_dicts()
    assert (row["facts"], row["first facts"], row["second facts"]) == (6, 7, 0)
    assert (row["prompts"], row["first prompts"], row["second prompts"]) == (36, 36, 0)
    (result,) = compare_runs("p30", "first", str(results), loose, anyway=True)
    assert re.search(naming("0 prompts of the first", "36 of the second"), result.paired)


def test_compared_local_and_served_models_are_told_apart_in_one_line(
    results: Path, options: Comparison, common: list[str], compute_here: Compute
) -> None:
    own = [override for override in common if not override.startswith(("model.", "decoding.eng"))]
    served = ["model=endpoint", "model.id=some-model", "model.endpoint=http://127.0.0.1:9/v1"]
    run = load([*own, *served, f"results={results}", "run_name=served"])
    report.write(compute_here(run), {"total": 0})
    for pair in (("first", "served"), ("served", "first")):
        (result,) = compare_runs(*pair, str(results), options, anyway=False)
        (line,) = result.pair.prompt_differences
        assert re.search(naming("engine of this project", "server", "unknown"), line)
        assert result.pair.departures == ()
    with pytest.raises(InputError, match=naming("differ in more than the model")):
        list(compare_runs("served", "damaged", str(results), options, anyway=False))


@pytest.mark.slow
def test_compared_ids_of_other_words_are_not_paired(
    results: Path, options: Comparison, add: Add, small_rows: pl.DataFrame, tmp_path: Path
) -> None:
    template = pl.col("template").replace("[X] has [Y].", "Of [X], [Y] is the capital.")
    small_rows.with_columns(template).write_parquet(tmp_path / "rows.parquet")
    add("other", f"benchmark.path={tmp_path}/rows.parquet")
    (result,) = compare_runs("first", "other", str(results), options, anyway=True)
    (row,) = result.report.tables["paired"].to_dicts()
    # P36 has 9 names of 7 pairs, each in 4 templates, one of which now has other words.
    assert (row["prompts"], row["first prompts"], row["second prompts"]) == (63, 9, 9)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("override", "asked", "unit"),
    [
        ("prompt=zero-shot", "setting.shots: 4 → 0", "prompt"),
        ("seed=1", "seed: 0 → 1", "prompt"),
        ("prompt.scope=prompt", 'setting.scope: "shared" → "prompt"', "prompt"),
        ("prompt.style=question", 'setting.style: "mask" → "question"', "prompt"),
        ("prompt.templates=manual", 'setting.templates: "all" → "manual"', "fact"),
    ],
)
def test_compared_ways_to_ask_are_paired_by_what_they_share(
    results: Path, options: Comparison, add: Add, override: str, asked: str, unit: str
) -> None:
    add("other", override)
    (result,) = compare_runs("first", "other", str(results), options, anyway=False)
    assert f"prompts {asked}" in result.pair.prompt_differences
    assert result.pair.departures == ()
    (row,) = result.report.tables["paired"].to_dicts()
    assert (row["by"], row["facts"]) == (unit, 13)
    raw = result.report.raw["comparison"]
    assert raw.schema["p"] == raw.schema["difference"] == pl.Float64
    # By whatever prompt a fact was sampled, it is not lost.
    runs = (result.pair.first, result.pair.second)
    matched = (item.artifacts["matched"].read_all("calibration") for item in runs)
    first, second = (set(item["pair_id"]) for item in matched)
    assert raw.filter(metric="ovconf")["n_pairs"].max() == len(first & second) > 0


def test_compared_by_prompt_takes_nothing_that_only_one_run_asked(
    results: Path, options: Comparison, add: Add
) -> None:
    add("manual", "prompt.templates=manual")
    (result,) = compare_runs("first", "manual", str(results), options, anyway=False, unit="prompt")
    (row,) = result.report.tables["paired"].to_dicts()
    assert (row["by"], row["prompts"], row["first prompts"]) == ("prompt", 36, 36)
    raw = result.report.raw["comparison"]
    (overall,) = raw.filter(pl.col("relation_id").is_null(), metric="acc_at_1").to_dicts()
    assert (overall["n_prompts"], overall["difference"]) == (36, 0)
    assert result.report.tables["facts"].is_empty()  # the same prompts, and the same answers
    (result,) = compare_runs("first", "twin", str(results), options, anyway=False, unit="fact")
    assert result.report.raw["comparison"]["paired_by"].unique().to_list() == ["fact"]


def test_compared_difference_within_the_noise_of_either_run_is_no_regression(
    results: Path, options: Comparison, monkeypatch: pytest.MonkeyPatch
) -> None:
    for noisy in ("first", "damaged"):
        monkeypatch.setattr(
            "factsweep.pipeline.results.compare.flip_rate",
            lambda branch, noisy=noisy: 1.0 if branch.run == noisy else None,
        )
        (result,) = compare_runs("first", "damaged", str(results), options, anyway=True)
        assert result.verdict.outcome == "no difference"


def test_compared_p_is_adjusted_among_further_metrics_that_decide_and_those_that_do_not(
    results: Path, options: Comparison
) -> None:
    (result,) = compare_runs("first", "damaged", str(results), options, anyway=True)
    rows = result.report.raw["comparison"].filter(pl.col("relation_id").is_null())
    p_holm = dict(rows.select("metric", "p_holm").iter_rows())
    assert p_holm["acc_at_1"] is None
    assert p_holm["one_word_ratio"] == rows.filter(metric="one_word_ratio")["p"].item()
    further = rows.drop_nulls("p").filter(~pl.col("metric").is_in(["acc_at_1", "one_word_ratio"]))
    assert further["p_holm"].to_list() == further.select(holm(pl.col("p"))).to_series().to_list()
    assert (further["p_holm"] > further["p"]).any()
    assert re.search(naming("p of Acc@1", "not adjusted"), result.p_note)


def test_compared_settings_of_a_run_are_named_after_the_colon_and_those_there_are_are_said(
    results: Path, options: Comparison, add: Add
) -> None:
    add("two", "sweep.prompts=[zero-shot,4-template]")
    (result,) = compare_runs("two:zero-shot", "two:4-template", str(results), options, anyway=False)
    assert result.pair.names == ("zero-shot", "4-template")
    assert re.search(naming("72 prompts of 13 facts", "template and name"), result.paired)
    (result,) = compare_runs(
        "two:zero-shot", "first", str(results), options, anyway=False, unit="fact"
    )
    assert re.search(naming("13 facts", "72 prompts in the first"), result.paired)
    (result,) = compare_runs("two", "first", str(results), options, anyway=False)
    assert result.pair.title == "4-template"
    with pytest.raises(InputError, match=naming("setting 5-shot", "zero-shot", "4-template")):
        list(compare_runs("two:5-shot", "first", str(results), options, anyway=False))
    add("others", "sweep.prompts=[zero-shot,4-relation]")
    has = naming("zero-shot, 4-relation", "first:4-template others:zero-shot")
    with pytest.raises(InputError, match=has):
        list(compare_runs("first", "others", str(results), options, anyway=False))


def test_settings_what_does_not_fit_is_named(subtests: pytest.Subtests) -> None:
    cases: dict[str, dict[str, object]] = {
        "comparison.alpha='much'": {"alpha": "much"},
        "comparison.beta is no known field": {"beta": 1},
        "comparison.decides names quantity": {"decides": ["quantity"]},
    }
    for problem, overrides in cases.items():
        with subtests.test(problem), pytest.raises(InputError, match=problem):
            settings(overrides)


def test_compare_command_gate_tells_regression_from_little_evidence(
    results: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place = [f"results={results}", "--gate"]
    loose = "min_facts=13"
    changed = [loose, "smallest_difference=0.05", "n_rounds=50", "decides=[one_word_ratio]"]
    assert main(["compare", "first", "damaged", *changed, *place, "--anyway"]) == 3
    printed = capsys.readouterr().out
    assert "regression: one_word_ratio" in printed
    assert re.search(naming("damaged", "first", "72 prompts of 13 facts"), printed)
    assert "(!) differs in more than model, setting and seed: generations" in printed
    assert main(["compare", "first", "twin", *place]) == 4
    assert main(["compare", "first", "twin", loose, *place]) == 0
    folder = results / "compare" / "first" / "to" / "damaged" / "myriadlama-mini-4-template"
    assert (folder / "figures" / "differences.png").exists()
    assert pl.read_csv(folder / "tables" / "moves.csv").height == 5
    raw = pl.read_parquet(folder / "comparison.parquet")
    assert raw["first_run"].unique().to_list() == ["first"]
    assert raw["p"].drop_nulls().is_between(0, 1).all()
    assert main(["compare", "first", "twin", f"results={results}"]) == 0  # without --gate
