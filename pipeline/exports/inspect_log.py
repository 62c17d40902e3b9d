"""Inspect (0.3.285): a log per setting, which `inspect view` shows and `read_eval_log` reads.

A log is an archive of JSON files: header.json, summaries.json, and a file of samples/ per fact with
all of its prompts and answers as messages. See `inspect_ai.log.EvalLog`.
"""

import json
import re
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, BinaryIO
from zipfile import ZIP_DEFLATED, ZipFile

import polars as pl

from factsweep.operators.errors import InputError
from factsweep.operators.methods.method import FILL, GENERATE
from factsweep.operators.prompts.chat import messages
from factsweep.pipeline.exports.exported_run import ExportedRun
from factsweep.pipeline.results.answers import list_relations
from factsweep.pipeline.results.past_runs import PastBranch
from factsweep.pipeline.storage.store import Store

_STOP_REASONS = {"stop": "stop", "length": "max_tokens"}
_REVISION = {"type": "git", "origin": "factsweep"}
_SUMMARY = ("id", "epoch", "uuid", "input", "target", "metadata", "scores")


@dataclass(frozen=True)
class InspectLog:
    """A setting of a run as a log of Inspect."""

    exported: ExportedRun
    branch: PastBranch

    @property
    def metric(self) -> str:
        """The name of the score of each fact: the main metric."""
        return self.exported.method.measure.main_metric

    @property
    def task(self) -> str:
        """The name of the task."""
        return f"{self.branch.benchmark} {self.branch.setting}"

    @cached_property
    def id(self) -> str:
        """The id of the log, which follows from its run and setting."""
        return uuid.uuid5(uuid.UUID(self.exported.id), self.branch.setting).hex

    @property
    def path(self) -> str:
        """The name that Inspect would give it: time, task, id."""
        time = self.exported.started.isoformat().replace(":", "-")
        return f"{time}_{re.sub(r'[^A-Za-z0-9.=+-]+', '-', self.task)}_{self.id}.eval"

    def write(self, file: BinaryIO) -> None:
        """Write the log, a fact at a time."""
        summaries: list[dict[str, Any]] = []
        with ZipFile(file, "w", ZIP_DEFLATED) as archive:
            start = {"version": 2, "eval": self._describe_eval([]), "plan": self._plan}
            archive.writestr("_journal/start.json", json.dumps(start))
            for sample in self._describe_facts():
                name = f"samples/{sample['id']}_epoch_1.json"
                archive.writestr(name, json.dumps(sample, allow_nan=False))
                summary = {field: sample[field] for field in _SUMMARY if field in sample}
                n_messages = len(sample["messages"])
                summaries.append({**summary, "completed": True, "message_count": n_messages})
            archive.writestr("summaries.json", json.dumps(summaries))
            header = self._describe_log([str(summary["id"]) for summary in summaries])
            archive.writestr("header.json", json.dumps(header))

    def _describe_log(self, fact_ids: Sequence[str]) -> dict[str, Any]:
        started = self.exported.started.isoformat()
        return {
            "version": 2,
            "status": "success",
            "eval": self._describe_eval(fact_ids),
            "plan": self._plan,
            "results": self._describe_results(len(fact_ids)),
            "stats": {"started_at": started, "completed_at": started},
        }

    def _describe_eval(self, fact_ids: Sequence[str]) -> dict[str, Any]:
        run, data = self.exported, self.exported.data_set
        engine, version = run.engine(self.branch)
        recipe = self.branch.artifacts["prompts"].recipe.fields
        commit = run.record.get("commit")
        return {
            "eval_id": self.id,
            "run_id": run.id,
            "created": run.started.isoformat(),
            "task": self.task,
            "task_id": self.id,
            "task_args": {"setting": recipe.get("setting"), "seed": self.branch.seed},
            "dataset": {
                "name": data.name,
                "location": data.hub_id,
                "samples": len(fact_ids),
                "sample_ids": list(fact_ids),
                "shuffled": False,
            },
            "model": run.model.id,
            "model_generate_config": self._generate_config,
            "model_args": {"revision": run.model.revision, "dtype": run.run["model"].get("dtype")},
            "config": {"epochs": 1},
            **({} if commit is None else {"revision": {**_REVISION, "commit": commit}}),
            "packages": dict(run.record.get("versions", {})),
            "metadata": {
                "run": run.run["name"],
                "engine": engine,
                "engine_version": version,
                "data_revision": data.revision,
                "data_sha256": data.sha256,
            },
            # Prompts and answers are shown verbatim, not rendered.
            "viewer": {"trust_content": False},
            "scorers": [{"name": self.metric}],
        }

    @property
    def _generate_config(self) -> dict[str, Any]:
        sampling = self.exported.sampling(self.branch)
        names = {name: name for name in ("max_tokens", "temperature", "top_p")}
        names["stop"] = "stop_seqs"
        return {name: sampling[ours] for ours, name in names.items() if ours in sampling}

    @property
    def _plan(self) -> dict[str, Any]:
        steps = [{"solver": "generate", "params": {}}]
        return {"name": "factsweep", "steps": steps, "config": self._generate_config}

    def _describe_results(self, n_samples: int) -> dict[str, Any]:
        rows = self.exported.metrics_of(self.branch).drop_nulls("value")
        metrics = {}
        for row in rows.filter(pl.col("slice").is_null()).iter_rows(named=True):
            name = ",".join(filter(None, (row["metric"], row["variant"])))
            declared = self.exported.metric_by_name.get(row["metric"])
            better = None if declared is None else declared.better
            names = ("ci_low", "ci_high", "n", "n_failed")
            metadata = {**{field: row[field] for field in names}, "better": better}
            metrics[name] = {"name": name, "value": row["value"], "metadata": metadata}
        slices = rows.drop_nulls("slice").drop("model", "benchmark").to_dicts()
        score = {"name": self.metric, "scorer": self.metric, "metrics": metrics}
        return {
            "total_samples": n_samples,
            "completed_samples": n_samples,
            "scores": [score],
            "metadata": {"slices": slices},
        }

    def _describe_facts(self) -> Iterator[dict[str, Any]]:
        """Each fact with an answer; a relation is in memory, since its facts share shards."""
        for relation_id in list_relations(self.branch):
            rows = pl.concat(self.exported.answered_parts(self.branch, relation_id))
            for _, fact in rows.group_by("pair_id", maintain_order=True):
                yield self._describe_fact(fact.to_dicts())

    def _describe_fact(self, rows: list[dict[str, Any]]) -> dict[str, Any]:
        first, turns = rows[0], [turn for row in rows for turn in self._list_turns(row)]
        labels = [label for labels in first["objects"] or () for label in labels]
        reason = _STOP_REASONS.get(rows[-1].get("finish_reason") or "", "unknown")
        names = ("relation_id", "relation", "pair_id")
        return {
            "id": first["pair_id"],
            "epoch": 1,
            "uuid": uuid.uuid5(uuid.UUID(self.id), first["pair_id"]).hex,
            "input": f"{first['subject']}: {first['relation'] or first['relation_id']}",
            "target": labels,
            "messages": turns,
            "output": {
                "model": self.exported.model.id,
                "choices": [{"message": turns[-1], "stop_reason": reason}],
                "completion": rows[-1]["answer"],
            },
            "scores": self._describe_score(rows),
            "metadata": {**{name: first[name] for name in names}, "n_prompts": len(rows)},
        }

    def _describe_score(self, rows: list[dict[str, Any]]) -> dict[str, Any]:
        scores = [row["score"] for row in rows if row["score"] is not None]
        if not scores:
            return {}
        score: dict[str, Any] = {"value": sum(scores) / len(scores)}
        if "correct" in rows[0]:
            n_right = int(sum(scores))
            score["explanation"] = f"{n_right} of {len(scores)} prompts are answered right."
        if len(rows) == 1:
            score["answer"] = rows[0]["answer"]
        return {self.metric: score}

    def _list_turns(self, row: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
        recipe = self.branch.artifacts["prompts"].recipe.fields
        as_turns = recipe.get("setting", {}).get("as") == "turns"
        for number, turn in enumerate(messages(row["prompt"], as_turns=as_turns)):
            yield {"id": f"{row['prompt_id']}.{number}", **turn, "source": "input"}
        answer, thought = row["answer"], row.get("thought")
        parts = [{"type": "reasoning", "reasoning": thought}, {"type": "text", "text": answer}]
        yield {
            "id": f"{row['prompt_id']}.answer",
            "role": "assistant",
            "content": answer if thought is None else parts,
            "source": "generate",
            "model": self.exported.model.id,
            "metadata": {"prompt_id": row["prompt_id"], "score": row["score"]},
        }


def export_inspect(exported: ExportedRun, store: Store) -> str:
    """Write the log of each setting; returns the path of the only one, or of their folder.

    Raises:
        InputError: the engine scored texts and answered nothing.
    """
    if exported.method.ask.ability not in (GENERATE, FILL):
        raise InputError(
            f"{exported.run['name']} has the scores of texts and no answers, which --format "
            "inspect is made of; take --format eee or lm-eval."
        )
    logs = [InspectLog(exported, branch) for branch in exported.results.branches]
    for log in logs:
        with store.writing(log.path) as file:
            log.write(file)
    return store.where(logs[0].path if len(logs) == 1 else "")
