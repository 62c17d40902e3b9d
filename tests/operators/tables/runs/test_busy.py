"""What GPUs did: counted beside a count by the second, and drawn."""

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from factsweep.operators.tables.runs.busy import (
    SPANS,
    busy_figure,
    busy_table,
    together,
    utilisation,
)

N_GPUS = 4


@st.composite
def recorded(draw: st.DrawFn) -> pl.DataFrame:
    """Spans of whole seconds of some engines, which may share GPUs; the first begins at 100."""
    rows = []
    for number in range(draw(st.integers(1, 5))):
        gpus = sorted(draw(st.sets(st.sampled_from("0123"), min_size=1)))
        began = 100 + draw(st.integers(0, 20)) * (number > 0)
        for doing in draw(st.lists(st.sampled_from(["loading", "answering"]), min_size=1)):
            ended = began + draw(st.integers(1, 9))
            rows.append((f"run {number % 2}", f"e{number}", "n", gpus, doing, began, ended, N_GPUS))
            began = ended + draw(st.integers(0, 9))
    return pl.DataFrame(rows, SPANS, orient="row")


@given(spans=recorded())
def test_share_that_answers_is_that_of_a_count_by_the_second(spans: pl.DataFrame) -> None:
    rows = spans.rows(named=True)
    busy, answers = 0, 0
    for now in range(100, int(spans["ended"].max()) + 1):  # type: ignore[arg-type]
        at = [row for row in rows if row["began"] <= now < row["ended"]]
        if at:
            busy += 1
            answers += len(
                {gpu for row in at if row["doing"] == "answering" for gpu in row["gpus"]}
            )
    one_run = spans.with_columns(run=pl.lit("all"))
    assert utilisation(one_run) == pytest.approx(answers / (busy * N_GPUS))
    total = together(spans)["ended"].max()
    assert total == pytest.approx(busy)


def test_table_and_figure_have_every_run_and_gpu() -> None:
    rows = [
        ("a", "e1", "m", ["0"], "loading", 0.0, 10.0, 4),
        ("a", "e1", "m", ["0"], "answering", 10.0, 40.0, 4),
        ("b", "e2", "n", ["0", "1"], "answering", 0.0, 20.0, 4),
        ("b", "e2", "n", ["0", "1"], "answering", 20.0, 30.0, 4),
        ("c", "e3", "n", ["1"], "loading", 90_000.0, 90_010.0, 4),  # a day later
    ]
    spans = pl.DataFrame(rows, SPANS, orient="row")
    table = busy_table(spans)
    assert table["run"].to_list() == ["a", "b", "c", "all of 4 GPUs"]
    assert table["answering"].to_list() == ["75.0%", "100.0%", "0.0%", "45.0%"]
    assert table["free"].to_list() == [None, None, None, "45.0%"]
    axes = busy_figure(spans).axes[0]
    assert [each.get_text() for each in axes.get_yticklabels()] == ["1: 0", "2: 0", "2: 1"]
    assert axes.get_xlim()[1] < 60
