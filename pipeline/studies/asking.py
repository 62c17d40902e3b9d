"""Asking the runs of a study: the ends of the axis first, then between; what fails is named."""

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from factsweep.operators.errors import FactsweepError, StoppedError
from factsweep.pipeline.config.run import Run
from factsweep.pipeline.estimates.estimate import estimate
from factsweep.pipeline.execution.plan import asking
from factsweep.pipeline.results import past, record
from factsweep.pipeline.run import run as compute
from factsweep.pipeline.score import score
from factsweep.pipeline.storage.stores.store import Store
from factsweep.pipeline.studies.study import Member, Study

_LOG = logging.getLogger("factsweep")


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
    failed = []
    for number, each in enumerate(_ordered(study), 1):
        _LOG.info("run %d of %d: %s", number, len(study.members), each.run.name)
        try:
            _measure(study, each)
        except StoppedError:
            raise
        except FactsweepError as error:
            _LOG.error("%s: %s The study goes on without it.", each.label, error)
            failed.append(Failed(each.label, error))
    return failed


def complete(run: Run) -> bool:
    """Whether a run has answers to all of its prompts, and results."""
    return Store(run.results).exists(f"{run.name}/{record.NAME}")


def answered(run: Run) -> bool:
    """Whether a run has results, of all of its prompts or of a part."""
    return past.is_done(run.results, run.name)


def _measure(study: Study, member: Member) -> None:
    run = member.run
    if run.budget is None or (member in _full(study) and run.answers is None):
        whole = replace(run, budget=None, control=None, target=None)
        (score if run.answers else compute)(whole)
    elif not complete(run):  # an estimate adds nothing to a full run
        estimate(replace(run, control=run.control or _control(study, member)))


def _control(study: Study, member: Member) -> str | None:
    """The nearest run with answers to all of the same prompts; null: there is none."""
    others = [each for each in study.members if each is not member and complete(each.run)]
    for each in sorted(others, key=lambda other: abs(other.at - member.at)):
        if _prompts(each.run) == _prompts(member.run):
            return each.run.name
    return None


def _prompts(run: Run) -> set[str]:
    """The artifacts of a run's prompts, which need no model."""
    return {asking(run, setting)[-1].artifact.folder for setting in run.settings}


def _ordered(study: Study) -> list[Member]:
    """Those that are asked in full, then the others, each from coarse steps to fine ones."""
    whole = _full(study) if study.members[0].run.budget is not None else ()
    rest = [each for each in coarse_first(study.members) if each not in whole]
    return [*whole, *rest]


def _full(study: Study) -> Sequence[Member]:
    """The runs that are asked all prompts though a budget is given, spread over the axis."""
    return list(coarse_first(study.members))[: study.plan.full]


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
