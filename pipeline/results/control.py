"""control: an earlier run's answers to all prompts, by which an estimate of them is narrowed."""

import logging
from dataclasses import dataclass

import polars as pl

from operators.errors import InputError
from operators.methods import METHODS
from pipeline.config.settings import Run
from pipeline.config.suggestion import suggestion
from pipeline.execution.plan import Branch, Plan
from pipeline.results import past, record
from pipeline.results.past import PastBranch
from pipeline.storage.artifact import Artifact
from pipeline.storage.store import Store

_LOG = logging.getLogger("factsweep")


@dataclass(frozen=True)
class Earlier:
    """A setting of an earlier run, as the control of one of a run; `name` as in `control=`."""

    name: str
    branch: PastBranch

    @property
    def matched(self) -> Artifact:
        """Its matched answers."""
        return self.branch.artifacts["matched"]

    def answers(self, relation_id: str) -> pl.DataFrame:
        """Its matched answers to all prompts of a relation."""
        return self.matched.read(METHODS[self.branch.method].measure.answers, relation_id)

    def check_prompts(self, prompts: Artifact) -> None:
        """Refuse a run of other prompts.

        Raises:
            InputError: it was asked others than these.
        """
        theirs = self.branch.artifacts["prompts"]
        if theirs.folder == prompts.folder:
            return
        for shard in prompts.shards("ranked"):
            if not (theirs.has("ranked", shard) and _ids(theirs, shard) == _ids(prompts, shard)):
                raise _other(self.name, self.branch.setting)


def controls(plan: Plan) -> dict[str, Earlier]:
    """The control of each setting of a plan, by title; none where `control=` is not given.

    Raises:
        InputError: there is no such run, or it was asked other prompts or none of a setting.
    """
    run = plan.run
    if run.control is None:
        return {}
    _check_method(run)
    name, _, title = run.control.partition(":")
    found = {each.setting: each for each in past.branches(run.results, [_full(run, name)])}
    if title and title not in found:
        meant = suggestion(title, found)
        raise InputError(f"{name} has no setting {title}; it has {', '.join(found)}.{meant}")
    if title:
        found = {title: found[title]}
    of = {each.title: Earlier(run.control, _same(run, each, found)) for each in plan.branches}
    for each in of.values():
        _say_missing(each)
    return of


def _check_method(run: Run) -> None:
    sampling = run.method.measure.sampling
    if sampling is None or not sampling.controlled:
        raise InputError(
            f"control={run.control} narrows estimates of decoders on MyriadLAMA, not of "
            f"benchmark={run.benchmark.name}; leave it out."
        )


def _full(run: Run, name: str) -> str:
    """The name of a run, if it was asked all of its prompts."""
    store = Store(f"{run.results.rstrip('/')}/{name}")
    if not store.exists(record.NAME) and store.exists(record.ESTIMATES[0]):
        raise InputError(
            f"control={run.control}: {store.where()} has estimates alone, and a control has "
            "answers to all prompts; run it without budget=, or name another."
        )
    return name


def _same(run: Run, branch: Branch, earlier: dict[str, PastBranch]) -> PastBranch:
    """The setting that asked what a setting asks; else the one that is called like it, or the only.

    Raises:
        InputError: there is none, or it was asked about other facts.
    """
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


def _say_missing(earlier: Earlier) -> None:
    measure = METHODS[earlier.branch.method].measure
    metrics = earlier.branch.metrics.read_all("metrics")
    row = metrics.filter(pl.col("slice").is_null(), metric=measure.main_metric)
    n, failed = row.select("n", "n_failed").row(0)
    if failed:
        _LOG.warning(
            "control=%s has no answer to %s of %s prompts; facts whose prompts it has not all "
            "answered are estimated without it.",
            earlier.name,
            f"{failed:,}",
            f"{n + failed:,}",
        )
