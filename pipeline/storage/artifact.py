"""Artifacts: a folder of shards named after what determines their content.

<store>/<stage>/<fingerprint>/recipe.json            what the fingerprint is made of
                             /<table>/<shard>.parquet
                             /chunks/<table>/<shard>/….parquet   finished parts of an open shard
                             /manifest.json          the last file: all shards, rows, checksums
"""

import hashlib
import io
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, cast

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from operators.errors import DamagedFileError, InputError
from operators.redact import holds_secret
from operators.schemas import SCHEMAS, conform, empty
from pipeline.storage.lease import Lease
from pipeline.storage.store import Store

Counts = Mapping[str, int | float | str]


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
    """

    store: Store
    recipe: Recipe
    lease: Lease | None = field(default=None, compare=False)

    @property
    def stage(self) -> str:
        """The stage that makes it."""
        return self.recipe.stage

    @property
    def fingerprint(self) -> str:
        """Its name: 16 hex digits."""
        return self.recipe.fingerprint

    @property
    def folder(self) -> str:
        """Its folder in the store."""
        return f"{self.stage}/{self.fingerprint}"

    def is_complete(self) -> bool:
        """Whether the manifest exists, and with it every shard."""
        return self.store.exists(f"{self.folder}/manifest.json")

    def is_open(self) -> bool:
        """Whether it was begun and is not complete."""
        return self.store.exists(f"{self.folder}/recipe.json") and not self.is_complete()

    def manifest(self) -> dict[str, Any]:
        """`tables`: table → shard → rows, bytes, sha256; `counts`: the stage's report."""
        content = self.store.get(f"{self.folder}/manifest.json")
        return cast(dict[str, Any], json.loads(content))

    def counts(self, table: str) -> dict[str, Counts]:
        """The counts of each published shard of a table, without reading the shards."""
        if self.is_complete():
            shards = self.manifest()["tables"].get(table, {})
            return {shard: entry["counts"] for shard, entry in shards.items()}
        return {shard: self.footer(table, shard)[1] for shard in self.shards(table)}

    def rows(self, table: str) -> dict[str, int]:
        """The rows of each shard of a table of a complete artifact, without reading the shards."""
        shards = self.manifest()["tables"].get(table, {})
        return {shard: int(entry["rows"]) for shard, entry in shards.items()}

    def shards(self, table: str) -> list[str]:
        """The published shards of a table."""
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
        if not self.has(table, shard):
            content = encode(frame, table, self.fingerprint, counts or {})
            if self.put_new(f"{table}/{shard}.parquet", content):
                return
        self.read(table, shard)

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

    def read(self, table: str, shard: str) -> pl.DataFrame:
        """A published shard.

        Raises:
            DamagedFileError: it is truncated, foreign or does not hold what its footer says.
        """
        return self._read(f"{self.folder}/{table}/{shard}.parquet", table)

    def _read(self, name: str, table: str) -> pl.DataFrame:
        where = self.store.where(name)
        try:
            return decode(self.store.get(name), table, self.fingerprint, where)
        except DamagedFileError as error:
            raise DamagedFileError(str(error), name) from error

    def set_aside(self, name: str) -> str:
        """Move a damaged shard out of the way, so that only it is recomputed; returns where to.

        The manifest goes with it: the artifact is not complete any more.
        """
        self._check()
        aside = self.store.set_aside(name) if self.store.exists(name) else name
        if self.is_complete():
            self.store.set_aside(f"{self.folder}/manifest.json")
        return aside

    def read_all(self, table: str) -> pl.DataFrame:
        """All shards of a table, in the order of their names."""
        return pl.concat([empty(table), *self.each(table)])

    def each(self, table: str) -> Iterator[pl.DataFrame]:
        """The shards of a table, one after the other."""
        return (self.read(table, shard) for shard in self.shards(table))

    def write_chunk(
        self,
        table: str,
        folder: str,
        name: str,
        frame: pl.DataFrame,
        counts: Counts | None = None,
    ) -> None:
        """Publish a finished part of an open shard: rows of `table` in a folder of their own."""
        content = encode(frame, table, self.fingerprint, counts or {})
        self.put(f"{folder}/{name}.parquet", content)

    def read_chunk(self, table: str, folder: str, name: str) -> pl.DataFrame:
        """A finished part of an open shard."""
        return self._read(f"{self.folder}/{folder}/{name}.parquet", table)

    def footer(self, table: str, shard: str) -> tuple[int, Counts]:
        """The rows of a shard or chunk and its counts, without reading the rest of it."""
        name = f"{self.folder}/{table}/{shard}.parquet"
        try:
            with self.store.open(name) as file:
                found = pq.read_metadata(file)
        except pa.ArrowException as error:
            raise DamagedFileError(
                f"{self.store.where(name)} is not a whole Parquet file ({error}); set it aside and "
                "run again: only this shard is recomputed.",
                name,
            ) from error
        return found.num_rows, _counts(found.metadata)

    def begin(self) -> None:
        """Publish the recipe, so that `why` can explain even an unfinished artifact."""
        self.put("recipe.json", self.recipe.to_json().encode())

    def settled(self, name: str, value: int) -> int:
        """The value that was settled when the artifact was begun: `value`, if it is begun now."""
        self.put_new(f"{name}.json", json.dumps(value).encode())
        return int(json.loads(self.store.get(f"{self.folder}/{name}.json")))

    def finish(self, tables: Sequence[str], counts: Counts | None = None) -> None:
        """Publish the manifest, unless there is one: from now on the artifact is complete."""
        entries = {
            table: {s: self._entry(table, s) for s in self.shards(table)} for table in tables
        }
        content = {"tables": entries, "counts": counts or {}}
        text = json.dumps(content, indent=1, sort_keys=True)
        self.put_new("manifest.json", text.encode())

    def _entry(self, table: str, shard: str) -> dict[str, Any]:
        content = self.store.get(f"{self.folder}/{table}/{shard}.parquet")
        footer = pq.read_metadata(io.BytesIO(content))
        return {
            "rows": footer.num_rows,
            "bytes": len(content),
            "sha256": hashlib.sha256(content).hexdigest(),
            "counts": _counts(footer.metadata),
        }


def encode(frame: pl.DataFrame, table: str, fingerprint: str, counts: Counts) -> bytes:
    """A shard as Parquet: the canonical schema, page checksums, and what it is in the footer."""
    arrow = conform(frame, table)
    footer = {
        "factsweep.table": table,
        "factsweep.fingerprint": fingerprint,
        "factsweep.rows": str(arrow.num_rows),
        "factsweep.counts": json.dumps(counts),
    }
    sink = io.BytesIO()
    pq.write_table(
        arrow.replace_schema_metadata(footer),
        sink,
        compression="zstd",
        write_page_checksum=True,
    )
    return sink.getvalue()


def decode(content: bytes, table: str, fingerprint: str, where: str) -> pl.DataFrame:
    """The frame of a shard's Parquet, if it is whole and is what it should be.

    Raises:
        DamagedFileError: it is not; the message names the file and the fix.
    """
    fix = "set it aside and run again: only this shard is recomputed"
    try:
        file = pq.ParquetFile(io.BytesIO(content), page_checksum_verification=True)
        arrow = file.read()
        arrow.validate(full=True)  # where a bit is flipped, text may be none
        footer = {k.decode(): v.decode() for k, v in (arrow.schema.metadata or {}).items()}
    except (pa.ArrowException, ValueError, OSError) as error:
        raise DamagedFileError(f"{where} is not a whole Parquet file ({error}); {fix}.") from error
    expected = {"factsweep.table": table, "factsweep.fingerprint": fingerprint}
    for name, value in {**expected, "factsweep.rows": str(arrow.num_rows)}.items():
        found = footer.get(name, "nothing")
        if found != value:
            raise DamagedFileError(
                f"{where} belongs elsewhere: its footer says {name} {found}, not {value}; {fix}."
            )
    if not arrow.schema.equals(SCHEMAS[table]):
        raise DamagedFileError(f"{where} has another schema than table {table}; {fix}.")
    frame = pl.from_arrow(arrow)
    assert isinstance(frame, pl.DataFrame)
    return frame


def _counts(metadata: Mapping[bytes, bytes] | None) -> Counts:
    """The counts that were kept in a shard's footer."""
    return cast(Counts, json.loads((metadata or {}).get(b"factsweep.counts", b"{}")))


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
    """
    try:
        content = json.loads(store.get(f"{folder}/recipe.json"))
    except FileNotFoundError as error:
        raise InputError(
            f"{store.where(folder)} is gone; run again to recompute what is missing."
        ) from error
    return Artifact(store, Recipe(**content))


def find(store: Store, prefix: str) -> tuple[str, dict[str, Any]]:
    """The folder and the recipe of the one artifact whose fingerprint starts with `prefix`.

    Raises:
        InputError: none or several do.
    """
    prefix = prefix.rstrip("/").rpartition("/")[2]
    found = [
        f"{stage}/{name}"
        for stage in store.folders("")
        for name in store.folders(stage)
        if name.startswith(prefix)
    ]
    if len(found) != 1:
        raise InputError(
            f"{len(found)} artifacts in {store.where()} start with {prefix!r}; "
            "`factsweep status` lists the fingerprints of a run."
        )
    return found[0], json.loads(store.get(f"{found[0]}/recipe.json"))


def counts_in(store: Store, stage: str) -> Iterator[Counts]:
    """The counts of every shard of a stage, whichever artifact it is of."""
    for name in store.folders(stage):
        folder = f"{stage}/{name}"
        if store.exists(f"{folder}/manifest.json"):
            manifest = json.loads(store.get(f"{folder}/manifest.json"))
            yield from (
                entry.get("counts", {}) for entry in manifest["tables"].get(stage, {}).values()
            )
        else:
            for shard in store.names(f"{folder}/{stage}"):
                with store.open(f"{folder}/{stage}/{shard}") as file:
                    yield _counts(pq.read_metadata(file).metadata)


def differences(left: Mapping[str, Any], right: Mapping[str, Any], path: str = "") -> Iterator[str]:
    """The fields in which two recipes differ, one line each."""
    for name in sorted({*left, *right}):
        here = f"{path}.{name}" if path else name
        a, b = left.get(name), right.get(name)
        if isinstance(a, Mapping) and isinstance(b, Mapping):
            yield from differences(a, b, here)
        elif a != b:
            yield f"{here}: {json.dumps(a)} → {json.dumps(b)}"
