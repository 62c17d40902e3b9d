"""The data catalog: what data sets exist, where their files are, what they say."""

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, NamedTuple

import polars as pl

from factsweep.operators.datasets import plain_tables
from factsweep.operators.datasets.facts import Facts, labelled
from factsweep.operators.datasets.layouts import NAMED, with_aliases
from factsweep.operators.datasets.readers import FAULTS, NEEDS, READERS
from factsweep.operators.errors import DamagedFileError, InputError
from factsweep.operators.tables.shared.paper_table import PUBLISHED_SCHEMA
from factsweep.operators.wording import suggestion
from factsweep.operators.wording.names import check
from factsweep.pipeline.config import folders
from factsweep.pipeline.config.benchmark import Benchmark
from factsweep.pipeline.config.folders import OWN_FACTS, home
from factsweep.pipeline.config.recipe import build
from factsweep.pipeline.inputs import digests, hub
from factsweep.pipeline.inputs.files import checksum as checksum_of_table
from factsweep.pipeline.inputs.files import content, has_rows
from factsweep.pipeline.inputs.hub import Repository
from factsweep.pipeline.inputs.sources import labels
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


def of_benchmark(benchmark: Benchmark) -> Entry:
    """The entry of a benchmark's data, in its language, with its separator."""
    found = entry(benchmark.data, benchmark.language)
    return replace(found, separator=benchmark.separator)


def names() -> list[str]:
    """The names of all entries: those that ship, and the user's own."""
    return list(folders.files("data_catalog"))


def entry(name: str, language: str = "en") -> Entry:
    """The entry of a data set, with the files of one language where it has several.

    Raises:
        InputError: there is none of that name, or it does not hold what an entry holds.
    """
    known = folders.files("data_catalog")
    path = known.get(name)
    if path is None:
        raise InputError(
            f"data_catalog/ has no entry {name}; it has {', '.join(known)}."
            f"{suggestion(name, known)}"
        )
    found = build(Entry, folders.content(path), f"data_catalog/{name}.yaml")
    check(found.name, f"data_catalog/{name}.yaml: the name")
    source = replace(found.source, files=found.source.files.replace("{language}", language))
    if source.kind == "catalog" and path.parent != folders.CATALOG:
        # Beside a user's own entry: a worker elsewhere is told where, and looks for no folder.
        source = replace(source, id=str(path.parent / source.id))
    return replace(found, source=source)


def files(entry: Entry, path: str | None = None) -> list[Path]:
    """The data files: those under `path`, of the catalog, or as they were fetched.

    A table that the set does not have is the catalog's own, where its reader has one.

    Raises:
        InputError: there are none.
    """
    found = _own_files(entry, path)
    name = READERS[entry.reader].stands_in
    if name is None or any(each.name.partition(".")[0] == name for each in found):
        return found
    return [*found, *sorted((_TABLES / entry.reader).glob(f"{name}.*"))]


def _own_files(entry: Entry, path: str | None) -> list[Path]:
    folder = Path(path) if path else _folder(entry)
    if folder.is_file():
        return [folder, *(each for each in _beside(entry, folder.parent) if each != folder)]
    beside, reader = set(_beside(entry, folder)), READERS[entry.reader]
    fitting = {path for p in entry.source.files.split("|") for path in _matching(folder, p)}
    found = {p for p in fitting if p.is_file() and not _is_record(p, folder)} - beside
    if not found and not reader.by_language and (path or reader.content == "rows"):
        tables = filter(has_rows, folder.rglob("*"))
        found = {p for p in tables if not _is_record(p, folder)} - beside
    if not found:
        fix = f"run `factsweep catalog fetch {entry.name}` or give benchmark.path=<folder or file>"
        fix = _by_hand(entry) if entry.source.kind == "elsewhere" else fix
        raise InputError(f"{entry.name} has no files in {folder}; {fix}.")
    return sorted(found | beside)


def _is_record(path: Path, folder: Path) -> bool:
    """Whether a file is a note about the others: our own, or one of the hub's client."""
    inside = path.relative_to(folder)
    return path.name == "fetched.json" or any(part.startswith(".") for part in inside.parts)


def mapping(entry: Entry) -> dict[str, dict[str, str]]:
    """Columns that have another name in the files (`from`), or are in another file (`file`).

    Raises:
        InputError: a column of the entry that says neither its type nor where it stands.
    """
    found = {}
    for name, said in entry.columns.items():
        if isinstance(said, str):
            continue
        fits = isinstance(said, dict) and len(said) == 1 and set(said) <= {"from", "file"}
        if not fits or not isinstance(next(iter(said.values())), str):
            raise InputError(
                f"data_catalog/{entry.name}.yaml: columns.{name} is {said!r}; write its type, "
                "{from: <name in the files>} or {file: <file of other names>}."
            )
        column = name.removesuffix("?")
        if "file" in said and column not in NAMED:
            raise InputError(
                f"data_catalog/{entry.name}.yaml: columns.{column} cannot stand in another file; "
                f"only {' and '.join(NAMED)} can."
            )
        found[column] = said
    return found


def _beside(entry: Entry, folder: Path) -> list[Path]:
    """The files of other names."""
    patterns = {said["file"] for said in mapping(entry).values() if "file" in said}
    return sorted({path for p in patterns for path in _matching(folder, p) if path.is_file()})


def _matching(folder: Path, pattern: str) -> list[Path]:
    """The file of that name, or the paths that the pattern fits."""
    path = folder / pattern
    return [path] if path.is_file() else list(folder.glob(pattern))


def content_of(entry: Entry, paths: list[Path]) -> Any:
    """What the entry's reader gets: columns renamed and other names joined, as the entry says."""
    kind = READERS[entry.reader].content
    mapped = mapping(entry)
    beside = _beside(entry, _common(paths))
    rows = content([path for path in paths if path not in beside], kind)
    if isinstance(rows, pl.LazyFrame):
        rows = (
            plain_tables.split(rows.collect(), entry.separator).lazy() if entry.separator else rows
        )
        plain_tables.check_aliases(rows, SEPARATOR_OPTION)
    if not mapped:
        return rows
    if isinstance(rows, dict):
        raise InputError(
            f"columns of the layout {entry.reader} cannot be mapped; change the files."
        )
    rows = _renamed(rows, {said["from"]: name for name, said in mapped.items() if "from" in said})
    for name, said in mapped.items():
        if "file" in said:
            rows = with_aliases(rows, name, _names(name, said["file"], beside))
    return rows


def _renamed(rows: pl.LazyFrame, names: dict[str, str]) -> pl.LazyFrame:
    there = rows.collect_schema().names()
    for theirs, ours in names.items():
        if theirs not in there:
            raise InputError(
                f"columns.{ours} of the catalog entry is {{from: {theirs}}}, and the files have no "
                f"column {theirs}; they have {', '.join(there)}."
            )
    return rows.drop(n for n in names.values() if n in there and n not in names).rename(names)


def _names(column: str, pattern: str, beside: list[Path]) -> pl.DataFrame:
    paths = [path for path in beside if path.name == pattern or path.match(pattern)]
    if not paths:
        raise InputError(
            f"columns.{column} of the catalog entry is {{file: {pattern}}}, and there is no such "
            "file beside the data; copy it there, or take the line out of the entry."
        )
    return pl.concat([labels(path) for path in paths])


def _by_hand(entry: Entry) -> str:
    return (
        f"copy its files from {entry.source.id} and give benchmark.path=<their folder>, or --path "
        "to catalog and describe"
    )


def _folder(entry: Entry) -> Path:
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
    own = [path for path in paths if not _stands_in(path)]
    named = {path.relative_to(_common(own)).as_posix(): path for path in own}
    others = {f"catalog/{path.name}": path for path in paths if _stands_in(path)}
    return digests.of_files({**named, **others})


def check_unchanged(paths: Sequence[Path], expected: str, entry: Entry | None = None) -> None:
    """Refuse files that changed after an artifact was named after them, before they were read."""
    if checksum(paths, entry) != expected:
        where = paths[0] if len(paths) == 1 else _common(paths)
        raise InputError(f"{where} changed while it was read; run again when it is complete.")


def _stands_in(path: Path) -> bool:
    return _TABLES in path.parents


def _common(paths: Sequence[Path]) -> Path:
    return Path(os.path.commonpath([path.parent for path in paths]))


def read(entry: Entry, path: str | None = None) -> Facts:
    """The facts of a data set.

    Files under `path` may be a user's own: they may have relations that the entry does not name,
    whose labels are their ids.

    Raises:
        InputError: its files are missing or unfit; the message names the file.
    """
    paths = files(entry, path)
    own = [each for each in paths if not _stands_in(each)]
    where = own[0] if len(own) == 1 else _common(own)
    try:
        reader = READERS[entry.reader]
        found = content_of(entry, paths)
        if path is None or not reader.names_ids:
            return reader.facts(found, entry.relations or None)
        return labelled(reader.facts(found, None), entry.relations)
    except InputError as error:
        if isinstance(error, DamagedFileError) or str(error).startswith(str(where)):
            raise  # it names the file
        raise InputError(f"{where}: {error}") from error
    except pl.exceptions.PolarsError as error:
        raise unreadable(where, error) from error


def contradictions(entry: Entry, path: str | None, facts: Facts) -> Mapping[str, int]:
    """How many rows of the files cannot all be right, by what they contradict each other in."""
    return READERS[entry.reader].contradictions(content_of(entry, files(entry, path)), facts)


def meant(entry: Entry, path: str | None) -> Mapping[str, str]:
    """The columns of a file of the user's own that are read as others, by their names there."""
    reader = READERS[entry.reader]
    if path is None or reader.content != "rows":
        return {}
    return reader.meant(reader.columns(content_of(entry, files(entry, path))))


def published(method: str) -> pl.DataFrame | None:
    """The numbers of the paper of a method (data_catalog/published/), null where it has none."""
    path = folders.CATALOG / "published" / f"{method}.csv"
    return pl.read_csv(path, schema=PUBLISHED_SCHEMA, glob=False) if path.is_file() else None


class Departure(NamedTuple):
    """How facts differ from those of a paper, and whether each relation has all of its facts."""

    sentence: str
    has_whole_relations: bool


def departure(facts: Facts, benchmark: str, names_per_subject: int | None) -> Departure | None:
    """How facts differ from those of a benchmark whose numbers are published; null: they do not.

    >>> departure(read(entry("kamel-mini"), None), "kamel", None).sentence
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


def fetched(entry: Entry, say: hub.Say) -> hub.Fetched:
    """Download a data set from the hub at its revision, and record the commit.

    Raises:
        InputError: it does not come from the hub, or the hub does not give it.
    """
    if entry.source.kind == "elsewhere":
        raise InputError(f"{entry.name} is not on the hub: {_by_hand(entry)}.")
    if entry.source.kind == "catalog":
        raise InputError(f"{entry.name} ships with factsweep; there is nothing to fetch.")
    folder = _folder(entry)
    fix = "check the network and HF_TOKEN, or give a local copy with benchmark.path=…"
    asked = Repository(entry.source.id, entry.revision, "dataset", folder)
    found = hub.fetch(asked, say, fix)
    record = {"id": entry.source.id, "asked": entry.revision, "commit": found.commit}
    record["checksum"] = checksum(files(entry))
    (folder / "fetched.json").write_text(json.dumps(record, indent=1))
    return found


def fetched_checksum(entry: Entry) -> str | None:
    """The checksum that was recorded when the data set was fetched; null where it was not."""
    record = _folder(entry) / "fetched.json"
    content = json.loads(record.read_bytes()) if record.is_file() else {}
    found: str | None = content.get("checksum")  # earlier versions recorded another sum
    return found


def differences(entry: Entry, path: str | None = None) -> Iterator[str]:
    """What differs between a data set and its entry, one line each; nothing if it is right."""
    paths = files(entry, path)
    found = checksum(paths)
    expected = entry.checksum if path else entry.checksum or fetched_checksum(entry)
    if expected not in (None, found):
        yield f"checksum: expected {expected}, found {found}"
    reader = READERS[entry.reader]
    facts = read(entry, path)  # an unfit file is named here
    found_files = content_of(entry, paths)
    columns = reader.columns(found_files)
    for column in entry.columns:
        if column not in columns and not column.endswith("?"):
            yield f"column {column}: missing"
    figures = reader.figures(found_files, facts)
    sound = {name: 0 for name in FAULTS if name in figures}  # no rows that contradict each other
    for name, expected in {**sound, **entry.counts}.items():
        if name not in figures:
            raise InputError(
                f"data_catalog/{entry.name}.yaml: counts.{name} is no known count; "
                f"there are {', '.join(figures)}."
            )
        if figures[name] != expected:
            yield _difference(name, expected, figures[name], columns)


def _difference(name: str, expected: float, found: float, columns: Sequence[str]) -> str:
    by = f"{round(abs(found - expected), 2):,} {'more' if found > expected else 'fewer'}"
    lacking = [column for column in NEEDS.get(name, ()) if column not in columns]
    why = FAULTS.get(name) or (f"the files have no {' and no '.join(lacking)}" if lacking else "")
    return f"{name}: expected {expected:,}, found {found:,} ({by}){why and f'; {why}'}"
