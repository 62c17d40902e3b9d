"""Every Eval Ever (schema 0.3.0): one record of all numbers, and one line per answered prompt.

data/<benchmark>/<developer>/<model>/<run's id>.json           the numbers
                                    /<run's id>_samples.jsonl  the answers, for the main metric

Source: `eval.schema.json` and `instance_level_eval.schema.json` of the package every_eval_ever.
"""

import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from math import isinf
from typing import Any, BinaryIO

from factsweep.operators.methods.method import FILL, GENERATE
from factsweep.pipeline.exports.exported_run import ExportedRun, texts_of
from factsweep.pipeline.results.past_runs import PastBranch
from factsweep.pipeline.storage.store import Store

VERSION = "0.3.0"
_NAME = ("benchmark", "setting", "variant", "slice")
_UNSAFE = re.compile(r'[<>:"/\\|?*\x00-\x1f]+')


@dataclass(frozen=True)
class EvaluationRecord:
    """A run as a record of Every Eval Ever."""

    exported: ExportedRun

    @cached_property
    def path(self) -> str:
        """The path of the record, where the project's data store would have it."""
        model = self.exported.model
        folders = self.exported.run["benchmark"]["name"], model.developer, model.name
        return "/".join(["data", *map(_safe_folder_name, folders), f"{self.exported.id}.json"])

    @property
    def samples_path(self) -> str:
        """The path of the answers."""
        return f"{self.path.removesuffix('.json')}_samples.jsonl"

    @cached_property
    def id(self) -> str:
        """Benchmark, model and time; the time is the run's begin, so that two exports are equal."""
        name = self.exported.run["benchmark"]["name"]
        return f"{name}/{self.exported.model.id}/{self._start_time}"

    @property
    def _start_time(self) -> str:
        return str(int(self.exported.started.timestamp()))

    def content(self, samples: Mapping[str, Any] | None) -> dict[str, Any]:
        """The record; `samples` describes the file of the answers, null: there is none."""
        run, versions = self.exported, self.exported.record.get("versions", {})
        details = {"run": run.run["name"], "run_id": run.id, "seed": run.run["seed"]}
        commit = {"commit": run.record.get("commit"), **versions}
        return {
            "schema_version": VERSION,
            "evaluation_id": self.id,
            "evaluation_timestamp": run.started.isoformat(),
            "retrieved_timestamp": self._start_time,
            "source_metadata": {
                "source_name": "factsweep",
                "source_type": "evaluation_run",
                "source_organization_name": "factsweep",
                "evaluator_relationship": "other",
                "additional_details": texts_of(details),
            },
            "eval_library": {
                "name": "factsweep",
                "version": versions.get("factsweep", ""),
                "additional_details": texts_of(commit),
            },
            "model_info": self._describe_model(),
            "evaluation_results": list(self._describe_results()),
            **({} if samples is None else {"detailed_evaluation_results": dict(samples)}),
        }

    def _describe_model(self) -> dict[str, Any]:
        run, model = self.exported, self.exported.model
        engine, version = run.engine(run.results.branches[0])
        own_engine = run.results.branches[0].answered_by == "engine"
        fields = ("source", "dtype", "gguf_file", "adapter", "billions_of_parameters")
        details = {
            **{name: run.run["model"].get(name) for name in fields},
            "revision": model.revision,
            "quantised": run.record.get("model_quantised"),
        }
        return {
            "name": run.run["model"]["name"],
            "id": model.id,
            "developer": model.developer,
            "inference_engine": {"name": engine, "version": version},
            "additional_details": {
                "deployment_type": "self_deployed" if own_engine else "unknown",
                "model_availability": "open_weights" if model.is_open else "unknown",
                **texts_of(details),
            },
        }

    def _describe_results(self) -> Iterator[dict[str, Any]]:
        metrics = self.exported.metrics.drop_nulls("value")
        branches = self.exported.results.branches
        generation_by_setting = {
            branch.setting: self._describe_generation(branch) for branch in branches
        }
        for row in metrics.iter_rows(named=True):
            setting = self.exported.setting_of(row)
            generation = generation_by_setting.get(setting or "")
            yield {
                "evaluation_result_id": _result_id(row),
                "evaluation_name": " ".join(row[name] for name in _NAME if row[name]),
                "source_data": self._source_data,
                "evaluation_timestamp": self.exported.started.isoformat(),
                "metric_config": self._describe_metric(row["metric"]),
                "score_details": self._describe_score(row),
                **({} if generation is None else {"generation_config": generation}),
            }

    @cached_property
    def _source_data(self) -> dict[str, Any]:
        data = self.exported.data_set
        details = {"sha256": data.sha256, "revision": data.revision, "licence": data.licence}
        source = {"dataset_name": data.name, "additional_details": texts_of(details)}
        if data.hub_id is None:
            return {**source, "source_type": "other"}
        return {**source, "source_type": "hf_dataset", "hf_repo": data.hub_id}

    def _describe_metric(self, name: str) -> dict[str, Any]:
        method = self.exported.run["benchmark"]["method"]
        metric = self.exported.metric_by_name.get(name)
        config = {"metric_id": f"factsweep.{method}.{name}", "metric_name": name}
        if metric is None:
            undeclared = {"better": "not declared", "range": "not declared"}
            return {**config, "lower_is_better": False, "additional_details": undeclared}
        bounds = [
            ("Infinity" if end > 0 else "-Infinity") if isinf(end) else end for end in metric.range
        ]
        return {
            **config,
            "metric_name": metric.title or name,
            "evaluation_description": metric.says or metric.title or name,
            # `zero`: the nearer to zero the better, on either side.
            "lower_is_better": metric.better in ("lower", "zero"),
            "score_type": "continuous",
            **({"metric_unit": "proportion"} if tuple(metric.range) == (0, 1) else {}),
            "min_score": bounds[0],
            "max_score": bounds[1],
            "additional_details": {"better": metric.better or "neither"},
        }

    def _describe_score(self, row: Mapping[str, Any]) -> dict[str, Any]:
        uncertainty: dict[str, Any] = {"num_samples": row["n"]}
        if row["ci_low"] is not None and row["ci_high"] is not None:
            uncertainty["confidence_interval"] = {
                "lower": row["ci_low"],
                "upper": row["ci_high"],
                "confidence_level": 0.95,
                "method": "percentiles of a bootstrap over facts",
            }
            n_rounds = self.exported.run.get("metrics", {}).get("n_rounds")
            uncertainty |= {} if n_rounds is None else {"num_bootstrap_samples": n_rounds}
        counts = texts_of({"n": row["n"], "n_failed": row["n_failed"]})
        return {"score": row["value"], "details": counts, "uncertainty": uncertainty}

    def _describe_generation(self, branch: PastBranch) -> dict[str, Any]:
        sampling = self.exported.sampling(branch)
        arguments = {name: sampling[name] for name in ("temperature", "top_p") if name in sampling}
        if "max_tokens" in sampling:
            arguments["max_tokens"] = sampling["max_tokens"]
        if (prompt := self.exported.first_prompt(branch)) is not None:
            arguments["prompt_template"] = prompt
        if (thinking := self.exported.run["model"].get("thinking")) is not None:
            arguments["reasoning"] = thinking
        recipe = branch.artifacts["prompts"].recipe.fields
        details = {
            "setting": branch.setting,
            "prompts": recipe.get("setting"),
            "seed": branch.seed,
            "stop": sampling.get("stop"),
            "samples": self.exported.run["decoding"].get("samples"),
            "chat_template": self.exported.run["model"].get("chat_template"),
        }
        return {"generation_args": arguments, "additional_details": texts_of(details)}

    def write_samples(self, file: BinaryIO) -> dict[str, Any]:
        """Write the answers; returns their description, as the record has it."""
        checksum, n_rows = hashlib.sha256(), 0
        for branch in self.exported.results.branches:
            for line in self._answer_lines(branch):
                # In ASCII: the validator also ends lines at U+2028, which an answer may have.
                content = json.dumps(line, allow_nan=False).encode() + b"\n"
                checksum.update(content)
                n_rows += 1
                file.write(content)
        return {
            "format": "jsonl",
            "file_path": self.samples_path,
            "hash_algorithm": "sha256",
            "checksum": checksum.hexdigest(),
            "total_rows": n_rows,
        }

    def _answer_lines(self, branch: PastBranch) -> Iterator[dict[str, Any]]:
        main = self.exported.main_number(branch)
        common = {
            "schema_version": VERSION,
            "evaluation_id": self.id,
            "model_id": self.exported.model.id,
            "evaluation_name": f"{branch.benchmark} {branch.setting}",
            **({} if main is None else {"evaluation_result_id": _result_id(main)}),
        }
        for rows in self.exported.answered_parts(branch):
            for row in rows.drop_nulls("score").iter_rows(named=True):
                yield {**common, **_describe_answer(row)}


def export_eee(exported: ExportedRun, store: Store) -> str:
    """Write the answers, where single ones are judged, then the record; returns its path."""
    record, samples = EvaluationRecord(exported), None
    method = exported.method
    is_judged = method.measure.answers == "answers" or method.show.digest is not None
    if method.ask.ability in (GENERATE, FILL) and is_judged:
        with store.writing(record.samples_path) as file:
            samples = record.write_samples(file)
    content = json.dumps(record.content(samples), indent=1, ensure_ascii=False, allow_nan=False)
    store.put(record.path, content.encode())
    return store.where(record.path)


def _describe_answer(row: Mapping[str, Any]) -> dict[str, Any]:
    labels = [label for labels in row["objects"] or () for label in labels]
    sample = json.dumps({"raw": row["prompt"], "reference": labels}, sort_keys=True)
    thought = row.get("thought")
    names = ("relation_id", "relation", "pair_id", "subject", "template_id", "template")
    return {
        "sample_id": row["prompt_id"],
        "sample_hash": hashlib.sha256(sample.encode()).hexdigest(),
        "interaction_type": "single_turn",
        "input": {"raw": row["prompt"], "reference": labels},
        "output": {
            "raw": [row["answer"]],
            **({} if thought is None else {"reasoning_trace": [thought]}),
        },
        "answer_attribution": [
            {
                "turn_idx": 0,
                "source": "output.raw",
                "extracted_value": row["answer"],
                "extraction_method": "whole answer",
                "is_terminal": True,
            }
        ],
        "evaluation": {"score": row["score"], "is_correct": row["score"] == 1},
        "metadata": texts_of({name: row[name] for name in names}),
    }


def _result_id(row: Mapping[str, Any]) -> str:
    parts = (row[name] for name in ("setting", "variant", "slice", "metric"))
    return "/".join(filter(None, parts))


def _safe_folder_name(name: str) -> str:
    return _UNSAFE.sub("_", name).rstrip(". ") or "_"
