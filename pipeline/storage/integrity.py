"""Integrity: what is wrong with artifacts, and setting it aside so that a run computes it anew.

An engine that answers a shard anew may give other answers. So those that were lost since they were
pinned are noted in the artifact (`anew.json`) until it is complete, and may come out otherwise.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache

import polars as pl

from factsweep.operators.errors import DamagedFileError
from factsweep.operators.schemas import KEYS
from factsweep.pipeline.storage import manifest as manifests
from factsweep.pipeline.storage.artifact import Artifact
from factsweep.pipeline.storage.lookup import located, recipe
from factsweep.pipeline.storage.manifest import ANSWERS, Pin
from factsweep.pipeline.storage.sealed import REPAIR
from factsweep.pipeline.storage.shard import values_of
from factsweep.pipeline.storage.store import Store

ANEW = "anew.json"
VALUES_OF = "values_of.json"
_NOTES = ("recipe.json", "cost.json", ANEW, VALUES_OF, manifests.NAME)
_OPEN = ("chunks", "trials", "leases")  # what a writer needs, and a killed one leaves

Artifacts = Mapping[str, Artifact]  # by folder
Pins = Mapping[str, Pin]


@dataclass(frozen=True)
class Finding:
    """One thing that is wrong with an artifact: a sentence, and the file of it to set aside."""

    artifact: Artifact
    sentence: str
    name: str | None  # null: all that the artifact holds

    @classmethod
    def of(cls, artifact: Artifact, error: DamagedFileError) -> "Finding":
        """What an error says of an artifact."""
        return cls(artifact, str(error), error.name)

    def set_aside(self) -> str:
        """Move it out of the way, so that the next run computes it anew; returns where to."""
        if self.name is None:
            return set_all_aside(self.artifact)
        return set_aside(self.artifact, self.name)


def set_aside(artifact: Artifact, name: str) -> str:
    """Move a damaged file into the artifact's folder `damaged/`; returns where it lies.

    With a shard goes the manifest: the artifact is not complete any more. With a value that was
    settled go all shards that were made by it.

    Raises:
        ArtifactHeldError: another driver has taken the artifact over.
    """
    artifact.check_lease()
    file = name.removeprefix(f"{artifact.folder}/")
    if file.endswith(".json") and "/" not in file and file not in _NOTES:
        _set_shards_aside(artifact)
    aside = artifact.store.set_aside(name)
    if name.endswith(".parquet") and not _is_foreign(artifact, file):
        artifact.store.set_aside(f"{artifact.folder}/{manifests.NAME}")
    artifact.forget()
    return aside


def _is_foreign(artifact: Artifact, file: str) -> bool:
    """Whether the artifact was complete without a file."""
    table, _, shard = file.removesuffix(".parquet").rpartition("/")
    return artifact.was_complete and shard not in artifact.manifest().tables.get(table, {})


def set_all_aside(artifact: Artifact) -> str:
    """Move all shards and chunks out of the way, then the manifest; returns where that lies.

    Raises:
        ArtifactHeldError: another driver has taken the artifact over.
    """
    artifact.check_lease()
    _set_shards_aside(artifact)
    return set_aside(artifact, f"{artifact.folder}/{manifests.NAME}")


def _set_shards_aside(artifact: Artifact) -> None:
    for folder in artifact.store.folders(artifact.folder):
        if folder != "leases":
            artifact.store.set_aside(f"{artifact.folder}/{folder}")


def listed(artifact: Artifact) -> Iterator[Finding]:
    """What is wrong with a complete artifact, as far as its listing and its JSON files tell."""
    try:
        if not artifact.is_complete():
            return
    except DamagedFileError as error:
        yield Finding.of(artifact, error)
        return
    yield from _recipe(artifact)
    yield from _files(artifact)


def _recipe(artifact: Artifact) -> Iterator[Finding]:
    """What is wrong with the recipe; one that is not begun, or was pruned, has none."""
    try:
        recipe(artifact.store, artifact.folder)
    except FileNotFoundError:
        if artifact.was_complete:
            yield _finding(artifact, "recipe.json", "is gone")
    except DamagedFileError as error:
        yield Finding.of(artifact, error)


def _files(artifact: Artifact) -> Iterator[Finding]:
    """Files that are missing, of another size than the manifest says, or of nobody."""
    sizes = artifact.store.sizes(artifact.folder)
    expected = {
        f"{table}/{shard}.parquet": entry.bytes
        for table, shards in artifact.manifest().tables.items()
        for shard, entry in shards.items()
    }
    for file in sizes:  # first: what lies behind a link is not to be touched
        top, _, below = file.partition("/")
        known = file in expected or top in _OPEN or file.rpartition("/")[2].startswith(".")
        if not known and (below or ".json" not in top):
            yield _finding(artifact, file, "is no file of this artifact")
    for file, size in expected.items():
        if file not in sizes:
            yield _finding(artifact, file, "is gone, or no file")
        elif sizes[file] != size:
            yield _finding(artifact, file, f"has {sizes[file]:,} bytes, not {size:,}")


def _finding(artifact: Artifact, file: str, what: str) -> Finding:
    name = f"{artifact.folder}/{file}"
    return Finding(artifact, f"{artifact.store.where(name)} {what}{REPAIR}", name)


def read(artifact: Artifact) -> Iterator[Finding]:
    """What is wrong with an artifact when every byte of it is read; of an open one, its recipe."""
    found = list(listed(artifact))
    yield from found
    named = {each.name for each in found}
    if not artifact.was_complete:
        yield from (each for each in _recipe(artifact) if each.name not in named)
        return
    yield from (each for each in _notes(artifact) if each.name not in named)
    for table, shards in artifact.manifest().tables.items():
        ids: list[pl.Series] = []
        for shard, entry in shards.items():
            try:
                frame = artifact.read(table, shard)
            except DamagedFileError as error:
                if error.name not in named:
                    yield Finding.of(artifact, error)
                continue
            if entry.values and values_of(frame, table) != entry.values:
                what = "holds other values than the manifest says"
                yield _finding(artifact, f"{table}/{shard}.parquet", what)
            ids += [frame[KEYS[table]]] if table in KEYS else []
        if ids and (twice := pl.concat(ids).is_duplicated().sum()):
            where = artifact.store.where(f"{artifact.folder}/{table}")
            sentence = f"{where}: {twice} rows share a {KEYS[table]} with another"
            yield Finding(artifact, f"{sentence}{REPAIR}", None)


def _notes(artifact: Artifact) -> Iterator[Finding]:
    """The JSON files beside the manifest that are not what was written."""
    for file in artifact.store.names(artifact.folder):
        if file.endswith(".json") and file != "lease.json":
            try:
                artifact.note(file)
            except DamagedFileError as error:
                yield Finding.of(artifact, error)


def misfits(artifacts: Artifacts, recorded: Pins, renewed: Mapping[str, int]) -> Iterator[Finding]:
    """Those artifacts, and shards of open ones, that are not what others or results were made of.

    One that was edited together with its manifest is to be computed anew. Where an engine decoded
    it anew since, or it is in `renewed`, it stands, and what was made of the earlier one is stale.
    """
    complete = {folder: each for folder, each in artifacts.items() if each.was_complete}
    for folder, pin in recorded.items():
        found = complete.get(folder)
        stands = found is None or _fits(found, pin) or _was_decoded_anew(found, pin)
        if found is not None and not stands and folder not in renewed:
            yield _edited(found, "the run's results")
    for folder, artifact in complete.items():
        for source, pin in artifact.manifest().inputs.items():
            if source not in complete or _fits(complete[source], pin):
                continue
            if source in renewed or _was_decoded_anew(complete[source], pin):
                where = artifact.store.where(source)
                sentence = f"{artifact.store.where(folder)} was made of an earlier {where}"
                yield Finding(artifact, f"{sentence}{REPAIR}", None)
            else:
                yield _edited(complete[source], artifact.store.where(folder))
    yield from _unlike(artifacts, recorded)


def _fits(artifact: Artifact, pin: Pin) -> bool:
    """Whether it has the bytes that were pinned, or others with the same values."""
    found = artifact.manifest().pin
    if found.digest == pin.digest:
        return True
    return bool(pin.values) and found.values == pin.values and has_its_values(artifact)


def has_its_values(artifact: Artifact) -> bool:
    """Whether all shards have the values that the manifest says; one that is damaged is passed.

    What another version of pyarrow packs has other bytes, so a pin of the bytes does not fit it.
    """
    pin = artifact.manifest().pin
    return _has_values(artifact.store, artifact.folder, pin.digest, pin.values)


@lru_cache
def _has_values(store: Store, folder: str, _digest: str, _values: str) -> bool:
    artifact = located(store, folder)
    tables = artifact.manifest().tables.items()
    entries = [(table, shard, each.values) for table, of in tables for shard, each in of.items()]

    def is_so(entry: tuple[str, str, str]) -> bool:
        table, shard, told = entry
        with suppress(DamagedFileError):  # a finding of its own, wherever it is read
            return values_of(artifact.read(table, shard), table) == told
        return True

    return all(store.each(is_so, entries))


def _was_decoded_anew(artifact: Artifact, pin: Pin) -> bool:
    """Whether these are other answers of an engine, which need not give the same ones again."""
    return artifact.stage in ANSWERS and artifact.manifest().pin.made != pin.made


def _edited(artifact: Artifact, product: str) -> Finding:
    where = artifact.store.where(artifact.folder)
    return Finding(artifact, f"{where} is not what {product} was made of{REPAIR}", None)


def _unlike(artifacts: Artifacts, recorded: Pins) -> Iterator[Finding]:
    """Shards of open artifacts that are neither what was pinned nor noted as answered anew."""
    for artifact, pinned in _open(artifacts, recorded):
        for at in _there(artifact, pinned):
            try:
                content = artifact.footer(*at.split("/", 1)).content
                if content not in pinned[at] and at not in _noted(artifact):
                    what = "is not what was answered when it was last complete"
                    yield _finding(artifact, f"{at}.parquet", what)
            except DamagedFileError as error:
                yield Finding.of(artifact, error)


def note_lost(artifacts: Artifacts, recorded: Pins) -> None:
    """Note which shards of open artifacts are to be answered anew."""
    for artifact, pinned in _open(artifacts, recorded):
        noted = _noted(artifact)
        lost = pinned.keys() - set(_there(artifact, pinned))
        if lost - noted:
            artifact.put_note(ANEW, {"shards": sorted(lost | noted)})


def _open(
    artifacts: Artifacts, recorded: Pins
) -> Iterator[tuple[Artifact, Mapping[str, set[str]]]]:
    """The artifacts that are not complete, and what was pinned of each shard, as table/shard."""
    pins = [*recorded.items()]
    for artifact in artifacts.values():
        pins += artifact.manifest().inputs.items() if artifact.was_complete else ()
    found = defaultdict[str, dict[str, set[str]]](dict)
    for folder, pin in pins:
        for shard, content in pin.contents.items():
            found[folder].setdefault(shard, set()).add(content)
    for folder, pinned in found.items():
        if folder in artifacts and not artifacts[folder].was_complete:
            yield artifacts[folder], pinned


def _there(artifact: Artifact, pinned: Mapping[str, set[str]]) -> Iterator[str]:
    for table in sorted({each.partition("/")[0] for each in pinned}):
        there = (f"{table}/{shard}" for shard in artifact.published(table))
        yield from (at for at in there if at in pinned)


def _noted(artifact: Artifact) -> set[str]:
    try:
        return set(artifact.note(ANEW)["shards"])
    except FileNotFoundError:
        return set()
    except (KeyError, TypeError) as error:
        name = f"{artifact.folder}/{ANEW}"
        raise DamagedFileError(f"{artifact.store.where(name)} is no note{REPAIR}", name) from error
