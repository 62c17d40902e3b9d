"""build facts: sixty facts in four languages, with every flaw, become sets of the catalog."""

from pathlib import Path

import polars as pl
import pytest

from factsweep.pipeline.cli import main
from factsweep.pipeline.config import folders
from factsweep.pipeline.inputs import catalog

_WORDS = {
    "en": ("capital", "Country", "City"),
    "de": ("Hauptstadt", "Land", "Städtchen"),
    "ja": ("首都", "国", "市"),
    "ar": ("العاصمة", "بلد", "مدينة"),
}
# Language, subject id, subject, object, date.
_FLAWS = (
    ("en", None, "country 0", "CITY 0", "2025-01-01"),  # a double, but for case
    ("en", None, "Country 1", "Elsewhere", "2025-01-01"),  # a second object
    ("de", None, "Land 0", "Sta\u0308dtchen 0", "2025-01-01"),  # a double, but for Unicode's form
    ("en", None, "Mexico City", "Mexico", "2025-01-01"),  # the subject names it
    ("ja", None, "国 3", None, "2025-01-01"),  # nothing in it
    ("ar", "Q9", "بلد 0", "مدينة 9", None),  # the name of another id, and no date
)


@pytest.fixture
def table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """54 sound facts and six flaws."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv(folders.VARIABLE, raising=False)
    counts = {"en": 14, "de": 14, "ja": 13, "ar": 13}
    sound = [
        (
            each,
            f"{each}-{n}" if each == "ar" else None,
            f"{subject} {n}",
            f"{object_} {n}",
            "2020-01-01",
        )
        for each, (_, subject, object_) in _WORDS.items()
        for n in range(counts[each])
    ]
    names = ["language", "subject_id", "subject", "object", "date"]
    rows = pl.DataFrame([*sound, *_FLAWS], names, orient="row", infer_schema_length=None)
    relation = pl.col("language").replace_strict({k: w[0] for k, w in _WORDS.items()})
    path = tmp_path / "mine.csv"
    rows.with_columns(relation=relation).write_csv(path)
    return path


def test_facts_of_four_languages_with_flaws_are_built_counted_and_built_again(
    table: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["build", "facts", str(table), "--licence", "CC0"]) == 0
    printed = capsys.readouterr().out
    for said in (
        "  1 left out: object is empty",
        "  2 left out: a double of an earlier row",
        "  1 left out: the subject names the object",
        "  1 kept: the subject has another object, too; each is right",
        "  1 kept: the subject's name belongs to another id, too",
    ):
        assert said in printed
    for language, pairs in (("en", 14), ("de", 14), ("ja", 13), ("ar", 14)):
        entry = catalog.entry(f"mine-{language}")
        assert catalog.read(entry).pairs.height == pairs, language
        assert entry.licence == "CC0"
        assert main(["catalog", "verify", f"mine-{language}"]) == 0
    sheet = table.with_suffix(".templates.yaml")
    edited = sheet.read_text().replace("[X], 首都: [Y].", "[X]の首都は[Y]です。")
    sheet.write_text(edited.replace("首都 ([X]): [Y].", "首都 市 1: [X], [Y]"))
    capsys.readouterr()
    assert main(["build", "facts", str(table)]) == 0
    assert "1 left out: names the object 市 1" in capsys.readouterr().out
    texts = catalog.read(catalog.entry("mine-ja")).templates["text"].to_list()
    assert texts == ["[X] – 首都: [Y].", "[X]の首都は[Y]です。"]


def test_facts_after_a_date_are_counted(table: Path, capsys: pytest.CaptureFixture[str]) -> None:
    late = ["build", "facts", str(table), "--name", "late", "--after", "2024-06-30"]
    assert main(late) == 0
    assert "55 rows left out: not after 2024-06-30" in capsys.readouterr().out
    assert main([*late[:-1], "June"]) != 0
    assert "2024-12-31" in capsys.readouterr().err
    # Her "facts" would take the place of the one that it is made of.
    one = table.with_name("facts.csv")
    one.write_text("relation,subject,object\ncapital,Peru,Lima\n")
    assert main(["build", "facts", str(one)]) != 0
    assert "--name" in capsys.readouterr().err


@pytest.mark.slow
def test_a_built_benchmark_is_planned_under_its_name(
    table: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["build", "facts", str(table)]) == 0
    fake = ["model=smollm2-135m", "decoding.engine=fake", "decoding=greedy"]
    assert main(["plan", "benchmark=mine-de", *fake]) == 0
    assert "42" in capsys.readouterr().out
