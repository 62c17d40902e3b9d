"""The spread of a relation's templates: what is drawn of it."""

import polars as pl
import pytest

from factsweep.operators.tables.belief.figures import spread_by_relation, template_spread_figure


def rows(**relations: list[float | None]) -> pl.DataFrame:
    table = [
        {"slice": f"relation={name}", "metric": f"template_spread_{part}", "value": value}
        for name, values in relations.items()
        for part, value in zip(("min", "mean", "max"), values, strict=True)
    ]
    return pl.DataFrame(table)


def test_spread_relations_stand_by_their_mean() -> None:
    spread = spread_by_relation(rows(P1=[0, 0.1, 0.9], P2=[0.2, 0.5, 0.6], P3=[0.1, 0.5, 0.5]))
    assert spread["relation"].to_list() == ["P2", "P3", "P1"]


def test_spread_relation_without_a_number_is_left_out() -> None:
    assert spread_by_relation(rows(P1=[None, None, None])).is_empty()
    assert spread_by_relation(rows(P1=[0, 0.1, 0.9]).head(2)).is_empty()


def test_figure_bar_reaches_from_the_worst_to_the_best_template() -> None:
    spread = spread_by_relation(rows(P1=[0, 0.1, 0.9], P2=[0.2, 0.5, 0.6]))
    (axes,) = template_spread_figure(spread, "title").axes
    bars = [(bar.get_x(), bar.get_x() + bar.get_width()) for bar in axes.patches]
    assert bars == [pytest.approx((0.2, 0.6)), pytest.approx((0, 0.9))]
    assert list(axes.lines[0].get_xdata()) == [0.5, 0.1]
    assert [text.get_text() for text in axes.get_yticklabels()] == ["P2", "P1"]
