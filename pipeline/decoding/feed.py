"""What an engine is handed: its requests, until somebody asks it to stop or the money is spent."""

from collections.abc import Callable, Iterable, Iterator
from itertools import takewhile
from typing import Any

from factsweep.operators.engines.protocol import ScoreRequest
from factsweep.pipeline.cluster.prices import Prices, Purse
from factsweep.pipeline.decoding.idle import Clocked
from factsweep.pipeline.decoding.work import Work


class Feed:
    """Hands an engine its requests until it is closed.

    What a server has under way is paid for: its answers are waited for when the run is to stop.
    Those of an engine of our own are dropped.
    """

    def __init__(self, engine: Clocked, work: Work, purse: Purse | None) -> None:
        self._engine = engine
        self._is_paid = engine.is_paid
        self._prices = work.hardware.prices
        self._purse = purse if self._is_paid and self._prices else None
        self._reserved: dict[str, float] = {}
        self._refused, self._admitted = False, 0
        self.closed = False  # if it is, no more is handed out

    @property
    def engine(self) -> Any:
        """What is asked in place of the engine."""
        return self if self._is_paid else self._engine

    @property
    def drains(self) -> bool:
        """Whether answers are still to be taken."""
        return self._is_paid or not self.closed

    def is_broke(self) -> bool:
        """Whether there was no money for a single request more."""
        return self._refused and not self._admitted

    def answers(self, requests: Iterable[Any]) -> Iterator[Any]:
        """The engine's answers."""
        return self._said(self._engine.answers, requests)

    def scores(self, requests: Iterable[Any]) -> Iterator[Any]:
        """The engine's scores."""
        return self._said(self._engine.scores, requests)

    def preferences(self, requests: Iterable[Any]) -> Iterator[Any]:
        """The engine's preferences; what these cost is not known beforehand."""
        yield from self._engine.preferences(takewhile(lambda _: not self.closed, requests))

    def _said(self, ask: Callable[..., Iterator[Any]], requests: Iterable[Any]) -> Iterator[Any]:
        self._refused, self._admitted = False, 0
        for answer in ask(takewhile(self._may_go, requests)):
            if self._purse is not None:
                self._purse.settle(self._reserved.pop(answer.request_id), self._cost(answer))
            yield answer

    def _may_go(self, request: Any) -> bool:
        """Whether a request may be sent: not when it is to end, nor without the money for it."""
        if self.closed:
            return False
        if self._purse is not None and self._prices is not None:
            most = _most(self._prices, request)
            if not self._purse.reserve(most):
                self._refused = True
                return False
            self._reserved[request.request_id] = most
        self._admitted += 1
        return True

    def _cost(self, answer: Any) -> float:
        assert self._prices is not None
        return self._prices.of(answer.n_prompt_tokens, answer.n_output_tokens or 0)


def _most(prices: Prices, request: Any) -> float:
    """What an answer costs at most: a text's score costs its tokens, and one more."""
    if isinstance(request, ScoreRequest):
        return prices.of(len(request.token_ids), 1)
    # A server may give one sample per request, and then reads the prompt for each.
    n, most = request.sampling.n, request.most_output_tokens
    return float(n * prices.at_most(request.text, most // n))
