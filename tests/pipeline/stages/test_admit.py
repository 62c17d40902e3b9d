"""admit: prompts that leave no room for an answer are found, and counted as failed."""

from collections.abc import Callable

import polars as pl
import pytest

from factsweep.pipeline.config.settings import Run
from factsweep.pipeline.execution.plan import Branch, Plan, planned
from factsweep.pipeline.stages.expand import with_text

Settings = Callable[..., Run]
Compute = Callable[..., Plan]
LIMIT = 225
TIGHT = f"model.max_model_len={LIMIT + 10}"  # 10: the answer


@pytest.fixture
def tight(small_settings: Settings, compute_here: Compute) -> Branch:
    """A run whose longer prompts do not fit. A token of the model is a byte."""
    return compute_here(small_settings(TIGHT)).branches[0]


def long_prompts(branch: Branch) -> pl.DataFrame:
    shards = branch.prompts.shards("prompts")
    rows = pl.concat([with_text(branch.prompts, "prompts", shard) for shard in shards])
    return rows.filter(pl.col("text").str.len_bytes() > LIMIT)


def test_admit_long_prompts_are_error_rows_with_their_length(tight: Branch) -> None:
    expected, errors = long_prompts(tight), tight.admitted.read_all("errors")
    assert 0 < expected.height < 72
    assert sorted(errors["prompt_id"]) == sorted(expected["prompt_id"])
    lengths = expected.select("prompt_id", n=pl.col("text").str.len_bytes())
    row = errors.join(lengths, on="prompt_id").row(0, named=True)
    assert row["detail"] == f"{row['n']} tokens, room for {LIMIT}"
    assert (row["stage"], row["reason"]) == ("admit", "prompt_too_long")


def test_admit_long_prompts_are_not_decoded(tight: Branch) -> None:
    refused = set(long_prompts(tight)["prompt_id"])
    for artifact in tight.answered():
        answered = artifact.read_all(artifact.stage)["prompt_id"]
        assert len(answered) > 0
        assert refused.isdisjoint(answered)


def test_admit_long_prompts_count_as_failed(tight: Branch) -> None:
    overall = tight.metrics.read_all("metrics").filter(pl.col("slice").is_null())
    failed = long_prompts(tight).height
    assert overall.filter(metric="acc_at_1").select("n", "n_failed").row(0) == (72 - failed, failed)
    ranked = tight.prompts.read_all("ranked").filter(pl.col("calibration_rank") < 8)
    lost = ranked.join(long_prompts(tight), on="prompt_id", how="semi").height
    assert overall.filter(metric="ovconf").select("n", "n_failed").row(0) == (8 - lost, lost)


def test_admit_room_for_all_has_no_errors(finished: Plan) -> None:
    admitted = finished.branches[0].admitted
    assert admitted.shards("errors") == finished.branches[0].prompts.shards("prompts")
    assert admitted.read_all("errors").is_empty()


@pytest.mark.parametrize("override", [TIGHT, "decoding.max_tokens=11", "model.chat_template=true"])
def test_recipe_whatever_changes_a_prompts_room_is_another(
    small_settings: Settings, override: str
) -> None:
    one, other = (planned(small_settings(*o)).branches[0].admitted for o in ((), (override,)))
    assert one.fingerprint != other.fingerprint
