"""Artifacts: a folder of shards named after what determines their content.

<store>/<stage>/<fingerprint>/recipe.json            what the fingerprint is made of
                             /<table>/<shard>.parquet
                             /chunks/<table>/<shard>/….parquet   finished parts of an open shard
                             /manifest.json          the last file: all shards, rows, checksums
                             /damaged/               what was set aside

How one is read is in `contents.py`, how one is found in a store in `lookup.py`, how what is
damaged is set aside in `integrity.py`; here is how one is published.
"""

import hashlib
import json
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from math import inf
from typing import Any, TypeVar, cast
from uuid import uuid4

import polars as pl

from factsweep.pipeline.storage import manifest as manifests
from factsweep.pipeline.storage import shard as shards
from factsweep.pipeline.storage.contents import Contents
from factsweep.pipeline.storage.lease import Lease
from factsweep.pipeline.storage.manifest import Entry, Manifest
from factsweep.pipeline.storage.sealed import seal
from factsweep.pipeline.storage.shard import Counts, Footer, Place

T = TypeVar("T", int, str)
R = TypeVar("R")

_FRESH_S = 5.0  # far less than it takes until a lease is taken over


@dataclass(frozen=True)
class Artifact(Contents):
    """The output of a stage in a store. Nothing in it is ever changed, only added.

    What is published is published under `lease`, which says whether it is still ours to write; null
    where there can be no other writer. Once another driver has taken the artifact over, whatever
    writes raises ArtifactHeldError. One that travels to another process reads its manifest again.
    """

    lease: Lease | None = field(default=None, compare=False)
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
        self.put(file, seal(content, f"{self.folder}/{file}"))

    def drop(self, name: str) -> None:
        """Remove a file of the artifact that is no longer needed.

        Raises:
            ArtifactHeldError: another driver has taken the artifact over.
        """
        self._ours(partial(self.store.drop, f"{self.folder}/{name}"))

    def drop_all(self, names: Collection[str]) -> None:
        """Remove files of the artifact that are no longer needed.

        Raises:
            ArtifactHeldError: another driver has taken the artifact over.
        """
        if names and self.store.drops_at_once:
            self._ours(partial(self.store.drop_all, [f"{self.folder}/{name}" for name in names]))
            return
        for name in names:
            self.drop(name)

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
        path = f"{self.folder}/{name}.json"
        self.put_new(f"{name}.json", seal({name: value}, path))
        return type(value)(self.note(f"{name}.json")[name])

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
        pins = {each.folder: each.manifest().pin for each in made_of}
        found = Manifest(self.folder, uuid4().hex, pins, entries, dict(counts or {}))
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
        footer = shards.check(content, place, file)
        if not footer.values:
            rows = shards.rows(content, table, file, validate=True)
            footer = footer._replace(values=shards.values_of(rows, table))
        return _entry(content, footer)


def _entry(content: bytes, footer: Footer) -> Entry:
    sha256, counts = hashlib.sha256(content).hexdigest(), dict(footer.counts)
    return Entry(footer.rows, len(content), sha256, footer.content, counts, footer.values)
