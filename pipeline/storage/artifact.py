"""Artifacts: a folder of shards named after what determines their content.

<store>/<stage>/<fingerprint>/recipe.json            what the fingerprint is made of
                             /<table>/<shard>.parquet
                             /chunks/<table>/<shard>/….parquet   finished parts of an open shard
                             /manifest.json          the last file: all shards, rows, checksums
                             /damaged/               what was set aside

Whatever is read is checked first: a shard against the manifest, or, where there is none yet,
against the checksum in its footer; JSON against its own.
"""

import hashlib
import json
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeVar
from uuid import uuid4

import polars as pl

from operators.errors import DamagedFileError, InputError
from operators.redact import holds_secret
from operators.schemas import empty
from pipeline.config.typed import build
from pipeline.storage import manifest as manifests
from pipeline.storage import shard as shards
from pipeline.storage.lease import Lease
from pipeline.storage.manifest import Entry, Manifest
from pipeline.storage.sealed import REPAIR, seal, unseal
from pipeline.storage.shard import Counts, Footer, Place
from pipeline.storage.store import Store

T = TypeVar("T", int, str)
_NOTES = ("recipe.json", "cost.json", manifests.NAME)


@dataclass(frozen=True)
class Recipe:
    """Everything that determines an artifact's content.

    `version` is the stage's schema version: it rises when the stage computes something else from
    the same fields. `inputs` are the fingerprints of the artifacts it reads.
    """

    stage: str
    version: int
    fields: Mapping[str, Any]
    inputs: Mapping[str, str] = field(default_factory=dict)

    @cached_property
    def fingerprint(self) -> str:
        """16 hex digits of the SHA-256 of the recipe.

        Raises:
            InputError: the recipe holds a secret.
        """
        return hashlib.sha256(self.to_json().encode()).hexdigest()[:16]

    def to_json(self) -> str:
        """The recipe word for word, with sorted keys: the same text for the same content.

        A recipe is published, and a name is made of it, by which a short secret could be guessed:
        so none may stand in it.

        Raises:
            InputError: one does.
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


@dataclass(frozen=True)
class Artifact:
    """The output of a stage in a store. Nothing in it is ever changed, only added.

    What is published is published under `lease`, which says whether it is still ours to write; null
    where there can be no other writer.
    `name` is that of its folder where its recipe is lost; null: the fingerprint of the recipe.
    A manifest is read once by each object; one that travels to another process reads it again.
    """

    store: Store
    recipe: Recipe
    lease: Lease | None = field(default=None, compare=False)
    name: str | None = None
    _manifests: list[Manifest] = field(default_factory=list, init=False, compare=False, repr=False)
    _written: dict[str, set[str]] = field(
        default_factory=lambda: defaultdict(set), init=False, compare=False, repr=False
    )

    def __reduce__(self) -> tuple[type["Artifact"], tuple[Any, ...]]:
        """What travels to another process: nothing that was read."""
        return Artifact, (self.store, self.recipe, self.lease, self.name)

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
        self._manifests.clear()
        name = f"{self.folder}/{manifests.NAME}"
        try:
            content = self.store.get(name)
        except FileNotFoundError:
            return False
        self._manifests.append(manifests.parsed(content, self.folder, self.store.where(name)))
        return True

    @property
    def was_complete(self) -> bool:
        """Whether it was complete when it was last looked at."""
        return bool(self._manifests)

    def is_open(self) -> bool:
        """Whether it was begun and is not complete."""
        return not self.is_complete() and self.store.exists(f"{self.folder}/recipe.json")

    def manifest(self) -> Manifest:
        """All shards of a complete artifact, with rows, sizes, checksums and counts.

        Raises:
            DamagedFileError: it is not complete, or its manifest is damaged.
        """
        if not self._manifests and not self.is_complete():
            name = f"{self.folder}/{manifests.NAME}"
            raise DamagedFileError(f"{self.store.where(name)} is gone{REPAIR}", name)
        return self._manifests[0]

    def counts(self, table: str) -> dict[str, Counts]:
        """The counts of each published shard of a table, without reading the shards."""
        if self.is_complete():
            return {shard: each.counts for shard, each in self._entries(table).items()}
        return {shard: self.footer(table, shard).counts for shard in self.shards(table)}

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

    def has(self, table: str, shard: str) -> bool:
        """Whether a shard is published."""
        return self.store.exists(f"{self.folder}/{table}/{shard}.parquet")

    def write(
        self, table: str, shard: str, frame: pl.DataFrame, counts: Counts | None = None
    ) -> None:
        """Publish a shard, or read the one that is published; `counts` are kept in its footer.

        Raises:
            ArtifactHeldError: another driver has taken the artifact over.
            DamagedFileError: what is published is not whole.
        """
        place = Place(table, self.fingerprint, f"{table}/{shard}")
        content = None if self.has(table, shard) else shards.encode(frame, place, counts)
        if content is None or not self.put_new(f"{place.shard}.parquet", content):
            self.read(table, shard)
        self._written[table].add(shard)

    def put(self, name: str, content: bytes) -> None:
        """Publish a file of the artifact, or replace it, if it is ours to write.

        Raises:
            ArtifactHeldError: another driver has taken the artifact over.
        """
        self._check()
        self.store.put(f"{self.folder}/{name}", content)

    def put_new(self, name: str, content: bytes) -> bool:
        """Publish a file of the artifact unless it is there; whether it now is `content`.

        Raises:
            ArtifactHeldError: another driver has taken the artifact over.
        """
        self._check()
        return self.store.put_new(f"{self.folder}/{name}", content)

    def drop(self, name: str) -> None:
        """Remove a file of the artifact that is no longer needed.

        Raises:
            ArtifactHeldError: another driver has taken the artifact over.
        """
        self._check()
        self.store.drop(f"{self.folder}/{name}")

    def _check(self) -> None:
        if self.lease is not None:
            self.lease.check()

    def write_chunk(
        self,
        table: str,
        folder: str,
        name: str,
        frame: pl.DataFrame,
        counts: Counts | None = None,
    ) -> None:
        """Publish a finished part of an open shard: rows of `table` in a folder of their own."""
        place = Place(table, self.fingerprint, f"{folder}/{name}")
        self.put(f"{place.shard}.parquet", shards.encode(frame, place, counts))

    def read(self, table: str, shard: str) -> pl.DataFrame:
        """A published shard.

        Raises:
            DamagedFileError: it is gone, truncated, foreign, edited, or no file.
        """
        place = Place(table, self.fingerprint, f"{table}/{shard}")
        content, name, where = self._content(place)
        if not self._manifests and not self.is_complete():
            return shards.decode(content, place, where, name)
        if not self._is_listed(content, table, shard):
            shards.decode(content, place, where, name)  # may know better what is wrong with it
            raise DamagedFileError(f"{where} is not what the manifest says (SHA-256){REPAIR}", name)
        return shards.rows(content, table, where, name)

    def read_chunk(self, table: str, folder: str, name: str) -> pl.DataFrame:
        """A finished part of an open shard.

        Raises:
            DamagedFileError: it is gone, truncated, foreign, edited, or no file.
        """
        place = Place(table, self.fingerprint, f"{folder}/{name}")
        content, file, where = self._content(place)
        return shards.decode(content, place, where, file)

    def _content(self, place: Place) -> tuple[bytes, str, str]:
        """The content of a shard's file, its name in the store, and what messages call it."""
        name = f"{self.folder}/{place.shard}.parquet"
        where = self.store.where(name)
        try:
            return self.store.get(name), name, where
        except FileNotFoundError as error:
            raise DamagedFileError(f"{where} is gone{REPAIR}", name) from error

    def _is_listed(self, content: bytes, table: str, shard: str) -> bool:
        """Whether a shard's file is the one that the manifest lists."""
        found = hashlib.sha256(content).hexdigest()
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

    def _is_entry(self, sha256: str, table: str, shard: str) -> bool:
        entry = self._entries(table).get(shard)
        return entry is not None and entry.sha256 == sha256

    def _entries(self, table: str) -> dict[str, Entry]:
        return self.manifest().tables.get(table, {})

    def read_all(self, table: str) -> pl.DataFrame:
        """All shards of a table, in the order of their names."""
        return pl.concat([empty(table), *self.each(table)])

    def each(self, table: str) -> Iterator[pl.DataFrame]:
        """The shards of a table, one after the other."""
        return (self.read(table, shard) for shard in self.shards(table))

    def footer(self, table: str, shard: str, folder: str | None = None) -> Footer:
        """The rows of a shard and its counts, or of a chunk in a folder; reads no more of it.

        Raises:
            DamagedFileError: it is gone, truncated, foreign, or no file.
        """
        place = Place(table, self.fingerprint, f"{folder or table}/{shard}")
        name = f"{self.folder}/{place.shard}.parquet"
        where = self.store.where(name)
        try:
            with self.store.open(name) as file:
                return shards.read_footer(file, place, where, name)
        except FileNotFoundError as error:
            raise DamagedFileError(f"{where} is gone{REPAIR}", name) from error

    def begin(self) -> None:
        """Publish the recipe, so that `why` can explain even an unfinished artifact."""
        name = f"{self.folder}/recipe.json"
        self.put("recipe.json", seal(json.loads(self.recipe.to_json()), name))
        self._written.clear()

    def settled(self, name: str, value: T) -> T:
        """The value that was settled when the artifact was begun: `value`, if it is begun now.

        Raises:
            DamagedFileError: it was settled, and cannot be read.
        """
        path = f"{self.folder}/{name}.json"
        self.put_new(f"{name}.json", seal({name: value}, path))
        return type(value)(unseal(self.store.get(path), path, self.store.where(path))[name])

    def finish(
        self,
        tables: Sequence[str],
        counts: Counts | None = None,
        *,
        made_of: Collection["Artifact"] = (),
        of: Mapping[str, Collection[str]] | None = None,
    ) -> None:
        """Publish the manifest, unless there is one: from now on the artifact is complete.

        `made_of` are the artifacts that were read. `of` names the shards that a table must have;
        null: those that were written here.

        Raises:
            DamagedFileError: a shard is damaged, missing, or one too many.
        """
        self._check()
        wanted = self._written if of is None else of
        entries = {table: self._listed(table, wanted.get(table)) for table in tables}
        pins = {each.folder: each.manifest().pin for each in made_of}
        found = Manifest(self.folder, uuid4().hex, pins, entries, dict(counts or {}))
        self._manifests[:] = [found] if self.put_new(manifests.NAME, found.to_json()) else []

    def _listed(self, table: str, wanted: Collection[str] | None) -> dict[str, Entry]:
        """The entries of a table, each of whose shards is read; `wanted` null: any may be there."""
        found = self.published(table)
        wanted = found if wanted is None else wanted
        for shard in sorted(set(wanted).symmetric_difference(found)):
            name = f"{self.folder}/{table}/{shard}.parquet"
            what = "is gone" if shard in wanted else "is no shard of this artifact"
            raise DamagedFileError(f"{self.store.where(name)} {what}{REPAIR}", name)
        return {shard: self._entry(table, shard) for shard in found}

    def _entry(self, table: str, shard: str) -> Entry:
        place = Place(table, self.fingerprint, f"{table}/{shard}")
        content, name, where = self._content(place)
        footer = shards.check(content, place, where, name)
        sha256 = hashlib.sha256(content).hexdigest()
        return Entry(footer.rows, len(content), sha256, footer.content, dict(footer.counts))

    def set_aside(self, name: str) -> str:
        """Move a damaged file out of the way, so that only it is recomputed; returns where to.

        With a shard goes the manifest: the artifact is not complete any more. With a value that
        was settled go all shards that were made by it.
        """
        self._check()
        file = name.removeprefix(f"{self.folder}/")
        if file.endswith(".json") and "/" not in file and file not in _NOTES:
            self._set_shards_aside()
        aside = self.store.set_aside(name)
        if name.endswith(".parquet") and not self._is_foreign(name):
            self.store.set_aside(f"{self.folder}/{manifests.NAME}")
        self._manifests.clear()
        return aside

    def _is_foreign(self, name: str) -> bool:
        """Whether the artifact was complete without a file."""
        table, _, file = name.removeprefix(f"{self.folder}/").rpartition("/")
        return self.was_complete and file.removesuffix(".parquet") not in self._entries(table)

    def set_all_aside(self) -> str:
        """Move all shards and chunks out of the way, then the manifest; returns where that is."""
        self._check()
        self._set_shards_aside()
        return self.set_aside(f"{self.folder}/{manifests.NAME}")

    def _set_shards_aside(self) -> None:
        for folder in self.store.folders(self.folder):
            if folder != "leases":
                self.store.set_aside(f"{self.folder}/{folder}")


def numbers(counts: Counts) -> dict[str, float]:
    """The counts that add up over shards; the others are names.

    >>> numbers({"prompts": 8, "seconds": 1.5, "model": "gpt2"})
    {'prompts': 8, 'seconds': 1.5}
    """
    return {name: value for name, value in counts.items() if not isinstance(value, str)}


def opened(store: Store, folder: str) -> Artifact:
    """The artifact in a folder of the store.

    Raises:
        InputError: there is none.
        DamagedFileError: its recipe is not what was written.
    """
    try:
        return Artifact(store, recipe(store, folder))
    except FileNotFoundError as error:
        raise InputError(
            f"{store.where(folder)} is gone; run again to recompute what is missing."
        ) from error


def recipe(store: Store, folder: str) -> Recipe:
    """The recipe of the artifact in a folder, which is named after it.

    Raises:
        FileNotFoundError: there is none.
        DamagedFileError: it is not what was written for this artifact.
    """
    name = f"{folder}/recipe.json"
    content = unseal(store.get(name), name, store.where(name))
    try:
        found = build(Recipe, content, "")
    except InputError as error:
        raise DamagedFileError(f"{store.where(name)} is no recipe{REPAIR}", name) from error
    if f"{found.stage}/{found.fingerprint}" != folder:
        raise DamagedFileError(f"{store.where(name)} is not what its name says{REPAIR}", name)
    return found


def find(store: Store, prefix: str) -> tuple[str, dict[str, Any]]:
    """The folder and the recipe of the one artifact whose fingerprint starts with `prefix`.

    Raises:
        InputError: none or several do.
        DamagedFileError: its recipe is not what was written.
    """
    prefix = prefix.rstrip("/").rpartition("/")[2]
    found = [folder for folder in folders(store) if folder.partition("/")[2].startswith(prefix)]
    if len(found) != 1:
        raise InputError(
            f"{len(found)} artifacts in {store.where()} start with {prefix!r}; "
            "`factsweep status` lists the fingerprints of a run."
        )
    try:
        return found[0], json.loads(recipe(store, found[0]).to_json())
    except FileNotFoundError as error:
        raise InputError(f"{store.where(found[0])} has no recipe.json; run again.") from error


def folders(store: Store) -> Iterator[str]:
    """The folders of all artifacts in a store."""
    for stage in store.folders(""):
        yield from (f"{stage}/{name}" for name in store.folders(stage))


def differences(left: Mapping[str, Any], right: Mapping[str, Any], path: str = "") -> Iterator[str]:
    """The fields in which two recipes differ, one line each."""
    for name in sorted({*left, *right}):
        here = f"{path}.{name}" if path else name
        a, b = left.get(name), right.get(name)
        if isinstance(a, Mapping) and isinstance(b, Mapping):
            yield from differences(a, b, here)
        elif a != b:
            yield f"{here}: {json.dumps(a)} → {json.dumps(b)}"
