"""In what order the pool hands out shards, and when its engines end: a simulation of the tail."""

import heapq
from collections.abc import Sequence

import pytest

from factsweep.pipeline.config.settings import load
from factsweep.pipeline.decoding.pool import engines
from factsweep.pipeline.decoding.queue import order_of_shards

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


def handed_out(prompts: Sequence[int], n_relations: int) -> list[int]:
    relations = [str(i % n_relations) for i in range(len(prompts))]
    return [prompts[i] for i in order_of_shards(relations, prompts, ENGINES)]


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
    for n_relations in (1, 41):
        found = ends(handed_out(prompts, n_relations))
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


def test_relations_are_handed_out_in_turn_until_the_last_keep_all_engines_busy() -> None:
    relations = [name for name in "abcd" for _ in range(4)]
    left = [9, 7, 5, 3, 8, 8, 8, 8, 2, 4, 6, 1, 1, 1, 1, 1]  # 24, 32, 13 and 4
    order = "".join(relations[i] for i in order_of_shards(relations, left, engines=0))
    assert order == "bbbbaaaaccccdddd"
    by_one = order_of_shards(relations, left, engines=1)  # 3 × 9 are kept for the end
    assert [relations[i] for i in by_one[:4]] == ["b"] * 4
    assert [left[i] for i in by_one[4:]] == sorted(left[:4] + left[8:], reverse=True)
    many = [left[i] for i in order_of_shards(relations, left, engines=64)]
    assert many == sorted(left, reverse=True)
    assert order_of_shards([], [], engines=1) == []
