"""plan: what a run would compute, in figures, without computing it or writing anything."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from itertools import compress
from typing import Any

import numpy as np
import polars as pl

from factsweep.operators.datasets.facts import Facts
from factsweep.operators.prompts.expansion import NOTHING, Expansion, Shown, shown
from factsweep.operators.prompts.tokens import n_shared, visible
from factsweep.pipeline.cluster.hardware import check_weights
from factsweep.pipeline.config.run import Run
from factsweep.pipeline.decoding import remaining
from factsweep.pipeline.decoding.rates import paid_for
from factsweep.pipeline.decoding.remaining import branch_work
from factsweep.pipeline.inputs import catalog, models
from factsweep.pipeline.stages import facts as facts_stage
from factsweep.pipeline.stages.choose import Choose
from factsweep.pipeline.stages.expand import Expand, ends
from factsweep.pipeline.stages.plan import Branch, Plan, asked
from factsweep.pipeline.stages.question import Task, check_reading, room
from factsweep.pipeline.storage.artifact import Artifact
from factsweep.pipeline.storage.lookup import Recipes, causes

_PROMPTS_AT_ONCE = 4096
_FEW = 4  # fields
_MODEL = "fields.model.id:"
_WORK = {"stage": pl.String, "setting": pl.String, "model": pl.String, "answers": pl.Int64}


@dataclass
class Forecast:
    """The figures of one setting."""

    branch: Branch
    prompts: Counter[str] = field(default_factory=Counter)  # by relation
    whole: int = 0  # of the setting, of which a budget asks some: all other figures are of these
    needed: list[pl.DataFrame] = field(default_factory=list)  # ids that an engine is asked for it
    first: str = ""  # prompt, as the model reads it
    warnings: list[str] = field(default_factory=list)  # of how the model reads it
    pairs: int = 0
    duplicates: int = 0
    shown: Shown = NOTHING  # of the whole setting, where prompts are read
    too_long: set[str] = field(default_factory=set)  # their ids
    tokens: int = 0  # of the prompts that are decoded
    shared_tokens: int = 0
    name_tokens: int = 0  # at most, of the entities that are compared behind them
    shards: int = 0
    anew: list[str] = field(default_factory=list)  # in what earlier answers differ, if in little
    asked: Counter[str] = field(default_factory=Counter)  # prompts that engines are asked, by stage
    asked_tokens: Counter[str] = field(default_factory=Counter)  # theirs
    left: Counter[str] = field(default_factory=Counter)  # answers that are not there, or other work


def forecast(run: Run, *, tokens: bool = True) -> tuple[Plan, list[Forecast]]:
    """Expand and tokenise every setting of the run, and count what is complete.

    Without `tokens` no prompt is read: that is quicker, and every prompt is taken to fit.

    Raises:
        InputError: something that was given is wrong, or answers lack of weights that the engine
            cannot compute with here.
    """
    plan = asked(paid_for(run))
    run = plan.run
    if run.answers is None and not all(each.answers.is_complete() for each in plan.branches):
        check_weights(run, run.model)
    facts = facts_stage.read(run.benchmark)
    if run.method.ask.knowledge_base:
        entry = catalog.of_benchmark(run.benchmark)
        facts = replace(facts, knowledge_base=facts_stage.read_knowledge_base(run.benchmark, entry))
    recipes = Recipes(plan.store, (step.artifact.recipe for step in plan.steps))
    found = [_setting(plan, branch, facts, tokens=tokens) for branch in plan.branches]
    for figures in found if run.answers is None else ():
        figures.anew = _anew(figures.branch.answers, recipes)
    return plan, found


def _anew(answers: Artifact, recipes: Recipes) -> list[str]:
    """The few fields in which the nearest complete answers of this model differ; none if these are.

    Answers that are there, or begun, need no such reason; of a new model there are none.
    """
    if answers.is_complete() or answers.shards(answers.stage):
        return []
    nearest: list[str] = []
    for name in answers.store.folders(answers.stage):
        other = recipes.get(name)
        if other is None or not Artifact(answers.store, other).is_complete():
            continue
        why = causes(other, answers.recipe, recipes)
        if 0 < len(why) <= _FEW and not any(each.startswith(_MODEL) for each in why):
            nearest = min(nearest or why, why, key=len)
    return [each.replace("fields.", "").replace('"', "") for each in nearest]


def _setting(plan: Plan, branch: Branch, facts: Facts, *, tokens: bool) -> Forecast:
    figures, run = Forecast(branch, pairs=facts.pairs.height), plan.run
    expand = branch.step(branch.prompts).stage
    assert isinstance(expand, Expand), "prompts are expanded"
    facts = expand.demonstrated(facts)
    part = _part(run, branch, facts)
    for expansion in run.method.ask.expand(facts, branch.setting, seed=run.seed):
        rows, name = expansion.prompts, expansion.relation_id
        last = ends(rows.height, run.cluster.rows_per_shard)
        figures.whole += rows.height
        if tokens:
            leaks = shown(expansion, facts.pairs)
            figures.shown = Shown(*(a + b for a, b in zip(figures.shown, leaks, strict=True)))
        if part is None:
            figures.prompts[name] = rows.height
            figures.shards += len(last)
            figures.duplicates += rows["same_as"].count()
        else:
            found = part(expansion)
            needed = found.select(prompt_id="source_id").unique()
            figures.prompts[name] = found.height
            places = rows.with_row_index("place").join(needed, on="prompt_id", how="semi")["place"]
            figures.shards += len(set(np.searchsorted(last, places.to_numpy(), side="right")))
            figures.duplicates += found.height - needed.height
            figures.needed.append(needed)
        _count(plan, figures, expansion, tokens=tokens)
    _look(plan.run, figures)
    return figures


def _part(run: Run, branch: Branch, facts: Facts) -> Callable[[Expansion], pl.DataFrame] | None:
    """What finds the prompts of a relation that a budget asks; null: there is none."""
    if branch.chosen is None:
        return None
    stage = branch.step(branch.chosen).stage
    assert isinstance(stage, Choose)
    every = run.method.ask.expand(facts, branch.setting, seed=run.seed)
    known = {each.relation_id: stage.known(each.relation_id, each.prompts) for each in every}
    asked = stage.chosen(known).asked
    return lambda each: stage.of(asked[each.relation_id], each.prompts)


def _count(plan: Plan, figures: Forecast, expansion: Expansion, *, tokens: bool) -> None:
    """Add the figures of a relation: what is asked of it, in how many tokens, what does not fit."""
    for question in figures.branch.questions():
        rows = question.asked(expansion.of(question.source))
        if figures.branch.chosen is not None:
            rows = rows.join(figures.needed[-1], on="prompt_id", how="semi", maintain_order="left")
        if not tokens:
            figures.asked[question.table] += rows.height
            continue
        for part in rows.iter_slices(_PROMPTS_AT_ONCE):
            tokenizer = models.tokenizer(plan.weights)
            ids = whole = question.task.token_ids(tokenizer, part["text"].to_list())
            if expansion.candidate_sets is not None:
                whole = question.task.token_ids(tokenizer, expansion.longest(part).to_list())
            fits = pl.Series([len(each) <= room(plan.run) for each in whole], dtype=pl.Boolean)
            figures.asked[question.table] += int(fits.sum())
            figures.asked_tokens[question.table] += sum(map(len, compress(ids, fits)))
            if question.table == plan.run.method.ask.ability.answers:
                check_reading(question.task, tokenizer, part)
                if not figures.first:
                    sent = plan.run.model.endpoint is not None  # to a server, which renders it
                    figures.first = part["text"][0] if sent else visible(tokenizer, ids[0])
                    figures.warnings = question.task.warnings(tokenizer, part["text"][0])
                figures.tokens += sum(map(len, ids))
                figures.shared_tokens += n_shared(ids)
                figures.too_long.update(part["prompt_id"].filter(~fits))
                if expansion.candidate_sets is not None:
                    asked = part.filter(fits)
                    sets = expansion.candidate_sets.join(asked, on="candidates_id", how="semi")
                    figures.name_tokens += _name_tokens(asked, sets, question.task, tokenizer)


def _name_tokens(rows: pl.DataFrame, sets: pl.DataFrame, task: Task, tokenizer: Any) -> int:
    """How many tokens the names of all candidates of some prompts have, behind these."""
    names = sets.select("candidates_id", name="labels").explode("name").drop_nulls()
    texts = names["name"].unique()
    anchor, *ids = task.token_ids(tokenizer, ["a", *("a " + texts)])
    lengths = pl.DataFrame({"name": texts, "n": [len(each) - len(anchor) for each in ids]})
    by_set = names.join(lengths, on="name").group_by("candidates_id").agg(pl.sum("n"))
    return int(rows.select("candidates_id").join(by_set, on="candidates_id")["n"].sum())


def _look(run: Run, figures: Forecast) -> None:
    """Count what of the work is not there."""
    branch = figures.branch
    unanswered = _unanswered(run, figures)
    for step in branch.steps:
        artifact, question = step.artifact, step.question
        if question is not None:
            missing = unanswered.get(artifact.folder, figures.asked[artifact.stage])
            figures.left[artifact.stage] += missing * question.task.answers_per_prompt
        else:
            whole = figures.pairs if step in branch.sources() else figures.whole
            figures.left[artifact.stage] = 0 if artifact.is_complete() else whole


def _unanswered(run: Run, figures: Forecast) -> dict[str, int]:
    """How many prompts of each artifact have no answer yet, where that is known."""
    branch = figures.branch
    complete = {each.folder: 0 for each in branch.answered() if each.is_complete()}
    if not (branch.prompts.is_complete() and branch.admitted.is_complete()):
        return complete
    if branch.chosen is not None:
        return {branch.answers.folder: _n_lacking(run, branch, pl.concat(figures.needed))}
    found = {each.folder: 0 for each in branch.answered()}
    items = list(branch_work(run, branch))
    for item, n in zip(items, remaining.left(items), strict=True):
        found[item.artifact.folder] += n
    return found


def _n_lacking(run: Run, branch: Branch, needed: pl.DataFrame) -> int:
    """How many of a budget's prompts have no answer yet; nobody has written these down yet."""
    asked = ((step, step.question) for step in branch.steps if step.question is not None)
    steps = tuple(replace(step, question=replace(of, part=None)) for step, of in asked)
    return remaining.n_lacking(list(branch_work(run, replace(branch, steps=steps))), needed)


def work_left(plan: Plan, forecasts: list[Forecast]) -> pl.DataFrame:
    """stage, setting, model, answers: what is not there yet; the sources stand once."""
    rows: dict[tuple[str, str | None], dict[str, Any]] = {}
    for figures in forecasts:
        for step in figures.branch.steps:
            stage = step.artifact.stage
            setting = None if step in figures.branch.sources() else figures.branch.title
            model = plan.run.model.name if stage in figures.asked else None
            row = {"stage": stage, "setting": setting, "model": model}
            rows[stage, setting] = {**row, "answers": figures.left[stage]}
    return pl.DataFrame(list(rows.values()), schema=_WORK).filter(pl.col("answers") > 0)
