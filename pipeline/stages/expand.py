"""expand: facts × a setting → prompts and contexts, in shards of prefix order.

prompts/<relation>.<number>   at most rows_per_shard prompts, fewer in the last ones
ranked/<relation>             the prompts that may be sampled: one a pair
content_free/<relation>       the prompts that name no subject, where the method has any
contexts/<any of these>       the contexts that the shards of that name use
candidate_sets/<of prompts>   the entities that are compared after the prompts of that name, if any

Of a setting's last relations engines take the largest shards first. When there are none left to
take, one may still be at its last shard while the others wait for it; the smaller the last ones
are, the shorter they wait.
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
from factsweep.operators.datasets.object_types import written_alike
from factsweep.operators.errors import InputError
from factsweep.operators.methods import METHODS
from factsweep.operators.methods.method import Asked
from factsweep.operators.prompts import expansion
from factsweep.operators.prompts.expansion import Expansion
from factsweep.operators.prompts.setting import ENGLISH
from factsweep.pipeline.stages import facts as facts_stage
from factsweep.pipeline.storage.artifact import Artifact
from factsweep.pipeline.storage.recipe import Recipe

T = TypeVar("T")

VERSION = 3
TABLES = ("prompts", "ranked", "contexts", "content_free", "candidate_sets")
_AT_ONCE = 3  # relations that are worked on, and held in memory
FEWEST = 1024  # prompts of a shard, unless shards are to be smaller: half a minute of a slow model


@dataclass(frozen=True)
class Expand:
    """Writes facts as prompts, at most `rows_per_shard` of them in a shard."""

    facts: Artifact
    method: str
    setting: Asked
    seed: int
    rows_per_shard: int
    base: Artifact | None = None  # what is known of the facts' entities; null: none needs it
    # The language in which demonstrations write dates and numbers in one way; null: as they are.
    values_in: str | None = None

    @property
    def recipe(self) -> Recipe:
        """The facts, the setting and the seed; not the size of a shard, which changes no prompt."""
        fields = {"method": self.method, "setting": _fields(self.setting), "seed": self.seed}
        if self.values_in is not None:
            fields["values_in"] = self.values_in
        inputs = {"facts": self.facts.fingerprint}
        if self.base is not None:
            inputs["knowledge_base"] = self.base.fingerprint
        return Recipe("prompts", VERSION, fields, inputs)

    def expansions(self) -> Iterator[Expansion]:
        """The published facts, with their knowledge base if they have one, as prompts."""
        facts = self.demonstrated(facts_stage.with_knowledge_base(self.facts, self.base))
        return METHODS[self.method].ask.expand(facts, self.setting, seed=self.seed)

    def demonstrated(self, facts: Facts) -> Facts:
        """The facts with the labels that demonstrations show."""
        return facts if self.values_in is None else written_alike(facts, self.values_in)[0]

    def make(self, artifact: Artifact) -> None:
        """Publish the prompts, a relation at a time."""
        artifact.begin()
        # An artifact that was left half made keeps the sizes of shards that it was begun with: all
        # the same, if that was before shards grew smaller towards the end.
        size = artifact.settled("rows_per_shard", self.rows_per_shard)
        fewest = size if artifact.published("prompts") else FEWEST
        fewest = artifact.settled("fewest_rows", fewest)
        # While shards are packed and the store is waited for, the next relation is written.
        with ThreadPoolExecutor(artifact.store.writers) as publishers:
            published: list[Future[None]] = []
            for each in self.expansions():
                for future in published:  # at most two relations are held in memory
                    future.result()
                published = list(map(publishers.submit, _shards(artifact, each, size, fewest)))
            for future in published:
                future.result()
        made_of = [each for each in (self.facts, self.base) if each is not None]
        artifact.finish(TABLES, made_of=made_of)


def _fields(setting: Asked) -> dict[str, Any]:
    """What of a setting changes a prompt's text; that it is a turn of the user changes nothing."""
    found: dict[str, Any] = asdict(setting)  # type: ignore[call-overload]
    if found.get("words") == asdict(ENGLISH):  # which was the only language
        del found["words"]
    if found.get("leading_blank") is False:  # which no question had
        del found["leading_blank"]
    asked, system = found.pop("as_", None), found.pop("system", None)
    if asked != "turns":
        return found
    return {**found, "as": asked, **({} if system is None else {"system": system})}


def _shards(
    artifact: Artifact, found: Expansion, size: int, fewest: int
) -> Iterator[Callable[[], None]]:
    """What publishes the shards of a relation, each with the contexts that it uses."""
    for number, rows in enumerate(shards(found.prompts, found.together, size, fewest)):
        yield partial(_publish, artifact, found, f"{found.relation_id}.{number:04d}", rows)
    yield partial(_publish_further, artifact, found)


def _publish(artifact: Artifact, found: Expansion, shard: str, rows: pl.DataFrame) -> None:
    artifact.write("contexts", shard, _used(found.contexts, rows, "context_id"))
    if found.candidate_sets is not None:
        sets = _used(found.candidate_sets, rows, "candidates_id")
        artifact.write("candidate_sets", shard, sets)
    artifact.write("prompts", shard, rows, {"distinct": rows["same_as"].null_count()})


def _publish_further(artifact: Artifact, found: Expansion) -> None:
    relation_id = found.relation_id
    ranked = found.prompts.filter(pl.col("calibration_rank").is_not_null())
    further = [ranked] if found.content_free is None else [ranked, found.content_free]
    asked = pl.concat(rows.select("context_id") for rows in further)
    artifact.write("contexts", relation_id, _used(found.contexts, asked, "context_id"))
    artifact.write("ranked", relation_id, ranked)
    if found.content_free is not None:
        artifact.write("content_free", relation_id, found.content_free)


def _used(rows: pl.DataFrame, prompts: pl.DataFrame, key: str) -> pl.DataFrame:
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
    """What some work says of each relation, in their order: while one is read others are done."""
    threads = ThreadPoolExecutor(_AT_ONCE)
    try:
        found = [threads.submit(work, each) for each in relations]
        wait(found, return_when=FIRST_EXCEPTION)
    finally:
        threads.shutdown(cancel_futures=True)  # where one fails, what has not begun is left
    return [each.result() for each in found]


def n_prompts(prompts: Artifact) -> Counter[str]:
    """How many prompts each relation has."""
    found = Counter[str]()
    for shard, rows in prompts.rows("prompts").items():
        found[relation_of(shard)] += rows
    return found


def with_text(artifact: Artifact, table: str, shard: str) -> pl.DataFrame:
    """The prompts of a shard with their full text: context, then query."""
    both = [partial(artifact.read, each, shard) for each in (table, "contexts")]
    return expansion.with_text(*artifact.store.at_once(*both))


def sets_of(artifact: Artifact, rows: pl.DataFrame) -> Mapping[str, pl.DataFrame]:
    """The candidate sets of some prompts, by id; each shard of prompts has those that it uses.

    Raises:
        InputError: one of them is missing.
    """
    wanted = rows["candidates_id"].unique()
    relations = set(map(relation_of, rows["template_id"].unique()))
    found: dict[str, pl.DataFrame] = {}
    for shard in artifact.shards("candidate_sets"):
        if relation_of(shard) in relations and len(found) < len(wanted):
            each = artifact.read("candidate_sets", shard)
            each = each.filter(pl.col("candidates_id").is_in(wanted.implode()))
            parts = each.partition_by("candidates_id", as_dict=True, maintain_order=True)
            found |= {str(name): part for (name,), part in parts.items()}
    for name in wanted.filter(~wanted.is_in(list(found))):
        raise InputError(f"candidate set {name} is missing; run again to expand its prompts.")
    return found


def ends(n: int, size: int, fewest: int = FEWEST) -> list[int]:
    """Where the shards of a relation's `n` prompts end.

    Each has at most `size`, an eighth of all, and a third of what is left; but none has less than
    `fewest` (or `size`, where that is smaller), except for the last.

    >>> ends(16000, size=5000, fewest=500)
    [2000, 4000, 6000, 8000, 10000, 12000, 13333, 14222, 14814, 15314, 15814, 16000]
    >>> ends(16000, size=5000, fewest=5000)
    [5000, 10000, 15000, 16000]
    """
    found: list[int] = []
    end = 0
    while end < n:
        end = min(n, end + min(size, max(fewest, min(n // 8, (n - end) // 3))))
        found.append(end)
    return found


def shards(
    prompts: pl.DataFrame, together: str, size: int, fewest: int = FEWEST
) -> Iterator[pl.DataFrame]:
    """The prompts in shards, none of which ends between two with the same value in `together`."""
    is_first = pl.col(together).rle_id().diff().ne_missing(0)
    firsts = prompts.select(is_first.arg_true()).to_series().to_numpy()
    places = np.searchsorted(firsts, [0, *ends(prompts.height, size, fewest)[:-1]])
    begins = np.unique(firsts[places[places < len(firsts)]]).tolist()
    for begin, end in pairwise([*begins, prompts.height]):
        yield prompts[begin:end]
