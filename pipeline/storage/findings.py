"""What is wrong with artifacts: from listings and manifests, or from every byte of them."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import polars as pl

from factsweep.operators.errors import DamagedFileError
from factsweep.operators.schemas import KEYS
from factsweep.pipeline.storage.artifact import Artifact
from factsweep.pipeline.storage.damaged import set_all_aside, set_aside
from factsweep.pipeline.storage.lookup import recipe
from factsweep.pipeline.storage.manifest import ANSWERS, Pin
from factsweep.pipeline.storage.sealed import REPAIR, unseal

_OPEN = ("chunks", "trials", "leases")  # what a writer needs, and a killed one leaves


@dataclass(frozen=True)
class Finding:
    """One thing that is wrong with an artifact: a sentence, and the file of it to set aside.

    `name` is null where all that the artifact holds is to be set aside.
    """

    artifact: Artifact
    sentence: str
    name: str | None

    def set_aside(self) -> str:
        """Move it out of the way, so that the next run computes it anew; returns where to."""
        if self.name is None:
            return set_all_aside(self.artifact)
        return set_aside(self.artifact, self.name)


def listed(artifact: Artifact) -> Iterator[Finding]:
    """What is wrong with a complete artifact, as far as its listing and its JSON files tell."""
    try:
        if not artifact.is_complete():
            return
    except DamagedFileError as error:
        yield Finding(artifact, str(error), error.name)
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
        yield Finding(artifact, str(error), error.name)


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
        for shard in shards:
            try:
                frame = artifact.read(table, shard)
            except DamagedFileError as error:
                if error.name not in named:
                    yield Finding(artifact, str(error), error.name)
                continue
            ids += [frame[KEYS[table]]] if table in KEYS else []
        if ids and (twice := pl.concat(ids).is_duplicated().sum()):
            where = artifact.store.where(f"{artifact.folder}/{table}")
            sentence = f"{where}: {twice} rows share a {KEYS[table]} with another"
            yield Finding(artifact, f"{sentence}{REPAIR}", None)


def _notes(artifact: Artifact) -> Iterator[Finding]:
    """The JSON files beside the manifest that are not what was written."""
    for file in artifact.store.names(artifact.folder):
        name = f"{artifact.folder}/{file}"
        if file.endswith(".json") and file != "lease.json":
            try:
                unseal(artifact.store.get(name), name, artifact.store.where(name))
            except DamagedFileError as error:
                yield Finding(artifact, str(error), name)


def misfits(
    artifacts: Mapping[str, Artifact],
    recorded: Mapping[str, Pin],
    renewed: Mapping[str, int],
) -> Iterator[Finding]:
    """Those of the complete artifacts that are not what others, or a run's results, were made of.

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


def _fits(artifact: Artifact, pin: Pin) -> bool:
    return artifact.manifest().pin.digest == pin.digest


def _was_decoded_anew(artifact: Artifact, pin: Pin) -> bool:
    """Whether these are other answers of an engine, which need not give the same ones again."""
    return artifact.stage in ANSWERS and artifact.manifest().pin.made != pin.made


def _edited(artifact: Artifact, product: str) -> Finding:
    where = artifact.store.where(artifact.folder)
    sentence = f"{where} is not what {product} was made of{REPAIR}"
    return Finding(artifact, sentence, None)
