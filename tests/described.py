"""What others read of a built data set: its Croissant file, by mlcroissant, and its hub card."""

import hashlib
import json
import warnings
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import mlcroissant
import polars as pl
import yaml


def check_described(folder: Path, croissant: str = "croissant.json") -> dict[str, Any]:
    """Check both files of a set in a folder; returns the head of the card."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of rdflib, about mlcroissant
        return _check(folder, croissant)


def _check(folder: Path, croissant: str) -> dict[str, Any]:
    jsonld, card = folder / croissant, folder / croissant.replace("croissant.json", "README.md")
    for path in (jsonld, card):
        assert str(folder.parent) not in path.read_text()  # no place of its builder's
    dataset = mlcroissant.Dataset(jsonld=str(jsonld))
    issues = dataset.metadata.ctx.issues
    assert not issues.errors | issues.warnings
    assert str(dataset.metadata.ctx.conforms_to.value).endswith("/1.1")
    files = json.loads(jsonld.read_text())["distribution"]
    for file in files:
        assert (
            hashlib.sha256((folder / unquote(file["contentUrl"])).read_bytes()).hexdigest()
            == file["sha256"]
        )
    for record_set in dataset.metadata.record_sets:
        table = pl.read_parquet(folder / f"{record_set.name}.parquet")
        records = list(dataset.records(record_set.uuid))
        assert [len(record) for record in records] == [table.width] * table.height
    head: dict[str, Any] = yaml.safe_load(card.read_text().split("---")[1])
    listed = {unquote(file["contentUrl"]) for file in files}
    for config in head["configs"]:
        for data in config["data_files"]:
            found = {str(path.relative_to(folder)) for path in folder.glob(data["path"])}
            assert found
            assert found <= listed
    return head
