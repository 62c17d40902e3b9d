"""Answers that were pinned are remembered: a shard that is unlike them was edited.

An engine that answers a shard anew may give other answers. So the shards that were lost since are
noted in the artifact (`anew.json`) until it is complete, and may come out otherwise.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping

from factsweep.operators.errors import DamagedFileError
from factsweep.pipeline.storage.artifact import Artifact
from factsweep.pipeline.storage.damaged import ANEW
from factsweep.pipeline.storage.findings import Finding
from factsweep.pipeline.storage.manifest import Pin
from factsweep.pipeline.storage.sealed import REPAIR, seal, unseal

Artifacts = Mapping[str, Artifact]


def unlike(artifacts: Artifacts, recorded: Mapping[str, Pin]) -> Iterator[Finding]:
    """Shards of open artifacts that are not what a run's results, or artifacts, were made of."""
    for artifact, pinned in _open(artifacts, recorded):
        for table, shard in _there(artifact, pinned):
            try:
                _check(artifact, table, shard, pinned[f"{table}/{shard}"])
            except DamagedFileError as error:
                yield Finding(artifact, str(error), error.name)


def _check(artifact: Artifact, table: str, shard: str, pinned: set[str]) -> None:
    at = f"{table}/{shard}"
    if artifact.footer(table, shard).content not in pinned and at not in _noted(artifact):
        name = f"{artifact.folder}/{at}.parquet"
        what = "is not what was answered when it was last complete"
        raise DamagedFileError(f"{artifact.store.where(name)} {what}{REPAIR}", name)


def note_lost(artifacts: Artifacts, recorded: Mapping[str, Pin]) -> None:
    """Note which shards of open artifacts are to be answered anew."""
    for artifact, pinned in _open(artifacts, recorded):
        noted = _noted(artifact)
        lost = pinned.keys() - {"/".join(each) for each in _there(artifact, pinned)}
        if lost - noted:
            name = f"{artifact.folder}/{ANEW}"
            artifact.put(ANEW, seal({"shards": sorted(lost | noted)}, name))


def _open(
    artifacts: Artifacts, recorded: Mapping[str, Pin]
) -> Iterator[tuple[Artifact, Mapping[str, set[str]]]]:
    """The artifacts that are not complete, and what was pinned of each of their shards."""
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


def _there(artifact: Artifact, pinned: Mapping[str, set[str]]) -> Iterator[tuple[str, str]]:
    """Those of the shards that lie there, as table and shard."""
    for table in sorted({each.partition("/")[0] for each in pinned}):
        there = (shard for shard in artifact.published(table) if f"{table}/{shard}" in pinned)
        yield from ((table, shard) for shard in there)


def _noted(artifact: Artifact) -> set[str]:
    name = f"{artifact.folder}/{ANEW}"
    try:
        return set(unseal(artifact.store.get(name), name, artifact.store.where(name))["shards"])
    except FileNotFoundError:
        return set()
    except (KeyError, TypeError) as error:
        raise DamagedFileError(f"{artifact.store.where(name)} is no note{REPAIR}", name) from error
