"""Reads are checked: no damage of a finished store leads to a wrong number.

The engine is fake and pages are left out: the tests are about reading.
"""

import logging
import os
import re
import shutil
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import polars as pl
import pytest

import factsweep
from factsweep.operators.engines.fake import FakeEngine
from factsweep.operators.engines.protocol import Answer, Request
from factsweep.operators.errors import InputError
from factsweep.pipeline.cli import main
from factsweep.pipeline.config.run import Run
from factsweep.pipeline.config.settings import load
from factsweep.pipeline.runs.run import measure_run
from factsweep.pipeline.runs.verify import verify
from factsweep.pipeline.stages.plan import Plan, build_plan
from factsweep.pipeline.storage.integrity import quarantine
from tests.messages import naming
from tests.pipeline import damage
from tests.pipeline.damage import Harm
from tests.pipeline.here import make_here

Settings = Callable[..., Run]
STAGES = ("facts", "prompts", "admitted", "generations", "canary", "samples", "matched", "metrics")
MUTATIONS = int(os.environ.get("FACTSWEEP_MUTATIONS", "40"))  # `make chaos`: 1,000
VERBS = {
    "report": ["report"],
    "compare": ["compare", "one", "two", "min_facts=5", "n_rounds=10"],
    "export": ["export", "one", "--format=parquet"],  # which rounds nothing
}


@pytest.fixture
def plan(
    sound: Path, two_runs: dict[str, list[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Plan:
    """The first run in a copy of that folder, which may be harmed."""
    shutil.copytree(sound, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    return build_plan(load(two_runs["one"]))


@pytest.fixture(scope="module")
def right(sound: Path) -> pl.DataFrame:
    """The metrics of the first run."""
    return pl.read_parquet(sound / "results/one/metrics.parquet")


def numbers(plan: Plan) -> pl.DataFrame:
    """The metrics after the run is run again, equal to the written ones."""
    metrics = measure_run(plan.run, make_here)
    assert factsweep.load("results/one").metrics.equals(metrics)
    return metrics


def first_file(plan: Plan, stage: str, name: str | None = None) -> Path:
    """A file of the first artifact of a stage: by name, or its first shard that has rows."""
    artifact = next(step.artifact for step in plan.steps if step.artifact.stage == stage)
    if name is None:
        tables = artifact.manifest().tables.items()
        name = next(
            f"{table}/{shard}.parquet"
            for table, shards in tables
            for shard, entry in shards.items()
            if entry.rows or stage == "admitted"
        )
    return Path("artifacts") / artifact.folder / name


def each_once(stages: tuple[str, ...], harms: dict[str, Harm]) -> list[object]:
    """All pairs of stage and harm; in `make test` each stage and each harm once."""
    names = [*harms]
    fast = {(stages[n % len(stages)], names[n % len(names)]) for n in range(len(names))}
    fast |= {(stage, names[n % len(names)]) for n, stage in enumerate(stages)}
    return [
        pytest.param(stage, harm, marks=() if (stage, harm) in fast else pytest.mark.chaos)
        for stage in stages
        for harm in names
    ]


@pytest.mark.parametrize(("stage", "harm"), each_once(STAGES, damage.SHARDS))
def test_shard_that_is_harmed_is_named_and_computed_anew(
    plan: Plan, right: pl.DataFrame, stage: str, harm: str
) -> None:
    path = first_file(plan, stage)
    damage.SHARDS[harm](path)
    assert any(str(path) in problem for problem in verify(plan.run).problems)
    assert numbers(plan).equals(right)
    verify(plan.run, repair=True)
    assert numbers(plan).equals(right)
    assert verify(plan.run).problems == []


@pytest.mark.slow
@pytest.mark.parametrize(
    ("stage", "file", "harm"),
    [
        pytest.param(
            *(stage, file, harm),
            marks=() if number % len(STAGES) == STAGES.index(stage) else pytest.mark.chaos,
        )
        for stage in STAGES
        for number, (file, harm) in enumerate(
            (file, harm) for file in ("manifest.json", "recipe.json") for harm in damage.JSON
        )
    ],
)
def test_json_that_is_harmed_is_found_and_written_anew(
    plan: Plan, right: pl.DataFrame, stage: str, file: str, harm: str
) -> None:
    path = first_file(plan, stage, file)
    damage.JSON[harm](path)
    (problem, *_) = verify(plan.run).problems
    assert str(path.parent) in problem
    assert numbers(plan).equals(right)
    assert verify(plan.run).problems == []


@pytest.mark.parametrize(
    "harm",
    [pytest.param(e, marks=pytest.mark.chaos if n % 4 else ()) for n, e in enumerate(damage.JSON)],
)
def test_run_json_that_is_harmed_is_refused_by_whoever_reads_it(
    plan: Plan, right: pl.DataFrame, harm: str, capsys: pytest.CaptureFixture[str]
) -> None:
    damage.JSON[harm](Path("results/one/run.json"))
    for verb in VERBS.values():
        assert main(verb) == (0 if harm == "gone" and verb == VERBS["report"] else 2)
        assert capsys.readouterr().err.count("\n") <= 1
    assert numbers(plan).equals(right)
    assert main(VERBS["export"]) == 0


@pytest.mark.slow
@pytest.mark.parametrize(
    ("stage", "harm"), each_once(("facts", "matched", "metrics"), damage.SHARDS)
)
def test_verbs_that_read_a_harmed_shard_end_in_one_sentence(
    plan: Plan, stage: str, harm: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = first_file(plan, stage)
    if stage == "matched":
        path = next(path.parents[1].glob("answers/*.parquet"))
    damage.SHARDS[harm](path)
    for verb in ("report", "compare"):
        assert main(VERBS[verb]) == 2
        (line,) = capsys.readouterr().err.splitlines()
        assert str(path.parts[2]) in line


def test_rows_that_a_manifest_makes_up_are_named(plan: Plan) -> None:
    path = first_file(plan, "prompts")
    damage.more_rows_in_the_manifest(path)
    problem, *_ = verify(plan.run).problems
    assert re.search(naming(str(path), "rows"), problem)


@pytest.mark.slow
@pytest.mark.parametrize("harm", damage.ANY)
def test_metrics_of_results_that_are_harmed_are_refused(
    plan: Plan, right: pl.DataFrame, harm: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = Path("results/one/metrics.parquet")
    damage.ANY[harm](path)
    assert main(VERBS["export"]) == 2
    assert f"{path} " in capsys.readouterr().err
    with pytest.raises(InputError, match=naming("results/one/metrics.parquet")):
        _ = factsweep.load("results/one").metrics
    assert any("metrics.parquet" in problem for problem in verify(plan.run).problems)
    assert numbers(plan).equals(right)


class Parisian(FakeEngine):
    """Gives the same answer to all."""

    def answers(self, requests: Iterable[Request]) -> Iterator[Answer]:
        for answer in super().answers(requests):
            yield replace(
                answer, completions=tuple(replace(c, text="Paris") for c in answer.completions)
            )


@pytest.mark.slow
@pytest.mark.parametrize("older", [False, True], ids=["", "older store"])
def test_answers_decoded_anew_are_measured_anew(
    plan: Plan, right: pl.DataFrame, *, older: bool
) -> None:
    """Another answer of an engine is no damage: metrics of the first one are stale."""
    if older:
        for manifest in Path("artifacts").rglob("manifest.json"):
            damage.age(manifest)
        assert numbers(plan).equals(right)
    first_file(plan, "generations").unlink()
    metrics = measure_run(plan.run, partial(make_here, engine=Parisian()))
    assert not metrics.equals(right)
    removed = shutil.rmtree("artifacts/matched"), shutil.rmtree("artifacts/metrics")
    assert removed
    assert metrics.equals(numbers(plan))


@pytest.mark.slow
@pytest.mark.parametrize(("stage", "is_table"), [("metrics", False), ("generations", True)])
def test_folder_that_is_a_link_out_of_the_store_is_named_and_computed_anew(
    plan: Plan, right: pl.DataFrame, tmp_path: Path, stage: str, is_table: bool
) -> None:
    """Of an artifact or of a table: its target may change."""
    folder = first_file(plan, stage).parents[0 if is_table else 1]
    shutil.move(folder, tmp_path / "elsewhere")
    folder.symlink_to(tmp_path / "elsewhere")
    earlier = damage.files(tmp_path / "elsewhere")
    assert any(str(folder) in problem for problem in verify(plan.run).problems)
    assert numbers(plan).equals(right)
    assert not folder.is_symlink()
    assert damage.files(tmp_path / "elsewhere") == earlier
    assert verify(plan.run).problems == []


def test_status_and_why_name_what_is_damaged(
    plan: Plan, two_runs: dict[str, list[str]], capsys: pytest.CaptureFixture[str]
) -> None:
    manifest, recipe = (
        first_file(plan, "matched", name) for name in ("manifest.json", "recipe.json")
    )
    manifest.write_text("{")
    assert main(["status", *two_runs["one"]]) == 0
    assert f"damaged: {manifest} is not whole JSON" in capsys.readouterr().out
    recipe.write_text("")
    assert main(["why", recipe.parent.name, recipe.parent.name]) == 2
    assert "recipe.json is empty" in capsys.readouterr().err


def test_trial_that_is_damaged_is_set_aside(plan: Plan, right: pl.DataFrame) -> None:
    answers = plan.branches[0].answers
    path = first_file(plan, "generations")
    quarantine(answers, str(path.relative_to("artifacts")))
    trial = path.parents[1] / "trials" / "generations" / f"{path.stem}.json"
    trial.parent.mkdir(parents=True, exist_ok=True)
    trial.write_text('{"begun": 3, "queue": [], "condemned": ["P30.Q')
    assert numbers(plan).equals(right)


@pytest.mark.slow
@pytest.mark.parametrize("content", ["", "7", '{"rows": 7}'])
def test_settled_size_of_shards_that_is_damaged_changes_no_number(
    plan: Plan, right: pl.DataFrame, content: str
) -> None:
    path = first_file(plan, "prompts")
    quarantine(plan.branches[0].prompts, str(path.relative_to("artifacts")))
    (path.parents[1] / "rows_per_shard.json").write_text(content)
    assert numbers(plan).equals(right)
    assert verify(plan.run).problems == []


@pytest.mark.parametrize("is_open", [False, True])
def test_answers_to_prompts_in_other_shards_are_kept(
    plan: Plan, right: pl.DataFrame, *, is_open: bool
) -> None:
    prompts, branch = first_file(plan, "prompts").parents[1], plan.branches[0]
    if is_open:
        first_file(plan, "generations", "manifest.json").unlink()
    earlier = branch.answers.list_published("generations")
    shutil.rmtree(prompts)
    cluster = replace(plan.run.cluster, rows_per_shard=17)
    (other,) = build_plan(replace(plan.run, cluster=cluster)).branches
    other.step(other.prompts).run()
    with pytest.raises(InputError, match=naming(prompts.name, "cluster.rows_per_shard")):
        numbers(plan)
    verify(plan.run, repair=True)
    assert branch.answers.list_published("generations") == earlier
    shutil.rmtree(prompts)
    metrics = measure_run(plan.run, partial(make_here, engine=Parisian()))
    assert metrics.equals(right)


@pytest.mark.parametrize("lost", ["a shard", "all", "a shard, of open answers"])
def test_prompts_computed_anew_by_another_pyarrow_keep_their_answers(
    plan: Plan, right: pl.DataFrame, monkeypatch: pytest.MonkeyPatch, lost: str
) -> None:
    """Its Parquet may have other bytes, as with a newer zstd: no prompt was asked otherwise."""
    path = first_file(plan, "prompts")
    path.unlink()
    if "answers" in lost:
        first_file(plan, "generations", "manifest.json").unlink()
    if lost == "all":
        for folder in (path.parents[1], "artifacts/matched", "artifacts/metrics"):
            shutil.rmtree(folder)
    damage.pack_otherwise(monkeypatch)
    assert measure_run(plan.run, partial(make_here, engine=Parisian())).equals(right)
    assert verify(plan.run).problems == []


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("hundred", range(1 + -(-MUTATIONS // 100)))
def test_any_mutation_gives_the_right_numbers_or_a_sentence(
    sound: Path,
    two_runs: dict[str, list[str]],
    right: pl.DataFrame,
    hundred: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.CRITICAL)
    seeds = range(8) if hundred == 0 else range(100 * hundred, 100 * hundred + min(100, MUTATIONS))
    for seed in seeds:
        folder = tmp_path / str(seed)
        shutil.copytree(sound, folder)
        monkeypatch.chdir(folder)
        harm = damage.mutated(folder, seed)
        plan = build_plan(load(two_runs["one"]))
        verb = [*VERBS.values()][seed % len(VERBS)]
        assert main(verb) in (0, 2), f"{seed}: {harm}"
        if main(VERBS["export"]) == 0:
            exported = pl.read_parquet("results/one/export/metrics.parquet")
            assert exported.equals(right), f"{seed}: {harm}"
        assert numbers(plan).equals(right), f"{seed}: {harm}"
        shutil.rmtree(folder)
