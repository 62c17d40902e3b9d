"""Computes the runs of a study one after the other: the ends of the axis first, then between."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial

from factsweep.operators.errors import FactsweepError, StoppedError
from factsweep.pipeline.config.model import Model
from factsweep.pipeline.config.run import Run
from factsweep.pipeline.machine.logs import LOG
from factsweep.pipeline.runs.estimate import estimate, is_answered
from factsweep.pipeline.runs.run import run as compute
from factsweep.pipeline.runs.run import score
from factsweep.pipeline.stages.plan import Plan, asked, planned
from factsweep.pipeline.studies.study import Member, Study
from factsweep.pipeline.studies.weights import Shelf


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
    return _ask_members(study, _ordered(study))


def _ask_members(study: Study, members: Sequence[Member]) -> list[Failed]:
    """Compute what is missing of each run, one after the other; returns those that failed."""
    failed = []
    weights_gib = study.members[0].run.cluster.weights_gib
    shelf = None if weights_gib is None else Shelf(weights_gib)
    for index, member in enumerate(members):
        LOG.info("run %d of %d: %s", index + 1, len(members), member.run.name)
        bring = None if shelf is None else partial(_bring, shelf, study, members[index:][:2])
        if (failure := _try_to_measure(study, member, bring)) is not None:
            failed.append(failure)
    return failed


def _bring(shelf: Shelf, study: Study, members: Sequence[Member]) -> None:
    """Have the weights of a member there, and those of the one that follows come."""
    shelf.bring(*[_weights(study, each) for each in members])


def _try_to_measure(
    study: Study, member: Member, before: Callable[[], None] | None = None
) -> Failed | None:
    """Compute what is missing of a run, when `before` is done; returns whether it failed."""
    try:
        if before is not None:
            before()
        _measure(study, member)
    except StoppedError:
        raise
    except FactsweepError as error:
        LOG.error("%s: %s The study goes on without it.", member.label, error)
        return Failed(member.label, error)
    return None


def _measure(study: Study, member: Member) -> None:
    run = _run(study, member)
    if run.budget is None:
        if run.answers is not None:
            score(run)
        else:
            _compute(run, _of_one_base(study, member))
    elif not member.is_complete:  # an estimate adds nothing to a full run
        estimate(replace(run, control=run.control or _control(study, member)))


def _run(study: Study, member: Member) -> Run:
    """The run that asks all prompts, or those of its budget."""
    run = member.run
    if run.budget is None or (member in _full(study) and run.answers is None):
        return _whole(run)
    return run


def _weights(study: Study, member: Member) -> Model | None:
    """The model of the hub that is to be asked; null: there is none, or all is answered."""
    run = _run(study, member)
    if run.answers is not None or run.model.source != "hub":
        return None
    with suppress(FactsweepError):  # its run will say so
        return None if is_answered(asked(run)) else run.model
    return None


def _whole(run: Run) -> Run:
    return replace(run, budget=None, control=None, target=None)


def _of_one_base(study: Study, member: Member) -> list[Run]:
    """The runs that have no results and another adapter, and nothing else of their own.

    Those with a budget choose what they ask while they go on, and have engines of their own; so has
    a run without an adapter.
    """
    if member.run.model.adapter is None:
        return []
    full = study.members if member.run.budget is None else _full(study)
    base = _base(member.run)
    alike = (each for each in full if each is not member and each.run.model.adapter)
    # The store is asked last, and only about these.
    return [_whole(each.run) for each in alike if _base(each.run) == base and not each.is_complete]


def _base(run: Run) -> Run:
    """What a run has in common with those of other adapters."""
    return replace(_whole(run), name="", model=replace(run.model, name="", adapter=None))


def _compute(run: Run, others: Sequence[Run]) -> None:
    """Compute a run and have its engines answer others; where that fails, the run is alone."""
    try:
        compute(run, _missing(others))
    except StoppedError:
        raise
    except FactsweepError as error:
        if not others:
            raise
        LOG.warning("%s: %s It is asked without the other adapters.", run.name, error)
        compute(run)


def _missing(runs: Sequence[Run]) -> Iterator[Plan]:
    """The plans that lack something; what is wrong with another is said when it is asked itself."""
    for each in runs:
        with suppress(FactsweepError):
            if not (plan := planned(each)).is_complete():
                yield plan


def _control(study: Study, member: Member) -> str | None:
    """The nearest run with answers to all of the same prompts; null: there is none."""
    others = [each for each in study.members if each is not member and each.is_complete]
    for each in sorted(others, key=lambda other: abs(other.at - member.at)):
        if each.prompts == member.prompts:
            return each.run.name
    return None


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
