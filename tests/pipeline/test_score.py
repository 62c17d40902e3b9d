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
from factsweep.pipeline.stages.plan import Plan, build_plan
from tests.builders import select_given_metrics
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
    expected = finished.branches[0].metrics.read_all("metrics")
    metrics = scored(answers, suffix)
    assert metrics.height > 10
    assert_frame_equal(metrics, select_given_metrics(expected))


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


def test_score_of_the_same_answers_in_other_files_gives_the_same_numbers(
    answers: pl.DataFrame, scored: Scored, tmp_path: Path, subtests: pytest.Subtests
) -> None:
    """In any order, with other columns, in a fresh folder, and after other answers."""
    metrics = scored(answers)
    wrong = scored(answers.with_columns(text=pl.lit("nothing of the kind")))
    assert wrong.filter(metric="acc_at_1")["value"].to_list() == [0.0] * 3
    categories = answers.with_columns(pl.col("prompt_id", "text").cast(pl.Categorical))
    tables = {
        "shuffled": answers.sample(fraction=1, shuffle=True, seed=0),
        "capitals, blanks and categories": categories.rename(lambda name: f" {name.upper()}"),
        "further columns": answers.with_row_index("row").with_columns(same_as=pl.lit("x"), index=1),
    }
    for kind, table in tables.items():
        with subtests.test(kind):
            assert_frame_equal(scored(table), metrics)
    assert_frame_equal(scored(answers, "parquet", f"artifacts={tmp_path}/fresh"), metrics)


def test_score_missing_answers_count_as_failed(answers: pl.DataFrame, scored: Scored) -> None:
    of_relation = answers.filter(pl.col("prompt_id").str.starts_with("P30"))
    metrics = scored(of_relation[3:]).filter(pl.col("slice").is_null())
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
    own_answers = duplicates.select("prompt_id", text=pl.lit("nothing of the kind"))
    assert own_answers.height
    metrics = scored(pl.concat([answers, own_answers])).filter(pl.col("slice").is_null())
    n_asked = answers.height + own_answers.height
    assert metrics.filter(metric="acc_at_1").select("n", "n_failed").row(0) == (n_asked, 0)


def test_score_texts_of_which_nothing_is_left_are_counted(
    answers: pl.DataFrame, scored: Scored, caplog: pytest.LogCaptureFixture
) -> None:
    scored(answers.with_columns(text="\n" + pl.col("text")))
    n = answers["text"].str.contains(r"\S").sum()
    assert f"{n} of {answers.height} given texts begin with a stop" in caplog.text


def test_score_answers_that_do_not_fit_are_refused_by_file_and_row_or_column(
    answers: pl.DataFrame, scored: Scored, subtests: pytest.Subtests
) -> None:
    rows, prompt_id = answers.sort("prompt_id"), "P30.Q3.000.0"
    row, number = rows["prompt_id"].index_of(prompt_id), pl.lit(1, pl.Int32)
    is_own = pl.col("prompt_id") == prompt_id
    in_row = {
        "its text is null": pl.when(~is_own).then("text").alias("text"),
        "it is no prompt of this benchmark": pl.col("prompt_id").replace(prompt_id, "P30.Q3"),
        "it is no prompt of": pl.col("prompt_id").replace(prompt_id, None),
        "its prompt_id stands twice": pl.col("prompt_id").replace(prompt_id, "P30.Q0.000.0"),
    }
    cases = [
        (rows.with_columns(change), suffix, rf"answers\.{suffix}, row {row} .*: {problem}")
        for problem, change in in_row.items()
        for suffix in ("parquet", "jsonl")
    ]
    for name in ("prompt_id", "text"):
        problem = rf"answers\.parquet: column {name} must be text, found "
        cases.append((answers.drop(name), "parquet", f"{problem}nothing"))
        cases.append((answers.with_columns(number.alias(name)), "parquet", f"{problem}Int32"))
    cases.append((answers.clear(), "parquet", naming("answers.parquet", "give")))
    for table, suffix, problem in cases:
        with subtests.test(problem), pytest.raises(InputError, match=problem):
            scored(table, suffix)
    with pytest.raises(InputError, match=naming("prompt", "benchmark")):
        scored(answers, "parquet", "benchmark.relations=[P36]")


def test_score_file_that_cannot_be_read_is_named_with_its_line(
    answers: pl.DataFrame, small_settings: Settings, tmp_path: Path, subtests: pytest.Subtests
) -> None:
    lines = [f"{line}\n" for line in answers.write_ndjson().splitlines()]
    line_start = lines[2].partition('"text"')[0]
    values = (
        '"text": ["Paris"]}',
        '"text": {"answer": "Paris"}}',
        '"text": 1949}',
        '"text": "Par\\ud800s"}',
        '"text": "Paris", "text": "Rome"}',
    )
    far = [f'{{"prompt_id": "P{number}", "text": "x"}}\n' for number in range(20_000)]
    cases: list[tuple[str, list[str], type[InputError], str]] = [
        ("answers.jsonl", [*far, '{"prompt_id": "half', *far], InputError, naming("answers.jsonl")),
        ("answers.jsonl", ["{}neither"], DamagedFileError, naming("answers.jsonl")),
        ("answers.parquet", ["{}neither"], DamagedFileError, naming("answers.parquet")),
    ]
    for value in values:
        text = [*lines[:2], f"{line_start}{value}\n", *lines[3:]]
        problem = r"answers\.jsonl, line 3: .*(text|ud800)"
        cases.append(("answers.jsonl", text, InputError, problem))
    for name, content, error, problem in cases:
        (tmp_path / name).write_text("".join(content))
        with subtests.test(content[-1][:20], name=name), pytest.raises(error, match=problem):
            score(small_settings(f"answers={tmp_path}/{name}"))


def test_score_and_estimate_refuse_what_cannot_be_measured(
    small_settings: Settings, tmp_path: Path, subtests: pytest.Subtests
) -> None:
    several = "sweep.prompts=[zero-shot,4-template]"
    for verb, overrides, words in (
        (score, (), ("answers=<a", "JSONL")),
        (score, ("answers=/nowhere",), ("answers=/nowhere",)),
        (score, (f"answers={tmp_path}", several), ("score", "measures")),
        (estimating.estimate, ("budget=5%", "answers=a.jsonl"), ("answers=a.jsonl is no file",)),
        (estimating.estimate, ("budget=5%", "answers=a.jsonl", several), ("one sett",)),
    ):
        with subtests.test(overrides=overrides), pytest.raises(InputError, match=naming(*words)):
            verb(small_settings(*overrides))


def test_score_answers_that_changed_since_the_plan_are_refused(
    small_settings: Settings, answers: pl.DataFrame, tmp_path: Path
) -> None:
    path = tmp_path / "answers.parquet"
    answers.write_parquet(path)
    (branch,) = build_plan(small_settings(f"answers={path}")).branches
    answers.with_columns(text=pl.lit("Paris")).write_parquet(path)
    with pytest.raises(InputError, match=naming("answers.parquet")):
        branch.step(branch.answers).run()
    assert branch.answers.list_published("generations") == []


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
    estimate_given, estimate_asked = (
        estimating.estimate(small_settings(*budget, *overrides))
        for overrides in ([f"answers={path}"], GREEDY)
    )
    assert estimate_given["share"].unique().to_list() == [pytest.approx(0.58, abs=0.01)]
    assert_frame_equal(estimate_given, estimate_asked)


def test_estimate_of_all_prompts_leaves_those_without_an_answer_out(
    answers: pl.DataFrame, scored: Scored, small_settings: Settings, tmp_path: Path
) -> None:
    some = answers.sort("prompt_id")[7:]
    full = scored(some).filter(pl.col("slice").is_null(), pl.col("variant").is_null())
    values = dict(full.select("metric", "value").iter_rows())
    settings = small_settings(f"answers={tmp_path}/answers.parquet", "budget=100%")
    rows = {row["metric"]: row for row in estimating.estimate(settings).to_dicts()}
    names = ("acc_at_1", "one_word_ratio", "consist")
    for name in names:
        row = rows[name]
        assert row["share"] == 1
        assert row["full_low"] == row["full_high"] == row["value"] == pytest.approx(values[name])
