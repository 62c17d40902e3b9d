"""What a reader must know: said by the run, on its page and in reports."""

import base64
import gzip
import json
import logging
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from statistics import mean
from typing import Any

import polars as pl
import pytest

import factsweep
from factsweep.operators.engines.fake import FakeEngine
from factsweep.operators.engines.protocol import Completion, RefusedRequest, Request
from factsweep.operators.errors import DecodingError
from factsweep.pipeline.results.past_runs import branches
from factsweep.pipeline.results.report import report
from factsweep.pipeline.results.run_warnings import (
    PLACES,
    find_leaks,
    warn_of_equal_answers,
    warn_of_leaks,
)
from factsweep.pipeline.runs import run as running
from factsweep.pipeline.stages.plan import build_plan
from tests.messages import naming
from tests.pipeline.conftest import Settings
from tests.pipeline.here import make_here


class Says(FakeEngine):
    """Answers each prompt alike."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self._text = text

    def _complete(self, request: Request, _index: int) -> Completion:
        logprob = 0.0 if request.sampling.logprobs else None
        return Completion(self._text, 1, logprob, "stop")


class Filtered(FakeEngine):
    """Refuses every tenth prompt, as a server's filter would."""

    def answers(self, requests: Iterable[Request]) -> Iterator[Any]:
        for n, answer in enumerate(super().answers(requests)):
            yield answer if n % 10 else RefusedRequest(answer.request_id, "content_filter", "no")


def test_alike_tells_what_most_answers_have_in_common(subtests: pytest.Subtests) -> None:
    cases = {
        "thoughts that a server opened": (
            ["Hm</think>Oslo"] * 2 + [f"a{i}" for i in range(30)],
            "2 of 32 .* begin with a thought",
        ),
        "thoughts": (["<think>\nHm"] * 2 + [f"a{i}" for i in range(30)], "2 of 32 .* '<think> Hm'"),
        "empty": ([""] * 11 + [f"a{i}" for i in range(9)], "11 of 20 answers are empty"),
        "alike": (["Yes."] * 11 + [f"a{i}" for i in range(9)], "11 of 20 .* same: 'Yes.'"),
        "half of them": ([""] * 10 + [f"a{i}" for i in range(10)], None),
        "few": ([""] * 19, None),
        "none": ([], None),
    }
    for case, (texts, words) in cases.items():
        with subtests.test(case):
            answers = pl.DataFrame({"text": texts}, schema={"text": pl.String})
            sentences = list(
                warn_of_equal_answers(answers.with_columns(finish_reason=pl.lit("stop")))
            )
            assert len(sentences) == (words is not None)
            assert words is None or pl.Series(sentences).str.contains(words).all()


def test_alike_tells_that_most_answers_were_cut() -> None:
    texts = [f"a{i}" for i in range(20)]
    for n_cut, n_said in ((10, 0), (11, 1)):
        ends = ["length"] * n_cut + ["stop"] * (20 - n_cut)
        lines = list(warn_of_equal_answers(pl.DataFrame({"text": texts, "finish_reason": ends})))
        assert len(lines) == n_said
        assert all(re.search(naming("11 of 20", "decoding.max_tokens", "'a0'"), e) for e in lines)


def test_run_says_why_prompts_have_no_answer(
    small_settings: Settings, caplog: pytest.LogCaptureFixture
) -> None:
    run = small_settings("decoding.samples.n_prompts=0", "decoding.max_failed_share=1")
    with caplog.at_level(logging.WARNING):
        running.measure_run(run, lambda plan: make_here(plan, Filtered()))
    strict = build_plan(small_settings("decoding.samples.n_prompts=0"))
    pattern = f"in [^ ]*{strict.branches[0].answers.folder}/errors[.]"
    with pytest.raises(DecodingError, match=pattern):
        running.check_failed(strict)
    page = Path(run.results, run.name, "index.html").read_text()
    logged = "\n".join(log_record.getMessage() for log_record in caplog.records)
    for text in (page, logged):
        assert re.search(naming("10 prompts", "content_filter 10"), text)


def test_run_of_thoughts_says_so_in_its_log_on_its_page_and_in_a_report(
    small_settings: Settings, caplog: pytest.LogCaptureFixture
) -> None:
    engine = Says("<think>\nThe user asks for a city.")
    run = small_settings()
    with caplog.at_level(logging.WARNING):
        running.measure_run(run, lambda plan: make_here(plan, engine))
    words = "begin with a thought"
    assert any(words in log_record.getMessage() for log_record in caplog.records)
    assert words in Path(run.results, run.name, "index.html").read_text()
    assert any(words in line for line in report([run.name], run.results, f"{run.results}/report"))


@pytest.mark.slow
def test_page_of_a_model_that_thinks_shows_each_thought_beside_its_prompt(
    small_settings: Settings, tmp_path: Path
) -> None:
    template = tmp_path / "opens.jinja"
    template.write_text("{{ messages[0]['content'] }}{% if enable_thinking %}<think>{% endif %}")
    run = small_settings(f"model.chat_template={template}", "model.thinking=on")
    running.measure_run(run, make_here)
    page = Path(run.results, run.name, "index.html").read_text()
    (payload,) = re.findall(r'id="payload">([^<]+)<', page)
    facts = json.loads(gzip.decompress(base64.b64decode(payload)))["facts"]
    examples = [
        example for fact in facts for setting in fact[3] if setting for example in setting[3]
    ]
    assert all(re.fullmatch(r"\d+ is a number", example[6]) for example in examples)
    assert len(examples) > 20


def _place(prompt: str, labels: list[str]) -> str:
    """Where an answer stands, by the lines of a prompt."""
    *lines, question, _ = prompt.split("\n")
    answers = [line.removeprefix("A: ").rstrip(".") for line in lines if line.startswith("A: ")]
    if set(answers) & set(labels):
        return PLACES[0]
    return PLACES[1] if any(f" {label} " in f" {question} " for label in labels) else PLACES[2]


@pytest.mark.parametrize("prompt", ["zero-shot", "4-template"])
def test_leaks_are_those_of_a_loop_over_texts(small_settings: Settings, prompt: str) -> None:
    run = small_settings(f"prompt={prompt}")
    running.measure_run(run, make_here)
    loaded = factsweep.load(f"{run.results}/{run.name}")
    by_place: dict[str, dict[str, list[bool]]] = {}
    for row in loaded.answers().iter_rows(named=True):
        facts = loaded.facts.pairs.filter(pair_id=row["pair_id"])["objects"].item()
        place = _place(row["prompt"], [label for line in facts for label in line["labels"]])
        by_place.setdefault(place, {}).setdefault(row["pair_id"], []).append(row["correct"])
    leaking = find_leaks(branches(run.results, [run.name]))
    if set(by_place) == {PLACES[-1]}:
        assert leaking.is_empty()
        assert "leaks" not in loaded.tables
        return
    expected = {
        place: (sum(map(len, pairs.values())), mean(map(mean, pairs.values())))
        for place, pairs in by_place.items()
    }
    measured = {
        place: (n, value) for place, n, value in leaking.select("place", "n", "value").iter_rows()
    }
    assert measured.keys() == expected.keys()
    for place, (n, value) in expected.items():
        assert measured[place] == (n, pytest.approx(value))
    page = Path(run.results, run.name, "index.html").read_text()
    n_leaking = sum(n for place, (n, _) in expected.items() if place != PLACES[-1])
    lines = list(warn_of_leaks(leaking))
    assert len(lines) == (n_leaking > sum(n for n, _ in expected.values()) / 10)
    assert all(f"{n_leaking:,} of" in line and line[:40] in page for line in lines)
    assert pl.read_csv(Path(run.results, run.name, "tables/leaks.csv")).height == leaking.height
