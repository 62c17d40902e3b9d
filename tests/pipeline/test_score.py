"""score: answers of another system are measured as a run's own are."""

from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest
from polars.testing import assert_frame_equal

from factsweep.operators.errors import DamagedFileError, DecodingError, InputError
from factsweep.pipeline.config.run import Run
from factsweep.pipeline.runs import estimate as estimating
from factsweep.pipeline.runs.run import score
from factsweep.pipeline.stages.expand import with_text
from factsweep.pipeline.stages.plan import Plan, planned
from tests.messages import naming

Settings = Callable[..., Run]

GREEDY = ("decoding.samples.n_prompts=0", "decoding.canary_prompts=0")


@pytest.fixture
def answers(finished: Plan) -> pl.DataFrame:
    """The finished run's own greedy answers."""
    return finished.branches[0].answers.read_all("generations").select("prompt_id", "text")


@pytest.fixture
def scored(small_settings: Settings, tmp_path: Path) -> Callable[..., pl.DataFrame]:
    """Scores a table of answers, which is written as Parquet or JSONL."""

    def scored(answers: pl.DataFrame, suffix: str = "parquet", *overrides: str) -> pl.DataFrame:
        path = tmp_path / f"answers.{suffix}"
        answers.write_parquet(path) if suffix == "parquet" else answers.write_ndjson(path)
        allowed = "decoding.max_failed_share=1"
        return score(small_settings(f"answers={path}", allowed, *overrides))

    return scored


Scored = Callable[..., pl.DataFrame]


@pytest.mark.parametrize("suffix", ["parquet", "jsonl"])
def test_score_own_answers_give_the_runs_own_numbers(
    finished: Plan, answers: pl.DataFrame, scored: Scored, suffix: str
) -> None:
    own = finished.branches[0].metrics.read_all("metrics")
    found = scored(answers, suffix)
    sampled = pl.col("metric").is_in(["ovconf", "ece", "brier", "auroc", "flip_rate", "cut_share"])
    assert found.height > 10
    assert_frame_equal(found, own.filter(~sampled))


FULL_TEXTS = {
    "prompt": ("{prompt}{text}", ("began with the prompt",)),
    "prompt with other line ends": ("<s> {windows}{text}", ("began with the prompt",)),
    "run-on": ("{text}\r\nQ: Where is Paris?\nA: Paris", ("were cut",)),
    "both": ("{prompt}{text}\nQ: Where is Paris?", ("began with the prompt", "were cut")),
}


@pytest.mark.parametrize(("shape", "sentences"), FULL_TEXTS.values(), ids=FULL_TEXTS)
def test_score_full_texts_give_the_numbers_of_their_answers(
    finished: Plan,
    answers: pl.DataFrame,
    scored: Scored,
    caplog: pytest.LogCaptureFixture,
    shape: str,
    sentences: tuple[str, ...],
) -> None:
    prompts = finished.branches[0].prompts
    shards = prompts.shards("prompts")
    texts = pl.concat(with_text(prompts, "prompts", shard) for shard in shards)
    rows = answers.join(texts.select("prompt_id", prompt="text"), on="prompt_id")
    full = [
        shape.format(windows=row["prompt"].replace("\n", "\r\n"), **row)
        for row in rows.iter_rows(named=True)
    ]
    metrics = scored(rows.select("prompt_id", text=pl.Series(full)), "jsonl")
    n = answers.height
    for sentence in sentences:
        assert f"{n} of {n} given texts" in caplog.text
        assert sentence in caplog.text
    assert_frame_equal(metrics, scored(answers))


@pytest.mark.parametrize(
    "line",
    [
        '"text": ["Paris"]}',
        '"text": {"answer": "Paris"}}',
        '"text": 1949}',
        '"text": "Par\\ud800s"}',
        '"text": "Paris", "text": "Rome"}',
    ],
)
def test_score_value_that_is_no_text_is_refused_with_its_line(
    answers: pl.DataFrame, small_settings: Settings, tmp_path: Path, line: str
) -> None:
    path = tmp_path / "answers.jsonl"
    lines = answers.write_ndjson().splitlines()
    path.write_text("\n".join([*lines[:2], lines[2].partition('"text"')[0] + line, *lines[3:]]))
    with pytest.raises(InputError, match=r"answers\.jsonl, line 3: .*(text|ud800)"):
        score(small_settings(f"answers={path}"))


@pytest.mark.parametrize(
    ("text", "overrides", "n_failed"),
    [
        ("<think>Rome or\nParis</think>\n\nIt is {}", ["model.thinking=on"], 0),
        ("<think>{}", ["model.thinking=on"], 72),
        ("<think>{}</think>\n\n{}", [], 0),
    ],
)
def test_score_thoughts_are_removed_where_the_model_thinks(
    answers: pl.DataFrame,
    scored: Scored,
    caplog: pytest.LogCaptureFixture,
    text: str,
    overrides: list[str],
    n_failed: int,
) -> None:
    thoughtful = pl.col("text").map_elements(
        lambda answer: text.format(answer, answer), return_dtype=pl.String
    )
    metrics = scored(answers.with_columns(thoughtful), "parquet", *overrides)
    overall = metrics.filter(pl.col("slice").is_null())
    assert overall.filter(metric="acc_at_1")["n_failed"].item() == n_failed
    n = answers.height
    assert (f"{n} of {n} given texts have a thought" in caplog.text) == (not overrides)


@pytest.mark.slow
def test_score_answers_in_any_order_give_the_same_numbers(
    answers: pl.DataFrame, scored: Scored
) -> None:
    shuffled = answers.sample(fraction=1, shuffle=True, seed=0)
    assert_frame_equal(scored(shuffled), scored(answers))


@pytest.mark.slow
def test_score_fresh_folder_expands_the_prompts_itself(
    answers: pl.DataFrame, scored: Scored, tmp_path: Path
) -> None:
    elsewhere = scored(answers, "parquet", f"artifacts={tmp_path}/fresh")
    assert_frame_equal(elsewhere, scored(answers))


def test_score_missing_answers_count_as_failed(answers: pl.DataFrame, scored: Scored) -> None:
    alone = answers.filter(pl.col("prompt_id").str.starts_with("P30"))
    metrics = scored(alone[3:]).filter(pl.col("slice").is_null())
    assert metrics.filter(metric="acc_at_1").select("n", "n_failed").row(0) == (33, 39)


def test_score_too_many_missing_answers_say_so(answers: pl.DataFrame, scored: Scored) -> None:
    with pytest.raises(DecodingError, match=naming("72 prompts", "=0.05")):
        scored(answers.sort("prompt_id")[7:], "parquet", "decoding.max_failed_share=0.05")


def test_score_missing_answer_is_an_error_row_and_a_duplicate_is_not(
    finished: Plan, answers: pl.DataFrame, scored: Scored
) -> None:
    scored(answers[1:])
    folder = Path(finished.run.artifacts) / "admitted"
    paths = [
        p
        for p in folder.rglob("P*.parquet")
        if finished.branches[0].admitted.fingerprint not in str(p)
    ]
    errors = pl.concat([pl.read_parquet(path) for path in paths])
    assert errors.select("prompt_id", "reason").rows() == [
        (answers["prompt_id"][0], "no_answer_given")
    ]


def test_score_prompt_with_an_answer_of_its_own_counts_once(
    finished: Plan, answers: pl.DataFrame, scored: Scored
) -> None:
    duplicates = finished.branches[0].prompts.read_all("prompts").drop_nulls("same_as")
    own = duplicates.select("prompt_id", text=pl.lit("nothing of the kind"))
    assert own.height
    metrics = scored(pl.concat([answers, own])).filter(pl.col("slice").is_null())
    asked = answers.height + own.height
    assert metrics.filter(metric="acc_at_1").select("n", "n_failed").row(0) == (asked, 0)


@pytest.mark.slow
def test_score_other_answers_replace_nothing(answers: pl.DataFrame, scored: Scored) -> None:
    first = scored(answers)
    wrong = scored(answers.with_columns(text=pl.lit("nothing of the kind")))
    assert wrong.filter(metric="acc_at_1")["value"].to_list() == [0.0] * 3
    assert_frame_equal(scored(answers), first)


def test_score_columns_may_have_capitals_blanks_and_categories(
    answers: pl.DataFrame, scored: Scored
) -> None:
    categories = answers.with_columns(pl.col("prompt_id", "text").cast(pl.Categorical))
    respelled = categories.rename(lambda name: f" {name.upper()}")
    assert_frame_equal(scored(respelled), scored(answers))


def test_score_texts_of_which_nothing_is_left_are_counted(
    answers: pl.DataFrame, scored: Scored, caplog: pytest.LogCaptureFixture
) -> None:
    scored(answers.with_columns(text="\n" + pl.col("text")))
    n = answers["text"].str.contains(r"\S").sum()
    assert f"{n} of {answers.height} given texts begin with a stop" in caplog.text


def test_score_further_columns_are_let_be(answers: pl.DataFrame, scored: Scored) -> None:
    more = answers.with_row_index("row").with_columns(same_as=pl.lit("x"), index=1)
    assert_frame_equal(scored(more), scored(answers))


PROBLEMS = {
    "its text is null": pl.when(pl.col("prompt_id") != "P30.Q3.000.0").then("text").alias("text"),
    "it is no prompt of this benchmark": pl.col("prompt_id").replace("P30.Q3.000.0", "P30.Q3"),
    "it is no prompt of": pl.col("prompt_id").replace("P30.Q3.000.0", None),
    "its prompt_id stands twice": pl.col("prompt_id").replace("P30.Q3.000.0", "P30.Q0.000.0"),
}


@pytest.mark.parametrize("suffix", ["parquet", "jsonl"])
@pytest.mark.parametrize(("problem", "change"), PROBLEMS.items(), ids=PROBLEMS)
def test_score_unfit_row_names_file_and_row(
    answers: pl.DataFrame, scored: Scored, problem: str, change: pl.Expr, suffix: str
) -> None:
    ordered = answers.sort("prompt_id")
    row = ordered["prompt_id"].index_of("P30.Q3.000.0")
    with pytest.raises(InputError, match=rf"answers\.{suffix}, row {row} .*: {problem}"):
        scored(ordered.with_columns(change), suffix)


@pytest.mark.parametrize("column", ["prompt_id", "text"])
@pytest.mark.parametrize("found", ["nothing", "Int32"])
def test_score_unfit_column_names_file_and_column(
    answers: pl.DataFrame, scored: Scored, column: str, found: str
) -> None:
    number = pl.lit(1, pl.Int32).alias(column)
    changed = answers.drop(column) if found == "nothing" else answers.with_columns(number)
    expected = rf"answers\.parquet: column {column} must be text, found {found}"
    with pytest.raises(InputError, match=expected):
        scored(changed)


def test_score_answers_that_changed_since_the_plan_are_refused(
    small_settings: Settings, answers: pl.DataFrame, tmp_path: Path
) -> None:
    path = tmp_path / "answers.parquet"
    answers.write_parquet(path)
    (branch,) = planned(small_settings(f"answers={path}")).branches
    answers.with_columns(text=pl.lit("Paris")).write_parquet(path)
    with pytest.raises(InputError, match=naming("answers.parquet")):
        branch.step(branch.answers).run()
    assert branch.answers.published("generations") == []


def test_score_other_seed_does_not_fit_the_answers(answers: pl.DataFrame, scored: Scored) -> None:
    with pytest.raises(InputError, match=naming("prompt", "benchmark")):
        scored(answers, "parquet", "benchmark.relations=[P36]")


def test_score_no_answers_file_says_what_it_needs(small_settings: Settings) -> None:
    with pytest.raises(InputError, match=naming("answers=<a", "JSONL")):
        score(small_settings())


def test_score_file_without_answers_is_named(answers: pl.DataFrame, scored: Scored) -> None:
    with pytest.raises(InputError, match=naming("answers.parquet", "give")):
        scored(answers.clear())


def test_score_answers_file_not_there_is_named(small_settings: Settings) -> None:
    with pytest.raises(InputError, match=naming("answers=/nowhere")):
        score(small_settings("answers=/nowhere"))


def test_score_several_settings_are_refused(small_settings: Settings, tmp_path: Path) -> None:
    run = small_settings(f"answers={tmp_path}", "sweep.prompts=[zero-shot,4-template]")
    with pytest.raises(InputError, match=naming("score", "measures")):
        score(run)


@pytest.mark.parametrize("name", ["answers.parquet", "answers.jsonl"])
def test_score_damaged_answers_file_is_named(
    small_settings: Settings, tmp_path: Path, name: str
) -> None:
    (tmp_path / name).write_text("{}neither one nor the other")
    with pytest.raises(DamagedFileError, match=naming(name)):
        score(small_settings(f"answers={tmp_path}/{name}"))


def test_score_line_that_is_no_json_far_down_names_the_file(
    answers: pl.DataFrame, small_settings: Settings, tmp_path: Path
) -> None:
    path = tmp_path / "answers.jsonl"
    lines = [f'{{"prompt_id": "P{number}", "text": "x"}}\n' for number in range(20_000)]
    path.write_text("".join([*lines, '{"prompt_id": "half', *lines]))
    with pytest.raises(InputError, match=naming("answers.jsonl")):
        score(small_settings(f"answers={path}"))


def test_score_of_a_budget_estimates_as_a_run_of_it_does(
    finished: Plan,
    answers: pl.DataFrame,
    small_settings: Settings,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def asks(plan: Plan) -> None:
        raise AssertionError(f"{plan.run.name} asks an engine")

    monkeypatch.setattr(estimating, "compute", asks)
    path = tmp_path / "answers.parquet"
    answers.write_parquet(path)
    budget = ("budget=60%", f"artifacts={finished.run.artifacts}")
    given, asked = (
        estimating.estimate(small_settings(*budget, *more))
        for more in ([f"answers={path}"], GREEDY)
    )
    assert given["share"].unique().to_list() == [pytest.approx(0.58, abs=0.01)]
    assert_frame_equal(given, asked)


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["budget=5%", "answers=missing.jsonl"], "answers=missing.jsonl is no file"),
        (
            ["budget=5%", "answers=missing.jsonl", "sweep.prompts=[zero-shot,4-template]"],
            "one sett",
        ),
    ],
)
def test_estimate_from_answers_that_cannot_be_measured_is_refused(
    small_settings: Settings, words: list[str], why: str
) -> None:
    with pytest.raises(InputError, match=why):
        estimating.estimate(small_settings(*words))


def test_estimate_of_all_prompts_leaves_those_without_an_answer_out(
    answers: pl.DataFrame, scored: Scored, small_settings: Settings, tmp_path: Path
) -> None:
    some = answers.sort("prompt_id")[7:]
    full = scored(some).filter(pl.col("slice").is_null(), pl.col("variant").is_null())
    known = dict(full.select("metric", "value").iter_rows())
    whole = small_settings(f"answers={tmp_path}/answers.parquet", "budget=100%")
    found = {row["metric"]: row for row in estimating.estimate(whole).to_dicts()}
    names = ("acc_at_1", "one_word_ratio", "consist")
    for name in names:
        row = found[name]
        assert row["share"] == 1
        assert row["full_low"] == row["full_high"] == row["value"] == pytest.approx(known[name])
