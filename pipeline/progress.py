"""What a user sees while work goes on: one live line, or plain lines where there is no terminal."""

import sys
import time
from collections import Counter
from types import TracebackType
from typing import Any

from rich.console import Console
from rich.live import Live

PLAIN_EVERY_S = 30.0


class Tally:
    """Counts that many workers add to; a Ray actor."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()
        self._notes: list[str] = []
        self._stopping = False

    def stop(self) -> None:
        """Ask all workers to stop at their next report."""
        self._stopping = True

    def add(self, counts: dict[str, float]) -> bool:
        """Add to the counts; whether to stop."""
        for name, value in counts.items():
            self._counts[name] += value  # type: ignore[assignment]
        return self._stopping

    def say(self, text: str) -> None:
        """Leave a sentence for the user."""
        self._notes.append(text)

    def read(self) -> tuple[dict[str, float], list[str]]:
        """The counts, and the sentences since the last reading."""
        notes, self._notes = self._notes, []
        return dict(self._counts), notes


class Bar:
    """One line about the work, drawn anew as it goes on."""

    def __init__(self, title: str) -> None:
        self._title = title
        self._console = Console(file=sys.stderr)
        self._live = Live(console=self._console, refresh_per_second=4, transient=True)
        self._started = self._printed = time.monotonic()
        self._first: float | None = None
        self._counts: dict[str, float] = {}

    def __enter__(self) -> "Bar":
        if self._console.is_terminal:
            self._live.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._console.is_terminal:
            self._live.stop()

    def say(self, text: str) -> None:
        """Print a sentence above the line."""
        self._console.print(text, highlight=False, markup=False, soft_wrap=True)

    def show(self, counts: dict[str, float]) -> None:
        """Draw the line, or print it if the last plain one was long ago."""
        if not counts:
            return
        self._counts = counts
        now = time.monotonic()
        if counts.get("prompts") and self._first is None:
            self._first = now
        text = f"{self._title}: {line(counts, now - (self._first or now))}"
        if self._console.is_terminal:
            self._live.update(text)
        elif now - self._printed >= PLAIN_EVERY_S:
            self._printed = now
            self.say(text)

    def close(self) -> None:
        """Print the last line for good, if there was anything to do."""
        if not self._counts:
            return
        now = time.monotonic()
        seconds = now - (self._first or now)
        self.say(
            f"{self._title}: {line(self._counts, seconds)} · {clock(now - self._started)} in all"
        )


def line(counts: dict[str, float], seconds: float) -> str:
    """The state of the work, `seconds` after its first answer.

    >>> line({"shards": 1, "all_shards": 4, "prompts": 50, "answers": 50, "all_answers": 100,
    ...       "prompt_tokens": 100, "cached_tokens": 75}, 10.0)
    '50/100 answers · 1/4 shards · 5.0 prompts/s · 75% of prompt tokens cached · 0:10 left'
    """
    answers, everything = counts.get("answers", 0), counts.get("all_answers", 0)
    parts = [
        f"{answers:,.0f}/{everything:,.0f} answers",
        f"{counts.get('shards', 0):.0f}/{counts.get('all_shards', 0):.0f} shards",
    ]
    if seconds > 0 and answers:
        parts.append(f"{counts.get('prompts', 0) / seconds:.1f} prompts/s")
    if counts.get("prompt_tokens"):
        share = counts.get("cached_tokens", 0) / counts["prompt_tokens"]
        parts.append(f"{share:.0%} of prompt tokens cached")
    if seconds > 0 and answers:
        parts.append(f"{clock((everything - answers) * seconds / answers)} left")
    else:
        parts.append("loading the model")
    return " · ".join(parts)


def clock(seconds: float) -> str:
    """A duration as h:mm:ss or m:ss.

    >>> clock(75.2), clock(3675)
    ('1:15', '1:01:15')
    """
    minutes, left = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{left:02d}" if hours else f"{minutes}:{left:02d}"


def tally_actor() -> Any:
    """A Tally that all workers of the cluster can reach."""
    import ray

    return ray.remote(num_cpus=0)(Tally).remote()
