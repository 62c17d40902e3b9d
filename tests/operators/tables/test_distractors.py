"""The tables of the distractor measure: what stands in their rows."""

from typing import Any

import polars as pl
import pytest

from factsweep.operators.metrics.distractors.agreement import AGREEMENT
from factsweep.operators.tables import distractors as tables
from tests.builders import frame, published_numbers

PUBLISHED = published_numbers("distractors")
NAMES = dict.fromkeys(("model", "benchmark", "setting", "variant"), pl.String)
RUN = {"model": "gpt2-xl", "benchmark": "distractors-probing", "variant": "ending=eos"}


def metrics(*rows: dict[str, Any]) -> pl.DataFrame:
    complete_rows = [
        {"setting": "optimal", "slice": None, "n": 4, "n_failed": 1, **RUN, **r} for r in rows
    ]
    return frame("metrics", *complete_rows)


def number(
    metric: str, value: float | None, part: str | None = None, **columns: Any
) -> dict[str, Any]:
    return {"metric": metric, "value": value, "slice": part, **columns}


def test_headline_has_every_number_in_percent_and_its_counts() -> None:
    table = tables.headline(
        metrics(
            number("probability", 0.125),
            number("min_at_1", 0.5, ci_low=0.25, ci_high=0.75),
            number("avg_at_10", None),
            number("min_at_1", 0.9, "relation=P1"),
            number("left_out_at_1", 1.0),
        )
    )
    (row,) = table.drop("model", "benchmark", "setting", "variant").rows(named=True)
    assert row == {
        "Min@1": "50.00",
        "Avg@10": "–",
        "Probability": "12.50",
        "Min@1, 95 %": "25.00–75.00",
        "prompts": 4,
        "failed": 1,
    }


def test_headline_names_the_width_of_a_beam_in_the_heading() -> None:
    table = tables.headline(
        metrics(number("probability", 0.5), number("rouge_l", 0.25, variant="ending=eos,width=5"))
    )
    assert table["ROUGE-L width=5"].to_list() == ["25.00"]
    assert table["variant"].to_list() == ["ending=eos"]


def test_published_number_stands_under_the_measured_one() -> None:
    place = {"model": "pythia-6.9b", "benchmark": "distractors"}
    rows = metrics(
        number("min_at_1", 0.5, "sample=balanced", **place),
        number("min_at_1", 0.25, "sample=other", **place),
    )
    table = tables.by_sample(rows, PUBLISHED)
    assert table.select("sample", "source", "Min@1").rows() == [
        ("balanced", "measured", "50.00"),
        ("balanced", "published", "40.00"),
        ("other", "measured", "25.00"),
    ]


def test_relations_known_worst_stand_first() -> None:
    rows = metrics(
        number("min_at_1", 0.5, "relation=P1"),
        number("min_at_1", None, "relation=P2"),
        number("min_at_1", 0.25, "relation=P3"),
    )
    table = tables.by_relation(rows, {"P3": "capital"})
    assert table.select("ID", "Label", "Min@1").rows() == [
        ("P3", "capital", "25.00"),
        ("P1", "P1", "50.00"),
        ("P2", "P2", "–"),
    ]


def test_deciles_stand_in_the_order_of_numbers() -> None:
    rows = metrics(*(number("min_at_1", 0.5, f"tokens={n}") for n in (10, 2, 1)))
    assert tables.by_slice(rows, "tokens", "tokens")["tokens"].to_list() == ["1", "2", "10"]


def test_agreement_stands_beside_the_published_one_in_its_order() -> None:
    rows = metrics(
        number("kendall_tau", 0.3, "measure=distractors"),
        number("kendall_tau_sd", 0.1, "measure=distractors"),
        number("kendall_tau", 0.25, "measure=probability"),
        number("kendall_tau", 0.26, "measure=probability", setting="random"),
    )
    table = tables.agreement(rows, PUBLISHED)
    measured_rows = table.filter(source="measured").select("measure", "Mean τ", "Std τ").rows()
    assert measured_rows == [("Probability", "0.250", None), ("Dist. ApprOpt", "0.300", "0.100")]
    assert table["measure"].unique(maintain_order=True).to_list() == [
        *("KaRR", "ROUGE-L", "BERT-score", "Precision@n", "Probability"),
        *("Dist. Random", "Dist. Temp+Sem", "Dist. ApprOpt", "LLM-as-a-judge"),
    ]
    optimal = table.filter(measure="Dist. ApprOpt").select("source", "Mean τ").rows()
    assert optimal == [("measured", "0.300"), ("published", "0.282")]


def test_missing_measures_have_their_reason() -> None:
    rows = metrics(number("kendall_tau", 0.3, "measure=distractors"))
    table = dict(tables.missing(tables.agreement(rows, PUBLISHED)).iter_rows())
    assert "Dist. ApprOpt" not in table
    assert table["KaRR"].startswith("no clozes of other subjects")
    assert "metrics.judge_url" in table["LLM-as-a-judge"]
    assert table["Dist. Random"] == "no run of this setting"


def test_robustness_has_the_published_ones() -> None:
    place = {"benchmark": "distractors-verbalisations"}
    rows = metrics(number("robustness", 0.9, "measure=distractors", **place))
    table = tables.robust(rows, PUBLISHED).filter(measure="Dist. ApprOpt")
    assert table.select("source", "Robustness").rows() == [
        ("measured", "0.900"),
        ("published", "0.920"),
    ]


def test_configurations_are_those_that_folds_chose_over_all_clozes() -> None:
    rows = [
        ("gpt2-xl", "b", "optimal", None, "distractors", f"min@{n}", m, 0, n == 2, 0.5, 0.25, 70)
        for n in (1, 2)
        for m in (1, 2)
    ]
    taus = pl.DataFrame(rows, schema={**NAMES, **AGREEMENT}, orient="row")
    (row,) = tables.configurations(taus).drop("benchmark", "variant").rows()
    assert row == ("gpt2-xl", "optimal", "Dist. ApprOpt", 0, "min@2", "0.500", "0.250", 70)
    assert tables.configurations(taus)["facts"].to_list() == [70]


def test_card_shows_the_overall_numbers() -> None:
    table = tables.card(metrics(number("min_at_1", 0.5), number("min_at_1", 0.1, "tokens=1")))
    assert table.rows() == [("Min@1", "50.00")]


def taus(*rows: tuple[Any, ...]) -> pl.DataFrame:
    """Rows of: setting, measure, hyperparameters, n_clozes, fold, chosen, tau."""
    complete_rows = [
        ("m", "b", setting, None, measure, name, n_clozes, fold, chosen, None, tau, 70)
        for setting, measure, name, n_clozes, fold, chosen, tau in rows
    ]
    return pl.DataFrame(complete_rows, schema={**NAMES, **AGREEMENT}, orient="row")


def points(table: pl.DataFrame) -> dict[tuple[str, int], float]:
    return {(series, x): y for series, x, y in table.select("series", "x", "y").iter_rows()}


def test_drawn_lines_are_in_the_order_of_x_and_the_table_has_a_column_per_series() -> None:
    rows = pl.DataFrame({"series": ["b", "b", "a"], "x": [10, 2, 2], "y": [3.0, 2.0, 1.00006]})
    ((name, (table, figure, heading)),) = tables.draw_figure("gains", rows, "balanced").items()
    axes: Any
    (axes,) = figure.axes
    assert [line.get_label() for line in axes.lines] == ["b", "a"]
    assert list(zip(*axes.lines[0].get_data(), strict=True)) == [(2, 2), (10, 3)]
    assert (name, axes.get_title()) == ("gains-balanced", "Gain by clozes, balanced")
    assert heading.endswith("(Figure 6): balanced")
    assert table.to_dict(as_series=False) == {
        "clozes": [2, 10],
        "b": [2.0, 3.0],
        "a": [1.0001, None],
    }
    assert tables.draw_figure("gains", rows.with_columns(y=pl.lit(None, pl.Float64))) == {}


def test_number_of_distractors_keeps_each_folds_aggregation() -> None:
    table = tables.distractor_points(
        taus(
            ("optimal", "distractors", "min@1", 2, 0, True, 0.5),
            ("optimal", "distractors", "min@2", 2, 0, False, 0.25),
            ("optimal", "distractors", "avg@1", 2, 0, False, 0.125),
            ("optimal", "distractors", "min@1", 2, 1, False, 0.1),
            ("optimal", "distractors", "avg@1", 2, 1, True, 0.7),
            ("optimal", "distractors", "avg@2", 2, 1, False, None),
            ("optimal", "distractors", "avg@1", 1, 1, False, 0.9),
            ("optimal", "probability", "", 2, 0, True, 0.9),
        )
    )
    assert points(table) == {("Dist. ApprOpt", 1): pytest.approx(0.6), ("Dist. ApprOpt", 2): None}


def test_number_of_clozes_takes_the_choice_and_each_baseline_once() -> None:
    table = tables.cloze_points(
        taus(
            ("optimal", "distractors", "min@1", 1, 0, True, 0.2),
            ("optimal", "distractors", "min@2", 1, 0, False, 0.9),
            ("optimal", "distractors", "min@1", 2, 0, True, 0.4),
            ("random", "distractors", "min@1", 1, 0, True, 0.3),
            ("optimal", "probability", "", 1, 0, True, 0.1),
            ("random", "probability", "", 1, 0, True, 0.1),
        )
    )
    assert points(table) == {
        ("Dist. ApprOpt", 1): 0.2,
        ("Dist. ApprOpt", 2): 0.4,
        ("Dist. Random", 1): 0.3,
        ("Probability", 1): 0.1,
    }


def test_gain_is_relative_to_a_single_cloze() -> None:
    rows = pl.DataFrame({"series": ["a", "a"], "x": [1, 2], "y": [0.25, 0.5]})
    assert points(tables.gains(rows)) == pytest.approx({("a", 1): 1.0, ("a", 2): 1.2})


def test_models_are_told_apart_where_there_are_several() -> None:
    curve = pl.DataFrame(
        {"model": ["a", "b"], "setting": "optimal", "variant": None, "n": 1, "min": 0.5, "avg": 1.0}
    )
    several, single = tables.curve_points(curve, "min"), tables.curve_points(curve.head(1), "avg")
    assert points(several) == {("a optimal", 1): 50, ("b optimal", 1): 50}
    assert points(single) == {("optimal", 1): 100}


@pytest.mark.parametrize(
    ("values", "last_row", "line"),
    [
        ([0.5, 0.6, 0.7], ("fit, R² = 1.000", "1e13.0", 90.0), [1e9, 1e13, 50, 90]),
        ([0.7, 0.6, 0.5], ("fit, R² = 1.000", "–", 90.0), None),  # it falls
        ([0.5, 0.6], ("m1", "1e+10", 60.0), None),  # two always fit
    ],
)
def test_sizes_have_the_line_up_to_the_parameters_where_it_reaches_the_target(
    values: list[float], last_row: tuple[Any, ...], line: Any
) -> None:
    models = [f"m{i}" for i in range(len(values))]
    avg = {"setting": "optimal", "metric": "avg_at_20"}
    rows = [{"model": m, "value": v, **avg} for m, v in zip(models, values, strict=True)]
    size = {"metric": "billions_of_parameters"}
    costs = [{"model": m, "value": 10.0**i, **size} for i, m in enumerate(models)]
    figures = tables.draw_sizes(frame("metrics", *rows), frame("metrics", *costs))
    (table, figure, _) = figures["extrapolation"]
    assert table.row(0) == ("m0", "1e+09", 100 * values[0])
    assert table.row(-1) == last_row
    axes: Any
    (axes,) = figure.axes
    fitted = [[*x, *y] for x, y in (curve.get_data() for curve in axes.lines[1:2])]
    assert fitted == ([pytest.approx(line)] if line else [])
    assert tables.draw_sizes(frame("metrics"), frame("metrics")) == {}
