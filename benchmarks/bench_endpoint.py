"""Greedy answers of smollm2-135m: asked of `vllm serve` on loopback, and of the engine in the run.

    here     `factsweep run model=smollm2-135m`: vLLM in the run's own process of an engine
    served   `factsweep run model=endpoint`: the same prompts, of vLLM's own server, same options

Both compute on the same cores, and take turns, since a machine is not equally fast all the time. A
rate is prompts a second without the loading of the model, from the shards' footers. The answers
must be the same (float32).

    python benchmarks/bench_endpoint.py [--rounds 2] [--pairs 40]
"""

import argparse
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from _fresh_process import in_fresh_process

from factsweep.pipeline.cluster import hardware
from factsweep.pipeline.config import settings
from factsweep.pipeline.config.run import Run
from factsweep.pipeline.inputs import models
from factsweep.pipeline.runs import run
from factsweep.pipeline.stages.plan import build_plan, resolve_run

ASKED = (
    *("benchmark=myriadlama-mini", "prompt=4-template", "benchmark.relations=[P17,P30,P36,P37]"),
    *("decoding=greedy", "decoding.canary_prompts=0", "cluster.rows_per_shard=100000"),
    *("metrics.n_draws=100", "metrics.n_rounds=10"),
)
HERE = ("model=smollm2-135m", "model.dtype=float32", "model.max_model_len=1024")
AT_LEAST = 0.9
START_S = 600


class Rate(NamedTuple):
    """The number of answered prompts, their time, and the answers."""

    prompts: int
    seconds: float
    answers: dict[str, str]


def main() -> None:
    """Measure turn by turn, then print the ratio."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--pairs", type=int, default=40, help="of each of four relations")
    args = parser.parse_args()
    rates: dict[str, list[Rate]] = {"here": [], "served": []}
    with tempfile.TemporaryDirectory(prefix="bench-endpoint-") as folder:
        for turn in range(args.rounds):
            overrides = [*ASKED, f"benchmark.pairs_per_relation={args.pairs}"]
            local_job = job(f"{folder}/{turn}/here", *overrides, *HERE)
            rates["here"].append(in_fresh_process(through_run, local_job))
            with server(local_job) as url:
                address = ("model=endpoint", "model.id=smollm2", f"model.endpoint={url}")
                served = job(f"{folder}/{turn}/served", *overrides, *address)
                rates["served"].append(in_fresh_process(through_run, served))
            for name, turns in rates.items():
                rate = turns[-1]
                load = f"load of the machine {os.getloadavg()[0]:.1f}"
                print(
                    f"{name:<8} {rate.prompts:>5,} prompts {rate.seconds:6.1f} s  {load}",
                    flush=True,
                )
    print_table(rates)


def job(folder: str, *overrides: str) -> Run:
    """A run in folders of its own."""
    places = (f"artifacts={folder}/artifacts", f"results={folder}/results", "run_name=bench")
    return resolve_run(settings.load([*overrides, *places]))


def print_table(rates: dict[str, list[Rate]]) -> None:
    """The rates, whether the answers are the same, and whether the target is met."""
    loaded, served = (
        sum(turn.prompts for turn in turns) / sum(turn.seconds for turn in turns)
        for turns in rates.values()
    )
    ratio = served / loaded
    first, other = (turns[0].answers for turns in rates.values())
    differing = sum(first[name] != other.get(name) for name in first)
    print(
        f"\nhere {loaded:.1f} prompts/s, served {served:.1f} prompts/s, {differing} other answers"
    )
    holds = "holds" if ratio >= AT_LEAST else "MISSED"
    print(f"served / here: {ratio:.2f}  target: at least {AT_LEAST:.2f}: {holds}")


def through_run(job: Run) -> Rate:
    """The run from facts to tables; the time is that of decoding, from the shards' footers."""
    run.run(job)
    greedy = build_plan(job).branches[0].answers
    counts = greedy.counts(greedy.stage).values()
    rows = greedy.read_all(greedy.stage).select("prompt_id", "text").iter_rows()
    return Rate(
        prompts=sum(int(count["prompts"]) for count in counts),
        seconds=sum(float(count["seconds"]) for count in counts),
        answers=dict(rows),
    )


@contextmanager
def server(local_job: Run) -> Iterator[str]:
    """A server of vLLM's with the model of a run, for the time of the block: its address."""
    with socket.create_server(("127.0.0.1", 0)) as socket_:
        port = socket_.getsockname()[1]
    command = [
        *(sys.executable, "-m", "vllm.entrypoints.openai.api_server"),
        *(
            "--model",
            models.location(build_plan(local_job).weights),
            "--served-model-name",
            "smollm2",
        ),
        *("--dtype", local_job.model.dtype, "--max-model-len", str(local_job.model.max_model_len)),
        *("--enforce-eager", "--block-size", "32", "--no-enable-chunked-prefill"),
        *("--host", "127.0.0.1", "--port", str(port)),
        *("--disable-uvicorn-access-log", "--disable-log-stats"),
    ]
    with tempfile.TemporaryFile() as log:
        variables = {**os.environ, **hardware.worker_variables(local_job)}
        process = subprocess.Popen(
            command, stdout=log, stderr=log, env=variables, start_new_session=True
        )
        try:
            wait(process, f"http://127.0.0.1:{port}/health")
            yield f"http://127.0.0.1:{port}/v1"
        finally:
            os.killpg(process.pid, signal.SIGTERM)
            process.wait(60)


def wait(process: "subprocess.Popen[bytes]", url: str) -> None:
    """Wait until a server answers."""
    ends = time.monotonic() + START_S
    while time.monotonic() < ends:
        if process.poll() is not None:
            sys.exit(f"the server ended with exit code {process.returncode}")
        try:
            with urllib.request.urlopen(url, timeout=5):
                return
        except OSError:
            time.sleep(1)
    sys.exit(f"the server was not ready within {START_S} s")


if __name__ == "__main__":
    main()
