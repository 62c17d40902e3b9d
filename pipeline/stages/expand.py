"""expand: facts × a setting → prompts and contexts, in shards of prefix order.

prompts/<relation>.<number>   at most rows_per_shard prompts, fewer in the last ones
ranked/<relation>             the prompts that may be sampled: one per pair
content_free/<relation>       the prompts that name no subject, where the method has any
contexts/<any of these>       the contexts of the shard of that name
candidate_sets/<of prompts>   the entities that are compared after the prompts of that name, if any

Engines take the largest shards of the last relations first: the smaller the last shards, the less
the other engines idle while one decodes the last shard.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from dataclasses import asdict, dataclass
from functools import partial
from itertools import pairwise
from typing import Any, TypeVar

import numpy as np
import polars as pl

from factsweep.operators.datasets.facts import Facts
from factsweep.operators.datasets.object_types import unify_labels
from factsweep.operators.errors import InputError
from factsweep.operators.methods import METHODS
from factsweep.operators.methods.method import PromptSetting
from factsweep.operators.prompts import expansion
from factsweep.operators.prompts.expansion import Expansion
from factsweep.operators.prompts.setting import ENGLISH
from factsweep.pipeline.stages import facts as facts_stage
from factsweep.pipeline.storage.artifact import Artifact, Recipe

T = TypeVar("T")

VERSION = 3
TABLES = ("prompts", "ranked", "contexts", "content_free", "candidate_sets")
_AT_ONCE = 3  # relations in memory
FEWEST = 1024  # prompts of a shard, unless rows_per_shard is less: half a minute of a slow model


@dataclass(frozen=True)
class Expand:
    """Writes facts as prompts, at most `rows_per_shard` of them in a shard."""

    facts: Artifact
    method: str
    setting: PromptSetting
    seed: int
    rows_per_shard: int
    base: Artifact | None = None  # the knowledge base of the facts' entities; null: none is needed
    # The language in which demonstrations write dates and numbers in one way; null: unchanged.
    values_in: str | None = None

    @property
    def recipe(self) -> Recipe:
        """The facts, the setting and the seed; not the size of a shard, which changes no prompt."""
        setting: dict[str, Any] = asdict(self.setting)  # type: ignore[call-overload]
        if setting.get("words") == asdict(ENGLISH):  # the only language of earlier versions
            del setting["words"]
        if setting.get("leading_blank") is False:  # earlier versions had none
            del setting["leading_blank"]
        # A chat template wraps one turn of the user without a change of its text.
        asked_as, system = setting.pop("as_", None), setting.pop("system", None)
        if asked_as == "turns":
            setting |= {"as": asked_as, **({} if system is None else {"system": system})}
        fields = {"method": self.method, "setting": setting, "seed": self.seed}
        if self.values_in is not None:
            fields["values_in"] = self.values_in
        inputs = {"facts": self.facts.fingerprint}
        if self.base is not None:
            inputs["knowledge_base"] = self.base.fingerprint
        return Recipe("prompts", VERSION, fields, inputs)

    def expansions(self) -> Iterator[Expansion]:
        """The published facts, with their knowledge base if they have one, as prompts."""
        facts = self.unify_shown_labels(facts_stage.with_knowledge_base(self.facts, self.base))
        return METHODS[self.method].ask.expand(facts, self.setting, seed=self.seed)

    def unify_shown_labels(self, facts: Facts) -> Facts:
        """The facts with the labels that demonstrations show."""
        return facts if self.values_in is None else unify_labels(facts, self.values_in)[0]

    def make(self, artifact: Artifact) -> None:
        """Publish the prompts, a relation at a time."""
        artifact.begin()
        # An unfinished artifact keeps its sizes of shards.
        size = artifact.settle("rows_per_shard", self.rows_per_shard)
        # While shards are packed and published, the next relation is expanded.
        with ThreadPoolExecutor(artifact.store.writers) as publishers:
            published: list[Future[None]] = []
            for expansion in self.expansions():
                for future in published:  # at most two relations are held in memory
                    future.result()
                jobs = _list_publishing_jobs(artifact, expansion, size)
                published = list(map(publishers.submit, jobs))
            for future in published:
                future.result()
        made_of = [self.facts] if self.base is None else [self.facts, self.base]
        artifact.finish(TABLES, made_of=made_of)


def _list_publishing_jobs(
    artifact: Artifact, expansion: Expansion, size: int
) -> Iterator[Callable[[], None]]:
    """The jobs that publish the shards of a relation, each with its contexts."""
    relation_id, contexts = expansion.relation_id, expansion.contexts

    def publish(shard: str, rows: pl.DataFrame) -> None:
        artifact.write("contexts", shard, _keep_used(contexts, rows, "context_id"))
        if expansion.candidate_sets is not None:
            sets = _keep_used(expansion.candidate_sets, rows, "candidates_id")
            artifact.write("candidate_sets", shard, sets)
        artifact.write("prompts", shard, rows, {"distinct": rows["same_as"].null_count()})

    def publish_further() -> None:
        further_tables = {
            "ranked": expansion.prompts.filter(pl.col("calibration_rank").is_not_null())
        }
        if expansion.content_free is not None:
            further_tables["content_free"] = expansion.content_free
        rows = pl.concat(table.select("context_id") for table in further_tables.values())
        artifact.write("contexts", relation_id, _keep_used(contexts, rows, "context_id"))
        for name, table in further_tables.items():
            artifact.write(name, relation_id, table)

    parts = shards(expansion.prompts, expansion.together, size, FEWEST)
    for number, rows in enumerate(parts):
        yield partial(publish, f"{relation_id}.{number:04d}", rows)
    yield publish_further


def _keep_used(rows: pl.DataFrame, prompts: pl.DataFrame, key: str) -> pl.DataFrame:
    return rows.join(prompts.select(key), on=key, how="semi", maintain_order="left")


def relation_of(shard: str) -> str:
    """The relation that a shard belongs to."""
    return shard.partition(".")[0]


def shards_of(artifact: Artifact, table: str, relation_id: str) -> list[str]:
    """The shards of a table that belong to a relation."""
    return [shard for shard in artifact.shards(table) if relation_of(shard) == relation_id]


def prompts_of(prompts: Artifact, relation_id: str, columns: Sequence[str]) -> pl.DataFrame:
    """Columns of all prompts of a relation."""
    shards = shards_of(prompts, "prompts", relation_id)
    return pl.concat(prompts.each("prompts", columns, shards))


def by_relation(work: Callable[[str], T], relations: Sequence[str]) -> list[T]:
    """The result of some work for each relation, in order, by a few threads."""
    threads = ThreadPoolExecutor(_AT_ONCE)
    try:
        futures = [threads.submit(work, relation_id) for relation_id in relations]
        wait(futures, return_when=FIRST_EXCEPTION)
    finally:
        threads.shutdown(cancel_futures=True)  # after a failure no other relation begins
    return [future.result() for future in futures]


def n_prompts(prompts: Artifact) -> Counter[str]:
    """The number of prompts of each relation."""
    counts = Counter[str]()
    for shard, n_rows in prompts.rows("prompts").items():
        counts[relation_of(shard)] += n_rows
    return counts


def with_text(artifact: Artifact, table: str, shard: str) -> pl.DataFrame:
    """The prompts of a shard with their full text: context, then query."""
    reads = [partial(artifact.read, name, shard) for name in (table, "contexts")]
    return expansion.with_text(*artifact.store.at_once(*reads))


def sets_of(artifact: Artifact, rows: pl.DataFrame) -> Mapping[str, pl.DataFrame]:
    """The candidate sets of some prompts, by id; each shard of prompts has its own.

    Raises:
        InputError: one of them is missing.
    """
    ids = rows["candidates_id"].unique()
    relations = set(map(relation_of, rows["template_id"].unique()))
    sets: dict[str, pl.DataFrame] = {}
    for shard in artifact.shards("candidate_sets"):
        if relation_of(shard) in relations and len(sets) < len(ids):
            table = artifact.read("candidate_sets", shard)
            table = table.filter(pl.col("candidates_id").is_in(ids.implode()))
            parts = table.partition_by("candidates_id", as_dict=True, maintain_order=True)
            sets |= {str(name): part for (name,), part in parts.items()}
    for name in ids.filter(~ids.is_in(list(sets))):
        raise InputError(f"candidate set {name} is missing; run again to expand its prompts.")
    return sets


def list_shard_ends(n: int, size: int, fewest: int = FEWEST) -> list[int]:
    """The ends of the shards of a relation's `n` prompts.

    Each has at most `size`, an eighth of all, and a third of the remaining prompts; but at least
    `fewest` (or `size`, if that is less), except for the last.

    >>> list_shard_ends(16000, size=5000, fewest=500)
    [2000, 4000, 6000, 8000, 10000, 12000, 13333, 14222, 14814, 15314, 15814, 16000]
    >>> list_shard_ends(16000, size=5000, fewest=5000)
    [5000, 10000, 15000, 16000]
    """
    shard_ends, end = list[int](), 0
    while end < n:
        end = min(n, end + min(size, max(fewest, min(n // 8, (n - end) // 3))))
        shard_ends.append(end)
    return shard_ends


def shards(prompts: pl.DataFrame, together: str, size: int, fewest: int) -> Iterator[pl.DataFrame]:
    """The prompts in shards; rows with the same value in `together` share one."""
    is_first = pl.col(together).rle_id().diff().ne_missing(0)
    firsts = prompts.select(is_first.arg_true()).to_series().to_numpy()
    places = np.searchsorted(firsts, [0, *list_shard_ends(prompts.height, size, fewest)[:-1]])
    begins = np.unique(firsts[places[places < len(firsts)]]).tolist()
    for begin, end in pairwise([*begins, prompts.height]):
        yield prompts[begin:end]
