"""match: answers × facts → which are correct, and how sure the model was of the sampled ones."""

from collections.abc import Sequence

import polars as pl

from operators.matching.correct import correct
from operators.matching.key import key
from operators.matching.normalise import Normaliser
from operators.metrics.confidence import confidence
from operators.schemas import empty
from pipeline.artifact import Artifact, Recipe
from pipeline.settings import Matching
from pipeline.stages import facts as facts_stage
from pipeline.stages.expand import relation_of

VERSION = 1
TABLES = ("answers", "calibration")


def recipe(greedy: Recipe, blocks: Sequence[Recipe], matching: Matching, n_prompts: int) -> Recipe:
    """The answers, and how they are normalised."""
    fields = {
        "pipeline": matching.pipeline,
        "versions": Normaliser(matching.pipeline).versions,
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
    """Publish the matched answers of each relation, and its calibration rows."""
    artifact.begin()
    normaliser = Normaliser(matching.pipeline)
    labels = _labels(facts, normaliser)
    originals = _originals(prompts, greedy)
    for relation_id in prompts.shards("ranked"):
        texts = _texts(prompts, greedy, originals, relation_id)
        answers = correct(_normalised(texts, normaliser), labels)
        answers = answers.with_columns(relation_id=pl.lit(relation_id))
        artifact.write("answers", relation_id, answers)
        rows = _calibration(answers, blocks, relation_id, normaliser)
        artifact.write("calibration", relation_id, rows)
    artifact.finish(TABLES)


def _labels(facts: Artifact, normaliser: Normaliser) -> pl.DataFrame:
    """One row a right answer: pair_id, key."""
    labels = pl.col("objects").list.eval(pl.element().struct.field("labels").explode())
    pairs = facts_stage.load(facts).pairs.select("pair_id", text=labels).explode("text")
    return _normalised(pairs, normaliser).select("pair_id", "key")


def _normalised(rows: pl.DataFrame, normaliser: Normaliser) -> pl.DataFrame:
    """The rows with `key` and `n_lemmas` of their column `text`."""
    lemmas = normaliser.normalise(rows["text"]).alias("lemmas")
    return rows.with_columns(lemmas).with_columns(
        key=key(pl.col("lemmas")), n_lemmas=pl.col("lemmas").list.len().cast(pl.UInt16)
    )


def _originals(prompts: Artifact, greedy: Artifact) -> pl.DataFrame:
    """The answers that stand for other prompts of the same text: same_as, text."""
    shards = prompts.each("prompts")
    ids = [shard.select(pl.col("same_as").drop_nulls().unique()) for shard in shards]
    wanted = pl.concat(ids).unique().rename({"same_as": "prompt_id"})
    found = [each.join(wanted, on="prompt_id", how="semi") for each in greedy.each("generations")]
    rows = pl.concat([empty("generations"), *found])
    return rows.select(same_as="prompt_id", original="text")


def _texts(
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
        .with_columns(text=pl.coalesce("text", "original"))
        .filter(pl.col("text").is_not_null())
    )


def _calibration(
    answers: pl.DataFrame, blocks: Sequence[Artifact], relation_id: str, normaliser: Normaliser
) -> pl.DataFrame:
    """The confidence in the answers that were sampled."""
    published = [block.read("samples", relation_id) for block in blocks]
    samples = pl.concat([empty("samples"), *published]).select("prompt_id", text="texts")
    samples = _normalised(samples.explode("text").drop_nulls("text"), normaliser)
    sampled = answers.join(samples, on="prompt_id", how="semi", maintain_order="left")
    found = confidence(sampled.select("prompt_id", "key"), samples.select("prompt_id", "key"))
    return sampled.join(found, on="prompt_id", maintain_order="left")
