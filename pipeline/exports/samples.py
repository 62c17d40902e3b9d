"""lm-evaluation-harness (0.4.13): results_<time>.json, and samples_<task>_<time>.jsonl per setting.

A line of samples is a prompt with its answer; see `lm_eval.result_schema.SampleResult`.
"""

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, BinaryIO

from factsweep.operators.errors import InputError
from factsweep.operators.methods.method import PREFER, SCORE
from factsweep.operators.metrics.shared.rows import higher_is_better
from factsweep.operators.tables.trackers import harness_path, harness_results
from factsweep.pipeline.exports.exported_run import ExportedRun
from factsweep.pipeline.results.past_runs import PastBranch
from factsweep.pipeline.storage.store import Store

_DOC = ("prompt_id", "relation_id", "relation", "pair_id", "subject", "objects", "template_id")


@dataclass(frozen=True)
class HarnessFiles:
    """The files of lm-evaluation-harness for a run, and where the harness would place them."""

    exported: ExportedRun

    @property
    def path(self) -> str:
        """The path of the results, below the harness's output path."""
        # The harness writes a time without its zone into the name.
        return harness_path(self.exported.record, self.exported.started.replace(tzinfo=None))

    def results(self) -> dict[str, Any]:
        """The content of the results, from the run's record and numbers alone."""
        run = self.exported
        polarity = higher_is_better(run.method.measure.metrics)
        return harness_results(run.metrics, run.record, run.started, polarity)

    def results_of_samples(self) -> dict[str, Any]:
        """The content of the results, with the data and the parameters of decoding."""
        content, data = self.results(), self.exported.data_set
        is_scored = self.exported.method.ask.ability == SCORE
        for config in content["configs"].values():
            config |= {"dataset_path": data.hub_id or data.name}
            config |= {"dataset_kwargs": {"revision": data.revision}}
            config["output_type"] = "loglikelihood_rolling" if is_scored else "generate_until"
            config["metadata"] |= {"run_id": self.exported.id, "data_sha256": data.sha256}
        for branch in self.exported.results.branches:
            if config := content["configs"].get(self.task(branch)):
                config["generation_kwargs"] = _generation_arguments(self.exported.sampling(branch))
        return content

    def task(self, branch: PastBranch) -> str:
        """The name of a setting's task; with its variant, where several have its name."""
        names = [title.partition(" ")[0] for title in self.exported.record["artifacts"]]
        name = branch.setting.partition(" ")[0]
        title = name if names.count(name) == 1 else branch.setting.replace(" ", "_")
        return f"{branch.benchmark}_{title}"

    def samples_path(self, branch: PastBranch) -> str:
        """The path of the samples of a setting."""
        folder, _, name = self.path.rpartition("/")
        time = name.removeprefix("results_").removesuffix(".json")
        return f"{folder}/samples_{self.task(branch)}_{time}.jsonl"

    def write_samples(self, branch: PastBranch, file: BinaryIO) -> str:
        """Write the samples of a setting; returns the harness's hash of the task."""
        task_hash = hashlib.sha256()
        for line in self._sample_lines(branch):
            names = ("doc_hash", "prompt_hash", "target_hash")
            task_hash.update("".join(line[name] for name in names).encode())
            file.write(json.dumps(line, ensure_ascii=False).encode() + b"\n")
        return task_hash.hexdigest()

    def _sample_lines(self, branch: PastBranch) -> Iterator[dict[str, Any]]:
        metric = self.exported.method.measure.main_metric
        arguments = _generation_arguments(self.exported.sampling(branch))
        doc_id = 0
        for rows in self.exported.answered_parts(branch):
            for row in rows.iter_rows(named=True):
                yield _describe_answer(doc_id, row, arguments, metric)
                doc_id += 1


def export_samples(exported: ExportedRun, store: Store) -> str:
    """Write the samples of each setting, then the results; returns the path of the results.

    Raises:
        InputError: the engine compared candidates and answered nothing.
    """
    if exported.method.ask.ability == PREFER:
        raise InputError(
            f"{exported.run['name']} has the scores of candidates and no answers, which --format "
            "samples is made of; take --format lm-eval."
        )
    files = HarnessFiles(exported)
    content = files.results_of_samples()
    for branch in exported.results.branches:
        with store.writing(files.samples_path(branch)) as file:
            content["task_hashes"][files.task(branch)] = files.write_samples(branch, file)
    return write_results(files, content, store)


def export_results(exported: ExportedRun, store: Store) -> str:
    """Write the results alone; returns their path."""
    files = HarnessFiles(exported)
    return write_results(files, files.results(), store)


def write_results(files: HarnessFiles, content: Mapping[str, Any], store: Store) -> str:
    """Write results at the harness's place; returns their path."""
    store.put(files.path, json.dumps(content, indent=2, allow_nan=False).encode())
    return store.where(files.path)


def _generation_arguments(sampling: Mapping[str, Any]) -> dict[str, Any]:
    if not sampling:
        return {}
    return {
        "until": list(sampling["stop"]),
        "max_gen_toks": sampling["max_tokens"],
        "do_sample": sampling["temperature"] > 0,
        "temperature": sampling["temperature"],
        "top_p": sampling["top_p"],
    }


def _describe_answer(
    doc_id: int, row: Mapping[str, Any], arguments: Mapping[str, Any], metric: str
) -> dict[str, Any]:
    doc = {name: row[name] for name in _DOC}
    labels = [label for labels in row["objects"] or () for label in labels]
    # The harness writes several targets as Python writes a list.
    target = labels[0] if len(labels) == 1 else str(labels)
    prompt = {"arg_0": row["prompt"], **({"arg_1": arguments} if arguments else {})}
    response = str(row["logprob"]) if "answer" not in row else row["answer"]
    score = {} if row["score"] is None else {metric: row["score"]}
    return {
        "doc_id": doc_id,
        "doc": doc,
        "target": target,
        "arguments": {"gen_args_0": prompt},
        "resps": [[response]],
        "filtered_resps": [response],
        "filter": "none",
        "metrics": list(score),
        "doc_hash": _sha256(json.dumps(doc, indent=2, ensure_ascii=False)),
        "prompt_hash": _sha256(row["prompt"]),
        "target_hash": _sha256(target),
        **score,
    }


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
