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
_OWN = ".cache"  # the client's notes on a folder that it filled
# The same weights in other formats, which no engine here loads where there are safetensors.
_OTHER_WEIGHTS = ["*.bin", "*.pt", "*.pth", "*.h5", "*.msgpack", "*.onnx*", "*.gguf", "original/*"]

_SHA256, _GIT = re.compile(r"[0-9a-f]{64}"), re.compile(r"[0-9a-f]{40}")


@dataclass(frozen=True)
class Repository:
    """What is requested; `folder` is where its files go, null: into the hub's cache."""

    id: str
    revision: str
    kind: Literal["model", "dataset"]
    folder: Path | None = None


@dataclass(frozen=True)
class Fetched:
    """A repository at a commit, and the folder of its files."""

    id: str
    commit: str
    folder: Path
    n_files: int
    n_bytes: int


def errors() -> tuple[type[Exception], ...]:
    """What the hub's client raises where there is no network, or where the hub refuses."""
    from httpx2 import HTTPError

    return HTTPError, OSError


def fetch(asked: Repository, say: Say, fix: str = _FIX) -> Fetched:
    """Bring a repository into the hub's cache, or into a folder, and check every file.

    A branch is kept as the commit that it means now, by which it is found without a network. `fix`
    is what to do where the hub cannot be asked.

    Raises:
        InputError: the hub does not give it, or a file is corrupt twice; it says what to do.
    """
    from huggingface_hub.errors import HFValidationError

    try:
        commit, local = _download(asked, say)
        if _drop_corrupt(asked, commit, local, say):
            _download(asked, say)
            if wrong := _drop_corrupt(asked, commit, local, say):
                raise InputError(
                    f"{asked.id} at {commit}: {', '.join(wrong)} came corrupt twice; check the "
                    "disk and the network, then run it again: what is right stays."
                )
    except HFValidationError as error:
        raise InputError(f"{asked.id} is no id of the hub: {error}") from error
    except errors() as error:
        raise InputError(refusal(error, asked.id, asked.revision, fix)) from error
    files = [path for path in local.rglob("*") if path.is_file() and _OWN not in path.parts]
    return Fetched(asked.id, commit, local, len(files), sum(path.stat().st_size for path in files))


def snapshot(name: str, revision: str, files: Sequence[str], field: str, fix: str) -> Path:
    """The folder in the hub's cache with some files of a model, fetched where they are not there.

    Raises:
        InputError: the hub does not give it; the message names the field, and what to do.
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


def _download(asked: Repository, say: Say) -> tuple[str, Path]:
    """The commit and the folder of a repository, all that was missing brought."""
    from huggingface_hub import HfApi, snapshot_download

    api = HfApi()
    given: dict[str, Any] = {"repo_type": asked.kind, "revision": asked.revision}
    info: Any = _asked(lambda: api.repo_info(asked.id, **given), say)
    safe = any(each.rfilename.endswith(".safetensors") for each in info.siblings or ())
    given |= {"local_dir": asked.folder, "ignore_patterns": _OTHER_WEIGHTS if safe else None}
    local = Path(_asked(lambda: snapshot_download(asked.id, **given), say))
    return str(info.sha) if asked.folder else local.name, local


def refusal(error: Exception, name: str, revision: str, fix: str) -> str:
    """Why the hub did not give a repository, and what to do, in one sentence."""
    from huggingface_hub.errors import (
        GatedRepoError,
        RepositoryNotFoundError,
        RevisionNotFoundError,
    )

    cause = _cause(error)
    status = _status(cause)
    if isinstance(cause, GatedRepoError):
        return (
            f"{name} is gated: ask for access on its page of the hub, then set HF_TOKEN to a token "
            "of that account."
        )
    if isinstance(cause, RevisionNotFoundError):
        return f"{name} has no revision {revision}; give a branch, a tag or a commit that it has."
    if isinstance(cause, RepositoryNotFoundError):
        return f"the hub has no {name}, or HF_TOKEN may not see it; check the id and the token."
    if status in (401, 403):
        return (
            f"the hub refuses HF_TOKEN for {name} (HTTP {status}); check the token and its rights."
        )
    if status == 429:
        return (
            f"the hub limits how often it is asked, and did not give {name} in {_TRIES} tries; "
            "wait some minutes and run it again: finished files are kept."
        )
    return f"the hub did not give {name} at {revision} ({reason(error)}); {fix}."


def _asked(call: Callable[[], T], say: Say) -> T:
    """What a call gives, after as many tries as a rate limit takes."""
    for number in range(1, _TRIES + 1):
        try:
            return call()
        except errors() as error:
            if _status(_cause(error)) != 429 or number == _TRIES:
                raise
            wait_s = _wait_s(_cause(error), number)
            say(f"the hub limits how often it is asked: waiting {wait_s:g} s ({number}/{_TRIES})")
            time.sleep(wait_s)
    raise AssertionError("the last try returns or raises")


def _wait_s(error: BaseException, number: int) -> float:
    """As long as the hub says, or twice as long each time."""
    headers = error.response.headers  # type: ignore[attr-defined]
    said = headers.get("Retry-After", "")
    limit = _USED_UP.search(headers.get("RateLimit", ""))
    seconds = said if said.isdigit() else limit[1] if limit else 2**number
    return min(float(seconds), _LONGEST_WAIT_S)


def _cause(error: BaseException) -> BaseException:
    """The hub's refusal, where the client reports it as a file that is not in the cache."""
    seen: BaseException | None = error
    while seen is not None and _status(seen) is None:
        seen = seen.__cause__
    return seen or error


def _status(error: BaseException) -> int | None:
    status: int | None = getattr(getattr(error, "response", None), "status_code", None)
    return status


def _drop_corrupt(asked: Repository, commit: str, local: Path, say: Say) -> list[str]:
    """Remove the files that differ from the hub's checksums; returns their names."""
    from huggingface_hub import HfApi

    given: dict[str, Any] = {"repo_type": asked.kind, "revision": commit, "local_dir": asked.folder}
    checked = _asked(lambda: HfApi().verify_repo_checksums(asked.id, **given), say)
    for each in checked.mismatches:
        found, expected = (each[key][:12] for key in ("actual", "expected"))
        say(
            f"{asked.id}: {each['path']} is corrupt ({each['algorithm']} {found}, not {expected}); "
            "it is fetched again"
        )
        path = local / each["path"]
        path.resolve().unlink(missing_ok=True)  # in the cache, what this name links to, or several
        path.unlink(missing_ok=True)
    return [each["path"] for each in checked.mismatches]


def own_files(model_id: str, commit: str) -> dict[str, Path]:
    """The files of a cached snapshot of which no name tells the content, by their names in it.

    A file of a snapshot links to a blob that is named after its content: by the SHA-256 where it
    is large, else by git's SHA-1. Without links those are all files; without a snapshot, none.

    Raises:
        InputError: a file is not what its name says.
    """
    from huggingface_hub import constants
    from huggingface_hub.file_download import repo_folder_name
    from huggingface_hub.utils.sha import git_hash

    repository = repo_folder_name(repo_id=model_id, repo_type="model")
    folder = Path(constants.HF_HUB_CACHE, repository, "snapshots", commit)
    found = digests.below(folder) if folder.is_dir() else {}
    blobs = {name: path.resolve() for name, path in found.items() if path.is_symlink()}
    large = {name: path for name, path in blobs.items() if _SHA256.fullmatch(path.name)}
    small = {name: path for name, path in blobs.items() if _GIT.fullmatch(path.name)}
    told = digests.of_each(large)
    told |= {name: git_hash(path.read_bytes()) for name, path in small.items()}
    for name, digest in told.items():
        if digest != blobs[name].name:
            raise InputError(
                f"{found[name]} is not what the hub gave of {model_id}; remove {blobs[name]}, then "
                "fetch the model again with `factsweep prefetch model=…`."
            )
    return {name: path for name, path in found.items() if name not in told}
