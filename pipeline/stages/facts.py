"""facts: a data set's files → relations, templates, pairs."""

from dataclasses import asdict, dataclass
from functools import cached_property

import polars as pl

from factsweep.operators.datasets.contradictions import sentences, treated, without_letters
from factsweep.operators.datasets.facts import Facts, Slice, counts
from factsweep.operators.datasets.readers import READERS
from factsweep.operators.methods import METHODS
from factsweep.pipeline.config.benchmark import Benchmark
from factsweep.pipeline.inputs import catalog
from factsweep.pipeline.inputs.catalog import Entry
from factsweep.pipeline.storage.artifact import Artifact
from factsweep.pipeline.storage.recipe import Recipe

VERSION = 1
TABLES = ("relations", "templates", "pairs")


@dataclass(frozen=True)
class ReadFacts:
    """Reads the part of a data set that a benchmark takes.

    The entry comes along: a worker may not see the folder that it stands in.
    """

    benchmark: Benchmark
    entry: Entry

    @cached_property
    def recipe(self) -> Recipe:
        """The reader, the content of the files, and which part of them is taken."""
        version, mapped = READERS[self.entry.reader].version, catalog.mapping(self.entry)
        files = catalog.files(self.entry, self.benchmark.path)
        fields = {
            "reader": self.entry.reader if version == 1 else f"{self.entry.reader} {version}",
            **({"columns": mapped} if mapped else {}),
            "sha256": catalog.checksum(files, self.entry),
            "relations": self.entry.relations,
            "method": self.benchmark.method,
            "slice": asdict(part(self.benchmark)),
            **({"unseen": "remove"} if self.benchmark.unseen == "remove" else {}),
            **({"separator": self.entry.separator} if self.entry.separator else {}),
        }
        return Recipe("facts", VERSION, fields)

    def make(self, artifact: Artifact) -> None:
        """Read the files, check them, and publish the tables, each as one shard."""
        everything, n_unseen = _everything(self.benchmark, self.entry)
        found = catalog.contradictions(self.entry, self.benchmark.path, everything)
        files = catalog.files(self.entry, self.benchmark.path)
        catalog.check_unchanged(files, artifact.recipe.fields["sha256"], self.entry)
        facts = METHODS[self.benchmark.method].ask.sliced(everything, part(self.benchmark))
        unseen = {"unseen_characters": n_unseen} if n_unseen else {}
        artifact.begin()
        published = tables(facts)
        for table, rows in published.items():
            artifact.write(table, "all", rows)
        odd = {**unseen, **without_letters(everything)}
        artifact.finish(list(published), {**counts(facts), **found, **odd})


def part(benchmark: Benchmark) -> Slice:
    """The part of the data set that the benchmark takes."""
    return Slice(benchmark.relations, benchmark.pairs_per_relation, benchmark.names_per_subject)


def read(benchmark: Benchmark, entry: Entry) -> Facts:
    """The part of the data set that the benchmark takes, from its files."""
    everything, _ = _everything(benchmark, entry)
    return METHODS[benchmark.method].ask.sliced(everything, part(benchmark))


def _everything(benchmark: Benchmark, entry: Entry) -> tuple[Facts, int]:
    """All facts of the files, and how many of their texts hold a character that nobody sees."""
    return treated(catalog.read(entry, benchmark.path), benchmark.unseen)


def contradictions(artifact: Artifact) -> list[str]:
    """What the rows of the set contradict each other in, as sentences; of the whole set."""
    return list(sentences(artifact.manifest().counts)) if artifact.is_complete() else []


def tables(facts: Facts) -> dict[str, pl.DataFrame]:
    """What is published of facts, by table."""
    return {**{table: getattr(facts, table) for table in TABLES}, **facts.further}


def load(artifact: Artifact) -> Facts:
    """The published facts, without a knowledge base: that is an artifact of its own."""
    found = {table: artifact.read(table, "all") for table in artifact.manifest().tables}
    relations, templates, pairs = (found.pop(table) for table in TABLES)
    return Facts(relations, templates, pairs, found)
