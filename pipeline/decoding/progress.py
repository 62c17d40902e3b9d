"""What is seen of the work: its counts, in one live line or plain lines, and as metrics.

What engines report is described once, in `COUNTS`. Prometheus reads the metrics from the endpoint
that Ray has on each node; docker/grafana.json is a dashboard of these.
"""

import time
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from factsweep.operators.wording import count
from factsweep.pipeline.machine.logs import Meter

Counts = Mapping[str, float]


class Counted(NamedTuple):
    """What is counted: as a metric, and as the line says it where there are any; null: it is not.

    Ray puts `ray_` before the name of a metric, and `_total` behind that of one that only grows.
    `said` is a noun, and what is said behind it.
    """

    metric: str | None = None
    help: str = ""
    grows: bool = True
    said: tuple[str, str] | None = None


# By what they are called in a tally (tally.py), and what follows from these (`_figures`).
COUNTS: Mapping[str, Counted] = {
    "prompts": Counted("factsweep_prompts", "Prompts that engines answered"),
    "decoded": Counted("factsweep_answers", "Answers that engines gave"),
    "prompt_tokens": Counted("factsweep_prompt_tokens", "Tokens of prompts"),
    "cached_tokens": Counted("factsweep_cached_tokens", "Tokens of prompts from the cache"),
    "output_tokens": Counted("factsweep_output_tokens", "Tokens of answers"),
    "errors": Counted("factsweep_errors", "Prompts that became error rows", said=("error", "")),
    "again": Counted(said=("answer", " given twice")),
    # Why calls of an endpoint are asked again.
    "turned_away": Counted(said=("call", " turned away")),
    "timed_out": Counted(said=("call", " timed out")),
    "failed": Counted(said=("call", " failed")),
    "faults": Counted("factsweep_faults", "Calls of an endpoint that are asked again"),
    "store_refused": Counted(
        "factsweep_store_refused",
        "Requests that a store refused for a moment",
        said=("request", " refused by the store"),
    ),
    "cached_share": Counted(
        "factsweep_cached_share", "Share of prompt tokens from the cache", grows=False
    ),
    "engines": Counted("factsweep_engines", "Engines that are alive", grows=False),
    "loading": Counted("factsweep_engines_loading", "Engines that load the model", grows=False),
    "shards_left": Counted("factsweep_shards_left", "Shards that are not published", grows=False),
    "answers_left": Counted("factsweep_answers_left", "Answers that are missing", grows=False),
}
SHOWN = {name: each for name, each in COUNTS.items() if each.metric is not None}
_WINDOW_S = 60.0  # how far back rates look
_SURE_S = 10.0  # of answers, before a rate is taken to last


class Recent(NamedTuple):
    """What was counted lately, in so many seconds."""

    counts: Counts
    seconds: float


@dataclass
class Pace:
    """How fast work proceeds: over the last minute, or further back until there is an answer.

    A mean since the start would hold on to slow beginnings: engines that were not yet ready.
    """

    _past: deque[tuple[float, Counts]] = field(default_factory=deque)
    _first_answer: float | None = None

    def add(self, now: float, counts: Counts) -> None:
        """Note the counts of this moment; counting starts with the first engine that is ready."""
        if not counts.get("started"):
            return
        if self._past and counts["decoded"] < self._past[-1][1]["decoded"]:
            self._past.clear()  # the tally was restarted
        if self._first_answer is None and counts["decoded"]:
            self._first_answer = now
        self._past.append((now, counts))
        while len(self._past) > 2 and self._is_old(now, self._past[1]):
            self._past.popleft()

    def _is_old(self, now: float, past: tuple[float, Counts]) -> bool:
        then, counts = past
        return now - then >= _WINDOW_S and counts["decoded"] < self._past[-1][1]["decoded"]

    def recent(self) -> Recent | None:
        """What was counted lately; null where there is no answer."""
        if len(self._past) < 2:
            return None
        (then, before), (now, counts) = self._past[0], self._past[-1]
        found = {name: value - before.get(name, 0) for name, value in counts.items()}
        return Recent(found, now - then) if found["decoded"] else None

    def is_sure(self) -> bool:
        """Whether answers have come for long enough to say how much time is left."""
        now = self._past[-1][0] if self._past else 0.0
        return self._first_answer is not None and now - self._first_answer >= _SURE_S


class Bar:
    """What a meter shows of the decoding; a first engine may take `start_s` to be ready."""

    def __init__(self, meter: Meter, start_s: float) -> None:
        self._meter = meter
        self._start_s = start_s
        self._started = time.monotonic()
        self._waiting: float | None = None
        self._first: float | None = None
        self._pace = Pace()
        self._counts: Counts = {}

    def show(self, counts: Counts) -> None:
        """Draw the line, or print it if the last plain one was long ago."""
        now = time.monotonic()
        self._pace.add(now, counts)
        if self._waiting is None and counts.get("all_shards"):
            self._waiting = now
        if self._first is None and counts.get("started"):
            self._first = now
        self._counts = counts
        text = line(counts, self._pace.recent(), sure=self._pace.is_sure())
        if self._waiting is not None and self._first is None:
            text += f" · {clock(now - self._waiting)} of at most {clock(self._start_s)}"
        self._meter.show(text)

    def close(self) -> None:
        """Print what was done, for good, with its mean rates, if there was anything to do."""
        if not self._counts.get("all_answers"):
            return
        now = time.monotonic()
        parts = [*_done(self._counts)]
        if self._counts["decoded"] and self._first is not None and now > self._first:
            parts += rates(self._counts, now - self._first, "decoded")
        told = f"{' · '.join(parts)} · {clock(now - self._started)} in all"
        self._meter.say(f"{self._meter.title}: {told}")


class Metrics:
    """The metrics of a run, from its counts; the tag `run` names it."""

    def __init__(self, run: str) -> None:
        from ray.util import metrics

        self._before: Counts = {}
        self._metrics: dict[str, Any] = {}
        for name, shown in SHOWN.items():
            kind = metrics.Counter if shown.grows else metrics.Gauge
            self._metrics[name] = kind(shown.metric, description=shown.help, tag_keys=("run",))
            self._metrics[name].set_default_tags({"run": run})

    def show(self, counts: Counts) -> None:
        """Show the counts of this moment; they may begin again where the tally was restarted."""
        now = _figures(counts)
        for name, shown in SHOWN.items():
            if not shown.grows:
                self._metrics[name].set(now[name])
            elif (more := now[name] - self._before.get(name, 0)) > 0:
                self._metrics[name].inc(more)
        self._before = now


def _figures(counts: Counts) -> dict[str, float]:
    """The counts, 0 where there is none, and what follows from them.

    >>> found = _figures({"all_shards": 4, "shards": 1, "prompt_tokens": 8, "cached_tokens": 2})
    >>> found["shards_left"], found["cached_share"], found["errors"]
    (3, 0.25, 0)
    """
    found = {name: counts.get(name, 0) for name in COUNTS}
    found["faults"] = found["turned_away"] + found["timed_out"] + found["failed"]
    found["cached_share"] = found["cached_tokens"] / max(1, found["prompt_tokens"])
    for name in ("shards", "answers"):
        found[f"{name}_left"] = max(0, counts.get(f"all_{name}", 0) - counts.get(name, 0))
    return found


def line(counts: Counts, recent: Recent | None, *, sure: bool) -> str:
    """The state of the work, and how fast it is; the time that is left, if that is `sure`.

    >>> counts = {"shards": 1, "all_shards": 4, "answers": 5, "all_answers": 25, "started": 1}
    >>> lately = {"decoded": 4, "prompt_tokens": 90, "cached_tokens": 45, "output_tokens": 12}
    >>> line(counts, None, sure=False)
    '5/25 answers · 1/4 shards · waiting for the first answers'
    >>> line({**counts, "engines": 2}, Recent(lately, 2.0), sure=True).partition("shards · ")[2]
    '2.0 answers/s · 45 + 6 tokens/s · 50% cached · 2 engines · 0:10 left'
    """
    if not counts.get("all_shards"):
        return "no prompts to decode yet"
    parts = [*_done(counts)]
    if not counts.get("started"):
        loading = counts.get("loading", 0)
        what = f"{count(loading, 'engine')} loading the model" if loading else "no engine yet"
        return " · ".join([*parts, what])
    left = counts["all_answers"] - counts["answers"]
    if to_come := counts.get("to_come"):
        parts.append(f"{count(to_come, 'setting')} to come")
    elif left <= 0:
        return " · ".join([*parts, "matching and measuring"])
    if recent is None:
        return " · ".join([*parts, "waiting for the first answers"])
    parts += rates(recent.counts, recent.seconds, "decoded")
    parts.append(count(counts.get("engines", 0), "engine"))
    if sure and not to_come:
        parts.append(f"{clock(left * recent.seconds / recent.counts['decoded'])} left")
    return " · ".join(parts)


def _done(counts: Counts) -> Iterator[str]:
    yield f"{counts['answers']:,.0f}/{counts['all_answers']:,.0f} answers"
    yield f"{counts.get('shards', 0):,.0f}/{counts['all_shards']:,.0f} shards"
    for name, (noun, behind) in ((n, each.said) for n, each in COUNTS.items() if each.said):
        if counts.get(name):
            yield f"{count(counts[name], noun)}{behind}"


def rates(counts: Counts, seconds: float, unit: Literal["decoded", "prompts"]) -> Iterator[str]:
    """Answers or prompts per second, tokens in and out per second, the share that was cached."""
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
    minutes, left = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{left:02d}" if hours else f"{minutes}:{left:02d}"
