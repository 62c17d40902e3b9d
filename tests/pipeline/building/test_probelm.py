"""build probelm: two snapshots become a set that the catalog reads and verifies."""

import json
from pathlib import Path

import polars as pl
import pytest

from factsweep.operators.construction.probelm import LABELS, TRIPLES
from factsweep.operators.datasets.probelm import candidates
from factsweep.pipeline.cli import main
from factsweep.pipeline.config import folders
from factsweep.pipeline.inputs import catalog
from factsweep.pipeline.inputs.catalog import list_differences
from tests.described import check_described

FOODS = ["milk", "meat", "hay", "carrots", "fish"]
PETS = ["cat", "dog", "rabbit", "goldfish"]
KNOWN = [
    *((pet, "P279", "pet") for pet in PETS),
    *((food, "P279", "food") for food in FOODS),
    ("dog", "P1", "meat"),
    ("goldfish", "P1", "meat"),
    ("rabbit", "P1", "hay"),
    ("rabbit", "P1", "carrots"),
    ("dog", "P1", "fish"),
]
NEW = [("cat", "P1", "milk"), ("cat", "P1", "no name")]
RELATION = {
    "relation_id": "P1",
    "relation": "eats",
    "statement": "<subject> eats <object>.",
    "question": "Question: What does <subject> eat? Answer: <object>.",
    "asked": "object",
    "max_answers": "5",
}


@pytest.fixture
def sources(tmp_path: Path) -> dict[str, Path]:
    names = {entity: [entity] for entity in (*PETS, *FOODS, "pet", "food")}
    tables = {
        "before.parquet": pl.DataFrame(KNOWN, TRIPLES, orient="row"),
        "after.csv": pl.DataFrame([*KNOWN, *NEW], TRIPLES, orient="row"),
        "labels.parquet": pl.DataFrame(list(names.items()), LABELS, orient="row"),
        "relations.csv": pl.DataFrame([RELATION]),
    }
    for name, table in tables.items():
        path = tmp_path / name
        table.write_csv(path) if path.suffix == ".csv" else table.write_parquet(path)
    return {**{name.partition(".")[0]: tmp_path / name for name in tables}, "out": tmp_path / "set"}


def build(sources: dict[str, Path], *more: str) -> int:
    paths = [part for name, path in sources.items() for part in (f"--{name}", str(path))]
    options = ["--frame", "112023", "--max-similarity", ".8", "--alternatives", "4"]
    return main(["build", "probelm", *paths, *options, *more])


def test_build_writes_the_authors_layout_and_says_what_was_left_out(
    sources: dict[str, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    assert build(sources) == 0
    assert capsys.readouterr().out.splitlines() == [
        f"{sources['out']}: 1 relations, 1 groups, 5 candidates",
        "  P1: 1 triple left out, entity without label",
    ]
    names = sorted(path.name for path in sources["out"].iterdir())
    assert names == ["112023.json", "README.md", "croissant.json", "prompts.csv", "set.yaml"]
    assert check_described(sources["out"])["license"] == "unknown"


def test_build_entry_can_be_copied_and_verifies(
    sources: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert build(sources) == 0
    catalog_of_hers = tmp_path / "hers/data_catalog"
    catalog_of_hers.mkdir(parents=True)
    monkeypatch.setenv(folders.VARIABLE, str(catalog_of_hers.parent))
    (catalog_of_hers / "set.yaml").write_text((sources["out"] / "set.yaml").read_text())
    entry = catalog.entry("set")
    assert list(list_differences(entry)) == []
    ranked = candidates(catalog.read_facts(entry))
    # Meat is eaten by two siblings of the cat, the others by one: these go by id.
    assert ranked["label"].to_list() == ["milk", "meat", "carrots", "fish", "hay"]
    assert set(ranked["frame"]) == {"2023-11"}


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"asked": "both"}, "row 0 (counted from 0): asked is 'both'; write subject or object."),
        ({"statement": "It eats <object>."}, "statement has no <subject>; put it in."),
        ({"question": "What does <subject> eat?"}, "question has no <object>; put it in."),
        ({"question": "What, then, <subject> <object>?"}, "question has a comma and a blank"),
        ({"max_answers": "many"}, "max_answers is no number; write one or nothing."),
        ({"max_answers": [4]}, "max_answers is no number; write one or nothing."),
        ({"max_answers": "1"}, "no new triple of P1 has 4 alternatives"),  # a general query
    ],
)
def test_build_bad_relation_is_named(
    sources: dict[str, Path],
    capsys: pytest.CaptureFixture[str],
    change: dict[str, object],
    sentence: str,
) -> None:
    sources["relations"] = sources["relations"].with_suffix(".jsonl")
    sources["relations"].write_text(json.dumps({**RELATION, **change}))
    assert build(sources) == 2
    assert sentence in capsys.readouterr().err
    assert not sources["out"].exists()


def test_build_without_a_relation_is_refused(
    sources: dict[str, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    pl.DataFrame([RELATION]).head(0).write_parquet(sources["relations"].with_suffix(".parquet"))
    sources["relations"] = sources["relations"].with_suffix(".parquet")
    assert build(sources) == 2
    assert capsys.readouterr().err == (
        f"factsweep: {sources['relations']} has no row; write one for each relation of the set.\n"
    )


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--frame", "2023-11"], "--frame 2023-11 is no month and year; write it as 112023."),
        (["--max-similarity", "8"], "--max-similarity 8.0; it must be from 0 to 1."),
    ],
)
def test_build_bad_options_are_2(
    sources: dict[str, Path], capsys: pytest.CaptureFixture[str], options: list[str], sentence: str
) -> None:
    assert build(sources, *options) == 2
    assert sentence in capsys.readouterr().err
    assert not sources["out"].exists()
