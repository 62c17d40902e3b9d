"""prompts: the prompts of a setting in a file, for any system to answer.

One row per prompt of distinct text: prompt_id, `prompt` (its text) and `asked` (setting and seed).
Further columns: `messages` (role, content) with prompt.as=turns; candidate_id and setting of texts
to score; `candidates` (a list of entity_id and labels) of entities to compare.
"""

import json
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow.parquet as pq

from factsweep.operators.engines.endpoint import openai_batch
from factsweep.operators.errors import InputError
from factsweep.operators.methods.method import FILL, GENERATE, PREFER, SCORE
from factsweep.operators.prompts.chat import messages, parse_chats
from factsweep.pipeline.config.run import Run
from factsweep.pipeline.machine.logs import LOG
from factsweep.pipeline.stages import facts as facts_stage
from factsweep.pipeline.stages.expand import with_text
from factsweep.pipeline.stages.external_answers import asked_name
from factsweep.pipeline.stages.facts import find_label_warnings
from factsweep.pipeline.stages.plan import asking
from factsweep.pipeline.storage import lease
from factsweep.pipeline.storage.artifact import Artifact

FORMATS = (".jsonl", ".parquet")


def write(run: Run, path: Path, *, batch: bool = False) -> int:
    """Write the prompts of a run's setting into a JSONL or Parquet file; returns their number.

    With `batch` they are requests of OpenAI's batch API, whose output `score` reads.

    Raises:
        InputError: several settings, an encoder, another format, or the file cannot be written.
    """
    if path.suffix not in FORMATS[: 1 if batch else 2]:
        raise InputError(
            f"--out {path}: requests of a batch are .jsonl; name it so."
            if batch
            else f"--out {path} is neither .jsonl nor .parquet; name it so."
        )
    body = _request_body(run) if batch else {}
    n, file = 0, None
    with _replace_at_end(path) as new_path, ExitStack() as files:
        for rows in iterate_prompts(run):
            n += rows.height
            if path.suffix == ".parquet":
                table = rows.to_arrow()
                file = file or files.enter_context(pq.ParquetWriter(new_path, table.schema))
                file.write_table(table)
            else:
                file = file or files.enter_context(new_path.open("wb"))
                file.write(
                    (_format_requests(run, rows, body) if batch else rows.write_ndjson()).encode()
                )
    return n


def _request_body(run: Run) -> dict[str, Any]:
    """The fields of every request of a batch: the same as in a run with the endpoint."""
    if run.method.ask.ability != GENERATE:
        raise InputError(
            f"benchmark={run.benchmark.name} asks for no answers that a batch could give; leave "
            "--batch out."
        )
    decoding = facts_stage.with_room(run)
    thought = decoding.thinking_tokens if run.model.thinking else 0
    stops = [] if thought else [*decoding.stop]  # a stop would end the thought
    max_tokens = "max_completion_tokens" if run.model.chat_template else "max_tokens"
    return {
        "model": run.model.id,
        max_tokens: decoding.max_tokens + thought,
        "temperature": 0.0,
        **({"stop": stops} if stops else {}),
        **run.model.arguments,
    }


def _format_requests(run: Run, rows: pl.DataFrame, body: Mapping[str, Any]) -> str:
    as_turns, lines = "messages" in rows.columns, []
    for prompt_id, text, setting_name in rows.select("prompt_id", "prompt", "asked").iter_rows():
        prompt = messages(text, as_turns=as_turns) if run.model.chat_template else text
        line = openai_batch.request(prompt_id, setting_name, prompt, body)
        lines.append(json.dumps(line, ensure_ascii=False) + "\n")
    return "".join(lines)


def iterate_prompts(run: Run) -> Iterator[pl.DataFrame]:
    """The prompts of a run's setting, one table per shard.

    Raises:
        InputError: several settings, an encoder, or a fact that no answer can match.
    """
    if run.method.ask.ability == FILL:
        raise InputError(
            f"prompts of encoders have their own masks; model={run.model.name} is one."
        )
    if len(run.settings) != 1:
        raise InputError("prompts writes one setting; name it with prompt=….")
    (setting,) = run.settings
    steps = asking(run, setting)
    for sentence in find_label_warnings(run.benchmark, run.matching.pipeline, steps[0].artifact):
        LOG.warning("%s", sentence)
    prompts = steps[-1].artifact
    missing = [step.artifact.folder for step in steps if not step.artifact.is_complete()]
    if missing:
        wait = run.cluster.when_held == "wait"
        with lease.hold_leases(prompts.store, missing, wait=wait) as writer:
            for step in steps:
                step.run(writer.leases.get(step.artifact.folder))
    for shard in prompts.shards("prompts"):
        rows = with_text(prompts, "prompts", shard).filter(pl.col("same_as").is_null())
        prompts_of_shard = rows.with_columns(
            asked=pl.lit(asked_name(setting, prompts)), prompt="text"
        )
        if getattr(setting, "as_", None) == "turns":
            prompts_of_shard = prompts_of_shard.with_columns(messages=parse_chats(pl.col("text")))
        yield _select_columns(run, prompts, shard, prompts_of_shard)


def _select_columns(run: Run, prompts: Artifact, shard: str, rows: pl.DataFrame) -> pl.DataFrame:
    ability = run.method.ask.ability
    if ability == SCORE:
        types = prompts.read("contexts", shard).select("context_id", "setting")
        rows = rows.join(types, on="context_id", how="left", maintain_order="left")
        candidate = pl.col("prompt_id").str.strip_suffix(pl.format(".{}", "setting"))
        return rows.select("prompt_id", "setting", "prompt", "asked", candidate_id=candidate)
    if ability == PREFER:
        by_set = prompts.read("candidate_sets", shard).group_by("candidates_id")
        sets = by_set.agg(candidates=pl.struct("entity_id", "labels"))
        rows = rows.join(sets, on="candidates_id", how="left", maintain_order="left")
        return rows.select("prompt_id", "prompt", "asked", "candidates")
    return rows.select("prompt_id", "prompt", "asked", *({"messages"} & {*rows.columns}))


@contextmanager
def _replace_at_end(path: Path) -> Iterator[Path]:
    new_path = path.with_name(f".{path.name}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        yield new_path
        new_path.replace(path)
    except OSError as error:
        raise InputError(f"{path} cannot be written ({error.strerror}); name another.") from error
    finally:
        new_path.unlink(missing_ok=True)
