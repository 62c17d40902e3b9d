"""An estimate of a setting, with the runs that it names: its control, and those beside it.

A control is an earlier run that was asked all of its prompts. A run beside it has answered the same
prompts again: one of another seed or another `prompt.scope` has drawn other demonstrations; a
repetition, and the canary of a full run, have answered the same texts.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from functools import partial
from typing import NamedTuple

import polars as pl

from factsweep.operators.errors import DecodingError, InputError
from factsweep.operators.methods import METHODS
from factsweep.operators.methods.method import Beside, Part
from factsweep.pipeline.config.run import Run
from factsweep.pipeline.estimates import written
from factsweep.pipeline.estimates.answers import Estimates, matched_by, unanswered
from factsweep.pipeline.execution.asked import names
from factsweep.pipeline.execution.plan import Branch, Plan
from factsweep.pipeline.machine.logs import LOG
from factsweep.pipeline.results import past, record
from factsweep.pipeline.results.pairs import paired, setting_of
from factsweep.pipeline.results.past import PastBranch
from factsweep.pipeline.stages import facts as facts_stage
from factsweep.pipeline.stages.match import Match, beside
from factsweep.pipeline.storage.artifact import Artifact
from factsweep.pipeline.storage.recipe import differences
from factsweep.pipeline.storage.stores.store import Store, below

# What the prompts of two runs may differ in: what demonstrations are drawn by.
_DRAWN = ("prompts seed:", "prompts setting.scope:")


class Named(NamedTuple):
    """The runs that an estimate names, for each setting by title: its control, those beside it."""

    control: Mapping[str, PastBranch]
    beside: Mapping[str, Sequence[PastBranch]]


def named(plan: Plan) -> Named:
    """The runs that `control=` and `beside=` name.

    Raises:
        InputError: there is no such run, it was asked other prompts or none of a setting, or one
            beside it differs in more than its demonstrations.
    """
    run, controls = plan.run, dict[str, PastBranch]()
    if run.control is not None:
        found = setting_of(run.control, partial(_full, run))
        controls = {each.title: _same(run, each, found) for each in plan.branches}
    return Named(controls, others(plan))


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
    sampling = METHODS[match.method].measure.sampling
    assert sampling is not None
    control = named.control.get(branch.title)
    if control is not None:
        _check_prompts(run, control, branch.prompts)
    failed = unanswered(branch.prompts, branch.admitted, branch.answers)
    again = list(answered_again(branch, named.beside[branch.title]))
    facts = facts_stage.load(match.facts)
    rows = matched_by(match.matcher(facts), match.method, match.answers, asked)
    if rows.is_empty():
        raise DecodingError(
            "no prompt of the budget has an answer, so there is nothing to measure."
        )
    pairs = _answerable(asked.read("crossed", "all"), failed)
    earlier = None if control is None else control.matched_answers
    part = Part(facts, branch.setting, rows, pairs, run.metrics, run.seed, earlier, again)
    found = dict(sampling.estimate(part))
    folder = None if control is None else control.artifacts["matched"].folder
    found["estimates"] = found["estimates"].with_columns(control=pl.lit(folder, pl.String))
    return Estimates.named(found, names(run, branch))


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


def others(plan: Plan) -> dict[str, list[PastBranch]]:
    """The runs that `beside=` names for each setting of a plan, by title.

    Raises:
        InputError: there is no such run, or it differs in more than its demonstrations from all.
    """
    found: dict[str, list[PastBranch]] = {branch.title: [] for branch in plan.branches}
    for name in plan.run.beside or ():
        named = setting_of(name, partial(written.settings, plan.run.results))
        reasons = []
        for branch in plan.branches:
            mine = _past(plan.run, branch)
            for each in named.values():
                unlike = list(_unlike(mine, each))
                if not unlike:
                    found[branch.title].append(each)
                reasons += unlike
        if not any(each in found[title] for title in found for each in named.values()):
            raise InputError(
                f"beside={name} differs in more than seed and prompt.scope "
                f"({'; '.join(dict.fromkeys(reasons))}); name a run of the same model and setting."
            )
    return found


def answered_again(branch: Branch, others: Sequence[PastBranch]) -> Iterator[Beside]:
    """Further answers to the prompts of a budget, or to others of the same model and setting."""
    match, chosen = branch.match, branch.chosen
    assert isinstance(match, Match)
    assert chosen is not None
    for each in others:
        prompts = each.artifacts["prompts"]
        same = prompts.folder == branch.prompts.folder
        setting = None if same else prompts.recipe.fields["setting"]
        yield Beside(setting, partial(_answers, each, chosen))
    if branch.canary is not None:
        canary, name = branch.canary, branch.canary.stage
        full = [each.artifacts for each in others if {name, "matched"} <= each.artifacts.keys()]
        mine = {"prompts": branch.prompts, "matched": branch.matched, name: canary}
        for artifacts in (mine, *full):
            parts = [artifacts[each] for each in ("prompts", "matched", name)]
            if all(each.is_complete() for each in parts):
                prompts, matched, again = parts
                first = partial(_matched, matched, match.method, again, again.stage)
                yield Beside(None, partial(_second, match, prompts, again), first)


def _past(run: Run, branch: Branch) -> PastBranch:
    """A setting of a run that is planned, as it will be read from its record."""
    artifacts = []
    for each in branch.artifacts():
        as_read = json.loads(json.dumps(each.recipe.fields))
        artifacts.append(Artifact(each.store, replace(each.recipe, fields=as_read)))
    return past.setting(run.name, {"run": asdict(run)}, branch.title, artifacts)


def _unlike(mine: PastBranch, other: PastBranch) -> Iterator[str]:
    """What two runs differ in, beside what their demonstrations are drawn by."""
    if mine.method != other.method:
        yield f"benchmark: {mine.benchmark} → {other.benchmark}"
        return
    if mine.answers.folder == other.answers.folder:
        yield "its answers are those of this run"
    pair = paired(mine, other)
    yield from (line for line in pair.asked if not line.startswith(_DRAWN))
    yield from pair.departures
    ours, theirs = ({"model": each.answers.recipe.fields.get("model")} for each in (mine, other))
    yield from differences(ours, theirs)


def _answers(other: PastBranch, chosen: Artifact) -> pl.DataFrame:
    """Another run's matched answers to prompts of a budget."""
    if "matched" not in other.artifacts:  # of all prompts, those of the budget alone are kept
        return written.answers(other)
    return _matched(other.artifacts["matched"], other.method, chosen, "chosen")


def _matched(matched: Artifact, method: str, asked: Artifact, name: str) -> pl.DataFrame:
    """The matched answers to the prompts that another artifact has in a table."""
    wanted, table = asked.read_all(name).select("prompt_id"), METHODS[method].measure.answers
    found = (matched.read(table, each) for each in matched.shards(table))
    return pl.concat(each.join(wanted, on="prompt_id", how="semi") for each in found)


def _second(match: Match, prompts: Artifact, again: Artifact) -> pl.DataFrame:
    """The matched answers that a full run made a second time."""
    measure = METHODS[match.method].measure
    matcher = match.matcher(facts_stage.load(match.facts))
    place = ["prompt_id", "pair_id", "template_id", "subject_index"]
    said = again.read_all(again.stage)
    found = []
    for relation_id in prompts.shards("ranked"):
        asked = prompts.read("ranked", relation_id).select(place)
        rows = asked.with_columns(relation_id=pl.lit(relation_id)).join(said, on="prompt_id")
        found.append(matcher(rows, beside(match.method, (), relation_id))[measure.answers])
    return pl.concat(found)
