"""Ways to harm a finished store, and what a run's numbers are made of."""

import json
import os
import random
import shutil
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import polars as pl
import pyarrow.parquet as pq
import pytest

from factsweep.pipeline.storage.shard import ShardPlace, encode

Harm = Callable[[Path], None]


def edited(rows: pl.DataFrame) -> pl.DataFrame:
    """The rows with one value changed: a number, or else a text; none if there are no rows."""
    kinds = [*zip(rows.columns, rows.dtypes, strict=True)]
    for name in (name for name, kind in kinds if kind.is_float() and rows[name].count()):
        return rows.with_columns(pl.col(name) * 2 + 1)
    for name in (name for name, kind in kinds if kind == pl.String and rows[name].count()):
        last = pl.int_range(pl.len()) == pl.len() - 1
        return rows.with_columns(pl.when(last).then(pl.col(name) + "x").otherwise(name))
    return rows


def edit_under_the_footer(path: Path) -> None:
    """Change a value, and keep the footer that the file had."""
    footer = pq.read_metadata(path).metadata
    table = pq.read_table(path)
    changed = edited(pl.read_parquet(path)).to_arrow().cast(table.schema)
    pq.write_table(changed.replace_schema_metadata(footer), path, compression="zstd")


def edit_with_a_new_footer(path: Path) -> None:
    """Change a value, and write the shard as factsweep would."""
    footer = json.loads(pq.read_metadata(path).metadata[b"factsweep"])
    place = ShardPlace(footer["table"], footer["fingerprint"], footer["shard"])
    path.write_bytes(encode(edited(pl.read_parquet(path)), place, footer["counts"]))


def more_rows_in_the_manifest(path: Path) -> None:
    """Have the manifest say that a shard has rows that it has not."""
    change_entry(path, {"rows": pq.read_metadata(path).num_rows + 1_000})


def change_entry(path: Path, change: dict[str, object]) -> None:
    """Change what the manifest says of a shard."""
    manifest = path.parent.parent / "manifest.json"
    content = json.loads(manifest.read_bytes())
    content["tables"][path.parent.name][path.stem] |= change
    manifest.write_text(json.dumps(content))


def age(path: Path) -> None:
    """A manifest as an earlier version wrote it: with checksums of much more, its own, too."""
    content = json.loads(path.read_bytes())
    for entry in (entry for shards in content["tables"].values() for entry in shards.values()):
        entry |= {"content": "c", "values": "v"}
    content["inputs"] = {
        folder: {"digest": "d", "made": f"uuid of {folder}", "contents": {}, "values": "v"}
        for folder in content["inputs"]
    }
    content["made"] = f"uuid of {content['artifact']}"
    path.write_text(json.dumps(content | {"file": "/".join(path.parts[-3:]), "sha256": "s"}))


def pack_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    """Write Parquet of other bytes from now on, as another version of pyarrow does."""
    monkeypatch.setattr(pq, "ParquetWriter", partial(pq.ParquetWriter, use_dictionary=False))


def become_a_folder(path: Path) -> None:
    """A folder of the file's name, with a file in it."""
    path.unlink()
    path.mkdir()
    (path / "file").write_text("x")


def become_a_link(path: Path, target: str) -> None:
    """A link in place of the file."""
    path.unlink()
    path.symlink_to(target)


def leave_the_store(path: Path) -> None:
    """A link to the same content outside of the store."""
    outside = Path.cwd() / f"outside-{path.name}"
    shutil.move(path, outside)
    path.symlink_to(outside)


def flip(path: Path, place: float = 0.5) -> None:
    """Another bit at a place between 0 and 1."""
    content = bytearray(path.read_bytes())
    if content:
        content[int(place * (len(content) - 1))] ^= 4
    path.write_bytes(bytes(content))


def another_schema(path: Path) -> None:
    """A column more than the table has today, as another version might have written it."""
    table = pq.read_table(path)
    metadata = pq.read_metadata(path).metadata
    wider = table.append_column("more", table.column(0))
    pq.write_table(wider.replace_schema_metadata(metadata), path)


ANY: dict[str, Harm] = {
    "cut": lambda path: path.write_bytes(path.read_bytes()[: path.stat().st_size // 2]) and None,
    "empty": lambda path: path.write_bytes(b"") and None,
    "flipped": flip,
    "gone": Path.unlink,
    "folder": become_a_folder,
    "dangling link": lambda path: become_a_link(path, "/nowhere/at/all"),
    "link out": leave_the_store,
}
SHARDS: dict[str, Harm] = {
    **ANY,
    "foreign": lambda path: pl.DataFrame({"a": [1]}).write_parquet(path),
    "edited": edit_under_the_footer,
    "edited, new footer": edit_with_a_new_footer,
    "another schema": another_schema,
}
JSON: dict[str, Harm] = {
    **{name: harm for name, harm in ANY.items() if name != "flipped"},
    "text": lambda path: path.write_text("no JSON") and None,
    "list": lambda path: path.write_text("[1, 2]") and None,
    "number": lambda path: path.write_text("3") and None,
    "null": lambda path: path.write_text("null") and None,
    "other fields": lambda path: path.write_text('{"tables": 1}') and None,
}


def files(folder: Path) -> list[Path]:
    """Every file below a folder but what was set aside."""
    content = (path for path in sorted(folder.rglob("*")) if path.is_file())
    return [path for path in content if "damaged" not in path.parts]


def mutated(folder: Path, seed: int) -> str:
    """Harm one file of a store, chosen by the seed; says how."""
    draw = random.Random(seed)
    every = files(folder)
    path = draw.choice(every)
    stat = path.stat()
    ways = dict(_ways(path, every, draw))
    name = draw.choice(sorted(ways))
    ways[name](path)
    if path.is_file() and draw.random() < 0.5:
        os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))
        name += ", mtime set back"
    return f"{path.relative_to(folder)}: {name}"


def _ways(path: Path, every: list[Path], draw: random.Random) -> Iterator[tuple[str, Harm]]:
    other, place = draw.choice(every), draw.random()
    alike = draw.choice([candidate for candidate in every if candidate.suffix == path.suffix])
    is_json = path.suffix == ".json"
    yield from (JSON if is_json else ANY | {"flipped": lambda path: flip(path, place)}).items()
    yield f"as {other}", lambda path: path.write_bytes(other.read_bytes()) and None
    yield f"as {alike}", lambda path: path.write_bytes(alike.read_bytes()) and None
    yield f"swapped with {alike}", lambda path: _swap(path, alike)
    yield "twice", lambda path: shutil.copy(path, path.with_name(f"more-{path.name}")) and None
    if path.suffix == ".parquet" and path.parent.parent.parent.parent.name == "artifacts":
        yield from SHARDS.items()


def _swap(path: Path, other: Path) -> None:
    ours, theirs = path.read_bytes(), other.read_bytes()
    path.write_bytes(theirs)
    other.write_bytes(ours)
