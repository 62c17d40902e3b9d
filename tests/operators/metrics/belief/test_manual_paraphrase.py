"""Manual against paraphrased templates, against comparing prompt by prompt."""

from itertools import combinations
from statistics import mean

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import rankdata

from factsweep.operators.metrics.belief.analyses import template_accuracy
from factsweep.operators.metrics.belief.answers import consist_terms, template_rates
from factsweep.operators.metrics.shared.rows import ratio
from tests.operators.metrics.analysed import analysed

Tables = st.SearchStrategy[pl.DataFrame]
TEMPLATES = pl.DataFrame(
    {
        "template_id": [f"P{r}.{t}" for r in range(2) for t in range(3)],
        "origin": ["manual", "paraphrase", "manual"] * 2,
        "group": [0, 0, 1] * 2,
    },
    schema_overrides={"group": pl.UInt16},
)
GROUP = dict(TEMPLATES.select("template_id", "group").iter_rows())


def found(answers: pl.DataFrame, templates: pl.DataFrame = TEMPLATES) -> dict[str, float | None]:
    rows = analysed("manual_paraphrase", answers, templates)
    return dict(rows.filter(pl.col("slice").is_null()).select("metric", "value").iter_rows())


def match(a: str | None, b: str | None) -> bool:
    return a is not None and b is not None and (a in b or b in a)


def naive_consist(answers: pl.DataFrame, *, inner: bool) -> float | None:
    shares = []
    for pair in answers.partition_by("pair_id"):
        hits = [
            match(a["key"], b["key"])
            for a, b in combinations(pair.to_dicts(), 2)
            if a["subject_index"] == b["subject_index"]
            and (GROUP[a["template_id"]] == GROUP[b["template_id"]]) == inner
        ]
        if hits:
            shares.append(mean(hits))
    return mean(shares) if shares else None


def naive_rank(answers: pl.DataFrame) -> float | None:
    ranks = []
    for relation in template_accuracy(template_rates(answers)).partition_by("relation_id"):
        places = rankdata([-round(each, 9) for each in relation["accuracy"]])
        pairs = zip(relation["template_id"], places, strict=True)
        ranks += [place for template, place in pairs if not template.endswith(".1")]
    return mean(ranks) if ranks else None


@given(data=st.data())
def test_manual_paraphrase_any_answers_equals_naive_reading(
    data: st.DataObject, answer_tables: Tables
) -> None:
    answers = data.draw(answer_tables)
    rows = found(answers)
    assert rows["manual_rank"] == pytest.approx(naive_rank(answers))
    assert rows["inner_group_consist"] == pytest.approx(naive_consist(answers, inner=True))
    assert rows["inter_group_consist"] == pytest.approx(naive_consist(answers, inner=False))


@given(data=st.data())
def test_manual_paraphrase_one_group_has_no_inter_and_inner_is_all(
    data: st.DataObject, answer_tables: Tables
) -> None:
    answers = data.draw(answer_tables)
    rows = found(answers, TEMPLATES.with_columns(group=pl.lit(0)))
    assert rows["inter_group_consist"] is None
    whole = ratio(consist_terms(answers, within=["subject_index"]))
    assert rows["inner_group_consist"] == pytest.approx(whole)


def test_manual_paraphrase_unknown_groups_are_null(no_answers: pl.DataFrame) -> None:
    answers = pl.DataFrame(
        {
            "relation_id": "P0",
            "pair_id": "t",
            "template_id": ["P0.0", "P0.1"],
            "subject_index": 0,
            "key": "\x1frome\x1f",
            "correct": True,
        }
    )
    rows = found(answers, TEMPLATES.with_columns(group=pl.lit(None, pl.UInt16)))
    assert rows == {"manual_rank": 1.5, "inner_group_consist": None, "inter_group_consist": None}
    assert set(found(no_answers).values()) == {None}
