"""The hub's cache on this machine: whether its files are still what the hub gave.

A file of a snapshot is a link to a blob that is named after its content: by the SHA-256 where it is
large, else by git's SHA-1.
"""

import hashlib
import re
from pathlib import Path

from factsweep.operators.errors import InputError
from factsweep.pipeline.inputs import digests

_SHA256, _GIT = re.compile(r"[0-9a-f]{64}"), re.compile(r"[0-9a-f]{40}")


def own_files(model_id: str, commit: str) -> dict[str, Path]:
    """The files of a cached snapshot of which no name tells the content, by their names in it.

    On a file system without links those are all of them; where there is no snapshot, none.
    """
    found = _snapshot(model_id, commit)
    blobs = {name: path.resolve() for name, path in found.items() if path.is_symlink()}
    large = {name: path for name, path in blobs.items() if _SHA256.fullmatch(path.name)}
    small = {name: path for name, path in blobs.items() if _GIT.fullmatch(path.name)}
    told = {**digests.of_each(large), **{name: _git_sha1(path) for name, path in small.items()}}
    for name, digest in told.items():
        if digest != blobs[name].name:
            raise InputError(
                f"{found[name]} is not what the hub gave of {model_id}; remove {blobs[name]}, then "
                "fetch the model again with `factsweep prefetch model=…`."
            )
    return {name: path for name, path in found.items() if name not in told}


def _snapshot(model_id: str, commit: str) -> dict[str, Path]:
    from huggingface_hub import constants
    from huggingface_hub.file_download import repo_folder_name

    repository = repo_folder_name(repo_id=model_id, repo_type="model")
    folder = Path(constants.HF_HUB_CACHE, repository, "snapshots", commit)
    return digests.below(folder) if folder.is_dir() else {}


def _git_sha1(path: Path) -> str:
    content = path.read_bytes()
    header = b"blob %d\0" % len(content)
    return hashlib.sha1(header + content, usedforsecurity=False).hexdigest()
