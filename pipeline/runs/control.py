"""An estimate of a setting, with its control: an earlier run that was asked all of its prompts."""

from collections.abc import Mapping
from functools import partial

import polars as pl

from factsweep.operators.errors import DecodingError, InputError
from factsweep.operators.methods.method import Part
from factsweep.operators.metrics.shared.blas import single_threaded_blas
from factsweep.operators.schemas import empty
from factsweep.pipeline.config.run import Run
from factsweep.pipeline.machine.logs import LOG
from factsweep.pipeline.results import past, record
from factsweep.pipeline.results.estimated_answers import matched_by, unanswered
from factsweep.pipeline.results.pairs import setting_of
from factsweep.pipeline.results.past import PastBranch
from factsweep.pipeline.stages import facts as facts_stage
from factsweep.pipeline.stages.match import Match
from factsweep.pipeline.stages.plan import Branch, Plan
from factsweep.pipeline.storage.artifact import Artifact
from factsweep.pipeline.storage.store import Store, below

Controls = Mapping[str, PastBranch]  # by the title of the setting


def controls_of(plan: Plan) -> Controls:
    """The settings of the run that `control=` names; empty without one.

    Raises:
        InputError: there is no such run, or it was asked other prompts or none of a setting.
    """
    run = plan.run
    if run.control is None:
        return {}
    earlier = setting_of(run.control, partial(_full, run))
    return {branch.title: _same(run, branch, earlier) for branch in plan.branches}


@single_threaded_blas()
def estimated_setting(run: Run, branch: Branch, controls: Controls) -> pl.DataFrame:
    """What a setting's answers to the prompts of a budget say, with its control.

    `branch` is one of a plan that a budget samples.

    Raises:
        DecodingError: no prompt has an answer.
        InputError: the control was asked other prompts.
    """
    asked, sampling = branch.chosen, run.method.measure.sampling
    assert asked is not None, "a budget chooses"
    assert sampling is not None, "its benchmark is one of which parts are asked"
    control = controls.get(branch.title)
    if control is not None:
        _check_prompts(run, control, branch.prompts)
    failed = unanswered(branch.prompts, branch.admitted, branch.answers)
    facts, name = facts_stage.load(branch.facts), run.benchmark.method
    said = branch.facts, branch.prompts, branch.answers
    match = Match(name, *said, (), run.matching, branch.weights, n_sampled=0)
    rows = matched_by(match.matcher(facts), name, branch.answers, asked)
    if rows.is_empty():
        raise DecodingError(
            "no prompt of the budget has an answer, so there is nothing to measure."
        )
    pairs = _answerable(asked.read("crossed", "all"), failed)
    earlier = None if control is None else control.matched_answers
    part = Part(facts, branch.setting, rows, pairs, run.metrics, run.seed, earlier)
    found = sampling.estimate(part)
    folder = None if control is None else control.artifacts["matched"].folder
    texts = {"control": folder, **_names(run, branch)}
    named = {name: pl.lit(text, pl.String) for name, text in texts.items()}
    missing = {name: text for name, text in named.items() if name not in found.columns}
    return found.with_columns(**missing).select(empty("estimates").columns)


def _names(run: Run, branch: Branch) -> dict[str, str | None]:
    """The columns of tables that say whose the estimates of a setting are."""
    return {
        "model": run.model.name,
        "benchmark": run.benchmark.name,
        "setting": branch.setting.name,
        "variant": branch.setting.variant,
    }


def _answerable(pairs: pl.DataFrame, failed: pl.DataFrame) -> pl.DataFrame:
    """The pairs with how many of their prompts have no answer; those that have any."""
    rows = pairs.join(failed, on="pair_id", how="left", maintain_order="left")
    rows = rows.with_columns(pl.col("n_failed").fill_null(0))
    return rows.filter(pl.col("n_failed") < pl.col("n_names") * pl.col("n_templates"))


def _check_prompts(run: Run, earlier: PastBranch, prompts: Artifact) -> None:
    theirs = earlier.artifacts["prompts"]
    if theirs.folder == prompts.folder:
        return
    for shard in prompts.shards("ranked"):
        if not (theirs.has("ranked", shard) and _ids(theirs, shard) == _ids(prompts, shard)):
            raise _other(run, earlier.setting)


def _full(run: Run, name: str) -> Mapping[str, PastBranch]:
    """The settings of a run by title, if it was asked all of its prompts."""
    store = Store(below(run.results, name))
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
        raise _other(run, branch.title)
    return found


def _other(run: Run, setting: str) -> InputError:
    return InputError(
        f"control={run.control} was asked other prompts than {setting} asks now (other facts, "
        "templates or names), so it says nothing of these; name a run of the same, or leave it out."
    )


def _ids(prompts: Artifact, shard: str) -> set[str]:
    return set(prompts.read("ranked", shard)["prompt_id"])


def say_missing(run: Run, earlier: PastBranch) -> None:
    """Say how many prompts a control has not answered, if there are any."""
    metrics, main = earlier.metrics.read_all("metrics"), earlier.how.measure.main_metric
    row = metrics.filter(pl.col("slice").is_null(), metric=main)
    n, failed = row.select("n", "n_failed").row(0)
    if failed:
        LOG.warning(
            "control=%s has no answer to %s of %s prompts; facts whose prompts it has not all "
            "answered are estimated without it.",
            run.control,
            f"{failed:,}",
            f"{n + failed:,}",
        )
