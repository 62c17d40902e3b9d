"""W&B and Trackio, offline; and no export has a secret of the environment in it."""

import importlib.util
import json
import sqlite3
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from zipfile import ZipFile, is_zipfile

import polars as pl
import pytest

from factsweep.operators.errors import InputError
from factsweep.pipeline.cli import main
from factsweep.pipeline.config.run import Run
from factsweep.pipeline.exports.export import FORMATS, export
from factsweep.pipeline.results.results import load
from tests.messages import naming
from tests.pipeline.here import rewrite

SECRETS = {
    "HF_TOKEN": "hf_QmVsaWV2ZU1lVGhpc0lzTm90T25l",
    "OPENAI_API_KEY": "sk-planted-0123456789abcdefghij",
    "WANDB_API_KEY": "0123456789abcdef0123456789abcdef01234567",
    "AWS_SECRET_ACCESS_KEY": "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY",
}


class Tracker:
    """What is used of a tracker's module."""

    def __init__(self, folder: Path) -> None:
        self.calls: dict[str, Any] = {}
        self.utils = SimpleNamespace(TRACKIO_DIR=folder)
        self.__name__ = "tracker"

    def init(self, **options: Any) -> "Tracker":
        self.calls["init"] = options
        return self

    def log(self, numbers: dict[str, float]) -> None:
        self.calls["log"] = numbers

    def finish(self) -> None:
        self.calls["finish"] = True


@pytest.mark.parametrize(("form", "title"), [("wandb", "Weights & Biases"), ("trackio", "Trackio")])
def test_tracker_that_is_missing_is_named_with_its_extra(
    belief_run: Run,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    form: str,
    title: str,
) -> None:
    monkeypatch.setitem(sys.modules, form, None)
    monkeypatch.delenv("TRACKIO_DIR", raising=False)
    words = ["export", belief_run.name, "--format", form, f"results={belief_run.results}"]
    assert main(words) == 2
    sentence = f"{title} is not installed; install it with: pip install 'factsweep[{form}]'"
    assert sentence in capsys.readouterr().err


def test_tracker_gets_each_number_with_its_interval_counts_and_direction(
    run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    tracker = Tracker(tmp_path)
    monkeypatch.setitem(sys.modules, "trackio", tracker)
    monkeypatch.setenv("TRACKIO_DIR", "")
    export(run.name, run.results, "trackio", str(tmp_path))
    metrics = load(run.folder).metrics.filter(pl.col("slice").is_null()).drop_nulls("value")
    numbers = tracker.calls["log"]
    assert tracker.calls["finish"]
    for row in metrics.iter_rows(named=True):
        variant = (row["variant"] or "").replace("=", " ").replace(",", " ")
        name = "/".join(filter(None, (row["setting"], variant, row["metric"])))
        ends = ("low", "high", "n", "n_failed")
        actual = [numbers[name], *(numbers.get(f"{name}/{end}") for end in ends)]
        assert actual == [row[column] for column in ("value", "ci_low", "ci_high", "n", "n_failed")]
    config = tracker.calls["init"]["config"]
    assert config["engine"] == "fake 1"
    assert config["better.flip_rate"] == "lower"
    assert config["data.sha256"]


def test_tracker_that_fails_is_one_sentence(
    belief_run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    class Refusing(Tracker):
        def init(self, **_options: Any) -> Tracker:
            raise RuntimeError("no login")

    monkeypatch.setitem(sys.modules, "trackio", Refusing(tmp_path))
    monkeypatch.setenv("TRACKIO_DIR", "")
    for folder, words in ((tmp_path, ["no login", "check"]), (tmp_path / "b", ["new process"])):
        with pytest.raises(InputError, match=naming(*words)):
            export(belief_run.name, belief_run.results, "trackio", str(folder))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("form", ["wandb", "trackio"])
def test_tracker_logs_offline_by_its_own_package_without_secrets(
    belief_run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: str
) -> None:
    """With wandb 0.31 and trackio 0.43, where they are installed (docs/exports.md)."""
    if importlib.util.find_spec(form) is None:
        pytest.skip(f"{form} is not installed")
    for name, secret in SECRETS.items():
        monkeypatch.setenv(name, secret)
    monkeypatch.setenv("TRACKIO_DIR", "")
    export(belief_run.name, belief_run.results, form, str(tmp_path / "out"))
    if form == "wandb":
        importlib.import_module(form).teardown()  # it flushes its files when its service ends
    assert_no_secret(tmp_path / "out")
    if form == "trackio":
        (database,) = (tmp_path / "out").glob("*.db")
        with sqlite3.connect(database) as connection:
            ((logged,),) = connection.execute("SELECT metrics FROM metrics").fetchall()
        metrics = load(belief_run.folder).metrics
        main_number = metrics.filter(pl.col("slice").is_null(), metric="acc_at_1")["value"][0]
        assert json.loads(logged)["4-template/acc_at_1"] == main_number
    else:
        (log,) = (tmp_path / "out").glob("wandb/offline-run-*/*.wandb")
        assert b"4-template/acc_at_1" in log.read_bytes()


def assert_no_secret(folder: Path) -> None:
    paths = [path for path in folder.rglob("*") if path.is_file()]
    assert paths
    for path in paths:
        contents = [path.read_bytes()]
        if is_zipfile(path):
            with ZipFile(path) as archive:
                contents += [archive.read(name) for name in archive.namelist()]
        for name, secret in SECRETS.items():
            assert not any(secret.encode() in content for content in contents), (path, name)


@pytest.mark.parametrize("form", FORMATS)
def test_export_has_no_secret_of_the_environment(
    belief_run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: str
) -> None:
    """Not even one that a record has, since it was none when that was written."""
    rewrite(
        Path(belief_run.folder, "run.json"),
        lambda record: record["run"]["model"].update(
            dtype=SECRETS["HF_TOKEN"], revision=SECRETS["WANDB_API_KEY"]
        ),
    )
    for name, secret in SECRETS.items():
        monkeypatch.setenv(name, secret)
    export(belief_run.name, belief_run.results, form, str(tmp_path / "out"))
    assert_no_secret(tmp_path / "out")
