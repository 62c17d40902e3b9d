"""A run beside the papers: which rows meet."""

from typing import Any

import polars as pl
from hypothesis import given
from hypothesis import strategies as st

from factsweep.operators.schemas import empty
from factsweep.operators.tables.shared.published import PLACE, PUBLISHED, beside, contradictions

names = st.sampled_from([None, "x", "y"])
places = st.fixed_dictionaries(dict.fromkeys(PLACE, names))
values = st.integers(0, 9).map(lambda digit: digit / 10)
printed = st.lists(st.tuples(places, values, st.sampled_from(["1", "2"])), max_size=20)
measured = st.lists(st.tuples(places, values), max_size=5)


def paper(rows: list[Any]) -> pl.DataFrame:
    table = [{**place, "value": value, "table": where} for place, value, where in rows]
    return pl.DataFrame(table, schema=PUBLISHED)


@given(measured, printed)
def test_beside_is_every_pair_of_the_same_place(ours: list[Any], theirs: list[Any]) -> None:
    # Half of the papers' places are the run's, or none would meet.
    theirs = theirs + [(place, value, "3") for place, value in ours[::2]]
    blank = dict.fromkeys(empty("metrics").columns)
    run = [{**blank, **place, "value": value} for place, value in ours]
    found = beside(pl.DataFrame(run, schema=empty("metrics").schema), paper(theirs))
    expected = [
        (where, mine, other, round(mine - other, 6))
        for place, other, where in theirs
        for at, mine in ours
        if at == place
    ]
    rows = found.select("table", "measured", "published", "difference").rows()
    assert sorted(rows) == sorted(expected)


@given(printed)
def test_contradictions_are_the_places_with_two_values(rows: list[Any]) -> None:
    rows = rows + [(place, (value + 0.1) % 1, "3") for place, value, _ in rows[::2]]
    found = contradictions(paper(rows))
    values_at: dict[tuple[Any, ...], set[float]] = {}
    for place, value, _ in rows:
        values_at.setdefault(tuple(place[name] for name in PLACE), set()).add(value)
    expected = {(*at, value) for at, each in values_at.items() if len(each) > 1 for value in each}
    assert set(found.drop("table").rows()) == expected
    assert found.height == len(expected)
