"""Open questions from a user's file to the tables of a run."""

import json
from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest

from factsweep.operators.errors import InputError
from factsweep.operators.methods import METHODS
from factsweep.operators.methods.method import Part
from factsweep.pipeline.cli import main
from factsweep.pipeline.config.run import Run
from factsweep.pipeline.config.settings import load
from factsweep.pipeline.runs.run import score
from factsweep.pipeline.stages import facts as facts_stage
from factsweep.pipeline.stages.plan import build_plan
from tests.builders import frame, refused
from tests.messages import naming

QUESTIONS = [
    ("Where was Ada born?", ["Paris"], ["In which city was Ada born?"], "Place", 1),
    ("When did it end?", ["20 July 1969"], [], "Date", 2),
    ("Who wrote it?", ["William Shakespeare", "the Bard"], [], "Person", 3),
    ("Who sang it?", ["Ann Lee"], [], "Person", 4),
]
ANSWERS = {
    "questions.000000.000.0": "Paris",
    "questions.000000.000.1": "Lyon",
    "questions.000001.000.0": "July 20, 1969",
    "questions.000002.000.0": "Answer: I don't know.",
    "questions.000003.000.0": "Bob Dylan\nAnn Lee",
}
Settings = Callable[..., Run]


@pytest.fixture
def settings(tmp_path: Path, make_model: Callable[[str], Path]) -> Settings:
    """Loads a run on four questions of one's own, of which one has two wordings."""
    path = tmp_path / "mine.jsonl"
    names = ("question", "answers", "wordings", "answer_type", "popularity")
    rows = (json.dumps(dict(zip(names, row, strict=True))) for row in QUESTIONS)
    path.write_text("\n".join(rows))
    overrides = [
        "model.source=path",
        "model.name=tiny",
        f"model.id={make_model('tiny')}",
        f"benchmark.path={path}",
        "decoding.engine=fake",
        "metrics.n_draws=100",
        "metrics.n_rounds=20",
        f"artifacts={tmp_path}/artifacts",
        f"results={tmp_path}/results",
    ]
    return lambda *more: load([*overrides, *more])


def shares(metrics: pl.DataFrame, names: list[str]) -> list[float]:
    """Some metrics over everything, of the default grader."""
    overall = metrics.filter(pl.col("slice").is_null(), pl.col("variant").is_null())
    value_by_name = dict(overall.select("metric", "value").iter_rows())
    return [round(value_by_name[name], 4) for name in names]


def test_open_questions_planted_answers_give_the_planted_states(
    settings: Settings, tmp_path: Path
) -> None:
    path = tmp_path / "answers.jsonl"
    rows = (json.dumps({"prompt_id": name, "text": text}) for name, text in ANSWERS.items())
    path.write_text("\n".join(rows))
    metrics = score(settings(f"answers={path}"))
    names = ["correct", "incorrect", "not_attempted", "exact_match", "acc_at_1", "consist"]
    # Of the first question one wording is right; the fourth's first line is wrong.
    assert shares(metrics, names) == [0.375, 0.375, 0.25, 0.125, 0.375, 0]
    by_type = metrics.filter(metric="correct", slice="answer_type=Person")
    assert by_type.filter(pl.col("variant").is_null())["value"].to_list() == [0]
    tables = {path.name for path in (tmp_path / "results").rglob("*.csv")}
    assert {"headline.csv", "parts.csv"} <= tables


def test_open_questions_a_run_asks_each_wording_and_samples(
    settings: Settings, compute_here: Callable[..., object]
) -> None:
    run = settings("prompt=questions-5-shot", "prompt.shots=2")
    compute_here(run)
    (branch,) = build_plan(run).branches
    contexts = branch.prompts.read_all("contexts")["text"]
    assert contexts.str.starts_with("Answer each question with a few words.\nQ: ").all()
    assert contexts.str.count_matches("\nA: ").unique().to_list() == [2]
    assert branch.prompts.read_all("prompts").height == 5
    metrics = branch.metrics.read_all("metrics")["metric"].unique()
    assert {"correct", "f1_attempted", "pass_at_2", "ovconf", "consist"} <= {*metrics}


def test_open_questions_with_unequal_wordings_have_no_draw_of_a_wording(
    settings: Settings, compute_here: Callable[..., object]
) -> None:
    run = settings()
    compute_here(run)
    metrics = build_plan(run).branches[0].metrics.read_all("metrics")
    draws = metrics.filter(pl.col("metric").str.starts_with("fluctuation_"))
    assert draws["variant"].unique().to_list() == ["draw=pair"]
    assert not metrics["metric"].str.starts_with("template_spread").any()


def test_open_questions_are_estimated_from_a_part(settings: Settings) -> None:
    run = settings()
    rights = {"000000.000": True, "000000.001": False, "000001.000": True, "000003.000": False}
    rows = [
        (
            f"{name}.0",
            "questions",
            f"questions.{name[:6]}",
            f"questions.{name[7:]}",
            0,
            "a",
            1,
            right,
        )
        for name, right in rights.items()
    ]
    sizes = {"questions.000000": 2, "questions.000001": 1, "questions.000003": 1}
    pairs = pl.DataFrame(
        [("questions", pair, n, 1, 0) for pair, n in sizes.items()],
        ["relation_id", "pair_id", "n_names", "n_templates", "n_failed"],
        orient="row",
    )
    facts = facts_stage.read(run.benchmark)
    template_id = pl.format("questions.{}", "template_id")
    answers = frame("answers", *rows).with_columns(template_id=template_id)
    part = Part(facts, run.settings[0], answers, pairs, run.metrics, seed=1)
    sampling = METHODS["qa"].measure.sampling
    assert sampling is not None
    estimates = sampling.estimate(part)
    assert estimates.filter(metric="acc_at_1")["value"].item() == pytest.approx(0.5)


def test_open_questions_instruction_is_the_users(settings: Settings) -> None:
    (setting,) = settings("prompt.instruct=Be brief.").settings
    assert (setting.instruction, setting.variant) == ("Be brief.\n", "instruct=Be brief.")
    (setting,) = settings("prompt.instruct=''").settings
    assert setting.instruction == ""


def test_open_questions_refusals_are_those_of_the_language(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "ich weiß nicht" in settings("benchmark.language=de").matching.refusals
    assert "i don't know" in settings().matching.refusals
    own = tmp_path / "own"
    (own / "language").mkdir(parents=True)
    words = {"mask": "M", "question": "Q", "asks": "K: ", "answers": "V:"}
    (own / "language" / "fi.yaml").write_text(json.dumps(words))
    monkeypatch.setenv("FACTSWEEP_CONFIG_DIR", str(own))
    with pytest.raises(InputError, match=naming("language=fi", "refusals", "fi.yaml")):
        settings("benchmark.language=fi")
    (own / "refusals").mkdir()
    (own / "refusals" / "fi.yaml").write_text('["en tiedä"]')
    assert settings("benchmark.language=fi").matching.refusals == ("en tiedä",)


def test_open_questions_with_joined_answers_are_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "joined.csv"
    path.write_text(
        "question,answer,aliases,wordings\nWho?,Bo,,Which one?|Who is it?\n"
        'Where?,"Paris; Paris, France",A | B,\nWhen?,AC/DC,"[""x; y""]",\n'
    )
    assert main(["plan", f"benchmark.path={path}", "decoding.engine=fake"]) == 0
    printed = " ".join(capsys.readouterr())
    assert "joined.csv: 2 cells seem to hold several answers (row 1: answer 'Paris; P" in printed
    assert 'write a list, such as ["Paris", "Paris, France"].' in printed
    assert "1 cell seems to hold several wordings (row 0: wordings 'Which one?|Who" in printed


def test_open_questions_with_other_answers_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "twice.jsonl"
    rows = ({"question": "Who?", "answer": answer} for answer in "AB")
    path.write_text("\n".join(map(json.dumps, rows)))
    message = refused(capsys, "plan", f"benchmark.path={path}", "decoding.engine=fake")
    assert "twice.jsonl" in message
    assert "row 1" in message
