"""What engines did when, and on which GPUs: loading, or answering; what is in between is waiting.

The tally keeps it, by the one clock of its own machine; like the tally it loads little. An engine
that is killed is taken to be at work until another begins in its place.
"""

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

Doing = Literal["loading", "answering"]


@dataclass
class _At:
    """An engine: where it is, and since when it does what; null: it waits."""

    node: str
    gpus: tuple[str, ...]
    since: float
    doing: Doing | None = "loading"
    shards: set[str] = field(default_factory=set)


class Timeline:
    """The spans of all engines of a run that hold GPUs."""

    def __init__(self) -> None:
        self._spans: list[dict[str, Any]] = []
        self._at: dict[str, _At] = {}

    def born(self, engine: str, node: str, gpus: Sequence[str]) -> None:
        """An engine begins to load; one of the same name before it has ended."""
        self.ended(engine)
        if gpus:
            self._at[engine] = _At(node, tuple(gpus), time.time())

    def begun(self, engine: str, shard: str) -> None:
        """An engine answers a shard; who had it before has it no more."""
        for name, at in self._at.items():
            if name != engine and shard in at.shards:
                self.published(name, shard)
        if (own := self._at.get(engine)) is not None:
            own.shards.add(shard)
            if own.doing != "answering":
                self._turn(engine, "answering")

    def published(self, engine: str, shard: str) -> None:
        """An engine has published a shard; it may be at the next one already."""
        if (at := self._at.get(engine)) is not None:
            at.shards.discard(shard)
            if not at.shards and at.doing == "answering":
                self._turn(engine, None)

    def ended(self, engine: str) -> None:
        """An engine is no more."""
        if engine in self._at:
            self._turn(engine, None)
            del self._at[engine]

    def spans(self) -> list[dict[str, Any]]:
        """All that was done until now: engine, node, gpus, doing, began, ended (seconds)."""
        return [*self._spans, *self._open(time.time())]

    def _open(self, now: float) -> Iterator[dict[str, Any]]:
        for engine, at in self._at.items():
            if at.doing is not None and now > at.since:
                yield _span(engine, at, now)

    def _turn(self, engine: str, doing: Doing | None) -> None:
        at, now = self._at[engine], time.time()
        if at.doing is not None and now > at.since:
            self._spans.append(_span(engine, at, now))
        at.doing, at.since = doing, now


def _span(engine: str, at: _At, ended: float) -> dict[str, Any]:
    return {
        "engine": engine,
        "node": at.node,
        "gpus": list(at.gpus),
        "doing": at.doing,
        "began": at.since,
        "ended": ended,
    }
