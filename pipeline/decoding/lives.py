"""The lives of engines: whether the next one can be expected to do better than the last.

Ray starts a dead engine again in the same place. While the engines of a place die one after the
other, each of something else, and none gives an answer, it is the engine or the machine that is at
fault, not what was asked. A single prompt that kills engines is found by trial.py.
"""

import re
import time
from collections import defaultdict
from dataclasses import dataclass, field
from typing import NamedTuple

_LOADING = "loading"


class Loading(NamedTuple):
    """An engine that is loading its model: for how many seconds, on which node, and its log."""

    seconds: float
    node: str
    log: str


@dataclass
class _Life:
    """An engine: its node, its log, and what it is doing: loading, or the prompts it is asked."""

    node: str
    log: str
    doing: str = _LOADING
    born: float = field(default_factory=time.monotonic)


@dataclass
class _Place:
    """An engine of the pool and its successors; what they died of since the last answer."""

    alive: _Life | None = None
    lost: _Life | None = None
    n_lives: int = 0
    deaths: dict[str, str] = field(default_factory=dict)


class Lives:
    """All places by their names.

    After `max_deaths` engines that answered nothing no other is tried; after two, where they die of
    the same error and `one_machine` says that there is no other machine to try.
    """

    def __init__(self, max_deaths: int, *, one_machine: bool) -> None:
        self._max_deaths = max(2, max_deaths)
        self._one_machine = one_machine
        self._places: defaultdict[str, _Place] = defaultdict(_Place)
        self.last_death: str | None = None
        self.logs: list[tuple[str, str]] = []  # of each engine there was: its node, its log

    def born(self, place: str, node: str, log: str) -> str | None:
        """An engine begins; returns the log of the one before it, if that died without a word.

        One that was lost with its node is forgotten: nobody can say what it died of.
        """
        at = self._places[place]
        at.lost = at.alive if at.alive is not None and at.alive.node == node else None
        at.alive, at.n_lives = _Life(node, log), at.n_lives + 1
        self.logs.append((node, log))
        return at.lost.log if at.lost is not None else None

    def asked(self, place: str, what: str) -> None:
        """The engine is loaded, and is asked this: a prompt alone, or a shard."""
        if (life := self._places[place].alive) is not None:
            life.doing = what

    def answered(self, place: str) -> None:
        """The engine gave an answer."""
        self._places[place].deaths.clear()

    def ended(self, place: str) -> None:
        """The engine ends because it was told to."""
        self._places[place].alive = None

    def node(self, place: str) -> str | None:
        """The node that the engine is on, where one is known to live."""
        life = self._places[place].alive
        return None if life is None else life.node

    def suspects(self, place: str) -> list[str]:
        """What engines died of since the last answer."""
        return list(self._places[place].deaths)

    def loading(self) -> list[Loading]:
        """The engines that are loading their model, the oldest first."""
        alive = [at.alive for at in self._places.values() if at.alive is not None]
        loading = [life for life in alive if life.doing == _LOADING]
        now = time.monotonic()
        found = [Loading(now - life.born, life.node, life.log) for life in loading]
        return sorted(found, reverse=True)

    def died(self, place: str, cause: str) -> str | None:
        """An engine died, the lost one if there is one; returns why no other is tried, if so."""
        at = self._places[place]
        life, at.lost = at.lost or at.alive, None
        if life is None:
            return None
        if life is at.alive:
            at.alive = None
        doing = f"{_LOADING} {at.n_lives}" if life.doing == _LOADING else life.doing
        at.deaths[doing] = cause
        self.last_death = f"{cause.rstrip('.')}; its log is {life.log}"
        causes = list(at.deaths.values())
        if len(causes) < self._max_deaths and not self._repeats(causes):
            return None
        loaded = any(not each.startswith(_LOADING) for each in at.deaths)
        what = "answers nothing" if loaded else "does not load"
        return f"{what}: {len(causes)} engines in a row died, the last of {self.last_death}."

    def _repeats(self, causes: list[str]) -> bool:
        same = {re.sub(r"\d+", "0", cause) for cause in causes[-2:]}
        return self._one_machine and len(causes) > 1 and len(same) == 1
