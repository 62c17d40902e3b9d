"""build: a set made from tables is read, asked and measured like any other."""

import hashlib
from importlib import metadata
from pathlib import Path

import polars as pl
import pytest

from factsweep.operators.construction.kamel import LABELS, TRIPLES
from factsweep.operators.datasets.kamel import DATE, counts
from factsweep.pipeline.cli import main
from factsweep.pipeline.inputs import catalog
from factsweep.pipeline.machine.software import commit
from tests.described import check_described


@pytest.fixture
def sources(tmp_path: Path) -> dict[str, Path]:
    """Six mathematicians with a year and a field each, one of them named after hers."""
    people = {f"Q{n}": [f"Person {n}"] for n in range(5)} | {"Q5": ["algebra Emmy"]}
    fields = {"Q10": ["algebra", "algebraic theory"], "Q11": ["number theory"]}
    born = [
        ("P569", person, DATE, f"+19{n:02d}-03-23T00:00:00Z") for n, person in enumerate(people)
    ]
    fields_of_people = [
        ("P101", person, list(fields)[n % 2], None) for n, person in enumerate(people)
    ]
    fields_of_people.append(("P101", "Q5", "Q10", None))
    tables = {
        "triples": pl.DataFrame([*born, *fields_of_people], schema=TRIPLES, orient="row"),
        "labels": pl.DataFrame(list({**people, **fields}.items()), schema=LABELS, orient="row"),
    }
    for name, table in tables.items():
        table.write_parquet(tmp_path / f"{name}.parquet")
    (tmp_path / "questions.csv").write_text(
        "P569, When was [S] born?\nP101, What does [S] study?\n"
    )
    return {
        **{name: tmp_path / f"{name}.parquet" for name in tables},
        "questions": tmp_path / "questions.csv",
        "out": tmp_path / "set",
    }


def test_build_kamel_is_described_for_the_hub(
    sources: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WORK_TOKEN", "Person-Secret-0815")
    secret = sources["questions"].rename(sources["questions"].with_stem("Person-Secret-0815"))
    sources["questions"] = secret
    renamed = pl.read_parquet(sources["triples"]).with_columns(
        pl.col("relation_id").replace("P101", "field of #1")
    )
    renamed.write_parquet(sources["triples"])  # ids of others' knowledge bases have blanks
    secret.write_text(secret.read_text().replace("P101", "field of #1"))
    assert built(sources, "--licence", "CC BY 4.0", "--hub", "me/born", "--language", "de") == 0
    head = check_described(sources["out"])
    assert (head["license"], head["language"]) == ("cc-by-4.0", ["de"])
    splits = [data["split"] for data in head["configs"][0]["data_files"]]
    assert splits == ["train", "validation", "test"]
    texts = [sources["out"] / name for name in ("README.md", "croissant.json")]
    for text in (path.read_text() for path in texts):
        assert "Person-Secret-0815" not in text
        assert "https://huggingface.co/datasets/me/born" in text
        assert hashlib.sha256(sources["labels"].read_bytes()).hexdigest() in text
        assert "factsweep build kamel --triples triples.parquet --labels labels.parquet" in text
        assert f"factsweep {metadata.version('factsweep')}" in text
        assert str(commit()) in text


def built(sources: dict[str, Path], *options: str) -> int:
    paths = [part for name, path in sources.items() for part in (f"--{name}", str(path))]
    return main(["build", "kamel", *paths, "--sizes", "3", "1", "2", *options])


def test_build_kamel_writes_a_set_that_the_reader_reads(
    sources: dict[str, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    assert built(sources) == 0
    printed = capsys.readouterr().out.splitlines()
    assert printed == [
        f"{sources['out']}: 2 relations, 12 queries",
        "  P101: 1 triple left out, named in subject",
    ]
    facts = catalog.read_facts(catalog.entry("kamel"), str(sources["out"]))
    assert counts(facts) == {
        "relations": 2,
        "train_rows": 6,
        "dev_rows": 2,
        "test_rows": 4,
        "test_queries_of_several_answers": 0,
        "test_labels_per_answer": 1.5,
    }
    years = facts.pairs.filter(relation_id="P569")["objects"].explode().struct.field("labels")
    assert sorted(label[0] for label in years) == [f"190{n}" for n in range(6)]


@pytest.mark.parametrize(
    ("name", "content", "sentence"),
    [
        ("triples", b"", "triples.parquet is empty; fetch or copy it again."),
        ("triples", None, "triples.parquet is no file; give one."),
        ("questions", b"P569, When?\n", "questions.csv, line 1: 'When?' has no [S]"),
        ("out", b"", "exists already; name a new folder."),
    ],
)
def test_build_kamel_bad_input_is_2_and_leaves_nothing(
    sources: dict[str, Path],
    capsys: pytest.CaptureFixture[str],
    name: str,
    content: bytes | None,
    sentence: str,
) -> None:
    if content is None:
        sources[name].unlink()
    else:
        sources[name].write_bytes(content)
    files_before = sorted(sources["out"].parent.iterdir())
    assert built(sources) == 2
    error = capsys.readouterr().err
    assert error.startswith("factsweep: ")
    assert error.count("\n") == 1
    assert sentence in error
    assert sorted(sources["out"].parent.iterdir()) == files_before
