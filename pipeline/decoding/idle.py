"""How long an engine has nothing to do: all that it was asked is answered, and it waits for us."""

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple


class Used(NamedTuple):
    """Seconds of an engine, and those of them in which it had nothing to answer."""

    seconds: float
    idle_seconds: float


class Clocked:
    """An engine, and how much of its time since it was loaded it has nothing to answer.

    A request is being answered from when it is handed out until its answer is there. Whatever is
    done meanwhile, the engine does not wait for it.

    An engine lives in one thread, that in which this is made, and is asked and stepped in no other:
    vLLM's is not safe there, and OpenMP's threads, with the cores that vLLM binds them to, belong
    to the thread that first asks for them.
    """

    def __init__(self, engine: Any) -> None:
        self._engine = engine
        self._thread = threading.get_ident()
        self._n_asked = 0  # and not answered
        self._since = self._idle_since = time.monotonic()
        self._idle_s = 0.0

    @property
    def is_paid(self) -> bool:
        """Whether somebody charges what it is asked."""
        return bool(getattr(self._engine, "is_paid", False))

    def adapt(self, adapter: str) -> None:
        """Have it answer with this one of its adapters; one that has none (a fake) may pass."""
        self._check_thread()
        getattr(self._engine, "adapt", lambda _: None)(adapter)

    def used(self) -> Used:
        """Its seconds since the last time that somebody asked."""
        now = time.monotonic()
        if not self._n_asked:
            self._rested(now)
        used = Used(now - self._since, self._idle_s)
        self._since, self._idle_s = now, 0.0
        return used

    def faults(self) -> Mapping[str, float]:
        """The calls of a server that went wrong since the last time that somebody asked, by how."""
        ask = getattr(self._engine, "faults", None)
        return {} if ask is None else dict(ask())

    def answers(self, requests: Iterable[Any]) -> Iterator[Any]:
        """The engine's answers."""
        return self._clocked(self._engine.answers, requests)

    def scores(self, requests: Iterable[Any]) -> Iterator[Any]:
        """The engine's scores."""
        return self._clocked(self._engine.scores, requests)

    def predictions(self, requests: Iterable[Any]) -> Iterator[Any]:
        """The engine's predictions."""
        return self._clocked(self._engine.predictions, requests)

    def preferences(self, requests: Iterable[Any]) -> Iterator[Any]:
        """The engine's preferences."""
        return self._clocked(self._engine.preferences, requests)

    def beams(self, requests: Iterable[Any]) -> Iterator[Any]:
        """The engine's beams."""
        return self._clocked(self._engine.beams, requests)

    def _clocked(self, ask: Callable[..., Iterator[Any]], requests: Iterable[Any]) -> Iterator[Any]:
        self._check_thread()
        try:
            for answer in ask(map(self._asked, requests)):
                self._answered(1)
                yield answer
                self._check_thread()
        finally:
            self._answered(self._n_asked)  # what is left is dropped

    def _check_thread(self) -> None:
        if threading.get_ident() != self._thread:
            here = threading.current_thread().name
            raise RuntimeError(f"an engine is asked in the thread {here}, which is not its own")

    def _asked(self, request: Any) -> Any:
        if not self._n_asked:
            self._rested(time.monotonic())
        self._n_asked += 1
        return request

    def _answered(self, n: int) -> None:
        if n and self._n_asked == n:
            self._idle_since = time.monotonic()
        self._n_asked -= n

    def _rested(self, now: float) -> None:
        self._idle_s += now - self._idle_since
        self._idle_since = now
