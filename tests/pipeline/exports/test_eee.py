"""Every Eval Ever: records that its schemas 0.3.0 accept, with all numbers of the run."""

import hashlib
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import jsonschema
import polars as pl
import pytest

from factsweep.pipeline.config.run import Run
from factsweep.pipeline.exports.export import export
from factsweep.pipeline.exports.exported_run import ExportedRun
from factsweep.pipeline.inputs import catalog
from factsweep.pipeline.results.results import load
from tests.pipeline.here import rewrite

SCHEMAS = Path(__file__).with_name("every_eval_ever")  # of the package every_eval_ever 0.3.0


def validator(name: str) -> jsonschema.Draft7Validator:
    return jsonschema.Draft7Validator(json.loads((SCHEMAS / name).read_text()))


def exported(run: Run, folder: Path) -> tuple[dict[str, Any], Path]:
    path = Path(export(run.name, run.results, "eee", str(folder)))
    record: dict[str, Any] = json.loads(path.read_text())
    return record, folder / record["detailed_evaluation_results"]["file_path"]


def test_eee_record_and_lines_are_valid_and_refer_to_each_other(run: Run, tmp_path: Path) -> None:
    record, samples = exported(run, tmp_path)
    validator("eval.schema.json").validate(record)
    lines = [json.loads(line) for line in samples.read_text().splitlines()]
    instances = validator("instance_level_eval.schema.json")
    for line in lines:
        instances.validate(line)
    details = record["detailed_evaluation_results"]
    assert details["total_rows"] == len(lines)
    assert details["checksum"] == hashlib.sha256(samples.read_bytes()).hexdigest()
    ids = [result["evaluation_result_id"] for result in record["evaluation_results"]]
    assert len(set(ids)) == len(ids)
    assert {line["evaluation_result_id"] for line in lines} < set(ids)
    assert {line["evaluation_id"] for line in lines} == {record["evaluation_id"]}
    assert {line["model_id"] for line in lines} == {record["model_info"]["id"]}
    assert "unknown" not in json.dumps(record["evaluation_results"])


def test_eee_record_has_each_number_with_its_interval_counts_and_polarity(
    run: Run, tmp_path: Path
) -> None:
    record, samples = exported(run, tmp_path)
    loaded = load(run.folder)
    results = {result["evaluation_result_id"]: result for result in record["evaluation_results"]}
    rows = loaded.metrics.drop_nulls("value")
    assert len(results) == rows.height
    declared = ExportedRun(loaded).metric_by_name
    for row in rows.iter_rows(named=True):
        names = ("setting", "variant", "slice", "metric")
        result = results["/".join(row[name] for name in names if row[name])]
        details = result["score_details"]
        assert details["score"] == row["value"]
        assert details["details"] == {"n": str(row["n"]), "n_failed": str(row["n_failed"])}
        interval = details["uncertainty"].get("confidence_interval", {})
        assert (interval.get("lower"), interval.get("upper")) == (row["ci_low"], row["ci_high"])
        if (metric := declared.get(row["metric"])) is not None:
            config = result["metric_config"]
            assert (float(config["min_score"]), float(config["max_score"])) == metric.range
            assert config["lower_is_better"] == (metric.better in ("lower", "zero"))
        arguments = result["generation_config"]["generation_args"]
        assert arguments["max_tokens"] == run.decoding.max_tokens
        assert arguments["prompt_template"] == loaded.answers()["prompt"][0]
    main_metric = ExportedRun(loaded).method.measure.main_metric
    main = rows.filter(pl.col("slice").is_null(), metric=main_metric)
    assert len(samples.read_text().splitlines()) == main["n"][0]


def test_eee_data_of_the_hub_have_their_id_and_the_commit_of_these_files(
    belief_run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rewrite(
        Path(belief_run.folder, "run.json"),
        lambda record: record["run"]["benchmark"].update(path=None, data="myriadlama"),
    )
    recipe = load(belief_run.folder).branches[0].artifacts["facts"].recipe
    monkeypatch.setattr(catalog, "_folder_of", lambda _entry: tmp_path)
    for checksum, commit in ((recipe.fields["sha256"], "c0ffee"), ("of other files", None)):
        fetched = {"id": "iszhaoxin/MyriadLAMA", "commit": "c0ffee", "checksum": checksum}
        (tmp_path / "fetched.json").write_text(json.dumps(fetched))
        record, _ = exported(belief_run, tmp_path / "out")
        source = record["evaluation_results"][0]["source_data"]
        assert (source["source_type"], source["hf_repo"]) == ("hf_dataset", "iszhaoxin/MyriadLAMA")
        assert source["additional_details"].get("revision") == commit
        assert source["additional_details"]["sha256"] == recipe.fields["sha256"]


def test_eee_twice_is_the_same(kamel_run: Run, tmp_path: Path) -> None:
    assert exported(kamel_run, tmp_path / "a")[0] == exported(kamel_run, tmp_path / "b")[0]


@pytest.mark.slow
def test_eee_is_accepted_by_its_own_validator(run: Run, tmp_path: Path) -> None:
    """With every_eval_ever 0.3.0, where it is installed (docs/exports.md)."""
    pytest.importorskip("every_eval_ever", reason="every_eval_ever is not installed")
    exported(run, tmp_path)
    command = [sys.executable, "-m", "every_eval_ever", "validate"]
    files = ["data/*/*/*/*.json", "data/*/*/*/*.jsonl"]
    process = subprocess.run([*command, *files], cwd=tmp_path, capture_output=True, check=False)
    assert process.returncode == 0, process.stdout.decode()
