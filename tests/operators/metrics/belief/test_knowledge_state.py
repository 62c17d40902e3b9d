"""The states of facts: a partition, read from the evidence as it is written."""

from collections import Counter
from itertools import product

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from factsweep.operators.errors import InputError
from factsweep.operators.matching.lemmas import mark_correct
from factsweep.operators.metrics.belief.knowledge_state import (
    CHANGES,
    EVIDENCE,
    MOVES,
    SAMPLED,
    SHARING,
    Thresholds,
    count_right_samples,
    evidence,
    knowledge_sharing,
    state_changes,
    state_moves,
)

Fact = tuple[float, int | None, float | None]
AT = Thresholds(robust_share=0.75, min_right_samples=2, confident=0.5)
FACT = st.tuples(
    st.sampled_from([0.0, 0.25, 0.75, 1.0]),
    st.none() | st.integers(0, 3),
    st.none() | st.sampled_from([0.0, 0.49, 0.5, 1.0]),
)
RUNS = st.dictionaries(st.sampled_from(["P1.a", "P1.b", "P2.a", "P2.b", "P2.c"]), FACT)
THRESHOLDS = st.builds(
    Thresholds,
    robust_share=st.sampled_from([0.1, 0.5, 0.75, 1.0]),
    min_right_samples=st.integers(1, 3),
    confident=st.sampled_from([0.01, 0.5, 1.0]),
)


def table(run: dict[str, Fact]) -> pl.DataFrame:
    rows = [
        (pair[:2], pair, 4, share, None if right is None else 3, right, confidence)
        for pair, (share, right, confidence) in run.items()
    ]
    return pl.DataFrame(rows, schema=EVIDENCE, orient="row")


def state(fact: Fact, thresholds: Thresholds) -> str:
    share, right, confidence = fact
    if share >= thresholds.robust_share:
        return "known robustly"
    if share > 0:
        return "depends on the prompt"
    if right is not None and right >= thresholds.min_right_samples:
        return "only when sampled"
    if confidence is not None and confidence >= thresholds.confident:
        return "confidently wrong"
    return "unknown"


@given(data=st.data())
def test_evidence_any_tables_equals_counting(
    data: st.DataObject,
    answer_tables: st.SearchStrategy[pl.DataFrame],
    calibration_tables: st.SearchStrategy[pl.DataFrame],
) -> None:
    answers, calibration = data.draw(answer_tables), data.draw(calibration_tables)
    sampled = calibration.select(
        "prompt_id", "relation_id", "pair_id", n_samples=10, n_right_samples=pl.col("correct") * 3
    )
    facts = evidence(answers, sampled, calibration)
    assert facts.schema == EVIDENCE
    pairs = sorted(set(answers.select("relation_id", "pair_id").iter_rows()))
    assert facts.select("relation_id", "pair_id").rows() == pairs
    for row in facts.iter_rows(named=True):
        correct = answers.filter(pair_id=row["pair_id"], relation_id=row["relation_id"])["correct"]
        assert (row["n_prompts"], row["share"]) == (
            len(correct),
            pytest.approx(sum(correct) / len(correct)),
        )
        sampled_rows = calibration.filter(pair_id=row["pair_id"], relation_id=row["relation_id"])
        if sampled_rows.is_empty():
            assert (row["n_samples"], row["n_right_samples"], row["confidence"]) == (None,) * 3
        else:
            assert row["n_samples"] == 10 * sampled_rows.height
            assert row["n_right_samples"] == 3 * sampled_rows["correct"].sum()
            assert row["confidence"] == pytest.approx(sampled_rows["confidence"].mean())


def test_right_samples_are_counted_by_prompt() -> None:
    samples = pl.DataFrame(
        {
            "prompt_id": ["q", "p", "p", "p"],
            "relation_id": ["P1"] * 4,
            "pair_id": ["u", "t", "t", "t"],
            "key": ["\x1frome\x1f", "\x1fin\x1frome\x1f", "\x1frome\x1f", None],
        }
    )
    labels = pl.DataFrame({"pair_id": ["t", "u"], "key": ["\x1frome\x1f", "\x1foslo\x1f"]})
    counts = count_right_samples(mark_correct(samples, labels))
    assert counts.schema == SAMPLED
    assert counts.rows() == [("p", "P1", "t", 3, 2), ("q", "P1", "u", 1, 0)]


@given(before=RUNS, after=RUNS, at=THRESHOLDS)
def test_changes_any_runs_equals_reading_shared_evidence(
    before: dict[str, Fact], after: dict[str, Fact], at: Thresholds
) -> None:
    changes = state_changes(table(before), table(after), at)
    assert changes.schema == CHANGES
    assert changes["pair_id"].to_list() == sorted(before.keys() & after.keys())
    for row in changes.iter_rows(named=True):
        old, new = before[row["pair_id"]], after[row["pair_id"]]
        kinds = [None not in kind for kind in zip(old, new, strict=True)]
        shared = [
            tuple(value if in_both else None for value, in_both in zip(fact, kinds, strict=True))
            for fact in (old, new)
        ]
        states = [state(fact, at) for fact in shared]  # type: ignore[arg-type]
        assert [row["before"], row["after"]] == states
        is_right = old[0] > 0, new[0] > 0
        robust = tuple(name == "known robustly" for name in states)
        expected = {(False, True): "gained", (True, False): "lost"}.get(is_right)
        if is_right == (True, True):
            expected = {(False, True): "firmer", (True, False): "looser"}.get(robust)
        assert row["change"] == expected


def test_changes_a_run_without_samples_moves_no_fact() -> None:
    with_samples, without = {"P1.a": (0.0, 3, 0.9)}, {"P1.a": (0.0, None, None)}
    changes = state_changes(table(with_samples), table(without), AT)
    assert changes.select("before", "after", "change").row(0) == ("unknown", "unknown", None)


@given(before=RUNS, after=RUNS)
def test_moves_any_changes_equals_counting(before: dict[str, Fact], after: dict[str, Fact]) -> None:
    changes = state_changes(table(before), table(after), AT)
    moves = state_moves(changes)
    assert moves.schema == MOVES
    columns = ("relation_id", "before", "after")
    expected = Counter(changes.select(columns).iter_rows())
    expected += Counter((None, *move) for move in changes.select("before", "after").iter_rows())
    assert {row[:3]: row[3] for row in moves.iter_rows()} == dict(expected)


@pytest.mark.parametrize(
    ("thresholds", "name"),
    [
        ((0.0, 1, 0.5), "robust_share"),
        ((1.1, 1, 0.5), "robust_share"),
        ((1.0, 0, 0.5), "min_right_samples"),
        ((1.0, 1, 0.0), "confident"),
    ],
)
def test_thresholds_that_separate_nothing_are_refused(
    thresholds: tuple[float, int, float], name: str
) -> None:
    with pytest.raises(InputError, match=name):
        Thresholds(*thresholds)


Run = dict[str, bool]


def answers_of(run: Run) -> pl.DataFrame:
    columns = {"prompt_id": list(run), "correct": list(run.values())}
    return pl.DataFrame(columns, schema={"prompt_id": pl.String, "correct": pl.Boolean})


@given(runs=st.lists(st.dictionaries(st.sampled_from("pqrstu"), st.booleans()), max_size=4))
def test_knowledge_sharing_any_runs_equals_sets(runs: list[Run]) -> None:
    table = knowledge_sharing((str(i), answers_of(run)) for i, run in enumerate(runs))
    assert table.schema == SHARING
    expected = []
    for (i, first), (j, second) in product(enumerate(runs), repeat=2):
        covered = {p for p, correct in first.items() if correct and p in second}
        shared = {p for p in covered if second[p]}
        rate = len(shared) / len(covered) if covered else None
        expected.append((str(i), str(j), len(covered), len(shared), rate))
    assert table.rows() == expected
