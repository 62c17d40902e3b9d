"""Files that describe a built data set to others: croissant.json, and the hub's card README.md.

Source: Croissant 1.1 (docs.mlcommons.org/croissant), which mlcroissant reads; the card's head has
the fields of the hub's dataset cards (huggingface.co/docs/hub/datasets-cards).
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any
from urllib.parse import quote

import polars as pl
import yaml

CROISSANT, CARD = "croissant.json", "README.md"
_CONFORMS_TO = "http://mlcommons.org/croissant/1.1"
_TERMS = (
    *("arrayShape", "citeAs", "column", "conformsTo", "containedIn", "equivalentProperty"),
    *("extract", "field", "fileObject", "fileProperty", "fileSet", "format", "includes", "isArray"),
    *("isLiveDataset", "jsonPath", "key", "md5", "parentField", "path", "recordSet", "references"),
    *("regex", "repeated", "replace", "samplingRate", "separator", "source", "subField"),
    "transform",
)
_CONTEXT: Mapping[str, Any] = {
    "@language": "en",
    "@vocab": "https://schema.org/",
    "cr": "http://mlcommons.org/croissant/",
    "dct": "http://purl.org/dc/terms/",
    "rai": "http://mlcommons.org/croissant/RAI/",
    "sc": "https://schema.org/",
    **{term: f"cr:{term}" for term in _TERMS},
    "conformsTo": "dct:conformsTo",
    "data": {"@id": "cr:data", "@type": "@json"},
    "dataType": {"@id": "cr:dataType", "@type": "@vocab"},
    "examples": {"@id": "cr:examples", "@type": "@json"},
    **{term: {"@container": "@language"} for term in ("description", "name")},
}
_FORMATS = {
    ".csv": "text/csv",
    ".json": "application/json",
    ".jsonl": "application/jsonlines",
    ".parquet": "application/x-parquet",
}
# Identifiers of the hub, by how people write them.
_LICENCES = {"cc0": "cc0-1.0", "mit": "mit", "apache-2.0": "apache-2.0", "odc-by": "odc-by"}
_LICENCES |= {
    f"cc-{kind}-{n}": f"cc-{kind}-{n}" for kind in ("by", "by-sa") for n in ("3.0", "4.0")
}
_LICENCES |= {name: name for name in [*_LICENCES.values()]}
UNKNOWN_LICENCE = "not given"
_SIZES = (1_000, 10_000, 100_000, 1_000_000, 10_000_000, 100_000_000)
_UNITS = "KKKMMM"


@dataclass(frozen=True)
class Source:
    """A source of a built set: a file or a data set, its licence, and its revision.

    The revision of a file is its SHA-256.
    """

    name: str
    licence: str
    revision: str


@dataclass(frozen=True)
class Origin:
    """How a set was built: the command without paths, its version and commit, and its sources.

    `hub` is the id under which the set is to be found on the hub, if it is.
    """

    command: str
    version: str
    commit: str | None
    sources: tuple[Source, ...]
    licence: str = UNKNOWN_LICENCE
    language: str = "en"
    hub: str | None = None


@dataclass(frozen=True)
class DataFile:
    """A file of a set by its name in the folder; `schema` is that of a Parquet file."""

    name: str
    n_bytes: int
    sha256: str
    schema: Mapping[str, pl.DataType] | None = None


@dataclass(frozen=True)
class SetCard:
    """A built set as others see it.

    `splits` has for each configuration of the hub its splits, each with the pattern of its files;
    `n_rows` is the number of rows, by which the hub sorts sets; `counts` are shown.
    """

    name: str
    day: str
    counts: Mapping[str, float]
    n_rows: int
    splits: Mapping[str, Mapping[str, str]]
    files: Sequence[DataFile]
    origin: Origin
    note: str = ""

    @property
    def description(self) -> str:
        """One sentence: what it is, and its size."""
        counts = ", ".join(f"{n:,} {name.replace('_', ' ')}" for name, n in self.counts.items())
        return f"Facts to ask language models, made with factsweep {self.origin.version}: {counts}."


def hub_licence(licence: str) -> dict[str, str]:
    """The fields of the hub's card for a licence in words.

    >>> hub_licence("CC0"), hub_licence("not given")
    ({'license': 'cc0-1.0'}, {'license': 'unknown'})
    >>> hub_licence("that of its sources")
    {'license': 'other', 'license_name': 'that-of-its-sources'}
    """
    words = licence.strip().lower().replace(" ", "-")
    if words in ("", UNKNOWN_LICENCE.replace(" ", "-")):
        return {"license": "unknown"}
    if words in _LICENCES:
        return {"license": _LICENCES[words]}
    return {"license": "other", "license_name": re.sub(r"[^a-z0-9.]+", "-", words).strip("-")}


def size_category(n: int) -> str:
    """The hub's category of so many rows.

    >>> [size_category(n) for n in (12, 5_000, 6_492_800, 10**9)]
    ['n<1K', '1K<n<10K', '1M<n<10M', 'n>100M']
    """
    texts = [f"{str(size).rstrip('0') + '0' * (i % 3)}{_UNITS[i]}" for i, size in enumerate(_SIZES)]
    place = sum(n >= size for size in _SIZES)
    if place == 0:
        return f"n<{texts[0]}"
    return f"{texts[place - 1]}<n<{texts[place]}" if place < len(texts) else f"n>{texts[-1]}"


def croissant(card: SetCard) -> str:
    """The Croissant 1.1 file of a set; each Parquet file is a record set with its columns."""
    origin = card.origin
    sources = [f"{source.name} ({source.licence}; {source.revision})" for source in origin.sources]
    content = {
        "@context": _CONTEXT,
        "@type": "sc:Dataset",
        "conformsTo": _CONFORMS_TO,
        "name": card.name,
        "description": card.description,
        "license": origin.licence,
        "inLanguage": origin.language,
        "version": "1.0.0",
        "datePublished": card.day,
        "citeAs": f"{card.name}, built by {_program(origin)}: {origin.command}",
        **({"url": hub_address(origin.hub)} if origin.hub else {}),
        "keywords": ["knowledge probing", "language models", "factsweep"],
        "isBasedOn": sources,
        "distribution": [_file_object(n, file) for n, file in enumerate(card.files)],
        "recordSet": [
            _record_set(n, file) for n, file in enumerate(card.files) if file.schema is not None
        ],
    }
    return json.dumps(content, indent=1, ensure_ascii=False) + "\n"


def hub_address(hub: str) -> str:
    """The address of a data set on the hub."""
    return f"https://huggingface.co/datasets/{hub}"


def _program(origin: Origin) -> str:
    return f"factsweep {origin.version}{f' at commit {origin.commit}' if origin.commit else ''}"


def _file_id(number: int, file: DataFile) -> str:
    """The id of a file: its name if that has no blank, which mlcroissant refuses."""
    return file.name if re.fullmatch(r"[\w./-]+", file.name) else f"file-{number}"


def _file_object(number: int, file: DataFile) -> dict[str, Any]:
    return {
        "@type": "cr:FileObject",
        "@id": _file_id(number, file),
        "name": file.name,
        "contentUrl": quote(file.name),
        "contentSize": f"{file.n_bytes} B",
        "encodingFormat": _FORMATS.get(PurePosixPath(file.name).suffix, "text/plain"),
        "sha256": file.sha256,
    }


def _record_set(number: int, file: DataFile) -> dict[str, Any]:
    assert file.schema is not None, "it is a table"
    table, file_id = str(PurePosixPath(file.name).with_suffix("")), _file_id(number, file)
    fields = [
        {
            "@type": "cr:Field",
            "@id": f"records/{table}/{column}",
            "name": column,
            **_data_type(dtype),
            "source": {"fileObject": {"@id": file_id}, "extract": {"column": column}},
        }
        for column, dtype in file.schema.items()
    ]
    return {"@type": "cr:RecordSet", "@id": f"records/{table}", "name": table, "field": fields}


def _data_type(dtype: pl.DataType) -> dict[str, Any]:
    depth = 0
    while isinstance(dtype, pl.List):
        dtype, depth = dtype.inner, depth + 1  # type: ignore[assignment]
    kinds = ("Boolean", dtype == pl.Boolean), ("Integer", dtype.is_integer())
    floats = ("Float", dtype.is_float()), ("Date", dtype == pl.Date)
    kind = next((name for name, is_kind in (*kinds, *floats) if is_kind), "Text")
    array = {"isArray": True, "arrayShape": ",".join(["-1"] * depth)} if depth else {}
    return {"dataType": f"sc:{kind}", **array}


def hub_card(card: SetCard) -> str:
    """The hub's card: its head in YAML, then its description and its provenance."""
    origin = card.origin
    head = {
        **hub_licence(origin.licence),
        "language": [origin.language],
        "pretty_name": card.name,
        "size_categories": [size_category(card.n_rows)],
        "tags": ["knowledge-probing", "factsweep", "croissant"],
        "configs": [
            {
                "config_name": name,
                "data_files": [{"split": split, "path": path} for split, path in paths.items()],
            }
            for name, paths in card.splits.items()
        ],
    }
    text = yaml.safe_dump(head, sort_keys=False, allow_unicode=True, width=1000)
    return f"---\n{text}---\n\n" + "\n".join(_card_lines(card)) + "\n"


def _card_lines(card: SetCard) -> Iterator[str]:
    origin = card.origin
    yield f"# {card.name}\n\n{card.description}{f' {card.note}' if card.note else ''}\n"
    yield f"Language: {origin.language}. Licence: {origin.licence}."
    if origin.hub:
        yield f"On the hub: [{origin.hub}]({hub_address(origin.hub)})."
    yield "\n## Provenance\n"
    yield f"Built by {_program(origin)} with\n\n```bash\n{origin.command}\n```\n"
    yield "| source | licence | revision |\n|---|---|---|"
    for source in origin.sources:
        cells = (
            cell.replace("|", "\\|") for cell in (source.name, source.licence, source.revision)
        )
        yield f"| {' | '.join(cells)} |"
    yield f"\n`{CROISSANT}` has the SHA-256 of each file, and the columns of each table."
