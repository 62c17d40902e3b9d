"""Agreement with people: against Kendall's tau counted pair by pair, and a grid search by hand."""

from itertools import combinations
from math import sqrt

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from factsweep.operators.metrics.distractors.agreement import (
    N_FOLDS,
    ROBUSTNESS,
    agreement,
    agreement_rows,
    folds,
    robustness,
    robustness_rows,
    tau_b,
)
from factsweep.operators.metrics.distractors.distractors import (
    VALUES,
    of_distractors,
    of_probability,
)

NUMBERS = st.lists(st.integers(0, 4), min_size=2, max_size=12)


def naive_tau_b(first: list[int], second: list[int]) -> float | None:
    """Concordant minus discordant pairs, over the pairs that are no ties on either side."""
    sign = [
        ((a > b) - (a < b), (x > y) - (x < y))
        for (a, x), (b, y) in combinations(zip(first, second, strict=True), 2)
    ]
    untied = [sum(signs[side] != 0 for signs in sign) for side in (0, 1)]
    return sum(a * b for a, b in sign) / sqrt(untied[0] * untied[1]) if all(untied) else None


@given(NUMBERS.flatmap(lambda xs: st.tuples(st.just(xs), st.permutations(xs))))
def test_tau_counts_pairs_and_corrects_for_ties(lists: tuple[list[int], list[int]]) -> None:
    assert tau_b(*lists) == pytest.approx(naive_tau_b(*lists))


def clozes(configurations: dict[str, list[list[float]]]) -> pl.DataFrame:
    """Per configuration, for each fact a value for each of its clozes."""
    rows = [
        (f"f{fact}", "P", cloze, "distractors", name, value)
        for name, facts in configurations.items()
        for fact, values in enumerate(facts)
        for cloze, value in enumerate(values)
    ]
    return pl.DataFrame(rows, schema=VALUES, orient="row")


def ratings(values: list[float]) -> pl.DataFrame:
    rows = {"pair_id": [f"f{i}" for i in range(len(values))], "rating": values}
    return pl.DataFrame(rows, schema={"pair_id": pl.String, "rating": pl.Float64})


@given(st.integers(3, 40), st.integers(0, 9))
def test_folds_are_of_equal_size_and_hold_each_fact_once(n: int, seed: int) -> None:
    fold_rows = folds(pl.Series([f"f{i}" for i in range(n)] * 2), seed)
    sizes = fold_rows.group_by("fold").len()["len"]
    assert fold_rows["pair_id"].is_unique().all()
    assert fold_rows.height == n
    assert max(sizes) - min(sizes) <= 1
    assert len(sizes) == N_FOLDS


@given(
    st.lists(
        st.tuples(*[st.integers(0, 3)] * 4, st.integers(0, 3)).map(list), min_size=9, max_size=15
    )
)
def test_configuration_is_chosen_on_the_other_folds(facts: list[list[int]]) -> None:
    people = [float(fact[4]) for fact in facts]
    grid = {f"min@{n}": [[float(fact[n])] for fact in facts] for n in range(4)}
    table = agreement(clozes(grid), ratings(people), seed=1)
    place = dict(folds(ratings(people)["pair_id"], 1).iter_rows())
    for fold in range(N_FOLDS):
        taus = {}
        for n in range(4):
            other_facts = [i for i in range(len(facts)) if place[f"f{i}"] != fold]
            tau = naive_tau_b(
                [facts[i][n] for i in other_facts], [facts[i][4] for i in other_facts]
            )
            taus[f"min@{n}"] = tau
        defined = {name: tau for name, tau in taus.items() if tau is not None}
        best = [max(defined, key=lambda name: round(defined[name], 9))] if defined else []
        rows = table.filter(fold=fold)
        assert rows.filter("chosen")["hyperparameters"].to_list() == best
        assert dict(rows.select("hyperparameters", "tau_others").iter_rows()) == pytest.approx(taus)


def test_number_of_clozes_takes_the_first_of_each_fact() -> None:
    values = [[float(i), float(-3 * i)] for i in range(6)]
    table = agreement(clozes({"avg@1": values}), ratings([float(i) for i in range(6)]), seed=0)
    assert table.filter(n_clozes=1)["tau"].to_list() == [1, 1, 1]
    assert table.filter(n_clozes=2)["tau"].to_list() == [-1, -1, -1]


def test_choice_over_all_clozes_is_kept_for_fewer() -> None:
    turns = {
        "avg@1": [[float(i), float(-3 * i)] for i in range(6)],
        "avg@2": [[float(-i), float(3 * i)] for i in range(6)],
    }
    table = agreement(clozes(turns), ratings([float(i) for i in range(6)]), seed=0)
    assert table.filter("chosen")["hyperparameters"].unique().to_list() == ["avg@2"]
    assert table.filter("chosen", n_clozes=1)["tau"].to_list() == [-1, -1, -1]


def test_fact_without_rating_or_value_is_in_no_fold_and_without_any_there_are_no_rows() -> None:
    values = clozes({"avg@1": [[float(i)] for i in range(7)]})
    values = values.with_columns(
        value=pl.when(pl.col("pair_id") != "f1").then("value").otherwise(float("nan"))
    )
    table = agreement(values, ratings([0.0, 1.0, 2.0, 3.0]), seed=0)
    assert table["n"].sum() == 3
    assert agreement(values, ratings([]), seed=0).is_empty()


def test_robustness_pairs_flawed_and_corrected_sentences() -> None:
    values = clozes({"avg@1": [[1.0, 2.0, 9.0], [2.0, 3.0], [3.0, 1.0], [4.0]]})
    (row,) = robustness(values).rows()
    assert row == ("distractors", "avg@1", pytest.approx(-1 / 3), 3)


def preferred(n_beaten: list[list[int]]) -> pl.DataFrame:
    return pl.DataFrame(
        {
            "prompt_id": [f"p{i}" for i in range(len(n_beaten))],
            "pair_id": [f"f{i}" for i in range(len(n_beaten))],
            "relation_id": "P",
            "template_id": "P.0",
            "subject_index": 0,
            "n_distractors": [len(counts) for counts in n_beaten],
            "n_beaten": n_beaten,
            "open_logprob": 0.0,
        },
        schema_overrides={"n_beaten": pl.List(pl.UInt32), "n_distractors": pl.UInt32},
    )


def test_fact_with_few_distractors_is_measured_on_all_it_has() -> None:
    values = of_distractors(preferred([[1, 1], [1, 2, 3, 4], []]))
    rows = values.filter(hyperparameters="avg@4").select("pair_id", "value").rows()
    assert rows == [("f0", 0.5), ("f1", 1.0)]


def test_grid_ends_where_no_cloze_has_more() -> None:
    grid = of_distractors(preferred([[1, 2, 3]]))["hyperparameters"].unique()
    assert set(grid) == {f"{a}@{n}" for a in ("min", "avg") for n in (1, 2, 3)}


def test_clozes_of_a_fact_are_counted_in_the_order_of_templates_and_names() -> None:
    rows = preferred([[1]] * 3).with_columns(
        pair_id=pl.lit("f"),
        template_id=pl.Series(["P.1", "P.0", "P.0"]),
        subject_index=pl.Series([0, 1, 0]),
    )
    assert of_probability(rows)["cloze"].to_list() == [2, 1, 0]


def test_agreement_of_a_measure_is_the_mean_over_folds_of_what_was_chosen() -> None:
    people = [float(i) for i in range(9)]
    place = dict(folds(ratings(people)["pair_id"], 0).iter_rows())
    turned = [[-x] if place[f"f{i}"] == 0 else [x] for i, x in enumerate(people)]
    grid = clozes({"avg@1": turned, "avg@2": [[0.0]] * 9})
    table = agreement(grid, ratings(people), seed=0)
    configuration_rows = table.filter(
        hyperparameters="avg@1"
    )  # the tau of a fold is that of its facts alone
    assert configuration_rows.select("tau", "n").rows() == [(-1, 3), (1, 3), (1, 3)]
    rows = agreement_rows(table)
    assert rows.select("slice", "metric", "n").rows() == [
        ("measure=distractors", "kendall_tau", 9),
        ("measure=distractors", "kendall_tau_sd", 9),
    ]
    assert rows["value"].to_list() == pytest.approx([1 / 3, sqrt(8) / 3])


def test_agreement_with_a_fold_without_tau_is_undefined() -> None:
    place = dict(folds(ratings([0.0] * 9)["pair_id"], 0).iter_rows())
    people = [1.0 if place[f"f{i}"] == 0 else float(i) for i in range(9)]
    values = clozes({"avg@1": [[float(i)] for i in range(9)]})
    table = agreement(values, ratings(people), seed=0)
    assert table["tau"].to_list() == [None, 1, 1]
    assert agreement_rows(table)["value"].to_list() == [None, None]


def test_robustness_of_a_measure_is_the_mean_over_its_grid() -> None:
    taus = pl.DataFrame(
        [("distractors", "avg@1", 0.5, 4), ("distractors", "avg@2", 1.0, 5)],
        schema=ROBUSTNESS,
        orient="row",
    )
    assert robustness_rows(taus).select("slice", "metric", "value", "n").rows() == [
        ("measure=distractors", "robustness", 0.75, 5)
    ]
