"""Reading mLAMA's files."""

import json
from pathlib import Path

import pytest

from factsweep.operators.datasets.triples import mlama
from factsweep.operators.errors import InputError
from factsweep.pipeline.inputs import catalog
from tests.messages import naming

TEMPLATES = {"de": "[X] wurde in [Y] geboren.", "fr": "[X] est né à [Y]."}
FACT = {"sub_label": "Ann", "obj_label": "Rom"}
LABELS = {"de": ("Köln", "Rom"), "fr": ("Cologne", "Rome")}


def lines(*rows: dict[str, object]) -> str:
    return "".join(f"{json.dumps(row)}\n" for row in rows)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two languages in mLAMA's layout."""
    for language, template in TEMPLATES.items():
        own = tmp_path / "mlama1.1" / language
        own.mkdir(parents=True)
        (own / "templates.jsonl").write_text(
            lines({"relation": "P19", "template": template}, {"relation": "P1", "template": "[X]"})
        )
        rows = [
            {"lineid": n, "sub_uri": "Q1", "sub_label": "Ann", "obj_uri": q, "obj_label": label}
            for n, (q, label) in enumerate(zip(("Q365", "Q220"), LABELS[language], strict=True))
        ]
        (own / "P19.jsonl").write_text(lines(*rows, rows[0]))
    return tmp_path


def test_a_language_is_picked_and_its_triples_of_one_subject_are_a_pair(folder: Path) -> None:
    for language, (first, second) in LABELS.items():
        facts = catalog.read(catalog.entry("mlama", language), str(folder))
        assert facts.templates["text"].to_list() == [TEMPLATES[language]]
        assert facts.pairs.select("pair_id", "subjects", "objects").rows() == [
            (
                "P19.Q1",
                ["Ann"],
                [
                    {"object_id": "Q365", "labels": [first]},
                    {"object_id": "Q220", "labels": [second]},
                ],
            )
        ]


def test_a_language_that_is_not_there_is_refused_and_never_another(folder: Path) -> None:
    with pytest.raises(InputError, match=naming("mlama has no files", str(folder))):
        catalog.read(catalog.entry("mlama", "ko"), str(folder))


def test_unfit_lines_are_named(subtests: pytest.Subtests) -> None:
    for files, named in (
        ({"de/P1.jsonl": "{"}, ["de/P1.jsonl, line 1", "no JSON"]),
        ({"de/P1.jsonl": '{"sub_label": "a"}'}, ["de/P1.jsonl, line 1", "obj_label"]),
        ({"de/templates.jsonl": '{"relation": "P1"}'}, ["de/templates.jsonl, line 1", "template"]),
        ({"de/P1.jsonl": "", "fr/P1.jsonl": ""}, ["de, fr", "benchmark.language"]),
        ({"de/P1.jsonl": lines(FACT)}, ["no template", "templates.jsonl"]),
        ({"de/P1.jsonl": lines(FACT | {"sub_uri": ["Q1"]})}, ["de/P1.jsonl, line 1", "sub_uri"]),
    ):
        with subtests.test(str(named)), pytest.raises(InputError, match=naming(*named)):
            mlama(files)


def test_rows_without_ids_are_known_by_their_labels() -> None:
    files = {
        "de/templates.jsonl": lines({"relation": "born", "template": "[X] [Y]"}),
        "de/born.jsonl": lines({"sub_label": "Ann", "obj_label": "Rom"}),
    }
    assert mlama(files).pairs["pair_id"].to_list() == ["born.Ann"]
