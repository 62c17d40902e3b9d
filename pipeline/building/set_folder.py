"""The folder of a new set: there whole or not at all."""

import datetime
import hashlib
import io
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import polars as pl
import yaml

from factsweep.operators.construction.set_card import (
    CARD,
    CROISSANT,
    UNKNOWN_LICENCE,
    DataFile,
    Origin,
    SetCard,
    croissant,
    hub_card,
)
from factsweep.operators.datasets.columns import type_name
from factsweep.operators.datasets.facts import Facts
from factsweep.operators.datasets.readers import READERS
from factsweep.operators.errors import InputError
from factsweep.operators.wording import count
from factsweep.pipeline.inputs import digests

_HEAD = """\
# An entry of the catalog: copy this file to data_catalog/, and the set is known as {name}.
# Where it is moved, change source.id, or give the new place with benchmark.path or --path.
"""


def check_new(out: Path) -> None:
    """Refuse a folder that exists."""
    if out.exists():
        raise InputError(f"--out {out} exists already; name a new folder.")


def describe_omissions(dropped: pl.DataFrame) -> Iterator[str]:
    """The lines of a builder's omissions, one per row of relation_id, unit, reason, count."""
    for relation_id, unit, reason, n in dropped.iter_rows():
        yield f"  {relation_id}: {count(n, unit)} left out, {reason.replace('_', ' ')}"


def publish(out: Path, files: Mapping[str, str | bytes]) -> None:
    """Write the files of a folder, by their names in it, all or none.

    Raises:
        InputError: it cannot be written.
    """
    aside = out.with_name(f".{out.name}.{os.getpid()}")
    try:
        for name, content in encode_files(files).items():
            path = aside / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        aside.rename(out)
    except OSError as error:
        raise InputError(
            f"{out} cannot be written ({error}); make room or choose another."
        ) from error
    finally:
        shutil.rmtree(aside, ignore_errors=True)


def encode_files(files: Mapping[str, str | bytes]) -> dict[str, bytes]:
    """The contents of files as bytes."""
    return {n: data if isinstance(data, bytes) else data.encode() for n, data in files.items()}


def describe_set(
    name: str,
    files: Mapping[str, str | bytes] | Sequence[DataFile],
    origin: Origin | None,
    **fields: Any,
) -> dict[str, str]:
    """The hub's card and the Croissant file of a set, by their names; none without an `origin`.

    `fields` are those of `SetCard`: counts, n_rows, splits, note.
    """
    if origin is None:
        return {}
    if isinstance(files, Mapping):
        files = [_data_file(name, data) for name, data in encode_files(files).items()]
    day = datetime.datetime.now(datetime.UTC).date().isoformat()
    card = SetCard(name=name, day=day, files=files, origin=origin, **fields)
    return {CARD: hub_card(card), CROISSANT: croissant(card)}


def _data_file(name: str, data: bytes) -> DataFile:
    schema = pl.read_parquet_schema(io.BytesIO(data)) if name.endswith(".parquet") else None
    return DataFile(name, len(data), hashlib.sha256(data).hexdigest(), schema)


def entry(
    out: Path,
    data: Mapping[str, str | bytes],
    *,
    pattern: str,
    reader: str,
    schema: pl.Schema,
    counts: Mapping[str, float],
    relations: Mapping[str, str],
    origin: Origin | None = None,
    builder: str | None = None,
    is_beside: bool = False,
) -> str:
    """The catalog entry of a new set (docs/data.md), whose data files are those of `data`.

    The `builder` has the reader's name unless given. An entry that `is_beside` its folder has a
    relative path, so that both can be moved. Its `origin` has its licence, and its id on the hub.
    """
    place = out.name if is_beside else str(out.absolute())
    fields: dict[str, Any] = {
        "name": out.name,
        "description": f"made with `factsweep build {builder or reader}`",
        "source": {"kind": "catalog", "id": place, "files": pattern},
        "revision": "1",
        "licence": origin.licence if origin else UNKNOWN_LICENCE,
        "reader": reader,
        "columns": {name: type_name(dtype) for name, dtype in schema.items()},
        "counts": dict(counts),
        "checksum": digests.digest_contents(encode_files(data)),
        "relations": dict(relations),
        **({"hub": origin.hub} if origin and origin.hub else {}),
    }
    head = "" if is_beside else _HEAD.format(name=out.name)
    return head + yaml.safe_dump(fields, sort_keys=False, allow_unicode=True, width=1000)


def entry_of_rows(
    out: Path, data: Mapping[str, bytes], rows: pl.DataFrame, facts: Facts, **options: Any
) -> str:
    """The catalog entry of a set that is one file of rows of MyriadLAMA's format."""
    reader = READERS["myriadlama"]
    return entry(
        out,
        data,
        pattern=next(iter(data)),
        reader="myriadlama",
        schema=rows.schema,
        counts=reader.figures(rows.lazy(), facts),
        relations=facts.labels,
        **options,
    )


def fields_of_rows(facts: Facts, data: Mapping[str, bytes], n_rows: int) -> dict[str, Any]:
    """The fields of `describe_set` of a set that is one file of rows of MyriadLAMA's format."""
    counts = {
        "relations": facts.relations.height,
        "templates": facts.templates.height,
        "facts": facts.pairs.height,
    }
    splits = {"default": {"test": next(iter(data))}}
    return {"counts": counts, "n_rows": n_rows, "splits": splits}
