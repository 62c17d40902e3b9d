"""What a store holds, what for, and what can go; in a folder and on a real S3 protocol."""

import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import boto3
import pytest

from factsweep.operators.errors import ArtifactHeldError, DamagedFileError, InputError
from factsweep.pipeline.cli import main
from factsweep.pipeline.config.run import Run
from factsweep.pipeline.config.settings import load
from factsweep.pipeline.results import baseline, report
from factsweep.pipeline.runs.forecast import forecast, lines
from factsweep.pipeline.runs.inventory import (
    begin_use,
    end_use,
    find_needs,
    find_unneeded,
    forget,
    list_artifacts,
    note_use,
    remove_artifacts,
)
from factsweep.pipeline.runs.verify import verify_store
from factsweep.pipeline.stages.plan import Plan, build_plan
from factsweep.pipeline.storage import lease
from factsweep.pipeline.storage.artifact import Artifact
from factsweep.pipeline.storage.lookup import Recipes, explain_difference
from tests.builders import results_of
from tests.messages import naming
from tests.pipeline.damage import age
from tests.s3_server import serving

pytestmark = pytest.mark.usefixtures("plain")
Settings = Callable[..., Run]
Compute = Callable[..., Plan]
OTHER = ("seed=1", "run_name=other")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with serving(tmp_path_factory.mktemp("s3") / "requests.log") as server:
        yield server.url


BOTH = pytest.mark.parametrize(
    "root", ["folder", pytest.param("s3", marks=pytest.mark.slow)], indirect=True
)


@pytest.fixture(scope="module")
def _both_once(
    _finished_once: Path,
    small: list[str],
    compute_here: Compute,
    tmp_path_factory: pytest.TempPathFactory,
) -> Path:
    folder = tmp_path_factory.mktemp("both") / "artifacts"
    shutil.copytree(_finished_once, folder)
    compute_here(load([*small, f"artifacts={folder}", *OTHER]))
    return folder


@pytest.fixture
def two_plans(_both_once: Path, small_settings: Settings, tmp_path: Path) -> tuple[Plan, Plan]:
    """The small run and one of another seed when both are done, in a copy."""
    shutil.copytree(_both_once, tmp_path / "artifacts", dirs_exist_ok=True)
    return build_plan(small_settings()), build_plan(small_settings(*OTHER))


@pytest.fixture
def root(
    request: pytest.FixtureRequest,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    _finished_once: Path,
) -> str:
    """Where artifacts are: a folder, in which those of the small run are, or an empty bucket."""
    if getattr(request, "param", "folder") == "folder":
        shutil.copytree(_finished_once, tmp_path / "artifacts", dirs_exist_ok=True)
        return str(tmp_path / "artifacts")
    url = request.getfixturevalue("server")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "key")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "no-secret-of-ours")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    monkeypatch.setenv("AWS_ENDPOINT_URL", url)
    name = f"b{abs(hash(tmp_path)) % 10**9}"
    boto3.client("s3", endpoint_url=url).create_bucket(Bucket=name)
    return f"s3://{name}/sweeps"


@pytest.fixture
def make_run(root: str, small_settings: Settings, compute_here: Compute) -> Callable[..., Plan]:
    """Makes a run with results, as `run` notes it."""

    def make_run(*overrides: str) -> Plan:
        plan = begun(small_settings(f"artifacts={root}", *overrides))
        compute_here(plan.run)
        report.write(plan, {"total": 1.0})
        note_use(plan.store, end_use(begin_use(plan)))
        return plan

    return make_run


def begun(run: Run) -> Plan:
    plan = build_plan(run)
    note_use(plan.store, begin_use(plan))
    return plan


def of(plan: Plan) -> set[str]:
    return {step.artifact.folder for step in plan.steps}


def idle(plan: Plan, *, unfinished: bool = False) -> set[str]:
    """What of a store nothing needs."""
    items = list_artifacts(plan.store, plan.run.results)
    return {item.folder for item in find_unneeded(items, unfinished=unfinished)}


@pytest.mark.slow
@pytest.mark.usefixtures("two_plans")
def test_inventory_names_runs_sizes_and_times(make_run: Compute) -> None:
    first, two = make_run(), make_run(*OTHER)
    items = {item.folder: item for item in list_artifacts(first.store, first.run.results)}
    assert items.keys() == of(first) | of(two)
    shared = items[first.branches[0].facts.folder]
    assert {need.why for need in shared.needs} == {f"run {first.run.name}", "run other"}
    for folder, item in items.items():
        assert item.bytes == sum(first.store.sizes(folder).values())
        assert item.is_complete
        assert item.used_at >= item.written
    assert idle(first) == set()


@pytest.mark.slow
@BOTH
@pytest.mark.usefixtures("two_plans")
def test_removed_results_free_what_no_other_run_needs(make_run: Compute) -> None:
    first, two = make_run(), make_run(*OTHER)
    shutil.rmtree(results_of(two))
    assert idle(first) == of(two) - of(first)
    assert idle(first) != set()
    folders = [
        *remove_artifacts(first.store, sorted(idle(first)), first.run.results, unfinished=False)
    ]
    assert set(folders) == of(two) - of(first)
    assert first.is_complete()
    assert not two.branches[0].metrics.is_complete()
    for folder in folders:
        assert [name.partition("/")[0] for name in first.store.files(folder)] == ["leases"]
    assert {item.folder for item in list_artifacts(first.store, first.run.results)} == of(first)


def test_pruned_artifacts_are_made_anew(make_run: Compute, compute_here: Compute) -> None:
    plan = make_run()
    earlier = plan.branches[0].metrics.read_all("metrics")
    shutil.rmtree(results_of(plan))
    [*remove_artifacts(plan.store, sorted(of(plan)), plan.run.results, unfinished=False)]
    assert not build_plan(plan.run).is_complete()
    new_plan = compute_here(plan.run)
    assert new_plan.branches[0].metrics.read_all("metrics").equals(earlier)


def test_run_that_is_not_done_keeps_all_that_it_plans(
    make_run: Compute, root: str, small_settings: Settings
) -> None:
    plan = make_run()
    shutil.rmtree(results_of(plan))
    assert idle(plan) == of(plan)
    begun(small_settings(f"artifacts={root}", "run_name=again"))
    assert idle(plan) == set()
    reasons = {
        n.why
        for needed in find_needs(plan.store, of(plan), plan.run.results).values()
        for n in needed
    }
    assert len(reasons) == 1
    assert reasons.pop().startswith("run again, begun 20")
    forget(plan.store, "again")
    assert idle(plan) == of(plan)


def test_results_that_cannot_be_seen_keep_their_artifacts(make_run: Compute) -> None:
    plan = make_run()
    noted = end_use(begin_use(plan))
    shutil.rmtree(results_of(plan))
    plan.store.drop(noted.name)
    elsewhere = replace(noted, host="another", results="/home/her/results")
    note_use(plan.store, elsewhere)
    assert idle(plan) == set()
    forget(plan.store, plan.run.name)
    assert idle(plan) == of(plan)


def test_baseline_keeps_what_its_metrics_were_made_of(make_run: Compute) -> None:
    plan = make_run()
    baseline.accept("demo", plan.run.name, plan.run.results)
    shutil.rmtree(results_of(plan))
    assert idle(plan) == set()
    all_needs = find_needs(plan.store, of(plan), plan.run.results)
    assert {need.why for needed in all_needs.values() for need in needed} == {"baseline of demo"}


def test_unfinished_artifact_of_nobody_keeps_its_inputs(make_run: Compute) -> None:
    plan = make_run()
    shutil.rmtree(results_of(plan))
    answers = plan.branches[0].answers
    plan.store.drop(f"{answers.folder}/manifest.json")
    kept_folders = {answers.folder, *(artifact.folder for artifact in _sources(plan))}
    assert idle(plan) == of(plan) - kept_folders
    assert idle(plan, unfinished=True) == of(plan)


@pytest.mark.parametrize("is_older", [False, True])
def test_baseline_with_a_damaged_recipe_keeps_what_its_manifest_names(
    make_run: Compute, tmp_path: Path, *, is_older: bool
) -> None:
    plan = make_run()
    baseline.accept("demo", plan.run.name, plan.run.results)
    shutil.rmtree(results_of(plan))
    artifact = plan.branches[0].answers if is_older else plan.branches[0].metrics
    plan.store.put(f"{artifact.folder}/recipe.json", b"damaged")
    if is_older:
        name = f"{artifact.folder}/manifest.json"
        (copy := tmp_path / "manifest.json").write_bytes(plan.store.get(name))
        age(copy)
        plan.store.put(name, copy.read_bytes())
    assert idle(plan) == set()


@pytest.mark.parametrize("harm", ["damaged", "gone"])
def test_recipe_of_what_is_unfinished_stops_prune_until_it_is_written_anew(
    make_run: Compute, harm: str
) -> None:
    plan = make_run()
    shutil.rmtree(results_of(plan))
    answers = plan.branches[0].answers
    plan.store.drop(f"{answers.folder}/manifest.json")
    if harm == "gone":
        plan.store.drop(f"{answers.folder}/recipe.json")
    else:
        plan.store.put(f"{answers.folder}/recipe.json", b"damaged")
    message = f"{answers.folder}/recipe.json is {harm}, so that its inputs, which must be kept"
    with pytest.raises(DamagedFileError, match=message):
        idle(plan)
    with pytest.raises(DamagedFileError, match=message):
        [*remove_artifacts(plan.store, sorted(of(plan)), plan.run.results, unfinished=False)]
    assert plan.branches[0].prompts.is_complete()
    problems = verify_store(plan.run.artifacts, repair=True).problems
    assert len(problems) == (harm == "damaged")
    answers.begin()
    assert not {answers.folder, *(artifact.folder for artifact in _sources(plan))} & idle(plan)


def _sources(plan: Plan) -> list[Artifact]:
    branch = plan.branches[0]
    return [branch.facts, branch.prompts, branch.admitted]


def test_results_elsewhere_are_found_by_the_note(make_run: Compute, tmp_path: Path) -> None:
    plan = make_run(f"results={tmp_path}/elsewhere")
    items = list_artifacts(plan.store, str(tmp_path / "nowhere"))
    assert find_unneeded(items, unfinished=False) == []


def test_prune_refuses_a_store_that_is_being_written(
    make_run: Compute, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = make_run()
    shutil.rmtree(results_of(plan))
    monkeypatch.setattr(lease, "RENEW_S", 0.2)
    with (
        lease.hold_leases(plan.store, ["metrics/0123456789abcdef"], wait=False),
        pytest.raises(ArtifactHeldError, match=naming("being", "written")),
    ):
        [*remove_artifacts(plan.store, sorted(of(plan)), plan.run.results, unfinished=False)]
    assert plan.is_complete()
    assert [*remove_artifacts(plan.store, sorted(of(plan)), plan.run.results, unfinished=False)]


def test_prune_leaves_what_is_needed_by_now(make_run: Compute) -> None:
    plan = make_run()
    assert [
        *remove_artifacts(plan.store, sorted(of(plan)), plan.run.results, unfinished=False)
    ] == []
    assert plan.is_complete()


def test_forget_a_run_with_results_is_refused(make_run: Compute) -> None:
    plan = make_run()
    with pytest.raises(InputError, match=naming("results", "remove")):
        forget(plan.store, plan.run.name)
    with pytest.raises(InputError, match=naming("run nope")):
        forget(plan.store, "nope")


@BOTH
def test_commands_list_then_remove(
    make_run: Compute, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    plan = make_run()
    overrides = [f"artifacts={plan.run.artifacts}", f"results={plan.run.results}"]
    assert main(["artifacts", *overrides]) == 0
    out = capsys.readouterr().out
    assert all(len(line) <= 80 for line in out.splitlines() if line.startswith("|"))
    assert f"{len(of(plan))} artifacts in " in out
    assert plan.branches[0].answers.folder in out.replace("\n", "")
    assert main(["prune", *overrides]) == 0
    assert "nothing to remove" in capsys.readouterr().out
    shutil.rmtree(results_of(plan))
    assert main(["artifacts", *overrides]) == 0
    assert f": factsweep prune {' '.join(overrides)}\n" in capsys.readouterr().out
    assert main(["prune", *overrides]) == 0
    assert f"would remove {len(of(plan))} artifacts" in capsys.readouterr().out
    assert plan.is_complete()
    assert main(["prune", "--yes", *overrides]) == 0
    assert f"removed {len(of(plan))} artifacts" in capsys.readouterr().out
    assert not plan.is_complete()
    assert main(["artifacts", *overrides]) == 0
    assert capsys.readouterr().out.startswith("0 artifacts in ")


def test_prune_says_what_no_known_run_has_begun(
    make_run: Compute, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = make_run()
    shutil.rmtree(results_of(plan))
    facts = plan.branches[0].facts
    for folder in of(plan) - {facts.folder}:
        plan.store.drop(f"{folder}/manifest.json")
    overrides = [f"artifacts={plan.run.artifacts}", f"results={plan.run.results}"]
    assert main(["prune", *overrides]) == 0
    out = capsys.readouterr().out
    assert out.startswith(f"nothing to remove: all of {len(of(plan))} artifacts are needed, ")
    assert f"; --unfinished removes {len(of(plan))} artifacts begun by no known run, " in out


def test_verify_of_a_pruned_store_finds_nothing_wrong(
    make_run: Compute, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = make_run()
    shutil.rmtree(results_of(plan))
    [*remove_artifacts(plan.store, sorted(of(plan)), plan.run.results, unfinished=False)]
    assert main(["verify", "--all", f"artifacts={plan.run.artifacts}"]) == 0
    assert capsys.readouterr().out == "0 shards read, 0 problems\n"


def test_causes_go_down_to_the_field(two_plans: tuple[Plan, Plan]) -> None:
    old, right = (plan.branches[0].metrics.recipe for plan in two_plans)
    recipes = Recipes(two_plans[0].store)
    fields = explain_difference(old, right, recipes)
    assert "fields.seed: 0 → 1" in fields
    assert "prompts: fields.seed: 0 → 1" in fields
    assert not any("inputs." in line for line in fields)
    assert explain_difference(old, old, recipes) == []


def test_causes_of_a_lost_recipe_are_its_fingerprints(two_plans: tuple[Plan, Plan]) -> None:
    store = two_plans[1].store
    shutil.rmtree(store.where(two_plans[1].branches[0].admitted.folder))
    old, right = (plan.branches[0].answers.recipe for plan in two_plans)
    fields = explain_difference(old, right, Recipes(store))
    names = [plan.branches[0].admitted.fingerprint for plan in two_plans]
    assert f"inputs.admitted: {names[0]} → {names[1]}" in fields


def test_plan_says_why_answers_are_decoded_anew(
    finished: Plan, small_settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    output = "\n".join(lines(*forecast(finished.run)))
    assert "decoded anew" not in output
    with monkeypatch.context() as patch:
        software = {"engine": "fake 2"}
        patch.setattr("factsweep.pipeline.stages.question.software", lambda *_: software)
        output = "\n".join(lines(*forecast(small_settings())))
    (reason,) = (line for line in output.splitlines() if "decoded anew because: " in line)
    assert "software.engine: fake 1 → fake 2" in reason
    output = "\n".join(lines(*forecast(small_settings("decoding.stop=[x]"))))
    assert "stop: " in output


def test_note_that_was_cut_stops_prune(make_run: Compute) -> None:
    plan = make_run()
    (name,) = plan.store.names("uses")
    plan.store.put(f"uses/{name}", plan.store.get(f"uses/{name}")[:-1])
    with pytest.raises(InputError, match=naming(name, "whole")):
        list_artifacts(plan.store, plan.run.results)
