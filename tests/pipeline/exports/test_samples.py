"""lm-evaluation-harness's samples: a line per answered prompt, as the harness writes it."""

import hashlib
import importlib
import json
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from factsweep.operators.errors import InputError
from factsweep.pipeline.config.run import Run
from factsweep.pipeline.exports.export import export
from factsweep.pipeline.results.results import load
from factsweep.pipeline.storage.store import Store
from tests.messages import naming
from tests.pipeline.here import rewrite

KEYS = {
    *("doc_id", "doc", "target", "arguments", "resps", "filtered_resps", "filter", "metrics"),
    *("doc_hash", "prompt_hash", "target_hash"),
}


def sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def read_lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_samples_have_a_line_per_answer_with_the_run_and_its_counts(
    run: Run, tmp_path: Path
) -> None:
    results = Path(export(run.name, run.results, "samples", str(tmp_path)))
    content = json.loads(results.read_text())
    loaded = load(run.folder)
    (samples,) = results.parent.glob("samples_*.jsonl")
    task, _, time = samples.stem.removeprefix("samples_").rpartition("_")
    assert results.name == f"results_{time}.json"
    lines, answers = read_lines(samples), loaded.answers()
    answered = answers.drop_nulls("answer")
    assert [line["doc_id"] for line in lines] == list(range(answered.height))
    assert [line["doc"]["prompt_id"] for line in lines] == answered["prompt_id"].to_list()
    assert [line["arguments"]["gen_args_0"]["arg_0"] for line in lines] == [*answered["prompt"]]
    assert [line["resps"] for line in lines] == [[[answer]] for answer in answered["answer"]]
    main = loaded.metrics.filter(
        pl.col("slice").is_null(), pl.col("variant").is_null(), metric=lines[0]["metrics"][0]
    )
    assert len(lines) == main["n"][0] == content["n-samples"][task]["effective"]
    assert answers.height - len(lines) == main["n_failed"][0]
    config = content["configs"][task]
    assert config["generation_kwargs"]["max_gen_toks"] == run.decoding.max_tokens
    assert config["metadata"]["run_id"].count("-") == 4


def test_samples_are_what_the_harness_hashes(run: Run, tmp_path: Path) -> None:
    results = Path(export(run.name, run.results, "samples", str(tmp_path)))
    (samples,) = results.parent.glob("samples_*.jsonl")
    lines, hashes = read_lines(samples), ""
    for line in lines:
        (metric,) = line["metrics"]
        assert line.keys() == KEYS | {metric}
        doc = json.dumps(line["doc"], indent=2, ensure_ascii=False)
        texts = doc, line["arguments"]["gen_args_0"]["arg_0"], line["target"]
        own = [line[name] for name in ("doc_hash", "prompt_hash", "target_hash")]
        assert own == list(map(sha256, texts))
        hashes += "".join(own)
    assert list(json.loads(results.read_text())["task_hashes"].values()) == [sha256(hashes)]


def test_samples_of_belief_have_its_accuracy(belief_run: Run, tmp_path: Path) -> None:
    results = Path(export(belief_run.name, belief_run.results, "samples", str(tmp_path)))
    (samples,) = results.parent.glob("samples_*.jsonl")
    right = [line["acc_at_1"] for line in read_lines(samples)]
    answers = load(belief_run.folder).answers().drop_nulls("answer")
    assert right == answers["correct"].cast(pl.Float64).to_list()
    assert set(right) == {0.0, 1.0}


def test_samples_of_a_run_whose_begin_is_unknown_are_refused(
    belief_run: Run, tmp_path: Path
) -> None:
    rewrite(Path(belief_run.folder, "run.json"), lambda record: record.pop("started"))
    with pytest.raises(InputError, match=naming("note", "when", "run")):
        export(belief_run.name, belief_run.results, "samples", str(tmp_path / "out"))
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("place", ["folder", "memory://exports"])
def test_file_that_is_written_in_parts_is_whole_or_as_before(place: str, tmp_path: Path) -> None:
    store = Store(str(tmp_path) if place == "folder" else place)
    store.put("a/file", b"old")
    with pytest.raises(KeyboardInterrupt), store.writing("a/file") as file:  # noqa: PT012
        file.write(b"half")
        raise KeyboardInterrupt
    assert (store.get("a/file"), [*store.files("a")]) == (b"old", ["file"])
    with store.writing("a/file") as file:
        file.write(b"ne")
        file.write(b"w")
    assert store.get("a/file") == b"new"


def test_samples_are_read_by_the_harness_and_by_datasets(run: Run, tmp_path: Path) -> None:
    """With lm-eval 0.4.13 and datasets, where they are installed (docs/exports.md)."""
    utils = pytest.importorskip("lm_eval.utils", reason="lm-eval is not installed")
    datasets = pytest.importorskip("datasets", reason="datasets is not installed")
    schema = importlib.import_module("lm_eval.result_schema").SampleResult
    results = Path(export(run.name, run.results, "samples", str(tmp_path)))
    names = [f"/{path.name}" for path in results.parent.iterdir()]
    (samples,) = utils.get_sample_results_filenames(names)
    assert utils.get_results_filenames(names) == [f"/{results.name}"]
    task = utils.get_file_task_name(samples)
    assert task in json.loads(results.read_text())["configs"]
    path = results.parent / samples[1:]
    rows = datasets.load_dataset("json", data_files=str(path), split="train")
    assert set(schema.__annotations__) <= set(rows.column_names)
    assert rows.num_rows == len(read_lines(path))
