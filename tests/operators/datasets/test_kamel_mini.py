"""kamel-mini: what ships is what its sources say, and the reader reads it."""

import csv
import runpy
from collections import defaultdict
from pathlib import Path

import polars as pl
import pytest
import yaml

from factsweep.operators.datasets.facts import Facts
from factsweep.operators.datasets.kamel import DATE, NUMBER, counts, facts_from_files, is_literal
from factsweep.operators.metrics.kamel import LAMA_RELATIONS, kamel
from factsweep.operators.prompts.few_shot import FewShot, expand

CATALOG = Path(__file__).parents[3] / "data_catalog"
FOLDER = CATALOG / "mini/kamel-mini"


def read() -> dict[str, str]:
    paths = [FOLDER / "question-templates.csv", *FOLDER.glob("P*/*.jsonl")]
    return {path.relative_to(FOLDER).as_posix(): path.read_text("utf-8") for path in paths}


@pytest.fixture(scope="module")
def kamel_mini() -> Facts:
    return facts_from_files(read())


def test_mini_files_are_those_of_their_sources() -> None:
    assert runpy.run_path(str(FOLDER / "build_files.py"))["files"]() == read()


def test_mini_entry_names_counts_relations_and_checksum(kamel_mini: Facts) -> None:
    entry = yaml.safe_load((CATALOG / "kamel-mini.yaml").read_text())
    assert entry["counts"] == counts(kamel_mini)
    assert set(entry["relations"]) == set(kamel_mini.relations["relation_id"])
    assert entry["checksum"] == runpy.run_path(str(FOLDER / "build_files.py"))["checksum"](FOLDER)
    found = {path.relative_to(FOLDER).as_posix() for path in FOLDER.glob(entry["source"]["files"])}
    assert found == set(read())


def test_mini_has_literals_and_many_answers(kamel_mini: Facts) -> None:
    objects = kamel_mini.pairs.filter(split="test").explode("objects").unnest("objects")
    assert set(objects.filter(is_literal(pl.col("object_id")))["object_id"]) == {DATE, NUMBER}
    sizes = kamel_mini.pairs["objects"].list.len()
    assert sizes.max() == 9
    assert (sizes > 1).sum() > 100


def test_mini_no_query_is_asked_that_is_shown(kamel_mini: Facts) -> None:
    names = kamel_mini.pairs.select("relation_id", pl.col("subjects").list.first(), "split")
    splits = names.group_by("relation_id", "subjects").agg(pl.col("split").n_unique())
    assert splits["split"].max() == 1


def test_kamel_entry_has_the_papers_relations() -> None:
    entry = yaml.safe_load((CATALOG / "kamel.yaml").read_text())
    assert len(entry["relations"]) == entry["counts"]["relations"] == 234
    assert set(LAMA_RELATIONS) - set(entry["relations"]) == {"P530"}


def published() -> list[dict[str, str]]:
    with (CATALOG / "published/kamel.csv").open() as file:
        return list(csv.DictReader(file))


def test_published_f1_is_the_harmonic_mean_of_the_printed_shares() -> None:
    groups: dict[tuple[str, ...], dict[str, float]] = defaultdict(dict)
    for row in published():
        place = tuple(row[name] for name in ("table", "model", "setting", "variant", "slice"))
        groups[place][row["metric"]] = float(row["value"])
    whole = [each for each in groups.values() if {"precision", "recall", "f1"} <= set(each)]
    assert len(whole) > 240
    for each in whole:
        p, r = each["precision"], each["recall"]
        expected = 2 * p * r / (p + r) if p + r else 0
        assert each["f1"] == pytest.approx(expected, abs=1.51e-4)


def test_published_table_6_averages_to_the_row_of_rdf_labels() -> None:
    star = "matching=paper,labels=rdf"
    rows = [row for row in published() if row["setting"] == "10-shot" and row["variant"] == star]
    for metric, expected, unread in (("precision", 0.1621, 3), ("recall", 0.1596, 2)):
        values = [float(r["value"]) for r in rows if r["table"] == "6" and r["metric"] == metric]
        assert len(values) == 234 - unread
        assert sum(values) / len(values) == pytest.approx(expected, abs=5e-4)
        (printed,) = (r["value"] for r in rows if r["table"] == "2" and r["metric"] == metric)
        assert float(printed) == expected


def test_mini_right_answers_are_right_in_every_slice(kamel_mini: Facts) -> None:
    labels = pl.col("objects").list.eval(pl.element().struct.field("labels").list.first())
    right = pl.concat_str(pl.lit(" "), labels.list.join("; "), pl.lit("%"))
    answers = kamel_mini.pairs.filter(split="test").select("pair_id", text=right)
    table = kamel(answers, kamel_mini.pairs, seed=0, n_rounds=2)
    strict = table.filter(~pl.col("variant").fill_null("").str.contains("paper"))
    assert strict.filter(pl.col("metric") == "f1")["value"].unique().to_list() == [1]
    paper = table.filter(pl.col("variant") == "matching=paper", pl.col("metric") == "f1")
    values = dict(paper.select("slice", "value").iter_rows())
    assert values["cardinality=1"] == 1
    assert values["cardinality=2"] == 0.5  # of two answers, the second keeps its space


@pytest.mark.parametrize("shots", [1, 5, 10])
def test_mini_every_query_is_asked_with_the_papers_shots(kamel_mini: Facts, shots: int) -> None:
    parts = list(expand(kamel_mini, FewShot(shots), seed=0))
    assert sum(each.prompts.height for each in parts) == 120
    lines = [text.count("%\n") for each in parts for text in each.contexts["text"]]
    assert set(lines) == {shots}
