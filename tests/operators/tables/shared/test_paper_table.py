"""Tables described as rows and columns, and runs beside papers, against a plain look-up."""

from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from factsweep.operators.errors import InputError
from factsweep.operators.tables.shared.numbers import SHARE
from factsweep.operators.tables.shared.paper_table import (
    PLACE,
    PUBLISHED_SCHEMA,
    Column,
    Place,
    Table,
    fill,
    join_published,
    mark_other_facts,
)
from tests.builders import frame
from tests.messages import naming

DEFAULTS: dict[str, Any] = {
    "model": "a",
    "benchmark": "facts",
    "setting": "zero-shot",
    "variant": None,
    "slice": None,
    "metric": "acc_at_1",
}
MODELS, SETTINGS = ("a", "b"), ("zero-shot", "4-template")
COLUMNS: tuple[Place, ...] = (
    {"metric": "acc_at_1"},
    {"metric": "acc_at_1", "benchmark": "other"},
    {"metric": "consist", "slice": "vary=subject"},
)
TABLE = Table(
    "Both",
    ("003:2", "000:1"),
    {"model": "PLM", "setting": "ICL"},
    tuple({"model": model, "setting": setting} for model in MODELS for setting in SETTINGS),
    tuple(Column(str(number), (place,)) for number, place in enumerate(COLUMNS)),
)


def identity(row: tuple[Any, ...]) -> tuple[str | None, ...]:
    """What no two rows may share: the place, and the paper's table."""
    place, _, *paper_table = row
    return (*(place[name] for name in PLACE), *paper_table)


def test_fill_next_to_numbers_of_other_facts_has_no_difference() -> None:
    measured = pl.DataFrame([{**DEFAULTS, "value": 0.5}])
    published = pl.DataFrame(
        [{**DEFAULTS, "value": 0.25, "table": "003:2"}], schema=PUBLISHED_SCHEMA
    )
    marked = mark_other_facts(published, "facts")
    for theirs, sources in (
        (published, ["measured", "published", "difference"]),
        (marked, ["measured", "published, of other facts"]),
    ):
        rows = fill(TABLE, measured, theirs, benchmark="facts").table
        assert rows.filter(PLM="a", ICL="zero-shot")["source"].to_list() == sources


places = st.fixed_dictionaries(
    {
        "model": st.sampled_from(MODELS),
        "benchmark": st.sampled_from(["facts", "other"]),
        "setting": st.sampled_from(SETTINGS),
        "variant": st.sampled_from([None, "draw=pair"]),
        "slice": st.sampled_from([None, "vary=subject"]),
        "metric": st.sampled_from(["acc_at_1", "consist"]),
    }
)
printed_shares = st.integers(0, 10_000).map(lambda number: number / 10_000)
shares = st.none() | printed_shares
numbers = st.lists(st.tuples(places, shares), max_size=20, unique_by=identity)
printed_numbers = st.lists(
    st.tuples(places, printed_shares, st.sampled_from(["000:1", "003:2"])),
    max_size=20,
    unique_by=identity,
)


def metrics(*rows: dict[str, Any]) -> pl.DataFrame:
    return frame("metrics", *rows, **{**DEFAULTS, "value": 0.25})


def published(*rows: dict[str, Any]) -> pl.DataFrame:
    table = [{**DEFAULTS, "value": 0.5, "table": "000:1", **row} for row in rows]
    return pl.DataFrame(table, schema=PUBLISHED_SCHEMA)


@given(numbers, printed_numbers)
def test_fill_each_cell_is_the_number_of_its_place(ours: Any, theirs: Any) -> None:
    rows = metrics(*({**place, "value": value} for place, value in ours))
    paper = published(*({**place, "value": v, "table": table} for place, v, table in theirs))
    filled = fill(TABLE, rows, paper, benchmark="facts").table
    for row in filled.iter_rows(named=True):
        for number, column in enumerate(COLUMNS):
            part = {"model": row["PLM"], "setting": row["ICL"], **column}
            place = {**dict.fromkeys(PLACE), "benchmark": "facts", **part}
            measured_value = next((value for cell, value in ours if cell == place), None)
            printed_there = {table: value for cell, value, table in theirs if cell == place}
            paper_value = printed_there.get("003:2", printed_there.get("000:1"))
            combined = None not in (measured_value, paper_value)
            expected = {
                "measured": SHARE.text(measured_value),
                "published": SHARE.text(paper_value),
                "difference": SHARE.text(measured_value - paper_value, signed=True)
                if combined
                else "–",
            }
            assert row[str(number)] == expected[row["source"]]


@given(numbers.filter(len))
def test_fill_every_dash_of_a_measured_row_has_a_reason(ours: Any) -> None:
    rows = metrics(*({**place, "value": value} for place, value in ours))
    filled = fill(TABLE, rows, benchmark="facts")
    dashes = sum((filled.table[str(number)] == "–").sum() for number in range(len(COLUMNS)))
    reasons = filled.missing["metrics"].str.split(", ").list.len().sum()
    assert reasons == dashes


@given(numbers, st.randoms(use_true_random=False))
def test_fill_order_of_the_rows_changes_nothing(ours: Any, random: Any) -> None:
    rows = [{**place, "value": value} for place, value in ours]
    first = fill(TABLE, metrics(*rows), benchmark="facts")
    random.shuffle(rows)
    other = fill(TABLE, metrics(*rows), benchmark="facts")
    assert first.table.equals(other.table)
    assert first.missing.equals(other.missing)


def test_fill_reasons_tell_no_run_from_no_number() -> None:
    rows = metrics({}, {"setting": "4-template", "value": None})
    missing = fill(TABLE, rows, benchmark="facts").missing
    reason = dict(missing.filter(model="a", benchmark="facts").select("setting", "metrics").rows())
    assert reason["zero-shot"] == "consist vary=subject"
    assert set(missing.filter(model="a", benchmark="facts").select("setting", "reason").rows()) == {
        ("zero-shot", "not measured by the run"),
        ("4-template", "not measured by the run"),
        ("4-template", "undefined"),
    }
    assert set(missing.filter(model="b")["reason"]) == {"no run"}


def test_fill_papers_models_are_missing_only_beside_one_of_them() -> None:
    another = fill(TABLE, metrics({"model": "z"}), benchmark="facts").missing
    assert set(another["model"]) == {"z"}
    combined = fill(TABLE, metrics({"model": "z"}, {}), benchmark="facts").missing
    assert set(combined["model"]) == {"a", "b", "z"}


def test_fill_models_of_no_row_follow_in_the_settings_they_were_asked_in() -> None:
    rows = metrics(
        {"model": "z"},
        {"model": "y", "setting": "4-template"},
        {"model": "x", "setting": "5-shot"},
        {"model": "w", "metric": "brier"},
        {"model": "v", "benchmark": "other"},
    )
    filled = fill(TABLE, rows, benchmark="facts").table
    assert filled.select("PLM", "ICL").rows()[4:] == [("z", "zero-shot"), ("y", "4-template")]


def test_fill_alone_has_no_row_or_column_of_what_only_papers_measured() -> None:
    rows, paper = metrics({"model": "z"}), published({"benchmark": "other", "model": "a"})
    filled_rows = fill(TABLE, rows, paper, benchmark="facts", own_only=True)
    assert filled_rows.table.rows() == [("z", "zero-shot", "measured", ".2500", "–")]
    assert filled_rows.table.columns[3:] == ["0", "2"]
    assert filled_rows.missing.select("model", "benchmark").rows() == [("z", "facts")]
    none = fill(TABLE, metrics({"benchmark": "other"}), paper, benchmark="facts", own_only=True)
    assert (none.n_measured, none.table.height) == (0, 0)


def test_fill_several_places_share_a_cell() -> None:
    combined = ({"metric": "acc_at_1"}, {"metric": "manual_rank"})
    table = Table("", (), {"model": "PLM"}, TABLE.rows[:1], (Column("both", combined),))
    assert fill(table, metrics({}), benchmark="facts").table["both"].to_list() == [".2500/–"]


def test_fill_a_cell_that_cannot_have_a_number_wants_none() -> None:
    table = Table("", (), {"model": "PLM"}, TABLE.rows, TABLE.columns, ({"benchmark": "other"},))
    filled = fill(table, metrics({}), published({}), benchmark="facts")
    assert set(filled.table["1"]) == {"n/a"}
    assert "other" not in filled.missing["benchmark"]


def test_fill_benchmark_names_its_column() -> None:
    table = Table("", (), {"model": "PLM"}, TABLE.rows[:1], (Column("on {benchmark}", ({},)),))
    assert "on Facts" in fill(table, metrics(), benchmark="facts", names={"facts": "Facts"}).table


def test_fill_two_numbers_for_one_cell_are_refused() -> None:
    with pytest.raises(InputError, match=naming("acc_at_1")):
        fill(TABLE, metrics({}, {"value": 0.5}), benchmark="facts")
    assert fill(TABLE, metrics({}, {}), benchmark="facts").table["0"][0] == ".2500"


any_place = st.fixed_dictionaries(dict.fromkeys(PLACE, st.sampled_from([None, "x", "y"])))
values = st.integers(0, 9).map(lambda digit: digit / 10)
printed = st.lists(st.tuples(any_place, values, st.sampled_from(["1", "2"])), max_size=20)
measured = st.lists(st.tuples(any_place, values), max_size=5)


def paper(rows: list[Any]) -> pl.DataFrame:
    table = [{**place, "value": value, "table": paper_table} for place, value, paper_table in rows]
    return pl.DataFrame(table, schema=PUBLISHED_SCHEMA)


@given(measured, printed)
def test_beside_is_every_pair_of_the_same_place(ours: list[Any], theirs: list[Any]) -> None:
    # Half of the papers' places are the run's, or none would meet.
    theirs = theirs + [(place, value, "3") for place, value in ours[::2]]
    run = frame("metrics", *({**place, "value": value} for place, value in ours))
    filled_rows = join_published(run, paper(theirs))
    expected = [
        (paper_table, measured_value, other, round(measured_value - other, 6))
        for place, other, paper_table in theirs
        for cell, measured_value in ours
        if cell == place
    ]
    rows = filled_rows.select("table", "measured", "published", "difference").rows()
    assert sorted(rows) == sorted(expected)


@given(measured, printed, st.booleans())
def test_beside_of_other_facts_has_both_numbers_and_no_difference(
    ours: list[Any], theirs: list[Any], by_relation: bool
) -> None:
    parts = [None, "relation=P36", "kind=entity"]
    run = frame(
        "metrics",
        *({**place, "slice": part, "value": value} for place, value in ours for part in parts),
    )
    printed_rows = paper(
        theirs + [({**place, "slice": part}, 0.5, "3") for place, _ in ours for part in parts]
    )
    marked = join_published(run, mark_other_facts(printed_rows, "x", by_relation=by_relation))
    unmarked = join_published(run, printed_rows)
    assert marked.drop("source", "difference").equals(unmarked.drop("source", "difference"))
    whole_relation = pl.col("slice").eq_missing("relation=P36") & (not by_relation)
    is_other = (pl.col("benchmark") == "x").fill_null(value=False) & ~whole_relation
    assert marked.filter(is_other)["difference"].drop_nulls().is_empty()
    assert marked.filter(~is_other).equals(unmarked.filter(~is_other))
