"""How busy 16 GPUs are while 20 models of 1 to 70 B are asked: side by side, and one by one.

Simulates a study: shards, loading, engines whose speeds differ, two engines that die, one model
that cannot load, and forecasts that are wrong by a fifth. What begins when, and with how many
engines, is decided as in a real study. Nothing is decoded and nothing is measured: the seconds are
those of the simulation.

    python benchmarks/bench_packing.py [--prompts 6500000 650000 65000] [--figure docs/packing.png]
"""

import argparse
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
from _packed import Cluster, World

from factsweep.operators.tables.formats.markdown import markdown
from factsweep.operators.tables.runs.busy import busy_figure, busy_table, together, utilisation
from factsweep.pipeline.stages.expand import ends
from factsweep.pipeline.studies.packing import Job, shares

# Billions of parameters, and the GPUs of 80 GB that an engine needs.
MODELS = {
    **dict.fromkeys((1.0, 1.4, 2.0, 3.0, 3.8, 6.9, 7.0, 7.2, 8.0, 9.0, 12.0, 13.0, 14.0), 1),
    **dict.fromkeys((20.0, 27.0, 32.0, 34.0), 2),
    **dict.fromkeys((65.0, 69.0, 70.0), 4),
}
NODES = (8, 8)
SECONDS = 0.0003  # of a GPU, for an answer of a model of a billion parameters
LOADS_S, LOADS_S_PER_BILLION = 60.0, 2.0
SHARD = 16_384  # prompts
RELATIONS = 41
WRONG = 0.2  # a forecast of decoding and of loading, one standard deviation
BROKEN = "7.2B"


def main() -> None:
    """Pack, simulate, print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--prompts", type=int, nargs="+", default=[6_500_000, 650_000, 65_000])
    parser.add_argument("--figure", type=Path, help="a PNG of the first of these")
    given = parser.parse_args()
    rows = []
    for prompts in given.prompts:
        jobs, world = study(prompts)
        packed = Cluster(jobs, shares(jobs, NODES), NODES, world)
        spans = packed.ran()
        rows.append(row(prompts, spans, in_turn(jobs, world)))
        if prompts == given.prompts[0]:
            first = spans
        assert packed.failed == {BROKEN}
        whole = {job.name: len(world.shards[job.name]) for job in jobs if job.name != BROKEN}
        assert {name: packed.answered[name] for name in whole} == whole
    print(markdown(busy_table(first)))
    print(markdown(pl.DataFrame(rows)))
    if given.figure:
        busy_figure(first).savefig(given.figure, dpi=120)


def row(prompts: int, spans: pl.DataFrame, alone: pl.DataFrame) -> dict[str, str]:
    """What a study of so many prompts per model takes, side by side and one by one."""
    hours = [together(each)["ended"].max() / 3600 for each in (spans, alone)]
    return {
        "prompts per model": f"{prompts:,}",
        "side by side": f"{utilisation(spans):.1%}",
        "hours": f"{hours[0]:.2f}",
        "one by one": f"{utilisation(alone):.1%}",
        "its hours": f"{hours[1]:.2f}",
    }


def study(prompts: int) -> tuple[list[Job], World]:
    """The jobs as they are forecast, and what they are."""
    rng = np.random.default_rng(0)
    shares_of = rng.dirichlet(np.full(RELATIONS, 8.0))
    sizes = [n for part in shares_of for n in np.diff([0, *ends(int(part * prompts), SHARD)])]
    jobs, shards, loads = [], {}, {}
    for billions, gpus in MODELS.items():
        name, each = f"{billions:g}B", SECONDS * billions / gpus
        loads_s = LOADS_S + LOADS_S_PER_BILLION * billions
        most = len(sizes)
        jobs.append(Job(name, gpus, each * sum(sizes), loads_s, most=most))
        true, loading = rng.normal(1, WRONG, 2).clip(0.4, 2)
        shards[name], loads[name] = [each * true * n for n in sizes], loads_s * loading
    takes = sum(job.size for job in jobs) / sum(NODES)
    deaths = (takes / 10, takes / 2)
    return jobs, World(shards, loads, broken=frozenset({BROKEN}), deaths=deaths)


def in_turn(jobs: list[Job], world: World) -> pl.DataFrame:
    """The same one by one, each with all GPUs, as a study did before."""
    found, now = [], 0.0
    for job in jobs:
        alone = replace(world, deaths=())
        engines = {job.name: sum(n // int(job.gpus) for n in NODES)}
        spans = Cluster([job], engines, NODES, alone).ran()
        found.append(spans.with_columns(pl.col("began", "ended") + now + world.begins_s))
        now += world.begins_s + float(spans["ended"].max())  # type: ignore[arg-type]
    return pl.concat(found)


if __name__ == "__main__":
    main()
