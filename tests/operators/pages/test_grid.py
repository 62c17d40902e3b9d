"""The tables and tiles of a page: their order, their colours, and what is left out."""

import polars as pl
import pytest

from factsweep.operators.pages.page import Cell, Tile, headline, heat_map, tiles

ROWS = {"a": {"P1": 0.0, "P2": 0.5, "P3": None}, "b": {"P1": 1.25, "P2": 0.5, "P3": None}}


def by_relation(n_settings: int = 2) -> pl.DataFrame:
    rows = [
        (f"{name}{number or ''}", f"relation={relation}", "acc_at_1", value)
        for number in range(n_settings // 2)
        for name, values in ROWS.items()
        for relation, value in values.items()
    ]
    return pl.DataFrame(rows, schema=["asked", "slice", "metric", "value"], orient="row")


def test_heat_map_has_the_best_relation_first_and_colours_within_the_scale() -> None:
    table = heat_map(by_relation(), "acc_at_1", {"P1": "capital"})
    assert table is not None
    assert table.columns == ("a", "b")
    assert table.rows == (
        ("P1", "capital", (Cell("0", 0), Cell("125", 20))),
        ("P2", "", (Cell("50", 10), Cell("50", 10))),
        ("P3", "", (Cell("–", None), Cell("–", None))),
    )
    assert table.n_left_out == 0


def test_heat_map_of_many_settings_shows_forty_and_none_without_relations() -> None:
    table = heat_map(by_relation(44), "acc_at_1", {})
    assert table is not None
    assert (len(table.columns), len(table.rows[0][2]), table.n_left_out) == (40, 40, 4)
    assert heat_map(by_relation().with_columns(slice=pl.lit("years=1900")), "acc_at_1", {}) is None


@pytest.mark.parametrize(("n", "n_tiles"), [(0, 0), (6, 6), (7, 0)])
def test_tiles_are_six_or_none(n: int, n_tiles: int) -> None:
    ends = {name: [0.5] * n for name in ("value", "ci_low", "ci_high")}
    rows = pl.DataFrame({"asked": [f"m{i}" for i in range(n)], **ends}).with_columns(
        slice=pl.lit(None, pl.String), metric=pl.lit("acc")
    )
    assert len([*tiles(rows, "acc")]) == n_tiles


def test_tile_has_its_interval_or_the_spread_of_its_seeds() -> None:
    rows = pl.DataFrame({"asked": ["a", "b"], "value": [0.5, 0.25], "ci_low": [0.4, None]})
    rows = rows.with_columns(slice=pl.lit(None, pl.String), metric=pl.lit("acc"), ci_high=0.6)
    assert [*tiles(rows, "acc")] == [Tile("a", "50.0 %", "40.0 – 60.0"), Tile("b", "25.0 %", "")]


def test_headline_of_several_models_keeps_the_metrics_of_all() -> None:
    rows = [("x", "acc", ".5"), ("x", "sd", ".1"), ("y", "consist", ".2"), ("y", "acc", ".4")]
    metrics = pl.DataFrame(rows, schema=["model", "metric", "zero-shot"], orient="row")
    card = lambda rows: rows.drop("model")  # noqa: E731
    table = headline(metrics, card)
    assert table.columns == ("metric", "x zero-shot", "y zero-shot")
    assert table.rows == (("acc", ".5", ".4"), ("sd", ".1", "–"), ("consist", "–", ".2"))
    assert headline(metrics.filter(model="x"), card).columns == ("metric", "zero-shot")
    assert headline(metrics.clear(), card).rows == ()
