"""How long 64 engines wait for the last one: shards of decreasing size and shards of one size.

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
from factsweep.pipeline.stages.expand import list_shard_ends

PROMPTS, RELATIONS, IN_HAND = 6_492_800, 41, 2
SPREAD = 0.05  # of the engines' speeds: one standard deviation
BETWEEN_S = 1.0  # two shards of an engine


def main() -> None:
    """Cut, hand out, count, print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--engines", type=int, default=64)
    parser.add_argument("--prompts-per-s", type=float, default=50.0, help="of one engine")
    args = parser.parse_args()
    rng = generator("bench_tail")
    speeds = engine_speeds(args.engines, args.prompts_per_s, rng)
    shares = rng.dirichlet(np.full(RELATIONS, 8.0))
    relations = [int(share) for share in shares * PROMPTS]
    print(
        "| prompts per shard | shards | last engine after the first | shards of one size | ratio |"
    )
    print("| --- | --- | --- | --- | --- |")
    for size in (4096, 16384, 65536):
        ours, of_one_size = cut(relations, size), cut(relations, size, fewest=size)
        sizes = [n for shard_sizes in ours for n in shard_sizes]
        names = [str(i) for i, shard_sizes in enumerate(ours) for _ in shard_sizes]
        seconds = waited_s([sizes[i] for i in order_of_shards(names, sizes, args.engines)], speeds)
        peer = waited_s([n for shard_sizes in of_one_size for n in shard_sizes], speeds)
        shards = f"{len(sizes)} ({sum(map(len, of_one_size))})"
        print(f"| {size:,} | {shards} | {seconds:.0f} s | {peer:.0f} s | {peer / seconds:.1f} |")


def cut(relations: list[int], size: int, **fewest: int) -> list[list[int]]:
    """The number of prompts of each shard of each relation."""
    edges_of_relations = [[0, *list_shard_ends(n, size, **fewest)] for n in relations]
    return [[b - a for a, b in pairwise(edges)] for edges in edges_of_relations]


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
    """The engine and the finish time of each shard."""
    free_at, finish_times = [0.0] * len(speeds), []
    handed = [(0.0, engine) for engine in range(len(speeds)) for _ in range(IN_HAND)]
    heapq.heapify(handed)
    for ready, n in shards:
        clock, engine = heapq.heappop(handed)  # when it has fewer than two in hand
        began = max(clock, ready, free_at[engine])
        free_at[engine] = began + n / float(speeds[engine]) + between_s
        heapq.heappush(handed, (free_at[engine], engine))
        finish_times.append((engine, free_at[engine]))
    return finish_times


if __name__ == "__main__":
    main()
