"""Uses: which run needs which artifacts, noted in the store itself.

<store>/uses/<id>.json   one file per run: written before it computes, again when it has results

Results may lie in any folder, and a run that was stopped has none yet: without these notes nobody
could tell from a store what is still needed.
"""

import socket
from collections.abc import Collection, Iterator
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from factsweep.pipeline.config.recipe import build
from factsweep.pipeline.storage.json_files import digest
from factsweep.pipeline.storage.store import Store

_FOLDER = "uses"
_FIX = "; remove it if the run is no longer wanted, or run that again."


@dataclass(frozen=True)
class Use:
    """A run and the artifacts that it needs."""

    run: str
    results: str  # a URL, or an absolute path on the machine `host`
    host: str
    begun: str
    done: str | None  # null until its results are written
    artifacts: tuple[str, ...]

    @property
    def name(self) -> str:
        """Its file in a store."""
        return f"{_FOLDER}/{digest([self.run, self.results, self.host])[:16]}.json"


def begun(run: str, results: str, artifacts: Collection[str]) -> Use:
    """The use of a run that begins now."""
    return Use(run, absolute(results), socket.gethostname(), _now(), None, tuple(artifacts))


def ended(use: Use) -> Use:
    """The same use, when the results are written."""
    return replace(use, done=_now())


def note(store: Store, use: Use) -> None:
    """Write a use into the store, in place of that of an earlier run of this name."""
    store.put_json(use.name, asdict(use))


def noted(store: Store) -> Iterator[Use]:
    """All uses of a store.

    Raises:
        DamagedFileError: one is not what was written.
    """
    for name in (f"{_FOLDER}/{each}" for each in store.names(_FOLDER)):
        yield build(Use, store.get_json(name, fix=_FIX), store.where(name))


def absolute(results: str) -> str:
    """A folder by its whole path: the same from wherever it is looked at; a URL as it is shown."""
    return Store(results).where() if "://" in results else str(Path(results).absolute())


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
