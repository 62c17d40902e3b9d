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
    controlled_means,
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
            each.sample(4, seed=seed + n)
            for n, each in enumerate(rows.partition_by("relation_id", maintain_order=True))
        )
        found = means(part.drop("index"), sizes_of(rows), by=by)
        assert found is not None
        assert found.covariance is not None
        values.append(found.values[0])
        errors.append(found.covariance[0, 0])
    assert np.mean(errors) == pytest.approx(np.var(values), rel=0.1)


@pytest.mark.parametrize("score", [0.0, 1.0])
def test_means_of_scores_that_are_all_alike_have_an_interval(score: float) -> None:
    rows = scores_of([5, 5]).with_columns(score=pl.lit(score))
    found = means(rows, rows.group_by("relation_id").agg(n=pl.lit(50)), by="query")
    assert found is not None
    _, low, high, _ = found.mean(0)
    assert low is not None
    assert high is not None
    assert 0.2 < high - low < 0.4
    assert 0 <= low <= score <= high <= 1


def test_means_without_a_query_of_a_relation_are_null() -> None:
    rows = scores_of([3, 3])
    assert means(rows.filter(relation_id="P0"), sizes_of(rows), by="query") is None


def test_means_of_single_queries_have_no_interval() -> None:
    rows = scores_of([3, 3])
    found = means(rows.unique("relation_id"), sizes_of(rows), by="query")
    assert found is not None
    assert found.mean(0)[1:] == (None, None, SINGLE)


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


def said(asked: pl.DataFrame, seed: int = 1) -> pl.DataFrame:
    """Answers that are right in some relations more often than in others."""
    rng = np.random.default_rng(seed)
    rows = asked.with_columns(
        right=pl.Series(rng.random(asked.height) < 0.3),
        label=pl.col("objects").list.first().struct.field("labels").list.first(),
    )
    text = pl.when("right").then(pl.concat_str("label", pl.lit("; more%"))).otherwise(pl.lit("no%"))
    return rows.select("pair_id", text=text)


def full(asked: pl.DataFrame) -> pl.DataFrame:
    one = pl.lit(1, pl.Int64)
    none = pl.lit(0, pl.Int64)
    return asked.select("relation_id", "pair_id", n_names=one, n_templates=one, n_failed=none)


def test_kamel_estimates_of_all_queries_are_its_numbers() -> None:
    asked = queries(4, 6)
    found = kamel_estimates(said(asked), asked, full(asked), seed=1, n_rounds=20)
    metrics = kamel(said(asked), asked, seed=1, n_rounds=20)
    known = metrics.filter(pl.col("slice").is_null(), pl.col("variant").is_null())
    value = dict(known.select("metric", "value").iter_rows())
    for row in found.iter_rows(named=True):
        for end in ("value", "full_low", "full_high"):
            assert row[end] == pytest.approx(value[row["metric"]]), row["metric"]


def others_hold_these(rows: pl.DataFrame) -> bool:
    """Whether no interval of other facts is narrower than that of the full run's."""
    inside = (pl.col("ci_low") <= pl.col("full_low")) & (pl.col("full_high") <= pl.col("ci_high"))
    return bool(rows.select(inside).to_series().all())


@pytest.mark.slow
def test_kamel_estimates_of_samples_cover_the_full_run() -> None:
    asked = queries(12, 40)
    answers = said(asked)
    all_of_it = kamel_estimates(answers, asked, full(asked), seed=1, n_rounds=2)
    known = dict(all_of_it.select("metric", "value").iter_rows())
    inside = []
    for seed in range(60):
        part = pl.concat(
            each.sample(10, seed=100 * seed + n)
            for n, each in enumerate(asked.partition_by("relation_id", maintain_order=True))
        )
        mine = answers.join(part, on="pair_id", how="semi")
        rows = kamel_estimates(mine, asked, full(asked), seed=1, n_rounds=2)
        assert rows.filter(metric="f1_relation_mean")["why"].item() == CURVED
        assert others_hold_these(rows)
        for metric, low, high in rows.head(3).select("metric", "full_low", "full_high").iter_rows():
            inside.append(low <= known[metric] <= high)
    assert 0.88 <= np.mean(inside) <= 0.99


def test_kamel_estimates_without_a_relation_say_so() -> None:
    asked = queries(3, 4)
    answers = said(asked).filter(~pl.col("pair_id").str.starts_with("P2"))
    rows = kamel_estimates(answers, asked, full(asked), seed=1, n_rounds=2)
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
    found = probelm_estimates(scores, candidates, pairs, seed=1, n_rounds=2)
    known = probelm(scores, candidates, seed=1, n_rounds=2).filter(pl.col("slice").is_null())
    rows = found.join(known, on=["setting", "metric"], suffix="_known")
    assert rows.height == found.height == 17
    for end in ("value", "full_low", "full_high"):
        assert rows[end].to_list() == pytest.approx(rows["value_known"].to_list())
    half = candidates.filter(pl.col("pair_id").str.contains("[0-5]$"))
    part = scores.join(half, on="candidate_id", how="semi")
    rows = probelm_estimates(part, candidates, pairs, seed=1, n_rounds=2)
    assert rows["share"].unique().to_list() == [part.height / scores.height]
    assert (rows["full_low"] < rows["value"]).all()
    assert others_hold_these(rows)


@pytest.mark.slow
@pytest.mark.parametrize(("likeness", "gain"), [(1.0, 3.0), (0.0, 0.9)])
def test_means_with_a_control_are_unbiased_and_as_narrow_as_it_is_like(
    likeness: float, gain: float
) -> None:
    """By 300 samples; a control that says nothing costs next to nothing."""
    rows = scores_of([30, 80, 20]).with_row_index("pair_id")
    noise = np.random.default_rng(2).random(rows.height)
    x = likeness * rows["score"].to_numpy() + 0.4 * noise
    earlier = rows.with_columns(score=pl.Series(x))
    plain, values, errors = [], [], []
    for seed in range(300):
        part = pl.concat(
            each.sample(10, seed=seed + n)
            for n, each in enumerate(rows.partition_by("relation_id", maintain_order=True))
        )
        sizes = sizes_of(rows)
        found = controlled_means(part, earlier, sizes, by="query", seed=1)
        without = means(part.drop("pair_id"), sizes, by="query")
        assert found is not None
        assert without is not None
        assert found.covariance is not None
        plain.append(without.values[0])
        values.append(found.values[0])
        errors.append(found.covariance[0, 0])
    truth, off = rows["score"].mean(), np.std(values)
    assert np.mean(values) == pytest.approx(truth, abs=4 * off / np.sqrt(300))
    assert np.var(plain) / np.var(values) > gain
    half = 2 * np.sqrt(errors)
    assert np.mean(np.abs(np.array(values) - truth) < half) > 0.92


def test_kamel_estimates_with_an_earlier_run_say_as_much_as_more_prompts() -> None:
    asked = queries(3, 200)
    answers = said(asked)
    relation = asked.select("pair_id", "relation_id")
    before = answers.join(relation, on="pair_id")
    part = answers.sample(300, seed=3)

    def control(name: str) -> pl.DataFrame:
        return before.filter(relation_id=name)

    found = kamel_estimates(part, asked, full(asked), seed=1, n_rounds=2, control=control)
    plain = kamel_estimates(part, asked, full(asked), seed=1, n_rounds=2)
    known = kamel(answers, asked, seed=1, n_rounds=2).filter(
        pl.col("slice").is_null(), pl.col("variant").is_null()
    )
    truth = dict(known.select("metric", "value").iter_rows())
    assert plain["n_effective"].null_count() == 4
    for row in found.head(3).to_dicts():
        assert row["n_effective"] > 2 * row["n"]
        assert row["full_low"] < truth[row["metric"]] < row["full_high"]
    whole = kamel_estimates(answers, asked, full(asked), seed=1, n_rounds=2, control=control)
    assert whole["full_low"].to_list() == pytest.approx(whole["full_high"].to_list())
