"""Asking the runs of a study: side by side on GPUs, else the ends of the axis first, then between.

What fails is named.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial

from factsweep.operators.errors import FactsweepError, StoppedError
from factsweep.pipeline.config.model import Model
from factsweep.pipeline.config.run import Run
from factsweep.pipeline.costs.rates import paid_for
from factsweep.pipeline.estimates.estimate import as_budget, estimate, is_answered
from factsweep.pipeline.execution.asked import asked
from factsweep.pipeline.execution.plan import Plan, planned
from factsweep.pipeline.machine.logs import LOG
from factsweep.pipeline.run import run as compute
from factsweep.pipeline.score import score
from factsweep.pipeline.studies import effort, ranking, side_by_side
from factsweep.pipeline.studies.packing import Job
from factsweep.pipeline.studies.side_by_side import Errors, Piece
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
    answers to all of them as its control. Those that `full` names are asked all, and first. With
    `until`, those whose rank is not decided are asked more, until all are.

    Raises:
        StoppedError: the user asked to stop; the next time resumes.
    """
    failed = _asked(study, _ordered(study))
    for share in ranking.looks(study)[1:]:
        lost = {each.label for each in failed}
        left = [each for each in ranking.undecided(study) if each.label not in lost]
        if not left:
            break
        budget = as_budget(share)
        LOG.info("asked %s of the prompts: %s", budget, ", ".join(each.label for each in left))
        more = [replace(each, run=replace(each.run, budget=budget)) for each in left]
        failed += _asked(study, more)
    return failed


def _asked(study: Study, members: Sequence[Member]) -> list[Failed]:
    """Compute what is missing of each; returns those that failed.

    Where two have room on the GPUs of the cluster at the same time they go on side by side; those
    that are asked all prompts end before the others begin, whose controls they are.
    """
    if not _may_share(study):
        return _one_by_one(study, members, members)
    failed = []
    whole = [each for each in members if _run(study, each).budget is None]
    for part in (whole, [each for each in members if each not in whole]):
        pieces = _pieces(study, part)
        errors = side_by_side.measured(pieces) if len(pieces) > 1 else None
        done = [] if errors is None else [run.name for each in pieces for run in each.runs]
        labels = {each.run.name: each.label for each in part}
        failed += [Failed(labels[name], error) for name, error in (errors or {}).items()]
        failed += _one_by_one(study, members, [e for e in part if e.run.name not in done])
    return failed


def _may_share(study: Study) -> bool:
    """Whether some runs hold GPUs of one cluster that is there; weights that go are for one."""
    clusters = [each.run.cluster for each in study.members]
    return (
        clusters[0].weights_gib is None
        and len({each.address for each in clusters}) == 1
        and any(side_by_side.can_share(each.run) for each in study.members)
    )


def _pieces(study: Study, members: Sequence[Member]) -> list[Piece]:
    """What has prompts to ask on GPUs, with the runs together that share engines.

    What is wrong with a run is left to itself to say.
    """
    plans, of = dict[str, list[Plan]](), dict[str, list[Member]]()
    first = dict[Run, str]()  # by base: the run whose engines the others share
    for each in members:
        run = _run(study, each)
        if (plan := _lacking(run)) is not None:
            is_adapted = run.model.adapter is not None and run.budget is None
            name = first.setdefault(_base(run), run.name) if is_adapted else run.name
            plans.setdefault(name, []).append(plan)
            of.setdefault(name, []).append(each)
    jobs = list[Job]()
    with suppress(FactsweepError):
        jobs = effort.jobs(plans)
    return [
        Piece(job, tuple(each.run for each in of[job.name]), partial(_there, study, of[job.name]))
        for job in jobs
    ]


def _lacking(run: Run) -> Plan | None:
    """The plan of a run that has prompts to ask on GPUs; null: it has none, or is wrong."""
    if run.answers is not None or not side_by_side.can_share(run):
        return None
    with suppress(FactsweepError):
        plan = asked(paid_for(run))
        return None if is_answered(plan) else plan
    return None


def _there(study: Study, members: Sequence[Member]) -> Errors:
    """Measure some runs in the process of a driver; returns what failed."""
    failed = [(each.run.name, _tried(study, each)) for each in members]
    return {name: each.error for name, each in failed if each is not None}


def _one_by_one(study: Study, members: Sequence[Member], part: Sequence[Member]) -> list[Failed]:
    """Compute what is missing of some members, one after the other; returns those that failed."""
    failed = []
    gib = study.members[0].run.cluster.weights_gib
    shelf = None if gib is None else Shelf(gib)
    for number, each in enumerate(members, 1):
        if each not in part:
            continue
        LOG.info("run %d of %d: %s", number, len(members), each.run.name)
        bring = None if shelf is None else partial(_bring, shelf, study, members[number - 1 :][:2])
        if (found := _tried(study, each, bring)) is not None:
            failed.append(found)
    return failed


def _bring(shelf: Shelf, study: Study, members: Sequence[Member]) -> None:
    """Have the weights of a member there, and those of the one that follows come."""
    shelf.bring(*[_weights(study, each) for each in members])


def _tried(study: Study, member: Member, before: Callable[[], None] | None = None) -> Failed | None:
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
