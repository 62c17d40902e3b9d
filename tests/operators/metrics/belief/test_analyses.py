"""BELIEF's analyses of one run, against reading them off prompt by prompt."""

from fractions import Fraction
from itertools import combinations, product
from statistics import mean

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import rankdata

from factsweep.operators.metrics.belief.analyses import (
    ESTIMATED,
    Analysis,
    analyses,
    analysis_terms,
    template_accuracy,
)
from factsweep.operators.metrics.belief.answers import (
    By,
    condense_terms,
    consist_terms,
    template_rates,
)
from tests.operators.metrics.scalars import Tables, acc_at_1, match, overall, ratio

TEMPLATES = pl.DataFrame(
    {
        "template_id": [f"P{r}.{t}" for r in range(2) for t in range(3)],
        "origin": ["manual", "paraphrase", "manual"] * 2,
        "group": [0, 0, 1] * 2,
    },
    schema_overrides={"group": pl.UInt16},
)
GROUP = dict(TEMPLATES.select("template_id", "group").iter_rows())


def analysed(
    name: Analysis,
    answers: pl.DataFrame,
    templates: pl.DataFrame = TEMPLATES,
    *,
    by: By = "match",
    n_failed: pl.DataFrame | None = None,
) -> pl.DataFrame:
    condensed = condense_terms(answers, analysis_terms([name], answers, templates, by))
    estimates = condensed.estimates(ESTIMATED, seed=1, n_rounds=5)
    return analyses([name], condensed, condensed.counts(n_failed), estimates, templates)


def average(values: list[Fraction]) -> Fraction:
    return sum(values, Fraction(0)) / len(values)


def accuracies_by_relation(answers: pl.DataFrame) -> dict[str, list[Fraction]]:
    return {
        relation["relation_id"][0]: [
            average(
                [
                    Fraction(int(pair["correct"].sum()), pair.height)
                    for pair in template.partition_by("pair_id")
                ]
            )
            for template in relation.partition_by("template_id")
        ]
        for relation in answers.partition_by("relation_id")
    }


@given(data=st.data())
def test_template_spread_any_answers_equals_naive_extremes(
    data: st.DataObject, answer_tables: Tables
) -> None:
    answers = data.draw(answer_tables.filter(len))
    spread_table, expected = analysed("template_spread", answers), accuracies_by_relation(answers)
    n_pairs = dict(answers.group_by("relation_id").agg(pl.col("pair_id").n_unique()).iter_rows())
    for relation, accuracies in expected.items():
        spread = [min(accuracies), average(accuracies), max(accuracies)]
        rows = spread_table.filter(slice=f"relation={relation}")
        assert rows["value"].to_list() == pytest.approx(spread)
    weighted = [
        sum(n_pairs[r] * pick(accuracies) for r, accuracies in expected.items())
        / sum(n_pairs.values())
        for pick in (min, average, max)
    ]
    assert list(overall(spread_table).values()) == pytest.approx(weighted)
    rates = template_accuracy(template_rates(answers))
    for relation, accuracies in expected.items():
        relation_rates = rates.filter(relation_id=relation)
        assert sorted(relation_rates["accuracy"]) == pytest.approx(sorted(accuracies))
    assert rates["n"].sum() == answers.height
    shuffled = answers.sample(fraction=1, shuffle=True, seed=3)
    assert template_accuracy(template_rates(shuffled)).equals(rates)


def test_template_spread_failed_prompts_are_counted(no_answers: pl.DataFrame) -> None:
    failed = pl.DataFrame({"relation_id": ["P1"], "n_failed": [4]})
    rows = analysed("template_spread", no_answers, n_failed=failed)
    assert rows["value"].null_count() == rows.height == 6
    assert rows["n_failed"].unique().to_list() == [4]


def subset_accuracies(answers: pl.DataFrame, unit: str, factor: str) -> list[float]:
    """The Acc@1 of every subset that holds one value of the factor for each unit."""
    choices = [rows.partition_by(factor) for rows in answers.partition_by(unit)]
    subsets = (pl.concat(subset) for subset in product(*choices))
    return [value for value in map(acc_at_1, subsets) if value is not None]


@given(data=st.data())
def test_subject_template_complete_answers_extremes_are_those_of_all_subsets(
    data: st.DataObject, complete_answer_tables: Tables
) -> None:
    answers = data.draw(complete_answer_tables)
    values = overall(analysed("subject_template", answers))
    for name, unit, factor in (
        ("subject", "pair_id", "subject_index"),
        ("template", "relation_id", "template_id"),
    ):
        accuracies = subset_accuracies(answers, unit, factor)
        assert values[f"{name}_acc_min"] == pytest.approx(min(accuracies))
        assert values[f"{name}_acc_max"] == pytest.approx(max(accuracies))


def naive_consist(answers: pl.DataFrame, factor: str, *, inner: bool | None = None) -> float | None:
    """Over prompts that agree in `factor`; with `inner`, of the same or of other groups alone."""
    shares = []
    for pair in answers.partition_by("pair_id"):
        hits = [
            match(a["key"], b["key"])
            for a, b in combinations(pair.to_dicts(), 2)
            if a[factor] == b[factor]
            and inner in (None, GROUP[a["template_id"]] == GROUP[b["template_id"]])
        ]
        if hits:
            shares.append(mean(hits))
    return mean(shares) if shares else None


def naive_rank(answers: pl.DataFrame) -> float | None:
    ranks = []
    for relation in template_accuracy(template_rates(answers)).partition_by("relation_id"):
        places = rankdata([-round(accuracy, 9) for accuracy in relation["accuracy"]])
        pairs = zip(relation["template_id"], places, strict=True)
        ranks += [place for template, place in pairs if not template.endswith(".1")]
    return mean(ranks) if ranks else None


@given(data=st.data())
def test_consist_of_one_factor_and_of_groups_any_answers_equals_naive_reading(
    data: st.DataObject, answer_tables: Tables
) -> None:
    answers = data.draw(answer_tables)
    values = overall(analysed("subject_template", answers))
    assert values["subject_consist"] == pytest.approx(naive_consist(answers, "template_id"))
    assert values["template_consist"] == pytest.approx(naive_consist(answers, "subject_index"))
    values = overall(analysed("manual_paraphrase", answers))
    assert values["manual_rank"] == pytest.approx(naive_rank(answers))
    for name, inner in (("inner", True), ("inter", False)):
        expected = naive_consist(answers, "subject_index", inner=inner)
        assert values[f"{name}_group_consist"] == pytest.approx(expected)
    values = overall(analysed("manual_paraphrase", answers, TEMPLATES.with_columns(group=0)))
    assert values["inter_group_consist"] is None
    overall_consist = ratio(consist_terms(answers, within=["subject_index"]))
    assert values["inner_group_consist"] == pytest.approx(overall_consist)


def test_equality_does_not_match_a_part_and_unknown_groups_are_null(
    no_answers: pl.DataFrame,
) -> None:
    columns = {"relation_id": "P0", "pair_id": "t", "template_id": ["P0.0", "P0.1"]}
    keys = ["\x1frome\x1f", "\x1fin\x1frome\x1f"]
    answers = pl.DataFrame({**columns, "subject_index": 0, "key": keys, "correct": True})
    for by, expected in (("match", 1.0), ("equality", 0.0)):
        values = overall(analysed("subject_template", answers, by=by))  # type: ignore[arg-type]
        assert values["template_consist"] == expected
    unknown = TEMPLATES.with_columns(group=pl.lit(None, pl.UInt16))
    assert overall(analysed("manual_paraphrase", answers, unknown)) == {
        "manual_rank": 1.5,
        "inner_group_consist": None,
        "inter_group_consist": None,
    }
    for name in ("subject_template", "manual_paraphrase"):
        assert set(overall(analysed(name, no_answers)).values()) == {None}  # type: ignore[arg-type]
