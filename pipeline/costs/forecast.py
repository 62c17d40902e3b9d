"""plan: what a run would compute, without computing it or writing anything."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
import polars as pl

from factsweep.operators.datasets.facts import Facts
from factsweep.operators.prompts.expansion import Expansion
from factsweep.operators.prompts.prefixes import n_shared
from factsweep.operators.prompts.tokens import visible
from factsweep.operators.tables.formats.markdown import markdown
from factsweep.operators.tables.shared.numbers import COUNT, HOURS, MEGABYTES
from factsweep.operators.wording import count
from factsweep.pipeline.config import quantised
from factsweep.pipeline.config.model import Model
from factsweep.pipeline.config.run import Run
from factsweep.pipeline.costs import rates
from factsweep.pipeline.costs.hours import paid_for
from factsweep.pipeline.execution import cluster
from factsweep.pipeline.execution.asked import asked, n_unanswered
from factsweep.pipeline.execution.cluster import gpus_per_engine
from factsweep.pipeline.execution.plan import Branch, Plan, warnings
from factsweep.pipeline.execution.progress import clock
from factsweep.pipeline.execution.purse import paid
from factsweep.pipeline.execution.work import branch_work
from factsweep.pipeline.inputs import catalog, models
from factsweep.pipeline.stages import facts as facts_stage
from factsweep.pipeline.stages import knowledge_base
from factsweep.pipeline.stages.asking import remaining
from factsweep.pipeline.stages.asking.question import Question, room
from factsweep.pipeline.stages.choose import Choose, Chosen
from factsweep.pipeline.stages.sharding import ends
from factsweep.pipeline.storage.artifact import Artifact
from factsweep.pipeline.storage.causes import Recipes, causes

_PROMPTS_AT_ONCE = 4096
_FEW = 4  # fields
_MODEL = "fields.model.id:"
_WORK = {"stage": pl.String, "setting": pl.String, "model": pl.String, "answers": pl.Int64}


@dataclass
class Forecast:
    """The figures of one setting.

    `tokens` are those of the prompts that are decoded. `name_tokens` are those of the entities that
    are compared behind them: at most so many, since names that begin alike share tokens, and a
    search does not read them all.

    `anew` says in what earlier answers differ, if there are some that differ in little.

    Of a budget all figures are those of its prompts, which are some of the `whole` setting's;
    `needed` has the ids of those that an engine is asked.

    `asked` counts the prompts that an engine is asked, by stage, `asked_tokens` their tokens;
    `left` the answers that are not there yet, or what another stage has to go through.
    """

    branch: Branch
    prompts: Counter[str] = field(default_factory=Counter)  # by relation
    whole: int = 0
    needed: list[pl.DataFrame] = field(default_factory=list)
    first: str = ""  # prompt, as the model reads it
    pairs: int = 0
    duplicates: int = 0
    too_long: set[str] = field(default_factory=set)  # their ids
    tokens: int = 0
    shared_tokens: int = 0
    name_tokens: int = 0
    shards: int = 0
    anew: list[str] = field(default_factory=list)
    asked: Counter[str] = field(default_factory=Counter)
    asked_tokens: Counter[str] = field(default_factory=Counter)
    left: Counter[str] = field(default_factory=Counter)


def forecast(run: Run) -> tuple[Plan, list[Forecast]]:
    """Expand and tokenise every setting of the run, and count what is complete."""
    plan = asked(paid_for(run))
    run = plan.run
    entry = catalog.entry(run.benchmark.data, run.benchmark.language)
    facts = facts_stage.read(run.benchmark, entry)
    if run.method.ask.knowledge_base:
        facts = replace(facts, knowledge_base=knowledge_base.read(run.benchmark, entry))
    recipes = Recipes(plan.store, (step.artifact.recipe for step in plan.steps))
    found = [_setting(plan, branch, facts) for branch in plan.branches]
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


def _setting(plan: Plan, branch: Branch, facts: Facts) -> Forecast:
    figures, run = Forecast(branch, pairs=facts.pairs.height), plan.run
    part = _part(run, branch, facts)
    for expansion in run.method.ask.expand(facts, branch.setting, seed=run.seed):
        rows, name = expansion.prompts, expansion.relation_id
        last = ends(rows.height, run.cluster.rows_per_shard)
        figures.whole += rows.height
        if part is None:
            figures.prompts[name] = rows.height
            figures.shards += len(last)
            figures.duplicates += rows["same_as"].count()
        else:
            found = part.stage.of(part.chosen.asked[name], rows)
            needed = found.group_by(prompt_id="source_id").agg(pl.min("block"))
            figures.prompts[name] = found.height
            places = rows.with_row_index("place").join(needed, on="prompt_id", how="semi")["place"]
            figures.shards += len(set(np.searchsorted(last, places.to_numpy(), side="right")))
            figures.duplicates += found.height - needed.height
            figures.needed.append(needed)
        _count(plan, figures, expansion)
    _look(plan.run, figures)
    return figures


class _Part(NamedTuple):
    """What a budget asks of a setting, and what chooses it."""

    stage: Choose
    chosen: Chosen


def _part(run: Run, branch: Branch, facts: Facts) -> _Part | None:
    """What a budget asks of a setting; null: there is none."""
    if branch.chosen is None:
        return None
    stage = branch.step(branch.chosen).stage
    assert isinstance(stage, Choose)
    known = {
        each.relation_id: stage.known(each.relation_id, each.prompts)
        for each in run.method.ask.expand(facts, branch.setting, seed=run.seed)
    }
    return _Part(stage, stage.chosen(known))


def _count(plan: Plan, figures: Forecast, expansion: Expansion) -> None:
    """Add the figures of a relation: what is asked of it, in how many tokens, what does not fit."""
    # One question of each table: all blocks of samples are asked alike.
    for question in {question.table: question for _, question in figures.branch.asked()}.values():
        rows = question.asked(expansion.of(question.source))
        if figures.branch.chosen is not None:  # a budget is asked block after block
            rows = rows.join(figures.needed[-1], on="prompt_id", maintain_order="left")
            rows = rows.sort("block", maintain_order=True)
        for part in rows.iter_slices(_PROMPTS_AT_ONCE):
            tokenizer = models.tokenizer(plan.weights)
            ids = whole = question.task.token_ids(tokenizer, part["text"].to_list())
            if expansion.candidate_sets is not None:
                whole = question.task.token_ids(tokenizer, expansion.longest(part).to_list())
            fits = pl.Series([len(each) <= room(plan.run) for each in whole], dtype=pl.Boolean)
            figures.asked[question.table] += int(fits.sum())
            figures.asked_tokens[question.table] += sum(
                len(each) for each, fit in zip(ids, fits, strict=True) if fit
            )
            if question.table == plan.run.method.ask.ability.answers:
                figures.first = figures.first or _read(plan, tokenizer, part["text"][0], ids[0])
                figures.tokens += sum(map(len, ids))
                figures.shared_tokens += n_shared(ids)
                figures.too_long.update(part["prompt_id"].filter(~fits))
                figures.name_tokens += _name_tokens(
                    part.filter(fits), expansion, question, tokenizer
                )


def _read(plan: Plan, tokenizer: Any, text: str, ids: Sequence[int]) -> str:
    """A prompt as the model reads it; of a server, as it is sent."""
    return text if plan.run.model.endpoint is not None else visible(tokenizer, ids)


def _name_tokens(
    rows: pl.DataFrame, expansion: Expansion, question: Question, tokenizer: Any
) -> int:
    """How many tokens the names of all candidates of some prompts have, behind these."""
    if expansion.candidate_sets is None:
        return 0
    sets = expansion.candidate_sets.join(rows, on="candidates_id", how="semi")
    names = sets.select("candidates_id", name="labels").explode("name").drop_nulls()
    texts = names["name"].unique()
    anchor, *ids = question.task.token_ids(tokenizer, ["a", *("a " + texts)])
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
        return {branch.answers.folder: n_unanswered(run, branch, pl.concat(figures.needed))}
    found = {each.folder: 0 for each in branch.answered()}
    items = list(branch_work(run, branch))
    for item, n in zip(items, remaining.left(items), strict=True):
        found[item.artifact.folder] += n
    return found


def lines(plan: Plan, forecasts: list[Forecast]) -> Iterator[str]:
    """The plan in words and figures."""
    run = plan.run
    model = f"{run.model.name} ({plan.weights.revision})"
    computed = f" in {run.model.computed_in}" if run.model.computed_in else ""
    yield f"{run.name}: {model} on {run.benchmark.name}{computed}"
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
        n = sum(figures.prompts.values())
        yield (
            f"budget          {run.budget}: {n:,} of {count(figures.whole, 'prompt')} of "
            f"{figures.branch.title}"
        )
        if n < 2 * figures.pairs:
            yield (
                f"                too few to ask each of {figures.pairs:,} facts twice: only some "
                "facts are asked, and the fluctuation cannot be estimated"
            )
    if run.target is not None:
        yield f"                and then more, until {run.target}: the plan is of the first look"


def _model_line(run: Run) -> str:
    """What the model is, and what one engine of it holds."""
    if run.model.endpoint is not None:
        return _endpoint_line(run.model)
    model, gpus = run.model, gpus_per_engine(run)
    held = f"on {gpus} GPU{'s' * (gpus > 1)} per engine" if gpus else "on the CPU"
    scheme = quantised.scheme(model)
    weights = f"parameters{f' ({scheme})' if scheme else ''}"
    return (
        f"model           {model.architecture}, {model.billions_of_parameters or 0:g} billion "
        f"{weights}, at most {model.max_model_len:,} tokens, {held} "
        f"(model.tensor_parallel={model.tensor_parallel})"
    )


def _endpoint_line(model: Model) -> str:
    """What is asked, where, and what is known of it beforehand."""
    way = "in a chat" if model.chat_template else "as raw text"
    return (
        f"model           {model.id} at {model.endpoint}, asked {way}, at most "
        f"{model.max_model_len:,} tokens, {_counted(model)}"
    )


def _counted(model: Model) -> str:
    """How the tokens of a server's prompts are known beforehand."""
    return f"counted with {model.tokenizer}" if model.tokenizer else "estimated"


def _setting_lines(figures: Forecast) -> Iterator[str]:
    n = sum(figures.prompts.values())
    tokens = max(1, figures.tokens)
    yield figures.branch.title
    by_relation = ", ".join(f"{relation} {rows:,}" for relation, rows in figures.prompts.items())
    yield f"  prompts         {n:,} ({by_relation})"
    yield f"  first prompt    {figures.first!r}"
    yield f"  duplicates      {figures.duplicates:,} ({figures.duplicates / max(1, n):.1%})"
    yield f"  too long        {len(figures.too_long):,}"
    yield f"  prompt tokens   {figures.tokens:,}"
    if figures.name_tokens:
        yield f"  name tokens     at most {figures.name_tokens:,} behind the prompts"
    shared = figures.shared_tokens / tokens
    yield f"  shared prefix   {shared:.1%} of the tokens stand at the start of the prompt before"
    if figures.branch.chosen is not None:
        yield f"  computed tokens {figures.tokens - figures.shared_tokens:,}, the others are shared"
    yield f"  shards          {figures.shards:,}"
    for stage, n in figures.asked.items():
        yield f"  {stage:15} {n:,} prompts, {figures.left[stage]:,} answers left"
    if why := figures.anew:
        yield f"  decoded anew because: {'; '.join(why)}"


def _price_lines(plan: Plan, forecasts: list[Forecast]) -> Iterator[str]:
    """What a server will charge: tokens of prompts as counted, of answers the most there may be."""
    run, model = plan.run, plan.run.model
    if run.engine.name != "endpoint":
        return
    prices = cluster.prices(model)
    if prices is None:
        yield "cost            unknown: give model.price_in and model.price_out, per million tokens"
        return
    prompt, output = _tokens_left(plan, forecasts)
    cost = [prices.of(prompt, 0), prices.of(0, output)]
    yield (
        f"cost            {cost[0]:,.4f} for {prompt:,} tokens of prompts ({_counted(model)}), "
        f"at most {cost[1]:,.4f} for {output:,} of answers; at most {sum(cost):,.4f} in all"
    )
    spent = paid(plan)
    if run.max_cost is not None:
        enough = "is enough" if spent + sum(cost) <= run.max_cost else "may end the run before"
        yield f"                {spent:,.4f} is spent; max_cost={run.max_cost:g} {enough}"


def _tokens_left(plan: Plan, forecasts: list[Forecast]) -> tuple[int, int]:
    """Tokens of the prompts that are not answered, and the most that answers to them may have.

    Where some are answered, those that are left count as long as all are in the mean. Thoughts are
    tokens of answers, which a server charges for.
    """
    prompt, output, decoding = 0.0, 0, plan.run.decoding
    most = decoding.max_tokens + (decoding.thinking_tokens if plan.run.model.thinking else 0)
    for figures in forecasts:
        for question in {q.table: q for _, q in figures.branch.asked()}.values():
            n, left = figures.asked[question.table], figures.left[question.table]
            requests = left / question.task.answers_per_prompt
            prompt += requests * figures.asked_tokens[question.table] / max(1, n)
            output += left * most
    return round(prompt), output


def _cost_lines(plan: Plan, forecasts: list[Forecast]) -> Iterator[str]:
    """What is left to do, by stage, and what it takes as far as rates are known."""
    place = rates.place(plan.run)
    left = _left(plan, forecasts)
    if left.is_empty():
        yield "time            nothing is left to do"
        return
    costs = rates.predicted(plan, left)
    yield from _disk_line(plan, costs)
    yield markdown(_table(costs, gpus=place.gpus))
    yield _time_line(plan.run, costs, left)


def _disk_line(plan: Plan, costs: pl.DataFrame) -> Iterator[str]:
    """What is written, beside what the disk of the artifacts has room for; of a folder alone."""
    free, needed = plan.store.free(), float(costs["bytes"].fill_null(0).sum())
    if free is not None and needed:
        fix = "; too little: free some, or give artifacts= on a larger disk"
        few = fix if needed > free else ""
        yield f"disk            {needed / 1e9:,.2f} GB to write, {free / 1e9:,.0f} GB free{few}"


def _left(plan: Plan, forecasts: list[Forecast]) -> pl.DataFrame:
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


def _table(costs: pl.DataFrame, *, gpus: int) -> pl.DataFrame:
    hours = {"GPU-hours": "gpu_hours"} if gpus else {}
    hours |= {"core-hours": "core_hours"}
    return costs.select(
        "setting",
        "stage",
        COUNT.column(pl.col("answers")),
        *(HOURS.column(pl.col(name)).alias(title) for title, name in hours.items()),
        MEGABYTES.column(pl.col("bytes")).alias("MB"),
        pl.col("basis").fill_null("unknown").alias("rate"),
    )


def _time_line(run: Run, costs: pl.DataFrame, left: pl.DataFrame) -> str:
    engines = costs.join(left.drop_nulls("model"), on=["stage", "setting"], how="semi")
    if engines.is_empty():
        return "time            nothing is left to decode; what is left needs no engine"
    known = engines.drop_nulls("seconds")
    never = sorted(set(engines.filter(pl.col("seconds").is_null())["stage"]))
    fix = rates.unknown(run, never)
    if known.is_empty() and never:
        return f"time            unknown: {fix}"
    gpu_hours, core_hours = (float(known[name].sum()) for name in ("gpu_hours", "core_hours"))
    used = f"{gpu_hours:.2f} GPU-hours" if gpu_hours else f"{core_hours:.2f} core-hours"
    replicas = run.model.replicas.max
    wall = clock(float(known["seconds"].sum()) / replicas)
    time = f"time            {wall} of decoding with {replicas} replicas, {used}"
    return f"{time}, not counting what is unknown: {fix}" if never else time
