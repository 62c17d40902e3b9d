"""plan: what a run would compute, in figures, without computing it or writing anything."""

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from itertools import compress
from typing import Any, NamedTuple

import numpy as np
import polars as pl

from factsweep.operators.datasets.facts import Facts
from factsweep.operators.methods.ability import BESIDE, PREFER
from factsweep.operators.prompts.expansion import NOTHING, Expansion, Shown, shown
from factsweep.operators.prompts.tokens import n_shared, visible
from factsweep.operators.tables.formats import markdown
from factsweep.operators.tables.shared.numbers import COUNT, HOURS, MEGABYTES
from factsweep.pipeline.cluster.hardware import check_weights, gpus_per_engine, most_engines, prices
from factsweep.pipeline.config import described
from factsweep.pipeline.config.budget import budget_lines
from factsweep.pipeline.config.model import Model
from factsweep.pipeline.config.run import Run
from factsweep.pipeline.decoding import remaining
from factsweep.pipeline.decoding.costs import paid_for, place, predicted, unknown
from factsweep.pipeline.decoding.progress import clock
from factsweep.pipeline.decoding.remaining import branch_work, paid, requests_per_prompt
from factsweep.pipeline.inputs import catalog, models
from factsweep.pipeline.stages import facts as facts_stage
from factsweep.pipeline.stages.choose import Choose
from factsweep.pipeline.stages.expand import Expand, ends
from factsweep.pipeline.stages.plan import Branch, Plan, asked, warnings
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


def lines(plan: Plan, forecasts: list[Forecast]) -> Iterator[str]:
    """The plan in words and figures."""
    run = plan.run
    model = f"{run.model.name} ({plan.weights.revision})"
    computed = f" in {run.model.computed_in}" if run.model.computed_in else ""
    table = f"; {run.table}" if run.table else ""
    yield f"{run.name}: {model} on {run.benchmark.name}{computed}{table}"
    yield _model_line(run)
    yield from (f"warning: {each}" for each in warnings(plan))
    if run.budget is not None:
        yield from _budget_lines(run, forecasts)
    for figures in forecasts:
        yield ""
        yield from _setting_lines(figures)
    yield ""
    yield from _price_lines(plan, forecasts)
    yield from _cost_lines(plan, forecasts)


def _budget_lines(run: Run, forecasts: list[Forecast]) -> Iterator[str]:
    """What a budget is of each setting; all figures of the plan are those of its prompts."""
    for figures in forecasts:
        n, whole = sum(figures.prompts.values()), figures.whole
        first, *few = budget_lines(run, figures.branch.title, n, whole, figures.pairs)
        yield f"budget          {first}"
        yield from (f"                {each}" for each in few)
    if run.target is not None:
        yield f"                and then more, until {run.target}: the plan is of the first look"


def _model_line(run: Run) -> str:
    model = run.model
    most = f"at most {model.max_model_len:,} tokens"
    if model.endpoint is not None:
        way = "in a chat" if model.chat_template else "as raw text"
        asked = f"{model.id} at {model.endpoint}, asked {way}"
        return f"model           {asked}, {most}, {_counted(model)}"
    gpus, scheme = gpus_per_engine(run), described.scheme(model)
    held = f"on {gpus} GPU{'s' * (gpus > 1)} per engine" if gpus else "on the CPU"
    size = f"{model.billions_of_parameters or 0:g} billion parameters"
    weights = f"{model.architecture}, {size}{f' ({scheme})' if scheme else ''}"
    return (
        f"model           {weights}, {most}, {held} (model.tensor_parallel={model.tensor_parallel})"
    )


def _counted(model: Model) -> str:
    """How the tokens of a server's prompts are known beforehand."""
    return f"counted with {model.tokenizer}" if model.tokenizer else "estimated"


def _setting_lines(figures: Forecast) -> Iterator[str]:
    n = sum(figures.prompts.values())
    yield figures.branch.title
    by_relation = ", ".join(f"{relation} {rows:,}" for relation, rows in figures.prompts.items())
    yield f"  prompts         {n:,} ({by_relation})"
    yield f"  first prompt    {figures.first!r}"
    yield from (f"  warning         {warning}" for warning in figures.warnings)
    yield f"  duplicates      {figures.duplicates:,} ({figures.duplicates / max(1, n):.1%})"
    if any(figures.shown):
        objects, subjects = figures.shown
        yield (
            f"  shown           {objects:,} prompts ({objects / figures.whole:.1%}) have a right "
            f"answer in their demonstrations, {subjects:,} their subject; asked all the same"
        )
    yield f"  too long        {len(figures.too_long):,}"
    yield f"  prompt tokens   {figures.tokens:,}"
    if figures.name_tokens:
        yield f"  name tokens     at most {figures.name_tokens:,} behind the prompts"
    shared = figures.shared_tokens / max(1, figures.tokens)
    yield f"  shared prefix   {shared:.1%} of the tokens stand at the start of the prompt before"
    if figures.branch.chosen is not None:
        yield f"  computed tokens {figures.tokens - figures.shared_tokens:,}, the others are shared"
    yield f"  shards          {figures.shards:,}"
    for stage, n in figures.asked.items():
        other = f": {BESIDE[stage]}" if stage in BESIDE else ""
        yield f"  {stage:15} {n:,} prompts, {figures.left[stage]:,} answers left{other}"
    if why := figures.anew:
        yield f"  decoded anew because: {'; '.join(why)}"


def _price_lines(plan: Plan, forecasts: list[Forecast]) -> Iterator[str]:
    """What a server will charge: tokens of prompts as counted, of answers the most there may be."""
    run, model = plan.run, plan.run.model
    if run.engine.name != "endpoint":
        return
    n_per_prompt = requests_per_prompt(plan)
    expected = most = _requests_left(plan, forecasts, n_per_prompt or 1.0)
    if_single = ""
    if run.method.ask.ability != PREFER:  # which asks after every node of a trie
        yield f"requests        {expected.n:,} with {expected.prompt_tokens:,} tokens of prompts"
    if n_per_prompt is None:  # the server has not shown how many samples it gives per request
        most = _requests_left(plan, forecasts, None)
        if_single = ", if the server gives one sample per request"
    if most.n > expected.n:
        yield f"                {most.n:,} with {most.prompt_tokens:,} tokens of prompts{if_single}"
    known = prices(model)
    if known is None:
        yield "cost            unknown: give model.price_in and model.price_out, per million tokens"
        return
    prompt, output = expected.prompt_tokens, expected.output_tokens
    cost = [known.of(prompt, 0), known.of(0, output)]
    yield (
        f"cost            {cost[0]:,.4f} for {prompt:,} tokens of prompts ({_counted(model)}), "
        f"at most {cost[1]:,.4f} for {output:,} of answers; at most {sum(cost):,.4f} in all"
    )
    most_cost = known.of(most.prompt_tokens, most.output_tokens)
    if most.n > expected.n:
        yield f"                at most {most_cost:,.4f} in all{if_single}"
    spent = paid(plan)
    if run.max_cost is not None:
        enough = "is enough" if spent + most_cost <= run.max_cost else "may end the run before"
        yield f"                {spent:,.4f} is spent; max_cost={run.max_cost:g} {enough}"


class _Requests(NamedTuple):
    """Requests to a server, the tokens of their prompts, and the most that answers may have."""

    n: int
    prompt_tokens: int
    output_tokens: int


def _requests_left(plan: Plan, forecasts: list[Forecast], n_per_prompt: float | None) -> _Requests:
    """The requests that are left; the samples of a prompt take `n_per_prompt`, or one each (null).

    Where some prompts are answered, those that are left count as long as all are in the mean.
    Thoughts are tokens of answers, which a server charges for.
    """
    n, prompt_tokens, output_tokens, decoding = 0.0, 0.0, 0, plan.run.decoding
    most = decoding.max_tokens + (decoding.thinking_tokens if plan.run.model.thinking else 0)
    for figures in forecasts:
        for question in figures.branch.questions():
            n_asked, n_left = figures.asked[question.table], figures.left[question.table]
            n_answers = question.task.answers_per_prompt
            n_requests = n_left / n_answers * min(n_per_prompt or n_answers, n_answers)
            n += n_requests
            prompt_tokens += n_requests * figures.asked_tokens[question.table] / max(1, n_asked)
            output_tokens += n_left * most
    return _Requests(round(n), round(prompt_tokens), output_tokens)


def _cost_lines(plan: Plan, forecasts: list[Forecast]) -> Iterator[str]:
    """What is left to do, by stage, and what it takes as far as rates are known."""
    work = work_left(plan, forecasts)
    if work.is_empty():
        yield "time            nothing is left to do"
        return
    costs = predicted(plan, work)
    free, needed = plan.store.free(), float(costs["bytes"].fill_null(0).sum())
    if free is not None and needed:  # of a folder alone
        fix = "; too little: free some, or give artifacts= on a larger disk"
        few = fix if needed > free else ""
        yield f"disk            {needed / 1e9:,.2f} GB to write, {free / 1e9:,.0f} GB free{few}"
    gpu_hours = [HOURS.column(pl.col("gpu_hours")).alias("GPU-hours")]
    table = costs.select(
        "setting",
        "stage",
        COUNT.column(pl.col("answers")),
        *(gpu_hours if place(plan.run).gpus else []),
        HOURS.column(pl.col("core_hours")).alias("core-hours"),
        MEGABYTES.column(pl.col("bytes")).alias("MB"),
        pl.col("basis").fill_null("unknown").alias("rate"),
    )
    yield markdown(table)
    yield _time_line(plan.run, costs, work)


def _time_line(run: Run, costs: pl.DataFrame, work: pl.DataFrame) -> str:
    engines = costs.join(work.drop_nulls("model"), on=["stage", "setting"], how="semi")
    if engines.is_empty():
        return "time            nothing is left to decode; what is left needs no engine"
    known = engines.drop_nulls("seconds")
    never = sorted(set(engines.filter(pl.col("seconds").is_null())["stage"]))
    fix = unknown(run, never)
    if known.is_empty() and never:
        return f"time            unknown: {fix}"
    gpu_hours, core_hours = known["gpu_hours"].sum(), known["core_hours"].sum()
    used = f"{gpu_hours:.2f} GPU-hours" if gpu_hours else f"{core_hours:.2f} core-hours"
    replicas = most_engines(run)
    wall = clock(float(known["seconds"].sum()) / replicas)
    time = f"time            {wall} of decoding with {replicas} replicas, {used}"
    return f"{time}, not counting what is unknown: {fix}" if never else time
