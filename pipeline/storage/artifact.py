"""Artifacts: a folder of shards named after what determines their content.

<store>/<stage>/<fingerprint>/recipe.json            what the fingerprint is made of
                             /<table>/<shard>.parquet
                             /chunks/<table>/<shard>/….parquet   finished parts of an open shard
                             /manifest.json          the last file: all shards, rows, checksums
                             /damaged/               what was set aside

A shard is read against the manifest, or, where there is none yet, against the checksum in its own
footer. How an artifact is found in a store is in `lookup.py`, how what is damaged is set aside in
`integrity.py`.
"""

import hashlib
import json
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from math import inf
from typing import Any, TypeVar, cast

import polars as pl

from factsweep.operators.errors import InputError
from factsweep.operators.schemas import empty
from factsweep.pipeline.storage import manifest as manifests
from factsweep.pipeline.storage import shard as shards
from factsweep.pipeline.storage.json_files import Stored, to_json
from factsweep.pipeline.storage.lease import Lease
from factsweep.pipeline.storage.manifest import Entry, Manifest
from factsweep.pipeline.storage.recipe import Recipe
from factsweep.pipeline.storage.shard import Counts, Footer, Place
from factsweep.pipeline.storage.store import Store

T = TypeVar("T", int, str)
R = TypeVar("R")

_FRESH_S = 5.0  # far less than it takes until a lease is taken over


@dataclass(frozen=True)
class Artifact:
    """The output of a stage in a store. Nothing in it is ever changed, only added.

    `name` is that of its folder where its recipe is lost; null: the fingerprint of the recipe.

    A manifest is read once by each object. What is gone, truncated, foreign, edited or no file is a
    DamagedFileError.

    What is published is published under `lease`, which says whether it is still ours to write; null
    where there can be no other writer. Once another driver has taken the artifact over, whatever
    writes raises ArtifactHeldError. One that travels to another process reads its manifest again.
    """

    store: Store
    recipe: Recipe
    name: str | None = None
    lease: Lease | None = field(default=None, compare=False)
    _manifests: list[Manifest] = field(default_factory=list, init=False, compare=False, repr=False)
    # The shards of each table that were asked for here; null: one that was there already.
    _written: dict[str, dict[str, Entry | None]] = field(
        default_factory=lambda: defaultdict(dict), init=False, compare=False, repr=False
    )
    _looked: list[float] = field(
        default_factory=lambda: [-inf, -inf], init=False, compare=False, repr=False
    )
    _there: dict[str, set[str]] = field(default_factory=dict, init=False, compare=False, repr=False)

    def __reduce__(self) -> tuple[type["Artifact"], tuple[Any, ...]]:
        """What travels to another process: nothing that was read."""
        return Artifact, (self.store, self.recipe, self.name, self.lease)

    @property
    def stage(self) -> str:
        """The stage that makes it."""
        return self.recipe.stage

    @property
    def fingerprint(self) -> str:
        """Its name: 16 hex digits."""
        return self.name or self.recipe.fingerprint

    @property
    def folder(self) -> str:
        """Its folder in the store."""
        return f"{self.stage}/{self.fingerprint}"

    def is_complete(self) -> bool:
        """Whether the manifest is published, and with it every shard; looks each time.

        Raises:
            DamagedFileError: there is one, and it is not what was written.
        """
        name, found = f"{self.folder}/{manifests.NAME}", list[Manifest]()
        try:
            content = self.store.get(name)
            found.append(manifests.parsed(content, self.folder, self.store.where(name)))
        except FileNotFoundError:
            return False
        finally:
            self._manifests[:] = found  # at once: another thread may be reading by it
        return True

    @property
    def was_complete(self) -> bool:
        """Whether it was complete when it was last looked at."""
        return bool(self._manifests)

    def is_open(self) -> bool:
        """Whether it was begun and is not complete."""
        return not self.is_complete() and self.store.exists(f"{self.folder}/recipe.json")

    def forget(self) -> None:
        """Look at the manifest anew when it is next asked for."""
        self._manifests.clear()

    def manifest(self) -> Manifest:
        """All shards of a complete artifact, with rows, sizes, checksums and counts.

        Raises:
            DamagedFileError: it is not complete, or its manifest is damaged.
        """
        if not self._manifests and not self.is_complete():
            raise self._file(manifests.NAME).damaged("is gone")
        return self._manifests[0]

    def counts(self, table: str, most: int | None = None) -> dict[str, Counts]:
        """The counts of each published shard of a table, without reading the shards.

        While it is open, of at most so many of them.
        """
        if self._manifests or self.is_complete():
            return {shard: each.counts for shard, each in self._entries(table).items()}
        found = self.published(table)
        found = found[:: -(-len(found) // most)] if most and found else found
        footers = self.store.each(partial(self.footer, table), found)
        return {shard: each.counts for shard, each in zip(found, footers, strict=True)}

    def rows(self, table: str) -> dict[str, int]:
        """The rows of each shard of a table of a complete artifact, without reading the shards."""
        return {shard: each.rows for shard, each in self._entries(table).items()}

    def shards(self, table: str) -> list[str]:
        """The published shards of a table: those of the manifest, or all that lie there so far."""
        if self._manifests or self.is_complete():
            return sorted(self._entries(table))
        return self.published(table)

    def published(self, table: str) -> list[str]:
        """The shards or chunks that lie in a folder of the artifact, whatever a manifest says."""
        names = self.store.names(f"{self.folder}/{table}")
        return [name.removesuffix(".parquet") for name in names if name.endswith(".parquet")]

    def chunks(self, table: str) -> Iterator[tuple[str, str]]:
        """The finished parts of open shards of a table: the folder of each, and its name."""
        for shard in self.store.folders(f"{self.folder}/chunks/{table}"):
            folder = f"chunks/{table}/{shard}"
            yield from ((folder, name) for name in self.published(folder))

    def all_published(self) -> dict[str, list[str]]:
        """What `published` says of each folder of the artifact that has something: one listing."""
        found = defaultdict[str, list[str]](list)
        for name in sorted(self.store.sizes(self.folder)):
            folder, _, file = name.rpartition("/")
            if file.endswith(".parquet") and not file.startswith("."):
                found[folder].append(file.removesuffix(".parquet"))
        return dict(found)

    def has(self, table: str, shard: str) -> bool:
        """Whether a shard is published."""
        return self.store.exists(f"{self.folder}/{table}/{shard}.parquet")

    def read(
        self,
        table: str,
        shard: str,
        columns: Sequence[str] | None = None,
        categories: Sequence[str] = (),
    ) -> pl.DataFrame:
        """A published shard, all of which is checked; columns as in `shard.rows`.

        Raises:
            DamagedFileError: it is gone, truncated, foreign, edited, or no file.
        """
        place = Place(table, self.fingerprint, f"{table}/{shard}")
        content, file = self._content(place)
        if not self._manifests and not self.is_complete():
            return shards.decode(content, place, file, columns, categories)
        if not self._is_listed(content, table, shard):
            shards.decode(content, place, file)  # may know better what is wrong with it
            if self._is_misspelt(content, table, shard):
                raise self._file(manifests.NAME).damaged(f"misspells the SHA-256 of {file.where}")
            raise file.damaged("is not what the manifest says (SHA-256)")
        found = shards.rows(content, table, file, columns, categories)
        if found.height != (said := self._entries(table)[shard].rows):
            what = f"says that {file.where} has {said:,} rows, not {found.height:,}"
            raise self._file(manifests.NAME).damaged(what)
        return found

    def note(self, file: str, *fields: str) -> dict[str, Any]:
        """What a JSON file of the artifact holds, at least these fields.

        Raises:
            FileNotFoundError: there is none.
            DamagedFileError: it is not whole.
        """
        return self.store.get_json(f"{self.folder}/{file}", *fields)

    def read_chunk(self, table: str, folder: str, name: str) -> tuple[pl.DataFrame, Counts]:
        """A finished part of an open shard, and what it took.

        Raises:
            DamagedFileError: it is gone, truncated, foreign, edited, or no file.
        """
        place = Place(table, self.fingerprint, f"{folder}/{name}")
        content, file = self._content(place)
        footer = shards.check(content, place, file)
        return shards.rows(content, table, file, validate=True), footer.counts

    def _file(self, name: str) -> Stored:
        name = f"{self.folder}/{name}"
        return Stored(self.store.where(name), name)

    def _content(self, place: Place) -> tuple[bytes, Stored]:
        """The content of a shard's file."""
        file = self._file(f"{place.shard}.parquet")
        try:
            return self.store.get(str(file.name)), file
        except FileNotFoundError as error:
            raise file.damaged("is gone") from error

    def _is_listed(self, content: bytes, table: str, shard: str) -> bool:
        """Whether a shard's file is the one that the manifest lists."""
        sha256 = hashlib.sha256(content).hexdigest()

        def is_entry() -> bool:
            entry = self._entries(table).get(shard)
            return entry is not None and entry.sha256 == sha256

        if is_entry():
            return True
        if self.is_complete() and is_entry():
            raise InputError(
                f"{self.store.where(self.folder)} was computed anew while it was read; run again."
            )
        return False

    def _is_misspelt(self, content: bytes, table: str, shard: str) -> bool:
        """Whether the manifest lists nearly the SHA-256 of a file: of another file it would not."""
        listed = entry.sha256 if (entry := self._entries(table).get(shard)) else ""
        sha256 = hashlib.sha256(content).hexdigest()
        return sum(map(str.__eq__, listed, sha256)) > len(sha256) // 2

    def _entries(self, table: str) -> dict[str, Entry]:
        return self.manifest().tables.get(table, {})

    def read_all(self, table: str) -> pl.DataFrame:
        """All shards of a table, in the order of their names."""
        return pl.concat([empty(table), *self.each(table)])

    def each(self, table: str, columns: Sequence[str] | None = None) -> Iterator[pl.DataFrame]:
        """The shards of a table, in their order; of an object store some are read at once."""
        read = partial(self.read, table, columns=columns)
        return self.store.in_turn(read, self.shards(table))

    def some(
        self, table: str, shards: Collection[str], columns: Sequence[str] | None = None
    ) -> list[pl.DataFrame]:
        """Some shards of a table, in their order; an object store is asked many at once."""
        return self.store.each(partial(self.read, table, columns=columns), shards)

    def footer(self, table: str, shard: str, folder: str | None = None) -> Footer:
        """The rows of a shard and its counts, or of a chunk in a folder; reads no more of it.

        Raises:
            DamagedFileError: it is gone, truncated, foreign, or no file.
        """
        place = Place(table, self.fingerprint, f"{folder or table}/{shard}")
        file = self._file(f"{place.shard}.parquet")
        try:
            return shards.footer_of(self.store, place, file)
        except FileNotFoundError as error:
            raise file.damaged("is gone") from error

    def write(
        self, table: str, shard: str, frame: pl.DataFrame, counts: Counts | None = None
    ) -> pl.DataFrame:
        """Publish a shard, unless one is published; returns the rows that are.

        `counts` are kept in its footer. What is there is looked for once for each table.

        Raises:
            ArtifactHeldError: another driver has taken the artifact over.
            DamagedFileError: what is published is not whole.
        """
        if table not in self._there:
            self._there[table] = set(self.published(table))
        if shard not in self._there[table]:
            return self.publish(table, shard, frame, counts)
        self._written[table][shard] = None
        return self.read(table, shard)

    def publish(
        self, table: str, shard: str, frame: pl.DataFrame, counts: Counts | None = None
    ) -> pl.DataFrame:
        """As `write`, of a shard that is hardly there: it is made before the store is asked."""
        place = Place(table, self.fingerprint, f"{table}/{shard}")
        content, footer = shards.pack(frame, place, counts)
        is_ours = self.put_new(f"{place.shard}.parquet", content)
        self._written[table][shard] = _entry(content, footer) if is_ours else None
        return frame if is_ours else self.read(table, shard)

    def put(self, name: str, content: bytes) -> None:
        """Publish a file of the artifact, or replace it, if it is ours to write.

        Raises:
            ArtifactHeldError: another driver has taken the artifact over.
        """
        self._ours(partial(self.store.put, f"{self.folder}/{name}", content))

    def put_new(self, name: str, content: bytes) -> bool:
        """Publish a file of the artifact unless it is there; whether it now is `content`.

        Raises:
            ArtifactHeldError: another driver has taken the artifact over.
        """
        return self._ours(partial(self.store.put_new, f"{self.folder}/{name}", content))

    def _ours(self, change: Callable[[], R]) -> R:
        """What a change of the store says, of an artifact that is ours to write.

        While the last look at the lease is fresh, an object store is asked for the next one and for
        the change at once: no lease is taken over so soon.
        """
        if self.lease is None:
            return change()
        now = (time.monotonic(), time.time())  # the first stands still where a machine sleeps
        if all(0 <= now[i] - self._looked[i] < _FRESH_S for i in (0, 1)):
            found = self.store.at_once(self.lease.check, change)[1]
        else:
            self.lease.check()
            found = change()
        self._looked[:] = now
        return cast(R, found)

    def put_note(self, file: str, content: Mapping[str, Any]) -> None:
        """Publish a JSON file of the artifact, which `note` reads, or replace it."""
        self.put(file, to_json(content))

    def drop(self, *names: str) -> None:
        """Remove files of the artifact that are no longer needed.

        Raises:
            ArtifactHeldError: another driver has taken the artifact over.
        """
        paths = [f"{self.folder}/{name}" for name in names]
        # A writer that was paused since it looked must not remove one file after the other.
        requests = [paths] if paths and self.store.drops_at_once else [[path] for path in paths]
        for request in requests:
            self._ours(partial(self.store.drop, *request))

    def check_lease(self) -> None:
        """Look whether the artifact is still ours to write.

        Raises:
            ArtifactHeldError: another driver has taken the artifact over.
        """
        if self.lease is not None:
            self.lease.check()

    def write_chunk(
        self, table: str, folder: str, name: str, frame: pl.DataFrame, counts: Counts | None = None
    ) -> None:
        """Publish a finished part of an open shard: rows of `table` in a folder of their own."""
        place = Place(table, self.fingerprint, f"{folder}/{name}")
        self.put(f"{place.shard}.parquet", shards.encode(frame, place, counts))

    def begin(self) -> None:
        """Publish the recipe, so that `why` can explain even an unfinished artifact."""
        self.put_note("recipe.json", json.loads(self.recipe.to_json()))
        self._written.clear()
        self._there.clear()

    def settled(self, name: str, value: T) -> T:
        """The value that was settled when the artifact was begun: `value`, if it is begun now.

        Raises:
            DamagedFileError: it was settled, and cannot be read.
        """
        file = f"{name}.json"
        self.put_new(file, to_json({name: value}))
        found = self.note(file, name)[name]
        if not isinstance(found, type(value)):
            raise self._file(file).damaged(f"says {name} {found}")
        return found

    def finish(
        self,
        tables: Sequence[str],
        counts: Counts | None = None,
        *,
        made_of: Collection["Artifact"] = (),
        of: Mapping[str, Collection[str]] | None = None,
    ) -> None:
        """Publish the manifest, unless there is one: from now on the artifact is complete.

        It lists a shard that was written here as it was written; all others are read. `made_of`
        are the artifacts that were read. `of` names the shards that a table must have; null: those
        that were written here.

        Raises:
            DamagedFileError: a shard is damaged, missing, or one too many.
        """
        self.check_lease()
        wanted: Mapping[str, Collection[str]] = self._written if of is None else of
        entries = {table: self._listed(table, wanted.get(table)) for table in tables}
        inputs = {each.folder: each.manifest().state for each in made_of}
        found = Manifest(self.folder, inputs, entries, dict(counts or {}))
        self._manifests[:] = [found] if self.put_new(manifests.NAME, found.to_json()) else []

    def _listed(self, table: str, wanted: Collection[str] | None) -> dict[str, Entry]:
        """The entries of a table; `wanted` null: any shard may be there."""
        found = self.published(table)
        wanted = found if wanted is None else wanted
        for shard in sorted(set(wanted).symmetric_difference(found)):
            what = "is gone" if shard in wanted else "is no shard of this artifact"
            raise self._file(f"{table}/{shard}.parquet").damaged(what)
        written = self._written.get(table, {})
        others = [shard for shard in found if written.get(shard) is None]
        read = self.store.each(partial(self._read_entry, table), others)
        entries = {**written, **dict(zip(others, read, strict=True))}
        return {shard: cast(Entry, entries[shard]) for shard in found}

    def _read_entry(self, table: str, shard: str) -> Entry:
        place = Place(table, self.fingerprint, f"{table}/{shard}")
        content, file = self._content(place)
        return _entry(content, shards.check(content, place, file))


def _entry(content: bytes, footer: Footer) -> Entry:
    sha256, counts = hashlib.sha256(content).hexdigest(), dict(footer.counts)
    return Entry(footer.rows, len(content), sha256, counts)
