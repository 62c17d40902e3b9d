"""One fault at a time, and what must come of it. The engine is fake: see sweep.py."""

import re
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import polars as pl
import pytest

from tests.faults.sweep import CHUNK, SMALL, TWO_ENGINES, Sweep, kill
from tests.messages import naming

pytestmark = [pytest.mark.faults, pytest.mark.timeout(900)]


def test_prompt_that_kills_engines_becomes_an_error_row(
    calm: Sweep, running_ray: str, tmp_path: Path
) -> None:
    """With too many of them the run fails, and there are results nevertheless."""
    poison = calm.answered()[37]
    none, half = (f"decoding.max_failed_share={share}" for share in (0.0, 0.5))
    overrides = (*SMALL, running_ray, "cluster.max_deaths=2")
    outcome = Sweep(tmp_path, (*overrides, none), poison=poison).finish()
    assert outcome.returncode == 1
    assert "1 of" in outcome.stderr
    outcome = Sweep(tmp_path, (*overrides, half), poison=poison).finish()
    assert outcome.returncode == 0, outcome.stderr
    errors = pl.concat(map(pl.read_parquet, tmp_path.glob("artifacts/generations/*/errors/*")))
    assert errors.select("prompt_id", "reason").rows() == [(poison, "engine_died")]
    metrics = pl.read_parquet(tmp_path / "results/sweep/metrics.parquet")
    row = metrics.filter(pl.col("slice").is_null(), metric="acc_at_1").row(0, named=True)
    assert (row["n"], row["n_failed"]) == (len(calm.answered()) - 1, 1)


def test_engine_that_never_loads_ends_the_run(running_ray: str, tmp_path: Path) -> None:
    outcome = Sweep(tmp_path, (*SMALL, running_ray), broken="no kernel image").finish()
    assert outcome.returncode == 1
    pattern = r"nobody does not load: 3 engines in a row died, the last of RuntimeError: no "
    assert re.search(pattern, outcome.stderr), outcome.stderr
    ends = [line for line in outcome.stderr.splitlines() if line.startswith("  its log: ")]
    assert ends[-1] == "  its log: RuntimeError: no kernel image"


def test_engine_that_still_loads_holds_no_shard_that_another_could_answer(
    running_ray: str, tmp_path: Path
) -> None:
    overrides = (*SMALL, running_ray, *TWO_ENGINES, "cluster.rows_per_shard=50")
    outcome = Sweep(tmp_path, overrides, first=str(tmp_path / "first"), loads_s=3600).finish()
    assert outcome.returncode == 0, outcome.stderr
    assert "600/600 answers" in outcome.stderr


@pytest.mark.chaos
def test_engine_that_dies_of_every_prompt_ends_the_run_and_a_repaired_one_resumes(
    calm: Sweep, tmp_path: Path
) -> None:
    outcome = Sweep(tmp_path, SMALL, poison="*").finish()
    assert outcome.returncode == 1
    assert "nobody answers nothing: " in outcome.stderr
    assert "(raylet)" not in outcome.stderr
    assert "Traceback" not in outcome.stderr
    assert len(calm.answered()) > len((tmp_path / "answered.log").read_text().splitlines()) <= 6
    repaired = Sweep(tmp_path, SMALL)
    assert repaired.finish().returncode == 0
    assert list(repaired.tables().values()) == list(calm.tables().values())


def test_ray_that_dies_ends_the_run_in_one_sentence(tmp_path: Path) -> None:
    sweep = Sweep(tmp_path, SMALL, seconds_per_answer=0.1).start()
    sweep.until(sweep.answered)
    kill(sweep.raylets()[0])
    outcome = sweep.finish()
    assert outcome.returncode == 1
    assert "Traceback" not in outcome.stderr
    (sentence,) = (line for line in outcome.stderr.splitlines() if line.startswith("factsweep: "))
    assert sentence.startswith("factsweep: Ray itself failed during the run (")


def test_second_driver_is_told_who_holds_the_artifact_and_a_polite_stop_of_the_first_loses_nothing(
    calm: Sweep, running_ray: str, tmp_path: Path
) -> None:
    first = Sweep(tmp_path, (*SMALL, running_ray), seconds_per_answer=0.2).start()
    first.until(lambda: len(first.answered()) >= CHUNK)
    second = Sweep(tmp_path, SMALL).finish()
    assert second.returncode == 2
    assert first.process is not None
    assert f"process {first.process.pid}" in second.stderr
    first.process.send_signal(signal.SIGTERM)
    assert first.finish().returncode == 130
    assert first.finish().returncode == 0
    assert sorted(first.answered()) == sorted(calm.answered())


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 1 MiB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(folder)]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("a small file system cannot be mounted here: that takes root")
    yield folder
    subprocess.run(["umount", "--lazy", str(folder)], check=True)


def test_full_disk_ends_the_run_and_room_lets_it_go_on(
    calm: Sweep, running_ray: str, small_disk: Path
) -> None:
    ballast = small_disk / "ballast"
    sweep = Sweep(small_disk, (*SMALL, running_ray), seconds_per_answer=0.01).start()
    sweep.until(sweep.chunks)
    with pytest.raises(OSError, match=naming("space", "left")):
        ballast.write_bytes(bytes(2**20))
    outcome = sweep.finish()
    assert outcome.returncode == 2
    assert re.search(naming("No space left on device", "make room"), outcome.stderr)
    ballast.unlink()
    assert sweep.finish().returncode == 0
    assert sweep.verify().returncode == 0
    assert len(sweep.answered()) <= len(calm.answered()) + 2 * CHUNK + 2


def test_second_model_takes_what_the_first_has_published_and_ends_before_it(
    running_ray: str, tmp_path: Path
) -> None:
    overrides, store = (*SMALL, running_ray), str(tmp_path / "artifacts")
    first = Sweep(tmp_path / "first", overrides, store, seconds_per_answer=1.0).start()
    first.until(lambda: first.names("prompts", "leases"))  # Ray has yet to start, and to write them
    second = Sweep(tmp_path / "second", [*overrides, "model.id=another"], store)
    outcome = second.finish()
    assert outcome.returncode == 0, outcome.stderr
    assert first.process is not None
    assert first.process.poll() is None
    assert len(first.names("prompts", "*")) == len(second.names("prompts", "*"))
    assert second.verify().returncode == 0
