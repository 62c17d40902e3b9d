"""Real facts of others at scale: X-FACTR's, under the templates of the mini set."""

import polars as pl
import pytest

from factsweep.operators.datasets.facts import Facts, counts
from factsweep.operators.datasets.myriadlama import facts_from_rows
from factsweep.operators.prompts.expansion import expand
from factsweep.operators.prompts.setting import Setting


@pytest.fixture(scope="module")
def real(real_rows: pl.DataFrame) -> Facts:
    return facts_from_rows(real_rows.lazy())


@pytest.fixture(scope="module")
def prompts(real: Facts) -> pl.DataFrame:
    return pl.concat(each.prompts for each in expand(real, Setting("zero-shot", 0), seed=0))


@pytest.mark.slow
def test_real_facts_hold_46_relations_of_1000_triples(real: Facts) -> None:
    found = counts(real)
    assert (found["relations"], found["templates"]) == (46, 460)
    assert found["unique_triples"] == 46_000


@pytest.mark.slow
def test_real_facts_expand_to_names_times_templates(real: Facts, prompts: pl.DataFrame) -> None:
    assert prompts.height == counts(real)["prompts"] > 100_000
    assert prompts.height == 10 * real.pairs["subjects"].list.len().sum()


def test_real_facts_prompt_ids_are_unique(prompts: pl.DataFrame) -> None:
    assert prompts["prompt_id"].n_unique() == prompts.height


def test_real_facts_equal_queries_are_decoded_once(prompts: pl.DataFrame) -> None:
    decoded = prompts.filter(pl.col("same_as").is_null())
    assert decoded["query"].n_unique() == decoded.height == prompts["query"].n_unique()


def test_real_facts_have_one_ranked_prompt_a_pair(real: Facts, prompts: pl.DataFrame) -> None:
    ranked = prompts.drop_nulls("calibration_rank")
    assert set(ranked["pair_id"]) == set(real.pairs["pair_id"])
    assert ranked["calibration_rank"].sort().to_list() == list(range(real.pairs.height))
