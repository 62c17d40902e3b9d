"""How many requests a server is sent at once: learned from what it does, as TCP learns its window.

Additive increase, multiplicative decrease, after a start that doubles. The start ends when twice as
many requests at once give no more answers per second; then there is one more per round, unless the
server became slower. The number is halved at once when the server says that it is too much, fails,
or does not answer in time.
"""

from dataclasses import dataclass

_MORE = 1.05  # times the rate before: less is noise
_SLOWER = 0.9  # times the rate before
_FLAT = 2  # rounds without more answers per second: a single one may be chance


@dataclass
class Limit:
    """The number of requests at once (`allowed`), and until when none may be sent (`closed_until`).

    Times are seconds of any clock that does not go back. A round is twice as many answers as
    requests are allowed at once. `is_fed` says whether more requests are waiting: while the last
    ones are answered, fewer are under way than are allowed, and their rate says nothing.
    """

    max: int
    allowed: int = 4
    closed_until: float = 0.0
    is_fed: bool = True
    _is_start: bool = True
    _answers: int = 0
    _seconds: float = 0.0
    _last: float | None = None
    _rate: float = 0.0  # answers per second of an earlier round; at the start, with fewer at once
    _flat: int = 0
    _lowered: float = float("-inf")

    def __post_init__(self) -> None:
        """Begin with no more than there may be."""
        self.allowed = min(self.allowed, self.max)

    def answered(self, now: float) -> None:
        """The server gave an answer."""
        if self._last is not None and self.is_fed:
            self._answers += 1
            self._seconds += now - self._last
        self._last = now if self.is_fed else None
        if self._answers < 2 * self.allowed:
            return
        rate = self._answers / max(self._seconds, 1e-9)
        self._answers, self._seconds = 0, 0.0
        if self._is_start:
            self._start(rate)
        else:
            if rate >= _SLOWER * self._rate:
                self._raise(1)
            self._rate = rate

    def _start(self, rate: float) -> None:
        if rate > _MORE * self._rate:
            self._rate, self._flat = rate, 0
            self._raise(self.allowed)
            return
        self._flat += 1
        self._is_start = self._flat < _FLAT

    def _raise(self, step: int) -> None:
        self.allowed = min(self.max, self.allowed + step)

    def refused(self, now: float, *, sent: float | None = None, retry_after: float = 0.0) -> None:
        """The server turned a request away, failed, or did not answer in time.

        What was `sent` before the number was lowered for the last time says nothing about the new
        number, and does not lower it again.
        """
        self.pause(now + retry_after)
        if sent is not None and sent <= self._lowered:
            return
        self.allowed = max(1, self.allowed // 2)
        self._lowered, self._is_start = now, False
        self._answers, self._seconds, self._last, self._rate = 0, 0.0, None, 0.0

    def pause(self, until: float) -> None:
        """Let no request be sent before a time; a later one that was given already stays."""
        self.closed_until = max(self.closed_until, until)
