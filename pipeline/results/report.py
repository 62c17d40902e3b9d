"""report: metrics → results/, of one run and of several together, for people and for programs.

<run name>/metrics.parquet   every number of a run, tidy
           tables/           those of the benchmark's method, and cost: as Markdown, CSV and LaTeX
           figures/          its figures, as PNG and SVG
           run.json          configuration, versions, commits, hardware, durations, cost
           index.html        all of it on one page that opens from disk
           export/           what `export` writes; removed when a later run measures something else
report/<benchmark>/   the tables, figures and page of a benchmark; those over other facts are apart
       estimates/     what runs with a budget have estimated, apart from full numbers
       index.html     a list of these pages; those of an earlier report are removed

Settings over the same facts stand in one table, each measured once; seeds of one are one row. Of
two runs that measured the same in other ways the later one counts, and the other is named.
"""

import hashlib
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from types import MappingProxyType
from typing import Any

import polars as pl

from factsweep.operators.datasets.facts import Facts
from factsweep.operators.errors import DamagedFileError
from factsweep.operators.methods.method import Report, Result, join_reports
from factsweep.operators.metrics.data_set import Encode, Parse
from factsweep.operators.metrics.shared.bootstrap import single_threaded_blas
from factsweep.operators.metrics.shared.rows import over_seeds
from factsweep.operators.pages.page import render
from factsweep.operators.schemas import empty
from factsweep.operators.tables.estimates import asked, estimates_table
from factsweep.operators.tables.shared.paper_table import mark_other_facts
from factsweep.operators.tables.shared.wide import (
    Answers,
    ModelSetting,
    add_seeds,
    has_seeds,
    seeds_table,
)
from factsweep.operators.wording import shorten
from factsweep.pipeline.config.folders import below
from factsweep.pipeline.decoding.costs import SPENT, collect_costs, cost_table
from factsweep.pipeline.inputs import catalog, models
from factsweep.pipeline.machine.logs import LOG
from factsweep.pipeline.results import estimates, past, record
from factsweep.pipeline.results.notes import TITLE, departure, leaks, leaks_table, notes
from factsweep.pipeline.results.pages import results_page
from factsweep.pipeline.results.past import PastBranch, Record
from factsweep.pipeline.results.record import ESTIMATE, ESTIMATES, METRICS, NAME
from factsweep.pipeline.stages.plan import Plan
from factsweep.pipeline.storage.json_files import to_json
from factsweep.pipeline.storage.recipe import differences
from factsweep.pipeline.storage.shard import Place, encode
from factsweep.pipeline.storage.store import Store
from factsweep.pipeline.storage.tables import drop_reports, report_files, write_report

PAGE = "index.html"
_NOTHING: Record = MappingProxyType({})
_ESTIMATES = "estimates"  # the folder of those in a report
_REPLACED = (*ESTIMATES, "estimates.html", "variance.parquet")  # the last two: of earlier versions
_PER_SEED = ("seed", "repetition")


def write(
    plan: Plan, seconds: dict[str, float], earlier: Record = _NOTHING, *, is_new: bool = False
) -> pl.DataFrame:
    """Write the run's results; returns its metrics.

    `earlier` is the run.json that is there. What making the artifacts took is kept from it, if it
    is of the same run and nothing was computed (not `is_new`).
    """
    store = Store(plan.run.folder)
    is_kept = not is_new and earlier.get("artifacts") == record.artifacts(plan)
    content = record.record(plan, _taken(plan, seconds, earlier if is_kept else _NOTHING))
    as_read = json.loads(json.dumps(content))
    # Inputs of the metrics may have been removed to save room.
    branches = [
        past.setting(plan.run.name, as_read, branch.title, branch.artifacts())
        for branch in plan.branches
    ]
    result = measured(branches)
    if not plan.run.answers:
        result = replace(result, n_tokens=partial(_n_tokens, plan))
    metrics, leaking = result.tables["metrics"], leaks(branches)
    lines = notes(branches, result, leaking)
    for line in lines:
        LOG.warning("%s", line)
    report = _whole(branches, result, leaking)
    files = {
        METRICS: encode(metrics, Place("metrics", "", "metrics")),
        **dict(report_files(report)),
        PAGE: results_page(branches, result, report, lines),
    }
    stale = [name for name in _REPLACED if store.exists(name)]
    if not is_kept:
        stale += [f"{record.EXPORTS}/{name}" for name in store.files(record.EXPORTS)]
    for name in stale:
        LOG.info("%s is of earlier results, and removed", store.where(name))
    for name, made in files.items():
        _freely(store, store.put, name, made)
    for name in {*stale, *earlier.get("files", ())} - files.keys():
        _freely(store, store.drop, name)
    content |= {"warnings": lines, "files": record.checksums(files)}
    _freely(store, store.put, NAME, to_json(content))
    return metrics


def _freely(store: Store, do: Callable[..., object], name: str, *content: bytes) -> None:
    """Write or remove a file of the results; a folder that lies there is set aside."""
    try:
        do(name, *content)
    except DamagedFileError as error:
        LOG.warning("%s Set aside as %s.", error, store.where(store.quarantine(name)))
        do(name, *content)


def _taken(plan: Plan, seconds: dict[str, float], earlier: Record) -> dict[str, Any]:
    """When the run began and what it took, as an earlier record says, if it does."""
    if earlier.keys() >= set(record.TAKEN):
        return {name: earlier[name] for name in record.TAKEN}
    started = datetime.now(UTC) - timedelta(seconds=seconds["total"])
    return {
        "seconds": seconds,
        "started": started.isoformat(timespec="seconds"),
        "cost": record.cost(plan),
        "spent": collect_costs(plan).to_dicts(),
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
    return join_reports(*parts)


def shown(branch: PastBranch, result: Result) -> Report:
    """What the method of a branch shows of a result; means over seeds are marked as such."""
    report, metrics = branch.how.show.report(result), result.tables["metrics"]
    if not has_seeds(metrics):
        return report
    tables = {name: add_seeds(table, metrics) for name, table in report.tables.items()}
    titles = {"seeds": "Several seeds: mean and standard deviation"}
    seeds = Report({"seeds": seeds_table(metrics)}, titles=titles)
    return join_reports(replace(report, tables=tables), seeds)


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
    published = catalog.published(method.show.published)
    other = None if published is None else departure(branches[0], facts)
    if published is not None and other is not None:
        by_relation = not other.has_whole_relations
        published = mark_other_facts(published, branches[0].benchmark, by_relation=by_relation)
    return Result(
        facts,
        {table: past.of_seeds(seeds, table) for table in method.measure.measured},
        costs=pl.concat(costs, how="diagonal"),
        answers=_answers(branches),
        cutoffs={b.model: b.training_cutoff for b in branches if b.training_cutoff},
        published=published,
    )


def _cost_row(row: dict[str, Any]) -> pl.DataFrame:
    return pl.DataFrame([row], schema=empty("metrics").schema)


def _runtime(branch: PastBranch) -> dict[str, Any]:
    """The engine-hours of the answers to all prompts, as a row of the metrics table."""
    fields, answers = branch.metrics.recipe.fields, branch.answers
    names = {name: fields[name] for name in ("model", "setting", "variant")}
    seconds = [each.get("seconds") for each in answers.counts(answers.stage).values()]
    known = [float(each) for each in seconds if each is not None]
    return {**names, "metric": "runtime_hours", "value": sum(known) / 3600 if known else None}


def _answers(branches: Sequence[PastBranch]) -> dict[ModelSetting, Answers]:
    """The answers of each setting; of several seeds, the first's. None that were removed."""
    found: dict[ModelSetting, Answers] = {}
    for branch in branches:
        fields = branch.metrics.recipe.fields
        run = ModelSetting(fields["model"], fields["setting"], fields["variant"])
        if branch.artifacts["matched"].is_complete():
            found.setdefault(run, Answers(tuple(branch.relations), branch.matched_answers))
    return found


def _n_tokens(plan: Plan, texts: Sequence[str]) -> list[int]:
    """The number of tokens of each text, as the run's model has them."""
    tokenizer = models.tokenizer(plan.weights)
    return [len(ids) for ids in tokenizer(list(texts), add_special_tokens=False).input_ids]


@dataclass(frozen=True)
class Together:
    """Settings over the same facts of a benchmark, and the sentences that a reader must know."""

    folder: str  # a name for their tables: the benchmark's, or of a part of it
    branches: tuple[PastBranch, ...]
    notes: tuple[str, ...]


@single_threaded_blas()
def report(
    names: Sequence[str],
    results: str,
    out: str,
    *,
    parse: Parse | None = None,
    encode: Encode | None = None,
    more: Callable[[Together], Report] = lambda _: Report({}),
) -> Iterator[str]:
    """Write past runs' tables, figures and pages together; yields where, and what was left out.

    `parse` and `encode` measure how different the templates are, which takes a while; `more` gives
    what stands before the papers' tables.

    Raises:
        InputError: no such runs, or one that is not whole.
    """
    known = names or past.known(results, ESTIMATE)
    estimated = [name for name in known if estimates.is_estimate(results, name)]
    full = [name for name in names or past.known(results) if name not in estimated]
    parts = together(past.branches(results, full)) if full or not estimated else []
    entries: list[dict[str, str]] = []
    folders = {each.folder for each in parts} | ({_ESTIMATES} if estimated else set())
    drop_reports(Store(out), besides=folders, files=[PAGE])
    for each in parts:
        store = Store(below(out, each.folder))
        result = replace(measured(each.branches), parse=parse, encode=encode)
        lines = (*each.notes, *notes(each.branches, result))
        found = join_reports(more(each), shown(each.branches[0], result))
        write_report(store, found)
        store.put(PAGE, results_page(each.branches, result, found, lines))
        marks = {
            one.run: " (model.trust_remote_code=true)"
            for one in each.branches
            if one.record["run"]["model"].get("trust_remote_code")
        }
        runs = ", ".join(sorted({f"{b.run}{marks.get(b.run, '')}" for b in each.branches}))
        entries.append({"link": f"{each.folder}/{PAGE}", "title": each.folder, "lead": runs})
        yield (
            f"{store.where(PAGE)}: {len(found.tables)} tables, {len(found.figures)} figures "
            f"of {runs}"
        )
        yield from (f"  {line}" for line in lines)
    if estimated:
        entries.append(_write_estimates(estimated, results, out))
        yield f"{Store(out).where(entries[-1]['link'])}: estimates of {entries[-1]['lead']}"
    whole = Store(out)
    whole.put(PAGE, render("index.html", title="Results by benchmark", entries=entries).encode())
    yield whole.where(PAGE)
    yield from _write_pages(full, results)


def _write_estimates(names: Sequence[str], results: str, out: str) -> dict[str, str]:
    """Write the estimates of runs together, in a folder of their own; no full number is there."""
    found = [estimates.read(results, name) for name in names]
    rows = pl.concat(estimate.estimates for estimate in found)
    report = Report({_ESTIMATES: estimates_table(rows, whose=True)})
    write_report(Store(below(out, _ESTIMATES)), report)
    title = f"Estimates from {asked(rows)} of the prompts"
    link = f"{_ESTIMATES}/tables/{_ESTIMATES}.md"
    return {"link": link, "title": title, "lead": ", ".join(sorted(names))}


def _write_pages(names: Sequence[str], results: str) -> Iterator[str]:
    """Write the page of each run that has none: it was removed, or left out of a copy."""
    for name in names:
        store = Store(below(results, name))
        if store.exists(PAGE):
            continue
        branches = past.branches(results, [name])
        result, leaking = measured(branches), leaks(branches)
        lines = notes(branches, result, leaking)
        store.put(PAGE, results_page(branches, result, _whole(branches, result, leaking), lines))
        yield store.where(PAGE)


def together(branches: Sequence[PastBranch]) -> list[Together]:
    """The settings that stand in one table, table by table."""
    by_benchmark: dict[tuple[str, str], list[PastBranch]] = {}
    for branch in branches:
        family = branch.how.show.published
        by_benchmark.setdefault((family, branch.benchmark), []).append(branch)
    return [found for each in by_benchmark.values() for found in _parts(each)]


def _parts(branches: Sequence[PastBranch]) -> Iterator[Together]:
    """One for each part of a benchmark's facts; the largest has the benchmark's name."""
    contents: dict[str, str] = {}  # by the folder of the facts
    parts: dict[str, list[PastBranch]] = {}
    sizes: dict[str, tuple[int, int]] = {}
    for branch in branches:
        if (folder := branch.artifacts["facts"].folder) not in contents:
            facts = branch.facts
            contents[folder] = _content(facts)
            sizes[contents[folder]] = facts.pairs.height, facts.relations.height
        parts.setdefault(contents[folder], []).append(branch)
    folders: dict[str, str] = {}  # by their facts, the largest first
    for content in sorted(parts, key=lambda each: sizes[each], reverse=True):
        n_facts, n_relations = sizes[content]
        part = f"-{n_facts}-facts-of-{n_relations}-relations" if folders else ""
        name = f"{branches[0].benchmark}{part}"
        same = sum(each == name or each.startswith(f"{name}-") for each in folders.values())
        folders[content] = f"{name}-{same + 1}" if part and same else name
    for content, folder in folders.items():
        kept, notes = _once(parts[content])
        others = [each for each in folders.values() if each != folder]
        if others:
            n_facts, n_relations = sizes[content]
            notes.insert(
                0,
                f"{folder} has the runs over {n_facts:,} facts of {n_relations} relations; runs "
                f"over other parts of the benchmark are apart, in {', '.join(others)}.",
            )
        yield Together(folder, tuple(kept), tuple(notes))


def _content(facts: Facts) -> str:
    """The facts and their words, whatever file, reader and method they come from."""
    keys = {"relations": "relation_id", "templates": "template_id", "pairs": "pair_id"}
    tables = [getattr(facts, table).sort(key) for table, key in keys.items()]
    tables += [table for _, table in sorted(facts.further.items())]
    texts = (table.select(sorted(table.columns)).write_ndjson() for table in tables)
    return hashlib.sha256("".join(texts).encode()).hexdigest()


def _once(branches: Sequence[PastBranch]) -> tuple[list[PastBranch], list[str]]:
    """Each setting of each model with its seeds, and what was left out for which reason."""
    kept, notes = [], []
    for name, runs in past.by_setting(branches).items():
        chosen: list[PastBranch] = []
        # When they began (ISO 8601); empty if it was not written down.
        for branch in sorted(runs, key=lambda one: one.record.get("started", ""), reverse=True):
            rival = next((each for each in chosen if _conflict(each, branch)), None)
            if rival is None:
                chosen.append(branch)
                continue
            notes.append(
                f"skipped: {name} of the run {branch.run}; the later run {rival.run} measured the "
                f"same otherwise ({shorten(_conflict(rival, branch))})."
            )
        kept += sorted(chosen, key=lambda each: each.seed)
        if len(chosen) > 1:
            seeds = ", ".join(str(each.seed) for each in kept[-len(chosen) :])
            notes.append(
                f"{name}: mean ± standard deviation over the seeds {seeds}; answers, and what "
                f"compares them, are those of seed {kept[-len(chosen)].seed}."
            )
    return kept, notes


def _conflict(kept: PastBranch, branch: PastBranch) -> list[str]:
    """Why two measurements of a setting are no two seeds of it; nothing: they are."""
    found = []
    for stage, artifact in branch.artifacts.items():
        if stage != "facts" and stage in kept.artifacts:  # those are alike, whatever made them
            ours, theirs = artifact.recipe.fields, kept.artifacts[stage].recipe.fields
            found += [f"{stage} {line}" for line in differences(ours, theirs)]
    beside = [line for line in found if line.partition(" ")[2].partition(":")[0] not in _PER_SEED]
    return beside if kept.seed != branch.seed else beside or ["the same seed"]
