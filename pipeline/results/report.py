"""report: metrics → results/, for people and for programs.

<run name>/metrics.parquet   every number of a run, tidy
           tables/           those of the benchmark's method, and cost: as Markdown, CSV and LaTeX
           figures/          its figures, as PNG and SVG
           run.json          configuration, versions, commits, hardware, durations, cost
           index.html        all of it on one page that opens from disk
           export/           what `export` writes; removed when a later run measures something else
report/<benchmark>/          the same tables, figures and page of several runs together; those
                             over other facts are apart
report/estimates/            what runs with a budget have estimated, apart from full numbers
       index.html            a list of these pages; those of an earlier report are removed
"""

import hashlib
import json
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import polars as pl

from factsweep.operators.cost import PREDICTED, SPENT, predict
from factsweep.operators.errors import DamagedFileError
from factsweep.operators.methods import METHODS
from factsweep.operators.methods.method import Report, Result
from factsweep.operators.metrics.data_set.diversity import Encode, Parse
from factsweep.operators.metrics.estimates.seeds import mean_over_seeds, over_seeds
from factsweep.operators.pages.page import Entry, index
from factsweep.operators.schemas import empty
from factsweep.operators.tables.runs.cost import cost_table
from factsweep.operators.tables.runs.estimates import estimates_table
from factsweep.operators.tables.shared.answers import Answers
from factsweep.operators.tables.shared.asking import Asking
from factsweep.operators.tables.shared.seeds import has_seeds, seeds_table, with_seeds
from factsweep.pipeline.config.settings import Run
from factsweep.pipeline.costs.rates import place
from factsweep.pipeline.costs.spending import spent
from factsweep.pipeline.execution.plan import Plan
from factsweep.pipeline.inputs import catalog, models
from factsweep.pipeline.results import estimates, past
from factsweep.pipeline.results.pages import results_page
from factsweep.pipeline.results.past import PastBranch
from factsweep.pipeline.results.record import (
    ESTIMATES,
    EXPORTS,
    METRICS,
    NAME,
    TAKEN,
    read,
    record,
    recorded,
    taken,
)
from factsweep.pipeline.results.together import by_setting, together
from factsweep.pipeline.stages import facts as facts_stage
from factsweep.pipeline.storage.sealed import seal
from factsweep.pipeline.storage.shard import Place, encode
from factsweep.pipeline.storage.store import Store
from factsweep.pipeline.storage.tables import drop_reports, report_files, write_report

PAGE = "index.html"
_ESTIMATES = "estimates"  # the folder of those in a report
# Tables of seeds whose numbers are means over `n` rows each; `n` is what names a row of others.
_WEIGHTED = ("bins",)
_LOG = logging.getLogger("factsweep")
Counter = Callable[[Sequence[str]], Sequence[int]]


def write(plan: Plan, seconds: dict[str, float], known: pl.DataFrame | None = None) -> pl.DataFrame:
    """Write the run's results; returns its metrics.

    `known` are the rates that were known when the run began; null if there was nothing to compute.
    """
    store = folder(plan.run)
    content = record(plan, seconds, _taken(store, plan, seconds, known))
    branches = list(_branches(plan, json.loads(json.dumps(content))))
    result = measured(branches)
    if not plan.run.answers:
        result = replace(result, n_tokens=_token_counter(plan))
    metrics = result.tables["metrics"]
    found = _with_cost(shown(branches[0], result), branches[0].record)
    files = {
        METRICS: encode(metrics, Place("metrics", "", "metrics")),
        **dict(report_files(found)),
        PAGE: results_page(branches, result, found),
    }
    checksums = {name: hashlib.sha256(file).hexdigest() for name, file in files.items()}
    earlier = _written(store)
    _drop_stale(store, exports=earlier.get(METRICS) != checksums[METRICS])
    for name, file in files.items():
        _put(store, name, file)
    for name in earlier.keys() - files.keys():  # what an earlier run of the same name had
        _drop(store, name)
    _put(store, NAME, seal({**content, "files": checksums}, NAME))
    return metrics


def _written(store: Store) -> Mapping[str, str]:
    """The files of the results that are there with their SHA-256, as their run.json lists them."""
    try:
        return dict(read(store).get("files", {}))
    except (FileNotFoundError, DamagedFileError):
        return {}


def _drop_stale(store: Store, *, exports: bool) -> None:
    """Remove the estimates, which these results replace, and exports of other results."""
    stale = [name for name in ESTIMATES if store.exists(name)]
    if exports:
        stale += [f"{EXPORTS}/{name}" for name in store.files(EXPORTS)]
    for name in stale:
        _LOG.info("%s is of earlier results, and removed", store.where(name))
        _drop(store, name)


def _put(store: Store, name: str, content: bytes) -> None:
    """Write a file of the results; a folder that lies there is set aside."""
    try:
        store.put(name, content)
    except DamagedFileError as error:
        _LOG.warning("%s Set aside as %s.", error, store.where(store.set_aside(name)))
        store.put(name, content)


def _drop(store: Store, name: str) -> None:
    """Remove a file of the results; a folder that lies there is set aside."""
    try:
        store.drop(name)
    except DamagedFileError as error:
        _LOG.warning("%s Set aside as %s.", error, store.where(store.set_aside(name)))


def folder(run: Run) -> Store:
    """Where the results of a run are written."""
    return Store(f"{run.results.rstrip('/')}/{run.name}")


def _branches(plan: Plan, content: past.Record) -> Iterator[PastBranch]:
    """The settings of the run; inputs of the metrics may have been removed to save room."""
    for branch in plan.branches:
        yield past.setting(plan.run.name, content, branch.title, branch.artifacts())


def _taken(
    store: Store, plan: Plan, seconds: dict[str, float], known: pl.DataFrame | None
) -> dict[str, Any]:
    """When the run began, what it took, what was predicted; as recorded, if it computed nothing."""
    earlier = recorded(store, plan) if known is None else {}
    if earlier.keys() >= set(TAKEN):
        return {name: earlier[name] for name in TAKEN}
    took = spent(plan)
    started = datetime.now(UTC) - timedelta(seconds=seconds["total"])
    work = took.drop_nulls("answers").group_by("stage", "setting", maintain_order=True)
    asked = work.agg(pl.col("model").first(), pl.col("answers").sum())
    known = pl.DataFrame(schema=SPENT) if known is None else known
    predicted = predict(asked, known, place(plan.run))
    return taken(plan, started.isoformat(timespec="seconds"), took, predicted)


def write_past(
    names: Sequence[str],
    results: str,
    out: str,
    *,
    parse: Parse | None = None,
    encode: Encode | None = None,
) -> Iterator[str]:
    """Write past runs' tables, figures and pages together; yields where, and what was left out.

    Tables and figures are one folder per benchmark and part of its facts, with a page; an index
    lists the pages (`together`). `parse` and `encode` measure how different the templates are,
    which takes a while.

    Raises:
        InputError: no such runs, or one that is not whole.
    """
    asked = [
        each for each in names or estimates.known(results) if estimates.is_estimate(results, each)
    ]
    full = [each for each in names or past.known(results) if each not in asked]
    parts = together(past.branches(results, full)) if full or not asked else []
    entries: list[Entry] = []
    folders = {each.folder for each in parts} | ({_ESTIMATES} if asked else set())
    drop_reports(Store(out), besides=folders, files=[PAGE])
    for each in parts:
        store = Store(f"{out.rstrip('/')}/{each.folder}")
        result = replace(measured(each.branches), parse=parse, encode=encode)
        report = shown(each.branches[0], result)
        write_report(store, report)
        store.put(PAGE, results_page(each.branches, result, report, each.notes))
        runs = ", ".join(sorted({f"{one.run}{_trusted(one)}" for one in each.branches}))
        entries.append(Entry(f"{each.folder}/{PAGE}", each.folder, runs))
        yield (
            f"{store.where(PAGE)}: {len(report.tables)} tables, {len(report.figures)} figures "
            f"of {runs}"
        )
        yield from (f"  {note}" for note in each.notes)
    if asked:
        entries.append(_write_estimates(asked, results, out))
        yield f"{Store(out).where(entries[-1].link)}: estimates of {entries[-1].lead}"
    whole = Store(out)
    whole.put(PAGE, index("Results by benchmark", entries).encode())
    yield whole.where(PAGE)
    yield from _write_pages(full, results)


def _write_estimates(names: Sequence[str], results: str, out: str) -> Entry:
    """Write the estimates of runs together, in a folder of their own; no full number is there."""
    found = [estimates.read(results, name) for name in names]
    table = estimates_table(pl.concat(each.found.estimates for each in found), whose=True)
    store = Store(f"{out.rstrip('/')}/{_ESTIMATES}")
    write_report(store, Report({_ESTIMATES: table}))
    store.put(PAGE, estimates.page_of(found).encode())
    title = "Estimates from a part of the prompts"
    return Entry(f"{_ESTIMATES}/{PAGE}", title, ", ".join(sorted(names)))


def _write_pages(names: Sequence[str], results: str) -> Iterator[str]:
    """Write the page of each run that has none, as it was made before there were pages."""
    for name in names:
        store = Store(f"{results.rstrip('/')}/{name}")
        if store.exists(PAGE):
            continue
        branches = past.branches(results, [name])
        store.put(PAGE, results_page(branches, measured(branches), reported(branches)))
        yield store.where(PAGE)


def reported(branches: Sequence[PastBranch]) -> Report:
    """The tables and figures of one run, from its settings."""
    return _with_cost(shown(branches[0], measured(branches)), branches[0].record)


def shown(branch: PastBranch, result: Result) -> Report:
    """What the method of a branch shows of a result; means over seeds are marked as such."""
    report, metrics = METHODS[branch.method].show.report(result), result.tables["metrics"]
    if not has_seeds(metrics):
        return report
    tables = {name: with_seeds(table, metrics) for name, table in report.tables.items()}
    titles = {**report.titles, "seeds": "Several seeds: mean and standard deviation"}
    return replace(report, tables={**tables, "seeds": seeds_table(metrics)}, titles=titles)


def _with_cost(report: Report, record: past.Record) -> Report:
    """The report, and what each stage took and was predicted to take, if that was written down."""
    if "spent" not in record:
        return report
    took = pl.DataFrame(record["spent"], schema=SPENT)
    table = cost_table(took, pl.DataFrame(record["predicted"], schema=PREDICTED))
    titles = {**report.titles, "cost": "What each stage took, and what was predicted"}
    return replace(report, tables={**report.tables, "cost": table}, titles=titles)


def _trusted(branch: PastBranch) -> str:
    trusted = branch.record["run"]["model"].get("trust_remote_code")
    return " (model.trust_remote_code=true)" if trusted else ""


def measured(branches: Sequence[PastBranch]) -> Result:
    """What was measured; several seeds of a setting are one row of each table."""
    method = METHODS[branches[0].method]
    parameters = [
        {"model": model, "metric": "billions_of_parameters", "value": billions}
        for model, billions in {b.model: b.billions_of_parameters for b in branches}.items()
        if billions is not None
    ]
    seeds = list(by_setting(branches).values())
    costs = [[_cost_row(_runtime(branch)) for branch in each] for each in seeds]
    return Result(
        facts_stage.load(branches[0].artifacts["facts"]),
        {table: _of_seeds(seeds, table) for table in method.measure.measured},
        costs=pl.concat(
            [*map(over_seeds, costs), *(_cost_row(each) for each in parameters)], how="diagonal"
        ),
        answers=_answers(branches),
        cutoffs={b.model: b.training_cutoff for b in branches if b.training_cutoff},
        published=catalog.published(method.show.published),
    )


def _of_seeds(seeds: Sequence[Sequence[PastBranch]], table: str) -> pl.DataFrame:
    """A measured table of all settings; several seeds of one are one row."""
    settings = [[branch.metrics.read_all(table) for branch in each] for each in seeds]
    if all(len(each) == 1 for each in settings):
        return pl.concat([rows for each in settings for rows in each])
    if table == "metrics":
        return pl.concat(map(over_seeds, settings))
    weight = "n" if table in _WEIGHTED else None
    return pl.concat(mean_over_seeds(each, weight=weight) for each in settings)


def _cost_row(row: Mapping[str, Any]) -> pl.DataFrame:
    return pl.DataFrame([row], schema=empty("metrics").schema)


def _runtime(branch: PastBranch) -> dict[str, Any]:
    """The engine-hours of the answers to all prompts, as a row of the metrics table."""
    fields, answers = branch.metrics.recipe.fields, branch.answers
    names = {name: fields[name] for name in ("model", "setting", "variant")}
    seconds = [each.get("seconds") for each in answers.counts(answers.stage).values()]
    known = [float(each) for each in seconds if each is not None]
    return {**names, "metric": "runtime_hours", "value": sum(known) / 3600 if known else None}


def _answers(branches: Sequence[PastBranch]) -> dict[Asking, Answers]:
    """The answers of each setting; of several seeds, the first's. None that were removed."""
    found: dict[Asking, Answers] = {}
    for branch in branches:
        matched, fields = branch.artifacts["matched"], branch.metrics.recipe.fields
        run = Asking(fields["model"], fields["setting"], fields["variant"])
        table = METHODS[branch.method].measure.answers
        if matched.is_complete():
            relations = tuple(matched.shards(table))
            found.setdefault(run, Answers(relations, partial(matched.read, table)))
    return found


def _token_counter(plan: Plan) -> Counter:
    """Counts the tokens of texts, as the run's model has them."""

    def n_tokens(texts: Sequence[str]) -> list[int]:
        tokenizer = models.tokenizer(plan.weights)
        return [len(ids) for ids in tokenizer(list(texts), add_special_tokens=False).input_ids]

    return n_tokens
