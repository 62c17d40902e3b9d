"""Folders that cannot be written and stores that do not answer are one sentence: code 2 or 75."""

import os
import re
from pathlib import Path

import pytest

from factsweep.pipeline.cli import main
from factsweep.pipeline.stages.plan import Plan
from factsweep.pipeline.storage import object_store as remote
from tests.messages import naming

CLOSED_PORT = "http://127.0.0.1:9"


def refused(capsys: pytest.CaptureFixture[str], *arguments: str, code: int = 2) -> str:
    """What a command says that cannot do its work."""
    assert main(arguments) == code
    err = capsys.readouterr().err
    assert err.startswith("factsweep: ")
    assert err.count("\n") == 1
    return err


@pytest.mark.slow
@pytest.mark.parametrize("place", ["{file}", "{file}/below", "/proc/nope", "/dev/null/below"])
@pytest.mark.parametrize("field", ["results", "artifacts"])
def test_run_place_that_cannot_be_written_is_named(
    finished: Plan,
    small: list[str],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    place: str,
    field: str,
) -> None:
    (tmp_path / "file").write_text("no folder")
    place = place.format(file=tmp_path / "file")
    answers = tmp_path / "answers.parquet"
    finished.branches[0].answers.read_all("generations").write_parquet(answers)
    other = {"artifacts": finished.run.artifacts, "results": finished.run.results, field: place}
    folders = [f"{name}={path}" for name, path in other.items()]
    err = refused(capsys, "score", *small, *folders, f"answers={answers}")
    assert f"factsweep: {place}/" in err
    assert "cannot be written" in err


@pytest.fixture
def no_s3(monkeypatch: pytest.MonkeyPatch) -> None:
    """An S3 whose endpoint refuses every connection; nobody waits between two attempts."""
    monkeypatch.setattr(remote, "ATTEMPTS", 1)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "planted-key-id")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "planted-secret-of-s3")
    monkeypatch.setenv("AWS_ENDPOINT_URL", CLOSED_PORT)


@pytest.mark.usefixtures("no_s3")
@pytest.mark.parametrize(
    "arguments",
    [["status", "{small}", "artifacts=s3://sweeps/a"], ["report", "results=s3://sweeps/r"]],
)
def test_store_that_does_not_answer_is_named(
    small: list[str], capsys: pytest.CaptureFixture[str], arguments: list[str]
) -> None:
    options = [option for part in arguments for option in (small if part == "{small}" else [part])]
    err = refused(capsys, *options, code=75)
    assert "sweeps" in err
    assert "network" in err
    assert os.environ["AWS_SECRET_ACCESS_KEY"] not in err


SERVED = ["plan", "model=endpoint", "model.id=x"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["run", "artifacts=s3://me:hunter22@[x"], ("artifacts=s3://[x", "host")),
        (["plan", "results=s3://[::1"], ("results=s3://[::1", "host")),
        (["report", "results=s3://[x"], ("s3://[x", "host")),
        (["artifacts", "artifacts=gs:///x"], ("gs://", "bucket")),
        (["artifacts", "artifacts=s3://b/x?endpoint_override=[x"], ("endpoint_override", "host")),
        ([*SERVED, "model.endpoint=http://[::1"], ("model.endpoint", "host")),
        ([*SERVED, "model.endpoint=http://h:99999/v1"], ("model.endpoint", "port")),
        (["run", "cluster.address=[x:1"], ("cluster.address", "host")),
        (["plan", "benchmark.path=s3://b/hunter22.csv"], ("benchmark.path", "copy")),
        (["nightly", "demo", "--notify", "http://[::1/hunter22"], ("--notify", "host")),
        (["nightly", "demo", "--notify", "ftp://x/hunter22"], ("--notify", "FACTSWEEP_NOTIFY_URL")),
        (["nightly", "demo", "--notify", "https://"], ("--notify", "FACTSWEEP_NOTIFY_URL")),
        (["nightly", "demo", "--notify", "http://h:hunter22/x"], ("--notify", "port")),
    ],
)
def test_url_that_is_malformed_is_named_without_secrets(
    capsys: pytest.CaptureFixture[str], arguments: list[str], words: tuple[str, ...]
) -> None:
    err = refused(capsys, *arguments)
    assert re.search(naming(*words), err)
    assert "hunter22" not in err


@pytest.mark.parametrize("name", ["https_proxy", "HF_ENDPOINT", "AWS_ENDPOINT_URL"])
def test_url_in_a_variable_that_is_malformed_is_named(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(name, "http://me:hunter22@[x")
    err = refused(capsys, "catalog", "list")
    assert f"${name}" in err
    assert "hunter22" not in err
    monkeypatch.setenv(name, "proxy.example.org:3128")
    assert main(["catalog", "list"]) == 0
