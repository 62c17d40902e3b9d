"""The tables of PRobELM, from a few metrics; and the published numbers themselves."""

from collections import defaultdict
from statistics import mean
from typing import Any

import numpy as np
import polars as pl
import pytest
import yaml
from scipy.optimize import linprog

from factsweep.operators.tables.probelm import (
    RANDOM,
    SEEN,
    agreement,
    by_frame,
    by_relation,
    frames_figure,
    headline,
    months,
    over_frames,
    overview,
    ranking,
)
from tests.builders import ROOT, frame, published_numbers

PUBLISHED = published_numbers("probelm")
CUTOFFS = {"olmo-1b": "2023-03", "gpt2": "2017-12"}
DEFAULTS: dict[str, Any] = {
    "model": "olmo-1b",
    "benchmark": "probelm-2023-11",
    "setting": "all",
    "slice": "frame=2023-11",
    "metric": "plausibility",
    "value": 0.45,
    "n": 100,
    "n_failed": 1,
}
ACCURACY = {"setting": "statement", "metric": "accuracy", "value": 0.3}


def metrics(*rows: dict[str, Any]) -> pl.DataFrame:
    return frame("metrics", *rows, **DEFAULTS)


def test_by_frame_measured_published_and_random_stand_below_each_other() -> None:
    at_3 = {"setting": "statement", "metric": "ndcg_at_3", "value": 0.5}
    chance = {**ACCURACY, "metric": "baseline_accuracy", "value": 1 / 11}
    table = by_frame(metrics({}, ACCURACY, at_3, chance, {"slice": None}), PUBLISHED, CUTOFFS)
    columns = ["frame", "source", "Plausibility", "Statement Acc.", "Statement NDCG@3", "groups"]
    assert table.select(columns).rows() == [
        ("2023-11", "measured", "45.00", "30.00", "50.00", 100),
        ("2023-11", "published", "–", "29.96", "50.13", None),
        ("2023-11", RANDOM, "–", "9.09", "–", None),
    ]
    assert "Completion Acc." not in table.columns


def test_by_frame_frame_before_the_cutoff_is_marked() -> None:
    frames = ["2020-10", "2023-02", "2023-03", "2023-11"]
    rows = metrics(*({**ACCURACY, "slice": f"frame={item}"} for item in frames))
    marked = [f"2020-10 {SEEN}", f"2023-02 {SEEN}", "2023-03", "2023-11"]
    assert by_frame(rows, cutoffs=CUTOFFS)["frame"].to_list() == marked
    assert by_frame(rows)["frame"].to_list() == frames


def test_by_frame_without_a_relation_and_interval_have_columns_of_their_own() -> None:
    less = {"slice": "frame=2023-11,without=P106", "value": 0.5}
    table = by_frame(metrics({"ci_low": 0.4, "ci_high": 0.475}, less, ACCURACY))
    names = ["Plausibility", "95 % interval", "without P106", "failed"]
    assert table.select(names).rows() == [("45.00", "40.00–47.50", "50.00", 1)]


def test_headline_has_each_model_on_its_first_unseen_frame() -> None:
    rows = [
        {**row, "model": model, "slice": f"frame={frame}", "benchmark": f"probelm-{frame}"}
        for model in ("olmo-1b", "gpt2", "unknown")
        for frame in ("2017-12", "2020-10", "2023-11", "2024-11")
        for row in ({}, ACCURACY)
    ]
    table = headline(metrics(*rows), PUBLISHED, CUTOFFS)
    assert table.select("model", "frame", "source", "Statement Acc.").rows() == [
        ("gpt2", "2017-12", "measured", "30.00"),
        ("gpt2", "2017-12", "published", "29.08"),
        ("olmo-1b", "2023-11", "measured", "30.00"),
        ("olmo-1b", "2023-11", "published", "29.96"),
    ]


def test_ranking_places_models_within_their_source() -> None:
    values = {"a": 0.3, "b": 0.5, "c": 0.3}
    rows = [{"model": model, "value": value} for model, value in values.items()]
    chance = {"model": "a", "metric": "baseline_plausibility"}
    result = ranking(by_frame(metrics(*rows, chance)))
    assert result.select("model", "Plausibility").rows() == [
        ("b", "50.00 (1)"),
        ("a", "30.00 (2)"),
        ("c", "30.00 (2)"),
    ]


def test_by_relation_best_stand_first_and_undefined_last() -> None:
    values = {"P1": 0.1, "P2": None, "P3": 0.4}
    rows = [{"slice": f"relation={item}", "value": value} for item, value in values.items()]
    table = by_relation(metrics(*rows, {}), {"P3": "editor"})
    assert table.select("ID", "Label", "Plausibility").rows() == [
        ("P3", "editor", "40.00"),
        ("P1", "P1", "10.00"),
        ("P2", "P2", "–"),
    ]


def test_overview_counts_groups_and_scenarios() -> None:
    candidates = pl.DataFrame({"frame": ["2023-11"] * 3, "pair_id": ["a", "a", "b"]})
    table = overview(metrics({}, {"model": "late"}), candidates, {"late": "2024-01"})
    assert table.rows() == [
        ("late", "2024-01", f"Nov 2023 - Dec 2023 {SEEN}", 2, 3),
        ("olmo-1b", "–", "Nov 2023 - Dec 2023", 2, 3),
    ]


@pytest.mark.parametrize(
    ("frame", "expected"), [("2017-12", "Dec 2017 - Jan 2018"), ("2020-10", "Oct 2020 - Nov 2020")]
)
def test_months_are_two(frame: str, expected: str) -> None:
    assert months(frame) == expected


def test_over_frames_takes_whole_frames_alone() -> None:
    rows = metrics({}, {"slice": None}, {"slice": "frame=2023-11,without=P106"}, ACCURACY)
    assert over_frames(rows).select("frame", "value", "n").rows() == [("2023-11", 0.45, 100)]


def test_published_correlations_are_those_of_the_papers_text() -> None:
    table = agreement(PUBLISHED.filter(table="2"))
    result = {(first, second): pearson for first, second, pearson, _ in table.iter_rows()}
    assert result["Statement", "Completion"] == 0.8281
    assert result["Statement", "Question"] == 0.8672
    assert result["Completion", "Question"] == 0.8976
    assert result["MRR", "NDCG@3"] == 0.9982


Cells = dict[tuple[str, str], dict[tuple[str, str], float]]


@pytest.fixture(scope="module")
def cells() -> Cells:
    result: Cells = defaultdict(dict)
    for row in PUBLISHED.filter(~pl.col("slice").str.contains("without")).iter_rows(named=True):
        result[row["table"], row["model"]][row["setting"], row["metric"]] = row["value"]
    return result


def test_published_tables_have_ten_models_with_a_configuration(cells: Cells) -> None:
    for table in "24567":
        models = [model for item, model in cells if item == table]
        assert len(models) == 10
        for model in models:
            config = yaml.safe_load((ROOT / f"conf/model/{model}.yaml").read_text())
            assert config["name"] == model


def test_published_plausibility_is_the_mean_of_the_nine_but_for_slips(cells: Cells) -> None:
    off = {
        place: abs(mean(nine) - numbers["all", "plausibility_published"])
        for place, numbers in cells.items()
        if len(nine := [x for (setting, _), x in numbers.items() if setting != "all"]) == 9
    }
    assert len(off) == 49  # in one row of Table 4, a cell repeats the row's plausibility
    assert {place for place, item in off.items() if item > 0.003} == {
        ("2", "bloom-7b1"),  # the mean is Table 6's number for the same model and frame
        ("6", "pythia-160m"),
    }


def reachable(accuracy: float, mrr: float, ndcg: float, cut: int) -> bool:
    """Whether some distribution of ranks among 11 has all three, each rounded to four digits."""
    ranks = np.arange(1, 12)
    discounts = np.where(ranks <= cut, 1 / np.log2(ranks + 1), 0)
    half = 1e-4
    result = linprog(
        np.zeros(11),
        A_ub=[1 / ranks, -1 / ranks, discounts, -discounts],
        b_ub=[mrr + half, half - mrr, ndcg + half, half - ndcg],
        A_eq=[np.ones(11), np.eye(11)[0]],
        b_eq=[1, accuracy],
    )
    return bool(result.success)


def test_published_ndcg_can_be_binary_cut_at_3_and_never_over_the_whole_list(cells: Cells) -> None:
    triples = [
        [numbers[setting, metric] for metric in ("accuracy", "mrr", "ndcg_at_3")]
        for numbers in cells.values()
        for setting in ("statement", "completion", "question")
        if (setting, "ndcg_at_3") in numbers
    ]
    assert len(triples) == 149
    assert all(reachable(*item, cut=3) for item in triples)
    assert not any(reachable(*item, cut=11) for item in triples)


FRAMES = pl.DataFrame(
    {
        "series": ["b", "b", "a", "a"],
        "frame": ["2023-11", "2020-10", "2023-11", "2020-10"],
        "value": [0.4, 0.5, None, 0.3],
        "ci_low": [0.35, 0.45, None, None],
        "ci_high": [0.45, 0.55, None, None],
    }
)


def test_frames_figure_draws_each_series_in_order_of_time() -> None:
    axes: Any
    (axes,) = frames_figure(FRAMES, "title").axes
    assert [line.get_label() for line in axes.lines] == ["b", "a"]
    assert [list(line.get_ydata()) for line in axes.lines] == [[50, 40], [30]]
    assert list(axes.lines[0].get_xdata()) == [2020.75, 2023 + 10 / 12]


def test_frames_figure_has_a_dotted_cutoff_and_hollow_frames_before_it() -> None:
    axes: Any
    (axes,) = frames_figure(FRAMES, "title", {"b": "2022-01"}).axes
    (dotted,) = [line for line in axes.lines if line.get_linestyle() == ":"]
    assert list(dotted.get_xdata()) == [2022, 2022]
    (hollow,) = [line for line in axes.lines if line.get_markerfacecolor() == "white"]
    assert list(hollow.get_ydata()) == [50]
    assert len(axes.get_legend().get_texts()) == 2
