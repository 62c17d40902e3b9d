"""report: past runs → the tables, figures and pages of several of them together.

<out>/<benchmark>/   the tables, figures and page of a benchmark; those over other facts are apart
      estimates/     what runs with a budget have estimated, apart from full numbers
      index.html     a list of these pages; those of an earlier report are removed

Settings over the same facts stand in one table, each measured once; seeds of one are one row. Of
two runs that measured the same in other ways the later one counts, and the other is named.
"""

import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import polars as pl

from factsweep.operators.datasets.facts import Facts
from factsweep.operators.methods.method import Report, joined
from factsweep.operators.metrics.data_set import Encode, Parse
from factsweep.operators.metrics.shared.blas import single_threaded_blas
from factsweep.operators.pages.page import render
from factsweep.operators.tables.runs.estimates import estimates_table
from factsweep.operators.wording import few
from factsweep.pipeline.results import estimates, past
from factsweep.pipeline.results.doubts import doubts
from factsweep.pipeline.results.pages import results_page
from factsweep.pipeline.results.past import PastBranch
from factsweep.pipeline.results.record import ESTIMATE
from factsweep.pipeline.results.report import PAGE, measured, published_notes, reported, shown
from factsweep.pipeline.storage.recipe import differences
from factsweep.pipeline.storage.store import Store, below
from factsweep.pipeline.storage.tables import drop_reports, write_report

_ESTIMATES = "estimates"  # the folder of those in a report
_PER_SEED = ("seed", "repetition")


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
    asked = [each for each in known if estimates.is_estimate(results, each)]
    full = [each for each in names or past.known(results) if each not in asked]
    parts = together(past.branches(results, full)) if full or not asked else []
    entries: list[dict[str, str]] = []
    folders = {each.folder for each in parts} | ({_ESTIMATES} if asked else set())
    drop_reports(Store(out), besides=folders, files=[PAGE])
    for each in parts:
        store = Store(below(out, each.folder))
        result = replace(measured(each.branches), parse=parse, encode=encode)
        departures = published_notes(each.branches[0], result)
        notes = (*each.notes, *doubts(each.branches), *departures)
        found = joined(more(each), shown(each.branches[0], result))
        write_report(store, found)
        store.put(PAGE, results_page(each.branches, result, found, notes))
        runs = ", ".join(sorted({f"{one.run}{_trusted(one)}" for one in each.branches}))
        entries.append({"link": f"{each.folder}/{PAGE}", "title": each.folder, "lead": runs})
        yield (
            f"{store.where(PAGE)}: {len(found.tables)} tables, {len(found.figures)} figures "
            f"of {runs}"
        )
        yield from (f"  {note}" for note in notes)
    if asked:
        entries.append(_write_estimates(asked, results, out))
        yield f"{Store(out).where(entries[-1]['link'])}: estimates of {entries[-1]['lead']}"
    whole = Store(out)
    whole.put(PAGE, render("index.html", title="Results by benchmark", entries=entries).encode())
    yield whole.where(PAGE)
    yield from _write_pages(full, results)


def _write_estimates(names: Sequence[str], results: str, out: str) -> dict[str, str]:
    """Write the estimates of runs together, in a folder of their own; no full number is there."""
    found = [estimates.read(results, name) for name in names]
    table = estimates_table(pl.concat(each.estimates for each in found), whose=True)
    store = Store(below(out, _ESTIMATES))
    write_report(store, Report({_ESTIMATES: table}))
    store.put(PAGE, estimates.page_of(found).encode())
    title = "Estimates from a part of the prompts"
    return {"link": f"{_ESTIMATES}/{PAGE}", "title": title, "lead": ", ".join(sorted(names))}


def _write_pages(names: Sequence[str], results: str) -> Iterator[str]:
    """Write the page of each run that has none: it was removed, or left out of a copy."""
    for name in names:
        store = Store(below(results, name))
        if store.exists(PAGE):
            continue
        branches = past.branches(results, [name])
        store.put(PAGE, results_page(branches, measured(branches), reported(branches)))
        yield store.where(PAGE)


def _trusted(branch: PastBranch) -> str:
    trusted = branch.record["run"]["model"].get("trust_remote_code")
    return " (model.trust_remote_code=true)" if trusted else ""


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
    ordered = sorted(parts, key=lambda each: sizes[each], reverse=True)
    folders = list(_folders(branches[0].benchmark, [sizes[each] for each in ordered]))
    for content, folder in zip(ordered, folders, strict=True):
        kept, notes = _once(parts[content])
        others = [each for each in folders if each != folder]
        yield Together(folder, tuple(kept), (*_of_others(folder, others, sizes[content]), *notes))


def _content(facts: Facts) -> str:
    """The facts and their words, whatever file, reader and method they come from."""
    keys = {"relations": "relation_id", "templates": "template_id", "pairs": "pair_id"}
    tables = [getattr(facts, table).sort(key) for table, key in keys.items()]
    tables += [table for _, table in sorted(facts.further.items())]
    texts = (table.select(sorted(table.columns)).write_ndjson() for table in tables)
    return hashlib.sha256("".join(texts).encode()).hexdigest()


def _folders(benchmark: str, sizes: Sequence[tuple[int, int]]) -> Iterator[str]:
    taken: dict[str, int] = {}
    for place, (n_facts, n_relations) in enumerate(sizes):
        name = f"{benchmark}-{n_facts}-facts-of-{n_relations}-relations" if place else benchmark
        taken[name] = taken.get(name, 0) + 1
        yield name if taken[name] == 1 else f"{name}-{taken[name]}"


def _of_others(folder: str, others: Sequence[str], size: tuple[int, int]) -> Iterator[str]:
    if others:
        n_facts, n_relations = size
        yield (
            f"{folder} has the runs over {n_facts:,} facts of {n_relations} relations; runs over "
            f"other parts of the benchmark are apart, in {', '.join(others)}."
        )


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
                f"same otherwise ({few(_conflict(rival, branch))})."
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
