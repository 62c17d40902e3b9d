"""What is said of metrics: once each, and in words in docs/metrics.md."""

import re
from collections import Counter
from math import inf
from pathlib import Path

import polars as pl
import pytest

from factsweep.operators.methods import METHODS
from factsweep.operators.methods.method import Method
from factsweep.operators.metrics.comparing import paired
from factsweep.operators.metrics.shared.rows import Metric, headings, higher_is_better
from factsweep.operators.pages.page import terms_of
from factsweep.operators.schemas import empty
from factsweep.operators.tables.shared.numbers import SHARE
from factsweep.operators.tables.shared.pivot import card

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
    families = {name: re.sub(r"^pass_at_\d+$", "pass_at_k", name) for name in everything}
    missing = {name for name, family in families.items() if f"`{family}`" not in DOCS}
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


def test_metric_without_a_declared_display_has_its_name_three_digits_and_an_interval() -> None:
    long = Metric("words", heading="Words", range=(0, inf))
    shown = [Metric("a", heading="A"), Metric("length"), long, Metric("c", heading="")]
    assert headings(shown) == {"a": "A", "length": "length", "words": "Words"}
    numbers = {
        "value": [0.5, 13.8631, 2.0, 0.5],
        "ci_low": [0.25, 9.9961, 1.5, 0],
        "ci_high": [0.75, 1234, 2.5, 1],
    }
    rows = pl.DataFrame({"metric": [m.name for m in shown], "setting": ["x"] * 4, **numbers})
    metrics = pl.concat([empty("metrics"), rows], how="diagonal_relaxed")
    assert dict(card(metrics, shown, SHARE, []).iter_rows()) == {
        "A": ".5000 (.2500–.7500)",
        "length": "13.9 (10.0–1,230)",
        "Words": "2.00 (1.50–2.50)",
    }
