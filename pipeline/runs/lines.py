"""plan: what a run would compute, in words."""

from collections.abc import Iterator
from typing import NamedTuple

import polars as pl

from factsweep.operators.methods.ability import BESIDE, PREFER
from factsweep.operators.tables.formats import markdown
from factsweep.operators.tables.shared.numbers import COUNT, HOURS, MEGABYTES
from factsweep.pipeline.cluster.hardware import gpus_per_engine, most_engines, prices
from factsweep.pipeline.config import described
from factsweep.pipeline.config.budget import budget_lines
from factsweep.pipeline.config.model import Model
from factsweep.pipeline.config.run import Run
from factsweep.pipeline.decoding import rates
from factsweep.pipeline.decoding.progress import clock
from factsweep.pipeline.decoding.remaining import paid, requests_per_prompt
from factsweep.pipeline.runs.forecast import Forecast, work_left
from factsweep.pipeline.stages.plan import Plan, warnings


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
    place = rates.place(plan.run)
    work = work_left(plan, forecasts)
    if work.is_empty():
        yield "time            nothing is left to do"
        return
    costs = rates.predicted(plan, work)
    yield from _disk_line(plan, costs)
    yield markdown(_table(costs, gpus=place.gpus))
    yield _time_line(plan.run, costs, work)


def _disk_line(plan: Plan, costs: pl.DataFrame) -> Iterator[str]:
    """What is written, beside what the disk of the artifacts has room for; of a folder alone."""
    free, needed = plan.store.free(), float(costs["bytes"].fill_null(0).sum())
    if free is not None and needed:
        fix = "; too little: free some, or give artifacts= on a larger disk"
        few = fix if needed > free else ""
        yield f"disk            {needed / 1e9:,.2f} GB to write, {free / 1e9:,.0f} GB free{few}"


def _table(costs: pl.DataFrame, *, gpus: int) -> pl.DataFrame:
    return costs.select(
        "setting",
        "stage",
        COUNT.column(pl.col("answers")),
        *([HOURS.column(pl.col("gpu_hours")).alias("GPU-hours")] if gpus else []),
        HOURS.column(pl.col("core_hours")).alias("core-hours"),
        MEGABYTES.column(pl.col("bytes")).alias("MB"),
        pl.col("basis").fill_null("unknown").alias("rate"),
    )


def _time_line(run: Run, costs: pl.DataFrame, work: pl.DataFrame) -> str:
    engines = costs.join(work.drop_nulls("model"), on=["stage", "setting"], how="semi")
    if engines.is_empty():
        return "time            nothing is left to decode; what is left needs no engine"
    known = engines.drop_nulls("seconds")
    never = sorted(set(engines.filter(pl.col("seconds").is_null())["stage"]))
    fix = rates.unknown(run, never)
    if known.is_empty() and never:
        return f"time            unknown: {fix}"
    gpu_hours, core_hours = known["gpu_hours"].sum(), known["core_hours"].sum()
    used = f"{gpu_hours:.2f} GPU-hours" if gpu_hours else f"{core_hours:.2f} core-hours"
    replicas = most_engines(run)
    wall = clock(float(known["seconds"].sum()) / replicas)
    time = f"time            {wall} of decoding with {replicas} replicas, {used}"
    return f"{time}, not counting what is unknown: {fix}" if never else time
