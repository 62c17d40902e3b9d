"""A model checker for code that shares a store: it runs the real code in every order of its steps.

A step is what a writer does from one call of the store to the next. Each order is run anew, in
threads of which one goes at a time; a state that was seen before is not explored again. What a
writer does next depends only on what the store has answered it, so a state is what is stored,
what each writer has been answered.

Programs may be long here, and the number of times that the turn changes is bounded; `all_orders.py`
has no such bound, for short ones.
"""

import hashlib
import json
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from factsweep.operators.errors import ArtifactHeldError
from factsweep.pipeline.storage.artifact import Artifact
from factsweep.pipeline.storage.lease import Holder
from factsweep.pipeline.storage.store import Store


class Killed(BaseException):
    """The process of a writer ends here: nothing more of it reaches the store."""


class Choice(NamedTuple):
    """What happens next: a writer goes on by a step, or it is killed.

    `switches`: the turn is taken from another, that could go on.
    """

    writer: int
    killed: bool = False
    switches: bool = False


@dataclass
class World:
    """What is stored, and who goes."""

    witness: "Witness"
    files: dict[str, bytes] = field(default_factory=dict)


class Memory(Store):
    """A store in memory, as one writer sees it: before each call the writer waits for its turn."""

    def __init__(self, world: World, turn: Callable[[], None], writer: int) -> None:
        self.__dict__.update(root="memory", world=world, turn=turn, writer=writer)
        self.__dict__.update(seen=hashlib.sha256(), now=0.0, latest=None)

    def _answer(self, value: Any) -> Any:
        self.seen.update(repr(value).encode())
        return value

    def knows(self, *facts: object) -> None:
        """Say what the program still knows, of all that the store has answered it."""
        self.__dict__.update(seen=hashlib.sha256(repr(facts).encode()))

    def _change(self, kind: str, name: str, content: bytes | None) -> None:
        if content is None:
            self.world.files.pop(name, None)
        else:
            self.world.files[name] = content
        self.world.witness(self.world, self.writer, kind, name)

    def put(self, name: str, content: bytes) -> None:
        self.turn()
        self._change("put", name, content)
        self._answer("put")

    def put_new(self, name: str, content: bytes) -> bool:
        self.turn()
        if name not in self.world.files:
            self._change("put", name, content)
        return bool(self._answer(self.world.files[name] == content))

    def get(self, name: str) -> bytes:
        self.turn()
        found: bytes | None = self._answer(self.world.files.get(name))
        self.__dict__["latest"] = name, found
        if found is None:
            raise FileNotFoundError(name)
        return found

    def exists(self, name: str) -> bool:
        self.turn()
        return bool(self._answer(name in self.world.files))

    def names(self, folder: str) -> list[str]:
        self.turn()
        below = (name.rpartition("/") for name in sorted(self.world.files))
        return list(self._answer([name for place, _, name in below if place == folder]))

    def drop(self, name: str) -> None:
        self.turn()
        self._change("drop", name, None)
        self._answer("drop")

    def monotonic(self) -> float:
        """The writer's own clock, which goes only while it waits."""
        return float(self.now)

    def sleep(self, seconds: float) -> None:
        """Wait for a turn. Who watches a heartbeat knows its latest, and no more of the past."""
        self.knows("watches", self.latest)
        self.turn()
        self.knows("watched", self.latest)
        self.__dict__["now"] += seconds


def looks_second(artifact: Artifact, change: Callable[[], Any]) -> Any:
    """As an artifact whose lease was looked at seconds ago, in a bucket that answers that last.

    That a look from before a pause is too old for it, tests of the lease show.
    """
    found = change()
    artifact.check_lease()
    return found


class Thread:
    """A writer's program, which goes by a step at a time."""

    def __init__(self, world: World, number: int, program: Callable[[Memory, int], None]) -> None:
        self._go, self._back = threading.Semaphore(0), threading.Semaphore(0)
        self._killed = False
        self.outcome: str | None = None
        self.fault: BaseException | None = None
        self.store = Memory(world, self._turn, number)
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

    `switches` bounds how often the turn is taken from a writer that could go on; null for all.
    """

    program: Callable[[Memory, int], None]
    n: int
    kills: int
    switches: int | None
    witness: Callable[[], "Witness"]
    ended: Callable[[World, list[str | None]], None]
    n_states: int = 0
    n_runs: int = 0

    def explore(self) -> "Explorer":
        """Run them all; raises what a program, the witness or `ended` raises."""
        seen: set[tuple[Any, ...]] = set()
        stack: list[list[Choice]] = [[]]
        while stack:
            path = stack.pop()
            world, threads = self._replay(path)
            self.n_runs += 1
            while True:
                state = self._state(world, threads, path)
                choices = [] if state in seen else list(self._choices(threads, path))
                seen.add(state)
                if not choices:
                    break
                stack += [[*path, each] for each in choices[1:]]
                path = [*path, choices[0]]
                threads[choices[0].writer].step(killed=choices[0].killed)
            outcomes = [thread.outcome for thread in threads]
            if None not in outcomes:
                self.ended(world, outcomes)
            for thread in threads:
                if thread.outcome is None:
                    thread.step(killed=True)
        self.n_states = len(seen)
        return self

    def _replay(self, path: Sequence[Choice]) -> tuple[World, list[Thread]]:
        world = World(witness=self.witness())
        threads = [Thread(world, number, self.program) for number in range(self.n)]
        for each in path:
            threads[each.writer].step(killed=each.killed)
        return world, threads

    def _choices(self, threads: list[Thread], path: Sequence[Choice]) -> Iterator[Choice]:
        alive = [number for number, thread in enumerate(threads) if thread.outcome is None]
        last = path[-1].writer if path else None
        alive.sort(key=lambda number: number != last)  # the one that goes first, with no switch
        if self.switches is not None and sum(each.switches for each in path) >= self.switches:
            alive = [last] if last in alive else alive
        yield from (Choice(number, switches=last in alive and number != last) for number in alive)
        if sum(each.killed for each in path) < self.kills:
            yield from (Choice(number, killed=True) for number in alive)

    def _state(
        self, world: World, threads: list[Thread], path: Sequence[Choice]
    ) -> tuple[Any, ...]:
        bounds = (
            () if self.switches is None else (tuple(path[-1:]), sum(each.switches for each in path))
        )
        answered = tuple((t.store.seen.digest(), t.outcome) for t in threads)
        kills = sum(each.killed for each in path)
        stored = hash(frozenset(world.files.items()))
        return stored, answered, kills, bounds, world.witness.noted()


def named(number: int) -> Holder:
    """The writer of that number, on a machine of its own."""
    return Holder(f"{number:032x}", f"host-{number}", 1, 0.0, machine=None, started=None)


class Witness:
    """Looks at each change of an artifact: nothing published changes, and who lost a lease stops.

    It may stop at its next publishing: so it may be late once.
    """

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._published: dict[str, bytes] = {}
        self._late = Counter[int]()
        self._last = 0

    def __call__(self, world: World, writer: int, kind: str, name: str) -> None:
        """Look at what a writer did to a file."""
        for each, content in self._published.items():
            assert world.files.get(each) == content, f"{each} was changed by {kind} of {name}"
        table = self._folder.partition("/")[0]
        assert name not in self._published, f"{name} was written again"
        if name.startswith(f"{self._folder}/{table}/") or name.endswith("manifest.json"):
            self._published[name] = world.files[name]
        numbers = [int(each[-11:-5]) for each in world.files if "/leases/" in each]
        assert max(numbers, default=0) >= self._last, f"{kind} of {name} lost the highest lease"
        self._last = max(numbers, default=0)
        if name.startswith(f"{self._folder}/") and "/leases/" not in name:
            self._late[writer] += self._holder(world) != writer
            assert self._late[writer] <= 1, f"writer {writer} went on after it lost its lease"

    def noted(self) -> tuple[object, ...]:
        """What it will judge by, beside what is stored."""
        return tuple(sorted(self._late.items()))

    def _holder(self, world: World) -> int:
        content = json.loads(world.files[f"{self._folder}/leases/{self._last:06d}.json"])
        return int(content["id"], 16)
