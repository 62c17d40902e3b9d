"""plan: the figures of a run, without computing or writing anything."""

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from itertools import compress
from operator import add
from typing import Any, NamedTuple

import numpy as np
import polars as pl

from factsweep.operators.datasets.facts import Facts
from factsweep.operators.methods.method import BESIDE, PREFER
from factsweep.operators.prompts.expansion import (
    NOTHING,
    DemonstrationCounts,
    Expansion,
    count_demonstrations,
)
from factsweep.operators.prompts.tokens import n_shared, visible
from factsweep.operators.tables.formats import markdown
from factsweep.operators.tables.shared.numbers import COUNT, HOURS, MEGABYTES
from factsweep.operators.wording import name_servers
from factsweep.pipeline.cluster.hardware import check_weights, gpus_per_engine, most_engines, prices
from factsweep.pipeline.config import model_metadata
from factsweep.pipeline.config.budget import describe_budget
from factsweep.pipeline.config.model import Model
from factsweep.pipeline.config.run import Run
from factsweep.pipeline.decoding import remaining_prompts
from factsweep.pipeline.decoding.costs import describe_unmeasured, predict_costs, resolve_place
from factsweep.pipeline.decoding.progress import clock
from factsweep.pipeline.decoding.remaining_prompts import (
    list_branch_work,
    requests_per_prompt,
    sum_costs,
)
from factsweep.pipeline.inputs import models
from factsweep.pipeline.runs.preflight import read_sources, warn_of_silent_servers
from factsweep.pipeline.stages.choose import Choose
from factsweep.pipeline.stages.expand import list_shard_ends
from factsweep.pipeline.stages.plan import Branch, Plan, build_requested_plan, warnings
from factsweep.pipeline.stages.question import Task, check_reading, room
from factsweep.pipeline.storage.artifact import Artifact
from factsweep.pipeline.storage.lookup import Recipes, explain_difference

_PROMPTS_AT_ONCE = 4096
_FEW = 4  # fields
_MODEL = "fields.model.id:"
_WORK = {"stage": pl.String, "setting": pl.String, "model": pl.String, "answers": pl.Int64}


@dataclass
class Forecast:
    """The figures of one setting: of the prompts of a budget, if there is one."""

    branch: Branch
    prompts: Counter[str] = field(default_factory=Counter)  # by relation
    n_whole: int = 0  # prompts of the setting without a budget
    needed: list[pl.DataFrame] = field(default_factory=list)  # prompt_id of a budget, by relation
    first: str = ""  # prompt, as the model reads it
    warnings: list[str] = field(default_factory=list)  # about the first prompt
    pairs: int = 0
    duplicates: int = 0
    leaks: DemonstrationCounts = NOTHING  # without a budget
    too_long: set[str] = field(default_factory=set)  # prompt_id
    tokens: int = 0  # of the prompts that are decoded
    shared_tokens: int = 0
    name_tokens: int = 0  # at most, of candidates
    shards: int = 0
    differences: list[str] = field(default_factory=list)  # the few differences from earlier answers
    n_asked: Counter[str] = field(default_factory=Counter)  # prompts for engines, by stage
    asked_tokens: Counter[str] = field(default_factory=Counter)
    n_left: Counter[str] = field(default_factory=Counter)  # missing answers or prompts, by stage


def forecast(run: Run, *, tokens: bool = True) -> tuple[Plan, list[Forecast]]:
    """Expand and tokenise every setting of the run, and count the complete prompts.

    Without `tokens` no prompt is tokenised, and every prompt counts as short enough.

    Raises:
        InputError: the configuration is wrong, or the engine cannot compute with the weights here.
    """
    plan = build_requested_plan(run)
    run = plan.run
    if run.answers is None and not all(b.answers.is_complete() for b in plan.branches):
        check_weights(run, run.model)
        warn_of_silent_servers(run)
    facts = read_sources(plan)
    recipes = Recipes(plan.store, (step.artifact.recipe for step in plan.steps))
    forecasts = [_forecast_setting(plan, branch, facts, tokens=tokens) for branch in plan.branches]
    for figures in forecasts if run.answers is None else ():
        figures.differences = _explain_missing(figures.branch.answers, recipes)
    return plan, forecasts


def _explain_missing(answers: Artifact, recipes: Recipes) -> list[str]:
    """The few fields in which missing answers differ from the nearest complete ones."""
    if answers.is_complete() or answers.shards(answers.stage):
        return []
    nearest: list[str] = []
    for name in answers.store.folders(answers.stage):
        recipe = recipes.get(name)
        if recipe is None or not Artifact(answers.store, recipe).is_complete():
            continue
        fields = explain_difference(recipe, answers.recipe, recipes)
        if 0 < len(fields) <= _FEW and not any(text.startswith(_MODEL) for text in fields):
            nearest = min(nearest or fields, fields, key=len)
    return [text.replace("fields.", "").replace('"', "") for text in nearest]


def _forecast_setting(plan: Plan, branch: Branch, facts: Facts, *, tokens: bool) -> Forecast:
    figures, run = Forecast(branch, pairs=facts.pairs.height), plan.run
    facts = branch.expand.unify_shown_labels(facts)
    choose = _build_chooser(run, branch, facts)
    for expansion in run.method.ask.expand(facts, branch.setting, seed=run.seed):
        rows, name = expansion.prompts, expansion.relation_id
        last = list_shard_ends(rows.height, run.cluster.rows_per_shard)
        figures.n_whole += rows.height
        if tokens:
            leaks = count_demonstrations(expansion, facts.pairs)
            figures.leaks = DemonstrationCounts(*map(add, figures.leaks, leaks))
        if choose is None:
            figures.prompts[name] = rows.height
            figures.shards += len(last)
            figures.duplicates += rows["same_as"].count()
        else:
            chosen = choose(expansion)
            needed = chosen.select(prompt_id="source_id").unique()
            figures.prompts[name] = chosen.height
            places = rows.with_row_index("place").join(needed, on="prompt_id", how="semi")["place"]
            figures.shards += len(set(np.searchsorted(last, places.to_numpy(), side="right")))
            figures.duplicates += chosen.height - needed.height
            figures.needed.append(needed)
        _count_relation(plan, figures, expansion, tokens=tokens)
    _count_left(plan.run, figures)
    return figures


def _build_chooser(
    run: Run, branch: Branch, facts: Facts
) -> Callable[[Expansion], pl.DataFrame] | None:
    """A function that selects the prompts of a relation for the budget; null without a budget."""
    if branch.chosen is None:
        return None
    stage = branch.step(branch.chosen).stage
    assert isinstance(stage, Choose)
    expansions = run.method.ask.expand(facts, branch.setting, seed=run.seed)
    designs = {e.relation_id: stage.design(e.relation_id, e.prompts) for e in expansions}
    samples = stage.choose_samples(designs).samples
    return lambda expansion: stage.of(samples[expansion.relation_id], expansion.prompts)


def _count_relation(plan: Plan, figures: Forecast, expansion: Expansion, *, tokens: bool) -> None:
    """Add a relation: the prompts to ask, their tokens, and the prompts that are too long."""
    for question in figures.branch.questions():
        rows = question.select_rows(expansion.of(question.source))
        if figures.branch.chosen is not None:
            rows = rows.join(figures.needed[-1], on="prompt_id", how="semi", maintain_order="left")
        if not tokens:
            figures.n_asked[question.table] += rows.height
            continue
        for part in rows.iter_slices(_PROMPTS_AT_ONCE):
            tokenizer = models.tokenizer(plan.weights)
            ids = longest_ids = question.task.token_ids(tokenizer, part["text"].to_list())
            if expansion.candidate_sets is not None:
                texts = expansion.longest_texts(part).to_list()
                longest_ids = question.task.token_ids(tokenizer, texts)
            limit = room(plan.run)
            fits = pl.Series([len(prompt) <= limit for prompt in longest_ids], dtype=pl.Boolean)
            figures.n_asked[question.table] += int(fits.sum())
            figures.asked_tokens[question.table] += sum(map(len, compress(ids, fits)))
            if question.table == plan.run.method.ask.ability.answers:
                check_reading(question.task, tokenizer, part)
                if not figures.first:
                    is_sent = plan.run.model.endpoint is not None  # the server renders the prompt
                    figures.first = part["text"][0] if is_sent else visible(tokenizer, ids[0])
                    figures.warnings = question.task.warnings(tokenizer, part["text"][0])
                figures.tokens += sum(map(len, ids))
                figures.shared_tokens += n_shared(ids)
                figures.too_long.update(part["prompt_id"].filter(~fits))
                if expansion.candidate_sets is not None:
                    fitting = part.filter(fits)
                    sets = expansion.candidate_sets.join(fitting, on="candidates_id", how="semi")
                    figures.name_tokens += _name_tokens(fitting, sets, question.task, tokenizer)


def _name_tokens(rows: pl.DataFrame, sets: pl.DataFrame, task: Task, tokenizer: Any) -> int:
    names = sets.select("candidates_id", name="labels").explode("name").drop_nulls()
    texts = names["name"].unique()
    anchor, *ids = task.token_ids(tokenizer, ["a", *("a " + texts)])
    lengths = pl.DataFrame({"name": texts, "n": [len(name) - len(anchor) for name in ids]})
    by_set = names.join(lengths, on="name").group_by("candidates_id").agg(pl.sum("n"))
    return int(rows.select("candidates_id").join(by_set, on="candidates_id")["n"].sum())


def _count_left(run: Run, figures: Forecast) -> None:
    branch = figures.branch
    n_unanswered = _count_unanswered(run, figures)
    for step in branch.steps:
        artifact, question = step.artifact, step.question
        if question is not None:
            n = n_unanswered.get(artifact.folder, figures.n_asked[artifact.stage])
            figures.n_left[artifact.stage] += n * question.task.answers_per_prompt
        else:
            n = figures.pairs if step in branch.sources() else figures.n_whole
            figures.n_left[artifact.stage] = 0 if artifact.is_complete() else n


def _count_unanswered(run: Run, figures: Forecast) -> dict[str, int]:
    """The number of prompts without an answer, by artifact; only of artifacts where it is known."""
    branch = figures.branch
    if not (branch.prompts.is_complete() and branch.admitted.is_complete()):
        return {artifact.folder: 0 for artifact in branch.list_outputs() if artifact.is_complete()}
    if branch.chosen is not None:  # the chosen prompts may not be written yet
        steps = ((step, step.question) for step in branch.steps if step.question is not None)
        whole_steps = (replace(step, question=replace(q, part=None)) for step, q in steps)
        whole_branch = replace(branch, steps=tuple(whole_steps))
        rows = remaining_prompts.find_unanswered([*list_branch_work(run, whole_branch)])
        needed = pl.concat(figures.needed)
        n = sum(ids.join(needed, on="prompt_id", how="semi").height for ids in rows)
        return {branch.answers.folder: n}
    n_left = {artifact.folder: 0 for artifact in branch.list_outputs()}
    items = list(list_branch_work(run, branch))
    for item, n in zip(items, remaining_prompts.count_left(items), strict=True):
        n_left[item.artifact.folder] += n
    return n_left


def list_missing_answers(plan: Plan, forecasts: list[Forecast]) -> pl.DataFrame:
    """The missing answers by stage and setting: stage, setting, model, answers."""
    rows: dict[tuple[str, str | None], dict[str, Any]] = {}
    for figures in forecasts:
        for step in figures.branch.steps:
            stage = step.artifact.stage
            setting = None if step in figures.branch.sources() else figures.branch.title
            model = plan.run.model.name if stage in figures.n_asked else None
            row = {"stage": stage, "setting": setting, "model": model}
            rows[stage, setting] = {**row, "answers": figures.n_left[stage]}
    return pl.DataFrame(list(rows.values()), schema=_WORK).filter(pl.col("answers") > 0)


def lines(plan: Plan, forecasts: list[Forecast]) -> Iterator[str]:
    """The plan as text."""
    run = plan.run
    model = f"{run.model.name} ({plan.weights.revision})"
    computed = f" in {run.model.computed_in}" if run.model.computed_in else ""
    table = f"; {run.table}" if run.table else ""
    yield f"{run.name}: {model} on {run.benchmark.name}{computed}{table}"
    if run.model.source == "absent":
        yield (
            "approximate     the tokenizer is not at hand: tokens are counted with another one "
            f"({plan.weights.content['tokenizer']}), and earlier answers are not looked for"
        )
    yield _describe_model(run)
    yield from (f"warning: {sentence}" for sentence in warnings(plan))
    for figures in forecasts if run.budget is not None else ():
        n, n_whole = sum(figures.prompts.values()), figures.n_whole
        first, *further_lines = describe_budget(
            run, figures.branch.title, n, n_whole, figures.pairs
        )
        yield f"budget          {first}"
        yield from (f"                {line}" for line in further_lines)
    if run.target is not None:
        yield f"                and then more, until {run.target}: the plan is of the first look"
    if (until := run.decoding.samples.until) is not None:
        yield f"samples         until {until}: the plan is of decoding.samples.n_answers, the most"
    for figures in forecasts:
        yield ""
        yield from _describe_setting(figures)
    yield ""
    yield from _describe_price(plan, forecasts)
    yield from _describe_costs(plan, forecasts)


def _describe_model(run: Run) -> str:
    model = run.model
    most = f"at most {model.max_model_len:,} tokens"
    if model.endpoint is not None:
        way = "in a chat" if model.chat_template else "as raw text"
        server = f"{model.id} at {name_servers(model.urls)}, asked {way}"
        return f"model           {server}, {most}, {_name_tokenizer(model)}"
    gpus, scheme = gpus_per_engine(run), model_metadata.scheme(model)
    device = f"on {gpus} GPU{'s' * (gpus > 1)} per engine" if gpus else "on the CPU"
    size = f"{model.billions_of_parameters or 0:g} billion parameters"
    weights = f"{model.architecture}, {size}{f' ({scheme})' if scheme else ''}"
    parallel = f"(model.tensor_parallel={model.tensor_parallel})"
    return f"model           {weights}, {most}, {device} {parallel}"


def _name_tokenizer(model: Model) -> str:
    return f"counted with {model.tokenizer}" if model.tokenizer else "estimated"


def _describe_setting(figures: Forecast) -> Iterator[str]:
    n = sum(figures.prompts.values())
    yield figures.branch.title
    by_relation = ", ".join(f"{relation} {rows:,}" for relation, rows in figures.prompts.items())
    yield f"  prompts         {n:,} ({by_relation})"
    yield f"  first prompt    {figures.first!r}"
    yield from (f"  warning         {warning}" for warning in figures.warnings)
    yield f"  duplicates      {figures.duplicates:,} ({figures.duplicates / max(1, n):.1%})"
    if any(figures.leaks):
        objects, subjects = figures.leaks
        yield (
            f"  shown           {objects:,} prompts ({objects / figures.n_whole:.1%}) have a right "
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
    for stage, n in figures.n_asked.items():
        purpose = f": {BESIDE[stage]}" if stage in BESIDE else ""
        yield f"  {stage:15} {n:,} prompts, {figures.n_left[stage]:,} answers left{purpose}"
    if figures.differences:
        yield f"  decoded anew because: {'; '.join(figures.differences)}"


def _describe_price(plan: Plan, forecasts: list[Forecast]) -> Iterator[str]:
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
    price = prices(model)
    if price is None:
        yield "cost            unknown: give model.price_in and model.price_out, per million tokens"
        return
    prompt, output = expected.prompt_tokens, expected.output_tokens
    cost = [price.of(prompt, 0), price.of(0, output)]
    yield (
        f"cost            {cost[0]:,.4f} for {prompt:,} tokens of prompts "
        f"({_name_tokenizer(model)}), "
        f"at most {cost[1]:,.4f} for {output:,} of answers; at most {sum(cost):,.4f} in all"
    )
    most_cost = price.of(most.prompt_tokens, most.output_tokens)
    if most.n > expected.n:
        yield f"                at most {most_cost:,.4f} in all{if_single}"
    spent = sum_costs(plan)
    if run.max_cost is not None:
        enough = "is enough" if spent + most_cost <= run.max_cost else "may end the run before"
        yield f"                {spent:,.4f} is spent; max_cost={run.max_cost:g} {enough}"


class _RequestTotals(NamedTuple):
    """Requests to a server, the tokens of their prompts, and the most tokens of their answers."""

    n: int
    prompt_tokens: int
    output_tokens: int


def _requests_left(
    plan: Plan, forecasts: list[Forecast], n_per_prompt: float | None
) -> _RequestTotals:
    """The requests left; the samples of a prompt take `n_per_prompt` requests, or one each (null).

    Prompts left count with the mean length of all; thoughts count as tokens of answers. Questions
    about answers count with the most tokens that they may have.
    """
    n, prompt_tokens, output_tokens, decoding = 0.0, 0.0, 0, plan.run.decoding
    most = decoding.max_tokens + (decoding.thinking_tokens if plan.run.model.thinking else 0)
    for figures in forecasts:
        for question in figures.branch.questions():
            n_asked, n_left = figures.n_asked[question.table], figures.n_left[question.table]
            n_answers = question.task.answers_per_prompt
            n_requests = n_left / n_answers * min(n_per_prompt or n_answers, n_answers)
            further_requests = question.task.further
            n_requests += n_left * further_requests.requests
            n += n_requests
            prompt_tokens += n_requests * figures.asked_tokens[question.table] / max(1, n_asked)
            prompt_tokens += n_left * further_requests.prompt_tokens
            output_tokens += n_left * (most + further_requests.output_tokens)
    return _RequestTotals(round(n), round(prompt_tokens), output_tokens)


def _describe_costs(plan: Plan, forecasts: list[Forecast]) -> Iterator[str]:
    work = list_missing_answers(plan, forecasts)
    if work.is_empty():
        yield "time            nothing is left to do"
        return
    costs = predict_costs(plan, work)
    free, needed = plan.store.free(), float(costs["bytes"].fill_null(0).sum())
    if free is not None and needed:  # the free space of a URL is unknown
        fix = "; too little: free some, or give artifacts= on a larger disk"
        warning = fix if needed > free else ""
        yield f"disk            {needed / 1e9:,.2f} GB to write, {free / 1e9:,.0f} GB free{warning}"
    gpu_hours = [HOURS.column(pl.col("gpu_hours")).alias("GPU-hours")]
    table = costs.select(
        "setting",
        "stage",
        COUNT.column(pl.col("answers")),
        *(gpu_hours if resolve_place(plan.run).gpus else []),
        HOURS.column(pl.col("core_hours")).alias("core-hours"),
        MEGABYTES.column(pl.col("bytes")).alias("MB"),
        pl.col("basis").fill_null("unknown").alias("rate"),
    )
    yield markdown(table)
    yield _describe_time(plan.run, costs, work)


def _describe_time(run: Run, costs: pl.DataFrame, work: pl.DataFrame) -> str:
    engines = costs.join(work.drop_nulls("model"), on=["stage", "setting"], how="semi")
    if engines.is_empty():
        return "time            nothing is left to decode; the rest needs no engine"
    timed, replicas = engines.drop_nulls("seconds"), most_engines(run)
    never = sorted(set(engines.filter(pl.col("seconds").is_null())["stage"]))
    fix = describe_unmeasured(run, never)
    rough = engines.drop_nulls("least")
    if timed.height + rough.height < engines.height:
        return f"time            unknown: {fix}"
    if never:
        timed_s = float(timed["seconds"].sum())
        least, most = ((timed_s + float(rough[end].sum())) / replicas for end in ("least", "most"))
        span = about(least, most)
        return f"time            {span} of decoding with {replicas} replicas: {fix}"
    gpu_hours, core_hours = timed["gpu_hours"].sum(), timed["core_hours"].sum()
    hours = f"{gpu_hours:.2f} GPU-hours" if gpu_hours else f"{core_hours:.2f} core-hours"
    wall = clock(float(timed["seconds"].sum()) / replicas)
    return f"time            {wall} of decoding with {replicas} replicas, {hours}"


def about(least: float, most: float) -> str:
    """A range of seconds in words, to two digits.

    >>> about(700, 2400), about(9000, 180_000), about(10**6, 10**7)
    ('about 12 to 40 minutes', 'about 2.5 to 50 hours', 'about 12 to 120 days')
    """
    units = ((120, 1, "seconds"), (7200, 60, "minutes"), (200_000, 3600, "hours"))
    size, name = next(((s, n) for limit, s, n in units if most <= limit), (86_400, "days"))
    low, high = (f"{float(f'{seconds / size:.2g}'):g}" for seconds in (least, most))
    return f"about {low} to {high} {name}"
