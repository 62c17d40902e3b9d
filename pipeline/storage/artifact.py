"""Artifacts: a folder of shards named after the recipe that determines their content.

<store>/<stage>/<fingerprint>/recipe.json            the recipe
                             /<table>/<shard>.parquet
                             /chunks/<table>/<shard>/….parquet   finished parts of an open shard
                             /manifest.json          the last file: all shards, rows, checksums
                             /damaged/               quarantined files

A shard is checked against the manifest, or, before there is one, against the checksum in its own
footer. `lookup.py` finds artifacts in a store; `integrity.py` quarantines damaged files.
"""

import hashlib
import json
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from math import inf
from typing import Any, TypeVar, cast

import polars as pl

from factsweep.operators.errors import InputError
from factsweep.operators.schemas import empty
from factsweep.operators.wording.redaction import holds_secret
from factsweep.pipeline.storage import manifest as manifests
from factsweep.pipeline.storage import shard as shards
from factsweep.pipeline.storage.lease import Lease
from factsweep.pipeline.storage.manifest import Entry, Manifest
from factsweep.pipeline.storage.shard import Counts, Footer, ShardPlace
from factsweep.pipeline.storage.store import Store, StoredFile, to_json


@dataclass(frozen=True)
class Recipe:
    """Everything that determines an artifact's content."""

    stage: str
    version: int  # incremented when the stage computes another result from the same fields
    fields: Mapping[str, Any]
    inputs: Mapping[str, str] = field(default_factory=dict)  # fingerprints of its inputs

    @cached_property
    def fingerprint(self) -> str:
        """16 hex digits of the SHA-256 of the recipe."""
        return hashlib.sha256(self.to_json().encode()).hexdigest()[:16]

    def to_json(self) -> str:
        """The canonical text of the recipe, with sorted keys.

        Raises:
            InputError: it holds a secret: recipes are published, and short secrets could be guessed
                from a fingerprint.
        """
        content = {
            "stage": self.stage,
            "version": self.version,
            "fields": self.fields,
            "inputs": dict(self.inputs),
        }
        if (field := holds_secret(content)) is not None:
            raise InputError(
                f"{field.removeprefix('fields.')} holds what looks like a secret, and results are "
                "named and described by it; put it into the environment instead."
            )
        return json.dumps(content, sort_keys=True, indent=1, ensure_ascii=False)


def differences(
    old_fields: Mapping[str, Any], new_fields: Mapping[str, Any], path: str = ""
) -> Iterator[str]:
    """The fields in which two recipes differ, one line per field."""
    for name in sorted({*old_fields, *new_fields}):
        field_path = f"{path}.{name}" if path else name
        old, new = old_fields.get(name), new_fields.get(name)
        if isinstance(old, Mapping) and isinstance(new, Mapping):
            yield from differences(old, new, field_path)
        elif old != new:
            yield f"{field_path}: {json.dumps(old)} → {json.dumps(new)}"


T = TypeVar("T", int, str)
R = TypeVar("R")

_FRESH_S = 5.0  # far less than the time until a lease is taken over


@dataclass(frozen=True)
class Artifact:
    """The output of a stage in a store. Files are only added, never changed.

    Each object reads the manifest once; a copy in another process reads it again. Missing,
    truncated, foreign or edited files raise DamagedFileError. Files are published under `lease`
    (None: there is no other writer); once another driver has taken the artifact over, all writes
    raise ArtifactHeldError. `name` is the name of its folder if the recipe is lost.
    """

    store: Store
    recipe: Recipe
    name: str | None = None
    lease: Lease | None = field(default=None, compare=False)
    _manifests: list[Manifest] = field(default_factory=list, init=False, compare=False, repr=False)
    # The shards of each table that this object published; None: the shard was there already.
    _written: dict[str, dict[str, Entry | None]] = field(
        default_factory=lambda: defaultdict(dict), init=False, compare=False, repr=False
    )
    _lease_checked: list[float] = field(
        default_factory=lambda: [-inf, -inf], init=False, compare=False, repr=False
    )
    _listed_shards: dict[str, set[str]] = field(
        default_factory=dict, init=False, compare=False, repr=False
    )

    def __reduce__(self) -> tuple[type["Artifact"], tuple[Any, ...]]:
        return Artifact, (self.store, self.recipe, self.name, self.lease)

    @property
    def stage(self) -> str:
        """The stage that computes it."""
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
        """Whether the manifest is published, and with it every shard; asks the store each time."""
        name, parsed = f"{self.folder}/{manifests.NAME}", list[Manifest]()
        try:
            content = self.store.get(name)
            parsed.append(manifests.parse_manifest(content, self.folder, self.store.where(name)))
        except FileNotFoundError:
            return False
        finally:
            self._manifests[:] = parsed  # at once: another thread may be reading by it
        return True

    @property
    def was_complete(self) -> bool:
        """Whether it was complete at the last look."""
        return bool(self._manifests)

    def is_open(self) -> bool:
        """Whether it was begun and is not complete."""
        return not self.is_complete() and self.store.exists(f"{self.folder}/recipe.json")

    def forget(self) -> None:
        """Forget the manifest, which is read again when it is needed."""
        self._manifests.clear()

    def manifest(self) -> Manifest:
        """All shards of a complete artifact, with rows, sizes, checksums and counts."""
        if not self._manifests and not self.is_complete():
            raise self._stored_file(manifests.NAME).damaged_file_error("is gone")
        return self._manifests[0]

    def counts(self, table: str, most: int | None = None) -> dict[str, Counts]:
        """The counts of each published shard of a table, without reading the shards.

        Of an open artifact, at most `most` shards are sampled.
        """
        if self._manifests or self.is_complete():
            return {shard: entry.counts for shard, entry in self._entries_of(table).items()}
        names = self.list_published(table)
        names = names[:: -(-len(names) // most)] if most and names else names
        footers = self.store.each(partial(self.footer, table), names)
        return {shard: footer.counts for shard, footer in zip(names, footers, strict=True)}

    def rows(self, table: str) -> dict[str, int]:
        """The rows of each shard of a table of a complete artifact, without reading the shards."""
        return {shard: entry.rows for shard, entry in self._entries_of(table).items()}

    def shards(self, table: str) -> list[str]:
        """The published shards of a table: those of the manifest, or all in the folder so far."""
        if self._manifests or self.is_complete():
            return sorted(self._entries_of(table))
        return self.list_published(table)

    def list_published(self, table: str) -> list[str]:
        """The shards or chunks in a folder of the artifact, whether or not in the manifest."""
        names = self.store.names(f"{self.folder}/{table}")
        return [name.removesuffix(".parquet") for name in names if name.endswith(".parquet")]

    def chunks(self, table: str) -> Iterator[tuple[str, str]]:
        """The finished parts of open shards of a table: the folder of each, and its name."""
        for shard in self.store.folders(f"{self.folder}/chunks/{table}"):
            folder = f"chunks/{table}/{shard}"
            yield from ((folder, name) for name in self.list_published(folder))

    def all_published(self) -> dict[str, list[str]]:
        """The result of `list_published` for all folders of the artifact, by one listing."""
        names_by_folder = defaultdict[str, list[str]](list)
        for path in sorted(self.store.sizes(self.folder)):
            folder, _, file = path.rpartition("/")
            if file.endswith(".parquet") and not file.startswith("."):
                names_by_folder[folder].append(file.removesuffix(".parquet"))
        return dict(names_by_folder)

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
        """A published shard, checked as a whole; `columns` and `categories` as in `shard.rows`."""
        place = ShardPlace(table, self.fingerprint, f"{table}/{shard}")
        content, file = self._read_content(place)
        if not self._manifests and not self.is_complete():
            return shards.decode(content, place, file, columns, categories)
        sha256 = hashlib.sha256(content).hexdigest()
        if self._listed_sha256(table, shard) != sha256:
            if self.is_complete() and self._listed_sha256(table, shard) == sha256:
                path = self.store.where(self.folder)
                raise InputError(f"{path} was recomputed while it was read; run again.")
            shards.decode(content, place, file)  # may give a better reason
            raise file.damaged_file_error("is not what the manifest says (SHA-256)")
        rows = shards.rows(content, table, file, columns, categories)
        if rows.height != (n_listed := self._entries_of(table)[shard].rows):
            problem = f"says that {file.where} has {n_listed:,} rows, not {rows.height:,}"
            raise self._stored_file(manifests.NAME).damaged_file_error(problem)
        return rows

    def note(self, file: str, *fields: str) -> dict[str, Any]:
        """The content of a JSON file of the artifact, which must have these fields."""
        return self.store.get_json(f"{self.folder}/{file}", *fields)

    def read_chunk(self, table: str, folder: str, name: str) -> tuple[pl.DataFrame, Counts]:
        """A finished part of an open shard, and its counts."""
        place = ShardPlace(table, self.fingerprint, f"{folder}/{name}")
        content, file = self._read_content(place)
        footer = shards.check(content, place, file)
        return shards.rows(content, table, file, validate=True), footer.counts

    def _stored_file(self, name: str) -> StoredFile:
        name = f"{self.folder}/{name}"
        return StoredFile(self.store.where(name), name)

    def _read_content(self, place: ShardPlace) -> tuple[bytes, StoredFile]:
        file = self._stored_file(f"{place.shard}.parquet")
        try:
            return self.store.get(str(file.name)), file
        except FileNotFoundError as error:
            raise file.damaged_file_error("is gone") from error

    def _listed_sha256(self, table: str, shard: str) -> str | None:
        entry = self._entries_of(table).get(shard)
        return None if entry is None else entry.sha256

    def _entries_of(self, table: str) -> dict[str, Entry]:
        return self.manifest().tables.get(table, {})

    def read_all(self, table: str) -> pl.DataFrame:
        """All shards of a table, in the order of their names."""
        return pl.concat([empty(table), *self.each(table)])

    def each(
        self,
        table: str,
        columns: Sequence[str] | None = None,
        shards: Collection[str] | None = None,
    ) -> Iterator[pl.DataFrame]:
        """Some or all shards of a table, in order; an object store is asked for several at once."""
        names = self.shards(table) if shards is None else list(shards)
        return self.store.in_turn(partial(self.read, table, columns=columns), names)

    def footer(self, table: str, shard: str, folder: str | None = None) -> Footer:
        """The rows and counts of a shard, or of a chunk in a folder, without reading its rows."""
        place = ShardPlace(table, self.fingerprint, f"{folder or table}/{shard}")
        file = self._stored_file(f"{place.shard}.parquet")
        try:
            return shards.footer_of(self.store, place, file)
        except FileNotFoundError as error:
            raise file.damaged_file_error("is gone") from error

    def write(
        self, table: str, shard: str, frame: pl.DataFrame, counts: Counts | None = None
    ) -> pl.DataFrame:
        """Publish a shard with its counts, unless it is published; returns the published rows.

        Each table is listed once.
        """
        if table not in self._listed_shards:
            self._listed_shards[table] = set(self.list_published(table))
        if shard not in self._listed_shards[table]:
            return self.publish(table, shard, frame, counts)
        self._written[table][shard] = None
        return self.read(table, shard)

    def publish(
        self, table: str, shard: str, frame: pl.DataFrame, counts: Counts | None = None
    ) -> pl.DataFrame:
        """Like `write`, but encodes first; use it when the shard is probably new."""
        place = ShardPlace(table, self.fingerprint, f"{table}/{shard}")
        content, footer = shards.pack(frame, place, counts)
        is_ours = self.put_new(f"{place.shard}.parquet", content)
        self._written[table][shard] = _build_entry(content, footer) if is_ours else None
        return frame if is_ours else self.read(table, shard)

    def put(self, name: str, content: bytes) -> None:
        """Publish or replace a file of the artifact."""
        self._change_under_lease(partial(self.store.put, f"{self.folder}/{name}", content))

    def put_new(self, name: str, content: bytes) -> bool:
        """Publish a file of the artifact unless it exists; whether its content is `content`."""
        return self._change_under_lease(
            partial(self.store.put_new, f"{self.folder}/{name}", content)
        )

    def _change_under_lease(self, change: Callable[[], R]) -> R:
        """Check the lease and change the store; returns the result of `change`.

        If the lease was checked seconds ago, an object store is asked for the next check and for
        the change at once: no lease is taken over so soon.
        """
        if self.lease is None:
            return change()
        times = (time.monotonic(), time.time())  # the first stands still while a machine sleeps
        if all(0 <= times[i] - self._lease_checked[i] < _FRESH_S for i in (0, 1)):
            result = self.store.at_once(self.lease.check, change)[1]
        else:
            self.lease.check()
            result = change()
        self._lease_checked[:] = times
        return cast(R, result)

    def put_note(self, file: str, content: Mapping[str, Any]) -> None:
        """Publish or replace a JSON file of the artifact, which `note` reads."""
        self.put(file, to_json(content))

    def drop(self, *names: str) -> None:
        """Remove files of the artifact."""
        paths = [f"{self.folder}/{name}" for name in names]
        # A writer paused since it checked its lease must not remove one file after the other.
        requests = [paths] if paths and self.store.drops_at_once else [[path] for path in paths]
        for request in requests:
            self._change_under_lease(partial(self.store.drop, *request))

    def check_lease(self) -> None:
        """Raise ArtifactHeldError if another driver has taken the artifact over."""
        if self.lease is not None:
            self.lease.check()

    def write_chunk(
        self, table: str, folder: str, name: str, frame: pl.DataFrame, counts: Counts | None = None
    ) -> None:
        """Publish a finished part of an open shard: rows of `table` in a folder of their own."""
        place = ShardPlace(table, self.fingerprint, f"{folder}/{name}")
        self.put(f"{place.shard}.parquet", shards.encode(frame, place, counts))

    def begin(self) -> None:
        """Publish the recipe, so that `why` can explain even an unfinished artifact."""
        self.put_note("recipe.json", json.loads(self.recipe.to_json()))
        self._written.clear()
        self._listed_shards.clear()

    def settle(self, name: str, value: T) -> T:
        """The value that was settled when the artifact was begun; `value`, if it is begun now."""
        file = f"{name}.json"
        self.put_new(file, to_json({name: value}))
        settled = self.note(file, name)[name]
        if not isinstance(settled, type(value)):
            raise self._stored_file(file).damaged_file_error(f"says {name} {settled}")
        return settled

    def finish(
        self,
        tables: Sequence[str],
        counts: Counts | None = None,
        *,
        made_of: Collection["Artifact"] = (),
        expected_shards: Mapping[str, Collection[str]] | None = None,
    ) -> None:
        """Publish the manifest, unless there is one: then the artifact is complete.

        Shards written by this object are listed as written, all others are read. `made_of` are the
        inputs, `expected_shards` the shards of each table (None: those written here).

        Raises:
            DamagedFileError: a shard is damaged, missing, or unexpected.
        """
        self.check_lease()
        expected_by_table: Mapping[str, Collection[str]] = (
            self._written if expected_shards is None else expected_shards
        )
        entries = {
            table: self._collect_entries(table, expected_by_table.get(table)) for table in tables
        }
        inputs = {artifact.folder: artifact.manifest().state for artifact in made_of}
        manifest = Manifest(self.folder, inputs, entries, dict(counts or {}))
        is_ours = self.put_new(manifests.NAME, manifest.to_json())
        self._manifests[:] = [manifest] if is_ours else []

    def _collect_entries(self, table: str, expected: Collection[str] | None) -> dict[str, Entry]:
        """The entries of a table; `expected` None: any shards are fine."""
        published = self.list_published(table)
        for shard in sorted(set(published if expected is None else expected) ^ set(published)):
            problem = "is no shard of this artifact" if shard in published else "is gone"
            raise self._stored_file(f"{table}/{shard}.parquet").damaged_file_error(problem)
        entries = {shard: self._written.get(table, {}).get(shard) for shard in published}
        unread = [shard for shard, entry in entries.items() if entry is None]
        read_entries = self.store.each(partial(self._read_entry, table), unread)
        return cast(dict[str, Entry], {**entries, **dict(zip(unread, read_entries, strict=True))})

    def _read_entry(self, table: str, shard: str) -> Entry:
        place = ShardPlace(table, self.fingerprint, f"{table}/{shard}")
        content, file = self._read_content(place)
        return _build_entry(content, shards.check(content, place, file))


def _build_entry(content: bytes, footer: Footer) -> Entry:
    sha256, counts = hashlib.sha256(content).hexdigest(), dict(footer.counts)
    return Entry(footer.rows, len(content), sha256, counts)
