"""Computes the runs of a study one after the other: the ends of the axis first, then between.

With cluster.weights_gib weights come and go: those of the next run are fetched while one is asked.
What a study has fetched goes, the oldest first, where there is no more room; nothing else does: a
list in the hub's cache says what studies fetched, and is written before it comes.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from factsweep.operators.errors import FactsweepError, InputError, StoppedError
from factsweep.pipeline.config.model import Model
from factsweep.pipeline.config.run import Run
from factsweep.pipeline.inputs.hub import Missing, Repository, fetch
from factsweep.pipeline.machine.logs import LOG
from factsweep.pipeline.runs.estimate import estimate, is_answered
from factsweep.pipeline.runs.run import run as compute
from factsweep.pipeline.runs.run import score
from factsweep.pipeline.stages.plan import asked
from factsweep.pipeline.storage.store import Store
from factsweep.pipeline.studies.study import Member, Study

_WEIGHTS = (".safetensors", ".bin", ".pt", ".pth", ".gguf")  # all else is small, and stays
_LIST = "factsweep-fetched.json"


@dataclass(frozen=True)
class Failed:
    """A run that ended without results, and why."""

    label: str
    error: FactsweepError


def ask(study: Study) -> list[Failed]:
    """Compute what is missing of each run; one that fails ends nothing but itself.

    A run with a budget asks a part of its prompts, with the nearest run along the axis that has
    answers to all of them as its control. Those that `full` names are asked all, and first.

    Raises:
        StoppedError: the user asked to stop; the next time resumes.
    """
    is_budgeted = study.members[0].run.budget is not None
    whole = _full(study) if is_budgeted else []
    members = [*whole, *(each for each in coarse_first(study.members) if each not in whole)]
    runs = [_run(member, is_full=member in whole) for member in members]
    weights_gib = runs[0].cluster.weights_gib
    shelf = None if weights_gib is None else Shelf(weights_gib)
    failed = []
    for index, (member, run) in enumerate(zip(members, runs, strict=True)):
        LOG.info("run %d of %d: %s", index + 1, len(members), run.name)
        try:
            if shelf is not None:
                shelf.bring(*map(_weights, runs[index:][:2]))
            _measure(study, member, run)
        except StoppedError:
            raise
        except FactsweepError as error:
            LOG.error("%s: %s The study goes on without it.", member.label, error)
            failed.append(Failed(member.label, error))
    return failed


def _full(study: Study) -> list[Member]:
    """The runs that are asked all prompts though a budget is given, spread over the axis."""
    return list(coarse_first(study.members))[: study.plan.full]


def _run(member: Member, *, is_full: bool) -> Run:
    """The run that asks all prompts, or those of its budget."""
    run = member.run
    if run.budget is None or (is_full and run.answers is None):
        return replace(run, budget=None, control=None, target=None)
    return run


def _measure(study: Study, member: Member, run: Run) -> None:
    if run.budget is not None:
        if not member.is_complete:  # an estimate adds nothing to a full run
            estimate(replace(run, control=run.control or _control(study, member)))
    elif run.answers is not None:
        score(run)
    else:
        compute(run)


def _control(study: Study, member: Member) -> str | None:
    """The nearest run with answers to all of the same prompts; null: there is none."""
    others = [each for each in study.members if each is not member and each.is_complete]
    for each in sorted(others, key=lambda other: abs(other.at - member.at)):
        if each.prompts == member.prompts:
            return each.run.name
    return None


def _weights(run: Run) -> Model | None:
    """The model of the hub that is to be asked; null: there is none, or all is answered."""
    if run.answers is not None or run.model.source != "hub":
        return None
    with suppress(FactsweepError):  # its run will say so
        return None if is_answered(asked(run)) else run.model
    return None


def coarse_first(members: Sequence[Member]) -> Iterator[Member]:
    """The last, the first, and then what halves the widest gap that is left.

    A study that is cut short has the whole curve, only coarser.

    >>> [each for each in coarse_first([0, 1, 2, 3, 4])]  # type: ignore[list-item]
    [4, 0, 2, 1, 3]
    """
    last = len(members) - 1
    yield members[last]
    if last == 0:
        return
    yield members[0]
    gaps = [(0, last)]
    while gaps:
        low, high = gaps.pop(0)
        middle = (low + high) // 2
        if middle > low:
            yield members[middle]
            gaps += [(low, middle), (middle, high)]


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
