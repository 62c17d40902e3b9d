"""What engines did when, and on which GPUs: loading, or answering; what is in between is waiting.

The tally keeps it, by the one clock of its own machine; like the tally it loads little. An engine
that is killed is taken to be at work until another begins in its place.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

Span = dict[str, Any]  # engine, node, gpus, doing, began, ended (seconds)


@dataclass
class _At:
    """An engine: itself, its node and its GPUs; the span that it is in, null where it waits."""

    held: Span
    span: Span | None = None
    shards: set[str] = field(default_factory=set)


class Timeline:
    """The spans of all engines of a run that hold GPUs."""

    def __init__(self) -> None:
        self._spans: list[Span] = []
        self._at: dict[str, _At] = {}

    def born(self, engine: str, node: str, gpus: Sequence[str]) -> None:
        """An engine begins to load; one of the same name before it has ended."""
        self.ended(engine)
        if gpus:
            self._at[engine] = _At({"engine": engine, "node": node, "gpus": list(gpus)})
            self._turn(engine, "loading")

    def begun(self, engine: str, shard: str) -> None:
        """An engine answers a shard; who had it before has it no more."""
        for other in self._at:
            if other != engine:
                self.published(other, shard)
        if (own := self._at.get(engine)) is not None:
            own.shards.add(shard)
            if own.span is None or own.span["doing"] == "loading":
                self._turn(engine, "answering")

    def published(self, engine: str, shard: str) -> None:
        """An engine has published a shard; it may be at the next one already."""
        at = self._at.get(engine)
        if at is not None and shard in at.shards:
            at.shards.discard(shard)
            if not at.shards:
                self._turn(engine, None)

    def ended(self, engine: str) -> None:
        """An engine is no more."""
        if engine in self._at:
            self._turn(engine, None)
            del self._at[engine]

    def spans(self) -> list[Span]:
        """All that was done until now."""
        now = time.time()
        open_ = (at.span for at in self._at.values() if at.span is not None)
        return [*self._spans, *({**each, "ended": now} for each in open_ if now > each["began"])]

    def _turn(self, engine: str, doing: Literal["loading", "answering"] | None) -> None:
        at, now = self._at[engine], time.time()
        if at.span is not None and now > at.span["began"]:
            self._spans.append({**at.span, "ended": now})
        at.span = None if doing is None else {**at.held, "doing": doing, "began": now}
