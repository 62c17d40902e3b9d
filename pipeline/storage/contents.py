"""What an artifact holds, checked when it is read.

A shard is read against the manifest, or, where there is none yet, against the checksum in its own
footer; JSON against its own.
"""

from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import polars as pl

from factsweep.operators.errors import InputError
from factsweep.operators.schemas import empty
from factsweep.pipeline.storage import manifest as manifests
from factsweep.pipeline.storage import shard as shards
from factsweep.pipeline.storage.manifest import Entry, Manifest
from factsweep.pipeline.storage.recipe import Recipe
from factsweep.pipeline.storage.sealed import Stored, unseal
from factsweep.pipeline.storage.shard import Counts, Footer, Place
from factsweep.pipeline.storage.store import Store


@dataclass(frozen=True)
class Contents:
    """What is published of an artifact.

    `name` is that of its folder where its recipe is lost; null: the fingerprint of the recipe.
    A manifest is read once by each object. What is gone, truncated, foreign, edited or no file is a
    DamagedFileError.
    """

    store: Store
    recipe: Recipe
    name: str | None = None
    _manifests: list[Manifest] = field(default_factory=list, init=False, compare=False, repr=False)

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
            raise file.damaged("is not what the manifest says (SHA-256)")
        found = shards.rows(content, table, file, columns, categories)
        if found.height != (said := self._entries(table)[shard].rows):
            raise file.damaged(f"has {found.height:,} rows, not {said:,} as the manifest says")
        return found

    def note(self, file: str) -> dict[str, Any]:
        """What a JSON file of the artifact holds, checked; FileNotFoundError if there is none."""
        name = f"{self.folder}/{file}"
        return unseal(self.store.get(name), name, self.store.where(name))

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
        found = shards.digests(content)
        if self._is_entry(found, table, shard):
            return True
        before = self.manifest().pin
        if not self.is_complete() or not self._is_entry(found, table, shard):
            return False
        if self.manifest().pin.digest != before.digest:
            raise InputError(
                f"{self.store.where(self.folder)} was computed anew while it was read; run again."
            )
        return True

    def _is_entry(self, digests: tuple[str, str], table: str, shard: str) -> bool:
        """Whether both are the entry's: what was made of it pins that of the data alone."""
        entry = self._entries(table).get(shard)
        return entry is not None and (entry.content, entry.sha256) == digests

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
