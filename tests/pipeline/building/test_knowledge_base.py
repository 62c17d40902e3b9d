"""build knowledge-base: from a dump in parts, after a kill, and from facts."""

import bz2
import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from factsweep.operators.datasets.knowledge_base import KnowledgeBase, check_knowledge_base
from factsweep.operators.errors import InputError
from factsweep.pipeline.building import knowledge_base as builder
from factsweep.pipeline.cli import main
from factsweep.pipeline.inputs import catalog
from tests.described import check_described
from tests.messages import naming


def snak(target: str) -> dict[str, Any]:
    value = {"type": "wikibase-entityid", "value": {"entity-type": "item", "id": target}}
    return {"snaktype": "value", "datavalue": value}


def statement(target: str, rank: str = "normal", **qualifiers: tuple[str, int]) -> dict[str, Any]:
    times = {
        name: [{"datavalue": {"type": "time", "value": {"time": time, "precision": precision}}}]
        for name, (time, precision) in qualifiers.items()
    }
    return {"mainsnak": snak(target), "rank": rank, "qualifiers": times}


def item(number: int, label: str | None, **claims: list[dict[str, Any]]) -> str:
    labels = {} if label is None else {"en": {"language": "en", "value": label}}
    entity = {"type": "item", "id": f"Q{number}", "labels": labels, "aliases": [], "claims": claims}
    entity["descriptions"] = {"en": {"language": "en", "value": f"the {label}"}}
    return json.dumps(entity | {"sitelinks": {"enwiki": {}, "dewiki": {}}})


ENTITIES = [
    item(
        1,
        "France",
        P31=[statement("Q6")],
        P36=[
            statement("Q3", P580=("+0987-00-00T00:00:00Z", 9)),
            statement("Q4", P580=("+1682-05-06T00:00:00Z", 11), P582=("+1789-10-00T00:00:00Z", 10)),
            statement("Q5", "deprecated"),
        ],
        P166=[statement("Q9", P585=("+2001-02-03T00:00:00Z", 11))],
        P9=[{"mainsnak": {"snaktype": "novalue"}, "rank": "normal"}],
        P10=[
            {"mainsnak": snak("P31")},
            {"mainsnak": {"datavalue": {"type": "string", "value": "Q1"}}},
        ],
    ),
    item(2, None, P31=[statement("Q6")]),
    json.dumps({"type": "property", "id": "P36", "labels": {"en": {"value": "capital"}}}),
    item(3, "Paris", P31=[statement("Q7"), statement("Q7")], P279=[statement("Q8")]),
    item(4, "Versailles"),
]
DUMP = "[\n" + ",\n".join(ENTITIES) + "\n]\n"
PACKERS: dict[str, Callable[[bytes], bytes]] = {
    "dump.json": bytes,
    "dump.json.gz": gzip.compress,
    "dump.json.bz2": bz2.compress,
}


@pytest.fixture(params=PACKERS)
def dump(request: Any, tmp_path: Path) -> Path:
    path = tmp_path / request.param
    path.write_bytes(PACKERS[request.param](DUMP.encode()))
    return path


def tables(folder: Path) -> KnowledgeBase:
    return KnowledgeBase(
        *(pl.read_parquet(folder / f"{t}.parquet") for t in ("entities", "triples"))
    )


def built(dump: Path, out: Path, *, lines: int = 2, workers: int = 1) -> KnowledgeBase:
    list(
        builder.build_from_dump(dump, out, languages=["en"], lines_per_part=lines, workers=workers)
    )
    return tables(out)


def test_build_dump_takes_items_with_labels_and_their_statements(
    dump: Path, tmp_path: Path
) -> None:
    base = built(dump, tmp_path / "out")
    assert base.entities.drop("popularity").rows() == [
        ("Q1", ["France"], ["Q6"], "the France"),
        ("Q3", ["Paris"], ["Q7", "Q8"], "the Paris"),
        ("Q4", ["Versailles"], [], "the Versailles"),
    ]
    assert base.entities["popularity"].round(6).unique().to_list() == [1.098612]  # ln 3
    assert base.triples.rows() == [
        ("Q1", "P31", "Q6", None, None),
        ("Q1", "P36", "Q3", "0987", None),
        ("Q1", "P36", "Q4", "1682-05-06", "1789-10"),
        ("Q1", "P166", "Q9", "2001-02-03", None),
        ("Q3", "P31", "Q7", None, None),
        ("Q3", "P31", "Q7", None, None),
        ("Q3", "P279", "Q8", None, None),
    ]
    assert check_knowledge_base(base).entities.height == 3


def test_build_dump_any_size_of_part_and_any_workers_give_the_same(tmp_path: Path) -> None:
    dump = tmp_path / "dump.json"
    dump.write_text(DUMP)
    expected = built(dump, tmp_path / "whole", lines=100)
    for lines, workers in ((1, 1), (3, 1), (2, 2)):
        base = built(dump, tmp_path / f"{lines}{workers}", lines=lines, workers=workers)
        assert base.entities.equals(expected.entities)
        assert base.triples.equals(expected.triples)
    assert not list(tmp_path.glob(".*"))


def test_build_dump_killed_resumes_with_the_parts_that_are_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dump, parts = tmp_path / "dump.json", list[str]()
    dump.write_text(DUMP)
    make = builder._publish_part

    def dying(aside: Path, part: str, *args: Any) -> None:
        if len(parts) == 2:
            raise KeyboardInterrupt
        make(aside, part, *args)
        parts.append(part)

    monkeypatch.setattr(builder, "_publish_part", dying)
    with pytest.raises(KeyboardInterrupt):
        built(dump, tmp_path / "out")
    assert not (tmp_path / "out").exists()
    # A part without the file of its entities, as a kill in the midst of it leaves it.
    (tmp_path / ".out.parts/triples/000002.parquet").write_bytes(b"torn")

    def noted(aside: Path, part: str, *args: Any) -> None:
        make(aside, part, *args)
        parts.append(part)

    monkeypatch.setattr(builder, "_publish_part", noted)
    base = built(dump, tmp_path / "out")
    assert [int(part) for part in parts] == [0, 1, 2, 3]
    assert base.triples.equals(built(dump, tmp_path / "fresh").triples)


@pytest.mark.parametrize(
    ("lines", "text", "problem"),
    [
        (5, DUMP, naming("lines_per_part", "repeat")),
        (2, DUMP.replace("France", "Gaulle"), r"has parts of time \d+, not \d+; repeat"),
    ],
)
def test_build_dump_parts_of_another_dump_are_refused(
    tmp_path: Path, lines: int, text: str, problem: str
) -> None:
    dump, aside = tmp_path / "dump.json", tmp_path / ".out.parts"
    dump.write_text(DUMP)
    builder._keep_settings(aside, dump, ["en"], lines)
    if text != DUMP:  # of the same size, and written since
        dump.write_text(text)
    with pytest.raises(InputError, match=problem):
        built(dump, tmp_path / "out")


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"[\n{]\n]\n", "line 2 of the dump is no JSON"),
        (b'[\n{"id": 1}\n]\n', "line 2 of the dump is no entity"),
        (
            b'[\n{"id": "Q1", "labels": {"en": {"value": "a"}}, "claims": {"P1": [1]}}\n]\n',
            "line 2 of",
        ),
        (b"", "dump.json is empty"),
        (DUMP[:-3].encode(), "its last line is no ]"),
        (gzip.compress(DUMP.encode())[:-20], "dump.json.gz cannot be read"),
    ],
)
def test_build_dump_that_is_unfit_or_cut_is_2_and_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], content: bytes, problem: str
) -> None:
    dump = tmp_path / ("dump.json.gz" if content[:1] == b"\x1f" else "dump.json")
    dump.write_bytes(content)
    args = ["--dump", str(dump), "--out", str(tmp_path / "out"), "--workers", "1"]
    assert main(["build", "knowledge-base", *args]) == 2
    assert problem in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("content", ["", "{", "3", '["a"]'])
def test_build_dump_damaged_note_of_the_parts_is_named(tmp_path: Path, content: str) -> None:
    dump, aside = tmp_path / "dump.json", tmp_path / ".out.parts"
    dump.write_text(DUMP)
    aside.mkdir()
    (aside / "settled.json").write_text(content)
    with pytest.raises(InputError, match=naming("settled.json", "out.parts", "remove")):
        built(dump, tmp_path / "out")


def test_build_facts_of_sets_and_tables_are_one_base(tmp_path: Path) -> None:
    table, aliases = tmp_path / "P36.jsonl", tmp_path / "aliases.tsv"
    row = {"predicate_id": "P36", "sub_uri": "Q142", "sub_label": "France", "obj_uri": "Q90"}
    table.write_text(json.dumps({**row, "obj_label": "Paname"}) + "\n")
    aliases.write_text("Q90\tParis\tLutèce\nQ404\tnobody\n")
    sets = ["myriadlama-mini"]
    list(builder.build_from_facts(sets, [table], aliases, tmp_path / "out"))
    base = tables(tmp_path / "out")
    labels = dict(base.entities.select("entity_id", "labels").iter_rows())
    assert {"Paris", "Paname", "Lutèce"} <= set(labels["Q90"])
    assert "Q404" not in labels
    assert base.triples.filter(subject_id="Q142", relation_id="P36", object_id="Q90").height == 1


def test_knowledge_bases_are_described_with_the_sources_of_their_sets(tmp_path: Path) -> None:
    table, dump = tmp_path / "facts.jsonl", tmp_path / "dump.json"
    table.write_text(json.dumps(FACT))
    dump.write_text(DUMP)
    for name, *options in (
        ("of-facts", "--data", "myriadlama-mini", "--facts", str(table)),
        ("of-dump", "--dump", str(dump), "--workers", "1"),
    ):
        assert main(["build", "knowledge-base", *options, "--out", str(tmp_path / name)]) == 0
        head = check_described(tmp_path / name)
        assert [config["config_name"] for config in head["configs"]] == ["triples", "entities"]
    card = (tmp_path / "of-facts/README.md").read_text()
    mini = catalog.entry("myriadlama-mini")
    assert f"| {mini.licence} | revision {mini.revision} |" in card
    assert "| facts.jsonl | not given | sha256:" in card


def test_build_of_nothing_and_of_two_things_are_2(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = ["--out", str(tmp_path / "out")]
    assert main(["build", "knowledge-base", *out]) == 2
    assert "give --dump, --data or --facts" in capsys.readouterr().err
    assert main(["build", "knowledge-base", *out, "--dump", "x", "--data", "kamel-mini"]) == 2
    assert "--dump is read alone" in capsys.readouterr().err


FACT = {
    "subject_id": 0,
    "subject_label": "France",
    "relation_id": "P36",
    "object_id": "Q4",
    "object_label": "Paris",
}


def test_build_table_of_ids_that_are_numbers_has_them_as_text(tmp_path: Path) -> None:
    table = tmp_path / "facts.jsonl"
    for fact, words in (
        ({name: FACT[name] for name in FACT if name != "subject_label"}, ["sub_label", "sub_ent"]),
        ({**FACT, "object_label": ["Paris"]}, ["object_label"]),
    ):
        table.write_text(json.dumps(fact))
        with pytest.raises(InputError, match=naming(*words)):
            list(builder.build_from_facts([], [table], None, tmp_path / "out"))
    table.write_text(json.dumps(FACT))
    list(builder.build_from_facts([], [table], None, tmp_path / "out"))
    assert set(pl.read_parquet(tmp_path / "out/entities.parquet")["entity_id"]) == {"0", "Q4"}
