"""Differences between the files of a data set and its entry of the catalog."""

import re
from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest

from factsweep.operators.errors import InputError
from factsweep.pipeline.inputs import catalog
from factsweep.pipeline.inputs.catalog import differences
from tests.messages import naming

MINI = catalog.entry("myriadlama-mini")


@pytest.fixture
def rows() -> pl.DataFrame:
    return pl.read_parquet(catalog.files(MINI)[0])


def test_mini_shipped_files_are_as_the_entry_says() -> None:
    assert list(differences(MINI)) == []


def test_differences_row_missing_names_checksum_and_counts(
    rows: pl.DataFrame, tmp_path: Path
) -> None:
    rows[1:].write_parquet(tmp_path / "rows.parquet")
    entry = replace(MINI, counts={"rows": rows.height}, checksum="0" * 64)
    checksum, n_rows = differences(entry, str(tmp_path))
    assert checksum.startswith(f"checksum: expected {'0' * 64}, found ")
    assert n_rows == f"rows: expected {rows.height:,}, found {rows.height - 1:,} (1 fewer)"


def test_differences_pair_missing_names_every_count_that_follows(
    rows: pl.DataFrame, tmp_path: Path
) -> None:
    rows.filter(pl.col("sub_uri") != rows["sub_uri"][0]).write_parquet(tmp_path / "rows.parquet")
    counts = {"relations": 17, "pairs": 553, "prompts": 12700}
    found = list(differences(replace(MINI, counts=counts, checksum=None), str(tmp_path)))
    assert [line.partition(":")[0] for line in found] == ["pairs", "prompts"]


def test_differences_optional_column_missing_is_no_difference(
    rows: pl.DataFrame, tmp_path: Path
) -> None:
    rows.drop("uuid").write_parquet(tmp_path / "rows.parquet")
    columns = {"uuid?": "str", "template": "str"}
    entry = replace(MINI, columns=columns, counts={}, checksum=None)
    assert list(differences(entry, str(tmp_path))) == []


def test_differences_promised_column_missing_is_named(rows: pl.DataFrame, tmp_path: Path) -> None:
    rows.drop("uuid").write_parquet(tmp_path / "rows.parquet")
    entry = replace(MINI, counts={}, checksum=None)
    assert list(differences(entry, str(tmp_path))) == ["column uuid: missing"]


def test_differences_unknown_count_names_it() -> None:
    with pytest.raises(InputError, match=naming("nope")):
        list(differences(replace(MINI, counts={"nope": 1})))


def test_differences_without_aliases_say_why_there_are_fewer_prompts(
    rows: pl.DataFrame, tmp_path: Path
) -> None:
    rows.drop("sub_aliases").write_parquet(tmp_path / "rows.parquet")
    columns = {"sub_aliases?": "list[str]"}
    entry = replace(MINI, columns=columns, counts={"prompts": 12700}, checksum=None)
    (line,) = differences(entry, str(tmp_path))
    assert line == (
        "prompts: expected 12,700, found 5,530 (7,170 fewer); the files have no sub_aliases"
    )


def test_differences_rows_that_contradict_each_other_are_counted(
    rows: pl.DataFrame, tmp_path: Path
) -> None:
    first = pl.int_range(pl.len()) == 0
    other = pl.when(first).then(pl.lit("Elsewhere")).otherwise("sub_ent").alias("sub_ent")
    rows.with_columns(other).write_parquet(tmp_path / "rows.parquet")
    entry = replace(MINI, counts={}, checksum=None)
    pairs, subjects = differences(entry, str(tmp_path))
    assert re.search(naming("contradicting_pairs", "0", "1 more"), pairs)
    assert re.search(naming("subjects_of_two_labels", "0", "1 more"), subjects)
