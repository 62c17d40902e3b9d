"""The BELIEF papers' tables show what the papers print, and the printed numbers fit together."""

from collections.abc import Callable
from itertools import pairwise

import polars as pl
import pytest
import yaml

from factsweep.operators.datasets.facts import Facts, counts
from factsweep.operators.schemas import PLACE
from factsweep.operators.tables.data_set import NAMES, TABLES, sizes
from factsweep.operators.tables.formats import markdown
from factsweep.operators.tables.shared.paper_table import PUBLISHED_SCHEMA, fill
from tests.builders import ROOT, published_numbers

PUBLISHED = published_numbers("belief")
PRINTED = [
    (name, printed_table) for name, table in TABLES.items() for printed_table in table.printed_in
]
MODELS = {path.stem: yaml.safe_load(path.read_text()) for path in ROOT.glob("conf/model/*.yaml")}
SETTINGS = {None, "masked", "zero-shot", "4-random", "4-relation", "4-template"}
SIZES = ["templates", "unique_triples", "derived_triples", "pairs", "prompts"]


def measured(numbers: pl.DataFrame) -> pl.DataFrame:
    """The papers' numbers as if a run had them."""
    blank = pl.lit(None, pl.Float64)
    return numbers.drop("table").with_columns(
        ci_low=blank, ci_high=blank, n=pl.lit(1), n_failed=pl.lit(0)
    )


def test_tables_cover_the_published_numbers() -> None:
    in_text = PUBLISHED["table"].str.contains("section")
    assert {printed_table for _, printed_table in PRINTED} == set(
        PUBLISHED["table"].filter(~in_text)
    )


@pytest.mark.parametrize(("name", "printed_table"), PRINTED)
def test_table_shows_every_number_that_the_paper_prints(name: str, printed_table: str) -> None:
    numbers = PUBLISHED.filter(table=printed_table)
    filled = fill(TABLES[name], measured(numbers), benchmark="myriadlama", names=NAMES).table
    cells = filled.drop("source", *TABLES[name].heads.values())
    parts = [part for row in cells.rows() for cell in row for part in cell.split("/")]
    # n/a itself has a slash.
    assert sum(part not in {"–", "n", "a"} for part in parts) == numbers.height


def test_sizes_are_the_counts_of_the_facts(make_facts: Callable[..., Facts]) -> None:
    facts = make_facts({"P1": (["[X] is [Y].", "[Y], [X]."], {"a": (["A", "B"], [["C"], ["D"]])})})
    rows = sizes(facts, "mini")
    # Two names in two templates, which share two of three words.
    value_by_metric = dict(rows.select("metric", "value").iter_rows())
    assert value_by_metric == pytest.approx({**counts(facts), "quantity": 4, "lexicon": 1 / 3})
    table = fill(TABLES["table-1"], rows, PUBLISHED, benchmark="mini", names=NAMES).table
    # templates, triples, names × labels × templates, pairs, names × templates
    assert table.filter(source="measured")["mini"].to_list() == ["2", "2", "8", "1", "4"]


def contradictions(published: pl.DataFrame) -> pl.DataFrame:
    """The numbers that were printed more than once and differently, with their tables."""
    values = published.group_by(*PLACE, "value", maintain_order=True).agg(
        pl.col("table").str.join(", ")
    )
    differ = values.filter(pl.len().over(*PLACE) > 1)
    return differ.sort(*PLACE, maintain_order=True).select(PUBLISHED_SCHEMA.names())


def wide(*metrics: str) -> pl.DataFrame:
    """A row for each place and table that has all the metrics."""
    index = [*(name for name in PLACE if name != "metric"), "table"]
    rows = PUBLISHED.filter(pl.col("metric").is_in(metrics)).pivot("metric", index=index)
    return rows.drop_nulls(metrics)


def test_published_shares_lie_between_nought_and_one() -> None:
    other = [*SIZES, "quantity", "semantics", "manual_rank", "runtime_hours", "ovconf"]
    share = ~pl.col("metric").is_in(other) & ~pl.col("metric").str.starts_with("billions_of")
    assert PUBLISHED.filter(share)["value"].is_between(0, 1).all()
    assert PUBLISHED.filter(metric="ovconf")["value"].is_between(-1, 1).all()
    assert PUBLISHED.filter(metric="manual_rank")["value"].is_between(1, 100).all()
    assert (PUBLISHED.filter(~share, pl.col("metric") != "ovconf")["value"] > 0).all()


def test_published_models_are_configured_and_settings_those_of_the_papers() -> None:
    assert not PUBLISHED.select(*PLACE, "table").is_duplicated().any()
    assert set(PUBLISHED["model"].drop_nulls()) <= set(MODELS)
    assert set(PUBLISHED["setting"]) == SETTINGS
    masked = {name for name, model in MODELS.items() if "base/encoder@_here_" in model["defaults"]}
    assert set(PUBLISHED.filter(setting="masked")["model"]) <= masked
    decoded = PUBLISHED.filter(pl.col("setting").is_in(SETTINGS - {None, "masked"}))
    assert not set(decoded["model"]) & masked


@pytest.mark.parametrize(
    ("metrics", "n"),
    [
        (["acc_at_1", "coverage_maximum", "coverage_oracle"], 7 + 7 + 21 + 21),
        (["template_spread_min", "template_spread_mean", "template_spread_max"], 6),
        (["subject_acc_min", "subject_acc_max"], 6),
        (["template_acc_min", "template_acc_max"], 6),
    ],
)
def test_published_numbers_rise_from_the_worst_to_the_best(metrics: list[str], n: int) -> None:
    rows = wide(*metrics)
    assert rows.height == n
    for low, high in pairwise(metrics):
        assert (rows[low] <= rows[high]).all()


def test_published_extreme_templates_are_those_of_both_tables() -> None:
    names = {"template_acc_min": "template_spread_min", "template_acc_max": "template_spread_max"}
    vary = PUBLISHED.filter(pl.col("metric").is_in(list(names)), table="000:12")
    vary = vary.with_columns(metric=pl.col("metric").replace_strict(names))
    joined_rows = vary.join(PUBLISHED.filter(table="000:11"), on=["model", "metric"])
    assert joined_rows["value"].to_list() == joined_rows["value_right"].to_list() != []


def test_published_prompts_a_pair_follow_from_the_counts() -> None:
    counted_numbers = (
        PUBLISHED.filter(pl.col("model").is_null(), benchmark="myriadlama").drop("table").unique()
    )
    value = dict(counted_numbers.select("metric", "value").iter_rows())
    assert value["prompts"] / value["pairs"] == pytest.approx(value["quantity"], abs=0.005)


def test_published_models_have_their_size() -> None:
    # The 2025 paper calls Llama2-7B-IT and Llama2-70B-IT models of 13B.
    rows = PUBLISHED.filter(metric="billions_of_parameters", table="000:15")
    for model, value in rows.select("model", "value").iter_rows():
        assert MODELS[model]["billions_of_parameters"] == pytest.approx(value, rel=0.05), model


def test_published_contradictions_and_count_are_those_of_the_page() -> None:
    columns = ["model", "setting", "variant", "metric", "value", pl.col("table").alias("tables")]
    page = (ROOT / "docs/published.md").read_text()
    assert markdown(contradictions(PUBLISHED).select(columns)) in page
    assert f"{PUBLISHED.height:,} numbers" in page
