"""An estimate of a setting, and its control: an earlier run that was asked all of its prompts."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import NamedTuple

import polars as pl

from factsweep.operators.errors import InputError
from factsweep.pipeline.config.run import Run
from factsweep.pipeline.estimates.answers import Earlier, Estimates, estimated, unanswered
from factsweep.pipeline.estimates.repeats import answered_again, others
from factsweep.pipeline.execution.asked import names
from factsweep.pipeline.execution.plan import Branch, Plan
from factsweep.pipeline.machine.logs import LOG
from factsweep.pipeline.results import past, record
from factsweep.pipeline.results.pairs import setting_of
from factsweep.pipeline.results.past import PastBranch
from factsweep.pipeline.stages.match import Match
from factsweep.pipeline.storage.artifact import Artifact
from factsweep.pipeline.storage.stores.store import Store


class Named(NamedTuple):
    """The runs that an estimate names, for each setting by title: its control, those beside it."""

    control: Mapping[str, Earlier]
    beside: Mapping[str, Sequence[PastBranch]]


def named(plan: Plan) -> Named:
    """The runs that `control=` and `beside=` name.

    Raises:
        InputError: there is no such run, or it says nothing of the plan's prompts.
    """
    return Named(controls(plan), others(plan))


def controls(plan: Plan) -> dict[str, Earlier]:
    """The control of each setting of a plan, by title; none where `control=` is not given.

    Raises:
        InputError: there is no such run, or it was asked other prompts or none of a setting.
    """
    run = plan.run
    if run.control is None:
        return {}
    found = setting_of(run.control, partial(_full, run))
    return {each.title: Earlier(run.control, _same(run, each, found)) for each in plan.branches}


def estimated_setting(
    run: Run, branch: Branch, named: Named, chosen: Artifact | None = None
) -> Estimates:
    """What a setting's answers to the prompts of a budget say, with the runs that it names.

    `branch` is one of a plan that a budget samples; `chosen` are some of its prompts, null: all.

    Raises:
        DecodingError: no prompt has an answer.
        InputError: the control was asked other prompts.
    """
    match, asked = branch.match, chosen or branch.chosen
    assert isinstance(match, Match)
    assert asked is not None
    earlier = named.control.get(branch.title)
    if earlier is not None:
        _check_prompts(earlier, branch.prompts)
    whose = names(run, branch)
    failed = unanswered(branch.prompts, branch.admitted, branch.answers)
    again = list(answered_again(branch, named.beside[branch.title]))
    return estimated(
        match, asked, whose, failed, of=run, setting=branch.setting, control=earlier, beside=again
    )


def _check_prompts(earlier: Earlier, prompts: Artifact) -> None:
    """Refuse a run of other prompts."""
    theirs = earlier.branch.artifacts["prompts"]
    if theirs.folder == prompts.folder:
        return
    for shard in prompts.shards("ranked"):
        if not (theirs.has("ranked", shard) and _ids(theirs, shard) == _ids(prompts, shard)):
            raise _other(earlier.name, earlier.branch.setting)


def _full(run: Run, name: str) -> Mapping[str, PastBranch]:
    """The settings of a run by title, if it was asked all of its prompts."""
    store = Store(f"{run.results.rstrip('/')}/{name}")
    if not store.exists(record.NAME) and store.exists(record.ESTIMATES[0]):
        raise InputError(
            f"control={run.control}: {store.where()} has estimates alone, and a control has "
            "answers to all prompts; run it without budget=, or name another."
        )
    return past.by_title(run.results, name)


def _same(run: Run, branch: Branch, earlier: Mapping[str, PastBranch]) -> PastBranch:
    """The setting that asked what a setting asks; else the one of its name, or the only one."""
    for each in earlier.values():
        if each.artifacts["prompts"].folder == branch.prompts.folder:
            return each
    only = next(iter(earlier.values())) if len(earlier) == 1 else None
    found = earlier.get(branch.title, only)
    if found is None or found.artifacts["facts"].folder != branch.facts.folder:
        raise _other(str(run.control), branch.title)
    return found


def _other(control: str, setting: str) -> InputError:
    return InputError(
        f"control={control} was asked other prompts than {setting} asks now (other facts, "
        "templates or names), so it says nothing of these; name a run of the same, or leave it out."
    )


def _ids(prompts: Artifact, shard: str) -> set[str]:
    return set(prompts.read("ranked", shard)["prompt_id"])


def say_missing(earlier: Earlier) -> None:
    """Say how many prompts a control has not answered, if there are any."""
    measure = earlier.branch.how.measure
    metrics = earlier.branch.metrics.read_all("metrics")
    row = metrics.filter(pl.col("slice").is_null(), metric=measure.main_metric)
    n, failed = row.select("n", "n_failed").row(0)
    if failed:
        LOG.warning(
            "control=%s has no answer to %s of %s prompts; facts whose prompts it has not all "
            "answered are estimated without it.",
            earlier.name,
            f"{failed:,}",
            f"{n + failed:,}",
        )
