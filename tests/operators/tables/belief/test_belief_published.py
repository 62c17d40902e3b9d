"""BELIEF's own numbers: what data_catalog/published/belief.csv holds, against itself."""

from pathlib import Path

import polars as pl
import pytest
import yaml

from factsweep.operators.schemas import PLACE
from factsweep.operators.tables.formats import markdown
from factsweep.operators.tables.shared.paper_table import PUBLISHED_SCHEMA

ROOT = Path(__file__).parents[4]
MODELS = {path.stem: yaml.safe_load(path.read_text()) for path in ROOT.glob("conf/model/*.yaml")}
SETTINGS = {None, "masked", "zero-shot", "4-random", "4-relation", "4-template"}
SIZES = ["templates", "unique_triples", "derived_triples", "pairs", "prompts"]


def contradictions(published: pl.DataFrame) -> pl.DataFrame:
    """The numbers that were printed more than once and differently, with their tables."""
    values = published.group_by(*PLACE, "value", maintain_order=True).agg(
        pl.col("table").str.join(", ")
    )
    differ = values.filter(pl.len().over(*PLACE) > 1)
    return differ.sort(*PLACE, maintain_order=True).select(PUBLISHED_SCHEMA.names())


@pytest.fixture(scope="module")
def published() -> pl.DataFrame:
    return pl.read_csv(ROOT / "data_catalog/published/belief.csv", schema=PUBLISHED_SCHEMA)


def wide(published: pl.DataFrame, *metrics: str) -> pl.DataFrame:
    """A row for each place and table that has all the metrics."""
    index = [*(name for name in PLACE if name != "metric"), "table"]
    rows = published.filter(pl.col("metric").is_in(metrics)).pivot("metric", index=index)
    return rows.drop_nulls(metrics)


def test_published_shares_lie_between_nought_and_one(published: pl.DataFrame) -> None:
    other = [*SIZES, "quantity", "semantics", "manual_rank", "runtime_hours", "ovconf"]
    share = ~pl.col("metric").is_in(other) & ~pl.col("metric").str.starts_with("billions_of")
    assert published.filter(share)["value"].is_between(0, 1).all()
    assert published.filter(metric="ovconf")["value"].is_between(-1, 1).all()
    assert published.filter(metric="manual_rank")["value"].is_between(1, 100).all()
    assert (published.filter(~share, pl.col("metric") != "ovconf")["value"] > 0).all()


def test_published_no_table_has_a_number_twice(published: pl.DataFrame) -> None:
    assert not published.select(*PLACE, "table").is_duplicated().any()


def test_published_models_are_configured(published: pl.DataFrame) -> None:
    assert set(published["model"].drop_nulls()) <= set(MODELS)


def test_published_settings_are_those_of_the_papers(published: pl.DataFrame) -> None:
    assert set(published["setting"]) == SETTINGS
    masked = {name for name, model in MODELS.items() if "base/encoder@_here_" in model["defaults"]}
    assert set(published.filter(setting="masked")["model"]) <= masked
    decoded = published.filter(pl.col("setting").is_in(SETTINGS - {None, "masked"}))
    assert not set(decoded["model"]) & masked


def test_published_average_maximum_and_oracle_rise(published: pl.DataFrame) -> None:
    rows = wide(published, "acc_at_1", "coverage_maximum", "coverage_oracle")
    assert rows.height == 7 + 7 + 21 + 21
    assert (rows["acc_at_1"] <= rows["coverage_maximum"]).all()
    assert (rows["coverage_maximum"] <= rows["coverage_oracle"]).all()


def test_published_minimum_mean_and_maximum_rise(published: pl.DataFrame) -> None:
    names = [f"template_spread_{part}" for part in ("min", "mean", "max")]
    low, mean, high = (wide(published, *names)[name] for name in names)
    assert len(mean) == 6
    assert (low <= mean).all()
    assert (mean <= high).all()
    for factor in ("subject", "template"):
        low, high = (f"{factor}_acc_{end}" for end in ("min", "max"))
        spread = wide(published, low, high)
        assert spread.height > 0
        assert (spread[low] <= spread[high]).all()


def test_published_extreme_templates_are_those_of_both_tables(published: pl.DataFrame) -> None:
    names = {"template_acc_min": "template_spread_min", "template_acc_max": "template_spread_max"}
    vary = published.filter(pl.col("metric").is_in(list(names)), table="000:12")
    vary = vary.with_columns(metric=pl.col("metric").replace_strict(names))
    both = vary.join(published.filter(table="000:11"), on=["model", "metric"])
    assert both["value"].to_list() == both["value_right"].to_list() != []


def test_published_sd_is_at_most_half_the_range(published: pl.DataFrame) -> None:
    rows = wide(published, "fluctuation_sd", "fluctuation_range")
    # Popoviciu's inequality; the range was rounded to four digits.
    assert (rows["fluctuation_sd"] <= rows["fluctuation_range"] / 2 + 1e-4).all()


def test_published_prompts_a_pair_follow_from_the_counts(published: pl.DataFrame) -> None:
    mine = (
        published.filter(pl.col("model").is_null(), benchmark="myriadlama").drop("table").unique()
    )
    value = dict(mine.select("metric", "value").iter_rows())
    assert value["prompts"] / value["pairs"] == pytest.approx(value["quantity"], abs=0.005)


def test_published_models_have_their_size(published: pl.DataFrame) -> None:
    # The 2025 paper calls Llama2-7B-IT and Llama2-70B-IT models of 13B.
    rows = published.filter(metric="billions_of_parameters", table="000:15")
    for model, value in rows.select("model", "value").iter_rows():
        assert MODELS[model]["billions_of_parameters"] == pytest.approx(value, rel=0.05), model


def test_published_contradictions_are_those_of_the_page(published: pl.DataFrame) -> None:
    columns = ["model", "setting", "variant", "metric", "value", pl.col("table").alias("tables")]
    page = (ROOT / "docs/published.md").read_text()
    assert markdown(contradictions(published).select(columns)) in page


def test_published_page_counts_the_numbers(published: pl.DataFrame) -> None:
    assert f"{published.height:,} numbers" in (ROOT / "docs/published.md").read_text()
