"""Estimates: from the answers to a budget's prompts to what is written, and read again.

<run name>/estimates.parquet  every number
           estimates.md     the same, for people
           estimates.html   the same, on a page
           estimate.json    what was asked: configuration, budget, artifacts, versions, checksums

Nothing here has a run.json, so that no verb takes an estimate for a full run.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import polars as pl

from factsweep.operators.errors import DamagedFileError, DecodingError, InputError
from factsweep.operators.methods import METHODS
from factsweep.operators.methods.method import Matcher, Part
from factsweep.operators.metrics.shared.bootstrap import single_threaded_blas
from factsweep.operators.pages import page
from factsweep.operators.pages.grid import estimated_tiles, grid
from factsweep.operators.pages.page import ran, ran_rows
from factsweep.operators.schemas import empty
from factsweep.operators.tables import estimates as tables
from factsweep.operators.tables.shared.wide import called
from factsweep.pipeline.config.folders import below
from factsweep.pipeline.config.run import Run
from factsweep.pipeline.machine.logs import LOG
from factsweep.pipeline.results import past, record
from factsweep.pipeline.results.compare import setting_of
from factsweep.pipeline.results.past import PastBranch, Record, setting
from factsweep.pipeline.stages import facts as facts_stage
from factsweep.pipeline.stages.expand import relation_of
from factsweep.pipeline.stages.match import Match
from factsweep.pipeline.stages.match import beside as asked_beside
from factsweep.pipeline.stages.plan import Branch, Plan
from factsweep.pipeline.storage.artifact import Artifact
from factsweep.pipeline.storage.json_files import Stored, to_json
from factsweep.pipeline.storage.lookup import opened
from factsweep.pipeline.storage.shard import Place, decode, encode
from factsweep.pipeline.storage.store import Store

_PLACE = Place("estimates", "", "estimates")
_SHOWN = ("model", "benchmark", "settings", "budget", "decoding", "metrics", "cluster", "seed")

Controls = Mapping[str, PastBranch]  # by the title of the setting


def answers_of_budget(given: Artifact, chosen: Artifact) -> pl.DataFrame:
    """The answers to the prompts that a budget needs, of the schema of the answers' table."""
    table = given.stage
    found = []
    for shard in chosen.shards("needed"):
        needed = chosen.read("needed", shard)
        if given.has(table, shard):
            parts = [given.read(table, shard)]
        else:
            folder = f"chunks/{table}/{shard}"
            parts = [given.read_chunk(table, folder, name)[0] for name in given.published(folder)]
        found += [each.join(needed, on="prompt_id", how="semi") for each in parts]
    return pl.concat([empty(table), *found]).unique("prompt_id", keep="first", maintain_order=True)


def unanswered(prompts: Artifact, admitted: Artifact, given: Artifact) -> pl.DataFrame:
    """How many prompts of each pair have a reason why they have no answer: pair_id, n_failed."""
    published = given.all_published()
    refused = [admitted.read("errors", each) for each, n in admitted.rows("errors").items() if n]
    refused += [given.read("errors", each) for each in published.get("errors", ())]
    for folder, names in published.items():
        if folder.startswith("chunks/errors/"):
            refused += [given.read_chunk("errors", folder, each)[0] for each in names]
    failed = pl.concat([empty("errors"), *refused]).select(source_id="prompt_id")
    pairs = [pl.DataFrame(schema={"pair_id": pl.String})]
    if failed.height:
        pairs += [_pairs_of(prompts, failed, shard) for shard in prompts.shards("prompts")]
    return pl.concat(pairs).group_by("pair_id").agg(n_failed=pl.len().cast(pl.Int64))


def _pairs_of(prompts: Artifact, sources: pl.DataFrame, shard: str) -> pl.DataFrame:
    """The pair of each prompt of a shard whose answer would be that of one of these."""
    rows = prompts.read("prompts", shard, ["prompt_id", "same_as", "pair_id"])
    rows = rows.select("pair_id", source_id=pl.coalesce("same_as", "prompt_id"))
    return rows.join(sources, on="source_id", how="semi").drop("source_id")


def matched_by(matcher: Matcher, method: str, given: Artifact, chosen: Artifact) -> pl.DataFrame:
    """The answers to the prompts of a sample, in their order, as a matcher has them."""
    said = answers_of_budget(given, chosen).rename({"prompt_id": "source_id"})
    found = []
    for relation_id in sorted(set(map(relation_of, chosen.shards("chosen")))):
        shards = [s for s in chosen.shards("chosen") if relation_of(s) == relation_id]
        asked = pl.concat([chosen.read("chosen", each) for each in shards])
        asked = asked.with_columns(relation_id=pl.lit(relation_id))
        rows = asked.join(said, on="source_id", maintain_order="left").drop("source_id")
        made = matcher(rows, asked_beside(method, (), relation_id))
        found.append(made[METHODS[method].measure.answers])
    return pl.concat(found)


def controls_of(plan: Plan) -> Controls:
    """The settings of the run that `control=` names; empty without one.

    Raises:
        InputError: there is no such run, or it was asked other prompts or none of a setting.
    """
    run = plan.run
    if run.control is None:
        return {}
    earlier = setting_of(run.control, partial(past.by_title, run.results))
    return {branch.title: _same(run, branch, earlier) for branch in plan.branches}


@single_threaded_blas()
def estimated_setting(run: Run, branch: Branch, controls: Controls) -> pl.DataFrame:
    """What a setting's answers to the prompts of a budget say, with its control.

    `branch` is one of a plan that a budget samples.

    Raises:
        DecodingError: no prompt has an answer.
        InputError: the control was asked other prompts.
    """
    asked, sampling = branch.chosen, run.method.measure.sampling
    assert asked is not None, "a budget chooses"
    assert sampling is not None, "its benchmark is one of which parts are asked"
    control = controls.get(branch.title)
    if control is not None:
        _check_prompts(run, control, branch.prompts)
    failed = unanswered(branch.prompts, branch.admitted, branch.answers)
    facts, name = facts_stage.load(branch.facts), run.benchmark.method
    said = branch.facts, branch.prompts, branch.answers
    match = Match(name, *said, (), run.matching, branch.weights, n_sampled=0)
    rows = matched_by(match.matcher(facts), name, branch.answers, asked)
    if rows.is_empty():
        raise DecodingError(
            "no prompt of the budget has an answer, so there is nothing to measure."
        )
    pairs = asked.read("crossed", "all").join(
        failed, on="pair_id", how="left", maintain_order="left"
    )
    pairs = pairs.with_columns(pl.col("n_failed").fill_null(0))
    pairs = pairs.filter(pl.col("n_failed") < pl.col("n_names") * pl.col("n_templates"))
    earlier = None if control is None else control.matched_answers
    part = Part(facts, branch.setting, rows, pairs, run.metrics, run.seed, earlier)
    found = sampling.estimate(part)
    folder = None if control is None else control.artifacts["matched"].folder
    texts = {
        "model": run.model.name,
        "benchmark": run.benchmark.name,
        "setting": branch.setting.name,
        "variant": branch.setting.variant,
        "control": folder,
    }
    named = {name: pl.lit(text, pl.String) for name, text in texts.items()}
    missing = {name: text for name, text in named.items() if name not in found.columns}
    return found.with_columns(**missing).select(empty("estimates").columns)


def _check_prompts(run: Run, earlier: PastBranch, prompts: Artifact) -> None:
    theirs = earlier.artifacts["prompts"]
    if theirs.folder == prompts.folder:
        return
    for shard in prompts.shards("ranked"):
        asked = set(prompts.read("ranked", shard)["prompt_id"])
        if (
            not theirs.has("ranked", shard)
            or set(theirs.read("ranked", shard)["prompt_id"]) != asked
        ):
            raise _other(run, earlier.setting)


def _same(run: Run, branch: Branch, earlier: Mapping[str, PastBranch]) -> PastBranch:
    """The setting that asked what a setting asks; else the one of its name, or the only one."""
    for each in earlier.values():
        if each.artifacts["prompts"].folder == branch.prompts.folder:
            return each
    only = next(iter(earlier.values())) if len(earlier) == 1 else None
    found = earlier.get(branch.title, only)
    if found is None or found.artifacts["facts"].folder != branch.facts.folder:
        raise _other(run, branch.title)
    return found


def _other(run: Run, setting: str) -> InputError:
    return InputError(
        f"control={run.control} was asked other prompts than {setting} asks now (other facts, "
        "templates or names), so it says nothing of these; name a run of the same, or leave it out."
    )


def say_missing(run: Run, earlier: PastBranch) -> None:
    """Say how many prompts a control has not answered, if there are any."""
    metrics, main = earlier.metrics.read_all("metrics"), earlier.how.measure.main_metric
    row = metrics.filter(pl.col("slice").is_null(), metric=main)
    n, failed = row.select("n", "n_failed").row(0)
    if failed:
        LOG.warning(
            "control=%s has no answer to %s of %s prompts; facts whose prompts it has not all "
            "answered are estimated without it.",
            run.control,
            f"{failed:,}",
            f"{n + failed:,}",
        )


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
    content = json.loads(json.dumps(record.record(plan, {})))
    text = "\n".join([tables.written(found), *sentences])
    page = page_of([PastEstimate(plan.run.name, found, content)])
    made = {
        record.ESTIMATED: encode(found, _PLACE),
        record.ESTIMATES_TEXT: f"{text.strip()}\n".encode(),
        record.ESTIMATES_PAGE: page.encode(),
    }
    content |= {"files": record.checksums(made)}
    return {**made, record.ESTIMATE: to_json(content)}


def is_estimate(results: str, name: str) -> bool:
    """Whether a run of that name has estimates, and no full results."""
    return Store(below(results, name)).exists(record.ESTIMATE)


def read(results: str, name: str) -> PastEstimate:
    """What a run with a budget estimated.

    Raises:
        DamagedFileError: it is not what was written.
    """
    store = Store(below(results, name))
    content = record.read(store, record.ESTIMATE)
    where = Stored(store.where(record.ESTIMATED))
    numbers = record.file(store, record.ESTIMATED, content)
    return PastEstimate(name, decode(numbers, _PLACE, where), content)


def wrong(run: Run) -> Iterator[str]:
    """What is wrong with the estimates of a run, if it has any, with texts and pages, too."""
    try:
        if is_estimate(run.results, run.name):
            yield from record.wrong_files(Store(run.folder), read(run.results, run.name).record)
    except DamagedFileError as error:
        yield str(error)


def matched_answers(branch: PastBranch) -> pl.DataFrame:
    """The matched answers of a setting: to all of its prompts, or to those that were asked."""
    if "matched" in branch.artifacts:
        return branch.matched_answers()
    pipeline = branch.record["run"]["matching"]["pipeline"]
    # No tokenizer: masked models, whose tokens are matched, have no estimates.
    matcher = branch.how.measure.matcher(branch.facts, pipeline, lambda: None)
    return matched_by(matcher, branch.method, branch.answers, branch.artifacts["chosen"])


def page_of(estimates: Sequence[PastEstimate]) -> str:
    """The page of estimates, by runs."""
    rows = pl.concat(each.estimates for each in estimates)
    names = {each.record["run"]["benchmark"]["method"] for each in estimates}
    main = {METHODS[name].measure.main_metric for name in names}
    asked = (", ".join(rows[each].unique(maintain_order=True)) for each in ("model", "benchmark"))
    runs = []
    for each in estimates:
        told = {"budget": str(each.record["run"]["budget"]), **ran_rows(each.record, {})}
        runs.append(ran(each.run, each.record, {k: v for k, v in told.items() if v}, _SHOWN))
    return page.render(
        "estimates.html",
        title=" on ".join(asked),
        lead=tables.mark(rows),
        main_metric=", ".join(tables.heading(name) for name in sorted(main)),
        tiles=list(estimated_tiles(rows, main)),
        settings=[one for each in estimates for one in _settings(each, several=len(estimates) > 1)],
        runs=runs,
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
