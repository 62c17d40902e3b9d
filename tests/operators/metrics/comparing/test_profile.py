"""Profiles of facts against a naive reading of their definition, and facts of two data sets."""

from collections.abc import Mapping

import polars as pl
from hypothesis import given
from hypothesis import strategies as st

from factsweep.operators.metrics.belief.knowledge_state import EVIDENCE
from factsweep.operators.metrics.comparing.profile import (
    KINDS,
    LEFT_OUT,
    WAYS,
    RunEvidence,
    Way,
    as_facts,
    count_kinds,
    join_facts,
    profile_facts,
    shown_kinds,
)
from factsweep.operators.tables.profile import kinds_figure, kinds_table
from tests.builders import frame, pair

# The share of right prompts, and the right of four samples; null: not sampled.
Fact = tuple[float, int | None]
NAMES = [f"P1.{name}" for name in "abcd"]
FACTS = pl.DataFrame({"relation_id": "P1", "pair_id": NAMES})
FACT = st.tuples(st.sampled_from([0.0, 0.25, 0.5, 0.75, 1.0]), st.none() | st.integers(0, 3))
RUN = st.tuples(st.sampled_from(WAYS), st.dictionaries(st.sampled_from(NAMES), FACT, min_size=1))


def run(way: Way, facts: Mapping[str, Fact]) -> RunEvidence:
    rows = [
        {
            "relation_id": "P1",
            "pair_id": name,
            "n_prompts": 4,
            "share": share,
            "n_samples": None if n_right is None else 4,
            "n_right_samples": n_right,
        }
        for name, (share, n_right) in facts.items()
    ]
    return RunEvidence(way, frame(EVIDENCE, *rows))


def kinds(*runs: RunEvidence) -> dict[str, str]:
    rows = profile_facts(FACTS, runs, min_right_samples=2)
    return dict(rows.select("pair_id", "kind").iter_rows())


def naive_kind(name: str, runs: list[tuple[Way, dict[str, Fact]]]) -> str:
    if any(name not in facts for _, facts in runs):
        return "not in every run"
    direct = [facts for way, facts in runs if way == "recalled"]
    n_right = [facts[name][1] for facts in direct]
    samples = [n for n in n_right if n is not None]
    if not samples and any(n is not None for facts in direct for _, n in facts.values()):
        return "not sampled"
    holds = {way: any(f[name][0] > 0.5 for w, f in runs if w == way) for way in WAYS}
    holds["with samples"] = max(samples, default=0) >= 2
    holds["at times"] = any(f[name][0] > 0 or (f[name][1] or 0) > 0 for _, f in runs)
    return next(kind for kind in KINDS if kind == "never" or holds[kind])


@given(st.lists(RUN, min_size=1, max_size=5), st.randoms())
def test_profile_is_the_first_kind_that_holds_whatever_the_order_of_runs(
    runs: list[tuple[Way, dict[str, Fact]]], shuffle: object
) -> None:
    profile = kinds(*(run(*parts) for parts in runs))
    assert profile == {name: naive_kind(name, runs) for name in NAMES}
    assert kinds(*(run(*parts) for parts in reversed(runs))) == profile


def test_profile_of_partly_sampled_facts_counts_the_sampled_ones_alone() -> None:
    """Else recalled facts would be counted among all, and the others among the sampled ones."""
    facts = {"P1.a": (1.0, None), "P1.b": (1.0, 4), "P1.c": (0.0, None), "P1.d": (0.0, 0)}
    direct = run("recalled", facts)
    counts = count_kinds(
        profile_facts(FACTS, [direct], min_right_samples=2), shown_kinds([direct]), n_rounds=20
    )
    n_by_kind = dict(counts.select("kind", "n_facts").iter_rows())
    assert n_by_kind == {
        "recalled": 1,
        "with samples": 0,
        "at times": 0,
        "never": 1,
        "not sampled": 2,
        "not in every run": 0,
    }
    assert counts["share"].to_list() == [0.5, 0, 0, 0.5, None, None]


def test_profile_counts_are_shown_with_a_dash_where_no_run_can_show_a_kind() -> None:
    direct, ranked = (run(way, dict.fromkeys(NAMES, (1.0, None))) for way in ("recalled", "ranked"))
    counts = {
        name: count_kinds(
            profile_facts(FACTS, runs, min_right_samples=2), shown_kinds(runs), n_rounds=20
        )
        for name, runs in {"both": [direct, ranked], "bear": [ranked]}.items()
    }
    table = kinds_table(counts)
    assert table["kind"].to_list() == ["recalled", "ranked", "at times", "never", *LEFT_OUT]
    everything, nothing = "4, 1.0000 (1.0000–1.0000)", "0, .0000 (.0000–.0000)"
    assert table["both"].to_list() == [everything, *[nothing] * 3, "0", "0"]
    assert table["bear"].to_list() == ["–", everything, nothing, nothing, "0", "0"]
    bars = [bar for bar in kinds_figure(counts).axes[0].patches if bar.get_width()]
    assert [(bar.get_y() > 0, bar.get_width()) for bar in bars] == [(False, 1), (True, 1)]


def test_join_facts_by_subject_id_or_else_by_name_if_an_answer_agrees() -> None:
    first = frame(
        "pairs",
        pair("P36", "Q1", ["Peru"], [["Lima"]]),
        pair("P36", "Q2", ["Georgia"], [["Tbilisi", "Tiflis"]]),
        pair("P36", "Q3", ["Georgia"], [["Atlanta"]]),
        pair("P30", "Q1", ["Peru"], [["South America"]]),
    )
    other_names = frame(
        "pairs",
        pair("P36", "Q1", ["República del Perú"], [["Lima"], ["Cusco"]]),
        pair("P36", "Q2", ["Georgia"], [["Athens"]]),  # another answer: another fact
    )
    assert join_facts(first, other_names)[0].rows() == [("P36.Q1", "P36.Q1")]
    other_ids = frame(
        "pairs",
        pair("P36", "x", ["PERU"], [["lima"]]),
        pair("P36", "y", ["Georgia"], [["TIFLIS"]]),
        pair("P36", "z", ["Georgia"], [["Atlanta"], ["Tbilisi"]]),  # two facts: none
        pair("P19", "x", ["Peru"], [["Lima"]]),
    )
    rows, is_reverse = join_facts(first, other_ids)
    assert (sorted(rows.rows()), is_reverse) == (
        [("P36.x", "P36.Q1"), ("P36.y", "P36.Q2")],
        False,
    )
    swapped = frame(
        "pairs", pair("P36", "v", ["Lima"], [["Peru"]]), pair("P36", "w", ["Rome"], [["Peru"]])
    )
    rows, is_reverse = join_facts(first, swapped)
    assert (rows.rows(), is_reverse) == ([("P36.v", "P36.Q1")], True)


def test_as_facts_sums_the_pairs_of_one_fact() -> None:
    rows = [("P1", "a.x", 3, 1.0, 4, 1, None), ("P1", "a.y", 1, 0.0, None, None, None)]
    joined = pl.DataFrame({"pair_id": ["a.x", "a.y", "b"], "fact": ["P1.a", "P1.a", "P1.b"]})
    facts = as_facts(pl.DataFrame(rows, EVIDENCE, orient="row"), joined)
    assert facts.rows() == [("P1", "P1.a", 4, 0.75, 4, 1, None)]
