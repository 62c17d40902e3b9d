"""plan: a run does as its forecast says."""

import json
import re
import shutil
from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from itertools import count, pairwise
from pathlib import Path
from types import SimpleNamespace

import polars as pl
import pytest
from transformers import PreTrainedTokenizerFast

from factsweep.operators.errors import InputError
from factsweep.pipeline.cli import main
from factsweep.pipeline.cluster.ray_cluster import start_ray
from factsweep.pipeline.config.run import Run
from factsweep.pipeline.decoding import costs, remaining_prompts
from factsweep.pipeline.decoding.costs import SPENT
from factsweep.pipeline.inputs import models
from factsweep.pipeline.inputs.models import tokenizer
from factsweep.pipeline.runs import calibration
from factsweep.pipeline.runs.calibration import RatedEngine, calibrate, vary_engines
from factsweep.pipeline.runs.forecast import Forecast, forecast, lines
from factsweep.pipeline.stages.expand import with_text
from factsweep.pipeline.stages.plan import Plan, build_plan, sample_plan
from factsweep.pipeline.storage.artifact import Artifact
from factsweep.pipeline.storage.integrity import quarantine
from factsweep.pipeline.storage.store import Store
from tests.messages import naming
from tests.pipeline.here import make_here

Settings = Callable[..., Run]
Compute = Callable[..., Plan]
GREEDY = ("decoding.samples.n_prompts=0", "decoding.canary_prompts=0")
TIGHT = "model.max_model_len=235"
SETTINGS = ["zero-shot", "4-random", "4-relation", "4-template"]


def figures(run: Run) -> Forecast:
    _, (forecast_,) = forecast(run)
    return forecast_


def texts(prompts: Artifact) -> pl.DataFrame:
    return pl.concat([with_text(prompts, "prompts", s) for s in prompts.shards("prompts")])


def test_forecast_writes_nothing(small_settings: Settings, tmp_path: Path) -> None:
    forecast(small_settings())
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("prompt", SETTINGS)
def test_forecast_prompts_and_tokens_are_those_of_the_run(
    small_settings: Settings, compute_here: Compute, prompt: str
) -> None:
    run = small_settings(f"prompt={prompt}", *GREEDY)
    expected = figures(run)
    plan = compute_here(run)
    (branch,) = plan.branches
    prompts = texts(branch.prompts)
    metrics = branch.metrics.read_all("metrics").filter(metric="acc_at_1").drop_nulls("slice")
    assert expected.prompts == {"P30": 36, "P36": 36}
    assert [f"relation={r}" for r in expected.prompts] == metrics["slice"].to_list()
    assert list(expected.prompts.values()) == metrics["n"].to_list()
    assert expected.duplicates == prompts["same_as"].count()
    assert expected.shards == len(branch.prompts.shards("prompts"))
    decoded = prompts.filter(pl.col("same_as").is_null())["text"]
    encode = tokenizer(plan.weights)
    assert expected.tokens == sum(len(encode(text).input_ids) for text in decoded)
    assert figures(run).tokens == expected.tokens


def test_forecast_shared_prefix_is_counted_from_prompt_to_prompt(
    small_settings: Settings, compute_here: Compute
) -> None:
    run = small_settings("benchmark.relations=[P30]", *GREEDY)
    texts_ = texts(compute_here(run).branches[0].prompts)["text"].to_list()
    pairs = pairwise(texts_)
    assert figures(run).shared_tokens == sum(common_prefix(*pair) for pair in pairs)


def common_prefix(a: str, b: str) -> int:
    return next(
        (i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b))
    )


def test_forecast_nothing_done_leaves_everything(small_settings: Settings) -> None:
    forecast_ = figures(small_settings())
    assert forecast_.n_left["generations"] == 72 - forecast_.duplicates
    assert (forecast_.n_asked["samples"], forecast_.n_left["samples"]) == (8, 8 * 100)


@pytest.mark.slow
@pytest.mark.parametrize("overrides", [[], [TIGHT]], ids=["room", "tight"])
def test_forecast_left_is_what_the_run_decodes_and_then_nothing(
    small_settings: Settings, compute_here: Compute, overrides: list[str]
) -> None:
    run = small_settings(*overrides)
    earlier = figures(run)
    (branch,) = compute_here(run).branches
    assert earlier.n_left["generations"] == branch.answers.read_all("generations").height
    assert branch.repeated_answers is not None
    assert earlier.n_left["canary"] == branch.repeated_answers.read_all("canary").height
    sampled = [
        block.read_all("samples")["texts"].list.len().sum() for block in branch.extra_outputs
    ]
    assert earlier.n_left["samples"] == sum(sampled)
    assert set(figures(run).n_left.values()) == {0}


def test_forecast_more_samples_leave_the_new_blocks(
    finished: Plan, small_settings: Settings
) -> None:
    forecast_ = figures(small_settings("decoding.samples.n_answers=150"))
    assert (forecast_.n_left["generations"], forecast_.n_left["samples"]) == (0, 8 * 50)


def test_forecast_of_a_budget_is_of_what_it_asks(small_settings: Settings) -> None:
    part, more = (small_settings(*GREEDY, f"budget={share}%") for share in (40, 80))
    earlier = figures(part)
    plan = sample_plan(build_plan(part))
    make_here(plan)
    (branch,) = plan.branches
    assert branch.chosen is not None
    assert earlier.n_whole == 72
    assert sum(earlier.prompts.values()) == branch.chosen.read_all("chosen").height
    needed = branch.chosen.read_all("needed").height
    assert earlier.n_asked == {"generations": needed}
    counts = remaining_prompts.read_counts([branch.answers])
    assert earlier.tokens == sum(int(shard_counts["prompt_tokens"]) for shard_counts in counts)
    after, larger = figures(part), figures(more)
    assert (earlier.n_left["generations"], after.n_left["generations"]) == (needed, 0)
    assert larger.n_left["generations"] == larger.n_asked["generations"] - needed
    text = "\n".join(lines(*forecast(more)))
    assert f"budget          80%: {sum(larger.prompts.values())} of 72 prompts of 4-temp" in text
    assert f"{larger.n_left['generations']} answers left" in text


def test_forecast_answers_of_another_system_need_no_tokenizer(
    small_settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "answers.jsonl"
    path.write_text('{"prompt_id": "P30.Q0.000.0", "text": "Europe"}\n')
    monkeypatch.setattr(models, "tokenizer", None)
    _, (forecast_,) = forecast(small_settings(f"answers={path}"))
    assert not forecast_.n_asked
    assert forecast_.n_left["generations"] == sum(forecast_.prompts.values())


def test_lines_nothing_measured_say_what_to_do(small_settings: Settings) -> None:
    *_, last = lines(*forecast(small_settings()))
    assert last.startswith("time            unknown: canary, generations, samples of tiny")
    assert "`factsweep plan … --calibrate`" in last


def test_lines_never_measured_here_is_a_range_of_time(small_settings: Settings) -> None:
    """A model of a size has a time on hardware where nothing of it was measured."""
    size = ["decoding.engine=vllm", "model.billions_of_parameters=70", "cluster.hardware=A40"]
    *_, last = lines(*forecast(small_settings(*size, "model.tensor_parallel=4")))
    assert re.match(
        r"time            about [\d.]+ to \d+ (seconds|minutes) of decoding with 1", last
    )
    assert "were never measured on A40; measure a minute of them" in last


def test_lines_finished_run_has_nothing_left(finished: Plan) -> None:
    *_, last = lines(*forecast(finished.run))
    assert last == "time            nothing is left to do"


def test_lines_everything_decoded_speak_of_no_decoding(finished: Plan) -> None:
    (branch,) = finished.branches
    shutil.rmtree(f"{finished.run.artifacts}/{branch.metrics.folder}")
    *_, table, last = lines(*forecast(finished.run))
    assert "metrics" in table
    assert last == "time            nothing is left to decode; the rest needs no engine"


def test_lines_rate_given_is_taken_for_the_time(small_settings: Settings) -> None:
    replicas = [f"model.replicas.{limit}=2" for limit in ("min", "max")]
    run = small_settings("cluster.answers_per_s=0.5", *replicas)
    plan, forecasts = forecast(run)
    text = list(lines(plan, forecasts))
    answers = sum(forecasts[0].n_left[stage] for stage in forecasts[0].n_asked)
    assert "0.5 answers/s of an engine, given" in text[-2]
    minutes, seconds = divmod(answers, 60)
    assert text[-1].startswith(f"time            {minutes}:{seconds:02d} of decoding with 2")


def test_lines_rate_measured_is_that_of_the_same_model(
    finished: Plan, small_settings: Settings
) -> None:
    costs.publish_rates(finished)
    same_text, other = (
        "\n".join(lines(*forecast(small_settings("seed=1", f"model.name={name}"))))
        for name in ("tiny", "another")
    )
    assert f"answers/s of an engine in {finished.run.model.dtype} on fake engine" in same_text
    assert f"of another in {finished.run.model.dtype} were never measured on fake engine" in other


def test_lines_name_a_disk_that_is_too_small_for_what_is_left(
    finished: Plan, small_settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    costs.publish_rates(finished)
    for free, is_too_small in {10**12: False, 100: True}.items():
        monkeypatch.setattr(Store, "free", lambda _, free=free: free)
        disk_line = next(
            e for e in lines(*forecast(small_settings("seed=1"))) if e.startswith("disk")
        )
        assert ("artifacts=" in disk_line) == is_too_small
        assert "GB to write" in disk_line
    monkeypatch.setattr(Store, "free", lambda _: None)
    assert not any(e.startswith("disk") for e in lines(*forecast(small_settings("seed=1"))))


def test_lines_name_how_weights_are_quantised(small_settings: Settings, tmp_path: Path) -> None:
    run = small_settings()
    assert "bits" not in "\n".join(lines(*forecast(run)))
    folder = shutil.copytree(run.model.id, tmp_path / "quantised")
    config = json.loads((folder / "config.json").read_text())
    quantisation = {"quantization_config": {"quant_method": "awq", "bits": 4}}
    (folder / "config.json").write_text(json.dumps({**config, **quantisation}))
    assert "(awq, 4 bits)" in "\n".join(lines(*forecast(small_settings(f"model.id={folder}"))))
    quantisation["quantization_config"]["quant_method"] = "nosuch"
    (folder / "config.json").write_text(json.dumps({**config, **quantisation}))
    lacks = naming(folder, "nosuch, 4 bits", "cluster.device=cpu", "take a copy in AWQ")
    vllm = small_settings(f"model.id={folder}", "decoding.engine=vllm", "cluster.device=cpu")
    with pytest.raises(InputError, match=lacks):
        forecast(vllm)
    with pytest.raises(InputError, match=lacks):
        start_ray(vllm).__enter__()


def test_lines_open_run_knows_its_own_rate(finished: Plan, small_settings: Settings) -> None:
    (branch,) = finished.branches
    quarantine(branch.answers, f"{branch.answers.folder}/generations/P30.0000.parquet")
    *_, table, _ = lines(*forecast(small_settings()))
    (row,) = [line for line in table.splitlines() if "generations" in line]
    assert "16" in row
    assert f"answers/s of an engine in {finished.run.model.dtype} on fake engine" in row


def test_lines_gpus_count_the_hours(small_settings: Settings) -> None:
    run = small_settings(
        *("decoding.engine=vllm", "cluster.device=cuda", "model.tensor_parallel=4"),
        *("cluster.answers_per_s=1", "decoding.samples.n_prompts=0"),
    )
    plan, forecasts = forecast(run)
    *_, last = lines(plan, forecasts)
    answers = sum(forecasts[0].n_left[stage] for stage in forecasts[0].n_asked)
    assert last.endswith(f"{answers * 4 / 3600:.2f} GPU-hours")


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("FACTSWEEP_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


def measure_alone(run: Run) -> pl.DataFrame:
    engine = RatedEngine()
    engine.load(run)
    return engine.measure(limit_s=30)


def test_measured_rate_is_the_engines_within_the_time(
    small_settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = SimpleNamespace(monotonic=partial(next, count()))  # a second passes between two looks
    monkeypatch.setattr("factsweep.pipeline.runs.calibration.time", clock)
    rows = measure_alone(small_settings())
    assert rows["stage"].to_list() == ["generations", "canary", "samples"]
    assert rows["setting"].unique().to_list() == ["4-template"]
    assert rows["hardware"].unique().to_list() == ["fake engine"]
    assert rows["prompts"].max() == 11  # a stage has 10 s, and its last prompt is over after them
    assert (rows["seconds"] - rows["prompts"]).unique().to_list() == [1]
    asked_for = rows.filter(stage="samples").row(0, named=True)
    assert asked_for["answers"] == 25 * asked_for["prompts"]


def test_measured_candidates_are_read_from_beside_the_prompts(
    small_settings: Settings, make_model: Callable[[str], Path]
) -> None:
    model = make_model("compared")
    reads = PreTrainedTokenizerFast.from_pretrained(model)
    reads.eos_token = "</s>"  # an ending of a name
    reads.save_pretrained(model)
    facts_overrides = [
        "benchmark.relations=[P36]",
        "benchmark.pairs_per_relation=2",
        "benchmark.path=null",
    ]
    run = small_settings(
        "benchmark=distractors-mini", "prompt=random", f"model.id={model}", *facts_overrides
    )
    rows = measure_alone(run)
    assert rows["stage"].to_list() == ["preferences", "preferred_again"]
    assert (rows["prompt_tokens"] > rows["prompts"]).all()


@pytest.mark.slow
def test_plan_calibrate_keeps_the_rate_and_publishes_nothing(
    small: list[str],
    shared_ray: None,
    home: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr("factsweep.pipeline.runs.calibration.LIMIT_S", 0.5)
    folders = [f"artifacts={tmp_path}/artifacts", f"results={tmp_path}/results"]
    assert main(["plan", "--calibrate", *small, *folders]) == 0
    output = capsys.readouterr().out
    assert output.count("measured        ") == 3
    assert "of decoding with 1 replicas" in output
    assert [path.name for path in tmp_path.iterdir()] == ["home"]
    (file_path,) = (home / "rates").iterdir()
    assert {row["model"] for row in json.loads(file_path.read_text())["rows"]} == {"tiny"}
    # The next plan knows it without measuring.
    assert main(["plan", *small, *folders]) == 0
    assert "of decoding with 1 replicas" in capsys.readouterr().out


ON_GPU = ("cluster.device=cuda", "cluster.hardware=H100", "model.billions_of_parameters=8")


@pytest.mark.parametrize(
    ("overrides", "expected"),
    [
        (("model.billions_of_parameters=14",), [1, 2]),  # 28 GB of weights each
        (("model.billions_of_parameters=1",), [1, 2, 4]),
        (("model.billions_of_parameters=1", "model.replicas.per_gpu=2"), [2]),
        (("model.billions_of_parameters=1", "model.tensor_parallel=2"), [1]),
        (("cluster.hardware=some",), [1]),
        (("cluster.device=cpu",), [1]),
    ],
)
def test_calibrate_tries_as_many_engines_as_a_gpu_holds(
    small_settings: Settings, overrides: tuple[str, ...], expected: list[int]
) -> None:
    run = small_settings(*ON_GPU, "model.dtype=bfloat16", *overrides)
    assert [run.model.replicas.per_gpu for run in vary_engines(run)] == expected


@pytest.mark.parametrize(
    ("rate_by_number", "tried", "words"),
    [
        ({1: 100, 2: 80, 4: 75}, {1, 2, 4}, ("4 on a GPU", "300.0/s", "3.00 ×", "per_gpu=4")),
        ({1: 100, 2: 80, 4: 30}, {1, 2, 4}, ("2 on a GPU", "160.0/s", "1.60 ×", "per_gpu=2")),
        ({1: 100, 2: 51, 4: 75}, {1, 2}, ("one on a GPU", "100.0/s", "2 are not faster")),
    ],
)
def test_calibrate_keeps_every_rate_and_names_the_best_number_of_engines(
    small_settings: Settings,
    home: Path,
    monkeypatch: pytest.MonkeyPatch,
    rate_by_number: dict[int, float],
    tried: set[int],
    words: tuple[str, ...],
) -> None:
    """A rate is that of one engine; a number that gains nothing ends the search."""

    def measure(run: Run) -> pl.DataFrame:
        n = run.model.replicas.per_gpu
        row = {"fingerprint": f"{n}", "stage": "generations", "setting": "4-template"}
        row |= {"hardware": "H100", "gpus": 1, "per_gpu": n if n > 1 else None}
        return pl.DataFrame([{**row, "answers": rate_by_number[n], "seconds": 1.0}], schema=SPENT)

    monkeypatch.setattr(calibration, "measure_together", measure)
    monkeypatch.setattr(calibration.cluster, "start_ray", lambda _: nullcontext())
    *_, last = calibrate(small_settings(*ON_GPU, "model.billions_of_parameters=1"))
    assert all(word in last for word in words)
    rows = [json.loads(path.read_text())["rows"] for path in (home / "rates").iterdir()]
    assert {row["per_gpu"] or 1 for (row,) in rows} == tried


def test_calibrate_engines_that_do_not_load_together_leave_the_rate_of_one(
    small_settings: Settings, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def measure(run: Run) -> pl.DataFrame:
        if run.model.replicas.per_gpu > 1:
            raise InputError("tiny could not be measured: out of memory")
        row = {"fingerprint": "1", "stage": "generations", "answers": 100, "seconds": 1.0}
        return pl.DataFrame([row], schema=SPENT)

    monkeypatch.setattr(calibration, "measure_together", measure)
    monkeypatch.setattr(calibration.cluster, "start_ray", lambda _: nullcontext())
    one, last = calibrate(small_settings(*ON_GPU, "model.billions_of_parameters=1"))
    assert "100.0/s" in one
    assert "2 on a GPU: tiny could not be measured: out of memory" in last
    assert len(list((home / "rates").iterdir())) == 1


def test_calibrate_a_replica_over_several_nodes_is_refused(small_settings: Settings) -> None:
    run = small_settings("model.pipeline_parallel=2")
    with pytest.raises(InputError, match=naming("pipeline_parallel=2", "cluster.answers_per_s")):
        list(calibrate(run))
