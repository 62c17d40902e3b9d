"""admit: prompts that leave no room for an answer are found, and counted as failed."""

from collections.abc import Callable

import polars as pl
import pytest

from factsweep.pipeline.config.settings import load
from factsweep.pipeline.stages.expand import with_text
from factsweep.pipeline.stages.plan import Branch, Plan

Compute = Callable[..., Plan]
LIMIT = 225


@pytest.fixture(scope="module")
def tight(
    small: list[str], compute_here: Compute, tmp_path_factory: pytest.TempPathFactory
) -> Branch:
    """A run whose longer prompts do not fit. A token of the model is a byte, and an answer 10."""
    given = [f"model.max_model_len={LIMIT + 10}", "metrics.n_draws=5", "metrics.n_rounds=2"]
    folder = tmp_path_factory.mktemp("tight")
    return compute_here(load([*small, *given, f"artifacts={folder}"])).branches[0]


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


def test_admit_room_for_all_has_no_errors(done: Plan) -> None:
    admitted = done.branches[0].admitted
    assert admitted.shards("errors") == done.branches[0].prompts.shards("prompts")
    assert admitted.read_all("errors").is_empty()
