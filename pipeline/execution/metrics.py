"""What a sweep shows to Prometheus, through the endpoint that Ray has on each node.

docker/grafana.json is a dashboard of these. Ray puts `ray_` before a name, and `_total` behind that
of a count.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

from factsweep.pipeline.execution.progress import FAULTS


class Shown(NamedTuple):
    """A metric: its name, what it is, and whether it only grows."""

    name: str
    help: str
    grows: bool


# By what they are called in the counts of a tally (execution/tally.py).
SHOWN: Mapping[str, Shown] = {
    "prompts": Shown("factsweep_prompts", "Prompts that engines answered", True),
    "decoded": Shown("factsweep_answers", "Answers that engines gave", True),
    "prompt_tokens": Shown("factsweep_prompt_tokens", "Tokens of prompts", True),
    "cached_tokens": Shown("factsweep_cached_tokens", "Tokens of prompts from the cache", True),
    "output_tokens": Shown("factsweep_output_tokens", "Tokens of answers", True),
    "errors": Shown("factsweep_errors", "Prompts that became error rows", True),
    "faults": Shown("factsweep_faults", "Calls of an endpoint that are asked again", True),
    "store_refused": Shown(
        "factsweep_store_refused", "Requests that a store refused for a moment", True
    ),
    "cached_share": Shown("factsweep_cached_share", "Share of prompt tokens from the cache", False),
    "engines": Shown("factsweep_engines", "Engines that are alive", False),
    "loading": Shown("factsweep_engines_loading", "Engines that load the model", False),
    "shards_left": Shown("factsweep_shards_left", "Shards that are not published", False),
    "answers_left": Shown("factsweep_answers_left", "Answers that are missing", False),
}


class Metrics:
    """The metrics of a run, from its counts; the tag `run` names it."""

    def __init__(self, run: str) -> None:
        from ray.util import metrics

        self._before: Mapping[str, float] = {}
        self._metrics: dict[str, Any] = {}
        for key, shown in SHOWN.items():
            kind = metrics.Counter if shown.grows else metrics.Gauge
            self._metrics[key] = kind(shown.name, description=shown.help, tag_keys=("run",))
            self._metrics[key].set_default_tags({"run": run})

    def show(self, counts: Mapping[str, float]) -> None:
        """Show the counts of this moment; they may begin again where the tally was restarted."""
        now = _figures(counts)
        for key, shown in SHOWN.items():
            if not shown.grows:
                self._metrics[key].set(now[key])
            elif (more := now[key] - self._before.get(key, 0)) > 0:
                self._metrics[key].inc(more)
        self._before = now


def _figures(counts: Mapping[str, float]) -> dict[str, float]:
    """What is shown, by the counts of a tally.

    >>> found = _figures({"all_shards": 4, "shards": 1, "prompt_tokens": 8, "cached_tokens": 2})
    >>> found["shards_left"], found["cached_share"], found["errors"]
    (3, 0.25, 0)
    """
    found = {key: counts.get(key, 0) for key in SHOWN}
    found["faults"] = sum(counts.get(why, 0) for why in FAULTS)
    found["cached_share"] = found["cached_tokens"] / max(1, found["prompt_tokens"])
    found["shards_left"] = max(0, counts.get("all_shards", 0) - counts.get("shards", 0))
    found["answers_left"] = max(0, counts.get("all_answers", 0) - counts.get("answers", 0))
    return found
