"""Where artifacts and results go: whether files there are created once, listed and dropped."""

import statistics
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from uuid import uuid4

from factsweep.operators.errors import FactsweepError, reason
from factsweep.operators.wording import count
from factsweep.pipeline.cluster.machine import Finding
from factsweep.pipeline.config.run import Run
from factsweep.pipeline.decoding.costs import predicted
from factsweep.pipeline.runs.forecast import forecast, work_left
from factsweep.pipeline.storage.store import Store

_AT_ONCE, _TURNS = 8, 4
_SLOW_MS = 500.0
_LEAST_GB = 5.0


def room_for(run: Run) -> Iterator[Finding]:
    """Whether the disk of the artifacts has room for what the run will write; of a folder alone.

    No prompt is tokenised: what answers take is known per prompt.
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
    needed = float(predicted(plan, work_left(plan, forecasts))["bytes"].fill_null(0).sum())
    n = sum(sum(each.prompts.values()) for each in forecasts)
    told = f"{needed / 1e9:,.2f} GB to write for {count(n, 'prompt')}, {free / 1e9:,.0f} GB free"
    fix = "free some, or give artifacts= on a larger disk"
    yield Finding.of(check, told, fails=fix if needed > free else "")


@contextmanager
def marked(run: Run) -> Iterator[str]:
    """A file beside the artifacts, which every node must see; gone at the end."""
    name = f".doctor-{uuid4().hex}/seen"
    store = Store(run.artifacts)
    store.put(name, b"x")
    try:
        yield name
    finally:
        _drop(store, name.rpartition("/")[0])


def shared(run: Run, seen: str) -> Finding:
    """Whether what the driver wrote beside the artifacts is seen from here."""
    there = Store(run.artifacts).exists(seen)
    fix = f"artifacts={run.artifacts} is another folder here; give one that all nodes share"
    told = "what the driver wrote is seen" if there else "what the driver wrote is not seen"
    return Finding.of("shared with the driver", told, fails="" if there else fix)


def checks(store: Store) -> Iterator[Finding]:
    """What a store does; what is written there is dropped again."""
    folder = f".doctor-{uuid4().hex}"
    try:
        yield from _looked_at(store, folder)
    except (FactsweepError, OSError) as error:
        fix = "check that it is there, and that you may write, list and drop files below it"
        yield Finding.of("written and read", reason(error), fails=fix)
    finally:
        _drop(store, folder)
    if (free := store.free()) is not None:
        yield _room(free / 1e9)


def _looked_at(store: Store, folder: str) -> Iterator[Finding]:
    written = f"{folder}/written"
    took = [_ms(partial(store.put, f"{written}-{i}", b"x")) for i in range(_TURNS)]
    same = all(store.get(f"{written}-{i}") == b"x" for i in range(_TURNS))
    fix = "it is no store to work with: another answer comes back than was written"
    median = statistics.median(took)
    slow = "each shard waits for several such calls; choose a nearer bucket or a faster disk"
    fails, warns = "" if same else fix, slow if median > _SLOW_MS else ""
    yield Finding.of("written and read", f"{median:,.1f} ms a file", fails=fails, warns=warns)
    yield _created_once(store, folder)
    yield _listed(store, folder)
    yield _dropped(store, f"{written}-0")


def _created_once(store: Store, folder: str) -> Finding:
    """Several clients create the same file at once, in turns: exactly one may succeed."""
    won = []
    for turn in range(_TURNS):
        name = f"{folder}/once-{turn}"
        with ThreadPoolExecutor(_AT_ONCE) as clients:
            contents = [str(i).encode() for i in range(_AT_ONCE)]
            won.append(sum(clients.map(lambda c, name=name: store.put_new(name, c), contents)))
    wrong = [each for each in won if each != 1]
    told = f"{max(wrong) if wrong else 'one'} of {_AT_ONCE} clients did"
    fix = "two drivers could work on the same artifact there; use S3, or a folder with hard links"
    return Finding.of("a file is created once", told, fails=fix if wrong else "")


def _listed(store: Store, folder: str) -> Finding:
    found = {Path(each).name for each in store.names(folder)}
    wanted = {f"written-{i}" for i in range(_TURNS)}
    fix = "what is written is not seen at once; runs would decode it again"
    told = "at once" if wanted <= found else f"{count(len(wanted - found), 'file')} missing"
    return Finding.of("files are listed", told, fails=fix if wanted - found else "")


def _dropped(store: Store, name: str) -> Finding:
    """Who may write may not be one who may drop: leases and chunks would stay for ever."""
    try:
        store.drop(name)
        said = "it is still there" if store.exists(name) else ""
    except (FactsweepError, OSError) as error:
        said = reason(error)
    fix = "give the role the right to delete below it (s3:DeleteObject)"
    return Finding.of("files are dropped", said or "yes", fails=fix if said else "")


def _room(free_gb: float) -> Finding:
    fix = "answers and weights need more; `factsweep plan` says how much a run writes"
    few = fix if free_gb < _LEAST_GB else ""
    return Finding.of("free", f"{free_gb:,.0f} GB", fails=few)


def _ms(call: Callable[[], object]) -> float:
    began = time.perf_counter()
    call()
    return 1e3 * (time.perf_counter() - began)


def _drop(store: Store, folder: str) -> None:
    """What was written goes; a store that refuses that has said so already."""
    try:
        for name in store.names(folder):
            store.drop(f"{folder}/{name}")
        store.drop_empty(folder)
    except (FactsweepError, OSError):
        return
