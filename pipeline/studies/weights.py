"""Weights come and go: those of the next run are fetched while one is asked, and old ones deleted.

What a study has fetched goes, the oldest first, where cluster.weights_gib has no more room; nothing
else does: a list in the hub's cache says what studies fetched, and is written before it comes.
"""

import json
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

from factsweep.operators.errors import InputError
from factsweep.pipeline.config.model import Model
from factsweep.pipeline.inputs.hub import Missing, Repository, fetch
from factsweep.pipeline.machine.logs import LOG
from factsweep.pipeline.storage.store import Store

_WEIGHTS = (".safetensors", ".bin", ".pt", ".pth", ".gguf")  # all else is small, and stays
_LIST = "factsweep-fetched.json"


class _NoRoomError(InputError):
    """What is in use, and what is to come, are more than there may be."""


class Shelf:
    """The weights that studies have brought into the hub's cache, of so many GiB at most."""

    def __init__(self, gib: float) -> None:
        self._gib = gib
        self._thread = ThreadPoolExecutor(1)
        self._coming = dict[str, Future[None]]()

    def bring(self, model: Model | None, following: Model | None = None) -> None:
        """Wait for the weights of a model, and begin to fetch those of the one that follows.

        Null: there is none. What else is wrong with a model is left to its run to say.

        Raises:
            InputError: its weights have no room, though all else that studies fetched is deleted.
        """
        if model is not None:
            coming = self._coming.pop(_name(model), None)
            if coming is None or isinstance(coming.exception(), _NoRoomError):
                coming = self._thread.submit(self._fetch, model, None)
            if isinstance(error := coming.exception(), _NoRoomError):
                raise error
        if following is not None:
            self._coming[_name(following)] = self._thread.submit(self._fetch, following, model)

    def _fetch(self, model: Model, in_use: Model | None) -> None:
        def make_room(missing: Missing) -> None:
            coming = {str(path): n for path, n in missing if path.suffix in _WEIGHTS}
            self._make_room(_name(model), coming, in_use)

        fetch(Repository(model.id, model.revision, "model"), LOG.info, before=make_room)

    def _make_room(self, name: str, coming: Mapping[str, int], in_use: Model | None) -> None:
        from huggingface_hub import constants

        store = Store(constants.HF_HUB_CACHE)
        fetched = json.loads(store.get(_LIST)) if store.exists(_LIST) else {}
        kept = {name, None if in_use is None else _name(in_use)}
        room = self._gib * 2**30 - sum(coming.values())
        for old in [each for each in fetched if each not in kept]:
            if _bytes(fetched, coming) > room:
                LOG.info("the weights of %s are deleted to make room for %s", old, name)
                for path in fetched.pop(old):
                    _delete(Path(path))
        if _bytes(fetched, coming) > room:
            raise _NoRoomError(
                f"cluster.weights_gib={self._gib:g} has no room for the weights of {name}, of "
                f"{sum(coming.values()) / 2**30:.2g} GiB; raise it."
            )
        fetched[name] = sorted({*fetched.pop(name, []), *coming})  # the last is the newest
        store.put(_LIST, json.dumps(fetched, indent=1).encode())


def _name(model: Model) -> str:
    return f"{model.id}@{model.revision}"


def _bytes(fetched: Mapping[str, Sequence[str]], coming: Mapping[str, int]) -> int:
    """What is there besides what is coming, of which another study may have fetched some by now."""
    paths = [Path(path) for own in fetched.values() for path in own if path not in coming]
    return sum(path.stat().st_size for path in paths if path.exists())


def _delete(path: Path) -> None:
    """Delete a file of a snapshot, and what it links to, unless another snapshot does, too."""
    content = path.resolve()
    path.unlink(missing_ok=True)
    others = (content.parent.parent / "snapshots").rglob("*")
    if not any(each.resolve() == content for each in others):
        content.unlink(missing_ok=True)
