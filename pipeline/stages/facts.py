"""facts: a data set's files → relations, templates, pairs."""

from dataclasses import asdict

from operators.datasets.facts import Facts, Slice, counts
from operators.datasets.readers import READERS
from operators.methods import METHODS
from pipeline.config.settings import Benchmark
from pipeline.inputs import catalog
from pipeline.inputs.catalog import Entry
from pipeline.storage.artifact import Artifact, Recipe

VERSION = 1
TABLES = ("relations", "templates", "pairs")


def part(benchmark: Benchmark) -> Slice:
    """The part of the data set that the benchmark takes."""
    return Slice(benchmark.relations, benchmark.pairs_per_relation, benchmark.names_per_subject)


def recipe(benchmark: Benchmark) -> Recipe:
    """The reader, the content of the files, and which part of them is taken."""
    entry = catalog.entry(benchmark.data)
    version, mapped = READERS[entry.reader].version, catalog.mapping(entry)
    fields = {
        "reader": entry.reader if version == 1 else f"{entry.reader} {version}",
        **({"columns": mapped} if mapped else {}),
        "sha256": catalog.checksum(catalog.files(entry, benchmark.path)),
        "relations": entry.relations,
        "method": benchmark.method,
        "slice": asdict(part(benchmark)),
    }
    return Recipe("facts", VERSION, fields)


def make(artifact: Artifact, benchmark: Benchmark, entry: Entry | None = None) -> None:
    """Read the files, check them, and publish the tables, each as one shard.

    `entry` is that of the data set, for a worker that cannot see the folder that it stands in.
    """
    facts = read(benchmark, entry)
    artifact.begin()
    for table in TABLES:
        artifact.write(table, "all", getattr(facts, table))
    artifact.finish(TABLES, counts(facts))


def read(benchmark: Benchmark, entry: Entry | None = None) -> Facts:
    """The part of the data set that the benchmark takes, from its files."""
    everything = catalog.read(entry or catalog.entry(benchmark.data), benchmark.path)
    return METHODS[benchmark.method].sliced(everything, part(benchmark))


def load(artifact: Artifact) -> Facts:
    """The published facts."""
    return Facts(*(artifact.read(table, "all") for table in TABLES))
