"""Set aside what is damaged of an artifact, so that the next run computes only that anew."""

from factsweep.pipeline.storage import manifest as manifests
from factsweep.pipeline.storage.artifact import Artifact

ANEW = "anew.json"  # what is answered anew (remembered.py)
_NOTES = ("recipe.json", "cost.json", ANEW, manifests.NAME)


def set_aside(artifact: Artifact, name: str) -> str:
    """Move a damaged file into the artifact's folder `damaged/`; returns where it lies.

    With a shard goes the manifest: the artifact is not complete any more. With a value that was
    settled go all shards that were made by it.
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
    """Move all shards and chunks out of the way, then the manifest; returns where that lies."""
    artifact.check_lease()
    _set_shards_aside(artifact)
    return set_aside(artifact, f"{artifact.folder}/{manifests.NAME}")


def _set_shards_aside(artifact: Artifact) -> None:
    for folder in artifact.store.folders(artifact.folder):
        if folder != "leases":
            artifact.store.set_aside(f"{artifact.folder}/{folder}")
