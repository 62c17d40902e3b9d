"""A sweep on a fake engine, as a process that can be killed and started again.

The engine is fake since these tests are about scheduling and faults: it answers from a hash of the
prompt, so that the tables must be the same to the byte after any kill.
"""

import hashlib
import io
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path, PurePosixPath
from typing import Any

import polars as pl
import psutil
import pytest

from factsweep.pipeline.storage.store import Store

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
    "model.replicas.max=1",
    "run_name=sweep",
)
TWO_ENGINES = ("model.replicas.min=2", "model.replicas.max=2")
LOCAL = ("cluster.num_cpus=4",)
# The model of a server, since it has no tokenizer that each process would take seconds to load.
SMALL = (
    "model=endpoint",
    "model.id=nobody",
    "model.endpoint=http://127.0.0.1:9/v1",
    "benchmark.relations=[P36,P30]",
    "decoding.samples.n_prompts=0",
)
# What takes four GPUs, which are only claimed, on a node of a cluster.
ON_GPUS = (
    *SMALL,
    "cluster.device=cuda",
    "cluster.rows_per_shard=100",
    "model.tensor_parallel=4",
    *TWO_ENGINES,
)
CHUNK = 32
STARTED: list["Sweep"] = []  # by the test that runs; a failed one leaves drivers behind


class Sweep:
    """One run in a folder of its own; `wish` sets the fake engine.

    `artifacts` is where its artifacts lie; null for a folder below its own.
    """

    def __init__(
        self, folder: Path, overrides: Sequence[str] = (), artifacts: str | None = None, **wish: Any
    ) -> None:
        self.folder = folder
        self.store = Store(artifacts or str(folder / "artifacts"))
        self.log = folder / "answered.log"
        folder.mkdir(parents=True, exist_ok=True)
        self._hurry = folder / f"hurry-{id(self)}"
        self._wish = json.dumps({"log": str(self.log), "hurry": str(self._hurry), **wish})
        self._overrides = [
            *OVERRIDES,
            *(() if any("cluster.address" in override for override in overrides) else LOCAL),
            f"cluster.rows_per_chunk={CHUNK}",
            f"artifacts='{self.store.root}'",
            f"results={folder / 'results'}",
            *overrides,
        ]
        self.process: subprocess.Popen[str] | None = None

    def start(self, clock_s: float = 0.0) -> "Sweep":
        """Start the driver, with a clock that is so many seconds off."""
        self._hurry.unlink(missing_ok=True)
        self.process = self._command("run", clock_s)
        STARTED.append(self)
        return self

    def until(self, has_come: Callable[[], object]) -> "Sweep":
        """Wait until something is seen of a sweep that goes on."""
        while not has_come():
            assert self.process is not None
            if self.process.poll() is not None:
                pytest.fail(f"it ended before: {self.finish().stderr}")
            time.sleep(0.05)
        return self

    def finish(self) -> subprocess.CompletedProcess[str]:
        """Run to the end, starting the driver if it is not there; engines are slow no more."""
        self.hurry()
        process = self.process or self._command("run")
        output, errors = process.communicate(timeout=600)
        self.process = None
        return subprocess.CompletedProcess(process.args, process.returncode, output, errors)

    def hurry(self) -> None:
        """Let engines answer at once, until the driver is started again."""
        self._hurry.touch()

    def verify(self) -> subprocess.CompletedProcess[str]:
        """Run `factsweep verify`."""
        process = self._command("verify")
        output, errors = process.communicate(timeout=300)
        return subprocess.CompletedProcess(process.args, process.returncode, output, errors)

    def _command(self, verb: str, clock_s: float = 0.0) -> subprocess.Popen[str]:
        clock = {"FACTSWEEP_TEST_CLOCK": str(clock_s)}
        return subprocess.Popen(
            [sys.executable, "-m", "tests.faults.driver", verb, *self._overrides],
            env={**os.environ, **clock, "FACTSWEEP_FAKE_ENGINE": self._wish},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,  # so that a test can interrupt it as a terminal does
        )

    def engines(self) -> list[psutil.Process]:
        """The processes that hold an engine."""
        return [p for p in self._family() if "ray::Decoder" in title(p)]

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
        """End the driver with SIGKILL, then the rest of its Ray, as a lost machine would."""
        assert self.process is not None
        family = list(self._family())
        self.process.kill()
        self.process.communicate()
        self.process = None
        for process in family:
            kill(process)

    def chunks(self) -> list[Path]:
        """The published chunks of open shards, in a folder."""
        return sorted(self.folder.glob("artifacts/*/*/chunks/*/*/*.parquet"))

    def names(self, stage: str, *within: str) -> list[str]:
        """The files of a stage's artifacts, of the folders `within` them or of those below.

        One listing: tests ask often, and must not keep an S3 server busy by that.
        """
        pattern = PurePosixPath("*", *within, "[!.]*")
        return [
            f"{stage}/{name}"
            for name in self.store.sizes(stage)
            if name.count("/") == len(pattern.parents) - 1
            and PurePosixPath(name).match(str(pattern))
        ]

    def answered(self) -> list[str]:
        """The ids of all prompts that an engine was handed, repeats and all."""
        return self.log.read_text().splitlines() if self.log.exists() else []

    def tables(self) -> dict[str, str]:
        """Every published shard, result table and figure: its name → a hash of its content."""
        shards = [name for stage in self.store.folders("") for name in self.names(stage, "*")]
        content_by_name = {
            name: self.store.get(name) for name in shards if name.endswith(".parquet")
        }
        for path in (*self.folder.glob("results/*/*"), *self.folder.glob("results/*/figures/*")):
            if path.suffix in (".parquet", ".csv", ".svg", ".png"):
                content_by_name[str(path.relative_to(self.folder))] = path.read_bytes()
        return {
            name: content_hash(name, content)
            for name, content in sorted(content_by_name.items())
            if "/damaged/" not in name
        }


def content_hash(name: str, content: bytes) -> str:
    """A hash of a file; of a shard without its footer, which has seconds."""
    if name.endswith(".parquet"):
        content = pl.read_parquet(io.BytesIO(content)).write_ipc(None).getvalue()
    return hashlib.sha256(content).hexdigest()


def kill(process: psutil.Process) -> None:
    """SIGKILL, if it is still there."""
    try:
        process.send_signal(signal.SIGKILL)
    except psutil.NoSuchProcess:
        return


def title(process: psutil.Process) -> str:
    """The command line of a process; nothing if it has ended."""
    try:
        return " ".join(process.cmdline())
    except (psutil.NoSuchProcess, psutil.AccessDenied):
        return ""
