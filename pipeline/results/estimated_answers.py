"""estimate: the answers to a budget's prompts → what the full run would give.

Reads answers wherever they are: in published shards, and in the chunks of open ones. Of these only
the prompts of the budget count, however many more are answered.
"""

import polars as pl

from factsweep.operators.methods import METHODS
from factsweep.operators.methods.method import Matcher
from factsweep.operators.schemas import empty
from factsweep.pipeline.stages.expand import relation_of
from factsweep.pipeline.stages.match import beside as asked_beside
from factsweep.pipeline.storage.artifact import Artifact


def answers(given: Artifact, chosen: Artifact) -> pl.DataFrame:
    """The answers to the prompts that a budget needs, of the schema of the answers' table."""
    table = given.stage
    found = []
    for shard in chosen.shards("needed"):
        needed = chosen.read("needed", shard)
        if given.has(table, shard):
            parts = [given.read(table, shard)]
        else:
            folder = f"chunks/{table}/{shard}"
            parts = [given.read_chunk(table, folder, name)[0] for name in given.published(folder)]
        found += [each.join(needed, on="prompt_id", how="semi") for each in parts]
    return pl.concat([empty(table), *found]).unique("prompt_id", keep="first", maintain_order=True)


def unanswered(prompts: Artifact, admitted: Artifact, given: Artifact) -> pl.DataFrame:
    """How many prompts of each pair have a reason why they have no answer: pair_id, n_failed."""
    published = given.all_published()
    refused = [admitted.read("errors", each) for each, n in admitted.rows("errors").items() if n]
    refused += [given.read("errors", each) for each in published.get("errors", ())]
    for folder, names in published.items():
        if folder.startswith("chunks/errors/"):
            refused += [given.read_chunk("errors", folder, each)[0] for each in names]
    failed = pl.concat([empty("errors"), *refused]).select(source_id="prompt_id")
    pairs = [pl.DataFrame(schema={"pair_id": pl.String})]
    if failed.height:
        pairs += [_pairs_of(prompts, failed, shard) for shard in prompts.shards("prompts")]
    return pl.concat(pairs).group_by("pair_id").agg(n_failed=pl.len().cast(pl.Int64))


def _pairs_of(prompts: Artifact, sources: pl.DataFrame, shard: str) -> pl.DataFrame:
    """The pair of each prompt of a shard whose answer would be that of one of these."""
    rows = prompts.read("prompts", shard, ["prompt_id", "same_as", "pair_id"])
    rows = rows.select("pair_id", source_id=pl.coalesce("same_as", "prompt_id"))
    return rows.join(sources, on="source_id", how="semi").drop("source_id")


def matched_by(matcher: Matcher, method: str, given: Artifact, chosen: Artifact) -> pl.DataFrame:
    """The answers to the prompts of a sample, in their order, as a matcher has them."""
    said = answers(given, chosen).rename({"prompt_id": "source_id"})
    found = []
    for relation_id in sorted(set(map(relation_of, chosen.shards("chosen")))):
        shards = [s for s in chosen.shards("chosen") if relation_of(s) == relation_id]
        asked = pl.concat([chosen.read("chosen", each) for each in shards])
        asked = asked.with_columns(relation_id=pl.lit(relation_id))
        rows = asked.join(said, on="source_id", maintain_order="left").drop("source_id")
        made = matcher(rows, asked_beside(method, (), relation_id))
        found.append(made[METHODS[method].measure.answers])
    return pl.concat(found)
