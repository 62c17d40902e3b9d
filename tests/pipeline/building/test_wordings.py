"""Wordings of questions: from a table and a server on 127.0.0.1 to the numbers of a run."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from factsweep.operators.datasets.questions import facts_from_tables
from factsweep.pipeline.cli import main
from factsweep.pipeline.config.settings import load
from factsweep.pipeline.inputs import catalog
from factsweep.pipeline.stages.plan import build_plan
from tests.builders import refused
from tests.chat_server import ChatServer, Said, completion, serving
from tests.described import check_described

POPQA = (
    ["id", "subj", "prop", "question", "possible_answers", "s_pop"],
    ["7", "Ada Rose", "city", "Where does Ada Rose live?", '["Paris", "Paname"]', "0"],
    ["8", "Bo Lee", "job", "What is Bo Lee's job?", '["barber"]', "12"],
)
# Two of four are fit; the last is more than were asked for.
PROPOSALS = """\
1. In which city does {subject} live?
2. Does {subject} live in Paris, or is he a barber?
3. in which city does {subject} live
4. Where is {subject}?
5. Where might {subject} be?"""


@pytest.fixture
def questions(tmp_path: Path) -> Path:
    """Two questions, as PopQA publishes them."""
    path = tmp_path / "test.tsv"
    path.write_text("\n".join(map("\t".join, POPQA)) + "\n")
    return path


def answer(request: dict[str, Any]) -> Said:
    question = request["messages"][-1]["content"].splitlines()[-1]
    subject = "Ada Rose" if "Ada" in question else "Bo Lee"
    return 200, completion(PROPOSALS.format(subject=subject))


@pytest.fixture
def server() -> Iterator[ChatServer]:
    """Answers with wordings."""
    with serving(answer) as chat_server:
        yield chat_server


def build(questions: Path, server: ChatServer, *more: str) -> list[str]:
    out = str(questions.with_name("more.jsonl"))
    model = ["--endpoint", server.url, "--model", "m", "--n", "2"]
    return ["build", "wordings", str(questions), "--out", out, *model, *more]


def test_wordings_are_checked_counted_and_part_of_a_run(
    questions: Path,
    server: ChatServer,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    make_model: Callable[[str], Path],
    compute_here: Callable[..., object],
) -> None:
    assert main(build(questions, server)) == 0
    printed = capsys.readouterr().out
    assert "2 questions, 4 new wordings" in printed
    assert "  2 wordings dropped: names a right answer" in printed
    assert "  2 wordings dropped: no question mark at the end" in printed
    out = tmp_path / "more.jsonl"
    check_described(tmp_path, "more.croissant.json")
    data = catalog.list_files(catalog.entry("questions"), str(tmp_path))
    descriptions = {tmp_path / f"more.{name}" for name in ("README.md", "croissant.json")}
    assert {out, questions} <= {*data} - descriptions == {*data}
    assert server.url not in (tmp_path / "more.README.md").read_text()
    first = json.loads(out.read_text().splitlines()[0])
    assert first == {
        "question": "Where does Ada Rose live?",
        "answers": ["Paris", "Paname"],
        "wordings": ["In which city does Ada Rose live?", "Where is Ada Rose?"],
        "relation": "city",
        "id": "7",
        "popularity": 0,
        "subject": "Ada Rose",
    }
    old, new = (
        facts_from_tables({"t": pl.read_csv(questions, separator="\t", infer_schema=False)}, None),
        facts_from_tables({"t": pl.read_ndjson(out)}, None),
    )
    assert new.pairs.drop("subjects").equals(old.pairs.drop("subjects"))
    run = load(
        [
            *("model.source=path", "model.name=tiny", f"model.id={make_model('tiny')}"),
            *(f"benchmark.path={out}", "decoding.engine=fake", "metrics.n_rounds=20"),
            *(f"artifacts={tmp_path}/artifacts", f"results={tmp_path}/results"),
        ]
    )
    compute_here(run)
    metrics = build_plan(run).branches[0].metrics.read_all("metrics")
    overall = metrics.filter(pl.col("slice").is_null(), pl.col("variant").is_null())
    names = {"acc_at_1", "consist", "fluctuation_range", "fluctuation_sd"}
    assert names <= {*overall.drop_nulls("value")["metric"]}


def test_wordings_of_a_model_that_dies_resume_without_asking_twice(
    questions: Path, server: ChatServer, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(request: dict[str, Any]) -> Said:
        return answer(request) if "Ada" in str(request) else (401, {"error": {"message": "no"}})

    server.answer = fail
    assert main(build(questions, server)) == 2
    assert "the same command resumes from there" in capsys.readouterr().err
    assert not questions.with_name("more.jsonl").exists()
    server.answer = answer
    server.requests.clear()
    assert main(build(questions, server)) == 0
    assert ["Bo Lee" in str(request) for request in server.requests] == [True]


def test_wordings_that_are_too_few_are_asked_again_and_said(
    questions: Path, server: ChatServer, capsys: pytest.CaptureFixture[str]
) -> None:
    server.answer = lambda _: (200, completion("1. Where does Ada Rose live?"))
    assert main(build(questions, server, "--rounds", "2")) == 0
    printed = capsys.readouterr().out
    assert "  2 wordings dropped: a repetition" in printed
    assert "  2 wordings dropped: lacks the subject or a name" in printed
    assert "  2 questions with fewer than 2 further wordings" in printed
    assert len(server.requests) == 4


def test_wordings_of_bad_input_are_refused(
    questions: Path, server: ChatServer, capsys: pytest.CaptureFixture[str]
) -> None:
    nowhere = questions.with_name("nosuch.tsv")
    assert "nosuch.tsv" in refused(capsys, *build(nowhere, server))
    questions.with_name("more.jsonl").touch()
    assert "more.jsonl" in refused(capsys, *build(questions, server))
    assert "--model" in refused(capsys, *build(questions, server)[:5])
    questions.with_name("more.jsonl").unlink()
    assert "no set of questions" in refused(capsys, *build(Path("kamel-mini"), server))
    assert not server.requests
