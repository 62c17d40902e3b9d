"""Checks of stores: files are created once, listed and removed."""

import statistics
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from uuid import uuid4

from factsweep.operators.errors import FactsweepError, reason
from factsweep.operators.wording import count
from factsweep.pipeline.cluster.machine_checks import Finding
from factsweep.pipeline.config.run import Run
from factsweep.pipeline.decoding.costs import predict_costs
from factsweep.pipeline.runs.forecast import forecast, work_left
from factsweep.pipeline.storage.store import Store

_AT_ONCE, _TURNS = 8, 4
_SLOW_MS = 500.0
_LEAST_GB = 5.0


def check_room(run: Run) -> Iterator[Finding]:
    """Whether the disk of the artifacts has room for the run; for a folder only.

    No prompt is tokenised: the size of answers is known per prompt.
    """
    store = Store(run.artifacts)
    if (free := store.free()) is None:
        return
    check = "room for the run"
    try:
        plan, forecasts = forecast(run, tokens=False)
    except FactsweepError as error:
        fix = "repair what fails, and ask again"
        yield Finding.of(check, f"not known, since there is no plan: {error}", warns=fix)
        return
    needed = float(predict_costs(plan, work_left(plan, forecasts))["bytes"].fill_null(0).sum())
    n = sum(sum(setting.prompts.values()) for setting in forecasts)
    text = f"{needed / 1e9:,.2f} GB to write for {count(n, 'prompt')}, {free / 1e9:,.0f} GB free"
    fix = "free some, or give artifacts= on a larger disk"
    yield Finding.of(check, text, fails=fix if needed > free else "")


@contextmanager
def marker_file(run: Run) -> Iterator[str]:
    """A file in the store of artifacts that every node must see; removed at the end."""
    name = f".doctor-{uuid4().hex}/seen"
    store = Store(run.artifacts)
    store.put(name, b"x")
    try:
        yield name
    finally:
        _drop(store, name.rpartition("/")[0])


def check_shared(run: Run, marker: str) -> Finding:
    """Whether a file that the driver wrote to the store of artifacts is seen from here."""
    is_seen = Store(run.artifacts).exists(marker)
    fix = f"artifacts={run.artifacts} is another folder here; give one that all nodes share"
    text = f"the driver's file is {'seen' if is_seen else 'not seen'}"
    return Finding.of("shared with the driver", text, fails="" if is_seen else fix)


def check_store(store: Store) -> Iterator[Finding]:
    """The checks of a store; their files are removed again."""
    folder = f".doctor-{uuid4().hex}"
    try:
        yield _check_writes(store, folder)
        yield _created_once(store, folder)
        names = {Path(name).name for name in store.names(folder)}
        missing = {f"written-{i}" for i in range(_TURNS)} - names
        fix = "new files are not listed at once; runs would decode them again"
        text = f"{count(len(missing), 'file')} missing" if missing else "at once"
        yield Finding.of("files are listed", text, fails=fix if missing else "")
        yield _check_drop(store, f"{folder}/written-0")
    except (FactsweepError, OSError) as error:
        fix = "check that it is there, and that you may write, list and drop files below it"
        yield Finding.of("written and read", reason(error), fails=fix)
    finally:
        _drop(store, folder)
    if (free := store.free()) is not None:
        fix = "answers and weights need more; `factsweep plan` says how much a run writes"
        is_small = free / 1e9 < _LEAST_GB
        yield Finding.of("free", f"{free / 1e9:,.0f} GB", fails=fix if is_small else "")


def _check_writes(store: Store, folder: str) -> Finding:
    """The time to write a file, and whether it is read back."""
    times_ms = []
    for i in range(_TURNS):
        started_at = time.perf_counter()
        store.put(f"{folder}/written-{i}", b"x")
        times_ms.append(1e3 * (time.perf_counter() - started_at))
    is_same = all(store.get(f"{folder}/written-{i}") == b"x" for i in range(_TURNS))
    fix = "it is no store to work with: another content is read than was written"
    median = statistics.median(times_ms)
    slow = "each shard waits for several such calls; choose a nearer bucket or a faster disk"
    fails, warns = "" if is_same else fix, slow if median > _SLOW_MS else ""
    return Finding.of("written and read", f"{median:,.1f} ms a file", fails=fails, warns=warns)


def _created_once(store: Store, folder: str) -> Finding:
    """Several clients create the same file at once, in turns: exactly one may succeed."""
    n_winners = []
    for turn in range(_TURNS):
        name = f"{folder}/once-{turn}"
        with ThreadPoolExecutor(_AT_ONCE) as clients:
            contents = [str(i).encode() for i in range(_AT_ONCE)]
            created = clients.map(lambda c, name=name: store.put_new(name, c), contents)
            n_winners.append(sum(created))
    wrong = [n for n in n_winners if n != 1]
    text = f"{max(wrong) if wrong else 'one'} of {_AT_ONCE} clients did"
    fix = "two drivers could work on the same artifact there; use S3, or a folder with hard links"
    return Finding.of("a file is created once", text, fails=fix if wrong else "")


def _check_drop(store: Store, name: str) -> Finding:
    """Roles that may write may not be allowed to remove: leases and chunks would stay for ever."""
    try:
        store.drop(name)
        problem = "it is still there" if store.exists(name) else ""
    except (FactsweepError, OSError) as error:
        problem = reason(error)
    fix = "give the role the right to delete below it (s3:DeleteObject)"
    return Finding.of("files are dropped", problem or "yes", fails=fix if problem else "")


def _drop(store: Store, folder: str) -> None:
    """Remove the files of a check; a store that refuses has a finding already."""
    try:
        for name in store.names(folder):
            store.drop(f"{folder}/{name}")
        store.drop_empty(folder)
    except (FactsweepError, OSError):
        return
