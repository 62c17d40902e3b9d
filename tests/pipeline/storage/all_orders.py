"""A model checker for short programs that share a store: the real code in all orders of its steps.

A step is the code of a writer between two calls of the store. The next call follows from the
answers so far: so for each series of answers the real code is run once, and its next call is kept.
Then all orders of the calls of several writers are explored, each state once: the stored files, and
the place of each writer.
"""

import json
import sys
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import pytest

from factsweep.operators.errors import ArtifactHeldError
from factsweep.pipeline.storage import lease
from factsweep.pipeline.storage.lease import Writer
from factsweep.pipeline.storage.store import Store

Files = Mapping[str, bytes]


class Call(NamedTuple):
    """What a writer asks of the store, or that it waits."""

    kind: str
    name: str = ""
    content: bytes = b""

    def answered(self, files: Files) -> tuple[Any, Files]:
        """What a store with these files says, and its files thereafter."""
        match self.kind:
            case "put":
                return None, {**files, self.name: self.content}
            case "put_new":
                after = {self.name: self.content, **files}
                return after[self.name] == self.content, after
            case "drop":
                return None, {
                    name: old_content for name, old_content in files.items() if name != self.name
                }
            case "get":
                return files.get(self.name), files
            case "exists":
                return self.name in files, files
            case "names":
                below = (name.rpartition("/") for name in sorted(files))
                return tuple(name for place, _, name in below if place == self.name), files
        return None, files


class Memory(Store):
    """A store in memory, as one writer sees it; `ask` answers each call."""

    def __init__(self, ask: Callable[[Call], Any]) -> None:
        self.__dict__.update(root="memory", ask=ask, known=(), now=0.0)

    def _ask(self, *call: Any) -> Any:
        answer = self.ask(Call(*call))
        self.__dict__["known"] = (*self.known, answer)
        return answer

    def knows(self, *facts: object) -> None:
        """Replace the answers so far by the facts that the program still uses."""
        self.__dict__["known"] = facts

    def put(self, name: str, content: bytes) -> None:
        self._ask("put", name, content)

    def put_new(self, name: str, content: bytes) -> bool:
        return bool(self._ask("put_new", name, content))

    def get(self, name: str) -> bytes:
        content: bytes | None = self._ask("get", name)
        if content is None:
            raise FileNotFoundError(name)
        return content

    def exists(self, name: str) -> bool:
        return bool(self._ask("exists", name))

    def names(self, folder: str) -> list[str]:
        return list(self._ask("names", folder))

    def drop(self, name: str) -> None:
        self._ask("drop", name)

    def monotonic(self) -> float:
        """The writer's own clock, which goes only while it waits."""
        return float(self.now)

    def sleep(self, seconds: float) -> None:
        """Wait for a turn."""
        self._ask("sleep")
        self.__dict__["now"] += seconds


def short_waits(patch: pytest.MonkeyPatch) -> None:
    """One look without a change is enough to take a lease over: a writer without a turn seems dead.

    Each time that a taker looks again, it knows the heartbeats that it has seen, and no more.
    """
    last = lease._find_last_number

    def looked(store: Memory, folder: str) -> int:
        taker = sys._getframe(1)
        if taker.f_code is Writer.take.__code__:
            watch, losers = taker.f_locals["watch"], taker.f_locals["self"]._losers
            beats = {
                writer: (beat, still_s, min(store.now - seen_at, 2 * lease._LOOK_S))
                for writer, (beat, still_s, seen_at) in watch._seen.items()
            }
            store.knows("looks", *map(str, (sorted(losers), sorted(beats.items()), watch.alive)))
        return last(store, folder)

    patch.setattr(lease, "EXPIRES_S", 1.0)
    patch.setattr(lease, "_find_last_number", looked)


def over(files: dict[str, bytes]) -> Memory:
    """A store of these files for a single writer."""

    def ask(call: Call) -> Any:
        answer, after = call.answered(files)
        new_files = dict(after)
        files.clear()
        files.update(new_files)
        return answer

    return Memory(ask)


class _Stopped(BaseException):
    """The process of a writer ends here: nothing more of it reaches the store."""


class Place(NamedTuple):
    """The progress of a writer: the answers so far, and its next call, or its outcome."""

    answers: tuple[Any, ...]
    call: Call | None
    outcome: str | None


KILLED = Place((), None, "killed")


class Program:
    """The next call of a writer for each series of answers, from the real code."""

    def __init__(self, code: Callable[[Memory, int], None], number: int) -> None:
        self._code, self._number = code, number
        self._places: dict[tuple[Any, ...], int] = {}
        self._following: dict[tuple[int, Any], int] = {}
        self.places = [KILLED]
        self.start = self._run(())

    def after(self, place: int, answer: Any) -> int:
        """The place of the writer after an answer to its call."""
        step = place, answer
        if step not in self._following:
            self._following[step] = self._run((*self.places[place].answers, answer))
        return self._following[step]

    def _run(self, answers: tuple[Any, ...]) -> int:
        unread, calls = iter(answers), list[Call]()

        def ask(call: Call) -> Any:
            if call.kind == "sleep":  # no step of its own: it changes nothing, and learns nothing
                return None
            for answer in () if calls else unread:
                return answer
            calls.append(call)
            raise _Stopped

        store = Memory(ask)
        try:
            self._code(store, self._number)
            outcome = "done"
        except ArtifactHeldError:
            outcome = "told"
        except _Stopped:
            outcome = None
        place = Place(answers, calls[0] if calls else None, outcome)
        facts = (store.known, outcome) if outcome is None else (outcome,)
        number = self._places.setdefault(facts, len(self.places))
        if number == len(self.places):
            self.places.append(place)
        assert self.places[number].call == place.call, "the program uses more facts than it lists"
        return number


class State(NamedTuple):
    """What is stored, by its number; where each writer is; a bit of each that was late; deaths."""

    files: int
    places: tuple[int, ...]
    late: int
    kills: int


@dataclass
class Explorer:
    """All orders of the steps of `n` writers that run `program`, with at most `kills` deaths.

    Two writers that take each other for dead may take over from each other without end, so orders
    with more than `leases` leases are left out.
    `ended` checks the files and the outcomes once all writers have ended.
    """

    program: Callable[[Memory, int], None]
    n: int
    kills: int
    leases: int
    witness: "Witness"
    ended: Callable[[dict[str, bytes], tuple[str, ...]], None]
    n_states: int = 0
    _files: list[Files] = field(default_factory=list)
    _numbers: dict[frozenset[tuple[str, bytes]], int] = field(default_factory=dict)
    _steps: dict[tuple[int, int, int], tuple[int, int, bool]] = field(default_factory=dict)
    _ends: set[tuple[int, tuple[str, ...]]] = field(default_factory=set)

    def explore(self) -> "Explorer":
        """Go through them all.

        Raises:
            AssertionError: something is wrong; it says after which steps.
        """
        programs = [Program(self.program, number) for number in range(self.n)]
        start = State(self._number({}), tuple(p.start for p in programs), 0, 0)
        previous: dict[State, State | None] = {start: None}
        queue = deque([start])
        while queue:
            state = queue.popleft()
            try:
                for following in self._following(state, programs):
                    if following not in previous:
                        previous[following] = state
                        queue.append(following)
            except Exception as error:
                steps = _told(previous, state, programs)
                raise AssertionError("\n".join([f"{error} after", *steps])) from error
        self.n_states = len(previous)
        return self

    def _following(self, state: State, programs: list[Program]) -> Iterator[State]:
        """What may come next; the store and the writers are judged on the way."""
        places = [
            program.places[number] for program, number in zip(programs, state.places, strict=True)
        ]
        outcomes = tuple(each.outcome for each in places if each.outcome is not None)
        if len(outcomes) == self.n and (state.files, outcomes) not in self._ends:
            self._ends.add((state.files, outcomes))
            self.ended(dict(self._files[state.files]), outcomes)
        for writer, place in enumerate(places):
            if place.call is None:
                continue
            files, to, late = self._step(state.files, writer, state.places[writer], programs)
            if _last(self._files[files]) > self.leases:
                continue
            bit = late << writer
            assert not state.late & bit, f"writer {writer} went on after it lost its lease"
            yield State(files, _with(state.places, writer, to), state.late | bit, state.kills)
            if state.kills < self.kills:
                killed = _with(state.places, writer, 0)
                yield State(state.files, killed, state.late, state.kills + 1)

    def _step(
        self, files: int, writer: int, place_number: int, programs: list[Program]
    ) -> tuple[int, int, bool]:
        """The files, the writer's place, and whether it was late, after its next call."""
        step = files, writer, place_number
        if step not in self._steps:
            call = programs[writer].places[place_number].call
            assert call is not None
            answer, after = call.answered(self._files[files])
            late = self.witness.is_late(writer, call, self._files[files], after)
            to = programs[writer].after(place_number, answer)
            self._steps[step] = self._number(after), to, late
        return self._steps[step]

    def _number(self, files: Files) -> int:
        number = self._numbers.setdefault(frozenset(files.items()), len(self._files))
        if number == len(self._files):
            self._files.append(files)
        return number


def _with(values: tuple[int, ...], place: int, value: int) -> tuple[int, ...]:
    return (*values[:place], value, *values[place + 1 :])


def _told(
    previous: Mapping[State, State | None], state: State, programs: list[Program]
) -> list[str]:
    """The steps that led to a state: no way there is shorter."""
    steps = list[str]()
    while (earlier := previous[state]) is not None:
        step = "a taker looks again"  # and is at the same place
        for writer, program in enumerate(programs):
            old_place, to = earlier.places[writer], state.places[writer]
            call = program.places[old_place].call
            if old_place != to and call is not None:
                step = f"{writer}: {f'{call.kind} {call.name}' if to else 'dies'}"
        steps.append(step)
        state = earlier
    return steps[::-1]


@dataclass(frozen=True)
class Witness:
    """Checks each change of an artifact: published files stay, writers without a lease stop.

    It may stop at its next publishing: so it may be late once.
    """

    folder: str

    def is_late(self, writer: int, call: Call, old_files: Files, after: Files) -> bool:
        """Whether a call changes the artifact for a writer that does not hold it.

        Raises:
            AssertionError: it changes a published file.
        """
        table = self.folder.partition("/")[0]
        for name, content in old_files.items():
            if name.startswith(f"{self.folder}/{table}/") or name.endswith("manifest.json"):
                assert after.get(name) == content, f"{name} was changed"
                assert name != call.name or call.kind not in ("put", "drop"), f"{name} again"
        last = _last(after)
        assert last >= _last(old_files), "the highest lease is gone"
        changes = call.kind in ("put", "drop") or (call.kind == "put_new" and after != old_files)
        if not changes or not call.name.startswith(f"{self.folder}/") or "/leases/" in call.name:
            return False
        content = json.loads(after[f"{self.folder}/leases/{last:06d}.json"])
        return int(content["id"], 16) != writer


def _last(files: Files) -> int:
    return max((int(name[-11:-5]) for name in files if "/leases/" in name), default=0)
