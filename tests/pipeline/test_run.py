"""run: the whole pipeline in Ray with the fake engine, and nothing done twice."""

import json
import re
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import polars as pl
import pytest
import ray
from polars.testing import assert_frame_equal

from factsweep.operators.errors import DecodingError, InputError
from factsweep.pipeline.cluster import ray_cluster as cluster
from factsweep.pipeline.config.run import Run
from factsweep.pipeline.decoding.progress_counter import Loading, tally_actor
from factsweep.pipeline.runs import run as running
from factsweep.pipeline.runs import run_tasks as following
from factsweep.pipeline.runs.run import run
from factsweep.pipeline.stages.plan import Plan, build_plan
from tests.messages import naming

Settings = Callable[..., Run]
Compute = Callable[..., Plan]
SETTINGS = "sweep.prompts=[zero-shot,4-template]"


@pytest.fixture
def no_ray(monkeypatch: pytest.MonkeyPatch) -> None:
    """Starting Ray fails the test."""

    def started(run: Run, *, offline: bool = False) -> Iterator[None]:
        pytest.fail("Ray was started")

    monkeypatch.setattr(cluster, "start_ray", started)


@pytest.mark.usefixtures("no_ray")
def test_run_answers_of_another_system_are_refused(small_settings: Settings) -> None:
    with pytest.raises(InputError, match=naming("`factsweep", "answers=…`")):
        run(small_settings("answers=mine.jsonl"))


def in_ray(settings: Settings, size: int, replicas: int) -> pl.DataFrame:
    pool = [f"model.replicas.{limit}={replicas}" for limit in ("min", "max")]
    folder = f"artifacts={settings().artifacts}-{size}-{replicas}"
    return run(settings(SETTINGS, f"cluster.rows_per_shard={size}", folder, *pool))


@pytest.mark.slow
@pytest.mark.usefixtures("shared_ray", "plain")
def test_run_any_shard_size_and_replicas_gives_the_same_metrics(
    small_settings: Settings, compute_here: Compute
) -> None:
    sharded = in_ray(small_settings, size=16, replicas=2)
    whole_shard = in_ray(small_settings, size=1000, replicas=1)
    branches = compute_here(small_settings(SETTINGS, "cluster.rows_per_shard=7")).branches
    assert_frame_equal(sharded, whole_shard)
    assert_frame_equal(
        whole_shard, pl.concat([branch.metrics.read_all("metrics") for branch in branches])
    )


@pytest.mark.slow
@pytest.mark.usefixtures("shared_ray")
def test_run_fault_in_a_worker_is_our_error(small_settings: Settings, tmp_path: Path) -> None:
    (tmp_path / "artifacts").mkdir()
    (tmp_path / "artifacts" / "prompts").write_text("a file where a folder should be")
    with pytest.raises(InputError, match=naming("artifacts/prompts/")):
        run(small_settings())


@pytest.mark.slow
@pytest.mark.usefixtures("shared_ray")
def test_run_fault_in_an_engines_process_is_our_error(small_settings: Settings) -> None:
    settings = small_settings("decoding.samples.n_prompts=0")
    greedy = build_plan(settings).branches[0].answers
    greedy.store.put(f"{greedy.folder}/generations", b"a file where a folder should be")
    with pytest.raises(InputError, match=naming("generations/P3")):
        run(settings)


@pytest.mark.usefixtures("shared_ray", "plain")
def test_run_damaged_chunk_is_set_aside_and_decoded_again(small_settings: Settings) -> None:
    settings = small_settings("decoding.samples.n_prompts=0")
    (branch,) = build_plan(settings).branches
    chunk = f"{branch.answers.folder}/chunks/generations/P30.0000"
    branch.answers.store.put(f"{chunk}/c0.parquet", b"half a chunk")
    metrics = run(settings).filter(pl.col("slice").is_null())
    assert branch.answers.store.get(f"{chunk}/damaged/c0.parquet") == b"half a chunk"
    assert metrics.filter(metric="acc_at_1")["n"].to_list()[0] == 72


@pytest.mark.usefixtures("no_ray")
def test_run_second_time_computes_nothing(finished: Plan) -> None:
    paths = [path for path in Path(finished.run.artifacts).rglob("*") if path.is_file()]
    times_before = {path: path.stat().st_mtime_ns for path in paths}
    metrics = run(finished.run)
    assert metrics.equals(finished.branches[0].metrics.read_all("metrics"))
    assert {path: path.stat().st_mtime_ns for path in paths} == times_before


@pytest.mark.usefixtures("no_ray")
def test_run_inputs_removed_to_save_room_are_not_made_again(finished: Plan) -> None:
    (branch,) = finished.branches
    run(finished.run)
    record = Path(finished.run.results) / finished.run.name / "run.json"
    cost = json.loads(record.read_text())["cost"]
    assert cost["generations"]["prompts"] > 0
    for artifact in (branch.prompts, *branch.list_outputs()):
        for path in sorted(Path(artifact.store.where(artifact.folder)).rglob("*"), reverse=True):
            path.unlink() if path.is_file() else path.rmdir()
    assert run(finished.run).equals(branch.metrics.read_all("metrics"))
    assert json.loads(record.read_text())["cost"] == cost


@pytest.mark.usefixtures("no_ray")
def test_run_bad_model_fails_before_ray_is_started(small_settings: Settings) -> None:
    with pytest.raises(InputError, match=naming("model.id=/nowhere")):
        run(small_settings("model.id=/nowhere"))


@pytest.mark.usefixtures("no_ray")
def test_run_too_many_failed_prompts_writes_results_and_says_so(
    small_settings: Settings, compute_here: Compute
) -> None:
    settings = small_settings("model.max_model_len=235", "decoding.max_failed_share=0.1")
    compute_here(settings)
    with pytest.raises(DecodingError, match=naming("72 prompts", "=0.1")):
        run(settings)
    assert (Path(settings.results) / settings.name / "metrics.parquet").is_file()


@pytest.mark.slow
@pytest.mark.usefixtures("no_ray")
def test_run_few_failed_prompts_are_allowed(
    small_settings: Settings, compute_here: Compute
) -> None:
    settings = small_settings("model.max_model_len=235", "decoding.max_failed_share=0.9")
    compute_here(settings)
    assert run(settings).filter(metric="acc_at_1")["n_failed"].max() > 0  # type: ignore[operator]


def test_planned_run_in_ray_and_here_have_the_same_names(small_settings: Settings) -> None:
    names = [
        [
            artifact.folder
            for artifact in build_plan(small_settings(*overrides)).branches[0].artifacts()
        ]
        for overrides in ((), ("model.replicas.max=2", "cluster.address=auto"))
    ]
    assert names[0] == names[1]


@pytest.mark.slow
@pytest.mark.usefixtures("shared_ray")
def test_stop_of_a_run_whose_ray_is_gone_is_said(
    small_settings: Settings, caplog: pytest.LogCaptureFixture
) -> None:
    tally = tally_actor(small_settings().cluster)
    ray.kill(tally)
    with caplog.at_level("WARNING"):
        following._stop_engines([], tally)
    assert "ActorDiedError" in caplog.text
    assert "published answers are kept" in caplog.text


def test_compute_on_files_of_the_cache_has_workers_that_ask_no_hub(
    small_settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    offline_flags = []
    monkeypatch.setattr(
        cluster, "start_ray", lambda _, *, offline: nullcontext(offline_flags.append(offline))
    )
    monkeypatch.setattr(following, "follow", lambda *_: None)
    plan = build_plan(small_settings())
    running.compute(plan)
    running.compute(replace(plan, weights=replace(plan.weights, offline=True)))
    assert offline_flags == [False, True]


def test_start_nodes_of_an_autoscaler_are_waited_for(
    small_settings: Settings, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    now_s, loading = [0.0], list[Loading]()
    monkeypatch.setattr(following, "time", SimpleNamespace(monotonic=lambda: now_s[0]))
    monkeypatch.setattr(ray, "get", lambda value: value)
    monkeypatch.setattr(cluster, "describe_room", lambda _: "the cluster has 0")
    tally = SimpleNamespace(loading=SimpleNamespace(remote=lambda: loading))
    growing = ("cluster=ray", "cluster.launch.autoscales=true", "cluster.start_s=60")
    pods = following._Start(small_settings(*growing), tally)
    nodes = following._Start(small_settings("cluster.start_s=60"), tally)
    for start in (pods, nodes):
        start.check({"all_shards": 3})
    now_s[0] = 61
    with caplog.at_level("WARNING"):
        pods.check({"all_shards": 3})
    assert re.search(naming("60 seconds", "has 0"), caplog.text)
    with pytest.raises(DecodingError, match=r"the cluster has 0\. Free some"):
        nodes.check({"all_shards": 3})
    now_s[0], loading[:] = 122, [Loading(3.0, "n1", "/engine.err")]  # it has come, late
    monkeypatch.setattr(cluster, "host_name", lambda node: f"host of {node}")
    pods.check({"all_shards": 3})
    loading[:] = [Loading(70.0, "n1", "/engine.err"), Loading(20.0, "n2", "/other.err")]
    pods.check({"all_shards": 3})  # one hangs; the other has its own time
    loading[:] = [Loading(120.0, "n1", "/engine.err"), Loading(61.0, "n2", "/other.err")]
    with pytest.raises(DecodingError, match=naming("2 loading", "/engine.err", "host of n1")):
        pods.check({"all_shards": 3})
