"""A run beside the papers: which rows meet."""

from typing import Any

import polars as pl
from hypothesis import given
from hypothesis import strategies as st

from factsweep.operators.schemas import PLACE, empty
from factsweep.operators.tables.shared.paper_table import PUBLISHED_SCHEMA, beside, of_other_facts

names = st.sampled_from([None, "x", "y"])
places = st.fixed_dictionaries(dict.fromkeys(PLACE, names))
values = st.integers(0, 9).map(lambda digit: digit / 10)
printed = st.lists(st.tuples(places, values, st.sampled_from(["1", "2"])), max_size=20)
measured = st.lists(st.tuples(places, values), max_size=5)


def paper(rows: list[Any]) -> pl.DataFrame:
    table = [{**place, "value": value, "table": where} for place, value, where in rows]
    return pl.DataFrame(table, schema=PUBLISHED_SCHEMA)


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


@given(measured, printed, st.booleans())
def test_beside_of_other_facts_has_both_numbers_and_no_difference(
    ours: list[Any], theirs: list[Any], by_relation: bool
) -> None:
    parts = [None, "relation=P36", "kind=entity"]
    run = [
        {**dict.fromkeys(empty("metrics").columns), **place, "slice": part, "value": value}
        for place, value in ours
        for part in parts
    ]
    metrics = pl.DataFrame(run, schema=empty("metrics").schema)
    published = paper(
        theirs + [({**place, "slice": part}, 0.5, "3") for place, _ in ours for part in parts]
    )
    marked = beside(metrics, of_other_facts(published, "x", by_relation=by_relation))
    unmarked = beside(metrics, published)
    assert marked.drop("source", "difference").equals(unmarked.drop("source", "difference"))
    whole_relation = pl.col("slice").eq_missing("relation=P36") & (not by_relation)
    is_other = (pl.col("benchmark") == "x").fill_null(value=False) & ~whole_relation
    assert marked.filter(is_other)["difference"].drop_nulls().is_empty()
    assert marked.filter(~is_other).equals(unmarked.filter(~is_other))
