"""What is said of metrics: once each, and in words in docs/metrics.md."""

from collections import Counter
from pathlib import Path

import polars as pl
import pytest

from factsweep.operators.methods import METHODS
from factsweep.operators.methods.method import Method
from factsweep.operators.metrics.comparing import paired
from factsweep.operators.metrics.shared.rows import Metric, headings, higher_is_better
from factsweep.operators.pages.page import terms_of
from factsweep.operators.schemas import empty

DOCS = (Path(__file__).parents[4] / "docs" / "metrics.md").read_text()
OURS = [method for method in METHODS.values() if method.measure.metrics]


@pytest.mark.parametrize("method", OURS, ids=lambda method: method.show.published)
def test_metrics_of_a_method_have_names_and_headings_of_their_own(method: Method) -> None:
    names = [metric.name for metric in method.measure.metrics]
    titles = list(headings(method.measure.metrics).values())
    assert Counter(names).most_common(1)[0][1] == 1
    assert Counter(titles).most_common(1)[0][1] == 1


@pytest.mark.parametrize("method", OURS, ids=lambda method: method.show.published)
def test_metrics_with_a_heading_stand_on_the_card_with_a_line_in_the_glossary(
    method: Method,
) -> None:
    titles = headings(method.measure.metrics)
    rows = [{"setting": "zero-shot", "metric": name, "value": 0.5} for name in titles]
    card = method.show.card(pl.DataFrame(rows, schema=empty("metrics").schema))
    assert set(card["metric"]) - {"scope"} == set(titles.values())
    assert terms_of(titles.values(), method.measure.metrics).keys() == set(titles.values())


def test_metrics_are_described_in_the_documentation() -> None:
    everything = {
        metric.name for method in OURS for metric in (*method.measure.metrics, *paired.METRICS)
    }
    missing = {name for name in everything if f"`{name}`" not in DOCS}
    assert missing <= {"baseline_accuracy", "baseline_plausibility"}  # `baseline_…`


def test_metric_names_columns_that_are_stored() -> None:
    for method in OURS:
        stored = {
            *empty(method.ask.ability.answers).columns,
            *empty(method.measure.answers).columns,
        }
        decoders = {*empty("generations").columns}  # encoders share their metrics
        for metric in method.measure.metrics:
            assert {*metric.columns} <= stored | decoders, metric.name


def test_main_metric_of_each_method_is_declared() -> None:
    for method in OURS:
        assert method.measure.main_metric in headings(method.measure.metrics)
        assert higher_is_better(method.measure.metrics)[method.measure.main_metric]


def test_headings_leave_out_metrics_without_one() -> None:
    assert headings([Metric("a", heading="A"), Metric("b")]) == {"a": "A"}
