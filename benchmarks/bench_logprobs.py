"""The cost of log-probabilities of greedy answers: one engine, with and without them in turn.

Each round answers the same 4-template prompts with and without log-probabilities, in alternating
order. The cost is that of the median round, with the smallest and the largest: of the time on the
clock, and of the processor's, which other work on the machine changes less.

    python benchmarks/bench_logprobs.py [--rounds 5] [--prompts 400] [--host-bound]
"""

import argparse
import os
import statistics
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import polars as pl
from _fresh_process import in_fresh_process
from bench_decode import _job, save_tiny

from factsweep.operators.engines.protocol import Request, Sampling
from factsweep.operators.prompts.tokens import encode
from factsweep.pipeline.cluster import hardware
from factsweep.pipeline.config.run import Run
from factsweep.pipeline.decoding import engine
from factsweep.pipeline.inputs import models
from factsweep.pipeline.runs.prompts import iterate_prompts
from factsweep.pipeline.stages.plan import build_plan


def main() -> None:
    """Measure, then print each round and the median."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5, help="turns of both")
    parser.add_argument("--prompts", type=int, default=400, help="answered in each")
    parser.add_argument("--host-bound", action="store_true", help="a model that costs nothing")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="bench-logprobs-") as folder:
        tiny = ()
        if args.host_bound:
            tiny = (f"model={save_tiny(Path(folder) / 'tiny')}", "model.dtype=float32")
        job = _job(f"{folder}/run", *tiny, "model.replicas.max=1", "cluster.num_cpus=1")
        in_fresh_process(measure, job, args.rounds, args.prompts)


def measure(job: Run, rounds: int, n_prompts: int) -> None:
    """Answer the prompts in turns, and print the cost."""
    os.environ.update(hardware.worker_variables(job))
    plan = build_plan(job)
    texts = pl.concat(iterate_prompts(job))["prompt"].unique(maintain_order=True)
    ids = encode(models.tokenizer(plan.weights), texts.head(n_prompts).to_list())
    loaded = engine.load(job, plan.weights)
    plain = Sampling(job.decoding.max_tokens, job.decoding.stop)
    both = {"off": plain, "on": replace(plain, logprobs=True)}
    costs: dict[str, list[float]] = {}
    for turn in range(-1, rounds):
        seconds, cpu_seconds = {}, {}
        for name in sorted(both, reverse=bool(turn % 2)):
            requests = [Request(f"{i}", token_ids, both[name]) for i, token_ids in enumerate(ids)]
            began = time.perf_counter(), time.process_time()
            answered = sum(1 for _ in loaded.answers(requests))
            seconds[name] = time.perf_counter() - began[0]
            cpu_seconds[name] = time.process_time() - began[1]
            assert answered == len(ids)
        if turn >= 0:  # the first fills the cache
            for clock, measured in (("wall", seconds), ("cpu", cpu_seconds)):
                cost = measured["on"] / measured["off"] - 1
                costs.setdefault(clock, []).append(cost)
                print(
                    f"{clock} off {measured['off']:.2f} s, on {measured['on']:.2f} s: {cost:+.1%}"
                )
    for clock, values in costs.items():
        low, median, high = min(values), statistics.median(values), max(values)
        print(f"{clock}: {median:+.1%} ({low:+.1%} to {high:+.1%}) for {len(ids)} prompts")


if __name__ == "__main__":
    main()
