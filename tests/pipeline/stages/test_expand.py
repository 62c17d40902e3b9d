"""expand: the published shards are the expansion, whatever their size."""

import threading
from collections.abc import Callable

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from polars.testing import assert_frame_equal

from factsweep.operators.errors import InputError
from factsweep.operators.prompts.expansion import expand as expanded
from factsweep.pipeline.config.run import Run
from factsweep.pipeline.stages import expand, facts
from factsweep.pipeline.stages.expand import list_shard_ends, shards
from factsweep.pipeline.stages.plan import Branch, Plan, build_plan
from factsweep.pipeline.storage.artifact import Artifact
from tests.messages import naming

Settings = Callable[..., Run]


def made(run: Run) -> Branch:
    (branch,) = build_plan(run).branches
    branch.step(branch.facts).run()
    stage = branch.step(branch.prompts).stage
    assert stage is not None
    stage.make(branch.prompts)  # also what is complete, as two at once do
    return branch


def whole(branch: Branch, run: Run) -> pl.DataFrame:
    expansions = expanded(facts.load(branch.facts), branch.setting, seed=run.seed)
    return pl.concat([expansion.prompts for expansion in expansions])


@pytest.mark.parametrize(
    ("size", "prompt"),
    [
        (7, "zero-shot"),
        (100, "4-random"),
        (7, "4-relation"),
        (7, "4-template"),
        (10_000, "4-template"),
    ],
)
def test_make_any_shard_size_publishes_the_expansion(
    small_settings: Settings, size: int, prompt: str
) -> None:
    run = small_settings(f"cluster.rows_per_shard={size}", f"prompt={prompt}")
    branch = made(run)
    columns = branch.prompts.read_all("prompts").columns
    assert_frame_equal(branch.prompts.read_all("prompts"), whole(branch, run).select(columns))
    assert max(branch.prompts.rows("prompts").values()) <= size


def test_make_shard_that_cannot_be_written_ends_it_and_publishes_no_manifest(
    small_settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(artifact: Artifact, table: str, shard: str, *_: object) -> None:
        if shard.startswith("P36"):
            raise InputError("the disk is full.")

    (branch,) = build_plan(small_settings()).branches
    branch.step(branch.facts).run()
    monkeypatch.setattr(Artifact, "write", full)
    with pytest.raises(InputError, match=naming("disk", "full")):
        branch.step(branch.prompts).run()
    assert not branch.prompts.is_complete()


@pytest.mark.parametrize("scope", ["shared", "prompt"])
def test_make_each_shard_holds_the_contexts_it_needs(small_settings: Settings, scope: str) -> None:
    artifact = made(small_settings("cluster.rows_per_shard=7", f"prompt.scope={scope}")).prompts
    for table in ("prompts", "ranked"):
        for shard in artifact.shards(table):
            needed = set(artifact.read(table, shard)["context_id"])
            assert set(artifact.read("contexts", shard)["context_id"]) == needed


def test_make_shards_grow_smaller_towards_the_end_of_a_relation(
    small_settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(expand, "FEWEST", 1)
    run = small_settings("cluster.rows_per_shard=20")
    branch = made(run)
    rows = branch.prompts.rows("prompts")
    sizes = [n for shard, n in sorted(rows.items()) if expand.relation_of(shard) == "P36"]
    assert sizes == sorted(sizes, reverse=True)
    assert len(set(sizes)) > 2
    prompts = branch.prompts.read_all("prompts")
    assert_frame_equal(prompts, whole(branch, run).select(prompts.columns))


def test_make_one_prompt_per_pair_is_ranked_and_repeated_texts_are_named(done: Plan) -> None:
    artifact = done.branches[0].prompts
    ranked, prompts = artifact.read_all("ranked"), artifact.read_all("prompts")
    assert sorted(ranked["calibration_rank"]) == list(range(13))
    assert ranked["pair_id"].n_unique() == 13
    assert ranked.join(prompts, on="prompt_id", how="anti").is_empty()
    repeated = prompts.filter(pl.col("same_as").is_not_null())
    assert 0 < repeated.height <= 4
    assert set(repeated["pair_id"]) == {"P36.Q2"}


def test_with_text_context_stands_before_the_query(done: Plan) -> None:
    artifact = done.branches[0].prompts
    row = expand.with_text(artifact, "prompts", "P30.0000").row(0, named=True)
    assert row["text"].startswith("Predict the [MASK] in each sentence in one word.\nQ: ")
    assert row["text"].endswith(row["query"])
    assert row["text"].count("\nA: ") == 4


def test_relations_behind_one_that_fails_are_not_begun() -> None:
    last = threading.Event()

    def work(relation_id: str) -> None:
        if relation_id == "P1":
            raise InputError("P1 is gone")
        if relation_id == "P29":
            last.set()
        last.wait(0.6 if relation_id == "P0" else 0.02)  # the first outlasts all the others

    with pytest.raises(InputError, match="P1 is gone"):
        expand.by_relation(work, [f"P{number}" for number in range(30)])
    assert not last.is_set()
    assert expand.by_relation(str.lower, ["P2", "P1"]) == ["p2", "p1"]


sizes = st.integers(1, 300)


@given(n=st.integers(0, 5000), size=sizes, fewest=sizes)
def test_ends_shards_never_grow_and_are_within_their_bounds(n: int, size: int, fewest: int) -> None:
    shard_ends = list_shard_ends(n, size, fewest)
    lengths = [b - a for a, b in zip([0, *shard_ends], shard_ends, strict=False)]
    assert sum(lengths) == n
    assert lengths == sorted(lengths, reverse=True)
    assert all(length <= size for length in lengths)
    assert all(length >= min(size, fewest) for length in lengths[:-1])
    for end, length in zip(shard_ends, lengths, strict=True):
        assert length <= max(min(size, fewest), min(n // 8, (n - end + length) // 3))


@pytest.mark.parametrize("together", ["prompt_id", "kind"])
@given(runs=st.lists(st.integers(1, 9), min_size=1, max_size=60), size=st.integers(1, 50))
def test_shards_hold_every_prompt_once_and_what_belongs_together(
    together: str, runs: list[int], size: int
) -> None:
    kinds = [kind for kind, n in enumerate(runs) for _ in range(n)]
    prompts = pl.DataFrame({"prompt_id": map(str, range(len(kinds))), "kind": kinds})
    parts = list(shards(prompts, together, size, fewest=4))
    assert_frame_equal(pl.concat(parts), prompts)
    assert sum(shard[together].n_unique() for shard in parts) == prompts[together].n_unique()
    assert all(shard.height < size + (max(runs) if together == "kind" else 1) for shard in parts)
