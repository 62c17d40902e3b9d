"""How many requests a server is sent at once: learned from what it does, as TCP learns its window.

Additive increase, multiplicative decrease, after a start that doubles. The number rises while more
requests at once give more answers per second, holds when they give no more, and is halved at once
when the server says that it is too much, fails, or does not answer in time.
"""

from dataclasses import dataclass

_MORE = 1.05  # times the rate before: less is noise
_AGAIN = 20  # rounds at which a server gave no more, before it is asked for more once again


@dataclass
class Limit:
    """The number of requests at once (`allowed`), and until when none may be sent (`closed_until`).

    Times are seconds of any clock that does not go back. A round is twice as many answers as
    requests are allowed at once.

    >>> limit = Limit(max=64)
    >>> for number in range(9):
    ...     limit.answered(now=number / 4)
    >>> limit.allowed
    8
    >>> limit.refused(now=16.0, retry_after=2.0)
    >>> limit.allowed, limit.closed_until
    (4, 18.0)
    """

    max: int
    allowed: int = 4
    closed_until: float = 0.0
    _is_start: bool = True
    _answers: int = 0
    _since: float | None = None
    _rate: float = 0.0  # answers per second of the last round that was taken for more
    _held: int = 0
    _lowered: float = float("-inf")

    def __post_init__(self) -> None:
        """Begin with no more than there may be."""
        self.allowed = min(self.allowed, self.max)

    def answered(self, now: float) -> None:
        """The server gave an answer."""
        if self._since is None:
            self._since = now
            return
        self._answers += 1
        if self._answers < 2 * self.allowed:
            return
        rate = self._answers / max(now - self._since, 1e-9)
        first = not self._rate
        self._answers, self._since = 0, now
        if first or rate > _MORE * self._rate:
            self._rate, self._held = rate, 0
            self._raise()
        else:
            self._is_start = False
            self._held += 1
            if self._held >= _AGAIN:
                self._held, self._rate = 0, rate
                self._raise()

    def _raise(self) -> None:
        step = self.allowed if self._is_start else 1
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
        self._answers, self._since, self._rate, self._held = 0, None, 0.0, 0

    def pause(self, until: float) -> None:
        """Let no request be sent before a time; a later one that was given already stays."""
        self.closed_until = max(self.closed_until, until)
