"""What was run, in a few rows: from a run's record (run.json)."""

from collections.abc import Mapping, Sequence
from typing import Any

import yaml

from factsweep.operators.pages.page import Ran

_HOURS = {"gpu_hours": "GPU-hours", "core_hours": "core-hours"}


def ran(name: str, record: Mapping[str, Any], rows: Mapping[str, str], shown: Sequence[str]) -> Ran:
    """A run with its rows, and the parts of its configuration that are shown."""
    parts = {part: record["run"][part] for part in shown if part in record["run"]}
    return Ran(name, rows, yaml.safe_dump(parts, sort_keys=False, allow_unicode=True))


def ran_rows(record: Mapping[str, Any], errors: Mapping[str, int]) -> dict[str, str]:
    """The rows by heading; `errors` counts the prompts without an answer by setting."""
    run, cost = record["run"], record.get("cost", {})
    model, hardware = run["model"], record["hardware"]
    rows = {
        "model": f"{model['id']} ({model['source']})",
        "revision": record["model_revision"],
        "computed in": model["dtype"],
        **({"quantised": quantised} if (quantised := record.get("model_quantised")) else {}),
        "trust_remote_code": "ON" if model.get("trust_remote_code") else "off",
        "engine": run["decoding"]["engine"],
        "seed": str(run["seed"]),
        "driver's machine": f"{hardware['cpus']} CPUs, {hardware.get('cpu', hardware['machine'])}",
        **_engines(record.get("spent", [])),
        **_cost(cost),
        "prompts without an answer": "; ".join(f"{k}: {n:,}" for k, n in errors.items()),
        "factsweep commit": record["commit"] or "unknown",
        "versions": ", ".join(f"{k} {v}" for k, v in record["versions"].items()),
    }
    if model.get("endpoint"):
        rows |= {"model": f"{model['id']} at {model['endpoint']}"}
        del rows["computed in"], rows["trust_remote_code"]
    if run.get("answers"):  # no engine of ours gave them
        rows |= {"model": model["name"], "engine": "none: answers of another system"}
        rows.pop("computed in", None)
    return rows


def _engines(spent: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """What an engine held, of those that answered.

    >>> _engines([{"model": "m", "hardware": "NVIDIA H100", "gpus": 4}, {"model": None}])
    {'an engine': 'NVIDIA H100 × 4'}
    """
    held = {
        f"{row['hardware']} × {row['gpus']}" if row["gpus"] else str(row["hardware"])
        for row in spent
        if row["model"] and row["hardware"]
    }
    return {"an engine": ", ".join(sorted(held))} if held else {}


def _cost(cost: Mapping[str, Mapping[str, float]]) -> dict[str, str]:
    """Hours by stage, tokens, and the share of prompt tokens that the prefix cache gave."""
    rows = {
        heading: _listed({stage: each.get(unit, 0) for stage, each in cost.items()})
        for unit, heading in _HOURS.items()
    }
    tokens = {
        name: sum(each.get(name, 0) for each in cost.values())
        for name in ("prompt_tokens", "output_tokens", "cached_tokens")
    }
    if any("cost" in each for each in cost.values()):
        rows["spent"] = f"{sum(each.get('cost', 0) for each in cost.values()):,.4f}"
    if tokens["prompt_tokens"]:
        rows["tokens"] = f"{tokens['prompt_tokens']:,} in, {tokens['output_tokens']:,} out"
        rows["cached"] = f"{tokens['cached_tokens'] / tokens['prompt_tokens']:.0%} of the tokens in"
    return {heading: text for heading, text in rows.items() if text}


def _listed(hours: Mapping[str, float]) -> str:
    total = sum(hours.values())
    if not total:
        return ""
    parts = ", ".join(f"{stage} {each:.3g}" for stage, each in hours.items() if each)
    return f"{total:.3g} ({parts})"
