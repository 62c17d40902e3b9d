"""report: metrics → results/, for people and for programs.

<run name>/metrics.parquet   every number of a run, tidy
           tables/           the tables of the benchmark's method, as Markdown, CSV and LaTeX
           figures/          its figures, as PNG and SVG
           tables/cost       what each stage took, beside what was predicted of it
           run.json          configuration, versions, commits, hardware, durations, cost
report/<benchmark>/          the same tables and figures of several runs together
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import polars as pl

from operators.cost import SPENT, predict
from operators.methods import METHODS
from operators.methods.method import Result
from operators.schemas import empty
from operators.tables.asking import Asking
from operators.tables.cost import cost_table
from pipeline import catalog, models, past
from pipeline.artifact import Artifact, encode
from pipeline.past import PastBranch
from pipeline.plan import Plan
from pipeline.rates import place
from pipeline.record import Began, record, recorded
from pipeline.spending import spent
from pipeline.stages import facts as facts_stage
from pipeline.store import Store
from pipeline.writing import write_report, write_tables

Counter = Callable[[Sequence[str]], Sequence[int]]


def write(plan: Plan, seconds: dict[str, float], known: pl.DataFrame | None = None) -> pl.DataFrame:
    """Write the run's results; returns its metrics.

    `known` are the rates that were known when the run began; null if there was nothing to compute.
    """
    store = Store(f"{plan.run.results.rstrip('/')}/{plan.run.name}")
    n_tokens = None if plan.run.answers else _token_counter(plan)
    branches = [{each.stage: each for each in branch.artifacts()} for branch in plan.branches]
    model = plan.run.model
    sizes = {model.name: model.billions_of_parameters}
    cutoffs = {model.name: model.training_cutoff} if model.training_cutoff else {}
    result = _result(plan.run.benchmark.method, branches, sizes)
    result = replace(result, n_tokens=n_tokens, cutoffs=cutoffs)
    metrics = result.tables["metrics"]
    store.put("metrics.parquet", encode(metrics, "metrics", "", {}))
    write_report(store, plan.run.method.report(result))
    took = spent(plan)
    began = _began(store, plan, took, seconds, known)
    write_tables(store, {"tables/cost": cost_table(took, began.predicted)})
    store.put("run.json", json.dumps(record(plan, seconds, began), indent=1).encode())
    return metrics


def _began(
    store: Store,
    plan: Plan,
    took: pl.DataFrame,
    seconds: dict[str, float],
    known: pl.DataFrame | None,
) -> Began:
    """When the run began and what was predicted of it; as recorded, if nothing was computed."""
    if known is None and (earlier := recorded(store, plan)) is not None:
        return earlier
    started = datetime.now(UTC) - timedelta(seconds=seconds["total"])
    work = took.drop_nulls("answers").group_by("stage", "setting", maintain_order=True)
    asked = work.agg(pl.col("model").first(), pl.col("answers").sum())
    known = pl.DataFrame(schema=SPENT) if known is None else known
    return Began(started.isoformat(timespec="seconds"), predict(asked, known, place(plan.run)))


def write_past(names: Sequence[str], results: str, out: str) -> Iterator[str]:
    """Write the tables and figures of past runs together; says where, a benchmark a folder.

    Raises:
        InputError: no such runs, or two that measured the same in different ways.
    """
    together: dict[tuple[str, str], list[PastBranch]] = {}
    for branch in past.branches(results, names):
        family = METHODS[branch.method].published
        together.setdefault((family, branch.benchmark), []).append(branch)
    for (_, benchmark), branches in together.items():
        store = Store(f"{out.rstrip('/')}/{benchmark}")
        method = branches[0].method
        sizes = {each.model: each.billions_of_parameters for each in branches}
        result = _result(method, [each.artifacts for each in branches], sizes)
        cutoffs = {b.model: b.training_cutoff for b in branches if b.training_cutoff}
        result = replace(result, answers=_answers(branches), cutoffs=cutoffs)
        report = METHODS[method].report(result)
        write_report(store, report)
        runs = sorted({f"{each.run}{_trusted(each)}" for each in branches})
        yield (
            f"{store.where()}: {len(report.tables)} tables, {len(report.figures)} figures "
            f"of {', '.join(runs)}"
        )


def _trusted(branch: PastBranch) -> str:
    return " (model.trust_remote_code=true)" if branch.trust_remote_code else ""


def _result(
    method: str,
    branches: Sequence[dict[str, Artifact]],
    sizes: Mapping[str, float],
) -> Result:
    """What was measured; `sizes` has the billions of parameters of each model."""
    parameters = [
        {"model": model, "metric": "billions_of_parameters", "value": billions}
        for model, billions in sizes.items()
    ]
    return Result(
        facts_stage.load(branches[0]["facts"]),
        {
            table: pl.concat([branch["metrics"].read_all(table) for branch in branches])
            for table in METHODS[method].measured
        },
        costs=pl.DataFrame([*map(_runtime, branches), *parameters], schema=empty("metrics").schema),
        published=catalog.published(METHODS[method].published),
    )


def _runtime(branch: dict[str, Artifact]) -> dict[str, Any]:
    """The engine-hours of the answers to all prompts, as a row of the metrics table."""
    names = {
        name: branch["metrics"].recipe.fields[name] for name in ("model", "setting", "variant")
    }
    answers = next(
        branch[stage] for stage in ("generations", "masked", "scores") if stage in branch
    )
    seconds = [each.get("seconds") for each in answers.counts(answers.stage).values()]
    known = [float(each) for each in seconds if each is not None]
    return {**names, "metric": "runtime_hours", "value": sum(known) / 3600 if known else None}


def _answers(branches: Sequence[PastBranch]) -> dict[Asking, Callable[[], pl.DataFrame]]:
    """What loads each run's answers."""
    found: dict[Asking, Callable[[], pl.DataFrame]] = {}
    for branch in branches:
        matched, fields = branch.artifacts["matched"], branch.metrics.recipe.fields
        run = Asking(fields["model"], fields["setting"], fields["variant"])
        found[run] = partial(matched.read_all, METHODS[branch.method].matched[0])
    return found


def _token_counter(plan: Plan) -> Counter:
    """Counts the tokens of texts, as the run's model has them."""
    tokenizer = models.tokenizer(plan.weights)
    return lambda texts: [
        len(ids) for ids in tokenizer(list(texts), add_special_tokens=False).input_ids
    ]
