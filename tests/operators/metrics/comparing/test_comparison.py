"""The comparison of two runs, against the runs themselves and resamples written out."""

from collections.abc import Sequence
from itertools import product
from math import comb

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from statsmodels.stats import contingency_tables, multitest, proportion

from factsweep.operators.metrics.comparing.comparison import (
    COMPARISON,
    FACTS,
    OF_FACTS,
    adjust_p_values,
    cohens_h,
    compare,
    compare_ranked,
    count_gained_and_lost,
    design_effect,
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
from factsweep.operators.schemas import schema
from factsweep.operators.seeds import generator
from tests.operators.metrics.scalars import RANKED, Tables, auroc, ece, named

METRICS = (ece, auroc, *RANKED.values())


def paired(first: pl.DataFrame, second: pl.DataFrame) -> pl.DataFrame:
    return paired_terms(named(first), named(second), robust_share=0.6)


def facts(before: list[float], after: list[float], relation: str = "P1") -> pl.DataFrame:
    changes = enumerate(zip(before, after, strict=True))
    rows = [
        ("acc_at_1", relation, f"{relation}.{i:03d}", b, a, 1.0, (b - a) ** 2, 1)
        for i, (b, a) in changes
    ]
    return pl.DataFrame(rows, schema=PAIRED, orient="row")


@given(data=st.data())
def test_compare_any_runs_equals_each_number_by_itself(
    data: st.DataObject, answer_tables: Tables
) -> None:
    terms = paired(data.draw(answer_tables), data.draw(answer_tables))
    comparison = adjust_p_values(compare(terms, seed=1, n_rounds=20), "consist")
    assert comparison.schema == COMPARISON
    assert comparison.select("metric", "relation_id").is_unique().all()
    for row in comparison.iter_rows(named=True):
        rows = terms.filter(metric=row["metric"])
        if row["relation_id"] is not None:
            rows = rows.filter(relation_id=row["relation_id"])
        total = rows["denominator"].sum()
        first, second = rows["first"].sum() / total, rows["second"].sum() / total
        assert (row["first"], row["second"]) == (pytest.approx(first), pytest.approx(second))
        assert row["difference"] == pytest.approx(second - first)
        assert row["effect_size"] == pytest.approx(cohens_h(first, second))
        change = rows.with_columns(numerator=pl.col("second") - pl.col("first"))
        assert row["design_effect"] == pytest.approx(design_effect(change))
        assert (row["n_pairs"], row["n_prompts"]) == (rows.height, rows["n_prompts"].sum())
        changes = change["numerator"].to_numpy()
        expected = sign_flip(changes)
        if row["metric"] in OF_FACTS:
            expected = mcnemar(int((changes == 1).sum()), int((changes == -1).sum())).mid_p
        assert row["p"] == (None if row["metric"] == "coverage_maximum" else expected)
    everything = comparison.filter(pl.col("relation_id").is_null())
    relations = comparison.drop_nulls("relation_id").partition_by("metric")
    for family in (everything.filter(pl.col("metric") != "consist"), *relations):
        assert family["p_holm"].to_list() == family.select(holm(pl.col("p")))["p"].to_list()
    assert everything.filter(metric="consist")["p_holm"].to_list() in ([], [None])
    counts = count_gained_and_lost(terms)
    assert counts.schema == FACTS
    for metric, relation, n_pairs, n_gained, n_lost, p_exact, p_mid in counts.iter_rows():
        rows = terms.filter(metric=metric)
        rows = rows if relation is None else rows.filter(relation_id=relation)
        pairs = rows.select("first", "second").rows()
        assert n_pairs == len(pairs)
        assert (n_gained, n_lost) == (pairs.count((0.0, 1.0)), pairs.count((1.0, 0.0)))
        assert (p_exact, p_mid) == mcnemar(n_gained, n_lost)


def test_compare_interval_is_that_of_differences_of_the_same_draws() -> None:
    rng = np.random.default_rng(1)
    first, second = rng.random(30), rng.random(30)
    row = compare(facts(first.tolist(), second.tolist()), seed=3, n_rounds=200).row(0, named=True)
    drawn_facts = generator(3, "bootstrap", "P1").integers(30, size=(200, 29))
    change = second - first
    expected = estimate(np.array([change.mean(), *change[drawn_facts].mean(axis=1)]), 29)
    assert (row["difference"], row["ci_low"], row["ci_high"]) == pytest.approx(expected)


def test_compare_runs_alike_differ_in_nothing_and_what_is_shared_makes_intervals_narrow() -> None:
    for row in compare(facts([0.5, 1.0, 0.0], [0.5, 1.0, 0.0]), seed=1).iter_rows(named=True):
        assert (row["difference"], row["ci_low"], row["ci_high"]) == (0, 0, 0)
        assert (row["p"], row["effect_size"]) == (1, 0)
        assert row["design_effect"] is None
    hard = np.random.default_rng(1).random(200).round() * 0.9
    row = compare(facts(hard.tolist(), (hard + 0.05).tolist()), seed=1).row(0, named=True)
    assert row["ci_low"] == pytest.approx(row["ci_high"]) == pytest.approx(0.05)


@given(data=st.data())
def test_compare_by_fact_has_neither_prompts_nor_design_effects(
    data: st.DataObject, answer_tables: Tables
) -> None:
    first, second = named(data.draw(answer_tables)), named(data.draw(answer_tables))
    terms = paired_terms(first, second, robust_share=0.6, unit="fact")
    comparison = compare(terms, seed=1, n_rounds=5)
    assert comparison["design_effect"].is_null().all()
    assert comparison["n_prompts"].is_null().all()


@given(data=st.data())
def test_compare_ranked_any_runs_equals_the_metrics(
    data: st.DataObject, calibration_tables: Tables
) -> None:
    first = data.draw(calibration_tables)
    answers = data.draw(calibration_tables).select("prompt_id", "confidence", "correct")
    second = first.select("prompt_id", "relation_id", "pair_id").join(answers, on="prompt_id")
    shared = first.join(second, on="prompt_id", how="semi")
    comparison = compare_ranked(first, second, seed=1, n_rounds=10)
    assert comparison.schema == COMPARISON
    for row, metric in zip(comparison.iter_rows(named=True), METRICS, strict=True):
        before, after = metric(shared), metric(second)
        assert (row["first"], row["second"]) == (pytest.approx(before), pytest.approx(after))
        undefined = before is None or after is None
        difference = None if undefined else pytest.approx(after - before)  # type: ignore[operator]
        assert row["difference"] == difference
        assert (row["p"], row["effect_size"], row["n_prompts"]) == (None, None, shared.height)


def test_compare_ranked_rounds_are_the_metrics_of_resamples_by_prompt_and_by_fact() -> None:
    rng = np.random.default_rng(1)
    ids = {"relation_id": ["P1"] * 12 + ["P2"] * 12, "pair_id": [f"t{i:02d}" for i in range(24)]}
    first, second = (
        pl.DataFrame({**ids, "confidence": rng.random(24), "correct": rng.random(24) < 0.5})
        for _ in range(2)
    )
    by_relation = [
        np.concatenate(list(weight_blocks(12, generator(1, "bootstrap", relation), 40)))
        for relation in ("P1", "P2")
    ]
    first, second = (run.with_columns(prompt_id="pair_id") for run in (first, second))
    resamples = [np.repeat(np.arange(24), weights) for weights in np.hstack(by_relation)]
    draws = {"seed": 1, "n_rounds": 40, "n_bins": 4}
    by_prompt = compare_ranked(first, second, **draws)
    metrics = (lambda rows: ece(rows, 4), *METRICS[1:])
    for row, metric in zip(by_prompt.iter_rows(named=True), metrics, strict=True):
        rounds = [metric(second[resample]) - metric(first[resample]) for resample in resamples]
        expected = estimate(np.array(rounds))
        assert (row["difference"], row["ci_low"], row["ci_high"]) == pytest.approx(expected)
    renamed = second.with_columns(pl.col("prompt_id") + "!")  # the same facts by other prompts
    by_fact = compare_ranked(first, renamed, **draws, unit="fact")
    assert by_fact["n_pairs"].to_list() == [24] * len(METRICS)
    assert by_fact.drop("n_prompts").equals(by_prompt.drop("n_prompts"))


def test_compare_ranked_several_prompts_a_pair_have_no_interval() -> None:
    prompts = {"prompt_id": ["p", "q"], "relation_id": ["P1"] * 2, "pair_id": ["t"] * 2}
    run = pl.DataFrame({**prompts, "confidence": [0.5, 1.0], "correct": [True, False]})
    comparison = compare_ranked(run, run, seed=1)
    assert comparison["difference"].to_list() == [0] * len(METRICS)
    assert comparison["ci_low"].null_count() == len(METRICS)


@given(data=st.data())
def test_compare_a_gap_is_no_share_and_has_no_effect_size(
    data: st.DataObject, calibration_tables: Tables
) -> None:
    run = data.draw(calibration_tables.filter(len))
    comparison = compare(paired_calibration_terms(run, run), seed=1, n_rounds=2)
    assert comparison["effect_size"].null_count() == comparison.height


COUNTS = st.integers(0, 60)
CHANGES = st.lists(st.sampled_from([-1.0, -0.5, -0.1, 0.0, 0.0, 0.3, 0.5, 1.0]), max_size=8)
P_VALUES = st.lists(st.none() | st.floats(0, 1), max_size=12)


def corrected(p_values: Sequence[float | None]) -> list[float | None]:
    rows = pl.DataFrame({"p": p_values}, {"p": pl.Float64})
    return rows.select(holm(pl.col("p"))).to_series().to_list()


@given(gained=COUNTS, lost=COUNTS)
def test_mcnemar_is_that_of_statsmodels_and_mid_p_the_formula_of_fagerland(
    gained: int, lost: int
) -> None:
    n, fewer = gained + lost, min(gained, lost)
    likely = [comb(n, k) / 2**n for k in range(fewer + 1)]
    expected = 1 if gained == lost else 2 * sum(likely) - likely[-1]
    assert mcnemar(gained, lost).mid_p == pytest.approx(expected)
    p_exact = contingency_tables.mcnemar([[5, gained], [lost, 7]], exact=True).pvalue
    assert mcnemar(gained, lost).exact == pytest.approx(p_exact)


@given(changes=CHANGES)
def test_sign_flip_few_changes_equals_all_signs_written_out(changes: list[float]) -> None:
    observed = abs(sum(changes))
    sums = [
        abs(sum(sign * change for sign, change in zip(signs, changes, strict=True)))
        for signs in product((-1, 1), repeat=len(changes))
    ]
    tied = [total == pytest.approx(observed, abs=1e-9) for total in sums]
    beyond = [total > observed and not tie for total, tie in zip(sums, tied, strict=True)]
    mid_p = 1 if observed < 1e-9 else (sum(beyond) + sum(tied) / 2) / len(sums)
    assert sign_flip(np.array(changes)) == (pytest.approx(mid_p) if changes else None)


@given(changes=st.lists(st.floats(-1, 1), min_size=15, max_size=16))
def test_sign_flip_many_changes_is_near_the_exact_value(changes: list[float]) -> None:
    steps = np.array([1.0 if change >= 0 else -0.5 for change in changes])
    signs = np.array(list(product((-1.0, 1.0), repeat=len(steps))))
    sums, observed = np.abs(signs @ steps), abs(steps.sum())
    tied = np.abs(sums - observed) < 1e-9
    exact = ((sums > observed) & ~tied).mean() + tied.mean() / 2 if observed > 1e-9 else 1
    assert sign_flip(steps) == pytest.approx(exact, abs=0.03)


def test_sign_flip_nothing_changed_is_one_and_no_facts_is_undefined() -> None:
    assert sign_flip(np.zeros(5)) == 1
    assert sign_flip(np.array([])) is None


@given(p_values=P_VALUES)
def test_holm_any_family_equals_the_definition(p_values: list[float | None]) -> None:
    tested = sorted(p for p in p_values if p is not None)
    m = len(tested)
    steps = [min(1.0, (m - k) * p) for k, p in enumerate(tested)]
    adjusted_values = corrected(p_values)
    for p, adjusted in zip(p_values, adjusted_values, strict=True):
        if p is None:
            assert adjusted is None
        else:
            assert adjusted == max(steps[: tested.index(p) + tested.count(p)])
    if tested:
        expected = sorted(multitest.multipletests(tested, method="holm")[1])
        assert sorted(p for p in adjusted_values if p is not None) == pytest.approx(expected)


@given(st.floats(0, 1), st.floats(0, 1))
def test_cohens_h_is_that_of_statsmodels(first: float, second: float) -> None:
    expected = proportion.proportion_effectsize(second, first)
    assert cohens_h(first, second) == pytest.approx(expected)
    assert cohens_h(first + 1e-12, second) == pytest.approx(expected, abs=1e-5)  # above 1, too


Fact = tuple[str, list[int]]
SOME_FACTS = st.lists(
    st.tuples(
        st.sampled_from(["P1", "P2", "P3"]),
        st.lists(st.sampled_from([-1, 0, 1]), min_size=1, max_size=4),
    ),
    max_size=8,
)


CHANGES_OF_FACTS = schema("""
    relation_id text, pair_id text, numerator float, denominator float, squares float, n_prompts int
""")


def changes(facts: list[Fact], *, by_prompt: bool = False) -> pl.DataFrame:
    """Facts with the change of each of their prompts, as terms of acc_at_1 or of a prompt ratio."""
    rows = []
    for i, (relation, prompts) in enumerate(facts):
        weight = len(prompts) if by_prompt else 1
        mean = weight * np.mean(prompts)
        squares = weight * np.mean(np.square(prompts))
        rows.append((relation, str(i), mean, weight, squares, len(prompts)))
    return pl.DataFrame(rows, schema=CHANGES_OF_FACTS, orient="row")


def literal(facts: list[Fact], *, by_prompt: bool) -> float | None:
    weights = [len(prompts) if by_prompt else 1 for _, prompts in facts]
    total = sum(weights)
    weighted = [
        (weight / len(prompts) / total, change)
        for weight, (_, prompts) in zip(weights, facts, strict=True)
        for change in prompts
    ]
    if not weighted:
        return None
    mean = sum(share * change for share, change in weighted)
    variance = sum(share * (change - mean) ** 2 for share, change in weighted)
    clustered, strata = 0.0, 0
    for relation in {relation for relation, _ in facts}:
        z = [
            weight * (np.mean(prompts) - mean) / total
            for weight, (name, prompts) in zip(weights, facts, strict=True)
            if name == relation
        ]
        if len(z) > 1:
            strata += 1
            clustered += len(z) / (len(z) - 1) * sum((value - np.mean(z)) ** 2 for value in z)
    if not strata or variance < 1e-9:
        return None
    return float(clustered / (variance / (len(weighted) - 1)))


@given(facts=SOME_FACTS, by_prompt=st.booleans())
def test_design_effect_any_facts_equals_the_formula(facts: list[Fact], by_prompt: bool) -> None:
    value = design_effect(changes(facts, by_prompt=by_prompt))
    assert value == pytest.approx(literal(facts, by_prompt=by_prompt), abs=1e-9)


def test_design_effect_undefined_is_null() -> None:
    assert design_effect(changes([])) is None
    assert design_effect(changes([("P1", [0, 1]), ("P2", [1, 1])])) is None  # one fact per relation
    assert design_effect(changes([("P1", [1]), ("P1", [1])])) is None  # all change alike
    no_prompts = changes([("P1", [0]), ("P1", [1])]).with_columns(squares=pl.lit(None, pl.Float64))
    assert design_effect(no_prompts) is None
