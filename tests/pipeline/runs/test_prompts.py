"""prompts: written out for any system, answered, and scored; other answers are refused."""

import json
import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from polars.testing import assert_frame_equal

import factsweep
from factsweep.operators.engines.endpoint import openai_batch
from factsweep.operators.errors import InputError
from factsweep.operators.prompts.chat import turns
from factsweep.pipeline.cli import main
from factsweep.pipeline.config.run import Run
from factsweep.pipeline.config.settings import load
from factsweep.pipeline.runs.prompts import write
from factsweep.pipeline.runs.run import score
from factsweep.pipeline.stages.expand import with_text
from factsweep.pipeline.stages.plan import build_plan
from factsweep.pipeline.storage.artifact import Artifact
from tests.builders import select_given_metrics
from tests.messages import naming

pytestmark = pytest.mark.usefixtures("plain")
Settings = Callable[..., Run]
SETTING = "prompt=4-template"
CHAT = ("model.chat_template=true", "prompt.as=turns")


@pytest.fixture(scope="module")
def store(_finished_once: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The artifacts of this module: the finished run and further ones."""
    return shutil.copytree(_finished_once, tmp_path_factory.mktemp("prompts") / "artifacts")


@pytest.fixture
def small_settings(small: list[str], store: Path, tmp_path: Path) -> Settings:
    folders = [f"artifacts={store}", f"results={tmp_path}/results"]
    return lambda *overrides: load([*small, *folders, *overrides])


def read(path: Path) -> pl.DataFrame:
    return pl.read_parquet(path) if path.suffix == ".parquet" else pl.read_ndjson(path)


def texts(prompts: Artifact) -> pl.DataFrame:
    return pl.concat(with_text(prompts, "prompts", shard) for shard in prompts.shards("prompts"))


@pytest.mark.parametrize("name", ["prompts.jsonl", "prompts.parquet"])
def test_prompts_have_ids_texts_and_what_they_are_and_turns_as_messages(
    name: str, small_settings: Settings, tmp_path: Path
) -> None:
    settings, path = small_settings(SETTING), tmp_path / "new" / name
    n = write(settings, path)
    rows = read(path)
    assert rows.columns == ["prompt_id", "prompt", "asked"]
    prompts = build_plan(settings).branches[0].prompts
    expected = texts(prompts).filter(pl.col("same_as").is_null())
    assert n == rows.height == expected.height == 70
    assert_frame_equal(
        rows.select("prompt_id", text="prompt"), expected.select("prompt_id", "text")
    )
    assert rows["asked"].unique().to_list() == [
        f"4-template, seed 0, prompts {prompts.fingerprint}"
    ]
    write(small_settings(*CHAT), path)
    chats = read(path)
    assert chats.columns == [*rows.columns, "messages"]
    assert chats["asked"][0].startswith("4-template as=turns, seed 0, prompts ")
    assert [turns(text) for text in chats["prompt"]] == chats["messages"].to_list()


def test_prompts_need_no_model(small_settings: Settings, tmp_path: Path) -> None:
    empty = f"artifacts={tmp_path}/artifacts"
    settings = small_settings("model.id=/nowhere", "model.dtype=float32", empty)
    assert write(settings, tmp_path / "p.jsonl") == 70


@pytest.mark.parametrize("suffix", ["jsonl", "parquet"])
def test_answers_to_the_prompts_give_the_runs_own_numbers(
    small_settings: Settings, tmp_path: Path, suffix: str
) -> None:
    (branch,) = build_plan(small_settings()).branches
    path, answered = tmp_path / f"prompts.{suffix}", tmp_path / f"answers.{suffix}"
    write(small_settings(), path)
    own_answers = branch.answers.read_all("generations").select("prompt_id", "text")
    rows = read(path).join(own_answers, on="prompt_id")
    rows.write_ndjson(answered) if suffix == "jsonl" else rows.write_parquet(answered)
    metrics = score(small_settings(f"answers={answered}"))
    expected = branch.metrics.read_all("metrics")
    assert_frame_equal(metrics, select_given_metrics(expected))


def test_answers_to_other_prompts_are_refused_and_those_that_name_nothing_taken(
    small_settings: Settings,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    subtests: pytest.Subtests,
) -> None:
    path = tmp_path / "p.jsonl"
    write(small_settings(), path)
    answered = read(path).with_columns(text=pl.lit("Paris"))
    last = pl.arange(pl.len()) == pl.len() - 1
    unknown = answered.with_columns(asked=pl.when(last).then(None).otherwise("asked"))
    for override, rows, words in (
        ("seed=1", answered, "answers 4-template, seed 0, prompts "),
        ("prompt=zero-shot", answered, "not zero-shot, seed 0, prompts "),
        ("prompt.templates=manual", answered, "not 4-template templates=manual, seed 0"),
        ("seed=0", unknown, "4-template"),
    ):
        rows.write_ndjson(path)
        with subtests.test(override), pytest.raises(InputError, match=naming(words)) as refused:
            score(small_settings(f"answers={path}", override))
        fix = "give prompt=, seed= and benchmark= as for its prompts."
        assert str(refused.value).endswith(fix)
    answered.drop("asked").write_ndjson(path)
    score(small_settings(f"answers={path}"))
    assert re.search(naming("does not say", "4-template"), caplog.text)


def test_prompts_of_scored_texts_and_of_compared_entities_name_candidates(tmp_path: Path) -> None:
    places = {"artifacts": str(tmp_path / "a"), "results": str(tmp_path / "r")}
    rows = factsweep.prompts(benchmark="probelm-mini", seed=3, **places)
    assert {"candidate_id", "setting", "prompt", "asked"} < {*rows.columns}
    ids = rows.select(pl.format("{}.{}", "candidate_id", "setting")).to_series()
    assert ids.equals(rows["prompt_id"], check_names=False)
    assert rows["setting"].n_unique() > 1
    compared = factsweep.prompts(benchmark="distractors-mini", prompt="random", **places)
    first = compared.row(0, named=True)
    assert len(first["candidates"]) > 1
    assert first["candidates"][0].keys() == {"entity_id", "labels"}


@pytest.mark.parametrize(
    ("overrides", "out", "sentence"),
    [
        (["sweep=demo"], "p.jsonl", "prompts writes one setting; name it with prompt=…."),
        ([], "p.txt", "is neither .jsonl nor .parquet; name it so."),
        (["benchmark=probelm-mini", "--batch"], "b.jsonl", "no answers that a batch could give"),
        (["--batch"], "b.parquet", "requests of a batch are .jsonl; name it so."),
    ],
)
def test_prompts_that_cannot_be_written_are_refused(
    overrides: list[str],
    out: str,
    sentence: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    places = [f"artifacts={tmp_path}/a", f"results={tmp_path}/r"]
    assert main(["prompts", *places, *overrides, "--out", str(tmp_path / out)]) == 2
    assert sentence in capsys.readouterr().err
    assert not (tmp_path / out).exists()


def test_prompts_command_says_where_and_how_many(
    small: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "p.jsonl"
    assert main(["prompts", *small, f"artifacts={tmp_path}/a", "--out", str(out)]) == 0
    assert capsys.readouterr().out == f"{out}: 70 prompts\n"


def batch_output(path: Path, text: str = " Paris", **changed: Any) -> None:
    """What comes back of a file of requests, last to first."""
    lines = []
    for line in reversed(path.read_text().splitlines()):
        request = json.loads(line)
        chat = "messages" in request["body"]
        choice = {"message": {"content": text, "refusal": None}} if chat else {"text": text}
        body = {"model": "m", "choices": [{"index": 0, "finish_reason": "stop", **choice}]}
        response = {"status_code": 200, "request_id": "r", "body": body}
        response_line = {
            "id": "b",
            "custom_id": request["custom_id"],
            "response": response,
            "error": None,
        }
        lines.append(json.dumps({**response_line, **changed}))
    path.with_name("output.jsonl").write_text("\n".join(lines))


@pytest.mark.slow
@pytest.mark.parametrize("chat_overrides", [(), ("model.chat_template=true",), CHAT])
def test_batch_answers_give_the_numbers_of_the_same_answers(
    chat_overrides: tuple[str, ...], small_settings: Settings, tmp_path: Path
) -> None:
    plain, path = tmp_path / "plain.jsonl", tmp_path / "batch.jsonl"
    write(small_settings(*chat_overrides), plain)
    assert write(small_settings(*chat_overrides), path, batch=True) == 70
    read(plain).with_columns(text=pl.lit(" Paris")).write_ndjson(plain)
    batch_output(path)
    batch_metrics, expected = (
        score(small_settings(*chat_overrides, f"answers={file_path}"))
        for file_path in (tmp_path / "output.jsonl", plain)
    )
    assert_frame_equal(batch_metrics, expected)


def test_batch_requests_ask_as_a_run_of_the_endpoint_would(
    small_settings: Settings, tmp_path: Path
) -> None:
    path = tmp_path / "batch.jsonl"
    raw, chat, as_turns = (
        (
            write(small_settings(*chat_overrides), path, batch=True),
            json.loads(path.read_text().split("\n")[0]),
        )[1]
        for chat_overrides in ((), ("model.chat_template=true",), CHAT)
    )
    assert (raw["method"], raw["url"], chat["url"]) == (
        *("POST", "/v1/completions"),
        "/v1/chat/completions",
    )
    assert raw["body"]["prompt"].endswith("\nA:")
    assert chat["body"]["messages"] == [{"role": "user", "content": raw["body"]["prompt"]}]
    assert [token_ids["role"] for token_ids in as_turns["body"]["messages"]][:2] == [
        "system",
        "user",
    ]
    assert (raw["body"]["max_tokens"], raw["body"]["stop"]) == (10, ["\n"])
    assert chat["body"]["max_completion_tokens"] == 10
    run, template_kwargs = small_settings("model.chat_template=true"), {"enable_thinking": False}
    served = replace(run.model, endpoint="http://127.0.0.1:9/v1", template_kwargs=template_kwargs)
    write(replace(run, model=served), path, batch=True)
    body = json.loads(path.read_text().split("\n")[0])["body"]
    assert (
        body["chat_template_kwargs"] == served.arguments["chat_template_kwargs"] == template_kwargs
    )


def test_batch_requests_that_failed_are_said_and_their_prompts_have_no_answer(
    small_settings: Settings, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path, output = tmp_path / "batch.jsonl", tmp_path / "output.jsonl"
    write(small_settings(), path, batch=True)
    batch_output(path)
    answered = output.read_text().splitlines()
    batch_output(path, error={"code": "batch_expired"}, response=None)
    expired = output.read_text().splitlines()
    output.write_text("\n".join([*expired[:1], *answered[1:]]))
    metrics = score(small_settings(f"answers={output}", "decoding.max_failed_share=1"))
    assert "requests of the batch without an answer: batch_expired 1." in caplog.text
    row = metrics.filter(metric="acc_at_1").filter(pl.col("slice").is_null())
    assert row["n_failed"].to_list() == [1]


def test_batch_content_in_parts_is_its_text_and_nothing_or_another_is_no_answer() -> None:
    thought = {"type": "thinking", "thinking": [{"type": "text", "text": "Rome?"}]}
    contents = [[thought, {"type": "text", "text": "Oslo"}], {"city": "Oslo"}, " \n"]
    lines = [
        {"custom_id": f"P36.{i}.0 | zero-shot", "response": {"body": {"choices": [choice]}}}
        for i, choice in enumerate({"message": {"content": content}} for content in contents)
    ]
    parsed = openai_batch.answers(map(json.dumps, lines))
    assert parsed.rows["text"].to_list() == ["Oslo"]
    assert parsed.failed == {"P36.1.0": "unknown_content", "P36.2.0": "no_text"}
    assert parsed.details["P36.1.0"] == 'the content is no text: {"city": "Oslo"}'


def test_batch_thought_is_cut_from_the_answer_as_that_of_a_call(
    small_settings: Settings, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Whoever parts them; one without an end is no answer, and its prompt has the reason."""
    thinks = ("model.chat_template=true", "model.thinking=on", "decoding.thinking_tokens=20")
    path, output = tmp_path / "batch.jsonl", tmp_path / "output.jsonl"
    write(small_settings(*thinks), path, batch=True)
    body = json.loads(path.read_text().split("\n")[0])["body"]
    assert (body["max_completion_tokens"], "stop" in body) == (30, False)
    messages: list[dict[str, str | None]] = [
        {"content": "<think>\na\n</think>\n\nParis\nand"},
        {"content": "\nParis", "reasoning_content": "a"},
        {"content": "<think>a"},
        {"content": None, "reasoning": "a"},
    ]
    batch_output(path, "Paris")
    lines = [json.loads(text_line) for text_line in output.read_text().splitlines()]
    for line, message in zip(lines, messages, strict=False):
        line["response"]["body"]["choices"][0]["message"] = message
    output.write_text("\n".join(map(json.dumps, lines)))
    run = small_settings(*thinks, f"answers={output}", "decoding.max_failed_share=1")
    score(run)
    (branch,) = build_plan(run).branches
    assert {text for rows in branch.answers.each("generations") for text in rows["text"]} == {
        "Paris"
    }
    thoughts = pl.concat(branch.answers.each("thoughts")).drop_nulls("texts")
    columns = ["texts", "ended"]
    assert thoughts.select(columns).rows() == [(["a"], ["unknown"])] * 2
    errors = pl.concat(branch.admitted.each("errors"))
    assert sorted(errors["reason"]) == ["no_text", "thought_not_ended"]
    assert errors["detail"].str.starts_with("the model thought").all()
    assert "without an answer: no_text 1, thought_not_ended 1." in caplog.text
    as_text = small_settings(*thinks[:1], f"answers={output}", "decoding.max_failed_share=1")
    assert build_plan(as_text).branches[0].answers.fingerprint != branch.answers.fingerprint


def test_batch_of_somebody_else_or_of_another_seed_is_refused(
    small_settings: Settings, tmp_path: Path
) -> None:
    path, output = tmp_path / "batch.jsonl", tmp_path / "output.jsonl"
    write(small_settings("seed=1"), path, batch=True)
    batch_output(path)
    with pytest.raises(InputError, match=naming("4-template")):
        score(small_settings(f"answers={output}"))
    output.write_text('{"custom_id": "request-1", "response": null, "error": null}\n')
    words = ("output.jsonl", "line 0", "custom_id", "`factsweep")
    with pytest.raises(InputError, match=naming(*words)):
        score(small_settings(f"answers={output}"))


def test_prompts_of_a_label_that_no_answer_can_match_are_not_written(tmp_path: Path) -> None:
    table, out = tmp_path / "bands.csv", tmp_path / "prompts.jsonl"
    table.write_text("relation,template,subject,object\nband,[X] sings in [Y].,Nic Offer,!!!\n")
    run = load([f"benchmark={table}", f"artifacts={tmp_path / 'artifacts'}"])
    with pytest.raises(InputError, match=naming("Nic Offer", "!!!", "object_aliases")):
        write(run, out)
    assert not out.exists()
