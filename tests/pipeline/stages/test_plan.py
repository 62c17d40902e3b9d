"""plan: names are known before anything is computed, and complete artifacts are not recomputed."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest

from factsweep.operators.errors import InputError
from factsweep.pipeline.config.run import Run
from factsweep.pipeline.config.settings import load
from factsweep.pipeline.decoding.remaining_prompts import list_work, sum_costs
from factsweep.pipeline.stages import match, question
from factsweep.pipeline.stages.expand import with_text
from factsweep.pipeline.stages.plan import Branch, Plan, build_plan
from factsweep.pipeline.stages.step import check_inputs, check_planned
from factsweep.pipeline.storage.artifact import Artifact, Recipe
from factsweep.pipeline.storage.integrity import quarantine, quarantine_all
from factsweep.pipeline.storage.store import Store
from tests.messages import naming
from tests.pipeline.damage import pack_otherwise

Settings = Callable[..., Run]
Compute = Callable[..., Plan]
STAGES = ("generations", "canary", "samples")


def files(plan: Plan) -> dict[Path, int]:
    """Every artifact's files with the time of their last change."""
    folder = Path(plan.run.artifacts)
    return {path: path.stat().st_mtime_ns for path in folder.rglob("*") if path.is_file()}


def test_planned_writes_nothing_and_has_no_work_yet(
    small_settings: Settings, tmp_path: Path
) -> None:
    plan = build_plan(small_settings())
    assert not plan.is_complete()
    assert list_work(plan) == []
    assert list(tmp_path.iterdir()) == []


def test_planned_finished_run_is_complete_has_no_work_and_cost_nothing(finished: Plan) -> None:
    assert finished.is_complete()
    assert list_work(finished) == []
    assert finished.outputs
    assert sum_costs(finished) == 0
    (branch,) = finished.branches
    assert branch.admitted.shards("errors") == branch.prompts.shards("prompts")
    assert branch.admitted.read_all("errors").is_empty()


def test_work_prepared_run_has_an_item_for_each_shard(
    finished: Plan, small_settings: Settings
) -> None:
    items = list_work(build_plan(small_settings("decoding.max_tokens=9")))
    shards = [f"{relation}.000{number}" for relation in ("P30", "P36") for number in range(3)]
    by_stage = {stage: [i.shard for i in items if i.table == stage] for stage in STAGES}
    assert by_stage["generations"] == shards
    assert by_stage["canary"] == ["P30", "P36"]
    assert by_stage["samples"] == ["P30", "P36"] * 4


def test_work_more_samples_are_further_blocks_and_change_no_file_that_is_there(
    finished: Plan, small_settings: Settings, compute_here: Compute
) -> None:
    run = small_settings("decoding.samples.n_answers=150")
    (smaller,), (larger,) = finished.branches, build_plan(run).branches
    assert (larger.answers, larger.extra_outputs[:4]) == (smaller.answers, smaller.extra_outputs)
    assert {
        (item.table, getattr(item.question.task, "block", None))
        for item in list_work(build_plan(run))
    } == {("samples", 4), ("samples", 5)}
    files_before = files(finished)
    assert compute_here(run).is_complete()
    assert files_before.items() <= files(finished).items()


def test_compute_second_model_reuses_facts_and_prompts(
    finished: Plan,
    small_settings: Settings,
    compute_here: Compute,
    make_model: Callable[[str], Path],
) -> None:
    run, files_before = (
        small_settings(f"model.id={make_model('second')}", "model.name=x"),
        files(finished),
    )
    (first,), (second,) = finished.branches, build_plan(run).branches
    assert (second.facts, second.prompts) == (first.facts, first.prompts)
    shared = {artifact.folder for artifact in first.artifacts()}
    assert shared & {artifact.folder for artifact in second.artifacts()} == {
        first.facts.folder,
        first.prompts.folder,
    }
    assert compute_here(run).is_complete()
    assert files_before.items() <= files(finished).items()


def test_planned_two_settings_share_the_facts_alone(small_settings: Settings) -> None:
    zero, four = build_plan(small_settings("sweep.prompts=[zero-shot,4-template]")).branches
    assert zero.facts == four.facts
    shared = {a.folder for a in zero.artifacts()} & {a.folder for a in four.artifacts()}
    assert shared == {zero.facts.folder}


def test_is_complete_open_artifact_is_not(finished: Plan) -> None:
    greedy = finished.branches[0].answers
    shard = greedy.shards("generations")[0]
    quarantine(greedy, f"{greedy.folder}/generations/{shard}.parquet")
    assert not finished.is_complete()
    assert [(item.table, item.shard) for item in list_work(finished)] == [("generations", shard)]


def test_set_aside_shard_alone_is_recomputed(
    finished: Plan, small_settings: Settings, compute_here: Compute
) -> None:
    greedy, files_before = finished.branches[0].answers, files(finished)
    name = f"{greedy.folder}/generations/{greedy.shards('generations')[0]}.parquet"
    content = greedy.store.get(name)
    quarantine(greedy, name)
    assert compute_here(small_settings()).is_complete()
    changed = {
        path.name for path, time in files(finished).items() if files_before.get(path) != time
    }
    rewritten = {"manifest.json", "recipe.json"}  # written by each run that goes on
    assert Path(name).name in changed <= {Path(name).name, *rewritten}
    assert greedy.read_all("generations").height == 72 - 2
    assert len(greedy.store.get(name)) == pytest.approx(len(content), rel=0.1)


def test_set_aside_prompts_keep_the_size_of_their_shards(
    finished: Plan, small_settings: Settings, compute_here: Compute
) -> None:
    prompts = finished.branches[0].prompts
    shards = prompts.shards("prompts")
    quarantine(prompts, f"{prompts.folder}/prompts/{shards[0]}.parquet")
    assert compute_here(small_settings("cluster.rows_per_shard=1000")).is_complete()
    assert prompts.shards("prompts") == shards


def test_run_step_where_a_library_is_another_than_planned_is_refused(
    finished: Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    (branch,) = finished.branches
    quarantine_all(branch.matched)
    monkeypatch.setattr(match, "versions", lambda *names: dict.fromkeys(names, "0.0"))
    with pytest.raises(InputError, match=naming("machine that planned", "versions.polars")):
        branch.step(branch.matched).run()
    assert branch.matched.list_published("answers") == []


def test_check_planned_engine_of_another_version_is_refused(finished: Plan) -> None:
    (branch,) = finished.branches
    software = question.software(finished.run.method.ask.ability, finished.run.decoding)
    check_planned({"software": software}, branch.answers)
    with pytest.raises(
        InputError, match=naming("software.engine", '"fake 1"', "→", '"fake 2"', "install")
    ):
        check_planned({"software": {**software, "engine": "fake 2"}}, branch.answers)


LIMIT = 225


@pytest.fixture(scope="module")
def tight(
    small: list[str], compute_here: Compute, tmp_path_factory: pytest.TempPathFactory
) -> Branch:
    """A run whose longer prompts do not fit. A token of the model is a byte, and an answer 10."""
    overrides = [f"model.max_model_len={LIMIT + 10}", "metrics.n_draws=5", "metrics.n_rounds=2"]
    folder = tmp_path_factory.mktemp("tight")
    return compute_here(load([*small, *overrides, f"artifacts={folder}"])).branches[0]


def test_admit_long_prompts_are_error_rows_and_count_as_failed(tight: Branch) -> None:
    shards = tight.prompts.shards("prompts")
    prompts = pl.concat([with_text(tight.prompts, "prompts", shard) for shard in shards])
    expected = prompts.filter(pl.col("text").str.len_bytes() > LIMIT)
    errors = tight.admitted.read_all("errors")
    assert 0 < expected.height < 72
    assert sorted(errors["prompt_id"]) == sorted(expected["prompt_id"])
    lengths = expected.select("prompt_id", n=pl.col("text").str.len_bytes())
    row = errors.join(lengths, on="prompt_id").row(0, named=True)
    assert row["detail"] == f"{row['n']} tokens, room for {LIMIT}"
    assert (row["stage"], row["reason"]) == ("admit", "prompt_too_long")
    for artifact in tight.list_outputs():
        answered = artifact.read_all(artifact.stage)["prompt_id"]
        assert len(answered) > 0
        assert set(expected["prompt_id"]).isdisjoint(answered)
    overall = tight.metrics.read_all("metrics").filter(pl.col("slice").is_null())
    failed = expected.height
    assert overall.filter(metric="acc_at_1").select("n", "n_failed").row(0) == (72 - failed, failed)
    ranked = tight.prompts.read_all("ranked").filter(pl.col("calibration_rank") < 8)
    lost = ranked.join(expected, on="prompt_id", how="semi").height
    assert overall.filter(metric="ovconf").select("n", "n_failed").row(0) == (8 - lost, lost)


ROWS = pl.DataFrame({"relation_id": ["P36", "P30"], "label": ["capital", "continent"]})


def rewrite(source: Artifact, shards: dict[str, pl.DataFrame]) -> None:
    """Set all aside, and complete the artifact with these shards."""
    artifact = replace(source)
    quarantine_all(artifact)
    for shard, rows in shards.items():
        artifact.write("relations", shard, rows)
    artifact.finish(["relations"])
    source.forget()


@pytest.mark.parametrize("stage", ["admitted", "generations"])
@pytest.mark.parametrize(
    ("shards", "is_kept"),
    [
        ({"all": ROWS}, {"admitted", "generations"}),
        ({"all": ROWS[::-1]}, {"admitted"}),  # which no recipe allows, unless an engine answered
        ({"one": ROWS[:1], "two": ROWS[1:]}, set()),
    ],
)
def test_check_inputs_keeps_what_was_made_of_the_same(
    tmp_path: Path,
    stage: str,
    shards: dict[str, pl.DataFrame],
    is_kept: set[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    source, product = (Artifact(Store(str(tmp_path)), Recipe(s, 1, {})) for s in (stage, "matched"))
    rewrite(source, {"all": ROWS})
    product.begin()
    check_inputs(product, [source])
    product.write("relations", "all", ROWS)
    if stage == "admitted":
        pack_otherwise(monkeypatch)  # another pyarrow: other bytes of the same rows
    rewrite(source, shards)
    for _ in range(2):
        check_inputs(product, [source])
        assert (product.list_published("relations") == ["all"]) == (stage in is_kept)
