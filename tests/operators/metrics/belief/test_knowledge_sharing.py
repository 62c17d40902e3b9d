"""Knowledge sharing, against sets."""

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from factsweep.operators.metrics.belief.knowledge_state import SHARING, knowledge_sharing

Run = dict[str, bool]
RUNS = st.lists(st.dictionaries(st.sampled_from("pqrstu"), st.booleans()), max_size=4)


def table(run: Run) -> pl.DataFrame:
    return pl.DataFrame(
        {"prompt_id": list(run), "correct": list(run.values())},
        schema={"prompt_id": pl.String, "correct": pl.Boolean},
    )


@given(runs=RUNS)
def test_knowledge_sharing_any_runs_equals_sets(runs: list[Run]) -> None:
    found = knowledge_sharing((str(i), table(run)) for i, run in enumerate(runs))
    assert found.schema == SHARING
    expected = []
    for i, one in enumerate(runs):
        for j, other in enumerate(runs):
            covered = {p for p, correct in one.items() if correct and p in other}
            shared = {p for p in covered if other[p]}
            rate = len(shared) / len(covered) if covered else None
            expected.append((str(i), str(j), len(covered), len(shared), rate))
    assert found.rows() == expected


@given(runs=RUNS)
def test_knowledge_sharing_a_run_shares_all_with_itself(runs: list[Run]) -> None:
    found = knowledge_sharing((str(i), table(run)) for i, run in enumerate(runs))
    own = found.filter(pl.col("run") == pl.col("other"), pl.col("n_covered") > 0)
    assert set(own["sharing"]) <= {1.0}


@given(runs=RUNS)
def test_knowledge_sharing_what_is_shared_is_symmetric(runs: list[Run]) -> None:
    found = knowledge_sharing((str(i), table(run)) for i, run in enumerate(runs))
    cells = {(run, other): n for run, other, _, n, _ in found.iter_rows()}
    assert all(n == cells[other, run] for (run, other), n in cells.items())


def test_knowledge_sharing_a_smaller_run_is_compared_on_its_own_prompts() -> None:
    whole, part = {"p": True, "q": True}, {"p": True}
    found = knowledge_sharing([("whole", table(whole)), ("part", table(part))])
    assert found.filter(run="whole", other="part")["sharing"].to_list() == [pytest.approx(1.0)]
