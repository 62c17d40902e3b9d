"""facts: a data set's files → relations, templates, pairs."""

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from functools import cached_property, lru_cache

import polars as pl

from factsweep.operators.datasets.facts import Facts, Slice, counts, treated, unseen
from factsweep.operators.datasets.readers import READERS
from factsweep.operators.datasets.readers import contradiction_sentences as sentences
from factsweep.operators.errors import InputError
from factsweep.operators.methods import METHODS
from factsweep.operators.wording import count
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
        everything = _everything(self.benchmark, self.entry)
        found = catalog.contradictions(self.entry, self.benchmark.path, everything)
        files = catalog.files(self.entry, self.benchmark.path)
        catalog.check_unchanged(files, artifact.recipe.fields["sha256"], self.entry)
        facts = METHODS[self.benchmark.method].ask.sliced(everything, part(self.benchmark))
        artifact.begin()
        published = tables(facts)
        for table, rows in published.items():
            artifact.write(table, "all", rows)
        artifact.finish(list(published), {**counts(facts), **found})


def part(benchmark: Benchmark) -> Slice:
    """The part of the data set that the benchmark takes."""
    return Slice(benchmark.relations, benchmark.pairs_per_relation, benchmark.names_per_subject)


def read(benchmark: Benchmark) -> Facts:
    """The part of the data set that the benchmark takes, from its files.

    It is read once while the entry and the files stay the same.
    """
    entry = catalog.of_benchmark(benchmark)
    checksum = catalog.checksum(catalog.files(entry, benchmark.path))
    return _read(benchmark, repr(entry), checksum)


@lru_cache(maxsize=4)
def _read(benchmark: Benchmark, _entry: str, _checksum: str) -> Facts:
    entry = catalog.of_benchmark(benchmark)
    return METHODS[benchmark.method].ask.sliced(_everything(benchmark, entry), part(benchmark))


def _everything(benchmark: Benchmark, entry: Entry) -> Facts:
    """All facts of the files, with characters that nobody sees kept or removed."""
    return treated(catalog.read(entry, benchmark.path), benchmark.unseen)


def label_warnings(benchmark: Benchmark, pipeline: str, artifact: Artifact) -> Iterator[str]:
    """Say which right answers no answer can match, and which texts hold invisible characters.

    Raises:
        InputError: a fact of one's own table has no right answer that can be matched.
    """
    facts = load(artifact) if artifact.is_complete() else read(benchmark)
    labels = pl.col("objects").list.eval(pl.element().struct.field("labels").explode())
    rows = facts.pairs.select("pair_id", text=labels).explode("text").drop_nulls("text")
    can_match = METHODS[benchmark.method].measure.can_match(rows["text"], pipeline)
    rows = rows.with_columns(can_match=can_match)
    lost = rows.filter(~pl.col("can_match").any().over("pair_id"))
    if not (unmatched := rows.filter(~pl.col("can_match"))).is_empty():
        n_lost = count(lost["pair_id"].n_unique(), "fact")
        sentence = (
            f"{benchmark.name}: no answer can match {unmatched.height:,} of the right answers "
            f"({_first(unmatched)}), since nothing is left of them when texts are compared; "
            f"{n_lost} without another name. Give an alias (object_aliases) that has a letter or "
            "digit, or leave the fact out."
        )
        if benchmark.data == "facts" and not lost.is_empty():
            raise InputError(sentence)
        yield sentence
    hidden = unseen(facts)
    if not hidden.is_empty():
        yield (
            f"{benchmark.name}: {count(hidden.height, 'text')} with a character that nobody sees "
            f"({_first(hidden)}). Comparing ignores it, and prompts keep it; "
            "benchmark.unseen=remove takes it out."
        )


def _first(rows: pl.DataFrame) -> str:
    """The first three texts, each behind where it stands."""
    return ", ".join(f"{where} {text!a}" for where, text, *_ in rows.head(3).iter_rows())


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
