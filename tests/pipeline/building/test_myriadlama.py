"""build myriadlama: from tables, with a model on a real socket, or with a review sheet.

The model is of this test. It numbers its paraphrases, so that no answer is like another.
"""

import fcntl
import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from transformers import BertTokenizerFast

from factsweep.operators.construction.kamel import LABELS
from factsweep.operators.construction.myriadlama import FACTS
from factsweep.operators.datasets.facts import counts
from factsweep.pipeline.cli import main
from factsweep.pipeline.config import folders
from factsweep.pipeline.inputs import catalog
from factsweep.pipeline.inputs.catalog import list_differences
from tests.chat_server import ChatServer, completion, serving
from tests.described import check_described
from tests.messages import naming

KEY = "sk-secret-4711"
NAMES = {
    "Q142": ["France", "French Republic"],
    "Q183": ["Germany"],
    "Q90": ["Paris", "City of Light"],
    "Q64": ["Berlin"],
    "Q586": ["Bonn"],
    "Q150": ["French"],
    "P36": ["capital"],
}
TRIPLES = [("P36", "Q142", "Q90"), ("P36", "Q183", "Q64"), ("P37", "Q142", "Q150")]
MORE = [("P36", "Q183", "Q586"), ("P36", "Q999", "Q90")]
TEMPLATES = """\
P36, [Y] is the capital of [X].
P36, What is the capital of [X]? [Y].
P37, [X] speaks [Y].
"""


class Model:
    """One new paraphrase an answer, so that two take two rounds, and one unfit; then it fails."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.fails_after: int | None = None

    def __call__(self, request: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        if self.fails_after is not None and len(self.asked) >= self.fails_after:
            return 500, {"error": {"message": f"no more of {KEY}"}}
        prompt = request["messages"][-1]["content"]
        self.asked.append(prompt)
        number, sentence = len(self.asked), prompt.splitlines()[-1].removesuffix(".")
        answer = f"1. number {number} says {sentence}.\n2. number {number} says [X]."
        return 200, completion(answer)


@pytest.fixture
def model() -> Model:
    return Model()


@pytest.fixture
def server(model: Model, monkeypatch: pytest.MonkeyPatch) -> Iterator[ChatServer]:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    with serving(model) as started:
        yield started


@pytest.fixture
def files(tmp_path: Path) -> dict[str, Path]:
    """What a set is made of: four files."""
    pl.DataFrame(TRIPLES, FACTS, orient="row").write_parquet(tmp_path / "facts.parquet")
    pl.DataFrame(MORE, FACTS, orient="row").write_csv(tmp_path / "knowledge.csv")
    labels = pl.DataFrame(list(NAMES.items()), LABELS, orient="row")
    labels.write_ndjson(tmp_path / "labels.jsonl")
    (tmp_path / "templates.txt").write_text(TEMPLATES)
    names = ("facts.parquet", "knowledge.csv", "labels.jsonl", "templates.txt")
    return {name.partition(".")[0]: tmp_path / name for name in names}


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "sets" / "capitals"


def build(files: Mapping[str, Path], out: Path, *options: str) -> int:
    paths = [part for name, path in files.items() for part in (f"--{name}", str(path))]
    return main(["build", "myriadlama", *paths, "--out", str(out), "--n", "2", *options])


def asking(server: ChatServer) -> list[str]:
    return ["--endpoint", server.url, "--model", "gpt"]


def texts(out: Path) -> list[str]:
    return pl.read_parquet(out / "rows.parquet")["template"].unique(maintain_order=True).to_list()


def test_build_without_an_endpoint_says_so_and_counts_what_is_missing(
    files: dict[str, Path], out: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert build(files, out) == 0
    assert capsys.readouterr().out.splitlines() == [
        f"{out}: 2 relations, 3 templates, 3 pairs",
        "paraphrases: none, since neither --endpoint nor --paraphrases was given",
        "  P36: 4 of 4 missing, 0 there",
        "  P37: 2 of 2 missing, 0 there",
    ]
    description = ["README.md", "capitals.yaml", "croissant.json", "rows.parquet"]
    assert sorted(path.name for path in out.iterdir()) == description
    assert check_described(out)["size_categories"] == ["n<1K"]
    assert [path.name for path in out.parent.iterdir()] == ["capitals"]


def test_build_entry_can_be_copied_and_verifies(
    files: dict[str, Path], out: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert build(files, out) == 0
    catalog_of_hers = tmp_path / "hers/data_catalog"
    catalog_of_hers.mkdir(parents=True)
    monkeypatch.setenv(folders.VARIABLE, str(catalog_of_hers.parent))
    (catalog_of_hers / "capitals.yaml").write_text((out / "capitals.yaml").read_text())
    entry = catalog.entry("capitals")
    assert list(list_differences(entry)) == []
    assert entry.relations == {"P36": "capital", "P37": "P37"}
    facts = catalog.read_facts(entry)
    assert counts(facts)["prompts"] == 2 * 2 + 1 * 2 + 2 * 1  # names × templates, a pair each
    (germany,) = facts.pairs.filter(pair_id="P36.Q183")["objects"].to_list()
    assert [entity["object_id"] for entity in germany] == ["Q64", "Q586"]


def test_build_stopped_by_the_server_goes_on_and_asks_only_the_rest(
    files: dict[str, Path],
    out: Path,
    server: ChatServer,
    model: Model,
    capsys: pytest.CaptureFixture[str],
) -> None:
    model.fails_after = 3
    assert build(files, out, *asking(server)) == 2
    error = capsys.readouterr().err
    answers_path = out.with_name("capitals.asked.jsonl")
    assert error.count("\n") == 1
    assert re.search(naming(answers_path, "resumes"), error)
    assert [path.name for path in out.parent.iterdir()] == [answers_path.name]

    first, model.fails_after = list(model.asked), None
    assert build(files, out, *asking(server)) == 0
    # Two rounds per template, three templates; the second run asked for what was left of them.
    assert len(first) == 3
    assert [prompt.splitlines()[-1] for prompt in model.asked] == [
        line.partition(", ")[2] for line in TEMPLATES.splitlines() for _ in range(2)
    ]
    sheet = pl.read_csv(out / "review.csv", infer_schema=False).fill_null("")
    assert [text.partition(" says")[0] for text in sheet["paraphrase"]] == [
        f"number {n}" for n in range(1, 7)
    ]
    # One of two is close to the other, and a person must decide: it is not in the set.
    assert sheet["keep"].to_list() == ["yes", "", "yes", "", "yes", "yes"]
    assert len(texts(out)) == 3 + 4

    second_out = out.with_name("again")
    answers_path.rename(second_out.with_name("again.asked.jsonl"))
    assert build(files, second_out, *asking(server)) == 0
    assert len(model.asked) == 6
    assert (second_out / "rows.parquet").read_bytes() == (out / "rows.parquet").read_bytes()


def test_build_asks_another_model_and_what_a_killed_run_wrote_half(
    files: dict[str, Path], out: Path, server: ChatServer, model: Model
) -> None:
    answers_path = out.with_name("capitals.asked.jsonl")
    for place, name, n_asked in (("first", "gpt", 6), ("half", "gpt", 7), ("last", "other", 13)):
        assert build(files, out, "--endpoint", server.url, "--model", name) == 0
        assert len(model.asked) == n_asked
        out.rename(out.with_name(place))
        if place == "first":
            answers_path.write_bytes(answers_path.read_bytes()[:-20])
    lines = [json.loads(line) for line in answers_path.read_text().splitlines()]
    assert [set(line) for line in lines] == [{"model", "prompt", "text"}] * 12


def test_build_key_is_sent_and_written_nowhere(
    files: dict[str, Path],
    out: Path,
    server: ChatServer,
    model: Model,
    capsys: pytest.CaptureFixture[str],
) -> None:
    model.fails_after = 4
    assert build(files, out, *asking(server)) == 2
    model.fails_after = None
    assert build(files, out, *asking(server)) == 0
    assert set(server.keys) == {f"Bearer {KEY}"}
    written = [path.read_bytes() for path in out.parent.rglob("*") if path.is_file()]
    assert len(written) == 6
    assert not any(KEY.encode() in content for content in written)
    assert KEY not in "".join(capsys.readouterr())


def test_build_first_answer_refused_leaves_no_file(
    files: dict[str, Path], out: Path, server: ChatServer, model: Model
) -> None:
    model.fails_after = 0
    assert build(files, out, *asking(server)) == 2
    assert list(out.parent.iterdir()) == []


def test_build_hints_stand_in_the_prompts_of_their_relation(
    files: dict[str, Path], out: Path, server: ChatServer, model: Model, tmp_path: Path
) -> None:
    (tmp_path / "hints.txt").write_text("P37, Be aware that [Y] is the language.\n")
    assert build({**files, "hints": tmp_path / "hints.txt"}, out, *asking(server)) == 0
    assert ["[Y] is the language." in prompt for prompt in model.asked] == [False] * 4 + [True] * 2


def test_build_asks_for_no_template_of_a_relation_without_pairs(
    files: dict[str, Path], out: Path, server: ChatServer, model: Model
) -> None:
    files["templates"].write_text("P99, [X] is [Y].\nP37, [X] speaks [Y].\n")
    assert build(files, out, *asking(server)) == 0
    assert len(model.asked) == 2


def test_build_takes_the_sheet_that_a_person_filled_in(
    files: dict[str, Path], out: Path, server: ChatServer, capsys: pytest.CaptureFixture[str]
) -> None:
    assert build(files, out, *asking(server)) == 0
    sheet = pl.read_csv(out / "review.csv", infer_schema=False)
    keep = ["no", "yes", "y", "yes", "NO", "yes"]
    corrected = sheet["paraphrase"].str.replace("number", "nr.")
    path = out.with_name("sheet.csv")
    sheet.with_columns(keep=pl.Series(keep), paraphrase=corrected).write_csv(path)
    capsys.readouterr()
    assert build({**files, "paraphrases": path}, out.with_name("reviewed")) == 0
    printed = capsys.readouterr().out.splitlines()
    assert f"paraphrases: 4 kept of the 6 in {path}" in printed
    assert "  P36: 1 of 4 missing, 3 there" in printed
    templates = texts(out.with_name("reviewed"))
    assert [text for text in templates if "nr." in text] == [
        text for text, yes in zip(corrected, keep, strict=True) if yes.startswith("y")
    ]


def entity(id_: str, names: list[str], claims: Mapping[str, list[str]]) -> str:
    statements = {
        relation: [
            {
                "rank": "normal",
                "mainsnak": {
                    "datavalue": {"type": "wikibase-entityid", "value": {"id": object_id}}
                },
            }
            for object_id in objects
        ]
        for relation, objects in claims.items()
    }
    aliases = {"en": [{"value": name} for name in names[1:]]}
    return json.dumps(
        {"id": id_, "labels": {"en": {"value": names[0]}}, "aliases": aliases, "claims": statements}
    )


def dump_of_tables() -> bytes:
    claims: dict[str, dict[str, list[str]]] = {}
    for relation, subject, object_id in [*TRIPLES, *MORE]:
        claims.setdefault(subject, {}).setdefault(relation, []).append(object_id)
    lines = [
        entity(entity_id, names, claims.get(entity_id, {})) for entity_id, names in NAMES.items()
    ]
    return ("[\n" + ",\n".join([*lines, entity("Q1", ["universe"], {})]) + "\n]\n").encode()


def test_build_from_a_knowledge_base_is_the_set_of_its_tables(
    files: dict[str, Path], out: Path, tmp_path: Path
) -> None:
    assert build(files, out) == 0
    dump, base = tmp_path / "d.json", tmp_path / "base"
    dump.write_bytes(dump_of_tables())
    assert main(["build", "knowledge-base", "--dump", str(dump), "--out", str(base)]) == 0
    own_files = {name: files[name] for name in ("facts", "templates")}
    tables = {"labels": base / "entities.parquet", "knowledge": base / "triples.parquet"}
    assert build({**own_files, **tables}, out.with_name("other")) == 0
    rows, of_base = (
        pl.read_parquet(folder / "rows.parquet") for folder in (out, out.with_name("other"))
    )
    assert of_base.equals(rows)


@pytest.mark.parametrize(
    ("name", "content", "sentence"),
    [
        ("facts", b"PAR1", "facts.parquet cannot be read"),
        ("facts", None, "facts.parquet is no file; give one."),
        ("knowledge", b"relation_id,subject_id\nP36,Q1\n", "column object_id is missing"),
        ("knowledge", b"relation_id,subject_id,object_id\nP1,Q1,Q2\nP1,,Q2\n", "row 1 (counted"),
        ("templates", b"P36 [Y] is the capital of [X].\n", "templates.txt, line 1:"),
        ("templates", b"P36, [Y] is it.\n", "'[Y] is it.' of P36 has no [X]; put it in."),
        ("templates", b"P99, [Y] is [X].\n", "no fact has a manual template"),
        ("labels", b'{"entity_id": "Q142", "labels": "France"}\n', "column labels is String"),
    ],
)
def test_build_bad_input_is_2_and_leaves_nothing(
    files: dict[str, Path],
    out: Path,
    capsys: pytest.CaptureFixture[str],
    server: ChatServer,
    model: Model,
    name: str,
    content: bytes | None,
    sentence: str,
) -> None:
    if content is None:
        files[name].unlink()
    else:
        files[name].write_bytes(content)
    assert build(files, out, *asking(server)) == 2
    error = capsys.readouterr().err
    assert error.startswith("factsweep: ")
    assert error.count("\n") == 1
    assert sentence in error
    assert not out.parent.exists()
    assert model.asked == []


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--endpoint", "http://127.0.0.1:9/v1"], "--endpoint and --model go together"),
        (["--model", "gpt"], "--endpoint and --model go together"),
        (["--rounds", "0"], "--rounds 0; it must be at least 1."),
        (["--paraphrases", "no.csv"], "no.csv is no file; give one."),
        (["--one-token", "none"], "its tokenizer cannot be loaded"),
    ],
)
def test_build_bad_options_are_2(
    files: dict[str, Path],
    out: Path,
    capsys: pytest.CaptureFixture[str],
    options: list[str],
    sentence: str,
) -> None:
    assert build(files, out, *options) == 2
    error = capsys.readouterr().err
    assert sentence in error
    assert error.count("\n") == 1
    assert not out.exists()


def test_build_entity_without_labels_is_left_out(
    files: dict[str, Path], out: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    labels = files["labels"].read_text().replace('["French"]', "null")
    files["labels"].write_text(labels)
    assert build(files, out) == 0
    assert "  P37: 1 triple left out, object without label" in capsys.readouterr().out.splitlines()


@pytest.fixture
def tokenizer(tmp_path: Path) -> Path:
    folder = tmp_path / "bert"
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "paris", "ber", "##lin", "french"]
    folder.mkdir()
    (folder / "vocab.txt").write_text("\n".join(words))
    BertTokenizerFast(vocab=str(folder / "vocab.txt")).save_pretrained(folder)
    return folder


def test_build_objects_of_several_or_unknown_tokens_are_left_out(
    files: dict[str, Path], out: Path, tokenizer: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert build(files, out, "--one-token", str(tokenizer)) == 0
    assert pl.read_parquet(out / "rows.parquet")[
        "obj_ents"
    ].explode().unique().sort().to_list() == ["French", "Paris"]
    # Berlin is two tokens, Bonn is unknown: nothing of Germany is left.
    printed = capsys.readouterr().out.splitlines()
    assert "  P36: 2 triples left out, object does not fit" in printed
    assert "  P36: 1 pair left out, no object left" in printed


def test_build_answers_that_another_run_holds_or_wrote_are_named(
    files: dict[str, Path],
    out: Path,
    server: ChatServer,
    model: Model,
    capsys: pytest.CaptureFixture[str],
) -> None:
    out.parent.mkdir()
    answers_path = out.with_name("capitals.asked.jsonl")
    answers_path.write_text('{"model": "gpt"}\n')
    with answers_path.open("ab") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        assert build(files, out, *asking(server)) == 2
    assert f"another run is writing {answers_path}" in capsys.readouterr().err
    assert build(files, out, *asking(server)) == 2
    assert f"{answers_path}, line 1: no answer of a model" in capsys.readouterr().err
    assert answers_path.read_text() == '{"model": "gpt"}\n'
    assert model.asked == []


def test_build_tsv_names_are_read(files: dict[str, Path], out: Path, tmp_path: Path) -> None:
    assert build(files, out) == 0
    tsv = tmp_path / "labels.tsv"
    tsv.write_text("".join("\t".join([item, *names]) + "\n" for item, names in NAMES.items()))
    assert build({**files, "labels": tsv}, out.with_name("tsv")) == 0
    rows = (pl.read_parquet(item / "rows.parquet") for item in (out, out.with_name("tsv")))
    assert next(rows).equals(next(rows))
