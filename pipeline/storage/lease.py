"""Leases: one driver at a time writes an artifact; a second one is refused with the holder's name.

The protocol needs one guarantee of a store: if several create the same file, one succeeds.

1. A file `<artifact>/leases/<number>.json` names a writer. The writer that created the highest
   number holds the artifact. Such files are never changed, and the highest is never removed.
2. A writer has one heartbeat, `writers/<id>.json`: it is created before the first lease, changes
   every few seconds, and is removed at the end, which returns all leases of the writer.
3. A lease is taken over by creating the next number. That is allowed if its writer has no
   heartbeat; or one that did not change for `EXPIRES_S` while the taker watched it by its own clock
   (clocks are never compared); or was a process of this machine that has certainly ended; or has
   lost another lease to the same taker: a writer that lost one stops.
4. Before each publishing, the driver, its engines and its tasks check that the writer's number is
   still the highest, and stop if it is not: artifacts carry their lease. If the last check is
   seconds old, a bucket is asked for the check and the publishing at once.
5. A writer may be paused between the check and the publishing, or the check may arrive second. So
   shards and manifests are created and never overwritten: a late writer finds them, reads them and
   continues. Chunks have unique names, and error rows follow from the published shard.
6. An artifact with a manifest needs no more writing, so a driver that waits for its lease continues
   without it.

A wrong decision in 3 costs work, never a result: 1, 4 and 5 do not depend on time.
"""

import json
import os
import re
import socket
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Protocol
from uuid import uuid4

from pydantic import Field, TypeAdapter, ValidationError

from factsweep.operators.errors import ArtifactHeldError, DamagedFileError, InputError
from factsweep.pipeline.machine.logs import LOG
from factsweep.pipeline.storage import manifest
from factsweep.pipeline.storage.store import Store

EXPIRES_S = 60.0
RENEW_S = 5.0
_LOOK_S = 1.0
_QUIET_S = 2 * RENEW_S + 2  # without a beat, a writer may be dead
Say = Callable[[str], None]


class Clock(Protocol):
    """A clock that can wait; the module `time` is one."""

    def monotonic(self) -> float:
        """Seconds since some moment."""

    def sleep(self, seconds: float, /) -> None:
        """Wait."""


@dataclass(frozen=True)
class Holder:
    """A writer: `id` is unique; `since` is in seconds since 1970 by its own clock, for messages.

    `machine` names a boot of a machine and a PID namespace on it; `started` is the time in that
    boot when the process began. Both are None where the system does not report them.
    """

    id: Annotated[str, Field(pattern="^[0-9a-f]{32}$")]
    host: str
    pid: Annotated[int, Field(gt=0, lt=2**31)]
    since: Annotated[float, Field(ge=0, le=2**35)]
    machine: str | None
    started: str | None

    def __str__(self) -> str:
        since = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(self.since))
        return f"process {self.pid} on {self.host} since {since}"

    @property
    def heartbeat(self) -> str:
        """The name of its heartbeat in a store."""
        return f"writers/{self.id}.json"

    def is_gone(self) -> bool:
        """Whether it was a process of this machine that has certainly ended."""
        return has_ended(self.pid, self.machine, self.started)


_HOLDER = TypeAdapter(Holder)


def has_ended(pid: int, machine: str | None, started: str | None) -> bool:
    """Whether a process of this machine has certainly ended; arguments as in Holder."""
    if machine is None or machine != _identify_boot():
        return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        return False  # it runs as another user
    now_started = _read_process_start(pid)
    return None not in (started, now_started) and started != now_started


@dataclass(frozen=True)
class Lease:
    """The right to write the artifact in `folder`, until another writer takes it over."""

    store: Store
    folder: str
    number: int

    def check(self) -> None:
        """Raise ArtifactHeldError if the lease is taken over."""
        last = _find_last_number(self.store, self.folder)
        if last != self.number:
            taker = _read_holder(self.store, self.folder, last)
            raise ArtifactHeldError(
                f"{self.store.where(self.folder)} was taken over by {taker or 'another run'}: this "
                "run was paused, or cut off from the store, for too long. What is published is "
                "whole; wait for the other run, then run again."
            )


class Writer:
    """The leases of this process, by the folder of the artifact, and their heartbeat."""

    def __init__(self, store: Store, holder: Holder) -> None:
        self.leases: dict[str, Lease] = {}
        self._store, self._read_holder = store, holder
        self._beats = 0
        self._lost: ArtifactHeldError | None = None
        self._is_cut_off = False
        self._losers: set[str] = set()

    def take(
        self,
        folder: str,
        *,
        wait: bool,
        or_published: bool = False,
        say: Say | None = None,
        clock: Clock = time,
    ) -> Lease | None:
        """Take the lease of an artifact once it is free or its holder is dead.

        With `or_published`, None once the artifact is published. `say` is called again and again
        with the holder that this waits for.

        Raises:
            ArtifactHeldError: its holder is alive, and `wait` is false.
        """
        watch = _Watch(self._store, clock)
        while True:
            last = _find_last_number(self._store, folder)
            holder = _read_holder(self._store, folder, last) if last else None
            if holder is None or holder.id in self._losers or watch.is_dead(holder):
                if (lease := self._create_lease(folder, last + 1)) is not None:
                    self._clear_earlier(folder, last, holder)
                    return lease
                continue
            if or_published and self._store.exists(f"{folder}/{manifest.NAME}"):
                return None
            if holder.id in watch.alive:
                written = f"{self._store.where(folder)} is being written by {holder}"
                if not wait:
                    raise ArtifactHeldError(
                        f"{written}; wait for it, or set cluster.when_held=wait."
                    )
                if say is not None:
                    say(f"{written}; this run waits until it is published")
            clock.sleep(_LOOK_S)

    def _create_lease(self, folder: str, number: int) -> Lease | None:
        lease = Lease(self._store, folder, number)
        content = json.dumps(asdict(self._read_holder)).encode()
        created = self._store.put_new(_lease_name(folder, number), content)
        last = _find_last_number(self._store, folder)
        if not created and last < number:
            raise _in_the_way_error(self._store, folder, number)
        if created and last == number:
            self.leases[folder] = lease
            return lease
        return None  # another writer was faster

    def _clear_earlier(self, folder: str, last: int, loser: Holder | None) -> None:
        """Remove the loser's heartbeat, so that it notices, and outdated leases.

        A loser stops, so its other leases are free, even if it wakes up and beats once more.
        """
        if loser is not None:
            self._losers.add(loser.id)
            self._store.drop(loser.heartbeat)
        for number in _list_numbers(self._store, folder):
            if number <= last:
                self._store.drop(_lease_name(folder, number))

    def beat(self) -> None:
        """Renew the heartbeat; ArtifactHeldError if it is missing, and a lease is taken over."""
        if self._beats and not self._store.exists(self._read_holder.heartbeat):
            for lease in tuple(self.leases.values()):
                lease.check()
        self._beats += 1
        self._store.put(self._read_holder.heartbeat, b"%d" % self._beats)

    def check_store(self) -> None:
        """Refuse a store that creates a file which exists already."""
        if self._store.put_new(self._read_holder.heartbeat, b"not a beat"):
            raise InputError(
                f"{self._store.where()} creates a file that is there already: its server ignores "
                "If-None-Match, so two runs might write at once. Use one that honours it."
            )

    def keep_beating(self, stopped: threading.Event) -> None:
        """Beat until `stopped` or until a lease is lost; retry while the store is unreachable."""
        while not stopped.wait(RENEW_S):
            try:
                self.beat()
                self._is_cut_off = False
            except ArtifactHeldError as error:
                self._lost = error
                return
            except (InputError, OSError) as error:
                self._is_cut_off = True
                LOG.warning("the lease could not be renewed (%s); trying again.", error)

    def check(self) -> None:
        """Raise ArtifactHeldError if the heartbeat found that a lease is lost."""
        if self._lost is not None:
            raise self._lost

    def end(self) -> None:
        """Return all leases, unless the store was unreachable at the last beat."""
        if self._is_cut_off:
            LOG.warning(
                "the lease is not given back, since the store is out of reach; it runs out."
            )
            return
        try:
            self._store.drop(self._read_holder.heartbeat)
        except (InputError, OSError) as error:
            LOG.warning("the lease could not be given back (%s); it runs out by itself.", error)


class _Watch:
    """Decides which writers are alive, by how long each heartbeat has not changed."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store, self._clock = store, clock
        self._seen: dict[str, tuple[bytes, float, float]] = {}
        self.alive: set[str] = set()  # writers that were seen to beat, or to take the lease

    def is_dead(self, holder: Holder) -> bool:
        """Look at a writer's heartbeat; whether it is missing, or has not changed for long."""
        if holder.is_gone():
            return True
        try:
            beat = self._store.get(holder.heartbeat)
        except FileNotFoundError:
            return True
        now_s = self._clock.monotonic()
        last_beat, still_s, seen_at = self._seen.get(holder.id, (None, 0.0, now_s))
        # If the whole machine slept, the writer slept too: that time does not count.
        still_s = still_s + min(now_s - seen_at, 2 * _LOOK_S) if beat == last_beat else 0.0
        if beat != last_beat and self._seen:
            self.alive.add(holder.id)
        self._seen[holder.id] = beat, still_s, now_s
        return still_s >= EXPIRES_S


@contextmanager
def hold_leases(
    store: Store,
    folders: Sequence[str],
    *,
    wait: bool,
    shared: Collection[str] = (),
    say: Say | None = None,
) -> Iterator[Writer]:
    """Hold the artifacts in these folders during the block, but those published meanwhile.

    Artifacts `shared` with other runs need no engine, and so are always waited for.

    Raises:
        ArtifactHeldError: another driver holds one of them, and `wait` is false.
    """
    writer, stopped = Writer(store, this_process()), threading.Event()
    beating = threading.Thread(target=writer.keep_beating, args=(stopped,), daemon=True)

    def give_back() -> None:  # a signal waits for its end: `cli` knows the name
        stopped.set()
        if beating.ident is not None:
            beating.join()
        writer.end()

    try:
        writer.beat()
        beating.start()
        writer.check_store()
        for folder in sorted(folders):  # in one order: no two drivers wait for each other
            waits = wait or folder in shared
            writer.take(folder, wait=waits, or_published=waits, say=say)
        yield writer
    finally:
        give_back()


def find_writer(store: Store, folders: Iterable[str], clock: Clock = time) -> str | None:
    """The writer of a store in words; None if there is none.

    It takes until a living writer can be distinguished from a dead one: a minute if that ran on
    another machine.
    """
    ids = [name.removesuffix(".json") for name in store.names("writers")]
    if not ids:
        return None
    holders = {h.id: h for folder in folders if (h := find_holder(store, folder)) is not None}
    watch = _Watch(store, clock)
    for writer_id in ids:
        unknown = Holder(writer_id, "an unknown machine", 0, 0.0, None, None)
        owner = holders.get(writer_id, unknown)
        while not watch.is_dead(owner):
            if writer_id in watch.alive:
                return str(owner) if writer_id in holders else "a run that begins"
            clock.sleep(_LOOK_S)
    return None


def describe_life(store: Store, holder: Holder, clock: Clock = time) -> str:
    """Whether a writer is dead or silent, as a clause; empty if it lives.

    Of a process on another machine, beats are waited for.
    """
    if holder.is_gone():
        return ", which is dead"
    if holder.machine is not None and holder.machine == _identify_boot():
        return ""
    watch, start_s = _Watch(store, clock), clock.monotonic()
    while clock.monotonic() - start_s <= _QUIET_S:
        if watch.is_dead(holder):
            return ", which is dead"
        if holder.id in watch.alive:
            return ""
        clock.sleep(_LOOK_S)
    return f", which has given no sign of life for {_QUIET_S:.0f} seconds: it is dead or cut off"


def find_holder(store: Store, folder: str) -> Holder | None:
    """The writer that holds an artifact, or held it when it died; None if it is free."""
    last = _find_last_number(store, folder)
    holder = _read_holder(store, folder, last) if last else None
    return holder if holder is not None and store.exists(holder.heartbeat) else None


def _read_holder(store: Store, folder: str, number: int) -> Holder | None:
    """The writer that a lease names; None if the lease is removed, empty, cut off or foreign."""
    try:
        return _HOLDER.validate_json(store.get(_lease_name(folder, number)))
    except (FileNotFoundError, ValidationError):
        return None
    except DamagedFileError as error:
        raise _in_the_way_error(store, folder, number) from error


def _in_the_way_error(store: Store, folder: str, number: int) -> InputError:
    path = store.where(_lease_name(folder, number))
    return InputError(f"{path} is in the way and is no file; remove it, then run again.")


def _lease_name(folder: str, number: int) -> str:
    return f"{folder}/leases/{number:06d}.json"


def _list_numbers(store: Store, folder: str) -> list[int]:
    names = map(re.compile(r"(\d{6,18})\.json").fullmatch, store.names(f"{folder}/leases"))
    return [int(name[1]) for name in names if name is not None]


def _find_last_number(store: Store, folder: str) -> int:
    """The highest number of a lease; 0 if there is none."""
    return max(_list_numbers(store, folder), default=0)


def this_process() -> Holder:
    """This process as a new writer."""
    pid = os.getpid()
    return Holder(
        uuid4().hex,
        socket.gethostname(),
        pid,
        time.time(),
        _identify_boot(),
        _read_process_start(pid),
    )


def _identify_boot() -> str | None:
    """This boot of this machine, and the PID namespace of this process."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot} {Path('/proc/self/ns/pid').readlink()}"
    except OSError:
        return None


def _read_process_start(pid: int) -> str | None:
    """The time in this boot when a process began, in ticks; None if the system does not say."""
    try:
        state, *fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return "ended" if state in "ZX" else fields[18]
