"""A model checker for long programs that share a store: real code, in many orders of its steps.

Each order is run from the start, in threads that take turns; a state that was seen before is not
explored again. The number of switches between writers is bounded; `all_orders.py` has no such
bound, for short programs.
"""

import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from factsweep.operators.errors import ArtifactHeldError
from factsweep.pipeline.storage.artifact import Artifact
from factsweep.pipeline.storage.lease import Holder
from tests.pipeline.storage.all_orders import Call, Files, Memory, Witness


class Killed(BaseException):
    """The process of a writer ends here: nothing more of it reaches the store."""


class Choice(NamedTuple):
    """The next event: a writer goes on by a step, or it is killed.

    `switches`: the turn is taken from another writer that could go on.
    """

    writer: int
    killed: bool = False
    switches: bool = False


@dataclass
class World:
    """The stored files, watched by a witness, and how often each writer was late."""

    witness: Witness
    files: Files = field(default_factory=dict)
    late: Counter[int] = field(default_factory=Counter)

    def answer(self, writer: int, call: Call) -> Any:
        """Answer a call of a writer."""
        answer, after = call.answered(self.files)
        self.late[writer] += self.witness.is_late(writer, call, self.files, after)
        assert self.late[writer] <= 1, f"writer {writer} went on after it lost its lease"
        self.files = after
        return answer

    def store(self, writer: int) -> Memory:
        """The store for a writer that is alone."""
        return Memory(lambda call: self.answer(writer, call))


def looks_second(artifact: Artifact, change: Callable[[], Any]) -> Any:
    """An artifact whose lease was checked seconds ago, in a bucket that answers the check last.

    Tests of the lease show that a check from before a pause is too old for it.
    """
    result = change()
    artifact.check_lease()
    return result


class Thread:
    """A writer's program, run step by step."""

    def __init__(self, world: World, number: int, program: Callable[[Memory, int], None]) -> None:
        self._go, self._back = threading.Semaphore(0), threading.Semaphore(0)
        self._killed = False
        self.outcome: str | None = None
        self.fault: BaseException | None = None

        def ask(call: Call) -> Any:
            self._turn()
            return world.answer(number, call)

        self.store = Memory(ask)
        self._thread = threading.Thread(target=self._run, args=(program, number), daemon=True)
        self._thread.start()
        self._back.acquire()

    def _run(self, program: Callable[[Memory, int], None], number: int) -> None:
        try:
            program(self.store, number)
            self.outcome = "done"
        except ArtifactHeldError:
            self.outcome = "told"
        except Killed:
            self.outcome = "killed"
        except BaseException as error:
            self.outcome, self.fault = "failed", error
        self._back.release()

    def _turn(self) -> None:
        if not self._killed:
            self._back.release()
            self._go.acquire()
        if self._killed:
            raise Killed

    def step(self, *, killed: bool = False) -> None:
        """Let it go on to its next call, or end it."""
        self._killed = killed
        self._go.release()
        self._back.acquire()
        if self.fault is not None:
            raise self.fault


@dataclass
class Explorer:
    """All orders of the steps of `n` writers that run `program`, with at most `kills` deaths.

    `switches` bounds how often the turn is taken from a writer that could go on.
    """

    program: Callable[[Memory, int], None]
    n: int
    kills: int
    switches: int
    witness: Witness
    ended: Callable[[World, list[str | None]], None]
    n_states: int = 0
    n_runs: int = 0

    def explore(self) -> "Explorer":
        """Run them all; raises the errors of programs, the witness and `ended`."""
        states = set[tuple[Any, ...]]()
        stack: list[list[Choice]] = [[]]
        while stack:
            path = stack.pop()
            world = World(self.witness)
            threads = [Thread(world, number, self.program) for number in range(self.n)]
            for choice in path:
                threads[choice.writer].step(killed=choice.killed)
            self.n_runs += 1
            while True:
                state = self._state(world, threads, path)
                choices = [] if state in states else list(self._choices(threads, path))
                states.add(state)
                if not choices:
                    break
                stack += [[*path, choice] for choice in choices[1:]]
                path = [*path, choices[0]]
                threads[choices[0].writer].step(killed=choices[0].killed)
            outcomes = [thread.outcome for thread in threads]
            if None not in outcomes:
                self.ended(world, outcomes)
            for thread in threads:
                if thread.outcome is None:
                    thread.step(killed=True)
        self.n_states = len(states)
        return self

    def _choices(self, threads: list[Thread], path: Sequence[Choice]) -> Iterator[Choice]:
        alive = [number for number, thread in enumerate(threads) if thread.outcome is None]
        last = path[-1].writer if path else None
        alive.sort(key=lambda number: number != last)  # first the one that needs no switch
        if sum(choice.switches for choice in path) >= self.switches:
            alive = [last] if last in alive else alive
        yield from (Choice(number, switches=last in alive and number != last) for number in alive)
        if sum(choice.killed for choice in path) < self.kills:
            yield from (Choice(number, killed=True) for number in alive)

    def _state(
        self, world: World, threads: list[Thread], path: Sequence[Choice]
    ) -> tuple[Any, ...]:
        n_switches, n_kills = (sum(choice[i] for choice in path) for i in (2, 1))
        writers = tuple((thread.store.known, thread.outcome) for thread in threads)
        stored, late = hash(frozenset(world.files.items())), tuple(sorted(world.late.items()))
        return stored, writers, late, tuple(path[-1:]), n_switches, n_kills


def named(number: int) -> Holder:
    """The writer of that number, on a machine of its own."""
    return Holder(f"{number:032x}", f"host-{number}", 1, 0.0, machine=None, started=None)
