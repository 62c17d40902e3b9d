"""hub: repositories of the Hugging Face hub, fetched whole and checked against its checksums.

A connection that breaks is resumed where it broke, and complete files are not fetched
twice; where the hub limits requests, the client waits.
"""

import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeVar

from factsweep.operators.errors import InputError, reason
from factsweep.pipeline.inputs import digests

T = TypeVar("T")
Say = Callable[[str], None]

_TRIES = 5
_LONGEST_WAIT_S = 300.0
_FIX = "check the network and HF_TOKEN, then run it again: finished files are kept"
# "api";r=0;t=55: nothing is left of this limit, for 55 seconds.
_USED_UP = re.compile(r"\br=0\s*;\s*t=(\d+)")
_OWN = ".cache"  # the client's records in a folder that it filled
# The same weights in other formats, which no engine here loads where there are safetensors.
_OTHER_WEIGHTS = ["*.bin", "*.pt", "*.pth", "*.h5", "*.msgpack", "*.onnx*", "*.gguf", "original/*"]

_SHA256, _GIT = re.compile(r"[0-9a-f]{64}"), re.compile(r"[0-9a-f]{40}")


@dataclass(frozen=True)
class Repository:
    """A repository; its files go into `folder`, or into the hub's cache."""

    id: str
    revision: str
    kind: Literal["model", "dataset"]
    folder: Path | None = None


@dataclass(frozen=True)
class FetchedRepository:
    """A repository at a commit, and the folder of its files."""

    id: str
    commit: str
    folder: Path
    n_files: int
    n_bytes: int


def errors() -> tuple[type[Exception], ...]:
    """The errors of the hub's client where there is no network, or where the hub refuses."""
    from httpx2 import HTTPError

    return HTTPError, OSError


def fetch(repository: Repository, say: Say, fix: str = _FIX) -> FetchedRepository:
    """Download a repository into the hub's cache, or into a folder, and check every file.

    The commit of a branch is recorded, so that it is found without a network. `fix` is the advice
    where the hub does not answer.

    Raises:
        InputError: the hub does not give it, or a file is corrupt twice.
    """
    from huggingface_hub.errors import HFValidationError

    try:
        commit, local = _download(repository, say)
        if _drop_corrupt(repository, commit, local, say):
            _download(repository, say)
            if corrupt := _drop_corrupt(repository, commit, local, say):
                raise InputError(
                    f"{repository.id} at {commit}: {', '.join(corrupt)} came corrupt twice; check "
                    "the disk and the network, then run it again: correct files are kept."
                )
    except HFValidationError as error:
        raise InputError(f"{repository.id} is no id of the hub: {error}") from error
    except errors() as error:
        raise InputError(refusal(error, repository.id, repository.revision, fix)) from error
    files = [path for path in local.rglob("*") if path.is_file() and _OWN not in path.parts]
    n_bytes = sum(path.stat().st_size for path in files)
    return FetchedRepository(repository.id, commit, local, len(files), n_bytes)


def snapshot(name: str, revision: str, files: Sequence[str], field: str, fix: str) -> Path:
    """The folder in the hub's cache with some files of a model; missing ones are downloaded.

    Raises:
        InputError: the hub does not give it; the message names the field, and `fix`.
    """
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HFValidationError

    try:
        return Path(snapshot_download(name, revision=revision, allow_patterns=list(files)))
    except HFValidationError as error:
        raise InputError(
            f"{field}={name} is neither a folder nor an id of the hub: {error}"
        ) from error
    except errors() as error:
        raise InputError(refusal(error, name, revision, fix)) from error


def _download(repository: Repository, say: Say) -> tuple[str, Path]:
    """The commit and the folder of a repository, after missing files were downloaded."""
    from huggingface_hub import HfApi, snapshot_download

    name, folder = repository.id, repository.folder
    args: dict[str, Any] = {"repo_type": repository.kind, "revision": repository.revision}
    info: Any = _retry(lambda: HfApi().repo_info(name, **args), say)
    is_safe = any(file.rfilename.endswith(".safetensors") for file in info.siblings or ())
    args |= {"local_dir": folder, "ignore_patterns": _OTHER_WEIGHTS if is_safe else None}
    local = Path(_retry(lambda: snapshot_download(name, **args), say))
    return str(info.sha) if folder else local.name, local


def refusal(error: Exception, name: str, revision: str, fix: str) -> str:
    """One sentence: why the hub did not give a repository, and the fix."""
    from huggingface_hub import errors as refusals

    cause = _find_hub_error(error)
    status = _status_code(cause)
    if isinstance(cause, refusals.GatedRepoError):
        return (
            f"{name} is gated: ask for access on its page of the hub, then set HF_TOKEN to a token "
            "of that account."
        )
    if isinstance(cause, refusals.RevisionNotFoundError):
        return f"{name} has no revision {revision}; give a branch, a tag or a commit that it has."
    if isinstance(cause, refusals.RepositoryNotFoundError):
        return f"the hub has no {name}, or HF_TOKEN may not see it; check the id and the token."
    if status in (401, 403):
        return (
            f"the hub refuses HF_TOKEN for {name} (HTTP {status}); check the token and its rights."
        )
    if status == 429:
        return (
            f"the hub limits requests, and did not give {name} in {_TRIES} tries; "
            "wait some minutes and run it again: finished files are kept."
        )
    return f"the hub did not give {name} at {revision} ({reason(error)}); {fix}."


def is_silent(error: Exception) -> bool:
    """Whether the hub did not answer at all."""
    return _status_code(_find_hub_error(error)) is None


def _retry(call: Callable[[], T], say: Say) -> T:
    """The result of a call that is repeated after a rate limit.

    It waits as long as the hub says, or twice as long each time.
    """
    for number in range(1, _TRIES + 1):
        try:
            return call()
        except errors() as error:
            cause: Any = _find_hub_error(error)
            if _status_code(cause) != 429 or number == _TRIES:
                raise
            retry_after = cause.response.headers.get("Retry-After", "")
            limit = _USED_UP.search(cause.response.headers.get("RateLimit", ""))
            wait_s = retry_after if retry_after.isdigit() else limit[1] if limit else 2**number
            wait_s = min(float(wait_s), _LONGEST_WAIT_S)
            say(f"the hub limits requests: waiting {wait_s:g} s ({number}/{_TRIES})")
            time.sleep(wait_s)
    raise AssertionError("the last try returns or raises")


def _find_hub_error(error: BaseException) -> BaseException:
    """The hub's refusal, where the client reports it as a file that is not in the cache."""
    current: BaseException | None = error
    while current is not None and _status_code(current) is None:
        current = current.__cause__
    return current or error


def _status_code(error: BaseException) -> int | None:
    status: int | None = getattr(getattr(error, "response", None), "status_code", None)
    return status


def _drop_corrupt(repository: Repository, commit: str, local: Path, say: Say) -> list[str]:
    """Remove the files that differ from the hub's checksums; returns their names."""
    from huggingface_hub import HfApi

    name, kind, folder = repository.id, repository.kind, repository.folder
    args: dict[str, Any] = {"repo_type": kind, "revision": commit, "local_dir": folder}
    report = _retry(lambda: HfApi().verify_repo_checksums(name, **args), say)
    for mismatch in report.mismatches:
        path, algorithm = mismatch["path"], mismatch["algorithm"]
        actual, expected = mismatch["actual"][:12], mismatch["expected"][:12]
        say(
            f"{name}: {path} is corrupt ({algorithm} {actual}, not {expected}); it is fetched again"
        )
        (local / path).resolve().unlink(missing_ok=True)  # in the cache, the blob of this name
        (local / path).unlink(missing_ok=True)
    return [mismatch["path"] for mismatch in report.mismatches]


def own_files(model_id: str, commit: str) -> dict[str, Path]:
    """The files of a cached snapshot that are not the hub's, by their names in it.

    A file of the hub links to a blob that is named after its content: by the SHA-256 where it is
    large, else by git's SHA-1. Without links all files are own; without a snapshot there are none.

    Raises:
        InputError: a blob does not have the content of its name.
    """
    from huggingface_hub import constants
    from huggingface_hub.file_download import repo_folder_name
    from huggingface_hub.utils.sha import git_hash

    repository = repo_folder_name(repo_id=model_id, repo_type="model")
    folder = Path(constants.HF_HUB_CACHE, repository, "snapshots", commit)
    files = digests.list_files(folder) if folder.is_dir() else {}
    blobs = {name: path.resolve() for name, path in files.items() if path.is_symlink()}
    large = {name: path for name, path in blobs.items() if _SHA256.fullmatch(path.name)}
    small = {name: path for name, path in blobs.items() if _GIT.fullmatch(path.name)}
    actual = digests.digest_each(large)
    actual |= {name: git_hash(path.read_bytes()) for name, path in small.items()}
    for name, digest in actual.items():
        if digest != blobs[name].name:
            raise InputError(
                f"{files[name]} differs from the hub's file of {model_id}; remove {blobs[name]}, "
                "then fetch the model again with `factsweep prefetch model=…`."
            )
    return {name: path for name, path in files.items() if name not in actual}
