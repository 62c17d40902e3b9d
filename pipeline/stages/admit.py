"""admit: prompts × a model's tokenizer → the prompts that do not fit its context, as error rows.

They are found here, where a sentence says so, and not on the GPU.
"""

import polars as pl

from operators.prompts.tokens import too_long
from pipeline.inputs import models
from pipeline.inputs.models import Weights
from pipeline.stages.expand import with_text
from pipeline.storage.artifact import Artifact, Recipe

VERSION = 1


def recipe(prompts: Recipe, weights: Weights, max_tokens: int) -> Recipe:
    """The prompts, the tokenizer and the room that is left for them."""
    fields = {
        "tokenizer": weights.model.id,
        "revision": weights.revision,
        "chat_template": weights.model.chat_template,
        "limit": _limit(weights, max_tokens),
    }
    return Recipe("admitted", VERSION, fields, {"prompts": prompts.fingerprint})


def _limit(weights: Weights, max_tokens: int) -> int:
    return weights.model.max_model_len - max_tokens


def make(artifact: Artifact, prompts: Artifact, weights: Weights, max_tokens: int) -> None:
    """Publish an error row for each prompt that leaves no room for an answer."""
    artifact.begin()
    tokenizer, limit = models.tokenizer(weights), _limit(weights, max_tokens)
    for shard in prompts.shards("prompts"):
        rows = with_text(prompts, "prompts", shard)
        found = too_long(
            tokenizer,
            rows["text"].to_list(),
            limit=limit,
            chat_template=weights.model.chat_template,
        )
        artifact.write("errors", shard, _errors(rows, found, limit))
    artifact.finish(["errors"])


def _errors(rows: pl.DataFrame, found: dict[int, int], limit: int) -> pl.DataFrame:
    ids = rows["prompt_id"].gather(list(found))
    details = [f"{length} tokens, room for {limit}" for length in found.values()]
    return pl.DataFrame(
        {"prompt_id": ids, "detail": pl.Series(details, dtype=pl.String)}
    ).with_columns(stage=pl.lit("admit"), reason=pl.lit("prompt_too_long"))
