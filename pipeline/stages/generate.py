"""generate: what a decoder model is asked: greedy answers, the canary's, and sampled ones."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from importlib import metadata
from typing import Any

import polars as pl

from operators import seeds
from operators.engines.protocol import Answer, Engine, Request, Sampling
from operators.prompts.tokens import encode
from pipeline.config.settings import Decoding
from pipeline.inputs.models import Weights
from pipeline.stages.decode import Answered
from pipeline.storage.artifact import Recipe

VERSION = 1


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
        "engine": decoding.engine_for("generate").version(),
        "transformers": metadata.version("transformers"),
        "sampling": asdict(sampling),
        **decoding.anew(),
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
    fields |= {"n_prompts": n_canary(decoding), **decoding.anew(canary=True)}
    return Recipe("canary", VERSION, fields, {"admitted": admitted.fingerprint})


def block_recipe(
    admitted: Recipe, weights: Weights, decoding: Decoding, block: int, seed: int
) -> Recipe:
    """One seeded block of sampled answers: more answers are more blocks, and these stay."""
    fields = _fields(weights, decoding, block_sampling(decoding))
    fields |= {"block": block, "seed": seed, "n_prompts": decoding.samples.n_prompts}
    return Recipe("samples", VERSION, fields, {"admitted": admitted.fingerprint})


@dataclass(frozen=True)
class Generate:
    """Answers decoded token by token: greedy ones, or with a `block`, samples of that number."""

    sampling: Sampling
    chat_template: bool
    block: int | None = None
    seed: int = 0

    @property
    def answers_per_prompt(self) -> int:
        """How many answers a prompt gets."""
        return self.sampling.n

    @property
    def shares_answers(self) -> bool:
        """Greedy answers to the same text are the same; samples are drawn for each prompt."""
        return self.block is None

    def token_ids(self, tokenizer: Any, texts: Sequence[str]) -> list[list[int]]:
        """The prompts as the model reads them."""
        return encode(tokenizer, texts, chat_template=self.chat_template)

    def answered(self, rows: pl.DataFrame, engine: Engine, tokenizer: Any) -> Iterator[Answered]:
        """An answer for each row, in the order in which they are finished."""
        for answer in engine.answers(self._requests(rows, tokenizer)):
            yield Answered(self._row(answer), _counts(answer))

    def _requests(self, rows: pl.DataFrame, tokenizer: Any) -> Iterator[Request]:
        for part in rows.iter_slices(1024):
            ids = self.token_ids(tokenizer, part["text"].to_list())
            for prompt_id, token_ids in zip(part["prompt_id"], ids, strict=True):
                # vLLM seeds a block's answers seed, seed + 1, …; 62 bits leave room for them.
                greedy = self.block is None
                seed = None if greedy else seeds.key(self.seed, prompt_id, self.block) >> 2
                yield Request(prompt_id, token_ids, self.sampling, seed)

    def _row(self, answer: Answer) -> dict[str, Any]:
        if self.block is not None:
            texts = [completion.text for completion in answer.completions]
            return {"prompt_id": answer.request_id, "block": self.block, "texts": texts}
        (completion,) = answer.completions
        return {"prompt_id": answer.request_id, **asdict(completion)}


def _counts(answer: Answer) -> dict[str, float]:
    return {
        "prompts": 1,
        "answers": len(answer.completions),
        "prompt_tokens": answer.n_prompt_tokens,
        "cached_tokens": answer.n_cached_tokens,
        "output_tokens": sum(each.n_tokens for each in answer.completions),
    }
