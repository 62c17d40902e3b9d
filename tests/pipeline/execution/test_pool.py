"""In what order the pool hands out shards, and when its engines end: a simulation of the tail."""

import heapq
from collections.abc import Sequence
from typing import Any

import pytest

from factsweep.pipeline.config.settings import load
from factsweep.pipeline.execution.pool import engines
from factsweep.pipeline.execution.queue import largest_first

ENGINES = 64
IN_FLIGHT = 2  # shards that an engine is handed at a time
PROMPTS_PER_S = 900.0


def ends(prompts: Sequence[int]) -> list[float]:
    """When each engine has no more shard: whoever has room for one first is handed the next."""
    end = [0.0] * ENGINES
    room = [(0.0, engine) for engine in range(ENGINES) for _ in range(IN_FLIGHT)]
    for n in prompts:
        at, engine = heapq.heappop(room)
        end[engine] = max(at, end[engine]) + n / PROMPTS_PER_S
        heapq.heappush(room, (end[engine], engine))
    return end


def handed_out(prompts: Sequence[int]) -> list[int]:
    items: list[Any] = list(prompts)
    return [int(n) for n in largest_first(items, prompts)]  # type: ignore[call-overload]


@pytest.mark.parametrize(
    "prompts",
    [
        [16_384] * 400,
        [16_384] * 360 + [100] * 40,
        [(i * 7919) % 16_384 + 1 for i in range(400)],
        [244] * 34 * 4 + [16_384] * 264,
    ],
)
def test_engines_end_within_a_minute_of_each_other(prompts: list[int]) -> None:
    found = ends(handed_out(prompts))
    assert max(found) - min(found) < 60


@pytest.mark.parametrize(
    ("cluster", "n_shards", "sizes"),
    [
        ("cluster=kuberay", 400, (64, 2, 64)),
        ("cluster=kuberay", 10, (10, 2, 10)),
        ("cluster=slurm", 1, (2, 2, 2)),
        ("cluster.device=cuda", 400, (2, 2, 64)),  # on one machine as engines are kept busy
        ("cluster.device=cpu", 400, (2, 2, 2)),  # where each computes with every core
    ],
)
def test_engines_that_the_work_needs_are_asked_for_at_once(
    cluster: str, n_shards: int, sizes: tuple[int, int, int]
) -> None:
    run = load([cluster, "model=llama3-8b", "model.replicas.min=2", "model.replicas.max=64"])
    asked = engines(run, n_shards)
    assert (asked.initial_size, asked.min_size, asked.max_size) == sizes


def test_largest_first_keeps_what_is_as_large_in_its_order() -> None:
    items: list[Any] = ["a", "b", "c", "d"]
    assert "".join(map(str, largest_first(items, [2, 5, 2, 5]))) == "bdac"
