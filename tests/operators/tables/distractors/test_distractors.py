"""The tables of the distractor measure: what stands in their rows."""

from typing import Any

import polars as pl
import pytest

from factsweep.operators.metrics.distractors.agreement import AGREEMENT
from factsweep.operators.schemas import empty
from factsweep.operators.tables import distractors as tables
from factsweep.pipeline.inputs import catalog

RUN = {"model": "gpt2-xl", "benchmark": "distractors-probing", "variant": "ending=eos"}


def metrics(*rows: dict[str, Any]) -> pl.DataFrame:
    whole = [{"setting": "optimal", "slice": None, "n": 4, "n_failed": 1, **RUN, **r} for r in rows]
    return pl.DataFrame(whole, schema=empty("metrics").schema)


def number(
    metric: str, value: float | None, part: str | None = None, **more: Any
) -> dict[str, Any]:
    return {"metric": metric, "value": value, "slice": part, **more}


@pytest.fixture(scope="module")
def published() -> pl.DataFrame:
    found = catalog.published("distractors")
    assert found is not None
    return found


def test_headline_has_every_number_in_percent_and_its_counts() -> None:
    found = tables.headline(
        metrics(
            number("probability", 0.125),
            number("min_at_1", 0.5, ci_low=0.25, ci_high=0.75),
            number("avg_at_10", None),
            number("min_at_1", 0.9, "relation=P1"),
            number("left_out_at_1", 1.0),
        )
    )
    (row,) = found.drop("model", "benchmark", "setting", "variant").rows(named=True)
    assert row == {
        "Min@1": "50.00",
        "Avg@10": "–",
        "Probability": "12.50",
        "Min@1, 95 %": "25.00–75.00",
        "prompts": 4,
        "failed": 1,
    }


def test_headline_names_the_width_of_a_beam_in_the_heading() -> None:
    found = tables.headline(
        metrics(number("probability", 0.5), number("rouge_l", 0.25, variant="ending=eos,width=5"))
    )
    assert found["ROUGE-L width=5"].to_list() == ["25.00"]
    assert found["variant"].to_list() == ["ending=eos"]


def test_published_number_stands_under_the_measured_one(published: pl.DataFrame) -> None:
    place = {"model": "pythia-6.9b", "benchmark": "distractors"}
    rows = metrics(
        number("min_at_1", 0.5, "sample=balanced", **place),
        number("min_at_1", 0.25, "sample=other", **place),
    )
    found = tables.by_sample(rows, published)
    assert found.select("sample", "source", "Min@1").rows() == [
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
    found = tables.by_relation(rows, {"P3": "capital"})
    assert found.select("ID", "Label", "Min@1").rows() == [
        ("P3", "capital", "25.00"),
        ("P1", "P1", "50.00"),
        ("P2", "P2", "–"),
    ]


def test_deciles_stand_in_the_order_of_numbers() -> None:
    rows = metrics(*(number("min_at_1", 0.5, f"tokens={n}") for n in (10, 2, 1)))
    assert tables.by_slice(rows, "tokens", "tokens")["tokens"].to_list() == ["1", "2", "10"]


def test_agreement_stands_beside_the_published_one_in_its_order(published: pl.DataFrame) -> None:
    rows = metrics(
        number("kendall_tau", 0.3, "measure=distractors"),
        number("kendall_tau_sd", 0.1, "measure=distractors"),
        number("kendall_tau", 0.25, "measure=probability"),
        number("kendall_tau", 0.26, "measure=probability", setting="random"),
    )
    found = tables.agreement(rows, published)
    mine = found.filter(source="measured").select("measure", "Mean τ", "Std τ").rows()
    assert mine == [("Probability", "0.250", None), ("Dist. ApprOpt", "0.300", "0.100")]
    assert found["measure"].unique(maintain_order=True).to_list() == [
        *("KaRR", "ROUGE-L", "BERT-score", "Precision@n", "Probability"),
        *("Dist. Random", "Dist. Temp+Sem", "Dist. ApprOpt", "LLM-as-a-judge"),
    ]
    optimal = found.filter(measure="Dist. ApprOpt").select("source", "Mean τ").rows()
    assert optimal == [("measured", "0.300"), ("published", "0.282")]


def test_missing_measures_have_their_reason(published: pl.DataFrame) -> None:
    rows = metrics(number("kendall_tau", 0.3, "measure=distractors"))
    found = dict(tables.missing(tables.agreement(rows, published)).iter_rows())
    assert "Dist. ApprOpt" not in found
    assert found["KaRR"].startswith("no clozes of other subjects")
    assert "metrics.judge_url" in found["LLM-as-a-judge"]
    assert found["Dist. Random"] == "no run of this setting"


def test_robustness_has_the_published_ones(published: pl.DataFrame) -> None:
    place = {"benchmark": "distractors-verbalisations"}
    rows = metrics(number("robustness", 0.9, "measure=distractors", **place))
    found = tables.robust(rows, published).filter(measure="Dist. ApprOpt")
    assert found.select("source", "Robustness").rows() == [
        ("measured", "0.900"),
        ("published", "0.920"),
    ]


def test_configurations_are_those_that_folds_chose_over_all_clozes() -> None:
    columns = dict.fromkeys(("model", "benchmark", "setting", "variant"), pl.String)
    rows = [
        ("gpt2-xl", "b", "optimal", None, "distractors", f"min@{n}", m, 0, n == 2, 0.5, 0.25, 70)
        for n in (1, 2)
        for m in (1, 2)
    ]
    taus = pl.DataFrame(rows, schema={**columns, **AGREEMENT}, orient="row")
    (row,) = tables.configurations(taus).drop("benchmark", "variant").rows()
    assert row == ("gpt2-xl", "optimal", "Dist. ApprOpt", 0, "min@2", "0.500", "0.250", 70)
    assert tables.configurations(taus)["facts"].to_list() == [70]


def test_card_shows_the_overall_numbers() -> None:
    found = tables.card(metrics(number("min_at_1", 0.5), number("min_at_1", 0.1, "tokens=1")))
    assert found.rows() == [("Min@1", "50.00")]
