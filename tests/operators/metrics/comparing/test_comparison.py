"""The comparison of two runs, against the runs themselves and resamples written out."""

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binom
from statsmodels.stats import contingency_tables

from factsweep.operators.metrics.belief.calibration import auroc, ece
from factsweep.operators.metrics.comparing.comparison import (
    COMPARISON,
    FACTS,
    OF_FACTS,
    cohens_h,
    compare,
    compare_ranked,
    design_effect,
    gained_and_lost,
    holm,
    mcnemar,
    sign_flip,
)
from factsweep.operators.metrics.comparing.paired import (
    PAIRED,
    paired_calibration_terms,
    paired_terms,
)
from factsweep.operators.metrics.shared.bootstrap import estimate, weight_blocks
from factsweep.operators.seeds import generator

Tables = st.SearchStrategy[pl.DataFrame]


def named(answers: pl.DataFrame) -> pl.DataFrame:
    return answers.with_columns(
        prompt_id=pl.format("{}.{}.{}", "pair_id", "template_id", "subject_index")
    )


def paired(first: pl.DataFrame, second: pl.DataFrame) -> pl.DataFrame:
    return paired_terms(named(first), named(second), robust_share=0.6)


def facts(before: list[float], after: list[float], relation: str = "P1") -> pl.DataFrame:
    n = len(before)
    columns = {
        "metric": ["acc_at_1"] * n,
        "relation_id": [relation] * n,
        "pair_id": [f"{relation}.{i:03d}" for i in range(n)],
        "first": before,
        "second": after,
        "denominator": [1.0] * n,
        "squares": [(b - a) ** 2 for a, b in zip(before, after, strict=True)],
        "n_prompts": [1] * n,
    }
    return pl.DataFrame(columns, schema=PAIRED)


@given(data=st.data())
def test_compare_any_runs_equals_each_number_by_itself(
    data: st.DataObject, answer_tables: Tables
) -> None:
    terms = paired(data.draw(answer_tables), data.draw(answer_tables))
    found = compare(terms, seed=1, n_rounds=20)
    assert found.schema == COMPARISON
    assert found.select("metric", "relation_id").is_unique().all()
    for row in found.iter_rows(named=True):
        own = terms.filter(metric=row["metric"])
        if row["relation_id"] is not None:
            own = own.filter(relation_id=row["relation_id"])
        total = own["denominator"].sum()
        first, second = own["first"].sum() / total, own["second"].sum() / total
        assert (row["first"], row["second"]) == (pytest.approx(first), pytest.approx(second))
        assert row["difference"] == pytest.approx(second - first)
        assert row["effect_size"] == pytest.approx(cohens_h(first, second))
        change = own.with_columns(numerator=pl.col("second") - pl.col("first"))
        assert row["design_effect"] == pytest.approx(design_effect(change))
        assert (row["n_pairs"], row["n_prompts"]) == (own.height, own["n_prompts"].sum())
        changes = change["numerator"].to_numpy()
        expected = sign_flip(changes)
        if row["metric"] in OF_FACTS:
            expected = mcnemar(int((changes == 1).sum()), int((changes == -1).sum())).mid_p
        assert row["p"] == (None if row["metric"] == "coverage_maximum" else expected)


@given(data=st.data())
def test_compare_families_are_all_metrics_and_each_metrics_relations(
    data: st.DataObject, answer_tables: Tables
) -> None:
    terms = paired(data.draw(answer_tables), data.draw(answer_tables))
    found = compare(terms, seed=1, n_rounds=2)
    overall = found.filter(pl.col("relation_id").is_null())
    assert overall["p_holm"].to_list() == overall.select(holm(pl.col("p")))["p"].to_list()
    for metric in set(found["metric"]):
        relations = found.filter(pl.col("relation_id").is_not_null(), metric=metric)
        corrected = relations.select(holm(pl.col("p")))["p"]
        assert relations["p_holm"].to_list() == corrected.to_list()


@given(data=st.data())
def test_compare_swapped_runs_swap_the_signs(data: st.DataObject, answer_tables: Tables) -> None:
    first, second = data.draw(answer_tables), data.draw(answer_tables)
    there, back = (
        compare(paired(one, other), seed=1, n_rounds=20)
        for one, other in ((first, second), (second, first))
    )
    turned = back.with_columns(
        first="second",
        second="first",
        difference=-pl.col("difference"),
        ci_low=-pl.col("ci_high"),
        ci_high=-pl.col("ci_low"),
        effect_size=-pl.col("effect_size"),
    )
    for name in COMPARISON.names():
        expected = there[name].to_list()
        if there[name].dtype.is_float():
            expected = [None if each is None else pytest.approx(each) for each in expected]
        assert turned[name].to_list() == expected


def test_compare_interval_is_that_of_differences_of_the_same_draws() -> None:
    rng = np.random.default_rng(1)
    one, other = rng.random(30), rng.random(30)
    row = compare(facts(one.tolist(), other.tolist()), seed=3, n_rounds=200).row(0, named=True)
    taken = generator(3, "bootstrap", "P1").integers(30, size=(200, 29))
    change = other - one
    expected = estimate(np.array([change.mean(), *change[taken].mean(axis=1)]), 29)
    assert (row["difference"], row["ci_low"], row["ci_high"]) == pytest.approx(expected)


def test_compare_runs_alike_differ_in_nothing(answer_tables: Tables) -> None:
    terms = facts([0.5, 1.0, 0.0], [0.5, 1.0, 0.0])
    (overall, relation) = compare(terms, seed=1).iter_rows(named=True)
    for row in (overall, relation):
        assert (row["difference"], row["ci_low"], row["ci_high"]) == (0, 0, 0)
        assert (row["p"], row["p_holm"], row["effect_size"]) == (1, 1, 0)
        assert row["design_effect"] is None


def test_compare_what_both_runs_share_makes_the_interval_narrow() -> None:
    rng = np.random.default_rng(1)
    hard = rng.random(200).round() * 0.9
    row = compare(facts(hard.tolist(), (hard + 0.05).tolist()), seed=1).row(0, named=True)
    assert row["ci_low"] == pytest.approx(row["ci_high"]) == pytest.approx(0.05)


def test_compare_a_damaged_relation_is_the_one_that_is_named() -> None:
    rng = np.random.default_rng(1)
    parts = []
    for relation in (f"P{i}" for i in range(8)):
        before = rng.integers(0, 11, 10) / 10
        noise = np.where(rng.random(10) < 0.2, 0.1, 0) * rng.choice([-1, 1], 10)
        after = before * 0 if relation == "P5" else np.clip(before + noise, 0, 1)
        parts.append(facts(before.tolist(), after.tolist(), relation))
    found = compare(pl.concat(parts), seed=1)
    named_relations = found.filter(pl.col("p_holm") < 0.05)["relation_id"].drop_nulls()
    assert named_relations.to_list() == ["P5"]


def test_compare_no_shared_prompts_is_an_empty_table() -> None:
    found = compare(pl.DataFrame(schema=PAIRED), seed=1)
    assert found.is_empty()
    assert found.schema == COMPARISON


@given(data=st.data())
def test_compare_by_fact_tests_the_changes_of_facts(
    data: st.DataObject, answer_tables: Tables
) -> None:
    first, second = named(data.draw(answer_tables)), named(data.draw(answer_tables))
    terms = paired_terms(first, second, robust_share=0.6, unit="fact")
    for row in compare(terms, seed=1, n_rounds=5).iter_rows(named=True):
        own = terms.filter(metric=row["metric"])
        if row["relation_id"] is not None:
            own = own.filter(relation_id=row["relation_id"])
        first_wins = (own["first"] > own["second"]).sum()
        second_wins = (own["first"] < own["second"]).sum()
        assert (row["design_effect"], row["n_prompts"]) == (None, None)
        if row["metric"] in OF_FACTS:
            table = [[0, second_wins], [first_wins, 0]]
            exact = contingency_tables.mcnemar(table, exact=True).pvalue
            n, fewer = first_wins + second_wins, min(first_wins, second_wins)
            # The mid-p is the exact value less the probability of what was seen, where one side
            # has more; else it is 1.
            less = binom.pmf(fewer, n, 0.5) if first_wins != second_wins else 0
            assert row["p"] == pytest.approx(exact - less)


@given(data=st.data())
def test_gained_and_lost_any_runs_equals_counting(
    data: st.DataObject, answer_tables: Tables
) -> None:
    terms = paired(data.draw(answer_tables), data.draw(answer_tables))
    found = gained_and_lost(terms)
    assert found.schema == FACTS
    for metric, relation, n_pairs, n_gained, n_lost, p_exact, p_mid in found.iter_rows():
        own = terms.filter(metric=metric)
        own = own if relation is None else own.filter(relation_id=relation)
        pairs = own.select("first", "second").rows()
        assert n_pairs == len(pairs)
        assert (n_gained, n_lost) == (pairs.count((0.0, 1.0)), pairs.count((1.0, 0.0)))
        assert (p_exact, p_mid) == mcnemar(n_gained, n_lost)


@given(data=st.data())
def test_compare_ranked_any_runs_equals_the_metrics(
    data: st.DataObject, calibration_tables: Tables
) -> None:
    first = data.draw(calibration_tables)
    other = data.draw(calibration_tables).select("prompt_id", "confidence", "correct")
    second = first.select("prompt_id", "relation_id", "pair_id").join(other, on="prompt_id")
    one = first.join(second, on="prompt_id", how="semi")
    found = compare_ranked(first, second, seed=1, n_rounds=10)
    assert found.schema == COMPARISON
    for row, metric in zip(found.iter_rows(named=True), (ece, auroc), strict=True):
        before, after = metric(one), metric(second)
        assert (row["first"], row["second"]) == (pytest.approx(before), pytest.approx(after))
        undefined = before is None or after is None
        difference = None if undefined else pytest.approx(after - before)  # type: ignore[operator]
        assert row["difference"] == difference
        assert (row["p"], row["effect_size"], row["n_prompts"]) == (None, None, one.height)


def test_compare_ranked_rounds_are_the_metrics_of_resamples() -> None:
    rng = np.random.default_rng(1)
    prompts = {
        "prompt_id": [f"p{i}" for i in range(24)],
        "relation_id": ["P1"] * 12 + ["P2"] * 12,
        "pair_id": [f"t{i:02d}" for i in range(24)],
    }
    first, second = (
        pl.DataFrame({**prompts, "confidence": rng.random(24), "correct": rng.random(24) < 0.5})
        for _ in range(2)
    )
    weights = np.hstack(
        [
            np.concatenate(list(weight_blocks(12, generator(1, "bootstrap", each), 40)))
            for each in ("P1", "P2")
        ]
    )
    found = compare_ranked(first, second, seed=1, n_rounds=40, n_bins=4)
    for row, metric in zip(found.iter_rows(named=True), (lambda t: ece(t, 4), auroc), strict=True):
        rounds = [
            metric(second[np.repeat(np.arange(24), each)])
            - metric(first[np.repeat(np.arange(24), each)])
            for each in weights
        ]
        expected = estimate(np.array(rounds))
        assert (row["difference"], row["ci_low"], row["ci_high"]) == pytest.approx(expected)


def test_compare_ranked_by_fact_draws_the_same_facts_by_other_prompts() -> None:
    rng = np.random.default_rng(2)
    facts = {"relation_id": ["P1"] * 12, "pair_id": [f"t{i:02d}" for i in range(12)]}
    first, second = (
        pl.DataFrame({**facts, "confidence": rng.random(12), "correct": rng.random(12) < 0.5})
        for _ in range(2)
    )
    named_alike, named_apart = (
        compare_ranked(
            first.with_columns(prompt_id="pair_id"),
            second.with_columns(prompt_id=pl.col("pair_id") + ending),
            seed=1,
            n_rounds=40,
            unit=unit,
        )
        for ending, unit in (("", "prompt"), ("!", "fact"))
    )
    assert named_apart["n_pairs"].to_list() == [12, 12]
    assert named_alike.drop("n_prompts").equals(named_apart.drop("n_prompts"))


def test_compare_ranked_several_prompts_a_pair_have_no_interval() -> None:
    prompts = {"prompt_id": ["p", "q"], "relation_id": ["P1"] * 2, "pair_id": ["t"] * 2}
    run = pl.DataFrame({**prompts, "confidence": [0.5, 1.0], "correct": [True, False]})
    found = compare_ranked(run, run, seed=1)
    assert found["difference"].to_list() == [0, 0]
    assert found["ci_low"].to_list() == [None, None]


@given(data=st.data())
def test_compare_a_gap_is_no_share_and_has_no_effect_size(
    data: st.DataObject, calibration_tables: Tables
) -> None:
    run = data.draw(calibration_tables.filter(len))
    found = compare(paired_calibration_terms(run, run), seed=1, n_rounds=2)
    assert found["effect_size"].null_count() == found.height
