"""A run in the layouts of other tools: lm-evaluation-harness (0.4.13), MLflow."""

import re
from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any

import polars as pl

from factsweep.operators.errors import InputError

_PLACE = ("benchmark", "setting", "slice")
_UNKNOWN = "N/A"  # how the harness writes a missing standard error
_QUANTILE = 1.959964  # a 95 % interval is so many standard errors to each side


def harness_path(record: Mapping[str, Any], started: datetime) -> str:
    """Where the harness would write the file, below its output path.

    >>> record = {"run": {"model": {"id": "HuggingFaceTB/SmolLM2-135M"}}}
    >>> harness_path(record, datetime(2026, 11, 21, 18, 30))
    'HuggingFaceTB__SmolLM2-135M/results_2026-11-21T18-30-00.json'
    """
    time = started.isoformat().replace(":", "-")
    return f"{_sanitise_name(record['run']['model']['id'])}/results_{time}.json"


def harness_results(
    metrics: pl.DataFrame,
    record: Mapping[str, Any],
    started: datetime,
    higher_is_better: Mapping[str, bool],
) -> dict[str, Any]:
    """The content of `results_*.json`: a task per benchmark, setting and slice with numbers.

    Raises:
        InputError: `metrics` has no rows, or those of several models.
    """
    models = metrics["model"].unique().to_list()
    if len(models) != 1:
        raise InputError(f"metrics are of the models {sorted(models)}; give those of one run.")
    ordered = metrics.sort(_PLACE, maintain_order=True)
    tasks: dict[str, pl.DataFrame] = {}
    groups: dict[str, list[str]] = {}
    for (benchmark, setting, part), rows in ordered.group_by(_PLACE, maintain_order=True):
        if rows["value"].null_count() == rows.height:
            continue
        name = group = f"{benchmark}_{setting}"
        if part is not None:
            name = f"{group}_{str(part).removeprefix('relation=')}"
            groups.setdefault(group, []).append(name)
        tasks[name] = rows
    results = {name: _task(name, rows) for name, rows in tasks.items()}
    grouped = {name: results[name] for name in groups if name in results}
    version = record.get("versions", {}).get("factsweep", _UNKNOWN)
    return {
        "results": results,
        **({"groups": grouped} if grouped else {}),
        "group_subtasks": groups,
        "configs": {
            name: {
                "task": name,
                "dataset_path": record["run"]
                .get("benchmark", {})
                .get("data", rows["benchmark"][0]),
                "num_fewshot": _shots(rows),
                "output_type": "generate_until",
                "metadata": {"setting": rows["setting"][0], "slice": rows["slice"][0]},
            }
            for name, rows in tasks.items()
        },
        "versions": dict.fromkeys(tasks, version),
        "n-shot": {name: _shots(rows) for name, rows in tasks.items()},
        "higher_is_better": {
            name: {metric: higher_is_better.get(metric) for metric in rows["metric"]}
            for name, rows in tasks.items()
        },
        "n-samples": {
            name: {"original": (rows["n"] + rows["n_failed"]).max(), "effective": rows["n"].max()}
            for name, rows in tasks.items()
        },
        **_run(record, started),
    }


def _task(name: str, rows: pl.DataFrame) -> dict[str, Any]:
    task: dict[str, Any] = {"name": name, "alias": name, "sample_len": rows["n"].max()}
    for row in rows.drop_nulls("value").iter_rows(named=True):
        low, high = row["ci_low"], row["ci_high"]
        # The harness cuts a key at its first comma.
        variant = (row["variant"] or "none").replace(",", "+")
        task[f"{row['metric']},{variant}"] = row["value"]
        error = _UNKNOWN if low is None or high is None else (high - low) / (2 * _QUANTILE)
        task[f"{row['metric']}_stderr,{variant}"] = error
    return task


def _shots(rows: pl.DataFrame) -> int:
    """How many demonstrations its setting shows: 4-template → 4, zero-shot → 0."""
    match = re.match(r"\d+(?=-)", rows["setting"][0])
    return int(match[0]) if match else 0


def _run(record: Mapping[str, Any], started: datetime) -> dict[str, Any]:
    run = record["run"]
    model, decoding = run["model"], run.get("decoding", {})
    seconds = record.get("seconds", {}).get("total")
    versions = record.get("versions", {})
    return {
        "config": {
            "model": decoding.get("engine"),
            "model_args": {"pretrained": model["id"], "revision": model.get("revision")},
            "model_dtype": model.get("dtype"),
            "model_revision": record.get("model_revision"),
            "batch_size": None,
            "batch_sizes": [],
            "device": run.get("cluster", {}).get("device"),
            "use_cache": None,
            "limit": None,
            "bootstrap_iters": run.get("metrics", {}).get("n_rounds"),
            "gen_kwargs": {name: decoding.get(name) for name in ("max_tokens", "stop")},
            "random_seed": run.get("seed"),
            "fewshot_seed": run.get("seed"),
        },
        "git_hash": record.get("commit"),
        "date": started.timestamp(),
        "pretty_env_info": ", ".join(f"{name} {version}" for name, version in versions.items()),
        "transformers_version": versions.get("transformers"),
        "upper_git_hash": None,
        "model_source": decoding.get("engine"),
        "model_name": model["id"],
        "model_name_sanitized": _sanitise_name(model["id"]),
        **dict.fromkeys(("system_instruction", "system_instruction_sha", "fewshot_as_multiturn")),
        **dict.fromkeys(("chat_template", "chat_template_sha")),
        "task_hashes": {},
        "total_evaluation_time_seconds": None if seconds is None else str(seconds),
    }


def _sanitise_name(model: str) -> str:
    return re.sub(r'["<>:/|\\?*\[\]]+', "__", model)


def mlflow_metrics(metrics: pl.DataFrame) -> dict[str, float]:
    """The numbers of whole settings; relations stay in the tables."""
    overall = metrics.filter(pl.col("slice").is_null()).drop_nulls("value")
    rows = overall.select("setting", "variant", "metric").iter_rows()
    names = ("/".join(re.sub(r"[^\w\-. :]+", " ", part) for part in row if part) for row in rows)
    return dict(zip(names, overall["value"], strict=True))


def mlflow_params(record: Mapping[str, Any]) -> dict[str, str]:
    """The configuration of a run (its run.json), one line per field.

    >>> mlflow_params({"run": {"seed": 0, "model": {"name": "gpt2", "gguf_file": None}}})
    {'seed': '0', 'model.name': 'gpt2', 'model.gguf_file': 'None'}
    """
    return {name: str(value) for name, value in _flatten(record["run"])}


def _flatten(values: Mapping[str, Any], path: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in values.items():
        if isinstance(value, Mapping):
            yield from _flatten(value, f"{path}{name}.")
        else:
            yield f"{path}{name}", value


def mlflow_tags(record: Mapping[str, Any]) -> dict[str, str]:
    """What determines a run in addition to its configuration: commit, revision and versions.

    >>> mlflow_tags({"commit": "abc", "model_revision": "def", "versions": {"ray": "2.60.0"}})
    {'commit': 'abc', 'model_revision': 'def', 'version.ray': '2.60.0'}
    """
    versions = {f"version.{name}": value for name, value in record["versions"].items()}
    fields = {name: record.get(name) for name in ("commit", "model_revision")}
    return {name: str(value) for name, value in {**fields, **versions}.items() if value is not None}
