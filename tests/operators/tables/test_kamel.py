"""The tables of KAMEL, from a few metrics."""

from typing import Any

import polars as pl
import pytest

from factsweep.operators.datasets.kamel import facts_from_files
from factsweep.operators.tables.kamel import (
    BASELINE,
    by_relation,
    by_slice,
    cardinality_figure,
    extremes,
    headline,
    kind_figure,
    lama,
    overview,
)
from tests.builders import frame, published_numbers

PUBLISHED = published_numbers("kamel")
DEFAULTS: dict[str, Any] = {
    "model": "opt-13b",
    "benchmark": "kamel",
    "setting": "10-shot",
    "metric": "f1",
    "value": 0.17,
    "n": 100,
    "n_failed": 1,
}


def metrics(*rows: dict[str, Any]) -> pl.DataFrame:
    return frame("metrics", *rows, **DEFAULTS)


def whole(**change: Any) -> list[dict[str, Any]]:
    names = ["precision", "recall", "f1", "baseline_precision", "baseline_recall", "baseline_f1"]
    return [{**change, "metric": name, "value": i / 10} for i, name in enumerate(names)]


def test_headline_has_a_row_a_source_and_columns_by_shots() -> None:
    paper = "matching=paper"
    rows = [*whole(), *whole(variant=paper), *whole(variant=paper, setting="1-shot")]
    table = headline(metrics(*rows), PUBLISHED)
    letters = ["P", "R", "F1", "F1 interval"]
    columns = [f"{setting} {x}" for setting in ("1-shot", "10-shot") for x in letters]
    keys = ["model", "benchmark", "variant", "source"]
    assert table.columns == [*keys, *columns, "queries", "failed"]
    assert table.select("variant", "source", "1-shot F1", "10-shot F1", "queries").rows() == [
        (None, "measured", None, "20.00%", 100),
        (None, BASELINE, None, "50.00%", None),
        (paper, "measured", "20.00%", "20.00%", 200),
        (paper, BASELINE, "50.00%", "50.00%", None),
        (paper, "published", "10.92%", "17.62%", None),
    ]


def test_headline_other_models_published_numbers_stay_away() -> None:
    rows = whole(variant="matching=paper", model="smollm2-135m")
    assert headline(metrics(*rows), PUBLISHED)["source"].to_list() == ["measured", BASELINE]


def test_headline_interval_stands_beside_f1() -> None:
    table = headline(metrics({"ci_low": 0.1, "ci_high": 0.25}))
    assert table["10-shot F1 interval"].to_list() == ["10.00%–25.00%"]
    assert headline(metrics({"value": None}))["10-shot F1"].to_list() == ["–"]


def relation_rows(**values: float | None) -> list[dict[str, Any]]:
    return [
        {"slice": f"relation={relation}", "metric": metric, "value": value}
        for relation, value in values.items()
        for metric, value in {"precision": value, "f1": value, "baseline_f1": 0.5}.items()
    ]


def test_by_relation_best_stand_first_and_unmeasured_last() -> None:
    rows = relation_rows(P36=0.1, P17=0.4, P19=0.1, P20=None)
    with_recall = [*rows, {"slice": "relation=P17", "metric": "recall", "value": 0.3}]
    table = by_relation(metrics(*with_recall, {}), {"P17": "country"})
    assert table["ID"].to_list() == ["P17", "P19", "P36", "P20"]
    assert table.row(0)[4:] == ("P17", "country", "40.00%", "30.00%", "40.00%", "50.00%")
    assert table["F1"][3] == "–"


def test_by_relation_published_number_stands_beside_the_same_variant() -> None:
    star = {"variant": "matching=paper,labels=rdf"}
    rows = relation_rows(P30=0.9)
    all_rows = [*rows, *({**row, **star} for row in rows)]
    table = by_relation(metrics(*all_rows), published=PUBLISHED)
    assert table.select("variant", "published F1").rows() == [
        (None, "–"),
        (star["variant"], "91.58%"),
    ]


def test_by_relation_without_relations_is_empty() -> None:
    assert by_relation(metrics({})).is_empty()


def test_extremes_are_the_first_and_the_last() -> None:
    rows = relation_rows(**{f"P{i}": i / 10 for i in range(9)})
    table = extremes(metrics(*rows), n=2)
    assert table.select("end", "ID").rows() == [
        ("best", "P8"),
        ("best", "P7"),
        ("worst", "P1"),
        ("worst", "P0"),
    ]


def test_lama_has_the_slice_and_its_published_number() -> None:
    part = {"slice": "relations=lama", "variant": "matching=paper"}
    table = lama(metrics({**part, "value": 0.2}, {"value": 0.9}), PUBLISHED)
    assert table.select("source", "10-shot F1").rows() == [
        ("measured", "20.00%"),
        ("published", "23.99%"),
    ]


def test_by_slice_kinds_stand_in_order() -> None:
    rows = metrics({"slice": "kind=literal"}, {"slice": "kind=entity"}, {"slice": "cardinality=1"})
    assert by_slice(rows, "kind")["kind"].to_list() == ["entity", "literal"]


def test_overview_counts_what_is_asked() -> None:
    files = {
        "question-templates.csv": "P36, What is the capital of [S]?",
        "P36/train.jsonl": '{"sub_label": "x", "obj_label": ["y"]}',
        "P36/test.jsonl": '{"sub_label": "a", "obj_label": [{"rdf": "b", "chosen": "c"}, "d"]}',
    }
    table = overview(facts_from_files(files), n_tokens=lambda labels: [2 for _ in labels])
    assert dict(table.iter_rows()) == {
        "Number of Queries": "1",
        "Number of Relations": "1",
        "Avg. Number of Tokens": "2.00",
        "Avg. Number of Labels": "1.50",
        "Queries with Multiple Results": "1",
        "Literals": "no",
    }
    assert overview(facts_from_files(files))["test"][2] == "–"


NUMBERS = {"f1": [0.1, 0.2, 0.3], "ci_low": [0.05, None, 0.2], "ci_high": [0.15, None, 0.4]}


def test_cardinality_figure_draws_each_series_by_number_of_answers() -> None:
    names = {"series": ["b", "b", "a"], "cardinality": ["10", "2", "1"]}
    axes: Any
    (axes,) = cardinality_figure(pl.DataFrame({**names, **NUMBERS}), "title").axes
    assert [line.get_label() for line in axes.lines] == ["b", "a"]
    assert list(zip(*axes.lines[0].get_data(), strict=True)) == [(2, 20), (10, 10)]


def test_kind_figure_draws_a_bar_a_series_and_kind() -> None:
    names = {"series": ["a", "a", "b"], "kind": ["entity", "literal", "entity"]}
    (axes,) = kind_figure(pl.DataFrame({**names, **NUMBERS}), "title").axes
    heights = [[bar.get_height() for bar in bars] for bars in axes.containers if len(bars) != 3]
    assert [pytest.approx(height) for height in heights] == [[10, 30], [20]]
    assert [text.get_text() for text in axes.get_xticklabels()] == ["a", "b"]
