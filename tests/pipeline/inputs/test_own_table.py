"""A table of one's own has one checksum, and so one fingerprint, in every format."""

import gzip
from pathlib import Path

import polars as pl

from factsweep.pipeline.config.settings import load
from factsweep.pipeline.inputs import catalog, files
from factsweep.pipeline.stages.plan import asking
from tests.pipeline.inputs.test_files import FORMATS

_ROWS = pl.DataFrame(
    {
        "relation": "song",
        "template": "In [Y], [X] sings.",
        "subject": ['"Weird Al"', "Cher; Sonny"],
        "object": ["1.50", "Believe"],
        "subject_aliases": ['["Al"]', None],
    }
)
# A CSV file that is not written like this is known by its bytes, as it was before.
_OTHERWISE = ("quoted.csv", "dos.csv", "mark.csv")


def test_checksum_of_the_same_rows_is_that_of_the_plain_csv(tmp_path: Path) -> None:
    for name, written in FORMATS.items():
        folder = tmp_path / name.replace(".", "-")
        folder.mkdir()
        path = folder / f"own.{name.partition('.')[2]}"
        path.write_bytes(written(_ROWS))
        plain = folder / "plain" / "own.csv"
        plain.parent.mkdir()
        plain.write_bytes((written if name in _OTHERWISE else FORMATS["plain.csv"])(_ROWS))
        assert files.checksum(path) == catalog.checksum([plain]), name


def test_checksum_of_a_packed_csv_is_that_of_what_it_holds(tmp_path: Path) -> None:
    content = FORMATS["dos.csv"](_ROWS)
    (tmp_path / "own.csv").write_bytes(content)
    (tmp_path / "own.CSV.gz").write_bytes(gzip.compress(content))
    assert files.checksum(tmp_path / "own.CSV.gz") == catalog.checksum([tmp_path / "own.csv"])


def test_checksum_of_lists_is_none_that_they_had_as_texts(tmp_path: Path) -> None:
    path = tmp_path / "own.csv"
    rows = _ROWS.with_columns(object=pl.Series(['["a", "b"]', "c"]))
    path.write_bytes(FORMATS["plain.csv"](rows))
    assert files.checksum(path) != catalog.checksum([path])
    lists = tmp_path / "own.jsonl"
    lists.write_text(rows.write_ndjson().replace('"[\\"a\\", \\"b\\"]"', '["a", "b"]'))
    assert '"object":["a", "b"]' in lists.read_text()
    assert files.checksum(lists) == files.checksum(path)


def test_checksum_of_what_is_cleaned_is_none_that_it_had_before(tmp_path: Path) -> None:
    path = tmp_path / "own.csv"
    padded = _ROWS.with_columns(pl.lit(" Cher").alias("subject"))
    for rows in (padded, _ROWS.rename({"subject_aliases": "Subject_Aliases"})):
        path.write_bytes(FORMATS["plain.csv"](rows))
        assert files.checksum(path) != catalog.checksum([path])
    path.write_bytes(FORMATS["plain.csv"](padded.with_columns(note=pl.lit(" x"), subject="object")))
    assert files.checksum(path) == catalog.checksum([path])


def test_prompts_of_a_table_are_the_same_whatever_its_format(tmp_path: Path) -> None:
    fact = {"relation": "capital", "template": "[X] has [Y].", "subject": "Peru", "object": "Lima"}
    fingerprints = set()
    for name in ("own.csv", "own.tsv", "own.jsonl", "own.parquet", "own.csv.gz", "own.CSV"):
        path = tmp_path / name
        suffix = name.partition(".")[2].lower()
        written = next(write for file, write in FORMATS.items() if file.endswith(f".{suffix}"))
        path.write_bytes(written(pl.DataFrame([fact])))
        run = load([f"benchmark.path={path}", "decoding.engine=fake", "model=smollm2-135m"])
        assert (
            run.table
            == f"own is a table of your own ({path}), asked zero-shot with 4 samples "
            + ("for confidence")
        )
        fingerprints.add(asking(run, run.settings[0])[-1].artifact.fingerprint)
    assert len(fingerprints) == 1
