"""The BELIEF papers' tables: whether they show what the papers print."""

from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest

from factsweep.operators.datasets.facts import Facts, counts
from factsweep.operators.schemas import empty
from factsweep.operators.tables.belief.belief_paper import NAMES, TABLES
from factsweep.operators.tables.runs.data_set import sizes
from factsweep.operators.tables.shared.paper_table import PUBLISHED_SCHEMA, fill

ROOT = Path(__file__).parents[4]
PUBLISHED_NUMBERS = pl.read_csv(ROOT / "data_catalog/published/belief.csv", schema=PUBLISHED_SCHEMA)
PRINTED = [(name, where) for name, table in TABLES.items() for where in table.printed_in]


def measured(numbers: pl.DataFrame) -> pl.DataFrame:
    """The papers' numbers as if a run had them."""
    blank = pl.lit(None, pl.Float64)
    return numbers.drop("table").with_columns(
        ci_low=blank, ci_high=blank, n=pl.lit(1), n_failed=pl.lit(0)
    )


def test_tables_cover_the_published_numbers() -> None:
    in_text = PUBLISHED_NUMBERS["table"].str.contains("section")
    assert {where for _, where in PRINTED} == set(PUBLISHED_NUMBERS["table"].filter(~in_text))


@pytest.mark.parametrize(("name", "where"), PRINTED)
def test_table_shows_every_number_that_the_paper_prints(name: str, where: str) -> None:
    numbers = PUBLISHED_NUMBERS.filter(table=where)
    filled = fill(TABLES[name], measured(numbers), benchmark="myriadlama", names=NAMES).table
    cells = filled.drop("source", *TABLES[name].heads.values())
    shown = [part for row in cells.rows() for cell in row for part in cell.split("/")]
    # n/a itself has a slash.
    assert sum(part not in {"–", "n", "a"} for part in shown) == numbers.height


@pytest.mark.parametrize("name", TABLES)
def test_table_run_equal_to_the_paper_differs_by_nothing(name: str) -> None:
    table = TABLES[name]
    first = PUBLISHED_NUMBERS.filter(table=table.printed_in[0])
    filled = fill(table, measured(first), first, benchmark="myriadlama", names=NAMES).table
    differences = filled.filter(source="difference").drop("source", *table.heads.values())
    assert not differences.is_empty()
    texts = "/".join(cell for row in differences.rows() for cell in row)
    assert {float(part) for part in texts.split("/") if part not in {"–", "n", "a"}} == {0.0}


@pytest.mark.parametrize("name", TABLES)
def test_table_without_runs_has_the_papers_rows_and_reasons(name: str) -> None:
    filled = fill(TABLES[name], empty("metrics"), benchmark="myriadlama", names=NAMES)
    assert filled.table.height == len(TABLES[name].rows)
    assert set(filled.missing["reason"]) == {"no run"}


def test_table_shows_a_model_that_the_paper_does_not_have() -> None:
    row = {"model": "tiny-bert", "benchmark": "mini", "setting": "masked", "metric": "acc_at_1"}
    run = pl.concat(
        [empty("metrics"), pl.DataFrame([{**row, "value": 0.5}])], how="diagonal_relaxed"
    )
    table = fill(TABLES["table-3"], run, PUBLISHED_NUMBERS, benchmark="mini", names=NAMES).table
    assert table.select("PLM", "ICL setting", "Acc@1").row(-1) == ("tiny-bert", "masked", ".5000")


def test_sizes_are_the_counts_of_the_facts(make_facts: Callable[..., Facts]) -> None:
    facts = make_facts({"P1": (["[X] is [Y].", "[Y], [X]."], {"a": (["A", "B"], [["C"], ["D"]])})})
    rows = sizes(facts, "mini")
    # Two names in two templates, which share two of three words.
    found = dict(rows.select("metric", "value").iter_rows())
    assert found == pytest.approx({**counts(facts), "quantity": 4, "lexicon": 1 / 3})
    table = fill(TABLES["table-1"], rows, PUBLISHED_NUMBERS, benchmark="mini", names=NAMES).table
    # templates, triples, names × labels × templates, pairs, names × templates
    assert table.filter(source="measured")["mini"].to_list() == ["2", "2", "8", "1", "4"]
