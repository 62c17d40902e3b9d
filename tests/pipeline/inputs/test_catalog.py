"""The catalog: entries, the mini set that ships, files that are not right or not as promised."""

import gzip
import importlib.util
import re
import shutil
from dataclasses import replace
from pathlib import Path

import huggingface_hub.constants
import polars as pl
import pytest
import yaml
from polars.testing import assert_frame_equal

from factsweep.operators.datasets.facts import counts
from factsweep.operators.datasets.readers import READERS
from factsweep.operators.errors import DamagedFileError, InputError
from factsweep.pipeline.inputs import catalog
from factsweep.pipeline.inputs.catalog import list_differences
from tests.messages import naming

MINI = catalog.entry("myriadlama-mini")
REAL = catalog.entry("myriadlama")
TABLE_1 = {
    "relations": 41,
    "templates": 4100,
    "unique_triples": 34048,
    "derived_triples": 21140500,
    "pairs": 24643,
    "prompts": 6492800,
}


@pytest.fixture
def rows() -> pl.DataFrame:
    return pl.read_parquet(catalog.list_files(MINI)[0])


@pytest.mark.parametrize("name", catalog.list_names())
def test_entry_every_file_loads_and_has_a_reader(name: str) -> None:
    entry = catalog.entry(name)
    assert entry.name == name
    assert entry.reader in READERS


def test_entry_is_found_by_its_name_and_expects_the_papers_counts() -> None:
    with pytest.raises(InputError, match=naming("myriadlama-mini")):
        catalog.entry("nope")
    assert {name: REAL.counts[name] for name in TABLE_1} == TABLE_1
    assert len(REAL.relations) == TABLE_1["relations"]


@pytest.mark.parametrize(
    ("name", "sizes"), [("probelm-2017-12", (46, 901, 9172)), ("probelm-2021-12", (45, 797, 8571))]
)
def test_entry_probelm_is_compared_with_the_sizes_of_the_authors_files(
    name: str, sizes: tuple[int, ...], tmp_path: Path
) -> None:
    folder = catalog.list_files(catalog.entry("probelm-mini"))[0].parent
    shutil.copy(folder / "prompts.csv", tmp_path)
    year, month = name.split("-")[1:]
    shutil.copy(folder / "102020.json", tmp_path / f"{month}{year}.json")
    entry = catalog.entry(name)
    labels = catalog.entry("probelm-mini").relations
    lines = list(list_differences(replace(entry, relations=labels), str(tmp_path)))
    expected = dict(zip(("relations", "groups", "candidates"), sizes, strict=True))
    starts = [f"{noun}: expected {size:,}, found" for noun, size in expected.items()]
    assert [line for line in lines for start in starts if line.startswith(start)] == lines
    assert len(lines) == len(starts)


def test_mini_rows_are_what_its_yaml_makes() -> None:
    path = catalog.list_files(MINI)[0].parent / "build_rows.py"
    spec = importlib.util.spec_from_file_location("build_rows", path)
    assert spec is not None
    assert spec.loader is not None
    builder = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(builder)
    assert_frame_equal(pl.read_parquet(path.parent / "rows.parquet"), builder.rows())


def test_mini_facts_are_as_many_as_promised() -> None:
    assert set(MINI.counts) >= set(TABLE_1)
    assert list(list_differences(MINI)) == []
    facts = catalog.read_facts(MINI)
    assert facts.relations.height >= 12
    assert facts.pairs.group_by("relation_id").len()["len"].min() >= 20  # type: ignore[operator]
    groups = facts.templates.group_by("relation_id", "group").agg(
        pl.len(), manual=(pl.col("origin") == "manual").sum()
    )
    assert groups.select("len", "manual").unique().rows() == [(5, 1)]
    assert set(groups.group_by("relation_id").len()["len"]) == {2}
    questions = facts.templates.filter(origin="manual", style="question")
    assert set(questions["relation_id"]) == set(facts.relations["relation_id"])


def test_files_none_there_says_how_to_get_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FACTSWEEP_HOME", str(tmp_path))
    with pytest.raises(InputError) as error:
        catalog.list_files(REAL)
    assert str(error.value) == (
        f"myriadlama has no files in {tmp_path}/data/myriadlama; run `factsweep catalog fetch "
        "myriadlama` or give benchmark.path=<folder or file>."
    )


def test_files_local_copy_of_fetched_files_is_found(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    shutil.copy(catalog.list_files(MINI)[0], tmp_path / "data" / "train-0.parquet")
    assert catalog.list_files(REAL, str(tmp_path)) == [tmp_path / "data" / "train-0.parquet"]


def test_read_rows_in_several_files_are_the_same_facts(rows: pl.DataFrame, tmp_path: Path) -> None:
    half = rows.height // 2
    rows[:half].write_parquet(tmp_path / "0.parquet")
    rows[half:].write_parquet(tmp_path / "1.parquet")
    assert_frame_equal(
        catalog.read_facts(MINI, str(tmp_path)).pairs, catalog.read_facts(MINI).pairs
    )


def write(rows: pl.DataFrame, path: Path) -> None:
    """The rows as JSONL, a JSON list or CSV, by the file's name; `.gz`: gzipped."""
    if ".csv" in path.suffixes:
        lists = [name for name, dtype in rows.schema.items() if isinstance(dtype, pl.List)]
        texts = (pl.Series(n, [str(values) for values in rows[n].to_list()]) for n in lists)
        content = rows.with_columns(texts).write_csv()
    else:
        content = rows.write_ndjson() if ".jsonl" in path.suffixes else rows.write_json()
    data = content.encode()
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)


@pytest.mark.parametrize("name", ["rows.jsonl", "rows.json", "rows.csv", "rows.csv.gz"])
def test_read_file_of_any_format_gives_the_same_facts(
    name: str, rows: pl.DataFrame, tmp_path: Path
) -> None:
    write(rows, tmp_path / name)
    facts, shipped = catalog.read_facts(MINI, str(tmp_path)), catalog.read_facts(MINI)
    assert_frame_equal(facts.pairs, shipped.pairs)
    assert_frame_equal(facts.templates, shipped.templates)


def test_read_columns_of_other_names_are_those_that_the_entry_maps(
    rows: pl.DataFrame, tmp_path: Path
) -> None:
    renamed = rows.rename({"sub_ent": "head", "obj_ents": "sub_ent"})  # and one in another's place
    renamed.write_parquet(tmp_path / "rows.parquet")
    mapped = {"sub_ent": {"from": "head"}, "obj_ents": {"from": "sub_ent"}}
    entry = replace(MINI, columns={**MINI.columns, **mapped}, checksum=None)
    assert list(list_differences(entry, str(tmp_path))) == []
    assert_frame_equal(
        catalog.read_facts(entry, str(tmp_path)).pairs, catalog.read_facts(MINI).pairs
    )


def test_read_lines_that_the_refusal_proposes_are_read(rows: pl.DataFrame, tmp_path: Path) -> None:
    renamed = {"rel_uri": "property", "sub_ent": "subject_label", "obj_ents": "object_labels"}
    rows.rename(renamed).write_parquet(tmp_path / "rows.parquet")
    with pytest.raises(InputError, match=naming("rows.parquet", "column rel_uri")) as error:
        catalog.read_facts(MINI, str(tmp_path))
    proposed = yaml.safe_load(str(error.value).partition("would fit:\n")[2])
    entry = replace(MINI, columns={**MINI.columns, **proposed})
    assert_frame_equal(
        catalog.read_facts(entry, str(tmp_path)).pairs, catalog.read_facts(MINI).pairs
    )


def aliases_of(rows: pl.DataFrame) -> str:
    """The other names of subjects and objects, a line of an id, a tab and its names each."""
    subjects = rows.select("sub_uri", "sub_aliases").unique("sub_uri").drop_nulls()
    objects = rows.select("obj_uris", "obj_aliases").explode("obj_uris", "obj_aliases")
    names_by_id = dict(subjects.iter_rows()) | dict(objects.unique("obj_uris").iter_rows())
    return "".join("\t".join([key, *names]) + "\n" for key, names in names_by_id.items() if names)


def test_read_aliases_in_a_file_of_their_own_are_joined_by_id(
    rows: pl.DataFrame, tmp_path: Path
) -> None:
    rows.drop("sub_aliases", "obj_aliases").write_ndjson(tmp_path / "rows.jsonl")
    (tmp_path / "aliases.tsv").write_text(aliases_of(rows))
    elsewhere = {"sub_aliases": {"file": "aliases.*"}, "obj_aliases": {"file": "aliases.*"}}
    entry = replace(MINI, columns={**MINI.columns, **elsewhere})
    of_folder = catalog.read_facts(entry, str(tmp_path))
    of_file = catalog.read_facts(entry, str(tmp_path / "rows.jsonl"))
    assert (
        counts(of_folder)["prompts"] >= counts(catalog.read_facts(MINI))["prompts"]
    )  # pairs share names
    assert_frame_equal(of_folder.pairs, of_file.pairs)


def test_read_aliases_file_that_is_missing_names_it(rows: pl.DataFrame, tmp_path: Path) -> None:
    rows.write_parquet(tmp_path / "rows.parquet")
    elsewhere = {"sub_aliases": {"file": "aliases.tsv"}}
    entry = replace(MINI, columns={**MINI.columns, **elsewhere})
    with pytest.raises(InputError, match=naming("{file", "aliases.tsv}", "next to the data")):
        catalog.read_facts(entry, str(tmp_path))


@pytest.mark.parametrize(
    ("source", "problem"),
    [
        ({"from": "nope"}, r"columns\.sub_ent .* is \{from: nope\}, and the files have no column"),
        ({"form": "head"}, r"columns\.sub_ent is .*; write its type"),
        ({"from": 3}, r"columns\.sub_ent is .*; write its type"),
        ({"file": "rows.parquet"}, r"columns\.sub_ent cannot stand in another file; only sub_al"),
    ],
)
def test_read_line_of_the_entry_that_does_not_fit_is_named(
    source: dict[str, object], problem: str
) -> None:
    with pytest.raises(InputError, match=problem):
        catalog.read_facts(replace(MINI, columns={"sub_ent": source}))


def test_read_unfit_file_among_many_is_named_itself(tmp_path: Path) -> None:
    kamel = catalog.entry("kamel-mini")
    shipped = catalog.list_files(kamel)[0].parents[1]
    shutil.copytree(shipped, tmp_path / "set")
    with (tmp_path / "set" / "question-templates.csv").open("a") as file:
        file.write("P36, Is [S] a capital?\n")
    message = rf"^{tmp_path}/set: set/question-templates\.csv, line \d+: P36 has another question"
    with pytest.raises(InputError, match=message):
        catalog.read_facts(kamel, str(tmp_path / "set"))


def test_mapping_of_a_layout_of_texts_is_refused() -> None:
    kamel = replace(catalog.entry("kamel-mini"), columns={"sub_label": {"from": "subject"}})
    with pytest.raises(InputError, match=naming("layout kamel", "change")):
        catalog.read_facts(kamel)


_WHOLE = catalog.list_files(MINI)[0].read_bytes()


@pytest.mark.parametrize("name", ["rows.parquet", "rows.jsonl"])
@pytest.mark.parametrize(
    "content", [b"", b"neither", b'{"rel_uri": ', _WHOLE[: len(_WHOLE) // 2], _WHOLE[:-100]]
)
def test_read_damaged_file_names_it(name: str, content: bytes, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(DamagedFileError, match=naming(f"{tmp_path}/{name}", "fetch")):
        catalog.read_facts(MINI, f"{tmp_path}/{name}")


def test_read_parquet_damaged_far_in_names_it(rows: pl.DataFrame, tmp_path: Path) -> None:
    path = tmp_path / "rows.parquet"
    rows.write_parquet(path, row_group_size=500)
    content = bytearray(path.read_bytes())
    content[len(content) // 2 : len(content) // 2 + 2000] = bytes(2000)
    path.write_bytes(content)
    with pytest.raises(DamagedFileError, match=naming("rows.parquet")):
        catalog.read_facts(MINI, str(path))


def test_read_unfit_rows_name_file_and_column(rows: pl.DataFrame, tmp_path: Path) -> None:
    for unfit, words in (
        (rows.drop("template"), ["column template"]),
        (rows.with_columns(template=1), ["P17.000", "[X]"]),
        (rows.clear(), ["subject-relation"]),
    ):
        unfit.write_parquet(tmp_path / "rows.parquet")
        with pytest.raises(InputError, match=naming("rows.parquet", *words)):
            catalog.read_facts(MINI, str(tmp_path))
    (tmp_path / "rows.parquet").unlink()
    rows[:100].write_parquet(tmp_path / "0.parquet")
    rows[100:].drop("sub_aliases").write_parquet(tmp_path / "1.parquet")
    with pytest.raises(InputError, match=naming("1.parquet", "sub_aliases")):
        catalog.read_facts(MINI, str(tmp_path))


def test_read_own_files_may_have_relations_that_the_entry_lacks(
    rows: pl.DataFrame, tmp_path: Path
) -> None:
    rows.write_parquet(tmp_path / "rows.parquet")
    entry = replace(REAL, relations={"P36": "seat of government"})
    labels = dict(catalog.read_facts(entry, str(tmp_path)).relations.iter_rows())
    assert (labels["P36"], labels["P17"]) == ("seat of government", "P17")
    with pytest.raises(InputError, match=naming("rows.parquet", "row 0")):
        catalog.read_facts(replace(MINI, relations={"P36": "capital"}))


def test_fetch_entry_that_ships_is_refused() -> None:
    with pytest.raises(InputError, match=naming("ships", "factsweep")):
        catalog.fetch(MINI, print)


@pytest.mark.parametrize(
    ("is_offline", "word"), [(True, "iszhaoxin/MyriadLAMA"), (False, "HF_TOKEN")]
)
def test_fetch_without_a_network_says_so_in_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_offline: bool, word: str
) -> None:
    monkeypatch.setenv("FACTSWEEP_HOME", str(tmp_path))
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", is_offline)
    monkeypatch.setattr(huggingface_hub.constants, "ENDPOINT", "http://127.0.0.1:9")
    with pytest.raises(InputError, match=naming(word)):
        catalog.fetch(REAL, print)


def test_differences_row_missing_names_checksum_and_counts(
    rows: pl.DataFrame, tmp_path: Path
) -> None:
    rows[1:].write_parquet(tmp_path / "rows.parquet")
    entry = replace(MINI, counts={"rows": rows.height}, checksum="0" * 64)
    checksum, n_rows = list_differences(entry, str(tmp_path))
    assert checksum.startswith(f"checksum: expected {'0' * 64}, found ")
    assert n_rows == f"rows: expected {rows.height:,}, found {rows.height - 1:,} (1 fewer)"


@pytest.mark.parametrize(
    ("columns", "lines"),
    [
        ({"uuid?": "str", "template": "str"}, []),
        (MINI.columns, ["column uuid: missing"]),
        (
            {"sub_aliases?": "list[str]"},
            ["prompts: expected 12,700, found 5,530 (7,170 fewer); the files have no sub_aliases"],
        ),
    ],
)
def test_differences_missing_column_is_named_unless_it_is_optional(
    rows: pl.DataFrame, tmp_path: Path, columns: dict[str, str], lines: list[str]
) -> None:
    missing = "sub_aliases" if "sub_aliases?" in columns else "uuid"
    rows.drop(missing).write_parquet(tmp_path / "rows.parquet")
    counts = {"relations": 17, "prompts": 12700} if missing == "sub_aliases" else {}
    entry = replace(MINI, columns=columns, counts=counts, checksum=None)
    assert list(list_differences(entry, str(tmp_path))) == lines


def test_differences_unknown_count_names_it() -> None:
    with pytest.raises(InputError, match=naming("nope")):
        list(list_differences(replace(MINI, counts={"nope": 1})))


def test_differences_rows_that_contradict_each_other_are_counted(
    rows: pl.DataFrame, tmp_path: Path
) -> None:
    first = pl.int_range(pl.len()) == 0
    other = pl.when(first).then(pl.lit("Elsewhere")).otherwise("sub_ent").alias("sub_ent")
    rows.with_columns(other).write_parquet(tmp_path / "rows.parquet")
    entry = replace(MINI, counts={}, checksum=None)
    pairs, subjects = list_differences(entry, str(tmp_path))
    assert re.search(naming("contradicting_pairs", "0", "1 more"), pairs)
    assert re.search(naming("subjects_of_two_labels", "0", "1 more"), subjects)
