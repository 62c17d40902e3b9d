"""What artifacts are needed for: runs with results, runs that are not done, baselines.

<store>/uses/<id>.json   one file per run: written before it computes, again when it has results

Results may lie in any folder, and a run that was stopped has none yet: without these notes nobody
could tell from a store what is still needed.
"""

import socket
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from factsweep.operators.errors import DamagedFileError
from factsweep.pipeline.config.folders import below
from factsweep.pipeline.config.recipe import build
from factsweep.pipeline.results import baseline, record
from factsweep.pipeline.storage import manifest
from factsweep.pipeline.storage.json_files import digest
from factsweep.pipeline.storage.lookup import located, recipe
from factsweep.pipeline.storage.store import Store

_FOLDER = "uses"
_FIX = "; remove it if the run is no longer wanted, or run that again."
UNFINISHED = "a run that is not known and not done"


@dataclass(frozen=True)
class Need:
    """What needs an artifact, in words, and when it was used for that, if that is known."""

    why: str
    when: datetime | None = None


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


def needs(store: Store, folders: Collection[str], results: str) -> Mapping[str, Sequence[Need]]:
    """What each of a store's artifacts, by folder, is needed for; what is not in it, for nothing.

    - A run needs what its run.json lists: those in `results`, and wherever the store has noted that
      runs wrote theirs. Where these cannot be seen from here, it needs what it noted.
    - A run that is not done needs all that it is planned to have.
    - A nightly needs the metrics of its last accepted run, and what they were made of.
    - What is not finished, and of no run that is known, is kept with what it is made of.

    Raises:
        DamagedFileError: a note, a run.json or a list of baselines is not what was written, or what
            is to be kept with all that it was made of has a recipe that cannot be read.
    """
    found: defaultdict[str, list[Need]] = defaultdict(list)
    by_name = {folder.partition("/")[2]: folder for folder in folders}
    noted = list(noted_uses(store))
    roots = [absolute(results), *(use.results for use in noted if is_seen(use))]
    listed: dict[tuple[str, str], set[str]] = {}
    for root in dict.fromkeys(roots):
        for name, content in _runs(Store(root)):
            listed[root, name] = {f for each in content["artifacts"].values() for f in each}
            need = Need(f"run {name}", _last(noted, root, name, content))
            _add(found, listed[root, name], need)
        for need, metrics in _baselines(root):
            _add(found, _with_inputs(store, metrics, by_name), need)
    for use in noted:
        if (own := _of_use(use, listed.get((use.results, use.run)))) is not None:
            _add(found, use.artifacts, own)
    for folder in folders:
        if folder not in found and not store.exists(f"{folder}/{manifest.NAME}"):
            need = Need(UNFINISHED)
            _add(found, _with_inputs(store, [folder], by_name), need)
    return found


def _add(found: dict[str, list[Need]], folders: Iterable[str], need: Need) -> None:
    for folder in folders:
        if need not in found[folder]:
            found[folder].append(need)


def _of_use(use: Use, listed: Collection[str] | None) -> Need | None:
    """What a noted use needs beyond what its run.json lists; null: nothing."""
    if listed is not None and set(use.artifacts) <= {*listed}:
        return None
    if use.done is None:
        return Need(
            f"run {use.run}, begun {use.begun[:10]} and not done", datetime.fromisoformat(use.begun)
        )
    if is_seen(use):
        return None  # its results were removed
    where = f"{use.results} on {use.host}"
    return Need(
        f"run {use.run}, whose results in {where} cannot be seen", datetime.fromisoformat(use.done)
    )


def is_seen(use: Use) -> bool:
    """Whether the folder of a run's results can be looked into from here."""
    if "://" in use.results:
        return bool(Store(use.results).folders(""))
    return use.host == socket.gethostname() and Path(use.results).is_dir()


def _runs(results: Store) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """The runs in a folder of results, those of nights too, each with its run.json."""
    for top in results.folders(""):
        for name in (top, *(f"{top}/{each}" for each in results.folders(top))):
            if results.exists(f"{name}/{record.NAME}"):
                yield name, record.read(Store(below(results.root, name)))


def _last(noted: Sequence[Use], root: str, name: str, content: Mapping[str, Any]) -> datetime:
    """When a run was last done, or, if that was not noted, when it began."""
    times = [use.done for use in noted if (use.results, use.run) == (root, name) and use.done]
    return max(map(datetime.fromisoformat, [*times, content["started"]]))


def _baselines(root: str) -> Iterator[tuple[Need, list[str]]]:
    """The metrics of the last accepted run of each nightly."""
    for file in Store(root).names("baselines"):
        name = file.removesuffix(".json")
        for last in baseline.history(name, root)[-1:]:
            need = Need(f"baseline of {name}", datetime.fromisoformat(last.accepted_at))
            yield need, list(last.metrics.values())


def _with_inputs(store: Store, folders: Iterable[str], by_name: Mapping[str, str]) -> Iterator[str]:
    left, seen = list(folders), set[str]()
    while left:
        folder = left.pop()
        if folder in seen:
            continue
        seen.add(folder)
        yield folder
        left += [by_name[each] for each in _inputs(store, folder) if each in by_name]


def _inputs(store: Store, folder: str) -> Iterable[str]:
    """The fingerprints of what an artifact was made of: as its recipe says, or its manifest.

    One without either has none: of one that was pruned nothing but a lease is left.
    """
    try:
        return recipe(store, folder).inputs.values()
    except (FileNotFoundError, DamagedFileError) as error:
        name = f"{folder}/{manifest.NAME}"  # as it lies there: what is read may list less
        if located(store, folder).is_complete() and (listed := store.get_json(name)["inputs"]):
            return [each.partition("/")[2] for each in listed]
        if isinstance(error, DamagedFileError):
            state = "damaged"
        elif any(not file.startswith("leases/") for file in store.files(folder)):
            state = "gone"
        else:
            return []
        name = f"{folder}/recipe.json"
        raise DamagedFileError(
            f"{store.where(name)} is {state}, so that nobody knows what must be kept for it; run "
            f"again what it is of, which writes it anew, or remove {store.where(folder)}.",
            name,
        ) from error


def begin_use(run: str, results: str, artifacts: Collection[str]) -> Use:
    """The use of a run that begins now."""
    return Use(run, absolute(results), socket.gethostname(), _now(), None, tuple(artifacts))


def end_use(use: Use) -> Use:
    """The same use, when the results are written."""
    return replace(use, done=_now())


def note_use(store: Store, use: Use) -> None:
    """Write a use into the store, in place of that of an earlier run of this name."""
    store.put_json(use.name, asdict(use))


def noted_uses(store: Store) -> Iterator[Use]:
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
