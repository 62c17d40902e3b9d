"""knowledge-base: what is known of the entities of facts, beside the facts.

entities/<number>, triples/<number>   at most a million rows each

It is an artifact of its own, named after its files and not after the part of the facts that is
measured: a large one is stored once, whatever is asked with it.
"""

from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import polars as pl

from factsweep.operators.datasets.facts import Facts, knowledge_base_of
from factsweep.operators.datasets.knowledge_base import KnowledgeBase, checked, counts
from factsweep.operators.datasets.readers import READERS
from factsweep.operators.errors import InputError
from factsweep.pipeline.config.benchmark import Benchmark
from factsweep.pipeline.inputs import catalog
from factsweep.pipeline.inputs.catalog import Entry
from factsweep.pipeline.inputs.files import scan
from factsweep.pipeline.stages import facts as facts_stage
from factsweep.pipeline.storage.artifact import Artifact
from factsweep.pipeline.storage.recipe import Recipe

VERSION = 1
TABLES = ("entities", "triples")
ROWS_PER_SHARD = 1_000_000


@dataclass(frozen=True)
class ReadKnowledgeBase:
    """Reads the folder that a benchmark names, or else what its data set says of its entities."""

    benchmark: Benchmark
    entry: Entry

    @cached_property
    def recipe(self) -> Recipe:
        """The content of the files, and the reader of those of a data set."""
        fields: dict[str, Any] = {"sha256": catalog.checksum(self._read, self.entry)}
        if self.benchmark.knowledge_base is None:
            reader, relations = self.entry.reader, self.entry.relations
            fields["reader"] = f"{reader} {READERS[reader].version}"
            fields |= {"columns": catalog.mapping(self.entry), "relations": relations}
            fields |= {"separator": self.entry.separator} if self.entry.separator else {}
        return Recipe("knowledge-base", VERSION, fields)

    @property
    def _read(self) -> list[Path]:
        if self.benchmark.knowledge_base is not None:
            return _files(self.benchmark.knowledge_base)
        return catalog.files(self.entry, self.benchmark.path)

    def make(self, artifact: Artifact) -> None:
        """Read and check the knowledge base, and publish its tables in shards."""
        base = read(self.benchmark, self.entry)
        catalog.check_unchanged(self._read, artifact.recipe.fields["sha256"], self.entry)
        artifact.begin()
        for table in TABLES:
            rows: pl.DataFrame = getattr(base, table)
            for number, shard in enumerate(rows.iter_slices(ROWS_PER_SHARD)):
                artifact.write(table, f"{number:04d}", shard)
        artifact.finish(TABLES, counts(base))


def read(benchmark: Benchmark, entry: Entry) -> KnowledgeBase:
    """The knowledge base of a benchmark: the one that it names, its set's, or made of its facts.

    Raises:
        InputError: a file is missing, or a table is unfit; the message names the folder.
    """
    if benchmark.knowledge_base is None:
        facts = catalog.read(entry, benchmark.path)
        return facts.knowledge_base or knowledge_base_of(facts)
    tables = (scan([path]).collect() for path in _files(benchmark.knowledge_base))
    try:
        return checked(KnowledgeBase(*tables))
    except InputError as error:
        raise InputError(f"benchmark.knowledge_base={benchmark.knowledge_base}: {error}") from error


def load(artifact: Artifact) -> KnowledgeBase:
    """The published knowledge base."""
    return KnowledgeBase(*(artifact.read_all(table) for table in TABLES))


def with_facts(facts: Artifact, base: Artifact | None) -> Facts:
    """The published facts, with their knowledge base if they have one."""
    found = facts_stage.load(facts)
    return found if base is None else replace(found, knowledge_base=load(base))


def _files(folder: str) -> list[Path]:
    paths = [Path(folder) / f"{table}.parquet" for table in TABLES]
    for path in paths:
        if not path.is_file():
            raise InputError(
                f"benchmark.knowledge_base={folder} has no {path.name}; "
                "`factsweep build knowledge-base` makes such a folder."
            )
    return paths
