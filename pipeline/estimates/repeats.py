"""Runs beside an estimate: the same prompts answered again, with other demonstrations or the same.

A run of another seed or another `prompt.scope` has drawn other demonstrations; a repetition, and
the canary of a full run, have answered the same texts again.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from functools import partial

import polars as pl

from factsweep.operators.errors import InputError
from factsweep.operators.methods import METHODS
from factsweep.operators.methods.method import Beside
from factsweep.pipeline.config.run import Run
from factsweep.pipeline.estimates import written
from factsweep.pipeline.execution.plan import Branch, Plan
from factsweep.pipeline.results import past
from factsweep.pipeline.results.pairs import paired, setting_of
from factsweep.pipeline.results.past import PastBranch
from factsweep.pipeline.stages import facts as facts_stage
from factsweep.pipeline.stages.match import Match, beside
from factsweep.pipeline.storage.artifact import Artifact
from factsweep.pipeline.storage.recipe import Recipe, differences

# What the prompts of two runs may differ in: what demonstrations are drawn by.
_DRAWN = ("prompts seed:", "prompts setting.scope:")


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
                again = parts[2]
                yield Beside(
                    None, partial(_second, match, parts[0], again), partial(_first, *parts[1:])
                )


def _past(run: Run, branch: Branch) -> PastBranch:
    """A setting of a run that is planned, as it will be read from its record."""
    artifacts = [Artifact(each.store, _as_read(each.recipe)) for each in branch.artifacts()]
    return past.setting(run.name, {"run": asdict(run)}, branch.title, artifacts)


def _as_read(recipe: Recipe) -> Recipe:
    return replace(recipe, fields=json.loads(json.dumps(recipe.fields)))


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
    wanted = chosen.read_all("chosen").select("prompt_id")
    return _matched(other.artifacts["matched"], other.method, wanted)


def _first(matched: Artifact, again: Artifact) -> pl.DataFrame:
    """The matched first answers to the prompts that a full run has answered twice."""
    wanted = again.read_all(again.stage).select("prompt_id")
    return _matched(matched, matched.recipe.fields["method"], wanted)


def _matched(matched: Artifact, method: str, wanted: pl.DataFrame) -> pl.DataFrame:
    table = METHODS[method].measure.answers
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
