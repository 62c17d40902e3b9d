"""baseline: accepted by name only, whole, and never forgotten."""

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from factsweep.operators.errors import InputError
from factsweep.pipeline.cli import main
from factsweep.pipeline.config.run import Run
from factsweep.pipeline.results import baseline, report
from factsweep.pipeline.stages.plan import Plan
from tests.messages import naming

Settings = Callable[..., Run]


@pytest.fixture
def results(finished: Plan) -> str:
    """The results of a finished run, called fake-tiny-myriadlama-mini-4-template."""
    report.write(finished, {"total": 0})
    return finished.run.results


RUN = "fake-tiny-myriadlama-mini-4-template"


def test_accept_records_run_user_commit_and_artifacts(results: str, finished: Plan) -> None:
    accepted = baseline.accept("demo", RUN, results)
    assert accepted.runs == {"tiny on myriadlama-mini": RUN}
    assert list(accepted.metrics.values()) == [finished.branches[0].metrics.folder]
    record = json.loads(Path(results, RUN, "run.json").read_text())
    assert accepted.commit == record["commit"]
    assert accepted.accepted_by
    assert baseline.history("demo", results) == [accepted]


def test_accept_keeps_those_before(results: str) -> None:
    first = baseline.accept("demo", RUN, results)
    shutil.copytree(f"{results}/{RUN}", f"{results}/second")
    second = baseline.accept("demo", "second", results)
    assert baseline.history("demo", results) == [first, second]
    assert baseline.history("other", results) == []


def test_accept_artifact_that_is_gone_or_not_complete_is_refused(
    results: str, finished: Plan
) -> None:
    branch = finished.branches[0]
    Path(finished.run.artifacts, branch.answers.folder, "manifest.json").unlink()
    with pytest.raises(InputError, match=naming(branch.answers.folder)):
        baseline.accept("demo", RUN, results)
    shutil.rmtree(Path(finished.run.artifacts, branch.facts.folder))
    with pytest.raises(InputError, match=naming(branch.facts.folder)):
        baseline.accept("demo", RUN, results)
    assert baseline.history("demo", results) == []


def test_accept_night_that_did_not_end_or_is_not_there_is_refused(results: str) -> None:
    shutil.move(f"{results}/{RUN}", f"{results}/demo-2026-11-21/{RUN}")
    with pytest.raises(InputError, match=naming("demo-2026-11-21", "verdict.json")):
        baseline.accept("demo", "demo-2026-11-21", results)
    with pytest.raises(InputError, match=naming("nothing")):
        baseline.accept("demo", "nothing", results)


def test_settings_of_a_run_that_was_run_again_otherwise_are_refused(results: str) -> None:
    accepted = baseline.accept("demo", RUN, results)
    assert list(baseline.settings(accepted, RUN, results)) == ["4-template"]
    other = dict.fromkeys(accepted.metrics, "metrics/0123456789abcdef")
    sentence = naming("is not what", "was run again", "run it as it was", "accept another run")
    with pytest.raises(InputError, match=sentence):
        baseline.settings(replace(accepted, metrics=other), RUN, results)


def test_baseline_command_accepts_and_shows(
    results: str, capsys: pytest.CaptureFixture[str]
) -> None:
    place = [f"results={results}"]
    assert main(["baseline", "show", "demo", *place]) == 2
    assert "factsweep baseline accept demo RUN" in capsys.readouterr().err
    for _ in range(2):
        assert main(["baseline", "accept", "demo", RUN, *place]) == 0
    capsys.readouterr()
    assert main(["baseline", "show", "demo", *place]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [RUN in line for line in lines] == [True, True]
    assert main(["baseline", "accept", "dem0", RUN, *place]) == 2
    assert "there is no nightly 'dem0'" in capsys.readouterr().err
    assert not Path(results, "baselines/dem0.json").exists()


def test_baseline_accept_takes_the_name_of_a_night_alone(
    results: str, capsys: pytest.CaptureFixture[str]
) -> None:
    place = [f"results={results}"]
    night = Path(results, "my night-2026-11-21")  # its file may be anywhere
    shutil.move(f"{results}/{RUN}", night / RUN)
    (night / "verdict.json").write_text('{"outcome": "not enough evidence"}')
    for words in ([night.name], ["my night", night.name]):
        assert main(["baseline", "accept", *words, *place]) == 0
    assert main(["baseline", "show", "my night", *place]) == 0
    assert [a.run for a in baseline.history("my night", results)] == [night.name] * 2
    capsys.readouterr()
    for words in ([], ["my night"], ["a", "b", "c"]):
        assert main(["baseline", "accept", *words, *place]) == 2
        assert "a night, such as demo-2026-11-21, or" in capsys.readouterr().err
