"""The data catalog: the entries of data sets, their files and their facts."""

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, NamedTuple

import polars as pl

from factsweep.operators.construction.set_card import CARD, CROISSANT
from factsweep.operators.datasets import layouts, table_files
from factsweep.operators.datasets.facts import Facts
from factsweep.operators.datasets.layouts import NAMED, join_aliases
from factsweep.operators.datasets.readers import FAULTS, NEEDS, READERS
from factsweep.operators.errors import DamagedFileError, InputError
from factsweep.operators.tables.shared.paper_table import PUBLISHED_SCHEMA
from factsweep.operators.wording import first_of, suggestion
from factsweep.operators.wording.safe_names import check
from factsweep.pipeline.config import folders
from factsweep.pipeline.config.folders import OWN_FACTS, home
from factsweep.pipeline.config.recipe import build
from factsweep.pipeline.config.run import Benchmark
from factsweep.pipeline.inputs import digests, hub
from factsweep.pipeline.inputs.files import checksum as checksum_of_table
from factsweep.pipeline.inputs.files import read_content, read_labels
from factsweep.pipeline.inputs.hub import Repository
from factsweep.pipeline.machine.text_files import unreadable

SEPARATOR_OPTION = "benchmark.separator="
_TABLES = folders.CATALOG / "tables"  # by reader: tables for sets without one of their own

_N_FACTS = ("test_rows", "pairs", "groups")  # in the counts of an entry: its facts


@dataclass(frozen=True)
class Source:
    """Where a data set comes from: a repository on the hub, elsewhere, or files in the catalog."""

    kind: Literal["hub", "elsewhere", "catalog"]
    id: str
    files: str  # a pattern, or several with | between; {language} is the one asked


@dataclass(frozen=True)
class Entry:
    """A data set (data_catalog/<name>.yaml)."""

    name: str
    description: str
    source: Source
    revision: str
    licence: str
    reader: str
    columns: dict[str, Any]
    counts: dict[str, Any]
    checksum: str | None
    relations: dict[str, Any]
    separator: str | None = None  # between several answers in a cell
    hub: str | None = None  # the id under which a set of one's own is published


def entry_of_benchmark(benchmark: Benchmark) -> Entry:
    """The entry of a benchmark's data, in its language, with its separator."""
    return replace(entry(benchmark.data, benchmark.language), separator=benchmark.separator)


def list_names() -> list[str]:
    """The names of all entries: the shipped ones, and the user's own."""
    return list(folders.files("data_catalog"))


def entry(name: str, language: str = "en") -> Entry:
    """The entry of a data set, with the files of one language where it has several.

    Raises:
        InputError: there is none of that name, or it lacks a field of an entry.
    """
    entries = folders.files("data_catalog")
    path = entries.get(name)
    if path is None:
        raise InputError(
            f"data_catalog/ has no entry {name}; it has {first_of(list(entries))}."
            f"{suggestion(name, entries)}"
        )
    entry = build(Entry, folders.content(path), f"data_catalog/{name}.yaml")
    check(entry.name, f"data_catalog/{name}.yaml: the name")
    source = replace(entry.source, files=entry.source.files.replace("{language}", language))
    if source.kind == "catalog" and path.parent != folders.CATALOG:
        # Next to a user's own entry; absolute, since a worker on another machine gets it, too.
        source = replace(source, id=str(path.parent / source.id))
    return replace(entry, source=source)


def list_files(entry: Entry, path: str | None = None) -> list[Path]:
    """The data files: those under `path`, of the catalog, or as they were fetched.

    A table that the set does not have is the catalog's own, where its reader has one.

    Raises:
        InputError: there are none.
    """
    paths = _list_own_files(entry, path)
    name = READERS[entry.reader].stands_in
    if name is None or any(file.name.partition(".")[0] == name for file in paths):
        return paths
    return [*paths, *sorted((_TABLES / entry.reader).glob(f"{name}.*"))]


def _list_own_files(entry: Entry, path: str | None) -> list[Path]:
    folder = Path(path) if path else _folder_of(entry)
    if folder.is_file():
        return [folder, *(path for path in _name_files(entry, folder.parent) if path != folder)]

    def is_data(file: Path) -> bool:
        """Not a record of a download, our own or one of the hub's client, nor a description."""
        is_hidden = any(part.startswith(".") for part in file.relative_to(folder).parts)
        is_about_data = file.name == "fetched.json" or file.name.endswith((CARD, CROISSANT))
        return file.is_file() and not is_hidden and not is_about_data

    name_files, reader = set(_name_files(entry, folder)), READERS[entry.reader]
    matches = (match for p in entry.source.files.split("|") for match in _match_files(folder, p))
    data = set(filter(is_data, matches)) - name_files
    if not data and not reader.by_language and (path or reader.content == "rows"):
        suffixes = {*table_files.TABLES} - {".txt"}  # which may as well be a note
        tables = (file for file in folder.rglob("*") if table_files.kind(file) in suffixes)
        data = set(filter(is_data, tables)) - name_files
    if not data:
        fix = f"run `factsweep catalog fetch {entry.name}` or give benchmark.path=<folder or file>"
        fix = _advise_manual_copy(entry) if entry.source.kind == "elsewhere" else fix
        raise InputError(f"{entry.name} has no files in {folder}; {fix}.")
    return sorted(data | name_files)


def map_columns(entry: Entry) -> dict[str, dict[str, str]]:
    """Columns that have another name in the files (`from`), or are in another file (`file`).

    Raises:
        InputError: a column of the entry that says neither its type nor where it stands.
    """
    sources = {}
    for name, source in entry.columns.items():
        if isinstance(source, str):
            continue
        fits = isinstance(source, dict) and len(source) == 1 and set(source) <= {"from", "file"}
        if not fits or not isinstance(next(iter(source.values())), str):
            raise InputError(
                f"data_catalog/{entry.name}.yaml: columns.{name} is {source!r}; write its type, "
                "{from: <name in the files>} or {file: <file of other names>}."
            )
        column = name.removesuffix("?")
        if "file" in source and column not in NAMED:
            raise InputError(
                f"data_catalog/{entry.name}.yaml: columns.{column} cannot stand in another file; "
                f"only {' and '.join(NAMED)} can."
            )
        sources[column] = source
    return sources


def _name_files(entry: Entry, folder: Path) -> list[Path]:
    patterns = {source["file"] for source in map_columns(entry).values() if "file" in source}
    return sorted({path for p in patterns for path in _match_files(folder, p) if path.is_file()})


def _match_files(folder: Path, pattern: str) -> list[Path]:
    path = folder / pattern
    return [path] if path.is_file() else list(folder.glob(pattern))


def content_of(entry: Entry, paths: list[Path]) -> Any:
    """The input of the entry's reader, with its columns renamed and other names joined."""
    sources = map_columns(entry)
    name_files = _name_files(entry, _common_folder(paths))
    data = [path for path in paths if path not in name_files]
    rows = read_content(data, READERS[entry.reader].content)
    if isinstance(rows, pl.LazyFrame):
        if entry.separator:
            rows = layouts.split_cells(rows.collect(), entry.separator).lazy()
        layouts.check_aliases(rows, SEPARATOR_OPTION)
    if not sources:
        return rows
    if isinstance(rows, dict):
        raise InputError(
            f"columns of the layout {entry.reader} cannot be mapped; change the files."
        )
    columns = rows.collect_schema().names()
    names = {source["from"]: name for name, source in sources.items() if "from" in source}
    for theirs, ours in names.items():
        if theirs not in columns:
            raise InputError(
                f"columns.{ours} of the catalog entry is {{from: {theirs}}}, and the files have no "
                f"column {theirs}; they have {', '.join(columns)}."
            )
    replaced = [name for name in names.values() if name in columns and name not in names]
    rows = rows.drop(replaced).rename(names)
    for name, source in sources.items():
        if "file" in source:
            pattern = source["file"]
            tables = [p for p in name_files if p.name == pattern or p.match(pattern)]
            if not tables:
                raise InputError(
                    f"columns.{name} of the catalog entry is {{file: {pattern}}}, and there is no "
                    "such file next to the data; copy it there, or take the line out of the entry."
                )
            rows = join_aliases(rows, name, pl.concat([read_labels(path) for path in tables]))
    return rows


def _advise_manual_copy(entry: Entry) -> str:
    return (
        f"copy its files from {entry.source.id} and give benchmark.path=<their folder>, or --path "
        "to catalog and describe"
    )


def _folder_of(entry: Entry) -> Path:
    if entry.source.kind == "catalog":
        return folders.CATALOG / entry.source.id
    return home() / "data" / entry.name


def checksum(paths: Sequence[Path], entry: Entry | None = None) -> str:
    """One SHA-256 of the files: of their names in the folder that holds all, and of every byte.

    Tables of the catalog that stand in for the set's own are named apart, wherever they are. Where
    `entry` is that of own facts, the rows of a table count, not its bytes.
    """
    if entry is not None and entry.name == OWN_FACTS and len(paths) == 1:
        return checksum_of_table(paths[0])
    data_files = [path for path in paths if not _is_substitute(path)]
    path_by_name = {
        path.relative_to(_common_folder(data_files)).as_posix(): path for path in data_files
    }
    substitutes = {f"catalog/{path.name}": path for path in paths if _is_substitute(path)}
    return digests.digest_files({**path_by_name, **substitutes})


def check_unchanged(paths: Sequence[Path], expected: str, entry: Entry | None = None) -> None:
    """Refuse files that changed after an artifact was named after them, before they were read."""
    if checksum(paths, entry) != expected:
        place = paths[0] if len(paths) == 1 else _common_folder(paths)
        raise InputError(f"{place} changed while it was read; run again when it is complete.")


def _is_substitute(path: Path) -> bool:
    return _TABLES in path.parents


def _common_folder(paths: Sequence[Path]) -> Path:
    return Path(os.path.commonpath([path.parent for path in paths]))


def read_facts(entry: Entry, path: str | None = None) -> Facts:
    """The facts of a data set.

    Files under `path` may be a user's own: they may have relations that the entry does not name,
    whose labels are their ids.

    Raises:
        InputError: its files are missing or unfit; the message names the file.
    """
    paths = list_files(entry, path)
    data_files = [file for file in paths if not _is_substitute(file)]
    place = data_files[0] if len(data_files) == 1 else _common_folder(data_files)
    try:
        reader = READERS[entry.reader]
        content = content_of(entry, paths)
        if path is None or not reader.names_ids:
            return reader.facts(content, entry.relations or None)
        facts = reader.facts(content, None)
        label = pl.col("relation_id").replace_strict(entry.relations, default=pl.col("label"))
        return replace(facts, relations=facts.relations.with_columns(label=label))
    except InputError as error:
        if isinstance(error, DamagedFileError) or str(error).startswith(str(place)):
            raise  # it names the file
        raise InputError(f"{place}: {error}") from error
    except pl.exceptions.PolarsError as error:
        raise unreadable(place, error) from error


def contradictions(entry: Entry, path: str | None, facts: Facts) -> Mapping[str, int]:
    """The number of rows that contradict each other, by the kind of contradiction."""
    return READERS[entry.reader].contradictions(content_of(entry, list_files(entry, path)), facts)


def list_renamed_columns(entry: Entry, path: str | None) -> Mapping[str, str]:
    """The columns of a file of the user's own that are read as others, by their names there."""
    reader = READERS[entry.reader]
    if path is None or reader.content != "rows":
        return {}
    return reader.guess_columns(reader.columns(content_of(entry, list_files(entry, path))))


def load_published(method: str) -> pl.DataFrame | None:
    """The numbers of the paper of a method (data_catalog/published/), null where it has none."""
    path = folders.CATALOG / "published" / f"{method}.csv"
    return pl.read_csv(path, schema=PUBLISHED_SCHEMA, glob=False) if path.is_file() else None


class Departure(NamedTuple):
    """How facts differ from those of a paper, and whether each relation has all of its facts."""

    sentence: str
    has_whole_relations: bool


def find_departure(facts: Facts, benchmark: str, names_per_subject: int | None) -> Departure | None:
    """How facts differ from those of a benchmark whose numbers are published; null: they do not.

    >>> find_departure(read_facts(entry("kamel-mini"), None), "kamel", None).sentence
    '12 of 234 relations, 120 of 46,800 facts'
    """
    if benchmark not in folders.files(folders.CATALOG.name):
        return Departure("they are another set", has_whole_relations=False)
    counts = entry(benchmark).counts
    n_facts = facts.pairs.filter(split="test").height or facts.pairs.height
    n_all_facts = next((counts[name] for name in _N_FACTS if name in counts), None)
    n_relations, n_all_relations = facts.relations.height, counts.get("relations")
    sizes = (
        (n_relations, n_all_relations, "relations"),
        (facts.templates.height, counts.get("templates"), "templates"),
        (n_facts, n_all_facts, "facts"),
    )
    parts = [f"{n:,} of {n_all:,} {noun}" for n, n_all, noun in sizes if n_all not in (None, n)]
    path = folders.files("benchmark").get(benchmark)
    if path and names_per_subject != folders.content(path).get("names_per_subject"):
        parts.append(f"names_per_subject={names_per_subject}")
        n_all_facts = None
    if not parts:
        return None
    if n_all_facts is None or n_all_relations is None:
        return Departure(", ".join(parts), has_whole_relations=False)
    # KAMEL, which alone has published numbers by relation, has as many facts of each.
    is_whole = n_facts * n_all_relations == n_all_facts * n_relations
    return Departure(", ".join(parts), is_whole)


def fetch(entry: Entry, say: hub.Say) -> hub.FetchedRepository:
    """Download a data set from the hub at its revision, and record the commit.

    Raises:
        InputError: it does not come from the hub, or the hub does not give it.
    """
    if entry.source.kind == "elsewhere":
        raise InputError(f"{entry.name} is not on the hub: {_advise_manual_copy(entry)}.")
    if entry.source.kind == "catalog":
        raise InputError(f"{entry.name} ships with factsweep; there is nothing to fetch.")
    folder = _folder_of(entry)
    fix = "check the network and HF_TOKEN, or give a local copy with benchmark.path=…"
    repository = Repository(entry.source.id, entry.revision, "dataset", folder)
    fetched = hub.fetch(repository, say, fix)
    record = {"id": entry.source.id, "asked": entry.revision, "commit": fetched.commit}
    record["checksum"] = checksum(list_files(entry))
    (folder / "fetched.json").write_text(json.dumps(record, indent=1))
    return fetched


def find_fetched_commit(entry: Entry, sha256: str | None) -> str | None:
    """The commit that files of this checksum were fetched at; null if it was not recorded."""
    record = _read_fetched(entry)
    return record.get("commit") if record.get("checksum") == sha256 else None


def _read_fetched(entry: Entry) -> dict[str, Any]:
    """The record of the download of a data set; empty: it was not downloaded."""
    file = _folder_of(entry) / "fetched.json"
    return dict(json.loads(file.read_bytes())) if file.is_file() else {}


def list_differences(entry: Entry, path: str | None = None) -> Iterator[str]:
    """The differences between a data set and its entry, one line each."""
    paths = list_files(entry, path)
    expected, actual = entry.checksum, checksum(paths)
    if expected is None and path is None:
        expected = _read_fetched(entry).get("checksum")
    if expected not in (None, actual):
        yield f"checksum: expected {expected}, found {actual}"
    reader = READERS[entry.reader]
    facts = read_facts(entry, path)  # an unfit file is named here
    content = content_of(entry, paths)
    columns = reader.columns(content)
    for column in entry.columns:
        if column not in columns and not column.endswith("?"):
            yield f"column {column}: missing"
    figures = reader.figures(content, facts)
    sound = {name: 0 for name in FAULTS if name in figures}  # no rows that contradict each other
    for name, expected in {**sound, **entry.counts}.items():
        if name not in figures:
            raise InputError(
                f"data_catalog/{entry.name}.yaml: counts.{name} is no known count; "
                f"there are {', '.join(figures)}."
            )
        if (figure := figures[name]) != expected:
            comparison = "more" if figure > expected else "fewer"
            missing_columns = [column for column in NEEDS.get(name, ()) if column not in columns]
            reason = FAULTS.get(name, f"the files have no {' and no '.join(missing_columns)}")
            yield (
                f"{name}: expected {expected:,}, found {figure:,} "
                f"({round(abs(figure - expected), 2):,} {comparison})"
                f"{f'; {reason}' if missing_columns or name in FAULTS else ''}"
            )
