"""The artifacts of a store, the runs and baselines that need them, and their removal.

<store>/uses/<id>.json   one file per run: written before it computes, again when it has results

A run may begin at any moment. So artifacts are leased before their removal, the needs are read
again, and manifests are removed first: a run then finds the artifacts missing, and held. The file
of the last lease stays, as the protocol of leases asks.
"""

import socket
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from factsweep.operators.errors import ArtifactHeldError, DamagedFileError, InputError
from factsweep.pipeline.config.folders import below
from factsweep.pipeline.config.recipe import build
from factsweep.pipeline.results import baseline, run_record
from factsweep.pipeline.stages.plan import Plan
from factsweep.pipeline.storage import lease, manifest
from factsweep.pipeline.storage.lookup import folders, locate_artifact, read_recipe
from factsweep.pipeline.storage.store import Store, digest

_USES = "uses"
_FIX = "; remove it if the run is no longer wanted, or run that again."
_UNFINISHED = "a run that is not known and not done"


@dataclass(frozen=True)
class ArtifactNeed:
    """A sentence on why an artifact is needed, and the time of that use, if known."""

    why: str
    when: datetime | None = None


@dataclass(frozen=True)
class RunUse:
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
        return f"{_USES}/{digest([self.run, self.results, self.host])[:16]}.json"


@dataclass(frozen=True)
class Item:
    """An artifact of a store, with its quarantined files."""

    folder: str
    bytes: int
    written: datetime
    is_complete: bool
    needs: Sequence[ArtifactNeed]

    @property
    def used_at(self) -> datetime:
        """The time of its last use."""
        return max([self.written, *(need.when for need in self.needs if need.when)])


def list_artifacts(store: Store, results: str) -> list[Item]:
    """All artifacts of a store, the largest first; `results` is a folder of runs that use it.

    Raises:
        DamagedFileError: a note of a use, a run.json or a list of baselines is damaged.
    """
    files = {folder: store.files(folder) for folder in folders(store)}
    # Of a removed artifact the file of its last lease is left.
    files = {f: by_name for f, by_name in files.items() if not all(map(_is_lease, by_name))}
    needed = find_needs(store, list(files), results)
    items = [
        Item(
            folder=folder,
            bytes=sum(file.bytes for file in by_name.values()),
            written=datetime.fromtimestamp(max(file.written for file in by_name.values()), UTC),
            is_complete=manifest.NAME in by_name,
            needs=needed.get(folder, ()),
        )
        for folder, by_name in files.items()
    ]
    return sorted(items, key=lambda item: (-item.bytes, item.folder))


def _is_lease(name: str) -> bool:
    return name.startswith("leases/")


def find_unneeded(items: Sequence[Item], *, unfinished: bool) -> list[Item]:
    """The artifacts that nothing needs; with `unfinished`, also those of unknown open runs."""
    return [item for item in items if _is_removable(item.needs, unfinished=unfinished)]


def _is_removable(needed: Sequence[ArtifactNeed], *, unfinished: bool) -> bool:
    return all(unfinished and need.why == _UNFINISHED for need in needed)


def remove_artifacts(
    store: Store, chosen: Sequence[str], results: str, *, unfinished: bool
) -> Iterator[str]:
    """Remove artifacts by their folders; yields those removed: the needed ones stay.

    Raises:
        ArtifactHeldError: the store is being written.
    """
    _check_not_written(store)
    with lease.hold_leases(store, chosen, wait=False) as writer:
        needed = find_needs(store, list(folders(store)), results)
        removable = [f for f in chosen if _is_removable(needed.get(f, ()), unfinished=unfinished)]
        for folder in removable:
            store.drop(f"{folder}/{manifest.NAME}")
        for folder in removable:
            writer.check()
            names = store.files(folder)
            last_lease = max(filter(_is_lease, names))
            for name in names:
                if name != last_lease:
                    store.drop(f"{folder}/{name}")
            store.drop_empty(folder)
            yield folder


def forget(store: Store, run: str) -> None:
    """Remove the notes that a run needs artifacts, if it is not done or its results are lost.

    Raises:
        InputError: the store knows no such run, or its results exist.
        ArtifactHeldError: the store is being written.
    """
    uses = [use for use in read_uses(store) if use.run == run]
    if not uses:
        raise InputError(f"{store.where()} knows no run {run}; `factsweep artifacts` lists them.")
    for use in uses:
        if use.done and can_see_results(use) and Store(use.results).exists(f"{run}/run.json"):
            raise InputError(
                f"the run {run} has results; remove {Store(use.results).where(run)}, and its "
                "artifacts can go."
            )
    _check_not_written(store)
    for use in uses:
        store.drop(use.name)


def _check_not_written(store: Store) -> None:
    if (writer := lease.find_writer(store, folders(store))) is not None:
        raise ArtifactHeldError(
            f"{store.where()} is being written by {writer}; prune it when that is done."
        )


def find_needs(
    store: Store, folders: Collection[str], results: str
) -> Mapping[str, Sequence[ArtifactNeed]]:
    """The needs of a store's artifacts, by folder.

    - A run with results needs the artifacts in its run.json, wherever these results are; if they
      cannot be seen from here, the artifacts that it noted.
    - A run that is not done needs all its planned artifacts.
    - A nightly needs the metrics of its last accepted run, and all their inputs.
    - Unfinished artifacts of unknown runs are kept with all their inputs.

    Raises:
        DamagedFileError: a note, a run.json, a list of baselines or a recipe is damaged.
    """
    needed: defaultdict[str, list[ArtifactNeed]] = defaultdict(list)
    by_name = {folder.partition("/")[2]: folder for folder in folders}
    uses = list(read_uses(store))
    roots = [to_absolute(results), *(use.results for use in uses if can_see_results(use))]
    listed: dict[tuple[str, str], set[str]] = {}
    for root in dict.fromkeys(roots):
        for name, content in _list_runs(Store(root)):
            listed[root, name] = {f for names in content["artifacts"].values() for f in names}
            times = [use.done for use in uses if (use.results, use.run) == (root, name)]
            last = max(map(datetime.fromisoformat, [*filter(None, times), content["started"]]))
            _add(needed, listed[root, name], ArtifactNeed(f"run {name}", last))
        for need, metrics in _list_baselines(root):
            _add(needed, _add_inputs(store, metrics, by_name), need)
    for use in uses:
        is_open = use.done is None or not can_see_results(use)
        if is_open and not set(use.artifacts) <= listed.get((use.results, use.run), set()):
            _add(needed, use.artifacts, _describe_noted_need(use))
    for folder in folders:
        if folder not in needed and not store.exists(f"{folder}/{manifest.NAME}"):
            _add(needed, _add_inputs(store, [folder], by_name), ArtifactNeed(_UNFINISHED))
    return needed


def _add(needed: dict[str, list[ArtifactNeed]], folders: Iterable[str], need: ArtifactNeed) -> None:
    for folder in folders:
        if need not in needed[folder]:
            needed[folder].append(need)


def _list_baselines(root: str) -> Iterator[tuple[ArtifactNeed, Iterable[str]]]:
    for file in Store(root).names("baselines"):
        name = file.removesuffix(".json")
        for accepted in baseline.history(name, root)[-1:]:
            need = ArtifactNeed(f"baseline of {name}", datetime.fromisoformat(accepted.accepted_at))
            yield need, accepted.metrics.values()


def _describe_noted_need(use: RunUse) -> ArtifactNeed:
    if use.done is None:
        sentence = f"run {use.run}, begun {use.begun[:10]} and not done"
        return ArtifactNeed(sentence, datetime.fromisoformat(use.begun))
    sentence = f"run {use.run}, whose results in {use.results} on {use.host} cannot be seen"
    return ArtifactNeed(sentence, datetime.fromisoformat(use.done))


def can_see_results(use: RunUse) -> bool:
    """Whether the folder of a run's results can be read from here."""
    if "://" in use.results:
        return bool(Store(use.results).folders(""))
    return use.host == socket.gethostname() and Path(use.results).is_dir()


def _list_runs(results: Store) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """The runs in a folder of results, with those of nights, each with its run.json."""
    for top in results.folders(""):
        for name in (top, *(f"{top}/{night}" for night in results.folders(top))):
            if results.exists(f"{name}/{run_record.NAME}"):
                yield name, run_record.read(Store(below(results.root, name)))


def _add_inputs(store: Store, folders: Iterable[str], by_name: Mapping[str, str]) -> Iterator[str]:
    queue, visited = list(folders), set[str]()
    while queue:
        folder = queue.pop()
        if folder in visited:
            continue
        visited.add(folder)
        yield folder
        queue += [by_name[name] for name in _list_inputs(store, folder) if name in by_name]


def _list_inputs(store: Store, folder: str) -> Iterable[str]:
    """The fingerprints of an artifact's inputs, from its recipe or its manifest.

    A pruned artifact has neither, but only leases, and no inputs.
    """
    try:
        return read_recipe(store, folder).inputs.values()
    except (FileNotFoundError, DamagedFileError) as error:
        if locate_artifact(store, folder).is_complete():
            # Of the file itself, because `locate_artifact` may list less.
            inputs = store.get_json(f"{folder}/{manifest.NAME}")["inputs"]
            if inputs:
                return [source.partition("/")[2] for source in inputs]
        is_damaged = isinstance(error, DamagedFileError)
        if not is_damaged and all(map(_is_lease, store.files(folder))):
            return []
        name = f"{folder}/recipe.json"
        raise DamagedFileError(
            f"{store.where(name)} is {'damaged' if is_damaged else 'gone'}, so that its inputs, "
            f"which must be kept, are unknown; repeat its run, which writes it again, or remove "
            f"{store.where(folder)}.",
            name,
        ) from error


def begin_use(plan: Plan) -> RunUse:
    """The use of a run that begins now."""
    run, artifacts = plan.run, tuple(step.artifact.folder for step in plan.steps)
    place = to_absolute(run.results), socket.gethostname()
    return RunUse(run.name, *place, run_record.format_now(), None, artifacts)


def end_use(use: RunUse) -> RunUse:
    """The use of a run whose results are written."""
    return replace(use, done=run_record.format_now())


def note_use(store: Store, use: RunUse) -> None:
    """Write a use into the store; it replaces that of an earlier run of this name."""
    store.put_json(use.name, asdict(use))


def read_uses(store: Store) -> Iterator[RunUse]:
    """All uses of a store.

    Raises:
        DamagedFileError: one is damaged.
    """
    for name in (f"{_USES}/{file}" for file in store.names(_USES)):
        yield build(RunUse, store.get_json(name, fix=_FIX), store.where(name))


def to_absolute(results: str) -> str:
    """The absolute path of a folder, or a URL without secrets."""
    return Store(results).where() if "://" in results else str(Path(results).absolute())
