"""match: answers × facts → what is right of them, a relation at a time."""

from collections.abc import Sequence

import polars as pl

from operators.methods import METHODS
from operators.schemas import empty
from pipeline.artifact import Artifact, Recipe
from pipeline.settings import Matching
from pipeline.stages import facts as facts_stage
from pipeline.stages.expand import relation_of

VERSION = 2


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
    return Recipe("matched", VERSION, fields, {"generations": greedy.fingerprint, **inputs})


def make(
    artifact: Artifact,
    facts: Artifact,
    prompts: Artifact,
    greedy: Artifact,
    blocks: Sequence[Artifact],
    matching: Matching,
) -> None:
    """Publish the matched tables of each relation."""
    artifact.begin()
    method = METHODS[artifact.recipe.fields["method"]]
    match = method.matcher(facts_stage.load(facts), matching.pipeline)
    originals = _originals(prompts, greedy)
    for relation_id in prompts.shards("ranked"):
        answers = _answers(prompts, greedy, originals, relation_id)
        for table, rows in match(answers, _samples(blocks, relation_id)).items():
            artifact.write(table, relation_id, rows)
    artifact.finish(method.matched)


def _originals(prompts: Artifact, greedy: Artifact) -> pl.DataFrame:
    """The answers that stand for other prompts of the same text: same_as, text."""
    shards = prompts.each("prompts")
    ids = [shard.select(pl.col("same_as").drop_nulls().unique()) for shard in shards]
    wanted = pl.concat(ids).unique().rename({"same_as": "prompt_id"})
    found = [each.join(wanted, on="prompt_id", how="semi") for each in greedy.each("generations")]
    rows = pl.concat([empty("generations"), *found])
    return rows.select(same_as="prompt_id", original="text")


def _answers(
    prompts: Artifact, greedy: Artifact, originals: pl.DataFrame, relation_id: str
) -> pl.DataFrame:
    """The relation's prompts that have an answer, with its text."""
    shards = [s for s in prompts.shards("prompts") if relation_of(s) == relation_id]
    rows = pl.concat([prompts.read("prompts", shard) for shard in shards])
    own = pl.concat([greedy.read("generations", shard) for shard in shards])
    return (
        rows.select("prompt_id", "pair_id", "template_id", "subject_index", "same_as")
        .join(own.select("prompt_id", "text"), on="prompt_id", how="left", maintain_order="left")
        .join(originals, on="same_as", how="left", maintain_order="left")
        .with_columns(text=pl.coalesce("text", "original"), relation_id=pl.lit(relation_id))
        .filter(pl.col("text").is_not_null())
    )


def _samples(blocks: Sequence[Artifact], relation_id: str) -> pl.DataFrame:
    """The relation's sampled answers: prompt_id, text."""
    published = [block.read("samples", relation_id) for block in blocks]
    samples = pl.concat([empty("samples"), *published]).select("prompt_id", text="texts")
    return samples.explode("text").drop_nulls("text")
