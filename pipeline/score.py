"""score: metrics of answers that were made elsewhere, by any system.

The answers take the place of a decoded artifact; all that comes before and after is the same.
"""

import time
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path

import polars as pl

from operators.errors import InputError
from operators.methods.method import Asked
from operators.prompts.plausibility import PROMPT_TYPES
from operators.schemas import empty
from pipeline.config.settings import Run
from pipeline.execution.plan import Branch, Plan
from pipeline.inputs import catalog
from pipeline.inputs.files import scan
from pipeline.inputs.models import Weights
from pipeline.results import report
from pipeline.run import check_failed
from pipeline.stages import aggregate, expand, facts, match
from pipeline.storage.artifact import Artifact, Recipe
from pipeline.storage.store import Store

VERSION = 1


def score(run: Run) -> pl.DataFrame:
    """The metrics of the answers in `answers=`.

    The file has one row a prompt: prompt_id and text. Where texts are scored (PRobELM), it has
    candidate_id, logprob (the sum over the text's tokens, nats) and n_tokens, and setting (the
    prompt type) if several are asked; entity_logprob and entity_n_tokens may be there. Its prompts
    are those of `benchmark=`, `prompt=` and `seed=`; a prompt without a row counts as failed.

    Raises:
        InputError: no file, a missing column, an unknown or repeated prompt_id, several settings.
    """
    started = time.monotonic()
    if run.answers is None:
        raise InputError("score needs answers=<a JSONL or Parquet file, docs/adding.md>.")
    if run.method.ability == "fill":
        raise InputError(f"score measures no encoder's answers; model={run.model.name} is one.")
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
    stage = "scores" if run.method.ability == "score" else "generations"
    given = Recipe(stage, VERSION, {"answers": checksum}, inputs)
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
        _take(branch, _given(run, path, branch.prompts))
    if not branch.matched.is_complete():
        given = (branch.greedy, (), run.matching, Weights(run.model, "answers"))
        match.make(branch.matched, branch.facts, branch.prompts, *given)
    if not branch.metrics.is_complete():
        evidence = (branch.setting, branch.facts, branch.prompts, branch.matched, 0)
        aggregate.make(branch.metrics, *evidence)


def _given(run: Run, path: Path, prompts: Artifact) -> pl.DataFrame:
    """The answers by prompt_id, with the columns that they have of their table."""
    rows = scan([path])
    scored = run.method.ability == "score"
    answers = _scores(run, path, rows) if scored else _texts(path, rows)
    if answers.is_empty():
        raise InputError(f"{path} has no answers; give one row for each that there is.")
    named = "candidate_id and setting" if scored else "prompt_id"
    known = pl.concat([each.select("prompt_id") for each in prompts.each("prompts")])
    problems = {
        f"its {_VALUES[run.method.ability]} is null; give one or leave the row out": pl.col(
            _VALUES[run.method.ability]
        ).is_null(),
        f"its {named} stands twice; leave one out": ~pl.col("prompt_id").is_first_distinct(),
        "it is no prompt of this benchmark, setting and seed; check prompt= and seed=": ~pl.col(
            "prompt_id"
        ).is_in(known["prompt_id"].implode()),
    }
    answers = answers.with_row_index("row")
    for problem, wrong in problems.items():
        for row, prompt_id in answers.filter(wrong).select("row", "prompt_id").head(1).iter_rows():
            raise InputError(f"{path}, row {row} (counted from 0), {prompt_id!r}: {problem}.")
    return answers.drop("row")


_VALUES = {"generate": "text", "score": "logprob"}


def _texts(path: Path, rows: pl.LazyFrame) -> pl.DataFrame:
    _check_columns(path, rows, {"prompt_id": "text", "text": "text"})
    return rows.select(pl.col("prompt_id", "text").cast(pl.String)).collect()


def _scores(run: Run, path: Path, rows: pl.LazyFrame) -> pl.DataFrame:
    columns = {"candidate_id": "text", "logprob": "numbers", "n_tokens": "numbers"}
    setting = run.settings[0].name
    several = setting not in PROMPT_TYPES
    _check_columns(path, rows, {**columns, "setting": "text"} if several else columns)
    given = pl.col("setting") if several else pl.lit(setting)
    further = [n for n in ("entity_logprob", "entity_n_tokens") if n in rows.collect_schema()]
    return rows.select(
        pl.format("{}.{}", "candidate_id", given).alias("prompt_id"),
        "logprob",
        "n_tokens",
        *further,
    ).collect()


def _check_columns(path: Path, rows: pl.LazyFrame, kinds: Mapping[str, str]) -> None:
    schema = rows.collect_schema()
    for column, kind in kinds.items():
        found = schema.get(column)
        text = found in (pl.String, pl.Null)
        number = found is not None and (found.is_numeric() or found == pl.Null)
        if not (text if kind == "text" else number):
            found_as = "nothing" if found is None else found
            raise InputError(f"{path}: column {column} must be {kind}, found {found_as}; add it.")


def _take(branch: Branch, answers: pl.DataFrame) -> None:
    """Publish the given answers as the shards of a decoded artifact."""
    branch.admitted.begin()
    branch.greedy.begin()
    for shard, rows in _by_shard(branch.prompts, answers):
        table = branch.greedy.stage
        value = pl.col("text" if table == "generations" else "logprob")
        absent = rows.filter(value.is_null() & pl.col("same_as").is_null())
        errors = absent.select("prompt_id").with_columns(
            stage=pl.lit("score"), reason=pl.lit("no_answer_given"), detail=pl.lit(None, pl.String)
        )
        branch.admitted.write("errors", shard, errors)
        given = rows.filter(value.is_not_null()).drop("same_as")
        branch.greedy.write(table, shard, pl.concat([empty(table), given], how="diagonal_relaxed"))
    branch.admitted.finish(["errors"])
    branch.greedy.finish([branch.greedy.stage])


def _by_shard(prompts: Artifact, answers: pl.DataFrame) -> Iterator[tuple[str, pl.DataFrame]]:
    for shard in prompts.shards("prompts"):
        ids = prompts.read("prompts", shard).select("prompt_id", "same_as")
        yield shard, ids.join(answers, on="prompt_id", how="left", maintain_order="left")
