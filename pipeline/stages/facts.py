"""facts: a data set's files → relations, templates, pairs; a knowledge base; one's own table.

knowledge-base: entities/<number>, triples/<number>   at most a million rows each
"""

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

import polars as pl

from factsweep.operators.datasets import layouts, object_types, questions
from factsweep.operators.datasets.facts import (
    Facts,
    Slice,
    counts,
    find_invisible,
    knowledge_base_of,
    treat_invisible,
)
from factsweep.operators.datasets.knowledge_base import KnowledgeBase, check_knowledge_base
from factsweep.operators.datasets.knowledge_base import counts as base_counts
from factsweep.operators.datasets.readers import READERS
from factsweep.operators.datasets.readers import describe_contradictions as sentences
from factsweep.operators.errors import InputError
from factsweep.operators.methods import METHODS
from factsweep.operators.methods.method import GENERATE
from factsweep.operators.wording import count, join_list
from factsweep.pipeline.config.folders import OWN_QUESTIONS
from factsweep.pipeline.config.run import Benchmark, Decoding, Run
from factsweep.pipeline.inputs import catalog
from factsweep.pipeline.inputs.catalog import Entry
from factsweep.pipeline.inputs.files import scan
from factsweep.pipeline.storage.artifact import Artifact, Recipe

VERSION = 1
TABLES = ("relations", "templates", "pairs")
BASE_VERSION = 1
BASE_TABLES = ("entities", "triples")
ROWS_PER_SHARD = 1_000_000
_FEWEST_TOKENS = 10  # of an answer
_MORE_TOKENS = 6  # in addition to those of a longer answer: models write more than the answer


@dataclass(frozen=True)
class ReadFacts:
    """Reads the part of a data set that a benchmark takes.

    The entry comes along: a worker may not see the folder that it stands in.
    """

    benchmark: Benchmark
    entry: Entry

    @cached_property
    def recipe(self) -> Recipe:
        """The reader, the content of the files, and the part of them that is taken."""
        version, columns = READERS[self.entry.reader].version, catalog.map_columns(self.entry)
        files = catalog.list_files(self.entry, self.benchmark.path)
        fields = {
            "reader": self.entry.reader if version == 1 else f"{self.entry.reader} {version}",
            **({"columns": columns} if columns else {}),
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
        full_set = _read_full_set(self.benchmark, self.entry)
        contradictions = catalog.contradictions(self.entry, self.benchmark.path, full_set)
        files = catalog.list_files(self.entry, self.benchmark.path)
        catalog.check_unchanged(files, artifact.recipe.fields["sha256"], self.entry)
        facts = METHODS[self.benchmark.method].ask.sliced(full_set, part(self.benchmark))
        artifact.begin()
        published = tables(facts)
        for table, rows in published.items():
            artifact.write(table, "all", rows)
        artifact.finish(list(published), {**counts(facts), **contradictions})


def part(benchmark: Benchmark) -> Slice:
    """The part of the data set that the benchmark takes."""
    return Slice(benchmark.relations, benchmark.pairs_per_relation, benchmark.names_per_subject)


def read(benchmark: Benchmark) -> Facts:
    """The part of the data set that the benchmark takes, cached while its files do not change."""
    entry = catalog.entry_of_benchmark(benchmark)
    checksum = catalog.checksum(catalog.list_files(entry, benchmark.path))
    return _read_cached(benchmark, repr(entry), checksum)


@lru_cache(maxsize=4)
def _read_cached(benchmark: Benchmark, _entry: str, _checksum: str) -> Facts:
    entry = catalog.entry_of_benchmark(benchmark)
    return METHODS[benchmark.method].ask.sliced(_read_full_set(benchmark, entry), part(benchmark))


def _read_full_set(benchmark: Benchmark, entry: Entry) -> Facts:
    """All facts of the files, with invisible characters kept or removed."""
    return treat_invisible(catalog.read_facts(entry, benchmark.path), benchmark.unseen)


def find_label_warnings(benchmark: Benchmark, pipeline: str, artifact: Artifact) -> Iterator[str]:
    """Warn of right answers that no answer can match, and of invisible characters.

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
            f"({_list_first_texts(unmatched)}), since comparison removes all their characters; "
            f"{n_lost} without another name. Give an alias (object_aliases) that has a letter or "
            "digit, or leave the fact out."
        )
        if benchmark.data == "facts" and not lost.is_empty():
            raise InputError(sentence)
        yield sentence
    hidden = find_invisible(facts)
    if not hidden.is_empty():
        yield (
            f"{benchmark.name}: {count(hidden.height, 'text')} with an invisible character "
            f"({_list_first_texts(hidden)}). Comparing ignores it, and prompts keep it; "
            "benchmark.unseen=remove removes it."
        )


def _list_first_texts(rows: pl.DataFrame) -> str:
    return ", ".join(f"{place} {text!a}" for place, text, *_ in rows.head(3).iter_rows())


def contradictions(artifact: Artifact) -> list[str]:
    """The contradictions between rows of the data set, as sentences."""
    return list(sentences(artifact.manifest().counts)) if artifact.is_complete() else []


def tables(facts: Facts) -> dict[str, pl.DataFrame]:
    """The published tables of facts."""
    return {**{table: getattr(facts, table) for table in TABLES}, **facts.extra_tables}


def load(artifact: Artifact) -> Facts:
    """The published facts, without a knowledge base, which is an artifact of its own."""
    further_tables = {table: artifact.read(table, "all") for table in artifact.manifest().tables}
    relations, templates, pairs = (further_tables.pop(table) for table in TABLES)
    return Facts(relations, templates, pairs, further_tables)


@dataclass(frozen=True)
class ReadKnowledgeBase:
    """Reads the folder that a benchmark names, or else the entities of its data set.

    The artifact is named after its files and not after the slice of the facts, so that a large
    knowledge base is stored once.
    """

    benchmark: Benchmark
    entry: Entry

    @cached_property
    def recipe(self) -> Recipe:
        """The content of the files, and the reader of a data set's."""
        fields: dict[str, Any] = {"sha256": catalog.checksum(self._files, self.entry)}
        if self.benchmark.knowledge_base is None:
            reader, relations = self.entry.reader, self.entry.relations
            fields["reader"] = f"{reader} {READERS[reader].version}"
            fields |= {"columns": catalog.map_columns(self.entry), "relations": relations}
            fields |= {"separator": self.entry.separator} if self.entry.separator else {}
        return Recipe("knowledge-base", BASE_VERSION, fields)

    @property
    def _files(self) -> list[Path]:
        if self.benchmark.knowledge_base is not None:
            return _list_base_files(self.benchmark.knowledge_base)
        return catalog.list_files(self.entry, self.benchmark.path)

    def make(self, artifact: Artifact) -> None:
        """Read and check the knowledge base, and publish its tables in shards."""
        base = read_knowledge_base(self.benchmark, self.entry)
        catalog.check_unchanged(self._files, artifact.recipe.fields["sha256"], self.entry)
        artifact.begin()
        for table in BASE_TABLES:
            rows: pl.DataFrame = getattr(base, table)
            for number, shard in enumerate(rows.iter_slices(ROWS_PER_SHARD)):
                artifact.write(table, f"{number:04d}", shard)
        artifact.finish(BASE_TABLES, base_counts(base))


def read_knowledge_base(benchmark: Benchmark, entry: Entry) -> KnowledgeBase:
    """The knowledge base of a benchmark: its folder, its data set's, or one made of its facts.

    Raises:
        InputError: a file is missing, or a table is unfit; the message names the folder.
    """
    if benchmark.knowledge_base is None:
        facts = catalog.read_facts(entry, benchmark.path)
        return facts.knowledge_base or knowledge_base_of(facts)
    tables = (scan([path]).collect() for path in _list_base_files(benchmark.knowledge_base))
    try:
        return check_knowledge_base(KnowledgeBase(*tables))
    except InputError as error:
        raise InputError(f"benchmark.knowledge_base={benchmark.knowledge_base}: {error}") from error


def load_knowledge_base(artifact: Artifact) -> KnowledgeBase:
    """The published knowledge base."""
    return KnowledgeBase(*(artifact.read_all(table) for table in BASE_TABLES))


def with_knowledge_base(facts: Artifact, base: Artifact | None) -> Facts:
    """The published facts, with their knowledge base if they have one."""
    loaded = load(facts)
    return loaded if base is None else replace(loaded, knowledge_base=load_knowledge_base(base))


def _list_base_files(folder: str) -> list[Path]:
    paths = [Path(folder) / f"{table}.parquet" for table in BASE_TABLES]
    for path in paths:
        if not path.is_file():
            raise InputError(
                f"benchmark.knowledge_base={folder} has no {path.name}; "
                "`factsweep build knowledge-base` makes such a folder."
            )
    return paths


def with_room(run: Run) -> Decoding:
    """The decoding, with room for the longest right answer where max_tokens is 0."""
    if run.decoding.max_tokens or run.method.ask.ability != GENERATE:
        return run.decoding
    _, answer = _find_longest_answer(run.benchmark)
    n_tokens = object_types.n_tokens(answer)
    fits = n_tokens <= _FEWEST_TOKENS
    return replace(run.decoding, max_tokens=_FEWEST_TOKENS if fits else n_tokens + _MORE_TOKENS)


def find_demonstration_language(benchmark: Benchmark) -> str | None:
    """The language in which demonstrations are written alike; null: they are not changed."""
    if benchmark.types == "names":
        return None
    _, examples = object_types.unify_labels(read(benchmark), benchmark.language)
    return benchmark.language if examples else None


def find_table_warnings(run: Run, load_tokenizer: Callable[[], Any]) -> Iterator[str]:
    """The meaning of the columns of one's own table, and whether its longest answer is cut."""
    benchmark = run.benchmark
    entry = catalog.entry_of_benchmark(benchmark)
    if columns := catalog.list_renamed_columns(entry, benchmark.path):
        names = join_list(f"{column} as {name}" for column, name in columns.items())
        yield f"{benchmark.path}: columns are read by what they seem to be, {names}."
    if entry.reader == OWN_QUESTIONS:
        tables = catalog.content_of(entry, catalog.list_files(entry, benchmark.path))
        yield from questions.warn_of_joined_cells(tables)
    if benchmark.types == "names":
        return
    facts = read(benchmark)
    try:
        yield from object_types.describe_types(facts, benchmark.language)
    except InputError as error:
        raise InputError(f"{benchmark.path or benchmark.data}: {error}") from error
    if any(getattr(setting, "shots", 0) for setting in run.settings):
        _, examples = object_types.unify_labels(facts, benchmark.language)
        if examples:
            formats = join_list(f"{relation} as {text!r}" for relation, text in examples.items())
            yield f"demonstrations write dates and numbers in one way: {formats}."
    rows = scan(catalog.list_files(entry, benchmark.path))
    yield from object_types.warn_of_unread_types(rows)
    yield from layouts.warn_of_joined_cells(rows, catalog.SEPARATOR_OPTION, benchmark.separator)
    if run.answers is None and run.method.ask.ability == GENERATE:
        yield from _warn_of_cut_answer(run, load_tokenizer)


def _warn_of_cut_answer(run: Run, load_tokenizer: Callable[[], Any]) -> Iterator[str]:
    """A sentence if the longest right answer of the table exceeds max_tokens."""
    relation_id, answer = _find_longest_answer(run.benchmark)
    n_tokens, most = object_types.n_tokens(answer), run.decoding.max_tokens
    if answer.isascii() and n_tokens <= most:
        return  # the estimate is high, and a tokenizer takes long to load
    if run.model.endpoint is None or run.model.tokenizer is not None:
        n_tokens = len(load_tokenizer().encode(f" {answer}", add_special_tokens=False))
    if n_tokens > most:
        yield (
            f"the right answer {answer!r} of {relation_id} has {n_tokens} tokens, and "
            f"decoding.max_tokens={most} cuts it; give benchmark.max_tokens={n_tokens + 2} or more."
        )


def _find_longest_answer(benchmark: Benchmark) -> tuple[str, str]:
    facts = read(benchmark)
    return object_types.longest_answer(facts, benchmark.language, benchmark.types)
