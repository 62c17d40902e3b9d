"""kamel-mini and probelm-mini: what ships is what its sources say, and takes the whole way."""

import csv
import runpy
from collections import defaultdict
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import polars as pl
import pytest
import yaml

from factsweep.operators.datasets import kamel as kamel_files
from factsweep.operators.datasets import probelm as probelm_files
from factsweep.operators.datasets.facts import Facts
from factsweep.operators.datasets.kamel import DATE, NUMBER, is_literal
from factsweep.operators.datasets.probelm import Groups, candidates, groups_from_files
from factsweep.operators.metrics.kamel import LAMA_RELATIONS, kamel
from factsweep.operators.metrics.probelm import probelm
from factsweep.operators.prompts.few_shot import FewShot, expand
from factsweep.operators.prompts.plausibility import PROMPT_TYPES, items

CATALOG = Path(__file__).parents[3] / "data_catalog"
SETS = ("kamel-mini", "probelm-mini")
FRAMES = ("2017-12", "2020-10", "2021-12", "2023-11")


def files_of(name: str) -> dict[str, str]:
    folder = CATALOG / "mini" / name
    paths = [path for path in folder.rglob("*") if path.suffix in (".json", ".jsonl", ".csv")]
    return {path.relative_to(folder).as_posix(): path.read_text("utf-8") for path in paths}


def entry(name: str) -> dict[str, Any]:
    fields: dict[str, Any] = yaml.safe_load((CATALOG / f"{name}.yaml").read_text())
    return fields


@pytest.fixture(scope="module")
def kamel_mini() -> Facts:
    return kamel_files.facts_from_files(files_of("kamel-mini"))


@pytest.fixture(scope="module")
def probelm_mini() -> Groups:
    return groups_from_files(files_of("probelm-mini"), entry("probelm-mini")["relations"])


@pytest.mark.parametrize("name", SETS)
def test_mini_files_are_those_of_their_sources_with_the_checksum_of_the_entry(name: str) -> None:
    folder = CATALOG / "mini" / name
    build = runpy.run_path(str(folder / "build_files.py"))
    assert build["files"]() == files_of(name)
    assert entry(name)["checksum"] == build["checksum"](folder)
    pattern = entry(name)["source"]["files"]
    assert {path.relative_to(folder).as_posix() for path in folder.glob(pattern)} == {
        *files_of(name)
    }


def test_mini_entries_name_counts_and_relations(kamel_mini: Facts, probelm_mini: Groups) -> None:
    assert entry("kamel-mini")["counts"] == kamel_files.counts(kamel_mini)
    assert set(entry("kamel-mini")["relations"]) == set(kamel_mini.relations["relation_id"])
    assert entry("probelm-mini")["counts"] == probelm_files.counts(probelm_mini)


def test_kamel_mini_has_literals_and_many_answers_and_shows_no_query(kamel_mini: Facts) -> None:
    objects = kamel_mini.pairs.filter(split="test").explode("objects").unnest("objects")
    assert set(objects.filter(is_literal(pl.col("object_id")))["object_id"]) == {DATE, NUMBER}
    sizes = kamel_mini.pairs["objects"].list.len()
    assert sizes.max() == 9
    assert (sizes > 1).sum() > 100
    names = kamel_mini.pairs.select("relation_id", pl.col("subjects").list.first(), "split")
    splits = names.group_by("relation_id", "subjects").agg(pl.col("split").n_unique())
    assert splits["split"].max() == 1


def test_kamel_entry_has_the_papers_relations() -> None:
    assert len(entry("kamel")["relations"]) == entry("kamel")["counts"]["relations"] == 234
    assert set(LAMA_RELATIONS) - set(entry("kamel")["relations"]) == {"P530"}


def published() -> list[dict[str, str]]:
    with (CATALOG / "published/kamel.csv").open() as file:
        return list(csv.DictReader(file))


def test_published_f1_is_the_harmonic_mean_of_the_printed_shares() -> None:
    groups: dict[tuple[str, ...], dict[str, float]] = defaultdict(dict)
    for row in published():
        place = tuple(row[name] for name in ("table", "model", "setting", "variant", "slice"))
        groups[place][row["metric"]] = float(row["value"])
    complete = [
        values for values in groups.values() if {"precision", "recall", "f1"} <= set(values)
    ]
    assert len(complete) > 240
    for values in complete:
        p, r = values["precision"], values["recall"]
        expected = 2 * p * r / (p + r) if p + r else 0
        assert values["f1"] == pytest.approx(expected, abs=1.51e-4)


def test_published_table_6_averages_to_the_row_of_rdf_labels() -> None:
    star = "matching=paper,labels=rdf"
    rows = [row for row in published() if row["setting"] == "10-shot" and row["variant"] == star]
    for metric, expected, unread in (("precision", 0.1621, 3), ("recall", 0.1596, 2)):
        values = [float(r["value"]) for r in rows if r["table"] == "6" and r["metric"] == metric]
        assert len(values) == 234 - unread
        assert sum(values) / len(values) == pytest.approx(expected, abs=5e-4)
        (printed,) = (r["value"] for r in rows if r["table"] == "2" and r["metric"] == metric)
        assert float(printed) == expected


def test_kamel_mini_right_answers_are_right_in_every_slice(kamel_mini: Facts) -> None:
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


def test_kamel_mini_every_query_is_asked_with_the_papers_shots(kamel_mini: Facts) -> None:
    for shots in (1, 5, 10):
        parts = list(expand(kamel_mini, FewShot(shots), seed=0))
        assert sum(part.prompts.height for part in parts) == 120
        lines = [text.count("%\n") for part in parts for text in part.contexts["text"]]
        assert set(lines) == {shots}


def test_probelm_mini_has_two_frames_and_groups_of_eleven(probelm_mini: Groups) -> None:
    pairs = probelm_mini.facts.pairs
    assert pairs.height >= 40
    assert set(pairs["split"]) == {"2020-10", "2023-11"}
    assert set(candidates(probelm_mini.facts).group_by("pair_id").len()["len"]) == {11}
    assert probelm_mini.dropped.is_empty()


def test_probelm_mini_right_rankings_score_one_and_reversed_ones_nothing(
    probelm_mini: Groups,
) -> None:
    ranked = candidates(probelm_mini.facts)
    texts = [items(probelm_mini.facts, prompt_type, seed=0) for prompt_type in PROMPT_TYPES]
    rows = pl.concat(texts).join(ranked, on="candidate_id")
    assert rows.height == 3 * ranked.height
    for sign, accuracy in ((-1, 1.0), (1, 0.0)):
        scores = rows.select("setting", "candidate_id", logprob=sign * pl.col("rank"), n_tokens=1)
        table = probelm(scores, ranked, seed=0, n_rounds=2)
        accuracies = table.filter(pl.col("metric") == "accuracy")
        assert accuracies["value"].unique().to_list() == [accuracy]
        assert accuracies["slice"].n_unique() == 1 + 2 + 7  # all, the frames, the relations


@pytest.mark.parametrize("frame", FRAMES)
def test_probelm_entry_takes_the_files_of_its_frame_alone(frame: str) -> None:
    fields = entry(f"probelm-{frame}")
    assert len(fields["relations"]) == len(set(fields["relations"].values())) == 71
    names = {month: f"{month[5:]}{month[:4]}.json" for month in FRAMES}
    matches = [month for month, name in names.items() if fnmatch(name, fields["source"]["files"])]
    assert matches == [frame]
    assert fnmatch("prompts.csv", fields["source"]["files"])


@pytest.mark.parametrize("frame", ["2020-10", "2023-11"])
def test_probelm_entry_counts_what_is_in_the_files(shared_data: Path, frame: str) -> None:
    fields = entry(f"probelm-{frame}")
    paths = sorted((shared_data / "probelm").glob(fields["source"]["files"]))
    files = {path.name: path.read_text("utf-8") for path in paths}
    groups = groups_from_files(files, fields["relations"])
    assert probelm_files.counts(groups) == fields["counts"]
