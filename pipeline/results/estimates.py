"""Estimates: computed from the answers to a budget's prompts, written, and read again.

<run name>/estimates.parquet  every number
           estimates.md     the same as a table for people
           estimate.json    configuration, budget, artifacts, versions, checksums

It takes the place of run.json, so that no verb takes an estimate for a full run.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import polars as pl

from factsweep.operators.datasets.facts import Facts
from factsweep.operators.errors import DamagedFileError, DecodingError, InputError
from factsweep.operators.methods import METHODS
from factsweep.operators.methods.method import Part
from factsweep.operators.metrics.shared.bootstrap import single_threaded_blas
from factsweep.operators.schemas import empty
from factsweep.operators.tables import estimates as tables
from factsweep.pipeline.config.folders import below
from factsweep.pipeline.config.run import Run
from factsweep.pipeline.machine.logs import LOG
from factsweep.pipeline.results import run_record
from factsweep.pipeline.results.compare import setting_of
from factsweep.pipeline.results.past_runs import PastBranch, Record, count_answered
from factsweep.pipeline.stages import facts as facts_stage
from factsweep.pipeline.stages.expand import relation_of
from factsweep.pipeline.stages.match import Match, read_extra_tables
from factsweep.pipeline.stages.plan import Branch, Plan
from factsweep.pipeline.storage.artifact import Artifact
from factsweep.pipeline.storage.shard import ShardPlace, decode, encode
from factsweep.pipeline.storage.store import Store, StoredFile, to_json

_PLACE = ShardPlace("estimates", "", "estimates")
Controls = Mapping[str, PastBranch]  # by the title of the setting


def read_answers_of_budget(answered: Artifact, chosen: Artifact) -> pl.DataFrame:
    """The answers to the prompts of a budget, of the schema of the answers' table."""
    table = answered.stage
    rows = [empty(table)]
    for shard in chosen.shards("needed"):
        needed = chosen.read("needed", shard)
        if answered.has(table, shard):
            parts = [answered.read(table, shard)]
        else:
            folder = f"chunks/{table}/{shard}"
            chunks = answered.list_published(folder)
            parts = [answered.read_chunk(table, folder, name)[0] for name in chunks]
        rows += [part.join(needed, on="prompt_id", how="semi") for part in parts]
    return pl.concat(rows).unique("prompt_id", keep="first", maintain_order=True)


def count_failed(prompts: Artifact, admitted: Artifact, answered: Artifact) -> pl.DataFrame:
    """The number of each pair's prompts that have an error and no answer: pair_id, n_failed."""
    published = answered.all_published()
    errors = [admitted.read("errors", shard) for shard, n in admitted.rows("errors").items() if n]
    errors += [answered.read("errors", shard) for shard in published.get("errors", ())]
    for folder, names in published.items():
        if folder.startswith("chunks/errors/"):
            errors += [answered.read_chunk("errors", folder, name)[0] for name in names]
    failed = pl.concat([empty("errors"), *errors]).select(source_id="prompt_id")
    pairs = [pl.DataFrame(schema={"pair_id": pl.String})]
    for shard in prompts.shards("prompts") if failed.height else ():
        # A prompt fails if the one whose answer it shares does.
        rows = prompts.read("prompts", shard, ["prompt_id", "same_as", "pair_id"])
        rows = rows.select("pair_id", source_id=pl.coalesce("same_as", "prompt_id"))
        pairs.append(rows.join(failed, on="source_id", how="semi").drop("source_id"))
    return pl.concat(pairs).group_by("pair_id").agg(n_failed=pl.len().cast(pl.Int64))


def find_controls(plan: Plan) -> Controls:
    """The settings of the run that `control=` names; empty without one.

    A setting takes the one with the same prompts; else the one of its name, or the only one.

    Raises:
        InputError: there is no such run, or it was asked other prompts or none of a setting.
    """
    run, controls = plan.run, dict[str, PastBranch]()
    if run.control is None:
        return controls
    earlier = setting_of(run.control, run.results)
    only = next(iter(earlier.values())) if len(earlier) == 1 else None
    by_prompts = {control.artifacts["prompts"].folder: control for control in earlier.values()}
    for branch in plan.branches:
        by_title = earlier.get(branch.title, only)
        control = by_prompts.get(branch.prompts.folder, by_title)
        if control is None or control.artifacts["facts"].folder != branch.facts.folder:
            raise _other_prompts_error(run, branch.title)
        controls[branch.title] = control
    return controls


@single_threaded_blas()
def estimate_setting(run: Run, branch: Branch, controls: Controls) -> pl.DataFrame:
    """The estimates of a setting from its answers to the prompts of a budget, with its control.

    `branch` is one of a plan that a budget samples.

    Raises:
        DecodingError: no prompt has an answer.
        InputError: the control was asked other prompts.
    """
    chosen, sampling = branch.chosen, run.method.measure.sampling
    assert chosen is not None, "a budget chooses"
    assert sampling is not None, "its benchmark is one of which parts are asked"
    control = controls.get(branch.title)
    if control is not None:
        _check_prompts(run, control, branch.prompts)
    facts = facts_stage.load(branch.facts)
    rows = _match_answers(run, branch, chosen, facts)
    if rows.is_empty():
        raise DecodingError(
            "no prompt of the budget has an answer, so there is nothing to measure."
        )
    failed = count_failed(branch.prompts, branch.admitted, branch.answers)
    crossed = chosen.read("crossed", "all")
    pairs = crossed.join(failed, on="pair_id", how="left", maintain_order="left")
    pairs = pairs.with_columns(pl.col("n_failed").fill_null(0))
    pairs = pairs.filter(pl.col("n_failed") < pl.col("n_names") * pl.col("n_templates"))
    matched = None if control is None else control.matched_answers
    part = Part(facts, branch.setting, rows, pairs, run.metrics, run.seed, matched)
    estimates = sampling.estimate(part)
    texts = {
        "model": run.model.name,
        "benchmark": run.benchmark.name,
        "setting": branch.setting.name,
        "variant": branch.setting.variant,
        "control": None if control is None else control.artifacts["matched"].folder,
    }
    missing = texts.keys() - {*estimates.columns}
    literals = {name: pl.lit(texts[name], pl.String) for name in missing}
    return estimates.with_columns(**literals).select(empty("estimates").columns)


def _match_answers(run: Run, branch: Branch, chosen: Artifact, facts: Facts) -> pl.DataFrame:
    method = run.benchmark.method
    inputs = branch.facts, branch.prompts, branch.answers
    match = Match(method, *inputs, (), None, run.matching, branch.weights, n_sampled=0)
    matcher = match.matcher(facts)
    answers = read_answers_of_budget(branch.answers, chosen).rename({"prompt_id": "source_id"})
    tables, shards = [], chosen.shards("chosen")
    for relation_id in sorted(set(map(relation_of, shards))):
        parts = [chosen.read("chosen", s) for s in shards if relation_of(s) == relation_id]
        prompts = pl.concat(parts).with_columns(relation_id=pl.lit(relation_id))
        rows = prompts.join(answers, on="source_id", maintain_order="left").drop("source_id")
        further_tables = read_extra_tables(method, (), relation_id)
        tables.append(matcher(rows, further_tables)[METHODS[method].measure.answers])
    return pl.concat(tables)


def _check_prompts(run: Run, control: PastBranch, prompts: Artifact) -> None:
    theirs = control.artifacts["prompts"]
    if theirs.folder == prompts.folder:
        return
    for shard in prompts.shards("ranked"):
        ids = set(prompts.read("ranked", shard)["prompt_id"])
        if not theirs.has("ranked", shard) or set(theirs.read("ranked", shard)["prompt_id"]) != ids:
            raise _other_prompts_error(run, control.setting)


def _other_prompts_error(run: Run, setting: str) -> InputError:
    return InputError(
        f"control={run.control} was asked other prompts than {setting} asks now (other facts, "
        "templates or names), so it says nothing of these; name a run of the same, or leave it out."
    )


def warn_of_missing(run: Run, control: PastBranch) -> None:
    """Warn of the prompts that a control has not answered, if there are any."""
    n, n_failed = count_answered(control.metrics.read_all("metrics"), control.benchmark_method)
    if n_failed:
        text = (
            "control=%s has no answer to %s of %s prompts; facts whose prompts it has not all "
            "answered are estimated without it."
        )
        LOG.warning(text, run.control, f"{n_failed:,}", f"{n + n_failed:,}")


class PastEstimate(NamedTuple):
    """The estimates of a run with a budget, and its estimate.json."""

    estimates: pl.DataFrame
    record: Record


def files(plan: Plan, rows: pl.DataFrame, sentences: Sequence[str] = ()) -> dict[str, bytes]:
    """The files of estimates by name, estimate.json last; the text ends with the sentences."""
    content = json.loads(json.dumps(run_record.build_record(plan, {})))
    text = "\n".join([tables.format_report(rows), *sentences])
    content_by_name = {
        run_record.ESTIMATED: encode(rows, _PLACE),
        run_record.ESTIMATES_TEXT: f"{text.strip()}\n".encode(),
    }
    record = {**content, "files": run_record.checksums(content_by_name)}
    return {**content_by_name, run_record.ESTIMATE: to_json(record)}


def is_estimate(results: str, name: str) -> bool:
    """Whether a run of that name has estimates, and no full results."""
    return Store(below(results, name)).exists(run_record.ESTIMATE)


def read(results: str, name: str) -> PastEstimate:
    """The estimates of a run.

    Raises:
        DamagedFileError: a file differs from its checksum.
    """
    store = Store(below(results, name))
    content = run_record.read(store, run_record.ESTIMATE)
    source = StoredFile(store.where(run_record.ESTIMATED))
    numbers = run_record.read_file(store, run_record.ESTIMATED, content)
    return PastEstimate(decode(numbers, _PLACE, source), content)


def find_damaged(run: Run) -> Iterator[str]:
    """A sentence for each damaged file of a run's estimates, if it has any."""
    try:
        if is_estimate(run.results, run.name):
            yield from run_record.find_wrong_files(
                Store(run.folder), read(run.results, run.name).record
            )
    except DamagedFileError as error:
        yield str(error)
