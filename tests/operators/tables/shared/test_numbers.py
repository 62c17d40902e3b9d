"""Numbers as text: each kind, alone and in a column."""

import re
from pathlib import Path

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from factsweep.operators.tables.shared import numbers
from factsweep.operators.tables.shared.numbers import (
    COUNT,
    HOURS,
    MEGABYTES,
    SHARE,
    SHORT_SHARE,
    Number,
    decimal,
    in_percent,
    of_metric,
    percent,
)

KINDS = [SHARE, SHORT_SHARE, COUNT, HOURS, MEGABYTES, percent(2), in_percent(1), decimal(0)]
FLOATS = st.floats(-1e6, 1e6)


@pytest.mark.parametrize(
    ("kind", "value", "text"),
    [
        (SHARE, 0.1575, ".1575"),
        (SHARE, -0.1119, "-.1119"),
        (SHARE, 1.0, "1.0000"),
        (SHARE, 10.5, "10.5000"),
        (SHARE, -0.00001, ".0000"),
        (SHORT_SHARE, 0.346, ".35"),
        (COUNT, 6492800, "6,492,800"),
        (COUNT, 40.4, "40"),
        (HOURS, 1234.5, "1,234.5000"),
        (MEGABYTES, 4_200_000, "4.20"),
        (percent(2), 0.1762, "17.62%"),
        (percent(0), 0.125, "12%"),
        (in_percent(2), 0.5251, "52.51"),
        (decimal(1), 59, "59.0"),
        (of_metric("runtime_hours"), 0.123456, "0.1235"),
        (of_metric("billions_of_training_tokens"), 15000.0, "15,000"),
        (of_metric("pairs"), 24643.0, "24,643"),
    ],
)
def test_number_text_is_that_of_its_kind(kind: Number, value: float, text: str) -> None:
    assert kind.text(value) == text


def test_number_signed_has_its_plus() -> None:
    assert [SHARE.text(x, signed=True) for x in (0.0131, -0.0131, 0)] == [
        "+.0131",
        "-.0131",
        "+.0000",
    ]


@pytest.mark.parametrize("kind", KINDS)
@given(values=st.lists(FLOATS | st.none(), min_size=1, max_size=5))
def test_number_column_equals_each_text_and_keeps_nulls(
    kind: Number, values: list[float | None]
) -> None:
    frame = pl.DataFrame({"x": values}, schema={"x": pl.Float64})
    expected = [kind.text(value) for value in values]
    assert frame.select(kind.column_with_dashes(pl.col("x")))["x"].to_list() == expected
    nulls = [text if text != "–" else None for text in expected]
    assert frame.select(kind.column(pl.col("x")))["x"].to_list() == nulls


@given(FLOATS)
def test_share_text_read_back_is_the_number_to_four_digits(value: float) -> None:
    assert float(SHARE.text(value)) == pytest.approx(round(value, 4))


def test_interval_without_an_end_is_null() -> None:
    frame = pl.DataFrame({"ci_low": [0.1, None], "ci_high": [0.2, 0.3]})
    texts = frame.select(SHARE.interval(" to ", signed=True)).to_series().to_list()
    assert texts == ["+.1000 to +.2000", None]


def test_tables_write_numbers_nowhere_else() -> None:
    module = Path(numbers.__file__)
    written = re.compile(r":[+,z]*\.\d+[efg%]|round\(\d\)\.cast\(pl\.String|\{:,\}")
    modules = [path for path in module.parents[1].rglob("*.py") if path != module]
    assert [path.name for path in modules if written.search(path.read_text())] == []
