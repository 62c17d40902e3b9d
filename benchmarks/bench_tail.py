"""How long 64 engines wait for the last one: shards that grow smaller beside shards of one size.

Simulates a setting of MyriadLAMA (41 relations, 6,492,800 prompts) on engines whose speeds differ
by a few per cent. Each has two shards in hand, as the pool gives them out: one that it answers and
one that waits. Nothing is decoded and nothing is measured: the seconds are those of the simulation.

    python benchmarks/bench_tail.py [--engines 64] [--prompts-per-s 50]
"""

import argparse
import heapq
from itertools import pairwise

import numpy as np

from factsweep.operators.seeds import generator
from factsweep.pipeline.decoding.pool import order_of_shards
from factsweep.pipeline.stages.expand import ends

PROMPTS, RELATIONS, IN_HAND = 6_492_800, 41, 2
SPREAD = 0.05  # of the engines' speeds: one standard deviation
BETWEEN_S = 1.0  # two shards of an engine


def main() -> None:
    """Cut, hand out, count, print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--engines", type=int, default=64)
    parser.add_argument("--prompts-per-s", type=float, default=50.0, help="of one engine")
    given = parser.parse_args()
    rng = generator("bench_tail")
    speeds = engine_speeds(given.engines, given.prompts_per_s, rng)
    shares = rng.dirichlet(np.full(RELATIONS, 8.0))
    relations = [int(each) for each in shares * PROMPTS]
    print(
        "| prompts per shard | shards | last engine after the first | shards of one size | ratio |"
    )
    print("| --- | --- | --- | --- | --- |")
    for size in (4096, 16384, 65536):
        ours, of_one_size = cut(relations, size), cut(relations, size, fewest=size)
        left = [n for each in ours for n in each]
        names = [str(i) for i, each in enumerate(ours) for _ in each]
        found = waited_s([left[i] for i in order_of_shards(names, left, given.engines)], speeds)
        peer = waited_s([n for each in of_one_size for n in each], speeds)
        shards = f"{len(left)} ({sum(map(len, of_one_size))})"
        print(f"| {size:,} | {shards} | {found:.0f} s | {peer:.0f} s | {peer / found:.1f} |")


def cut(relations: list[int], size: int, **fewest: int) -> list[list[int]]:
    """The number of prompts of each shard of each relation."""
    found = [[0, *ends(n, size, **fewest)] for n in relations]
    return [[b - a for a, b in pairwise(each)] for each in found]


def engine_speeds(engines: int, prompts_per_s: float, rng: np.random.Generator) -> np.ndarray:
    """Prompts per second of each engine."""
    return prompts_per_s * rng.normal(1, SPREAD, engines)


def waited_s(shards: list[int], speeds: np.ndarray) -> float:
    """Between the end of the first engine that finds nothing more to do and that of the last."""
    last = dict(handed_out([(0.0, n) for n in shards], speeds, BETWEEN_S))
    return max(last.values()) - min(last.values())


def handed_out(
    shards: list[tuple[float, int]], speeds: np.ndarray, between_s: float = 0.0
) -> list[tuple[int, float]]:
    """The engine of each shard and when it is answered, given when it is there and its prompts."""
    free_at, found = [0.0] * len(speeds), []
    handed = [(0.0, engine) for engine in range(len(speeds)) for _ in range(IN_HAND)]
    heapq.heapify(handed)
    for ready, n in shards:
        now, engine = heapq.heappop(handed)  # when it has fewer than two in hand
        began = max(now, ready, free_at[engine])
        free_at[engine] = began + n / float(speeds[engine]) + between_s
        heapq.heappush(handed, (free_at[engine], engine))
        found.append((engine, free_at[engine]))
    return found


if __name__ == "__main__":
    main()
