"""What a run writes: metrics → results/, for people and for programs.

<run name>/metrics.parquet   every number of a run, tidy
           tables/           those of the benchmark's method, and cost: as Markdown, CSV and LaTeX
           figures/          its figures, as PNG and SVG
           run.json          configuration, versions, commits, hardware, durations, cost
           index.html        all of it on one page that opens from disk
           export/           what `export` writes; removed when a later run measures something else
"""

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import polars as pl

from factsweep.operators.datasets.facts import Facts
from factsweep.operators.errors import DamagedFileError, printable
from factsweep.operators.methods.method import Report, Result, joined
from factsweep.operators.metrics.shared.rows import over_seeds
from factsweep.operators.schemas import empty
from factsweep.operators.tables.shared.paper_table import beside, of_other_facts
from factsweep.operators.tables.shared.wide import (
    Answers,
    Asking,
    has_seeds,
    seeds_table,
    with_seeds,
)
from factsweep.pipeline.config.run import Run
from factsweep.pipeline.decoding.rates import spent
from factsweep.pipeline.decoding.spent import SPENT, cost_table
from factsweep.pipeline.inputs import catalog, models
from factsweep.pipeline.machine.logs import LOG
from factsweep.pipeline.results import past, record
from factsweep.pipeline.results.doubts import doubts
from factsweep.pipeline.results.leaks import TITLE, leaks, leaks_table, said
from factsweep.pipeline.results.metrics import metrics as written_metrics
from factsweep.pipeline.results.metrics import of_seeds
from factsweep.pipeline.results.pages import results_page
from factsweep.pipeline.results.past import PastBranch
from factsweep.pipeline.results.record import ESTIMATES, METRICS, NAME
from factsweep.pipeline.stages.plan import Plan
from factsweep.pipeline.storage.sealed import seal
from factsweep.pipeline.storage.shard import Place, encode
from factsweep.pipeline.storage.store import Store, below
from factsweep.pipeline.storage.tables import report_files

PAGE = "index.html"


def write(plan: Plan, seconds: dict[str, float], *, is_new: bool = False) -> pl.DataFrame:
    """Write the run's results, unless the same are there; returns its metrics.

    `is_new`: something was computed, so the run's times are those of this time.
    """
    store = folder(plan.run)
    content = record.record(plan, seconds, _taken(store, plan, seconds, is_new=is_new))
    earlier = record.earlier(store)
    if (standing := _standing(store, earlier, content)) is not None:
        return standing
    branches = list(_branches(plan, json.loads(json.dumps(content))))
    result = measured(branches)
    if not plan.run.answers:
        result = replace(result, n_tokens=partial(_n_tokens, plan))
    metrics, leaking = result.tables["metrics"], leaks(branches)
    notes = [*doubts(branches), *published_notes(branches[0], result), *said(leaking)]
    for each in notes:
        LOG.warning("%s", each)
    found = _whole(branches, result, leaking)
    files = {
        METRICS: encode(metrics, Place("metrics", "", "metrics")),
        **dict(report_files(found)),
        PAGE: results_page(branches, result, found, notes),
    }
    checksums = {name: hashlib.sha256(each).hexdigest() for name, each in files.items()}
    written = earlier.get("files", {})
    _drop_stale(store, exports=written.get(METRICS) != checksums[METRICS])
    for name, made in files.items():
        _freely(store, store.put, name, made)
    for name in written.keys() - files.keys():  # what an earlier run of the same name had
        _freely(store, store.drop, name)
    content |= {"warnings": notes, "files": checksums}
    _freely(store, store.put, NAME, seal(content, NAME))
    return metrics


def _standing(
    store: Store, earlier: past.Record, content: Mapping[str, Any]
) -> pl.DataFrame | None:
    """The metrics of results that are there just as they would be written, and nothing else is."""
    if not record.is_same(earlier, content) or any(map(store.exists, ESTIMATES)):
        return None
    try:
        for name in earlier["files"]:
            record.file(store, earlier, name)
        notes, metrics = earlier["warnings"], written_metrics(store, earlier)
    except (DamagedFileError, KeyError):
        return None
    for each in notes:
        LOG.warning("%s", printable(each))
    return metrics


def _drop_stale(store: Store, *, exports: bool) -> None:
    """Remove the estimates, which these results replace, and exports of other results."""
    stale = [name for name in ESTIMATES if store.exists(name)]
    if exports:
        stale += [f"{record.EXPORTS}/{name}" for name in store.files(record.EXPORTS)]
    for name in stale:
        LOG.info("%s is of earlier results, and removed", store.where(name))
        _freely(store, store.drop, name)


def _freely(store: Store, do: Callable[..., object], name: str, *content: bytes) -> None:
    """Write or remove a file of the results; a folder that lies there is set aside."""
    try:
        do(name, *content)
    except DamagedFileError as error:
        LOG.warning("%s Set aside as %s.", error, store.where(store.set_aside(name)))
        do(name, *content)


def folder(run: Run) -> Store:
    """Where the results of a run are written."""
    return Store(below(run.results, run.name))


def _branches(plan: Plan, content: past.Record) -> Iterator[PastBranch]:
    """The settings of the run; inputs of the metrics may have been removed to save room."""
    for branch in plan.branches:
        yield past.setting(plan.run.name, content, branch.title, branch.artifacts())


def _taken(store: Store, plan: Plan, seconds: dict[str, float], *, is_new: bool) -> dict[str, Any]:
    """When the run began and what it took; as recorded, if it computed nothing."""
    earlier = {} if is_new else record.recorded(store, plan)
    if earlier.keys() >= set(record.TAKEN):
        return {name: earlier[name] for name in record.TAKEN}
    took = spent(plan)
    started = datetime.now(UTC) - timedelta(seconds=seconds["total"])
    return {
        "started": started.isoformat(timespec="seconds"),
        "cost": record.cost(plan),
        "spent": took.to_dicts(),
    }


def reported(branches: Sequence[PastBranch]) -> Report:
    """The tables and figures of one run, from its settings."""
    return _whole(branches, measured(branches), leaks(branches))


def _whole(branches: Sequence[PastBranch], result: Result, leaking: pl.DataFrame) -> Report:
    """What a run shows: that of its method, cost, and where prompts have their answer in them."""
    parts, written = [shown(branches[0], result)], branches[0].record
    if "spent" in written:  # not of a run that ended before this was noted
        took = pl.DataFrame(written["spent"], schema=SPENT)
        parts.append(Report({"cost": cost_table(took)}, titles={"cost": "The cost of each stage"}))
    if not leaking.is_empty():
        parts.append(Report({"leaks": leaks_table(leaking)}, titles={"leaks": TITLE}))
    return joined(*parts)


def shown(branch: PastBranch, result: Result) -> Report:
    """What the method of a branch shows of a result; means over seeds are marked as such."""
    report, metrics = branch.how.show.report(result), result.tables["metrics"]
    if not has_seeds(metrics):
        return report
    tables = {name: with_seeds(table, metrics) for name, table in report.tables.items()}
    titles = {"seeds": "Several seeds: mean and standard deviation"}
    seeds = Report({"seeds": seeds_table(metrics)}, titles=titles)
    return joined(replace(report, tables=tables), seeds)


def measured(branches: Sequence[PastBranch]) -> Result:
    """What was measured; several seeds of a setting are one row of each table."""
    method = branches[0].how
    seeds = list(past.by_setting(branches).values())
    costs = [over_seeds([_cost_row(_runtime(branch)) for branch in each]) for each in seeds]
    costs += [
        _cost_row({"model": model, "metric": "billions_of_parameters", "value": billions})
        for model, billions in {b.model: b.billions_of_parameters for b in branches}.items()
        if billions is not None
    ]
    facts = branches[0].facts
    return Result(
        facts,
        {table: of_seeds(seeds, table) for table in method.measure.measured},
        costs=pl.concat(costs, how="diagonal"),
        answers=_answers(branches),
        cutoffs={b.model: b.training_cutoff for b in branches if b.training_cutoff},
        published=_published(branches[0], facts),
    )


def _published(branch: PastBranch, facts: Facts) -> pl.DataFrame | None:
    """The numbers of the paper; those of a benchmark whose other facts were asked are marked."""
    published = catalog.published(branch.how.show.published)
    if published is None or (departure := _departure(branch, facts)) is None:
        return published
    by_relation = not departure.has_whole_relations
    return of_other_facts(published, branch.benchmark, by_relation=by_relation)


def _departure(branch: PastBranch, facts: Facts) -> catalog.Departure | None:
    n_names = branch.record["run"]["benchmark"]["names_per_subject"]
    return catalog.departure(facts, branch.benchmark, n_names)


def published_notes(branch: PastBranch, result: Result) -> Iterator[str]:
    """Say that measured numbers stand next to published ones of other facts."""
    if result.published is None or beside(result.tables["metrics"], result.published).is_empty():
        return
    if (departure := _departure(branch, result.facts)) is not None:
        yield (
            f"{branch.benchmark}: the published numbers are of other facts "
            f"({departure.sentence}), so no differences are shown."
        )


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
        fields = branch.metrics.recipe.fields
        run = Asking(fields["model"], fields["setting"], fields["variant"])
        if branch.artifacts["matched"].is_complete():
            found.setdefault(run, Answers(tuple(branch.relations), branch.matched_answers))
    return found


def _n_tokens(plan: Plan, texts: Sequence[str]) -> list[int]:
    """The number of tokens of each text, as the run's model has them."""
    tokenizer = models.tokenizer(plan.weights)
    return [len(ids) for ids in tokenizer(list(texts), add_special_tokens=False).input_ids]
