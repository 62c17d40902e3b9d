"""Tables of facts as people have them: other columns, separators, encodings, languages."""

import json
import re
from pathlib import Path

import pytest

from factsweep.operators.errors import FactsweepError
from factsweep.pipeline.building.facts import find_unshared_languages, read_table
from factsweep.pipeline.cli import main
from factsweep.pipeline.config import folders
from tests.messages import naming

_ROWS = "relation,subject,object\nHauptstadt,Österreich,Wien\n"
_MORE = "relation,subject,object,{}\ncapital,Peru,Lima,{}\ncapital,Chile,Santiago,{}\n"


@pytest.fixture
def mine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The table of somebody who works in an empty folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv(folders.VARIABLE, raising=False)
    return tmp_path / "mine.csv"


def test_columns_of_other_names_are_guessed_and_said(tmp_path: Path) -> None:
    path = tmp_path / "mine.csv"
    path.write_text(
        "Predicate, HEAD ,tail,Date,note,LANGUAGE\ncapital,Peru,Lima,2024-01-01,x, De\n"
    )
    facts, notes = read_table(path, "en")
    row = facts.row(0, named=True)
    assert [row[n] for n in ("relation", "subject", "object", "date", "language")] == [
        *("capital", "Peru", "Lima", "2024-01-01", "de")
    ]
    assert [note.removeprefix(f"{path}: ") for note in notes] == [
        "column Predicate is read as relation",
        "column HEAD is read as subject",
        "column tail is read as object",
        "column Date is read as date",
        "column LANGUAGE is read as language",
        "not read: note; further columns that are: subject_id, object_id, subject_aliases, "
        "object_aliases, popularity, sample, type",
    ]


def test_a_column_called_row_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "mine.csv"
    path.write_text(_MORE.format("row", "7", "8"))
    facts, notes = read_table(path, "en")
    assert facts["row"].to_list() == [0, 1]
    assert "not read: row; " in notes[0]


def test_a_language_without_words_is_said(tmp_path: Path) -> None:
    path = tmp_path / "mine.csv"
    path.write_text(_MORE.format("language", "de", "German"))
    facts, notes = read_table(path, "en")
    assert facts["language"].to_list() == ["de", "german"]
    assert len(notes) == 1
    assert re.search(naming("'german'", "row 1", "german.yaml"), notes[0])


@pytest.mark.parametrize("subject", ["country", "subject", "Head"])
def test_a_wide_table_is_refused_with_what_makes_it_long(subject: str, tmp_path: Path) -> None:
    path = tmp_path / "wide.csv"
    path.write_text(f"{subject},capital,since\nPeru,Lima,1535\nChile,,1541\n")
    with pytest.raises(
        FactsweepError, match=naming(path, "relation", "object", subject)
    ) as refusal:
        read_table(path, "en")
    exec(str(refusal.value).split("`")[1])
    facts, _ = read_table(tmp_path / "wide-long.csv", "en")
    assert facts.select("relation", "subject", "object").rows() == [
        ("capital", "Peru", "Lima"),
        ("since", "Peru", "1535"),
        ("since", "Chile", "1541"),
    ]


_REFUSED = (
    (_ROWS.encode("latin-1"), ("mine.csv", "save it as UTF-8")),
    (b"relation,subject,object\n", ("mine.csv", "no rows")),
    (b"relation,subject,object\na,b,c,d\n", ("mine.csv", "quotation marks")),
    (_MORE.format("popularity", "1", "nan").encode(), ("mine.csv", "row 1", "'nan'")),
    (_MORE.format("object_aliases", "Q", "").encode(), ("mine.csv", "row 0", '["Q"]')),
    (_MORE.format("object_aliases", "[]", "x").encode(), ("row 1", "object_aliases is 'x'")),
    (_MORE.format("subject_aliases", "[]", "[1]").encode(), ("row 1", "subject_aliases", "[1]")),
)


def test_a_table_that_cannot_be_read_is_refused(tmp_path: Path, subtests: pytest.Subtests) -> None:
    path = tmp_path / "mine.csv"
    for content, words in _REFUSED:
        path.write_bytes(content)
        with subtests.test(named=words), pytest.raises(FactsweepError, match=naming(*words)):
            read_table(path, "en")


def test_a_value_that_is_a_list_is_named(tmp_path: Path, subtests: pytest.Subtests) -> None:
    path = tmp_path / "mine.jsonl"
    fact = {"relation": "capital", "subject": "Peru", "object": "Lima"}
    for column in ("subject", "popularity", "date", "language"):
        with subtests.test(column):
            path.write_text(json.dumps({**fact, column: ["x"]}))
            with pytest.raises(FactsweepError, match=naming(path, "row 0", column, "['x']")):
                read_table(path, "en")


def test_a_value_of_another_type_than_text_is_named_or_read_as_it_is_written(
    tmp_path: Path, subtests: pytest.Subtests
) -> None:
    path = tmp_path / "mine.jsonl"
    fact = {"relation": "capital", "subject": "Peru", "object": "Lima"}
    for column, value in (
        ("object", ["Lima", "Callao"]),
        ("object", {"name": "Lima"}),
        ("object_aliases", [1]),
        ("object_aliases", [["Ciudad de los Reyes"]]),
        ("object_aliases", {"name": "Lima"}),
    ):
        for rows in ([fact, {**fact, column: value}], [{**fact, column: value}]):
            path.write_text("\n".join(map(json.dumps, rows)))
            place = f"row {len(rows) - 1}"
            with (
                subtests.test(column=column, value=value, rows=len(rows)),
                pytest.raises(FactsweepError, match=naming(path, place, column)),
            ):
                read_table(path, "en")
    path.write_text(json.dumps(fact).replace('"Lima"', "1.50"))
    assert read_table(path, "en")[0]["object"].to_list() == ["1.50"]


def test_languages_that_share_no_fact_are_said(tmp_path: Path) -> None:
    path = tmp_path / "mine.csv"
    rows = "P36,Perú,Lima,es,Q1\nP36,Peru,Lima,de,Q1\nHauptstadt,Peru,Lima,nl,Q1\n"
    path.write_text(f"relation,subject,object,language,subject_id\n{rows}P36,Peru,Lima,fr,\n")
    notes = [*find_unshared_languages(read_table(path, "en")[0])]
    assert [note.split()[3] for note in notes] == ["nl", "fr"]


def test_a_refused_set_leaves_those_of_other_languages_unmade(
    mine: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    mine.write_text(_MORE.format("language", "de", "ja").replace("capital,Chile", "a:b,Chile"))
    assert main(["build", "facts", str(mine)]) == 2
    assert "'a:b'" in capsys.readouterr().err
    assert not (mine.parent / folders.OWN / "data_catalog").exists()


def test_what_was_found_of_a_language_without_a_set_is_listed_beside_the_first(mine: Path) -> None:
    mine.write_text(_MORE.format("language", "de", "ja").replace("Santiago", ""))
    assert main(["build", "facts", str(mine)]) == 0
    found = mine.parent / folders.OWN / "data_catalog" / "mine" / "findings.csv"
    assert "1,ja,capital,Chile | ,object is empty,true" in found.read_text()
