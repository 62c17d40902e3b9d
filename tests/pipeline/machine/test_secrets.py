"""Secrets: planted wherever one may be given, and looked for in everything that is written."""

import json
import logging
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from factsweep.pipeline.cli import main
from factsweep.pipeline.config.run import Run
from factsweep.pipeline.machine import secrets

ROOT = Path(__file__).parents[3]
Settings = Callable[..., Run]
IN_ENVIRONMENT = "correct-horse-battery-staple"
IN_FILE = "a-token-that-a-pod-mounts"
OF_THE_HUB = "hf_plantedPlantedPlantedPlanted"
PASSWORD = "wJalr-planted-secret"
IN_PROFILE = "a-key-of-a-profile"
PLANTED = [each.encode() for each in (IN_ENVIRONMENT, IN_FILE, IN_PROFILE, OF_THE_HUB, PASSWORD)]


def written(folder: Path) -> Iterator[tuple[Path, bytes]]:
    """Every file below a folder, sockets and links left out."""
    for path in folder.rglob("*"):
        if path.is_file() and not path.is_symlink():
            yield path, path.read_bytes()


def leaks(folder: Path) -> list[tuple[str, bytes]]:
    files = [(str(path), content) for path, content in written(folder)]
    return [(path, secret) for path, content in files for secret in PLANTED if secret in content]


@pytest.fixture
def planted(tmp_path: Path) -> dict[str, str]:
    """An environment with secrets in it."""
    mounted = tmp_path / "mounted"
    mounted.mkdir()
    (mounted / "token").write_text(f"{IN_FILE}\n")
    profile = f"[default]\naws_access_key_id = id\naws_secret_access_key = {IN_PROFILE}\n"
    (mounted / "aws").write_text(profile)
    return {
        "HF_TOKEN_PATH": str(mounted / "token"),
        "AWS_SHARED_CREDENTIALS_FILE": str(mounted / "aws"),
        "AWS_SECRET_ACCESS_KEY": IN_ENVIRONMENT,
        "HF_TOKEN": OF_THE_HUB,
    }


@pytest.mark.slow
def test_run_writes_no_secret_anywhere(
    small: list[str], planted: dict[str, str], tmp_path: Path
) -> None:
    """Two runs in processes of their own: an engine that quotes a secret and dies, then a real one.

    Artifacts, results, rates, printed texts and Ray's session logs are searched.
    """
    ray = Path(tempfile.mkdtemp(prefix="fs", dir="/tmp"))  # Ray's sockets need a short path
    broken = json.dumps({"broken": "refused: s3://key:$AWS_SECRET_ACCESS_KEY@bucket $HF_TOKEN"})
    folders = [f"artifacts={tmp_path}/out/artifacts", f"results={tmp_path}/out/results"]
    quick = ["decoding.samples.n_prompts=0", "decoding.canary_prompts=0", "cluster.max_deaths=1"]
    command = [sys.executable, "-m", "factsweep.pipeline.cli", "run", *small, *folders, *quick]
    environment = {**os.environ, **planted, "RAY_TMPDIR": str(ray), "PYTHONPATH": str(ROOT)}
    try:
        output = b""
        for wish, code in ((broken, 1), ("{}", 0)):
            variables = {**environment, "FACTSWEEP_FAKE_ENGINE": wish}
            process = subprocess.run(
                command, check=False, env=variables, cwd=ROOT, capture_output=True
            )
            assert process.returncode == code, process.stderr.decode()
            output += process.stdout + process.stderr
        assert b"refused: s3://bucket [redacted]" in output
        assert not [secret for secret in PLANTED if secret in output]
        assert len(list((tmp_path / "out").rglob("*.json"))) > 10
        assert leaks(tmp_path / "out") == []
        logs = b"".join(content for path, content in written(ray) if "worker" in path.name)
        assert b"refused: s3://bucket [redacted]" in logs
        assert leaks(ray) == []
    finally:
        shutil.rmtree(ray)


def test_cli_errors_hold_no_secret(
    small: list[str],
    planted: dict[str, str],
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    for name, value in planted.items():
        monkeypatch.setenv(name, value)
    for overrides in (
        [f"artifacts='nowhere://me:{PASSWORD}@bucket'"],
        [f"no_such_field={IN_ENVIRONMENT}"],
        [f"model.dtype={OF_THE_HUB}", "model.max_model_len=x"],
    ):
        assert main(["run", *small, *overrides]) == 2
        output = capfd.readouterr().err
        assert output.startswith("factsweep: ")
        assert not [secret for secret in PLANTED if secret.decode() in output]


def test_hub_that_quotes_the_token_is_not_repeated(
    small: list[str],
    planted: dict[str, str],
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """A stand-in for the hub that raises an error with secrets in it."""
    for name, value in planted.items():
        monkeypatch.setenv(name, value)

    def refuses(*_: object, **__: object) -> None:
        raise OSError(
            f"401 for https://cdn/x?X-Amz-Signature={PASSWORD}&user={IN_FILE} {OF_THE_HUB}"
        )

    monkeypatch.setattr("huggingface_hub.HfApi.model_info", refuses)
    assert main(["run", *small, "model.source=hub", "model.id=org/none"]) == 2
    output = capfd.readouterr().err
    assert "the hub did not give org/none" in output
    assert not [secret for secret in PLANTED if secret.decode() in output]


def test_unforeseen_error_is_told_without_secrets(
    planted: dict[str, str], monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", IN_ENVIRONMENT)

    def fails(_: object) -> None:
        raise RuntimeError(f"key {IN_ENVIRONMENT}")

    monkeypatch.setattr("factsweep.pipeline.config.settings.load", fails)
    assert main(["plan"]) == 1
    output = capfd.readouterr().err
    assert "RuntimeError: key [redacted]" in output
    assert IN_ENVIRONMENT not in output


def test_known_secrets_are_those_of_the_environment_and_of_mounted_files(
    planted: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in planted.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("OPENAI_API_KEY", "")
    assert {IN_ENVIRONMENT, IN_FILE, IN_PROFILE, OF_THE_HUB} <= secrets.collect_secrets()
    assert "" not in secrets.collect_secrets()


def test_known_secrets_are_those_of_variables_with_such_names(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    secret = ("DB_PASS", "MYSQL_PWD", "SENTRY_DSN", "RSA_KEY", "FACTSWEEP_NOTIFY_URL")
    for name in (*secret, "PWD", "OLDPWD", "KEYBOARD", "COMPASS", "SITE_URL"):
        monkeypatch.setenv(name, f"the value of {name}")
    names = {
        value.rpartition(" ")[2]
        for value in secrets.collect_secrets()
        if value.startswith("the value of ")
    }
    assert names == set(secret)


def test_secret_of_several_lines_is_hidden_before_a_log_line_is_indented(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    key = "-----BEGIN KEY-----\nwJalrPlanted\n-----END KEY-----"
    monkeypatch.setenv("SOME_SECRET_KEY", key)
    record = logging.makeLogRecord({"msg": "it said %s", "args": (key,)})
    assert "wJalrPlanted" not in secrets.Formatter().format(record)


def test_known_without_a_home_is_what_the_environment_has(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HOME", "~nobody-of-this-name/cache")
    monkeypatch.setenv("PLANTED_TOKEN", IN_ENVIRONMENT)
    monkeypatch.delenv("HF_TOKEN_PATH", raising=False)
    assert IN_ENVIRONMENT in secrets.collect_secrets()


def test_code_loads_no_pickle_and_unpacks_no_archive() -> None:
    """What ruff does not know; none of its S rules is silenced but for a command run again."""
    forbidden = re.compile(
        r"\bpickle\b|\bshelve\b|allow_pickle|torch\.load|np\.load|joblib|tarfile|zipfile"
        r"|unpack_archive|extractall|yaml\.(?:unsafe_|full_)?load\(|noqa: ?S(?!606)"
    )
    sources = [*(ROOT / "pipeline").rglob("*.py"), *(ROOT / "operators").rglob("*.py")]
    assert len(sources) > 100
    # Inspect's logs are archives, whose members are read as text and never become files.
    inspect_logs = ["pipeline/exports/inspect_log.py", "pipeline/inputs/evaluation_logs.py"]
    matching_paths = [path for path in sources if forbidden.search(path.read_text())]
    assert sorted(str(path.relative_to(ROOT)) for path in matching_paths) == inspect_logs
    assert [
        path for path in matching_paths if re.search(r"\.extract|unpack", path.read_text())
    ] == []


def test_no_file_of_conf_trusts_code_from_the_hub() -> None:
    files = [*(ROOT / "conf").rglob("*.yaml")]
    assert len(files) > 30
    trusting = re.compile(r"^ *trust_remote_code: +(?!false\b| )", re.MULTILINE)
    assert [path.name for path in files if trusting.search(path.read_text())] == []
