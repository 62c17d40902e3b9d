"""What a user sees while work goes on: one live line, or plain lines where there is no terminal."""

import time
from collections import Counter
from collections.abc import Iterator, Mapping
from types import TracebackType
from typing import Any

from pipeline.execution.cluster import beside_driver
from pipeline.machine.meter import Meter

ALIVE_S = 30.0  # an engine that was heard of so long ago is alive


class Tally:
    """Counts that many workers add to; a Ray actor."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()
        self._seen: dict[str, float] = {}
        self._failed_starts = 0
        self._notes: list[str] = []
        self._stopping = False

    def stop(self) -> None:
        """Ask all workers to stop at their next report."""
        self._stopping = True

    def add(self, counts: dict[str, float], engine: str | None = None) -> bool:
        """Add to the counts, in the name of an engine; whether to stop."""
        for name, value in counts.items():
            self._counts[name] += value  # type: ignore[assignment]
        if engine is not None:
            self._seen[engine] = time.monotonic()
        return self._stopping

    def started(self) -> None:
        """An engine is ready."""
        self._counts["started"] += 1
        self._failed_starts = 0

    def failed_start(self) -> int:
        """An engine did not load; how many have failed since the last that did."""
        self._failed_starts += 1
        return self._failed_starts

    def say(self, text: str) -> None:
        """Leave a sentence for the user."""
        self._notes.append(text)

    def read(self) -> tuple[dict[str, float], list[str]]:
        """The counts, and the sentences since the last reading."""
        notes, self._notes = self._notes, []
        now = time.monotonic()
        alive = sum(now - seen < ALIVE_S for seen in self._seen.values())
        return {**self._counts, "engines": alive}, notes


class Bar:
    """One line about the decoding, drawn anew as it goes on."""

    def __init__(self, title: str) -> None:
        self._title = title
        self._meter = Meter(title)
        self._started = time.monotonic()
        self._first: float | None = None
        self._counts: dict[str, float] = {}

    def __enter__(self) -> "Bar":
        self._meter.__enter__()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._meter.__exit__(kind, error, trace)

    def say(self, text: str) -> None:
        """Print a sentence above the line."""
        self._meter.say(text)

    def show(self, counts: dict[str, float]) -> None:
        """Draw the line, or print it if the last plain one was long ago."""
        if not counts:
            return
        self._counts = counts
        now = time.monotonic()
        if counts.get("started") and self._first is None:
            self._first = now
        self._meter.show(line(counts, now - (self._first or now)))

    def close(self) -> None:
        """Print the last line for good, if there was anything to do."""
        if not self._counts.get("all_answers"):
            return
        now = time.monotonic()
        seconds = now - (self._first or now)
        self.say(
            f"{self._title}: {line(self._counts, seconds)} · {clock(now - self._started)} in all"
        )


def line(counts: dict[str, float], seconds: float) -> str:
    """The state of the work, `seconds` after its first engine was ready.

    >>> line({"shards": 1, "all_shards": 4, "prompts": 5, "answers": 5, "all_answers": 9,
    ...       "prompt_tokens": 90, "cached_tokens": 45, "output_tokens": 12, "engines": 2}, 1.0)
    '5/9 answers · 1/4 shards · 5.0 prompts/s · 90 + 12 tokens/s · 50% cached · 2 alive · 0:01 left'
    """
    answers, everything = counts.get("answers", 0), counts.get("all_answers", 0)
    parts = [
        f"{answers:,.0f}/{everything:,.0f} answers",
        f"{counts.get('shards', 0):.0f}/{counts.get('all_shards', 0):.0f} shards",
    ]
    if not (answers and seconds > 0):
        return " · ".join([*parts, "loading the model"])
    parts += rates(counts, seconds)
    parts.append(f"{counts.get('engines', 0):.0f} alive")
    if counts.get("errors"):
        parts.append(f"{counts['errors']:.0f} errors")
    parts.append(f"{clock((everything - answers) * seconds / answers)} left")
    return " · ".join(parts)


def rates(counts: Mapping[str, float], seconds: float) -> Iterator[str]:
    """Prompts a second, prompt and output tokens a second, the share that came from the cache."""
    yield f"{counts['prompts'] / seconds:.1f} prompts/s"
    yield (
        f"{counts['prompt_tokens'] / seconds:,.0f} + {counts['output_tokens'] / seconds:,.0f} "
        "tokens/s"
    )
    yield f"{counts['cached_tokens'] / max(1, counts['prompt_tokens']):.0%} cached"


def clock(seconds: float) -> str:
    """A duration as h:mm:ss or m:ss.

    >>> clock(75.2), clock(3675)
    ('1:15', '1:01:15')
    """
    minutes, left = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{left:02d}" if hours else f"{minutes}:{left:02d}"


def tally_actor() -> Any:
    """A Tally beside the driver, that all workers of the cluster can reach.

    One that dies is started anew: the counts begin again, the work does not.
    """
    import ray

    beside = {"scheduling_strategy": beside_driver()}
    return ray.remote(num_cpus=0, max_restarts=-1, max_task_retries=-1, **beside)(Tally).remote()
