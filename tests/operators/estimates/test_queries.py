"""Estimates of means over queries, from some queries of each relation."""

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from factsweep.operators.estimates.queries import (
    CURVED,
    MISSING,
    SINGLE,
    kamel_estimates,
    means,
    probelm_estimates,
)
from factsweep.operators.metrics.kamel import kamel
from factsweep.operators.metrics.probelm import probelm

SIZES = st.lists(st.integers(1, 6), min_size=1, max_size=5)


def scores_of(sizes: list[int], seed: int = 1) -> pl.DataFrame:
    rng = np.random.default_rng(seed)
    relation = np.repeat([f"P{number}" for number in range(len(sizes))], sizes)
    return pl.DataFrame({"relation_id": relation, "score": rng.random(len(relation))})


def sizes_of(rows: pl.DataFrame) -> pl.DataFrame:
    return rows.group_by("relation_id").agg(n=pl.len())


@given(sizes=SIZES)
def test_means_of_all_queries_are_exact(sizes: list[int]) -> None:
    rows = scores_of(sizes)
    alike = means(rows, sizes_of(rows), by="relation")
    pooled = means(rows, sizes_of(rows), by="query")
    assert alike is not None
    assert pooled is not None
    by_relation = rows.group_by("relation_id").agg(pl.mean("score"))["score"].mean()
    assert alike.mean(0)[:3] == (pytest.approx(by_relation),) * 3
    assert pooled.mean(0)[:3] == (pytest.approx(rows["score"].mean()),) * 3


@pytest.mark.slow
@pytest.mark.parametrize("by", ["relation", "query"])
def test_means_variance_is_that_over_samples(by: str) -> None:
    rows = scores_of([12, 30, 7]).with_row_index()
    values, errors = [], []
    for seed in range(1500):
        part = pl.concat(
            stratum.sample(4, seed=seed + n)
            for n, stratum in enumerate(rows.partition_by("relation_id", maintain_order=True))
        )
        estimate = means(part.drop("index"), sizes_of(rows), by=by)
        assert estimate is not None
        assert estimate.covariance is not None
        values.append(estimate.values[0])
        errors.append(estimate.covariance[0, 0])
    assert np.mean(errors) == pytest.approx(np.var(values), rel=0.1)


@pytest.mark.parametrize("score", [0.0, 1.0])
def test_means_of_scores_that_are_all_alike_have_an_interval(score: float) -> None:
    rows = scores_of([5, 5]).with_columns(score=pl.lit(score))
    estimate = means(rows, rows.group_by("relation_id").agg(n=pl.lit(50)), by="query")
    assert estimate is not None
    _, low, high, _ = estimate.mean(0)
    assert low is not None
    assert high is not None
    assert 0.2 < high - low < 0.4
    assert 0 <= low <= score <= high <= 1


def test_means_without_a_query_of_a_relation_are_null() -> None:
    rows = scores_of([3, 3])
    assert means(rows.filter(relation_id="P0"), sizes_of(rows), by="query") is None


def test_means_of_single_queries_have_no_interval() -> None:
    rows = scores_of([3, 3])
    estimate = means(rows.unique("relation_id"), sizes_of(rows), by="query")
    assert estimate is not None
    assert estimate.mean(0)[1:] == (None, None, SINGLE)


def queries(n_relations: int, n_queries: int) -> pl.DataFrame:
    rows = [
        {
            "pair_id": f"P{relation}.test.{number}",
            "relation_id": f"P{relation}",
            "split": "test",
            "objects": [{"object_id": f"Q{number}", "labels": [f"label{number}"]}],
        }
        for relation in range(n_relations)
        for number in range(n_queries)
    ]
    return pl.DataFrame(rows)


def said(facts: pl.DataFrame, seed: int = 1) -> pl.DataFrame:
    """Answers that are right in some relations more often than in others."""
    rng = np.random.default_rng(seed)
    rows = facts.with_columns(
        right=pl.Series(rng.random(facts.height) < 0.3),
        label=pl.col("objects").list.first().struct.field("labels").list.first(),
    )
    text = pl.when("right").then(pl.concat_str("label", pl.lit("; more%"))).otherwise(pl.lit("no%"))
    return rows.select("pair_id", text=text)


def full(facts: pl.DataFrame) -> pl.DataFrame:
    single = pl.lit(1, pl.Int64)
    none = pl.lit(0, pl.Int64)
    return facts.select("relation_id", "pair_id", n_names=single, n_templates=single, n_failed=none)


def test_kamel_estimates_of_all_queries_are_its_numbers() -> None:
    facts = queries(4, 6)
    rows = kamel_estimates(said(facts), facts, full(facts), seed=1, n_rounds=20)
    metrics = kamel(said(facts), facts, seed=1, n_rounds=20)
    full_rows = metrics.filter(pl.col("slice").is_null(), pl.col("variant").is_null())
    value = dict(full_rows.select("metric", "value").iter_rows())
    for row in rows.iter_rows(named=True):
        for end in ("value", "full_low", "full_high"):
            assert row[end] == pytest.approx(value[row["metric"]]), row["metric"]


def test_kamel_f1_where_precision_is_recall_has_their_interval() -> None:
    facts = queries(4, 6)
    answers = said(facts).with_columns(pl.col("text").str.replace("; more", ""))
    rows = kamel_estimates(answers, facts, full(queries(4, 30)), seed=1, n_rounds=2)
    precision, recall, f1 = rows.select("value", "ci_low", "ci_high").head(3).rows()
    assert precision == recall
    assert f1 == pytest.approx(precision)
    assert f1[1] < f1[0] < f1[2]


def others_hold_these(rows: pl.DataFrame) -> bool:
    """Whether no interval of other facts is narrower than that of the full run's."""
    inside = (pl.col("ci_low") <= pl.col("full_low")) & (pl.col("full_high") <= pl.col("ci_high"))
    return bool(rows.select(inside).to_series().all())


@pytest.mark.slow
def test_kamel_estimates_of_samples_cover_the_full_run() -> None:
    facts = queries(12, 40)
    answers = said(facts)
    all_of_it = kamel_estimates(answers, facts, full(facts), seed=1, n_rounds=2)
    full_values = dict(all_of_it.select("metric", "value").iter_rows())
    inside = []
    for seed in range(60):
        part = pl.concat(
            relation_facts.sample(10, seed=100 * seed + n)
            for n, relation_facts in enumerate(
                facts.partition_by("relation_id", maintain_order=True)
            )
        )
        sampled_answers = answers.join(part, on="pair_id", how="semi")
        rows = kamel_estimates(sampled_answers, facts, full(facts), seed=1, n_rounds=2)
        assert rows.filter(metric="f1_relation_mean")["why"].item() == CURVED
        assert others_hold_these(rows)
        for metric, low, high in rows.head(3).select("metric", "full_low", "full_high").iter_rows():
            inside.append(low <= full_values[metric] <= high)
    assert 0.88 <= np.mean(inside) <= 0.99


def test_kamel_estimates_without_a_relation_say_so() -> None:
    facts = queries(3, 4)
    answers = said(facts).filter(~pl.col("pair_id").str.starts_with("P2"))
    rows = kamel_estimates(answers, facts, full(facts), seed=1, n_rounds=2)
    assert rows["value"].null_count() == rows.height
    assert rows["why"][0] == MISSING


def test_probelm_estimates_of_all_groups_are_its_numbers() -> None:
    rng = np.random.default_rng(3)
    candidates = pl.DataFrame(
        [
            {
                "candidate_id": f"g{group}.{rank}",
                "pair_id": f"g{group}",
                "relation_id": f"P{group % 3}",
                "frame": "2023-11",
                "rank": rank,
                "is_positive": rank == 1,
            }
            for group in range(12)
            for rank in range(1, 5)
        ]
    )
    scores = pl.concat(
        candidates.select(
            "candidate_id",
            setting=pl.lit(setting),
            logprob=pl.Series(-10 * rng.random(candidates.height)),
            n_tokens=pl.lit(4),
        )
        for setting in ("statement", "question", "completion")
    )
    pairs = candidates.group_by("relation_id", "pair_id").agg(
        n_names=pl.len().cast(pl.Int64) * 3,
        n_templates=pl.lit(1, pl.Int64),
        n_failed=pl.lit(0, pl.Int64),
    )
    estimate_rows = probelm_estimates(scores, candidates, pairs, seed=1, n_rounds=2)
    full_rows = probelm(scores, candidates, seed=1, n_rounds=2).filter(pl.col("slice").is_null())
    rows = estimate_rows.join(full_rows, on=["setting", "metric"], suffix="_known")
    assert rows.height == estimate_rows.height == 17
    for end in ("value", "full_low", "full_high"):
        assert rows[end].to_list() == pytest.approx(rows["value_known"].to_list())
    half = candidates.filter(pl.col("pair_id").str.contains("[0-5]$"))
    part = scores.join(half, on="candidate_id", how="semi")
    rows = probelm_estimates(part, candidates, pairs, seed=1, n_rounds=2)
    assert rows["share"].unique().to_list() == [part.height / scores.height]
    assert (rows["full_low"] < rows["value"]).all()
    assert others_hold_these(rows)
