"""Suffixes of files of rows: how a name says what a file holds, in either case of letters."""

from pathlib import Path

JSON = (".jsonl", ".ndjson", ".json")
TABLES = (".csv", ".tsv", ".txt", *JSON, ".parquet", ".arrow", ".feather", ".ipc")
PACKED = (".gz", ".bz2", ".xz", ".zst")


def kind(path: Path) -> str:
    """The suffix in lower case, before that of a compression.

    >>> kind(Path("facts.CSV.gz")), kind(Path("notes.md"))
    ('.csv', '.md')
    """
    return _unpacked(path).suffix.lower()


def title(path: Path) -> str:
    """The name without the suffixes of a table and its compression.

    >>> title(Path("facts.v2.jsonl.gz")), title(Path("facts[1].CSV"))
    ('facts.v2', 'facts[1]')
    """
    name = _unpacked(path)
    return name.stem if name.suffix.lower() in TABLES else name.name


def is_packed(path: Path) -> bool:
    """Whether the name ends in the suffix of a compression."""
    return path.suffix.lower() in PACKED


def _unpacked(path: Path) -> Path:
    return Path(path.stem if is_packed(path) else path.name)
