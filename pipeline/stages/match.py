"""match: answers × facts → what is right of them, a relation at a time."""

from collections.abc import Sequence
from functools import partial

import polars as pl

from operators.methods import METHODS
from operators.schemas import empty
from pipeline.config.settings import Matching
from pipeline.inputs import models
from pipeline.inputs.models import Weights
from pipeline.stages import facts as facts_stage
from pipeline.stages.expand import relation_of
from pipeline.storage.artifact import Artifact, Recipe

VERSION = 4


def recipe(
    greedy: Recipe, blocks: Sequence[Recipe], method: str, matching: Matching, n_prompts: int
) -> Recipe:
    """The answers, and how they are matched."""
    fields = {
        "method": method,
        "pipeline": matching.pipeline,
        "versions": METHODS[method].versions(matching.pipeline),
        "n_prompts": n_prompts if blocks else 0,
    }
    inputs = {f"block {number}": block.fingerprint for number, block in enumerate(blocks)}
    return Recipe("matched", VERSION, fields, {greedy.stage: greedy.fingerprint, **inputs})


def make(
    artifact: Artifact,
    facts: Artifact,
    prompts: Artifact,
    greedy: Artifact,
    blocks: Sequence[Artifact],
    matching: Matching,
    weights: Weights,
) -> None:
    """Publish the matched tables of each relation."""
    artifact.begin()
    method = METHODS[artifact.recipe.fields["method"]]
    tokenizer = partial(models.tokenizer, weights)
    match = method.matcher(facts_stage.load(facts), matching.pipeline, tokenizer)
    originals = _originals(prompts, greedy)
    for relation_id in prompts.shards("ranked"):
        answers = _answers(prompts, greedy, originals, relation_id)
        for table, rows in match(answers, _further(blocks, relation_id)).items():
            artifact.write(table, relation_id, rows)
    artifact.finish(method.matched)


def _originals(prompts: Artifact, greedy: Artifact) -> pl.DataFrame:
    """The answers that stand for other prompts of the same text: same_as, and the answer."""
    shards = prompts.each("prompts")
    ids = [shard.select(pl.col("same_as").drop_nulls().unique()) for shard in shards]
    wanted = pl.concat(ids).unique().rename({"same_as": "prompt_id"})
    found = [each.join(wanted, on="prompt_id", how="semi") for each in greedy.each(greedy.stage)]
    return pl.concat([empty(greedy.stage), *found]).rename({"prompt_id": "same_as"})


def _answers(
    prompts: Artifact, greedy: Artifact, originals: pl.DataFrame, relation_id: str
) -> pl.DataFrame:
    """The relation's prompts that have an answer, with it."""
    shards = [s for s in prompts.shards("prompts") if relation_of(s) == relation_id]
    rows = pl.concat([prompts.read("prompts", shard) for shard in shards])
    own = pl.concat([greedy.read(greedy.stage, shard) for shard in shards])
    asked = rows.select("prompt_id", "pair_id", "template_id", "subject_index", "same_as")
    asked = asked.with_columns(relation_id=pl.lit(relation_id))
    first = asked.join(own, on="prompt_id", maintain_order="left")
    again = asked.join(originals, on="same_as", maintain_order="left").select(first.columns)
    answers = pl.concat([first, again]).drop("same_as")
    return asked.select("prompt_id").join(answers, on="prompt_id", maintain_order="left")


def _further(blocks: Sequence[Artifact], relation_id: str) -> pl.DataFrame:
    """The relation's sampled answers (prompt_id, text), or what its templates say by themselves."""
    rows = [block.read(block.stage, relation_id) for block in blocks]
    if blocks and blocks[0].stage == "priors":
        return pl.concat(rows)
    samples = pl.concat([empty("samples"), *rows]).select("prompt_id", text="texts")
    return samples.explode("text").drop_nulls("text")
