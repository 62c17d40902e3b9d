"""A sweep on a fake engine, as a process that can be killed and started again.

The engine is fake since these tests are about scheduling and faults: it answers from a hash of the
prompt, so that whatever is killed, the tables must come out the same to the byte.
"""

import hashlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import polars as pl
import psutil

OVERRIDES = (
    "decoding.engine=fake",
    "prompt=zero-shot",
    "benchmark.names_per_subject=1",
    "decoding.samples.n_prompts=40",
    "decoding.samples.n_answers=50",
    "metrics.n_draws=500",
    "metrics.n_rounds=50",
    "cluster.device=cpu",
    "decoding.canary_prompts=0",
    "cluster.rows_per_shard=200",
    "model.replicas.min=2",
    "model.replicas.max=2",
    "run_name=sweep",
)
LOCAL = ("cluster.num_cpus=4",)
CHUNK = 32


class Sweep:
    """One run in a folder of its own; `wish` is what the fake engine is asked to do."""

    def __init__(self, folder: Path, overrides: Sequence[str] = (), **wish: Any) -> None:
        self.folder = folder
        self.log = folder / "answered.log"
        folder.mkdir(parents=True, exist_ok=True)
        self._wish = json.dumps({"log": str(self.log), **wish})
        self._overrides = [
            *OVERRIDES,
            *(() if any("cluster.address" in each for each in overrides) else LOCAL),
            f"cluster.rows_per_chunk={CHUNK}",
            f"artifacts={folder / 'artifacts'}",
            f"results={folder / 'results'}",
            *overrides,
        ]
        self.process: subprocess.Popen[str] | None = None

    def start(self) -> "Sweep":
        """Start the driver."""
        self.process = self._command("run")
        return self

    def finish(self) -> subprocess.CompletedProcess[str]:
        """Run to the end, starting the driver if it is not there."""
        process = self.process or self._command("run")
        output, errors = process.communicate(timeout=240)
        self.process = None
        return subprocess.CompletedProcess(process.args, process.returncode, output, errors)

    def verify(self) -> subprocess.CompletedProcess[str]:
        """Run `factsweep verify`."""
        process = self._command("verify")
        output, errors = process.communicate(timeout=60)
        return subprocess.CompletedProcess(process.args, process.returncode, output, errors)

    def _command(self, verb: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-m", "pipeline.cli", verb, *self._overrides],
            env={**os.environ, "FACTSWEEP_FAKE_ENGINE": self._wish},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def engines(self) -> list[psutil.Process]:
        """The processes that hold an engine."""
        return [p for p in self._family() if "MapWorker" in _title(p)]

    def raylets(self) -> list[psutil.Process]:
        """The process that is Ray's node."""
        return [p for p in self._family() if p.name() == "raylet"]

    def _family(self) -> Iterator[psutil.Process]:
        assert self.process is not None
        try:
            yield from psutil.Process(self.process.pid).children(recursive=True)
        except psutil.NoSuchProcess:
            return

    def kill_driver(self) -> None:
        """End the driver with SIGKILL, then what is left of its Ray, as a lost machine would."""
        assert self.process is not None
        family = list(self._family())
        self.process.kill()
        self.process.communicate()
        self.process = None
        for process in family:
            kill(process)

    def chunks(self) -> list[Path]:
        """The published chunks of open shards."""
        return sorted(self.folder.glob("artifacts/*/*/chunks/*/*/*.parquet"))

    def answered(self) -> list[str]:
        """The ids of all prompts that an engine was handed, repeats and all."""
        return self.log.read_text().splitlines() if self.log.exists() else []

    def tables(self) -> dict[str, str]:
        """Every published shard and result table: its name → a hash of its rows."""
        paths = [*self.folder.glob("artifacts/*/*/*/*.parquet"), *self.folder.glob("results/*/*")]
        paths = [
            p for p in paths if p.suffix in (".parquet", ".csv") and p.parent.name != "damaged"
        ]
        return {str(p.relative_to(self.folder)): content_hash(p) for p in paths}


def content_hash(path: Path) -> str:
    """A hash of what a table holds; a shard's footer also has seconds, which differ."""
    if path.suffix == ".csv":
        return hashlib.sha256(path.read_bytes()).hexdigest()
    return hashlib.sha256(pl.read_parquet(path).write_ipc(None).getvalue()).hexdigest()


def kill(process: psutil.Process) -> None:
    """SIGKILL, if it is still there."""
    try:
        process.send_signal(signal.SIGKILL)
    except psutil.NoSuchProcess:
        return


def _title(process: psutil.Process) -> str:
    try:
        return " ".join(process.cmdline())
    except (psutil.NoSuchProcess, psutil.AccessDenied):
        return ""
