"""Shows the counts of a run in one live line or plain lines, and as metrics for Prometheus.

Ray serves the metrics on each node; docker/grafana.json is a dashboard of them.
"""

import time
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from factsweep.operators.wording import count
from factsweep.pipeline.machine.logs import Meter

Counts = Mapping[str, float]


class CountLabel(NamedTuple):
    """A count as a metric, and as a noun with its suffix in the line if it is not 0; null: neither.

    Ray adds the prefix `ray_`, and the suffix `_total` to metrics that only grow.
    """

    metric: str | None = None
    help: str = ""
    grows: bool = True
    noun_and_suffix: tuple[str, str] | None = None


# By their names in a progress counter (progress_counter.py) and in `_derive_figures`.
COUNTS: Mapping[str, CountLabel] = {
    "prompts": CountLabel("factsweep_prompts", "Prompts that engines answered"),
    "decoded": CountLabel("factsweep_answers", "Answers that engines gave"),
    "prompt_tokens": CountLabel("factsweep_prompt_tokens", "Tokens of prompts"),
    "cached_tokens": CountLabel("factsweep_cached_tokens", "Tokens of prompts from the cache"),
    "output_tokens": CountLabel("factsweep_output_tokens", "Tokens of answers"),
    "errors": CountLabel(
        "factsweep_errors", "Prompts that became error rows", noun_and_suffix=("error", "")
    ),
    "again": CountLabel(noun_and_suffix=("answer", " given twice")),
    # Why calls of an endpoint are retried.
    "turned_away": CountLabel(noun_and_suffix=("call", " turned away")),
    "timed_out": CountLabel(noun_and_suffix=("call", " timed out")),
    "failed": CountLabel(noun_and_suffix=("call", " failed")),
    "down": CountLabel(noun_and_suffix=("server", " down")),  # of a pool, for now
    "faults": CountLabel("factsweep_faults", "Calls of an endpoint that are asked again"),
    "store_refused": CountLabel(
        "factsweep_store_refused",
        "Requests that a store refused for a moment",
        noun_and_suffix=("request", " refused by the store"),
    ),
    "cached_share": CountLabel(
        "factsweep_cached_share", "Share of prompt tokens from the cache", grows=False
    ),
    "engines": CountLabel("factsweep_engines", "Engines that are alive", grows=False),
    "loading": CountLabel("factsweep_engines_loading", "Engines that load the model", grows=False),
    "shards_left": CountLabel(
        "factsweep_shards_left", "Shards that are not published", grows=False
    ),
    "answers_left": CountLabel("factsweep_answers_left", "Answers that are missing", grows=False),
}
SHOWN = {name: count for name, count in COUNTS.items() if count.metric is not None}
_WINDOW_S = 60.0  # of rates
_SURE_S = 10.0  # of answers, before the time left is predicted


class RecentCounts(NamedTuple):
    """The counts of the last `seconds`."""

    counts: Counts
    seconds: float


@dataclass
class Pace:
    """The speed of decoding over the last minute, or longer if it has no answer.

    A mean since the start would include the time in which engines load.
    """

    _past: deque[tuple[float, Counts]] = field(default_factory=deque)
    _first_answer: float | None = None

    def add(self, time_s: float, counts: Counts) -> None:
        """Add the counts of this moment; counting starts when the first engine is ready."""
        if not counts.get("started"):
            return
        if self._past and counts["decoded"] < self._past[-1][1]["decoded"]:
            self._past.clear()  # the tally was restarted
        if self._first_answer is None and counts["decoded"]:
            self._first_answer = time_s
        self._past.append((time_s, counts))
        while len(self._past) > 2:
            earlier_s, earlier = self._past[1]
            if time_s - earlier_s < _WINDOW_S or earlier["decoded"] == counts["decoded"]:
                break
            self._past.popleft()

    def recent(self) -> RecentCounts | None:
        """The recent counts; null without an answer."""
        if len(self._past) < 2:
            return None
        (start_s, start_counts), (end_s, counts) = self._past[0], self._past[-1]
        new = {name: value - start_counts.get(name, 0) for name, value in counts.items()}
        return RecentCounts(new, end_s - start_s) if new["decoded"] else None

    def is_sure(self) -> bool:
        """Whether answers have come for long enough to predict the time left."""
        last_s = self._past[-1][0] if self._past else 0.0
        return self._first_answer is not None and last_s - self._first_answer >= _SURE_S


class DecodingBar:
    """Shows the decoding on a meter; `start_s` is the time limit for the first engine."""

    def __init__(self, meter: Meter, start_s: float) -> None:
        self._meter, self._start_s = meter, start_s
        self._began = time.monotonic()
        self._has_shards_at: float | None = None
        self._has_engine_at: float | None = None
        self._pace = Pace()
        self._counts: Counts = {}

    def show(self, counts: Counts) -> None:
        """Draw the line, or print it if the last plain one was long ago."""
        time_s = time.monotonic()
        self._pace.add(time_s, counts)
        if self._has_shards_at is None and counts.get("all_shards"):
            self._has_shards_at = time_s
        if self._has_engine_at is None and counts.get("started"):
            self._has_engine_at = time_s
        self._counts = counts
        text = line(counts, self._pace.recent(), sure=self._pace.is_sure())
        if self._has_shards_at is not None and self._has_engine_at is None:
            text += f" · {clock(time_s - self._has_shards_at)} of at most {clock(self._start_s)}"
        self._meter.show(text)

    def close(self) -> None:
        """Print a summary with mean rates, if there was anything to decode."""
        if not self._counts.get("all_answers"):
            return
        time_s, parts = time.monotonic(), [*_format_counts(self._counts)]
        engine_s = 0.0 if self._has_engine_at is None else time_s - self._has_engine_at
        if self._counts["decoded"] and engine_s > 0:
            parts += rates(self._counts, engine_s, "decoded")
        parts.append(f"{clock(time_s - self._began)} in all")
        self._meter.say(f"{self._meter.title}: {' · '.join(parts)}")


class Metrics:
    """The metrics of a run; the tag `run` names it."""

    def __init__(self, run: str) -> None:
        from ray.util import metrics

        self._before: Counts = {}
        self._metrics: dict[str, Any] = {}
        for name, metric in SHOWN.items():
            kind = metrics.Counter if metric.grows else metrics.Gauge
            self._metrics[name] = kind(metric.metric, description=metric.help, tag_keys=("run",))
            self._metrics[name].set_default_tags({"run": run})

    def show(self, counts: Counts) -> None:
        """Show the counts of this moment; a restarted tally begins again at 0."""
        figures = _derive_figures(counts)
        for name, metric in SHOWN.items():
            if not metric.grows:
                self._metrics[name].set(figures[name])
            elif (increase := figures[name] - self._before.get(name, 0)) > 0:
                self._metrics[name].inc(increase)
        self._before = figures


def _derive_figures(counts: Counts) -> dict[str, float]:
    figures = {name: counts.get(name, 0) for name in COUNTS}
    figures["faults"] = figures["turned_away"] + figures["timed_out"] + figures["failed"]
    figures["cached_share"] = figures["cached_tokens"] / max(1, figures["prompt_tokens"])
    for name in ("shards", "answers"):
        figures[f"{name}_left"] = max(0, counts.get(f"all_{name}", 0) - counts.get(name, 0))
    return figures


def line(counts: Counts, recent: RecentCounts | None, *, sure: bool) -> str:
    """The state and the speed of decoding; with the time left if that is `sure`.

    >>> counts = {"shards": 1, "all_shards": 4, "answers": 5, "all_answers": 25, "started": 1}
    >>> line(counts, None, sure=False)
    '5/25 answers · 1/4 shards · waiting for the first answers'
    >>> new = {"decoded": 4, "prompt_tokens": 90, "cached_tokens": 45, "output_tokens": 12}
    >>> line({**counts, "engines": 2}, RecentCounts(new, 2.0), sure=True).partition("shards · ")[2]
    '2.0 answers/s · 45 + 6 tokens/s · 50% cached · 2 engines · 0:10 left'
    """
    if not counts.get("all_shards"):
        return "no prompts to decode yet"
    parts = [*_format_counts(counts)]
    if not counts.get("started"):
        loading = counts.get("loading", 0)
        state = f"{count(loading, 'engine')} loading the model" if loading else "no engine yet"
        return " · ".join([*parts, state])
    n_left = counts["all_answers"] - counts["answers"]
    if to_come := counts.get("to_come"):
        parts.append(f"{count(to_come, 'setting')} to come")
    elif n_left <= 0:
        return " · ".join([*parts, "matching and measuring"])
    if recent is None:
        return " · ".join([*parts, "waiting for the first answers"])
    parts += rates(recent.counts, recent.seconds, "decoded")
    parts.append(count(counts.get("engines", 0), "engine"))
    if sure and not to_come:
        parts.append(f"{clock(n_left * recent.seconds / recent.counts['decoded'])} left")
    return " · ".join(parts)


def _format_counts(counts: Counts) -> Iterator[str]:
    yield f"{counts['answers']:,.0f}/{counts['all_answers']:,.0f} answers"
    yield f"{counts.get('shards', 0):,.0f}/{counts['all_shards']:,.0f} shards"
    for name, counted in COUNTS.items():
        if counted.noun_and_suffix and counts.get(name):
            noun, suffix = counted.noun_and_suffix
            yield f"{count(counts[name], noun)}{suffix}"


def rates(counts: Counts, seconds: float, unit: Literal["decoded", "prompts"]) -> Iterator[str]:
    """Answers or prompts per second, tokens read and written per second, the cached share."""
    name = "answers" if unit == "decoded" else unit
    yield f"{counts[unit] / seconds:,.1f} {name}/s"
    read, written = (counts[f"{kind}_tokens"] / seconds for kind in ("prompt", "output"))
    yield f"{read:,.0f} + {written:,.0f} tokens/s"
    yield f"{counts['cached_tokens'] / max(1, counts['prompt_tokens']):.0%} cached"


def clock(seconds: float) -> str:
    """A duration as h:mm:ss or m:ss.

    >>> clock(75.2), clock(3675)
    ('1:15', '1:01:15')
    """
    minutes, rest_s = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest_s:02d}" if hours else f"{minutes}:{rest_s:02d}"
