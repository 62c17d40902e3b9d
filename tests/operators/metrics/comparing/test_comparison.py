"""The comparison of two runs, against the runs themselves and resamples written out."""

from collections.abc import Sequence
from itertools import product
from math import comb

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import permutation_test
from statsmodels.stats import contingency_tables, multitest, proportion

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
from factsweep.operators.metrics.shared.bootstrap import bootstrap_ratio, estimate, weight_blocks
from factsweep.operators.schemas import schema
from factsweep.operators.seeds import generator
from tests.operators.metrics.scalars import Tables, named


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
    everything = found.filter(pl.col("relation_id").is_null())
    relations = found.drop_nulls("relation_id").partition_by("metric")
    for family in (everything, *relations):
        assert family["p_holm"].to_list() == family.select(holm(pl.col("p")))["p"].to_list()


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


def test_compare_runs_alike_differ_in_nothing_and_what_is_shared_makes_intervals_narrow() -> None:
    for row in compare(facts([0.5, 1.0, 0.0], [0.5, 1.0, 0.0]), seed=1).iter_rows(named=True):
        assert (row["difference"], row["ci_low"], row["ci_high"]) == (0, 0, 0)
        assert (row["p"], row["p_holm"], row["effect_size"]) == (1, 1, 0)
        assert row["design_effect"] is None
    hard = np.random.default_rng(1).random(200).round() * 0.9
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
def test_compare_by_fact_has_neither_prompts_nor_design_effects(
    data: st.DataObject, answer_tables: Tables
) -> None:
    first, second = named(data.draw(answer_tables)), named(data.draw(answer_tables))
    terms = paired_terms(first, second, robust_share=0.6, unit="fact")
    found = compare(terms, seed=1, n_rounds=5)
    assert found["design_effect"].null_count() == found["n_prompts"].null_count() == found.height


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


COUNTS = st.integers(0, 60)
CHANGES = st.lists(st.sampled_from([-1.0, -0.5, -0.1, 0.0, 0.0, 0.3, 0.5, 1.0]), max_size=8)
P_VALUES = st.lists(st.none() | st.floats(0, 1), max_size=12)
SHARE = st.floats(0, 1)


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
    theirs = contingency_tables.mcnemar([[5, gained], [lost, 7]], exact=True).pvalue
    assert mcnemar(gained, lost).exact == pytest.approx(theirs)


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


def test_sign_flip_distinct_sums_is_scipys_permutation_test_less_half_a_tie() -> None:
    changes = np.array([0.31, 0.17, -0.05, 0.83, 0.44, -0.29, 0.11])
    theirs = permutation_test(
        (changes,), np.sum, permutation_type="samples", n_resamples=np.inf, vectorized=True
    )
    found = sign_flip(changes)
    assert found is not None
    assert found + 1 / 2 ** len(changes) == pytest.approx(theirs.pvalue)


@given(gained=st.integers(0, 7), lost=st.integers(0, 7), same=st.integers(0, 5))
def test_sign_flip_of_facts_is_mcnemars_mid_p(gained: int, lost: int, same: int) -> None:
    changes = np.array([1.0] * gained + [-1.0] * lost + [0.0] * same)
    if changes.size:
        assert sign_flip(changes) == pytest.approx(mcnemar(gained, lost).mid_p)


@given(changes=st.lists(st.floats(-1, 1), min_size=15, max_size=16))
def test_sign_flip_many_changes_is_near_the_exact_value(changes: list[float]) -> None:
    moved = np.array([1.0 if change >= 0 else -0.5 for change in changes])
    signs = np.array(list(product((-1.0, 1.0), repeat=len(moved))))
    sums, observed = np.abs(signs @ moved), abs(moved.sum())
    tied = np.abs(sums - observed) < 1e-9
    exact = ((sums > observed) & ~tied).mean() + tied.mean() / 2 if observed > 1e-9 else 1
    assert sign_flip(moved) == pytest.approx(exact, abs=0.03)


def test_sign_flip_nothing_changed_is_one_and_no_facts_is_undefined() -> None:
    assert sign_flip(np.zeros(5)) == 1
    assert sign_flip(np.array([])) is None


@given(p_values=P_VALUES)
def test_holm_any_family_equals_the_definition(p_values: list[float | None]) -> None:
    tested = sorted(p for p in p_values if p is not None)
    m = len(tested)
    steps = [min(1.0, (m - k) * p) for k, p in enumerate(tested)]
    found = corrected(p_values)
    for p, adjusted in zip(p_values, found, strict=True):
        if p is None:
            assert adjusted is None
        else:
            assert adjusted == max(steps[: tested.index(p) + tested.count(p)])
    if tested:
        theirs = multitest.multipletests(tested, method="holm")[1]
        assert sorted(p for p in found if p is not None) == pytest.approx(sorted(theirs))


@given(st.floats(0, 1), st.floats(0, 1))
def test_cohens_h_is_that_of_statsmodels(first: float, second: float) -> None:
    theirs = proportion.proportion_effectsize(second, first)
    assert cohens_h(first, second) == pytest.approx(theirs)
    assert cohens_h(first + 1e-12, second) == pytest.approx(theirs, abs=1e-5)  # above 1, too


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
    each = [
        (weight / len(prompts) / total, change)
        for weight, (_, prompts) in zip(weights, facts, strict=True)
        for change in prompts
    ]
    if not each:
        return None
    mean = sum(share * change for share, change in each)
    variance = sum(share * (change - mean) ** 2 for share, change in each)
    clustered, strata = 0.0, 0
    for relation in {relation for relation, _ in facts}:
        z = [
            weight * (np.mean(prompts) - mean) / total
            for weight, (own, prompts) in zip(weights, facts, strict=True)
            if own == relation
        ]
        if len(z) > 1:
            strata += 1
            clustered += len(z) / (len(z) - 1) * sum((each - np.mean(z)) ** 2 for each in z)
    if not strata or variance < 1e-9:
        return None
    return float(clustered / (variance / (len(each) - 1)))


@given(facts=SOME_FACTS, by_prompt=st.booleans())
def test_design_effect_any_facts_equals_the_formula(facts: list[Fact], by_prompt: bool) -> None:
    found = design_effect(changes(facts, by_prompt=by_prompt))
    assert found == pytest.approx(literal(facts, by_prompt=by_prompt), abs=1e-9)


@given(
    prompts=st.lists(st.sampled_from([-1, 0, 1]), min_size=3, max_size=20).filter(np.std),
    times=st.integers(1, 9),
)
def test_design_effect_copies_of_a_prompt_are_worth_one_and_a_prompt_a_fact_is_one(
    prompts: list[int], times: int
) -> None:
    facts = [("P1", [change] * times) for change in prompts]
    found, n = design_effect(changes(facts)), len(prompts)
    assert found == pytest.approx((times * n - 1) / (n - 1))


def test_design_effect_is_the_bootstraps_variance_over_that_of_prompts() -> None:
    rng = np.random.default_rng(1)
    facts = [
        (f"P{i % 2}", [int(rng.random() < share) for _ in range(20)])
        for i, share in enumerate(rng.random(400))
    ]
    terms = changes(facts)
    found = bootstrap_ratio(terms, seed=1, n_rounds=4000).overall
    assert found.ci_low is not None
    assert found.ci_high is not None
    half = (found.ci_high - found.ci_low) / 2 / 1.96
    prompts = np.concatenate([each for _, each in facts])
    assert design_effect(terms) == pytest.approx(half**2 / (prompts.var() / len(prompts)), rel=0.1)


def test_design_effect_undefined_is_null() -> None:
    assert design_effect(changes([])) is None
    assert design_effect(changes([("P1", [0, 1]), ("P2", [1, 1])])) is None  # one fact per relation
    assert design_effect(changes([("P1", [1]), ("P1", [1])])) is None  # all change alike
    no_prompts = changes([("P1", [0]), ("P1", [1])]).with_columns(squares=pl.lit(None, pl.Float64))
    assert design_effect(no_prompts) is None
