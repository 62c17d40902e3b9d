"""Computes the runs of a study one after the other: the ends of the axis first, then between."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from factsweep.operators.errors import FactsweepError, StoppedError
from factsweep.pipeline.config.run import Run
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
    failed = []
    for index, (member, run) in enumerate(zip(members, runs, strict=True)):
        LOG.info("run %d of %d: %s", index + 1, len(members), run.name)
        try:
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
