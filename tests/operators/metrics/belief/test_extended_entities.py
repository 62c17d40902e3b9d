"""Extended entities, against comparing name by name."""

from itertools import product
from statistics import mean

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from factsweep.operators.metrics.belief.masked import EACH, extended_entities, gains

# (pair, template, name, object, label) → probability
Cells = dict[tuple[int, int, int, int, int], float]
CELL = st.tuples(*(st.integers(0, n) for n in (2, 1, 2, 1, 2)))
CELLS = st.dictionaries(CELL, st.sampled_from([0.0, 0.1, 0.2, 0.3]), max_size=40)
SCHEMA = {
    "relation_id": pl.String,
    "pair_id": pl.String,
    "template_id": pl.String,
    "subject_index": pl.UInt16,
    "object_id": pl.String,
    "label_index": pl.UInt16,
    "probability": pl.Float64,
}


def table(cells: Cells) -> pl.DataFrame:
    rows = [
        (f"P{p % 2}", f"P{p % 2}.Q{p}", f"P{p % 2}.{t}", s, f"O{o}", label, probability)
        for (p, t, s, o, label), probability in cells.items()
    ]
    return pl.DataFrame(rows, schema=SCHEMA, orient="row")


def naive_subject(cells: Cells) -> list[list[bool]]:
    units = []
    for p, t, o in product(range(3), range(2), range(2)):
        aliases = [cells[p, t, s, o, 0] for s in (1, 2) if (p, t, s, o, 0) in cells]
        if (p, t, 0, o, 0) in cells and aliases:
            units.append([each > cells[p, t, 0, o, 0] for each in aliases])
    return units


def naive_object(cells: Cells) -> list[list[bool]]:
    units = []
    for p, t, s, o in product(range(3), range(2), range(3), range(2)):
        aliases = [cells[p, t, s, o, label] for label in (1, 2) if (p, t, s, o, label) in cells]
        if (p, t, s, o, 0) in cells and aliases:
            units.append([each > cells[p, t, s, o, 0] for each in aliases])
    return units


@given(cells=CELLS)
def test_extended_entities_any_probabilities_equal_naive_comparison(cells: Cells) -> None:
    rows = extended_entities(gains(table(cells)), seed=1, n_rounds=5).filter(
        pl.col("slice").is_null()
    )
    found = {
        (metric, variant): v
        for metric, variant, v in rows.select("metric", "variant", "value").iter_rows()
    }
    for name, units in (("subject", naive_subject(cells)), ("object", naive_object(cells))):
        some = mean(map(any, units)) if units else None
        each = mean(hit for unit in units for hit in unit) if units else None
        assert found[f"extended_{name}", None] == pytest.approx(some)
        assert found[f"extended_{name}", EACH] == pytest.approx(each)


def test_extended_entities_a_tie_is_no_gain() -> None:
    cells = {(0, 0, 0, 0, 0): 0.2, (0, 0, 1, 0, 0): 0.2, (0, 0, 0, 0, 1): 0.2}
    found = extended_entities(gains(table(cells)), seed=1)
    assert set(found["value"]) == {0.0}
