"""A run as MLflow has it: parameters, tags, and metrics, each with a name and a value."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

import polars as pl


def mlflow_metrics(metrics: pl.DataFrame) -> dict[str, float]:
    """The numbers of whole settings; relations stay in the tables."""
    whole = metrics.filter(pl.col("slice").is_null()).drop_nulls("value")
    rows = whole.select("setting", "variant", "metric", "value").iter_rows()
    return {_name(*names): value for *names, value in rows}


def _name(*parts: str | None) -> str:
    """The parts, in the letters that MLflow allows."""
    return "/".join(re.sub(r"[^\w\-. :]+", " ", part) for part in parts if part)


def mlflow_params(record: Mapping[str, Any]) -> dict[str, str]:
    """The configuration of a run (its run.json), one line per field.

    >>> mlflow_params({"run": {"seed": 0, "model": {"name": "gpt2", "gguf_file": None}}})
    {'seed': '0', 'model.name': 'gpt2', 'model.gguf_file': 'None'}
    """
    return {name: str(value) for name, value in _flat(record["run"])}


def _flat(values: Mapping[str, Any], path: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in values.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{path}{name}.")
        else:
            yield f"{path}{name}", value


def mlflow_tags(record: Mapping[str, Any]) -> dict[str, str]:
    """What determines a run in addition to its configuration: commit, revision and versions.

    >>> mlflow_tags({"commit": "abc", "model_revision": "def", "versions": {"ray": "2.60.0"}})
    {'commit': 'abc', 'model_revision': 'def', 'version.ray': '2.60.0'}
    """
    versions = {f"version.{name}": each for name, each in record["versions"].items()}
    named = {name: record.get(name) for name in ("commit", "model_revision")}
    return {name: str(each) for name, each in {**named, **versions}.items() if each is not None}
