"""report: past runs → the tables, figures and pages of several of them together.

<out>/<benchmark>/   the tables, figures and page of a benchmark; those over other facts are apart
      estimates/     what runs with a budget have estimated, apart from full numbers
      index.html     a list of these pages; those of an earlier report are removed
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import polars as pl

from factsweep.operators.methods.method import Report, joined
from factsweep.operators.metrics.data_set import Encode, Parse
from factsweep.operators.pages.page import Entry, index
from factsweep.operators.tables.runs.estimates import estimates_table
from factsweep.pipeline.estimates import written
from factsweep.pipeline.reports.together import Together, together
from factsweep.pipeline.results import past
from factsweep.pipeline.results.doubts import doubts
from factsweep.pipeline.results.pages import results_page
from factsweep.pipeline.results.past import PastBranch
from factsweep.pipeline.results.record import ESTIMATE
from factsweep.pipeline.results.report import PAGE, measured, reported, shown
from factsweep.pipeline.storage.stores.store import Store
from factsweep.pipeline.storage.tables import drop_reports, write_report

_ESTIMATES = "estimates"  # the folder of those in a report


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

    Tables and figures are one folder per benchmark and part of its facts, with a page; an index
    lists the pages (`together`). `parse` and `encode` measure how different the templates are,
    which takes a while; `more` gives what stands before the papers' tables.

    Raises:
        InputError: no such runs, or one that is not whole.
    """
    asked = [
        each
        for each in names or past.known(results, ESTIMATE)
        if written.is_estimate(results, each)
    ]
    full = [each for each in names or past.known(results) if each not in asked]
    parts = together(past.branches(results, full)) if full or not asked else []
    entries: list[Entry] = []
    folders = {each.folder for each in parts} | ({_ESTIMATES} if asked else set())
    drop_reports(Store(out), besides=folders, files=[PAGE])
    for each in parts:
        store = Store(f"{out.rstrip('/')}/{each.folder}")
        notes = (*each.notes, *doubts(each.branches))
        result = replace(measured(each.branches), parse=parse, encode=encode)
        found = joined(more(each), shown(each.branches[0], result))
        write_report(store, found)
        store.put(PAGE, results_page(each.branches, result, found, notes))
        runs = ", ".join(sorted({f"{one.run}{_trusted(one)}" for one in each.branches}))
        entries.append(Entry(f"{each.folder}/{PAGE}", each.folder, runs))
        yield (
            f"{store.where(PAGE)}: {len(found.tables)} tables, {len(found.figures)} figures "
            f"of {runs}"
        )
        yield from (f"  {note}" for note in notes)
    if asked:
        entries.append(_write_estimates(asked, results, out))
        yield f"{Store(out).where(entries[-1].link)}: estimates of {entries[-1].lead}"
    whole = Store(out)
    whole.put(PAGE, index("Results by benchmark", entries).encode())
    yield whole.where(PAGE)
    yield from _write_pages(full, results)


def _write_estimates(names: Sequence[str], results: str, out: str) -> Entry:
    """Write the estimates of runs together, in a folder of their own; no full number is there."""
    found = [written.read(results, name) for name in names]
    table = estimates_table(pl.concat(each.found.estimates for each in found), whose=True)
    store = Store(f"{out.rstrip('/')}/{_ESTIMATES}")
    write_report(store, Report({_ESTIMATES: table}))
    store.put(PAGE, written.page_of(found).encode())
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


def _trusted(branch: PastBranch) -> str:
    trusted = branch.record["run"]["model"].get("trust_remote_code")
    return " (model.trust_remote_code=true)" if trusted else ""
