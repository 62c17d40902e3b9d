"""A sweep of four settings on 64 engines: its wall time beside that of its decoding alone.

Measured, with made-up answers to a set of MyriadLAMA's size (bench_metrics.py): how long a setting
takes to be written (`expand` and `admit`), each of its relations to be matched and condensed
(`pipeline/execution/ahead.py`), its numbers to be combined and published, its tables and page to be
written. Simulated, with these seconds: the engines, each with two shards in hand, that take the
pipeline's own shards in its own order; one process that writes the settings, one after the other,
and one that measures what is answered.

Decoding alone: all prompts, by the sum of the engines' speeds. Seconds count from when the engines
are loaded; the settings are begun to be written when their loading is.

    python benchmarks/bench_overlap.py [--scale 0.1] [--engines 64] [--prompts-per-s 900]
"""

import argparse
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
from _fresh_process import in_fresh_process
from bench_expand import make_rows
from bench_metrics import publish
from bench_tail import engine_speeds, handed_out

from factsweep.operators.seeds import generator
from factsweep.pipeline.config import settings
from factsweep.pipeline.config.run import Run
from factsweep.pipeline.execution.ahead import _LOOK_EVERY_S, Ahead
from factsweep.pipeline.execution.plan import planned
from factsweep.pipeline.execution.queue import order_of_shards
from factsweep.pipeline.results import report
from factsweep.pipeline.stages.expand import relation_of

AT_MOST = 1.05
BETWEEN_S = 0.1  # two shards of an engine: a hundredth of a shard's time
LOADING_S = 30.0  # of vLLM with a small model on a GPU, at least


class Parts(NamedTuple):
    """The seconds of a setting's parts, and the prompts of its shards, in the order of `expand`."""

    written: float
    measured: dict[str, float]  # by relation
    combined: float
    shown: float
    shards: list[tuple[str, int]]  # relation, prompts


def main() -> None:
    """Measure the parts, simulate the sweep, print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--scale", type=float, default=1.0, help="share of the pairs (1: all)")
    parser.add_argument("--engines", type=int, default=64)
    parser.add_argument("--prompts-per-s", type=float, default=900.0, help="of one engine")
    parser.add_argument("--settings", type=int, default=4)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="bench-overlap-") as folder:
        in_fresh_process(make_rows, Path(folder) / "rows", given.scale)
        asked = ["benchmark=myriadlama", f"benchmark.path={folder}/rows", "prompt=4-template"]
        asked += ["decoding=greedy", "decoding.canary_prompts=0", f"artifacts={folder}/artifacts"]
        parts = in_fresh_process(measured, settings.load([*asked, f"results={folder}/results"]))
    mean = sum(parts.measured.values()) / len(parts.measured)
    print(f"a setting is written in {parts.written:.1f} s, a relation measured in {mean:.2f} s,")
    print(f"numbers combined in {parts.combined:.1f} s, tables and page in {parts.shown:.1f} s\n")
    rng = generator("bench_overlap")
    speeds = engine_speeds(given.engines, given.prompts_per_s, rng)
    prompts = given.settings * sum(n for _, n in parts.shards)
    alone = prompts / float(speeds.sum())
    decoded, numbers = simulated(parts, given.settings, speeds)
    print(f"decoding alone {alone:7.1f} s   {prompts:,} prompts, {given.engines} engines")
    shown = numbers + given.settings * parts.shown
    for name, seconds in (("last answer", decoded), ("all numbers", numbers), ("page", shown)):
        print(f"{name:<14} {seconds:7.1f} s   {seconds / alone:.3f} × decoding alone")
    verdict = "holds" if numbers <= AT_MOST * alone else "MISSED"
    print(f"all numbers within {AT_MOST} ×: {verdict}")


def measured(run: Run) -> Parts:
    """Make one setting, and time its parts; made-up answers are not timed."""
    plan = planned(run)
    (branch,) = plan.branches
    branch.step(branch.facts).run()
    written = _seconds(branch.step(branch.prompts).run) + _seconds(branch.step(branch.admitted).run)
    publish(run)
    ahead = Ahead(branch)

    def measure(relation: str) -> None:
        ahead._found[relation] = ahead._matched(relation)

    relations = branch.prompts.shards("ranked")
    seconds = {each: _seconds(partial(measure, each)) for each in relations}
    combined = _seconds(partial(ahead.publish, {}))
    shown = _seconds(partial(report.write, plan, {"total": 0.0}))
    counts = branch.prompts.counts("prompts")
    shards = [(relation_of(name), int(of["distinct"])) for name, of in counts.items()]
    return Parts(written, seconds, combined, shown, shards)


def _seconds(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def simulated(parts: Parts, n_settings: int, speeds: np.ndarray) -> tuple[float, float]:
    """When the last answer is there, and when all numbers are."""
    relations, left = [name for name, _ in parts.shards], [n for _, n in parts.shards]
    order = order_of_shards(relations, left, len(speeds))
    ready = [max(0.0, parts.written * (i + 1) - LOADING_S) for i in range(n_settings)]
    shards = [(ready[i], left[j]) for i in range(n_settings) for j in order]
    ends = [end for _, end in handed_out(shards, speeds, BETWEEN_S)]
    free = 0.0
    for i in range(n_settings):
        answered: dict[str, float] = {}
        for j, end in zip(order, ends[i * len(order) :], strict=False):
            answered[relations[j]] = max(end, answered.get(relations[j], 0.0))
        for relation in sorted(answered, key=lambda name: answered[name]):
            looked = answered[relation] + _LOOK_EVERY_S / 2  # half of it on average
            free = max(free, looked) + parts.measured[relation]
        free += parts.combined
    return max(ends), free


if __name__ == "__main__":
    main()
