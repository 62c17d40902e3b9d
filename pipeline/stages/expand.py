"""expand: facts × a setting → prompts and contexts, in shards of prefix order.

prompts/<relation>.<number>   at most rows_per_shard prompts
ranked/<relation>             the prompts that may be sampled: one a pair
content_free/<relation>       the prompts that name no subject, where the method has any
contexts/<any of these>       the contexts that the shards of that name use
"""

from collections.abc import Iterator
from dataclasses import asdict, dataclass

import polars as pl

from operators.methods import METHODS
from operators.methods.method import Asked
from operators.prompts import expansion
from operators.prompts.expansion import Expansion
from pipeline.stages import facts as facts_stage
from pipeline.storage.artifact import Artifact, Recipe

VERSION = 2
TABLES = ("prompts", "ranked", "contexts", "content_free")


@dataclass(frozen=True)
class Expand:
    """Writes facts as prompts, `rows_per_shard` of them a shard."""

    facts: Artifact
    method: str
    setting: Asked
    seed: int
    rows_per_shard: int

    @property
    def recipe(self) -> Recipe:
        """The facts, the setting and the seed; not the size of a shard, which changes no prompt."""
        setting = asdict(self.setting)  # type: ignore[call-overload]
        fields = {"method": self.method, "setting": setting, "seed": self.seed}
        return Recipe("prompts", VERSION, fields, {"facts": self.facts.fingerprint})

    def make(self, artifact: Artifact) -> None:
        """Publish the prompts, a relation at a time."""
        artifact.begin()
        # An artifact that was left half made keeps the size of shard that it was begun with.
        rows_per_shard = artifact.settled("rows_per_shard", self.rows_per_shard)
        facts = facts_stage.load(self.facts)
        for each in METHODS[self.method].ask.expand(facts, self.setting, seed=self.seed):
            _publish(artifact, each, rows_per_shard)
        artifact.finish(TABLES)


def _publish(artifact: Artifact, found: Expansion, rows_per_shard: int) -> None:
    relation_id, prompts = found.relation_id, found.prompts
    for number, rows in enumerate(_shards(prompts, found.together, rows_per_shard)):
        shard = f"{relation_id}.{number:04d}"
        artifact.write("contexts", shard, _used(found, rows))
        artifact.write("prompts", shard, rows, {"distinct": rows["same_as"].null_count()})
    ranked = prompts.filter(pl.col("calibration_rank").is_not_null())
    further = [ranked] if found.content_free is None else [ranked, found.content_free]
    used = pl.concat([rows.select("context_id") for rows in further])
    artifact.write("contexts", relation_id, _used(found, used))
    artifact.write("ranked", relation_id, ranked)
    if found.content_free is not None:
        artifact.write("content_free", relation_id, found.content_free)


def _shards(prompts: pl.DataFrame, together: str, size: int) -> Iterator[pl.DataFrame]:
    """The prompts in shards of about the size, none of which ends between two of a kind."""
    if together == "prompt_id":
        yield from prompts.iter_slices(size)
        return
    rows = prompts.with_row_index("place").with_columns(kind=pl.col(together).rle_id())
    rows = rows.with_columns(number=pl.col("place").first().over("kind") // size)
    for shard in rows.partition_by("number", maintain_order=True):
        yield shard.select(prompts.columns)


def _used(found: Expansion, rows: pl.DataFrame) -> pl.DataFrame:
    return found.contexts.join(rows.select("context_id").unique(), on="context_id", how="semi")


def relation_of(shard: str) -> str:
    """The relation that a shard belongs to."""
    return shard.partition(".")[0]


def with_text(artifact: Artifact, table: str, shard: str) -> pl.DataFrame:
    """The prompts of a shard with their full text: context, then query."""
    return expansion.with_text(artifact.read(table, shard), artifact.read("contexts", shard))
