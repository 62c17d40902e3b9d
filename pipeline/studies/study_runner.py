"""Computes the runs of a study one after another: the ends of the axis first, then between."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from factsweep.operators.errors import FactsweepError, StoppedError
from factsweep.pipeline.machine.logs import LOG
from factsweep.pipeline.runs.estimate import estimate
from factsweep.pipeline.runs.run import run as compute
from factsweep.pipeline.runs.run import score
from factsweep.pipeline.studies.study import Member, Study


@dataclass(frozen=True)
class Failed:
    """A run that ended without results, and why."""

    label: str
    error: FactsweepError


def ask(study: Study) -> list[Failed]:
    """Compute the missing parts of each run; a run that fails ends only itself.

    A run with a budget asks a part of its prompts, with the nearest run along the axis that has
    answers to all of them as its control. The first `study.plan.full` runs are asked all prompts.

    Raises:
        StoppedError: the user asked to stop; the next time resumes.
    """
    members = list(coarse_first(study.members))
    full = members[: study.plan.full] if members[0].run.budget is not None else []
    failures = []
    for index, member in enumerate(members):
        LOG.info("run %d of %d: %s", index + 1, len(members), member.run.name)
        try:
            _measure(study, member, is_full=member in full)
        except StoppedError:
            raise
        except FactsweepError as error:
            LOG.error("%s: %s The study continues without it.", member.label, error)
            failures.append(Failed(member.label, error))
    return failures


def _measure(study: Study, member: Member, *, is_full: bool) -> None:
    run = member.run
    if run.budget is None or (is_full and run.answers is None):
        full_run = replace(run, budget=None, control=None, target=None)
        (compute if run.answers is None else score)(full_run)
    elif not member.is_complete:  # an estimate adds nothing to a full run
        estimate(replace(run, control=run.control or _control(study, member)))


def _control(study: Study, member: Member) -> str | None:
    """The nearest run with answers to all of the same prompts, or None."""
    candidates = [other for other in study.members if other is not member and other.is_complete]
    for other in sorted(candidates, key=lambda other: abs(other.at - member.at)):
        if other.prompts == member.prompts:
            return other.run.name
    return None


def coarse_first(members: Sequence[Member]) -> Iterator[Member]:
    """The last, the first, and then the middle of the widest gap that is left.

    An interrupted study has the whole curve, only coarser.

    >>> [member for member in coarse_first([0, 1, 2, 3, 4])]  # type: ignore[list-item]
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
