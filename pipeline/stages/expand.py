"""expand: facts × a setting → prompts and contexts, in shards of prefix order.

prompts/<relation>.<number>   at most rows_per_shard prompts
ranked/<relation>             the prompts that may be sampled: one a pair
content_free/<relation>       the prompts that name no subject, where the method has any
contexts/<any of these>       the contexts that the shards of that name use
"""

from collections.abc import Iterator
from dataclasses import asdict

import polars as pl

from operators.methods import METHODS
from operators.methods.method import Asked
from operators.prompts.expansion import Expansion
from pipeline.stages import facts as facts_stage
from pipeline.storage.artifact import Artifact, Recipe

VERSION = 2
TABLES = ("prompts", "ranked", "contexts", "content_free")


def recipe(facts: Recipe, method: str, setting: Asked, seed: int) -> Recipe:
    """The facts, the setting and the seed; not the size of a shard, which changes no prompt."""
    fields = {"method": method, "setting": asdict(setting), "seed": seed}  # type: ignore[call-overload]
    return Recipe("prompts", VERSION, fields, {"facts": facts.fingerprint})


def make(
    artifact: Artifact, facts: Artifact, setting: Asked, seed: int, rows_per_shard: int
) -> None:
    """Publish the prompts, a relation at a time."""
    artifact.begin()
    # An artifact that was left half made keeps the size of shard that it was begun with.
    rows_per_shard = artifact.settled("rows_per_shard", rows_per_shard)
    expand = METHODS[artifact.recipe.fields["method"]].expand
    for expansion in expand(facts_stage.load(facts), setting, seed=seed):
        _publish(artifact, expansion, rows_per_shard)
    artifact.finish(TABLES)


def _publish(artifact: Artifact, expansion: Expansion, rows_per_shard: int) -> None:
    relation_id, prompts = expansion.relation_id, expansion.prompts
    for number, rows in enumerate(_shards(prompts, expansion.together, rows_per_shard)):
        shard = f"{relation_id}.{number:04d}"
        artifact.write("contexts", shard, _used(expansion, rows))
        artifact.write("prompts", shard, rows, {"distinct": rows["same_as"].null_count()})
    ranked = prompts.filter(pl.col("calibration_rank").is_not_null())
    further = [ranked] if expansion.content_free is None else [ranked, expansion.content_free]
    used = pl.concat([rows.select("context_id") for rows in further])
    artifact.write("contexts", relation_id, _used(expansion, used))
    artifact.write("ranked", relation_id, ranked)
    if expansion.content_free is not None:
        artifact.write("content_free", relation_id, expansion.content_free)


def _shards(prompts: pl.DataFrame, together: str, size: int) -> Iterator[pl.DataFrame]:
    """The prompts in shards of about the size, none of which ends between two of a kind."""
    if together == "prompt_id":
        yield from prompts.iter_slices(size)
        return
    rows = prompts.with_row_index("place").with_columns(kind=pl.col(together).rle_id())
    rows = rows.with_columns(number=pl.col("place").first().over("kind") // size)
    for shard in rows.partition_by("number", maintain_order=True):
        yield shard.select(prompts.columns)


def _used(expansion: Expansion, rows: pl.DataFrame) -> pl.DataFrame:
    return expansion.contexts.join(rows.select("context_id").unique(), on="context_id", how="semi")


def relation_of(shard: str) -> str:
    """The relation that a shard belongs to."""
    return shard.partition(".")[0]


def with_text(artifact: Artifact, table: str, shard: str) -> pl.DataFrame:
    """The prompts of a shard with their full text: context, then query."""
    prompts, contexts = artifact.read(table, shard), artifact.read("contexts", shard)
    context = contexts.select("context_id", context="text")
    rows = prompts.join(context, on="context_id", how="left", maintain_order="left")
    return rows.with_columns(text=pl.concat_str("context", "query")).drop("context")
