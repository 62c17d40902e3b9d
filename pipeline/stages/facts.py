"""facts: a data set's files → relations, templates, pairs."""

from dataclasses import asdict

from operators.datasets.facts import Facts, Slice, counts, sliced
from operators.errors import InputError
from pipeline import catalog
from pipeline.artifact import Artifact, Recipe
from pipeline.settings import Benchmark

VERSION = 1
TABLES = ("relations", "templates", "pairs")


def part(benchmark: Benchmark) -> Slice:
    """The part of the data set that the benchmark takes."""
    return Slice(benchmark.relations, benchmark.pairs_per_relation, benchmark.names_per_subject)


def recipe(benchmark: Benchmark) -> Recipe:
    """The reader, the content of the files, and which part of them is taken."""
    entry = catalog.entry(benchmark.data)
    if entry.reader != "myriadlama":
        raise InputError(
            f"benchmark.data={benchmark.data} is read as {entry.reader}, whose prompts and metrics "
            "no run makes yet; choose a set in MyriadLAMA's format."
        )
    fields = {
        "reader": entry.reader,
        "sha256": catalog.checksum(catalog.files(entry, benchmark.path)),
        "relations": entry.relations,
        "slice": asdict(part(benchmark)),
    }
    return Recipe("facts", VERSION, fields)


def make(artifact: Artifact, benchmark: Benchmark) -> None:
    """Read the files, check them, and publish the tables, each as one shard."""
    everything = catalog.read(catalog.entry(benchmark.data), benchmark.path)
    facts = sliced(everything, part(benchmark))
    artifact.begin()
    for table in TABLES:
        artifact.write(table, "all", getattr(facts, table))
    artifact.finish(TABLES, counts(facts))


def load(artifact: Artifact) -> Facts:
    """The published facts."""
    return Facts(*(artifact.read(table, "all") for table in TABLES))
