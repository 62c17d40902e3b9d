"""Estimates: what a run writes that asks a part of its prompts, and what past ones have written.

<run name>/estimates.parquet  every number
           estimates.md     the same, for people
           estimates.html   the same, on a page
           estimate.json    what was asked: configuration, budget, artifacts, versions, checksums

Nothing here has a run.json, so that no verb takes an estimate for a full run.
"""

import hashlib
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl

from factsweep.operators.errors import DamagedFileError
from factsweep.operators.methods import METHODS
from factsweep.operators.pages import page
from factsweep.operators.pages.grid import estimated_tiles, grid
from factsweep.operators.pages.page import ran, ran_rows
from factsweep.operators.tables.runs import estimates as tables
from factsweep.operators.tables.shared.wide import called
from factsweep.pipeline.results import record
from factsweep.pipeline.results.estimated_answers import matched_by
from factsweep.pipeline.results.past import PastBranch, Record, setting
from factsweep.pipeline.stages.plan import Plan
from factsweep.pipeline.storage.lookup import opened
from factsweep.pipeline.storage.sealed import RERUN, Stored, seal, unseal
from factsweep.pipeline.storage.shard import Place, decode, encode
from factsweep.pipeline.storage.store import Store, below

_PLACE = Place("estimates", "", "estimates")
_SHOWN = ("model", "benchmark", "settings", "budget", "decoding", "metrics", "cluster", "seed")


@dataclass(frozen=True)
class PastEstimate:
    """What a run with a budget estimated, and what its estimate.json says."""

    run: str
    estimates: pl.DataFrame
    record: Record

    @property
    def branches(self) -> dict[str, PastBranch]:
        """Its settings by title: artifacts may be open, and none is of matched answers."""
        store = Store(self.record["run"]["artifacts"])
        return {
            title: setting(self.run, self.record, title, [opened(store, each) for each in folders])
            for title, folders in self.record["artifacts"].items()
        }

    @property
    def budget(self) -> str:
        """Its budget, as it was given."""
        return str(self.record["run"]["budget"])

    def of(self, title: str) -> pl.DataFrame:
        """The estimates of a setting."""
        rows = self.estimates
        several = len(self.record["artifacts"]) > 1
        return rows.filter(called("setting", "variant") == title) if several else rows

    def mark(self, title: str) -> str:
        """What marks the numbers of a setting, wherever they are shown."""
        return f"estimate from {tables.asked(self.of(title))} of the prompts"


def files(plan: Plan, found: pl.DataFrame, sentences: Sequence[str] = ()) -> dict[str, bytes]:
    """The files of what was estimated, by name; estimate.json, which names the others, is last.

    The text ends with the sentences, if there are any.
    """
    content = json.loads(json.dumps(record.record(plan, {}, {})))
    text = "\n".join([tables.written(found), *sentences])
    page = page_of([PastEstimate(plan.run.name, found, content)])
    made = {
        record.ESTIMATED: encode(found, _PLACE),
        record.ESTIMATES_TEXT: f"{text.strip()}\n".encode(),
        record.ESTIMATES_PAGE: page.encode(),
    }
    checksums = {name: hashlib.sha256(each).hexdigest() for name, each in made.items()}
    content |= {"files": checksums}
    return {**made, record.ESTIMATE: seal(content, record.ESTIMATE)}


def is_estimate(results: str, name: str) -> bool:
    """Whether a run of that name has estimates, and no full results."""
    return Store(below(results, name)).exists(record.ESTIMATE)


def read(results: str, name: str) -> PastEstimate:
    """What a run with a budget estimated: `read_from` its folder in the results."""
    return read_from(Store(below(results, name)), name)


def read_from(store: Store, name: str) -> PastEstimate:
    """What a run of that name estimated, from its folder.

    Raises:
        DamagedFileError: it is not what was written.
    """
    file_name = record.ESTIMATE
    content = unseal(store.get(file_name), file_name, store.where(file_name), RERUN)
    record.shaped(content, store, file_name)
    found, where = record.file(store, content, record.ESTIMATED, file_name), record.ESTIMATED
    estimates = decode(found, _PLACE, Stored(store.where(where)))
    _check(estimates, content, store.where(where))
    return PastEstimate(name, estimates, content)


def wrong(store: Store) -> Iterator[str]:
    """What is wrong with the estimates of a run, if it has any, with texts and pages, too."""
    if not store.exists(record.ESTIMATE):
        return
    try:
        content = read_from(store, "").record
    except DamagedFileError as error:
        yield str(error)
        return
    for name in content["files"]:
        try:
            record.file(store, content, name, record.ESTIMATE)
        except DamagedFileError as error:
            yield str(error)


def _check(shown: pl.DataFrame, content: Record, where: str) -> None:
    """Refuse estimates of another model or benchmark, and intervals that are none."""
    run = content["run"]
    for noun in ("model", "benchmark"):
        if other := set(shown[noun]) - {run[noun]["name"]}:
            raise DamagedFileError(f"{where} is of {noun} {other.pop()}, not of its run{RERUN}")
    if shown.filter(pl.col("ci_low") > pl.col("ci_high")).height:
        raise DamagedFileError(f"{where} has an interval that ends before it begins{RERUN}")


def answers(branch: PastBranch) -> pl.DataFrame:
    """The matched answers of a setting: to all of its prompts, or to those that were asked."""
    if "matched" in branch.artifacts:
        return branch.matched_answers()
    pipeline = branch.record["run"]["matching"]["pipeline"]
    matcher = branch.how.measure.matcher(branch.facts, pipeline, _no_tokenizer)
    return matched_by(matcher, branch.method, branch.answers, branch.artifacts["chosen"])


def _no_tokenizer() -> None:
    raise NotImplementedError("masked models, whose tokens are matched, have no estimates")


def page_of(estimates: Sequence[PastEstimate]) -> str:
    """The page of estimates, by runs."""
    rows = pl.concat(each.estimates for each in estimates)
    names = {each.record["run"]["benchmark"]["method"] for each in estimates}
    main = {METHODS[name].measure.main_metric for name in names}
    asked = (", ".join(rows[each].unique(maintain_order=True)) for each in ("model", "benchmark"))
    return page.render(
        "estimates.html",
        title=" on ".join(asked),
        lead=tables.mark(rows),
        main_metric=", ".join(tables.heading(name) for name in sorted(main)),
        tiles=list(estimated_tiles(rows, main)),
        settings=[one for each in estimates for one in _settings(each, several=len(estimates) > 1)],
        runs=list(_runs(estimates)),
    )


def _settings(of: PastEstimate, *, several: bool) -> Iterator[dict[str, Any]]:
    """The estimates of each setting."""
    for _, rows in of.estimates.group_by("setting", "variant", maintain_order=True):
        part = f"{tables.asked(rows)} of the prompts"
        name = f"{of.run}: {tables.title(rows)}" if several else tables.title(rows)
        yield {
            "title": f"{name}, from {part}",
            "estimates": grid(tables.numbers_table(rows), "estimates", name),
            "notes": list(tables.notes(rows)),
        }


def _runs(estimates: Iterable[PastEstimate]) -> Iterator[dict[str, Any]]:
    for each in estimates:
        rows = {"budget": each.budget, **ran_rows(each.record, {})}
        yield ran(each.run, each.record, {k: v for k, v in rows.items() if v}, _SHOWN)
