"""Integrity: finds damaged and outdated artifacts, and quarantines them for recomputation."""

from collections.abc import Collection, Iterator
from dataclasses import dataclass

import polars as pl

from factsweep.operators.errors import DamagedFileError
from factsweep.operators.schemas import KEYS
from factsweep.pipeline.storage import manifest as manifests
from factsweep.pipeline.storage.artifact import Artifact
from factsweep.pipeline.storage.lookup import read_recipe
from factsweep.pipeline.storage.store import REPAIR

SOURCES = "sources"  # the note of an open artifact on its inputs
_OLD_NOTES = ("anew.json", "values_of.json", "made_of.json")  # of earlier versions: unread
_NOTES = ("recipe.json", "cost.json", f"{SOURCES}.json", manifests.NAME, *_OLD_NOTES)
_OPEN = ("chunks", "trials", "leases")  # files of writers, which a killed one leaves


@dataclass(frozen=True)
class Finding:
    """A problem of an artifact: a sentence, and the file to quarantine (None: all its files)."""

    artifact: Artifact
    sentence: str
    name: str | None
    is_kept: bool = False  # answers of an engine are not decoded again for this

    @classmethod
    def of(cls, artifact: Artifact, error: DamagedFileError) -> "Finding":
        """The finding for an error."""
        return cls(artifact, str(error), error.name)

    def quarantine(self) -> str:
        """Quarantine the file, so that the next run recomputes it; returns its new name."""
        if self.name is None:
            return quarantine_all(self.artifact)
        return quarantine(self.artifact, self.name)


def quarantine(artifact: Artifact, name: str) -> str:
    """Move a damaged file into the artifact's folder `damaged/`; returns its new name.

    Together with a listed shard the manifest is quarantined: the artifact is open again. Together
    with a settled value, all shards are, which depend on it.

    Raises:
        ArtifactHeldError: another driver has taken the artifact over.
    """
    artifact.check_lease()
    file = name.removeprefix(f"{artifact.folder}/")
    if file.endswith(".json") and "/" not in file and file not in _NOTES:
        _quarantine_shards(artifact)
    new_name = artifact.store.quarantine(name)
    if name.endswith(".parquet"):
        table, _, shard = file.removesuffix(".parquet").rpartition("/")
        if not artifact.was_complete or shard in artifact.manifest().tables.get(table, {}):
            artifact.store.quarantine(f"{artifact.folder}/{manifests.NAME}")
    artifact.forget()
    return new_name


def quarantine_all(artifact: Artifact) -> str:
    """Quarantine all shards and chunks, then the manifest; returns the new name of that."""
    artifact.check_lease()
    _quarantine_shards(artifact)
    return quarantine(artifact, f"{artifact.folder}/{manifests.NAME}")


def _quarantine_shards(artifact: Artifact) -> None:
    for folder in artifact.store.folders(artifact.folder):
        if folder != "leases":
            artifact.store.quarantine(f"{artifact.folder}/{folder}")


def check_listing(artifact: Artifact) -> Iterator[Finding]:
    """The problems of a complete artifact that its listing and its JSON files show."""
    try:
        if not artifact.is_complete():
            return
    except DamagedFileError as error:
        yield Finding.of(artifact, error)
        return
    yield from _check_recipe(artifact)
    sizes = artifact.store.sizes(artifact.folder)
    expected_sizes = {
        f"{table}/{shard}.parquet": entry.bytes
        for table, entries in artifact.manifest().tables.items()
        for shard, entry in entries.items()
    }
    for file in sizes:  # first: files behind a link must not be touched
        top, _, below = file.partition("/")
        is_known = file in expected_sizes or top in _OPEN or file.rpartition("/")[2][:1] == "."
        if not is_known and (below or ".json" not in top):
            yield _build_finding(artifact, file, "is no file of this artifact")
    for file, size in expected_sizes.items():
        if file not in sizes:
            yield _build_finding(artifact, file, "is gone, or no file")
        elif sizes[file] != size:
            yield _blame_other_size(artifact, file, f"has {sizes[file]:,} bytes, not {size:,}")


def _check_recipe(artifact: Artifact) -> Iterator[Finding]:
    """Problems of the recipe; artifacts that were not begun, or pruned, have none."""
    try:
        read_recipe(artifact.store, artifact.folder)
    except FileNotFoundError:
        if artifact.was_complete:
            yield _build_finding(artifact, "recipe.json", "is gone")
    except DamagedFileError as error:
        yield Finding.of(artifact, error)


def _blame_other_size(artifact: Artifact, file: str, problem: str) -> Finding:
    """A finding on the shard, or on the manifest if the shard has the SHA-256 listed there."""
    try:
        artifact.read(*file.removesuffix(".parquet").split("/"))
    except DamagedFileError:
        return _build_finding(artifact, file, problem)
    path = artifact.store.where(f"{artifact.folder}/{file}")
    return _build_finding(artifact, manifests.NAME, f"is wrong: {path} {problem}")


def _build_finding(artifact: Artifact, file: str, problem: str) -> Finding:
    name = f"{artifact.folder}/{file}"
    return Finding(artifact, f"{artifact.store.where(name)} {problem}{REPAIR}", name)


def check_content(artifact: Artifact) -> Iterator[Finding]:
    """The problems of an artifact, reading every byte; of an open one only those of its recipe."""
    findings = list(check_listing(artifact))
    yield from findings
    known_names = {finding.name for finding in findings}
    if not artifact.was_complete:
        yield from (f for f in _check_recipe(artifact) if f.name not in known_names)
        return
    yield from (f for f in _check_notes(artifact) if f.name not in known_names)
    for table, shards in artifact.manifest().tables.items():
        ids: list[pl.Series] = []
        for shard in shards:
            try:
                rows = artifact.read(table, shard)
            except DamagedFileError as error:
                if error.name not in known_names:
                    yield Finding.of(artifact, error)
                continue
            ids += [rows[KEYS[table]]] if table in KEYS else []
        if ids and (n_repeated := pl.concat(ids).is_duplicated().sum()):
            path = artifact.store.where(f"{artifact.folder}/{table}")
            sentence = f"{path}: {n_repeated} rows share a {KEYS[table]} with another"
            yield Finding(artifact, f"{sentence}{REPAIR}", None)


def _check_notes(artifact: Artifact) -> Iterator[Finding]:
    for file in artifact.store.names(artifact.folder):
        if file.endswith(".json") and file not in ("lease.json", *_OLD_NOTES):
            try:
                artifact.note(file)
            except DamagedFileError as error:
                yield Finding.of(artifact, error)


def find_outdated(artifacts: Collection[Artifact]) -> Iterator[Finding]:
    """The complete artifacts that were computed from an earlier state of others among these."""
    manifest_by_folder = {a.folder: a.manifest() for a in artifacts if a.was_complete}
    for artifact in artifacts:
        inputs = artifact.manifest().inputs if artifact.was_complete else {}
        for source, state in inputs.items():
            if source in manifest_by_folder and not manifest_by_folder[source].fits(state):
                outdated, input_path = map(artifact.store.where, (artifact.folder, source))
                sentence = f"{outdated} was made of an earlier {input_path}{REPAIR}"
                if is_answers := artifact.stage in manifests.ANSWERS:
                    sentence = other_shards_message(artifact, source)
                yield Finding(artifact, sentence, None, is_kept=is_answers)
                break


def other_shards_message(artifact: Artifact, source: str) -> str:
    """The message that answers do not fit the shards of their prompts."""
    answers, prompts = map(artifact.store.where, (artifact.folder, source))
    rows = artifact.rows(artifact.stage).values() if artifact.was_complete else ()
    size = f" ({max(rows):,} or more)" if rows else ""
    return (
        f"{answers} was answered when {prompts} was cut into other shards; remove {prompts} and "
        f"run with the cluster.rows_per_shard of then{size}, or remove {answers} to ask all again."
    )
