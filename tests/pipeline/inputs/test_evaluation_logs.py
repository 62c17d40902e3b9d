"""Logs of other tools as answers: measured as a run's own are."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import polars as pl
import pyarrow as pa
import pytest
from polars.testing import assert_frame_equal

from factsweep.operators.errors import DamagedFileError, InputError
from factsweep.pipeline.config.run import Run
from factsweep.pipeline.config.settings import load
from factsweep.pipeline.exports.export import export
from factsweep.pipeline.inputs.evaluation_logs import read_log
from factsweep.pipeline.results import report
from factsweep.pipeline.runs.run import score
from factsweep.pipeline.stages.expand import with_text
from factsweep.pipeline.stages.plan import Plan
from tests.builders import select_given_metrics
from tests.messages import naming

Settings = Callable[..., Run]
MORE = ("decoding.max_failed_share=1", "run_name=given")


@pytest.fixture
def reported(finished: Plan) -> Plan:
    """The finished run, with its results."""
    report.write(finished, {"total": 0})
    return finished


@pytest.fixture
def expected(reported: Plan) -> pl.DataFrame:
    """The numbers that do not need samples or a second decode."""
    return select_given_metrics(reported.branches[0].metrics.read_all("metrics"))


def exported(plan: Plan, form: str, folder: Path) -> Path:
    path = Path(export(plan.run.name, plan.run.results, form, str(folder)))
    return path if form == "inspect" else next(path.parent.glob("samples_*"))


def scored(settings: Settings, path: Path) -> pl.DataFrame:
    return score(settings(f"answers={path}", *MORE))


@pytest.mark.parametrize("form", ["samples", "inspect"])
def test_log_of_a_run_gives_its_own_numbers(
    reported: Plan, expected: pl.DataFrame, small_settings: Settings, tmp_path: Path, form: str
) -> None:
    metrics = scored(small_settings, exported(reported, form, tmp_path / "out"))
    columns = [name for name in expected.columns if name != "model"]
    assert_frame_equal(metrics.select(columns), expected.select(columns))


def foreign_samples(plan: Plan) -> pl.DataFrame:
    """Prompts and answers without our ids."""
    (branch,) = plan.branches
    shards = branch.prompts.shards("prompts")
    prompts = pl.concat(with_text(branch.prompts, "prompts", shard) for shard in shards)
    answers = branch.answers.read_all("generations").select("prompt_id", answer="text")
    return prompts.select("prompt_id", "text").join(answers, on="prompt_id")


def as_harness(row: dict[str, Any], filter_name: str = "none", **doc: str) -> str:
    prompt = {"gen_args_0": {"arg_0": row["text"], "arg_1": {}}}
    resps = [[row["answer"] if filter_name == "none" else "cut"]]
    sample = {"doc_id": 0, "doc": doc, "arguments": prompt, "resps": resps}
    return json.dumps({**sample, "filter": filter_name})


def as_inspect(row: dict[str, Any], number: int) -> dict[str, Any]:
    """A sample as Inspect writes it: a long prompt is an attachment."""
    return {
        "id": number,
        "epoch": 1,
        "input": "attachment://long",
        "attachments": {"long": row["text"]},
        "messages": [{"role": "user", "content": "attachment://long"}],
        "output": {"completion": row["answer"]},
    }


@pytest.mark.parametrize("shape", ["samples.jsonl", "log.json", "log.eval"])
def test_log_without_ids_is_matched_by_the_text_of_its_prompts(
    reported: Plan,
    expected: pl.DataFrame,
    small_settings: Settings,
    tmp_path: Path,
    shape: str,
) -> None:
    path, rows = tmp_path / shape, foreign_samples(reported).to_dicts()
    if shape == "samples.jsonl":
        lines = [as_harness(row, name) for row in rows for name in ("none", "strict-match")]
        path.write_text("\n".join(lines))
    else:
        samples = [as_inspect(row, number) for number, row in enumerate(rows)]
        if shape == "log.json":
            log = {"version": 2, "status": "success", "eval": {}, "samples": samples}
            path.write_text(json.dumps(log))
        else:
            write_zstd(path, samples)
    assert_frame_equal(scored(small_settings, path), expected)


def write_zstd(path: Path, samples: list[dict[str, Any]]) -> None:
    """An archive of samples, compressed as Inspect does it."""
    with ZipFile(path, "w") as archive:
        for sample in samples:
            packed = pa.Codec("zstd").compress(json.dumps(sample).encode(), asbytes=True)
            archive.writestr(f"samples/{sample['id']}_epoch_1.json", packed)
        for entry in archive.infolist():
            entry.compress_type = 93


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (as_harness({"text": "Who wrote Hamlet?", "answer": "x"}), ["line 1", "Hamlet", "prompt="]),
        ('{"prompt_id": "a", "text": "b"}', ["line 1", "no sample", "drop"]),
        (
            as_harness({"text": "x", "answer": "y"}).replace('[["y"]]', '[[["-1.5", "False"]]]'),
            ["line 1", "no text", "generate_until"],
        ),
    ],
)
def test_log_that_answers_something_else_is_refused_with_its_line(
    reported: Plan, small_settings: Settings, tmp_path: Path, line: str, words: list[str]
) -> None:
    path = tmp_path / "samples.jsonl"
    first = as_harness(foreign_samples(reported).row(0, named=True))
    path.write_text(f"{first}\n{line}\n")
    with pytest.raises(InputError, match=naming(path.name, *words)):
        scored(small_settings, path)


def test_log_with_the_ids_of_another_setting_is_refused(
    reported: Plan, small_settings: Settings, tmp_path: Path
) -> None:
    samples = exported(reported, "samples", tmp_path / "out")
    with pytest.raises(InputError, match=naming("none of", "zero-shot", "prompt=")):
        score(small_settings(f"answers={samples}", "prompt=zero-shot", *MORE))


def test_log_that_is_cut_off_is_damaged(reported: Plan, tmp_path: Path) -> None:
    path = exported(reported, "inspect", tmp_path / "out")
    assert read_log(path) is not None
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(DamagedFileError, match=naming(path.name, "copy")):
        read_log(path)


def test_log_of_another_task_is_measured_on_its_own_prompts(
    small: list[str], tmp_path: Path
) -> None:
    answers = {"Who wrote Hamlet?": ("Shakespeare", "Shakespeare"), "2 + 2?": ("4", "5")}
    lines = [
        {
            **json.loads(as_harness({"text": f"Question: {question}\nAnswer:", "answer": answer})),
            "doc_id": number,
            "target": str([target, f"{target} "]),
        }
        for number, (question, (target, answer)) in enumerate(answers.items())
    ]
    path = tmp_path / "samples_triviaqa_2026-11-30T10-00-00.jsonl"
    path.write_text("\n".join(map(json.dumps, lines)))
    plain = [option for option in small if not option.startswith(("benchmark", "decoding.samples"))]
    places = [f"artifacts={tmp_path}/artifacts", f"results={tmp_path}/results"]
    own = ["benchmark=questions", f"benchmark.path={path}", f"answers={path}", "run_name=own"]
    metrics = score(load([*plain, *places, *own]))
    (row,) = metrics.filter(
        pl.col("slice").is_null(), pl.col("variant").is_null(), metric="acc_at_1"
    ).iter_rows(named=True)
    assert (row["value"], row["n"], row["n_failed"]) == (0.5, 2, 0)
