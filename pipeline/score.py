"""score: metrics of answers that were made elsewhere, by any system.

The answers take the place of a decoded artifact; all that comes before and after is the same.
"""

import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import polars as pl

from operators.errors import InputError
from operators.methods.method import Asked
from pipeline import catalog
from pipeline.artifact import Artifact, Recipe
from pipeline.files import scan
from pipeline.models import Weights
from pipeline.plan import Branch, Plan
from pipeline.run import check_failed
from pipeline.settings import Run
from pipeline.stages import aggregate, expand, facts, match, report
from pipeline.store import Store

VERSION = 1


def score(run: Run) -> pl.DataFrame:
    """The metrics of the answers in `answers=`.

    The file has one row a prompt: prompt_id and text. Its prompts are those of `benchmark=`,
    `prompt=` and `seed=`; a prompt without a row counts as failed.

    Raises:
        InputError: no file, a missing column, an unknown or repeated prompt_id, several settings.
    """
    started = time.monotonic()
    if run.answers is None:
        raise InputError("score needs answers=<a JSONL or Parquet file with prompt_id and text>.")
    if len(run.settings) != 1:
        raise InputError("score measures one setting; name it with prompt=….")
    path = Path(run.answers)
    if not path.is_file():
        raise InputError(f"answers={path} is no file; give a JSONL or Parquet file.")
    branch = _branch(run, run.settings[0], catalog.checksum([path]))
    _make(run, branch, path)
    plan = Plan(run, Weights(run.model, f"answers of {path.name}"), (branch,))
    metrics = report.write(plan, {"total": round(time.monotonic() - started, 1)})
    check_failed(plan)
    return metrics


def _branch(run: Run, setting: Asked, checksum: str) -> Branch:
    facts_recipe = facts.recipe(run.benchmark)
    method = run.benchmark.method
    prompts = expand.recipe(facts_recipe, method, setting, run.seed)
    inputs = {"prompts": prompts.fingerprint}
    given = Recipe("generations", VERSION, {"answers": checksum}, inputs)
    admitted = Recipe("admitted", VERSION, {"answers": checksum}, inputs)
    matched = match.recipe(given, [], method, run.matching, 0)
    metrics = aggregate.recipe(
        matched, None, run.metrics, run.model.name, run.benchmark.name, setting, run.seed
    )
    at = partial(Artifact, Store(run.artifacts))
    return Branch(
        setting=setting,
        facts=at(facts_recipe),
        prompts=at(prompts),
        admitted=at(admitted),
        greedy=at(given),
        canary=None,
        blocks=(),
        matched=at(matched),
        metrics=at(metrics),
    )


def _make(run: Run, branch: Branch, path: Path) -> None:
    if not branch.facts.is_complete():
        facts.make(branch.facts, run.benchmark)
    if not branch.prompts.is_complete():
        size = run.cluster.rows_per_shard
        expand.make(branch.prompts, branch.facts, branch.setting, run.seed, size)
    if not branch.greedy.is_complete():
        _take(branch, _given(path, branch.prompts))
    if not branch.matched.is_complete():
        given = (branch.greedy, (), run.matching, Weights(run.model, "answers"))
        match.make(branch.matched, branch.facts, branch.prompts, *given)
    if not branch.metrics.is_complete():
        evidence = (branch.setting, branch.facts, branch.prompts, branch.matched, 0)
        aggregate.make(branch.metrics, *evidence)


def _given(path: Path, prompts: Artifact) -> pl.DataFrame:
    """The answers: prompt_id, text."""
    rows = scan([path])
    schema = rows.collect_schema()
    for column in ("prompt_id", "text"):
        if schema.get(column) not in (pl.String, pl.Null):
            found = schema.get(column, "nothing")
            raise InputError(f"{path}: column {column} must be text, found {found}; add it.")
    answers = rows.select(pl.col("prompt_id", "text").cast(pl.String)).collect()
    answers = answers.with_row_index("row")
    known = pl.concat([each.select("prompt_id") for each in prompts.each("prompts")])
    problems = {
        "its text is null; give an empty text or leave the row out": pl.col("text").is_null(),
        "its prompt_id stands twice; leave one out": ~pl.col("prompt_id").is_first_distinct(),
        "it is no prompt of this benchmark, setting and seed; check prompt= and seed=": ~pl.col(
            "prompt_id"
        ).is_in(known["prompt_id"].implode()),
    }
    for problem, wrong in problems.items():
        for row, prompt_id in answers.filter(wrong).select("row", "prompt_id").head(1).iter_rows():
            raise InputError(f"{path}, row {row} (counted from 0), {prompt_id!r}: {problem}.")
    return answers.drop("row")


def _take(branch: Branch, answers: pl.DataFrame) -> None:
    """Publish the given answers as the shards of a decoded artifact."""
    branch.admitted.begin()
    branch.greedy.begin()
    for shard, rows in _by_shard(branch.prompts, answers):
        absent = rows.filter(pl.col("text").is_null() & pl.col("same_as").is_null())
        errors = absent.select("prompt_id").with_columns(
            stage=pl.lit("score"), reason=pl.lit("no_answer_given"), detail=pl.lit(None, pl.String)
        )
        branch.admitted.write("errors", shard, errors)
        given = rows.filter(pl.col("text").is_not_null()).select("prompt_id", "text")
        unknown = {"n_tokens": pl.UInt16, "logprob": pl.Float32, "finish_reason": pl.String}
        columns = {name: pl.lit(None, kind) for name, kind in unknown.items()}
        branch.greedy.write("generations", shard, given.with_columns(**columns))
    branch.admitted.finish(["errors"])
    branch.greedy.finish(["generations"])


def _by_shard(prompts: Artifact, answers: pl.DataFrame) -> Iterator[tuple[str, pl.DataFrame]]:
    for shard in prompts.shards("prompts"):
        ids = prompts.read("prompts", shard).select("prompt_id", "same_as")
        yield shard, ids.join(answers, on="prompt_id", how="left", maintain_order="left")
