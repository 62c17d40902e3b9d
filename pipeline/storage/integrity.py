"""Integrity: what is wrong with artifacts, and setting it aside so that a run computes it anew."""

from collections.abc import Collection, Iterator
from dataclasses import dataclass

import polars as pl

from factsweep.operators.errors import DamagedFileError
from factsweep.operators.schemas import KEYS
from factsweep.pipeline.storage import manifest as manifests
from factsweep.pipeline.storage.artifact import Artifact
from factsweep.pipeline.storage.json_files import REPAIR
from factsweep.pipeline.storage.lookup import recipe

SOURCES = "sources"  # what an open artifact notes of its inputs
_OLD_NOTES = (
    "anew.json",
    "values_of.json",
    "made_of.json",
)  # of earlier versions: nobody reads them
_NOTES = ("recipe.json", "cost.json", f"{SOURCES}.json", manifests.NAME, *_OLD_NOTES)
_OPEN = ("chunks", "trials", "leases")  # what a writer needs, and a killed one leaves


@dataclass(frozen=True)
class Finding:
    """One thing that is wrong with an artifact: a sentence, and the file of it to set aside."""

    artifact: Artifact
    sentence: str
    name: str | None  # null: all that the artifact holds
    is_kept: bool = False  # answers of an engine are not asked again for this

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
            yield _of_other_size(artifact, file, f"has {sizes[file]:,} bytes, not {size:,}")


def _of_other_size(artifact: Artifact, file: str, what: str) -> Finding:
    """That a shard is damaged; or the manifest, if the shard is the one whose SHA-256 it lists."""
    try:
        artifact.read(*file.removesuffix(".parquet").split("/"))
    except DamagedFileError:
        return _finding(artifact, file, what)
    where = artifact.store.where(f"{artifact.folder}/{file}")
    return _finding(artifact, manifests.NAME, f"is wrong: {where} {what}")


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
        for shard in shards:
            try:
                frame = artifact.read(table, shard)
            except DamagedFileError as error:
                if error.name not in named:
                    yield Finding.of(artifact, error)
                continue
            ids += [frame[KEYS[table]]] if table in KEYS else []
        if ids and (twice := pl.concat(ids).is_duplicated().sum()):
            where = artifact.store.where(f"{artifact.folder}/{table}")
            sentence = f"{where}: {twice} rows share a {KEYS[table]} with another"
            yield Finding(artifact, f"{sentence}{REPAIR}", None)


def _notes(artifact: Artifact) -> Iterator[Finding]:
    """The JSON files beside the manifest that are not what was written."""
    for file in artifact.store.names(artifact.folder):
        if file.endswith(".json") and file not in ("lease.json", *_OLD_NOTES):
            try:
                artifact.note(file)
            except DamagedFileError as error:
                yield Finding.of(artifact, error)


def stale(artifacts: Collection[Artifact]) -> Iterator[Finding]:
    """Which complete artifacts were made of an earlier state of others, of those that are given."""
    manifests_of = {each.folder: each.manifest() for each in artifacts if each.was_complete}
    for artifact in artifacts:
        inputs = artifact.manifest().inputs if artifact.was_complete else {}
        for source, state in inputs.items():
            if source in manifests_of and not manifests_of[source].fits(state):
                where = artifact.store.where
                what = f"{where(artifact.folder)} was made of an earlier {where(source)}{REPAIR}"
                if is_answers := artifact.stage in manifests.ANSWERS:
                    what = cut_otherwise(artifact, source)
                yield Finding(artifact, what, None, is_kept=is_answers)
                break


def cut_otherwise(artifact: Artifact, source: str) -> str:
    """That answers do not fit the shards of their prompts; all else of these the recipe says."""
    answers, prompts = map(artifact.store.where, (artifact.folder, source))
    rows = artifact.rows(artifact.stage).values() if artifact.was_complete else ()
    size = f" ({max(rows):,} or more)" if rows else ""
    return (
        f"{answers} was answered when {prompts} was cut into other shards; remove {prompts} and "
        f"run with the cluster.rows_per_shard of then{size}, or remove {answers} to ask all again."
    )
