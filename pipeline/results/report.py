"""report: metrics → results/, of one run and of several together.

<run name>/metrics.parquet   every number of a run, tidy
           tables/           of the benchmark's method, and cost: as Markdown, CSV and LaTeX
           figures/          its figures, as PNG and SVG
           run.json          configuration, versions, commits, hardware, durations, cost
           index.html        one page with everything, which opens from disk
           export/           files of `export`; removed when a later run measures something else
report/<benchmark>/   the tables, figures and page of a benchmark; those over other facts are apart
       estimates/     estimates of runs with a budget, apart from full numbers
       index.html     a list of these pages; pages of an earlier report are removed

Settings over the same facts share a table; seeds of a setting are one row. If two runs measured a
setting in different ways, the later one counts, and a note names the other.
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
from factsweep.operators.metrics.shared.rows import mean_over_seeds, over_seeds
from factsweep.operators.pages.page import render
from factsweep.operators.schemas import empty
from factsweep.operators.tables.estimates import estimates_table, format_share
from factsweep.operators.tables.shared.paper_table import mark_other_facts
from factsweep.operators.tables.shared.pivot import (
    Answers,
    ModelSetting,
    add_seeds,
    has_seeds,
    seeds_table,
)
from factsweep.operators.wording import shorten
from factsweep.pipeline.config.folders import below
from factsweep.pipeline.decoding.costs import SPENT, collect_costs, collect_judge_costs, cost_table
from factsweep.pipeline.inputs import catalog, models
from factsweep.pipeline.machine.logs import LOG
from factsweep.pipeline.results import estimates, past_runs, run_record
from factsweep.pipeline.results.pages import results_page
from factsweep.pipeline.results.past_runs import PastBranch, Record
from factsweep.pipeline.results.run_record import ESTIMATE, ESTIMATES, METRICS, NAME
from factsweep.pipeline.results.run_warnings import TITLE, collect_warnings, find_leaks, leaks_table
from factsweep.pipeline.stages.plan import Plan
from factsweep.pipeline.storage.artifact import differences
from factsweep.pipeline.storage.shard import ShardPlace, encode
from factsweep.pipeline.storage.store import Store, to_json
from factsweep.pipeline.storage.tables import drop_reports, report_files, write_report

PAGE = "index.html"
_NOTHING: Record = MappingProxyType({})
_ESTIMATES = "estimates"  # their folder in a report
_REPLACED = (*ESTIMATES, "estimates.html", "variance.parquet")  # the last two: of earlier versions
# Tables whose numbers are means over `n` rows each.
_WEIGHTED = ("bins", "confidence_differences", "confusion")
_PER_SEED = ("seed", "repetition")


def write(
    plan: Plan,
    seconds: dict[str, float],
    earlier: Record = _NOTHING,
    spent: pl.DataFrame | None = None,
    *,
    is_new: bool = False,
) -> pl.DataFrame:
    """Write the run's results; returns its metrics.

    `earlier` is the present run.json. The times and costs of the artifacts are kept from it if it
    is of the same run and nothing was computed (not `is_new`). `spent` are the costs of the plan
    (schema SPENT), if they were collected already.
    """
    store = Store(plan.run.folder)
    is_kept = not is_new and earlier.get("artifacts") == run_record.artifacts(plan)
    if is_kept and earlier.keys() >= set(run_record.TAKEN):
        costs = {name: earlier[name] for name in run_record.TAKEN}
    else:
        own_costs = collect_costs(plan) if spent is None else spent
        started = datetime.now(UTC) - timedelta(seconds=seconds["total"])
        costs = {
            "seconds": seconds,
            "started": started.isoformat(timespec="seconds"),
            "cost": run_record.cost(plan),
            "spent": pl.concat([own_costs, collect_judge_costs(plan)]).to_dicts(),
        }
    content = run_record.build_record(plan, costs)
    past_record = json.loads(json.dumps(content))
    # Inputs of the metrics may have been removed to save room.
    branches = [
        past_runs.setting(plan.run.name, past_record, branch.title, branch.artifacts())
        for branch in plan.branches
    ]
    result = collect_result(branches)
    if not plan.run.answers:
        result = replace(result, n_tokens=partial(_count_tokens, plan))
    metrics, leaking = result.tables["metrics"], find_leaks(branches)
    lines = collect_warnings(branches, result, leaking)
    for line in lines:
        LOG.warning("%s", line)
    report = _report_with_costs(branches, result, leaking)
    files = {
        METRICS: encode(metrics, ShardPlace("metrics", "", "metrics")),
        **dict(report_files(report)),
        PAGE: results_page(branches, result, report, lines),
    }
    stale = [name for name in _REPLACED if store.exists(name)]
    if not is_kept:
        stale += [f"{run_record.EXPORTS}/{name}" for name in store.files(run_record.EXPORTS)]
    for name in stale:
        LOG.info("%s is of earlier results, and removed", store.where(name))
    for name, data in files.items():
        _replace_file(store, store.put, name, data)
    for name in {*stale, *earlier.get("files", ())} - files.keys():
        _replace_file(store, store.drop, name)
    content |= {"warnings": lines, "files": run_record.checksums(files)}
    _replace_file(store, store.put, NAME, to_json(content))
    return metrics


def _replace_file(store: Store, action: Callable[..., object], name: str, *content: bytes) -> None:
    """Write or remove a file of the results; a folder in its place is quarantined."""
    try:
        action(name, *content)
    except DamagedFileError as error:
        LOG.warning("%s Set aside as %s.", error, store.where(store.quarantine(name)))
        action(name, *content)


def _count_tokens(plan: Plan, texts: Sequence[str]) -> list[int]:
    tokenizer = models.tokenizer(plan.weights)
    return [len(ids) for ids in tokenizer(list(texts), add_special_tokens=False).input_ids]


def build_report(branches: Sequence[PastBranch]) -> Report:
    """The tables and figures of one run, from its settings."""
    return _report_with_costs(branches, collect_result(branches), find_leaks(branches))


def _report_with_costs(
    branches: Sequence[PastBranch], result: Result, leaking: pl.DataFrame
) -> Report:
    """The report of a run's method, with the tables of costs and of answer leakage."""
    parts, content = [report_result(branches[0], result)], branches[0].record
    if "spent" in content:  # earlier versions did not record it
        costs = cost_table(pl.DataFrame(content["spent"], schema=SPENT))
        parts.append(Report({"cost": costs}, titles={"cost": "The cost of each stage"}))
    if not leaking.is_empty():
        parts.append(Report({"leaks": leaks_table(leaking)}, titles={"leaks": TITLE}))
    return join_reports(*parts)


def report_result(branch: PastBranch, result: Result) -> Report:
    """The report of a branch's method; means over seeds are marked."""
    report, metrics = branch.benchmark_method.show.report(result), result.tables["metrics"]
    if not has_seeds(metrics):
        return report
    tables = {name: add_seeds(table, metrics) for name, table in report.tables.items()}
    titles = {"seeds": "Several seeds: mean and standard deviation"}
    seeds = Report({"seeds": seeds_table(metrics)}, titles=titles)
    return join_reports(replace(report, tables=tables), seeds)


def collect_result(branches: Sequence[PastBranch]) -> Result:
    """The tables of settings over the same facts; several seeds of a setting are one row."""
    method, facts = branches[0].benchmark_method, branches[0].facts
    settings = list(past_runs.by_setting(branches).values())
    costs = [
        over_seeds([_metric_row(_runtime_row(branch)) for branch in seeds]) for seeds in settings
    ]
    costs += [
        _metric_row({"model": model, "metric": "billions_of_parameters", "value": billions})
        for model, billions in {b.model: b.billions_of_parameters for b in branches}.items()
        if billions is not None
    ]
    answers: dict[ModelSetting, Answers] = {}
    for branch in branches:
        fields = branch.metrics.recipe.fields
        asking = ModelSetting(fields["model"], fields["setting"], fields["variant"])
        if branch.artifacts["matched"].is_complete():  # it may have been removed
            readers = branch.matched_answers, branch.read_matched
            answers.setdefault(asking, Answers(tuple(branch.relations), *readers))
    published = catalog.load_published(method.show.published)
    benchmark, departure = branches[0].record["run"]["benchmark"], None
    if published is not None and (
        other := catalog.find_departure(facts, benchmark["name"], benchmark["names_per_subject"])
    ):
        departure, by_relation = other.sentence, not other.has_whole_relations
        published = mark_other_facts(published, benchmark["name"], by_relation=by_relation)
    return Result(
        facts,
        {table: _merge_seeds(settings, table) for table in method.measure.measured},
        costs=pl.concat(costs, how="diagonal"),
        answers=answers,
        cutoffs={b.model: b.training_cutoff for b in branches if b.training_cutoff},
        published=published,
        departure=departure,
    )


def _merge_seeds(settings: Sequence[Sequence[PastBranch]], table: str) -> pl.DataFrame:
    """A measured table of settings; several seeds are one row."""
    tables = [[branch.metrics.read_all(table) for branch in seeds] for seeds in settings]
    if all(len(seeds) == 1 for seeds in tables):
        return pl.concat([rows for seeds in tables for rows in seeds])
    if table == "metrics":
        return pl.concat(map(over_seeds, tables))
    weight = "n" if table in _WEIGHTED else None
    return pl.concat(mean_over_seeds(seeds, weight=weight) for seeds in tables)


def _metric_row(values: dict[str, Any]) -> pl.DataFrame:
    return pl.DataFrame([values], schema=empty("metrics").schema)


def _runtime_row(branch: PastBranch) -> dict[str, Any]:
    """The engine-hours of the answers to all prompts, as a row of the metrics table."""
    fields, answers = branch.metrics.recipe.fields, branch.answers
    names = {name: fields[name] for name in ("model", "setting", "variant")}
    counts = answers.counts(answers.stage).values()
    seconds = [float(shard["seconds"]) for shard in counts if shard.get("seconds") is not None]
    return {**names, "metric": "runtime_hours", "value": sum(seconds) / 3600 if seconds else None}


@dataclass(frozen=True)
class SettingGroup:
    """Settings over the same facts of a benchmark, and notes for the reader."""

    folder: str  # of their tables: the benchmark's name, or of a part of it
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
    more: Callable[[SettingGroup], Report] = lambda _: Report({}),
) -> Iterator[str]:
    """Write past runs' tables, figures and pages together; yields the files and notes.

    `parse` and `encode` measure how different the templates are, which takes a while; `more` makes
    tables that precede the papers' tables.

    Raises:
        InputError: no such runs, or one is incomplete.
    """
    runs = names or past_runs.list_runs(results, ESTIMATE)
    estimated = [run for run in runs if estimates.is_estimate(results, run)]
    full = [run for run in names or past_runs.list_runs(results) if run not in estimated]
    parts = group_settings(past_runs.branches(results, full)) if full or not estimated else []
    entries: list[dict[str, str]] = []
    folders = {part.folder for part in parts} | ({_ESTIMATES} if estimated else set())
    drop_reports(Store(out), besides=folders, files=[PAGE])
    for part in parts:
        store = Store(below(out, part.folder))
        result = replace(collect_result(part.branches), parse=parse, encode=encode)
        lines = (*part.notes, *collect_warnings(part.branches, result))
        tables = join_reports(more(part), report_result(part.branches[0], result))
        write_report(store, tables)
        store.put(PAGE, results_page(part.branches, result, tables, lines))
        marks = {
            branch.run: " (model.trust_remote_code=true)"
            for branch in part.branches
            if branch.record["run"]["model"].get("trust_remote_code")
        }
        lead = ", ".join(sorted({f"{b.run}{marks.get(b.run, '')}" for b in part.branches}))
        entries.append({"link": f"{part.folder}/{PAGE}", "title": part.folder, "lead": lead})
        counts = f"{len(tables.tables)} tables, {len(tables.figures)} figures"
        yield f"{store.where(PAGE)}: {counts} of {lead}"
        yield from (f"  {line}" for line in lines)
    if estimated:
        entries.append(_write_estimates(estimated, results, out))
        yield f"{Store(out).where(entries[-1]['link'])}: estimates of {entries[-1]['lead']}"
    index = Store(out)
    index.put(PAGE, render("index.html", title="Results by benchmark", entries=entries).encode())
    yield index.where(PAGE)
    for name in full:  # a page may have been removed, or left out of a copy
        store = Store(below(results, name))
        if not store.exists(PAGE):
            branches = past_runs.branches(results, [name])
            result, leaking = collect_result(branches), find_leaks(branches)
            tables = _report_with_costs(branches, result, leaking)
            sentences = collect_warnings(branches, result, leaking)
            store.put(PAGE, results_page(branches, result, tables, sentences))
            yield store.where(PAGE)


def _write_estimates(names: Sequence[str], results: str, out: str) -> dict[str, str]:
    rows = pl.concat(estimates.read(results, name).estimates for name in names)
    report = Report({_ESTIMATES: estimates_table(rows, whose=True)})
    write_report(Store(below(out, _ESTIMATES)), report)
    title = f"Estimates from {format_share(rows)} of the prompts"
    link = f"{_ESTIMATES}/tables/{_ESTIMATES}.md"
    return {"link": link, "title": title, "lead": ", ".join(sorted(names))}


def group_settings(branches: Sequence[PastBranch]) -> list[SettingGroup]:
    """Group settings by the table that they share."""
    by_benchmark: dict[tuple[str, str], list[PastBranch]] = {}
    for branch in branches:
        family = branch.benchmark_method.show.published
        by_benchmark.setdefault((family, branch.benchmark), []).append(branch)
    return [part for group in by_benchmark.values() for part in _split_by_facts(group)]


def _split_by_facts(branches: Sequence[PastBranch]) -> Iterator[SettingGroup]:
    """One group per part of a benchmark's facts; the largest has the benchmark's name."""
    digests: dict[str, str] = {}  # by the folder of the facts
    parts: dict[str, list[PastBranch]] = {}
    sizes: dict[str, tuple[int, int]] = {}
    for branch in branches:
        if (folder := branch.artifacts["facts"].folder) not in digests:
            facts = branch.facts
            digests[folder] = _digest_facts(facts)
            sizes[digests[folder]] = facts.pairs.height, facts.relations.height
        parts.setdefault(digests[folder], []).append(branch)
    folders: dict[str, str] = {}  # by the digest of their facts, the largest first
    for digest in sorted(parts, key=lambda digest: sizes[digest], reverse=True):
        n_facts, n_relations = sizes[digest]
        suffix = f"-{n_facts}-facts-of-{n_relations}-relations" if folders else ""
        name = f"{branches[0].benchmark}{suffix}"
        n_same = sum(f == name or f.startswith(f"{name}-") for f in folders.values())
        folders[digest] = f"{name}-{n_same + 1}" if suffix and n_same else name
    for digest, folder in folders.items():
        kept_branches, notes = _skip_rivals(parts[digest])
        other_folders = [name for name in folders.values() if name != folder]
        if other_folders:
            n_facts, n_relations = sizes[digest]
            note = (
                f"{folder} has the runs over {n_facts:,} facts of {n_relations} relations; runs "
                f"over other parts of the benchmark are apart, in {', '.join(other_folders)}."
            )
            notes.insert(0, note)
        yield SettingGroup(folder, tuple(kept_branches), tuple(notes))


def _digest_facts(facts: Facts) -> str:
    keys = {"relations": "relation_id", "templates": "template_id", "pairs": "pair_id"}
    tables = [getattr(facts, table).sort(key) for table, key in keys.items()]
    tables += [table for _, table in sorted(facts.extra_tables.items())]
    texts = (table.select(sorted(table.columns)).write_ndjson() for table in tables)
    return hashlib.sha256("".join(texts).encode()).hexdigest()


def _skip_rivals(branches: Sequence[PastBranch]) -> tuple[list[PastBranch], list[str]]:
    """Each setting of each model with its seeds; notes name the skipped runs with reasons."""
    chosen, notes = [], []
    for name, runs in past_runs.by_setting(branches).items():
        seeds: list[PastBranch] = []
        # The start of each run (ISO 8601); earlier versions did not record it.
        for branch in sorted(runs, key=lambda run: run.record.get("started", ""), reverse=True):
            rival = next((seed for seed in seeds if _list_conflicts(seed, branch)), None)
            if rival is None:
                seeds.append(branch)
                continue
            notes.append(
                f"skipped: {name} of the run {branch.run}; the later run {rival.run} measured the "
                f"same otherwise ({shorten(_list_conflicts(rival, branch))})."
            )
        seeds = sorted(seeds, key=lambda branch: branch.seed)
        chosen += seeds
        if len(seeds) > 1:
            listed = ", ".join(str(branch.seed) for branch in seeds)
            notes.append(
                f"{name}: mean ± standard deviation over the seeds {listed}; answers, and what "
                f"compares them, are those of seed {seeds[0].seed}."
            )
    return chosen, notes


def _list_conflicts(other: PastBranch, branch: PastBranch) -> list[str]:
    """Differences that go beyond the seed; none if two measurements are two seeds of a setting."""
    lines = []
    for stage, artifact in branch.artifacts.items():
        if stage != "facts" and stage in other.artifacts:  # equal facts may have other recipes
            fields, other_fields = artifact.recipe.fields, other.artifacts[stage].recipe.fields
            lines += [f"{stage} {line}" for line in differences(fields, other_fields)]
    lines = [line for line in lines if line.partition(" ")[2].partition(":")[0] not in _PER_SEED]
    return lines if other.seed != branch.seed else lines or ["the same seed"]
