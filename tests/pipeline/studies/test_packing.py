"""Which model's engines begin when: a rule without Ray, beside simulations that are plainer."""

from collections.abc import Mapping, Sequence
from itertools import pairwise

import bench_packing
import pytest
from _packed import Cluster
from hypothesis import example, given
from hypothesis import strategies as st

from factsweep.operators.tables.runs.busy import utilisation
from factsweep.pipeline.studies.packing import (
    Held,
    Job,
    capacity,
    in_line,
    makespan,
    may_begin,
    shares,
    simulated,
)

GPUS = st.sampled_from([0.5, 1, 2, 4])
NODES = st.lists(st.integers(4, 8), min_size=1, max_size=3)


@st.composite
def studies(draw: st.DrawFn) -> list[Job]:
    """Jobs of which each has room on a node of four GPUs."""
    whole = st.integers(1, 50)
    return [
        Job(str(number), draw(GPUS), draw(whole), draw(whole), draw(st.integers(1, 5)))
        for number in range(draw(st.integers(1, 7)))
    ]


def plain(jobs: Sequence[Job], nodes: Sequence[int]) -> dict[str, tuple[int, int]]:
    """When each job begins and ends with one engine, second by second."""
    line = in_line(jobs, dict.fromkeys((job.name for job in jobs), 1))
    free, found, now = list(map(float, nodes)), dict[str, tuple[int, int]](), 0
    on = dict[str, int]()
    while line or any(end > now for _, end in found.values()):
        for job in jobs:
            if job.name in found and found[job.name][1] == now:
                free[on[job.name]] += job.gpus
        while line and max(free) >= line[0].gpus:
            job = line.pop(0)
            _, node = min((gpus, node) for node, gpus in enumerate(free) if gpus >= job.gpus)
            free[node] -= job.gpus
            on[job.name] = node
            found[job.name] = (now, now + int(job.loads_s + job.seconds))
        now += 1
    return found


@given(jobs=studies(), nodes=NODES)
def test_one_engine_each_begins_as_second_by_second(jobs: list[Job], nodes: list[int]) -> None:
    engines = dict.fromkeys((job.name for job in jobs), 1)
    found = simulated(jobs, engines, nodes)
    assert {each.job.name: (each.began, each.ended) for each in found} == plain(jobs, nodes)


@given(jobs=studies(), nodes=NODES)
def test_engines_never_hold_more_than_there_is_and_do_all_work(
    jobs: list[Job], nodes: list[int]
) -> None:
    engines = shares(jobs, nodes)
    held = simulated(jobs, engines, nodes)
    for job in jobs:
        own = [each for each in held if each.job == job]
        assert 1 <= len(own) <= engines[job.name] <= min(job.most, capacity(job, nodes))
        worked = sum(max(0.0, each.ended - each.began - job.loads_s) for each in own)
        assert worked == pytest.approx(job.seconds)
    for now in {each.began for each in held}:
        for node, gpus in enumerate(nodes):
            taken = [each.gpus.get(node, 0) for each in held if each.began <= now < each.ended]
            assert sum(taken) <= gpus + 1e-6
    began = [first(held, job) for job in in_line(jobs, engines)]
    assert all(a <= b for a, b in pairwise(began))  # nobody passes


def first(held: Sequence[Held], job: Job) -> float:
    return min(each.began for each in held if each.job == job)


# Two engines of the last one would end later than one.
SHORT = [
    Job(str(n), gpus, seconds, 1, 1)
    for n, (gpus, seconds) in enumerate([(0.5, 1), (1, 1), (1, 2), (1, 2)])
]


@given(jobs=studies(), nodes=NODES)
@example(jobs=[*SHORT, Job("4", 1, 3, 1, 3)], nodes=[4])
def test_shares_end_no_later_than_one_engine_each(jobs: list[Job], nodes: list[int]) -> None:
    def ends(engines: Mapping[str, int]) -> float:
        return makespan(simulated(jobs, engines, nodes))

    one = dict.fromkeys((job.name for job in jobs), 1)
    assert ends(shares(jobs, nodes)) <= ends(one) + 1e-6


def test_engine_may_lie_on_several_nodes_only_if_it_spans_them() -> None:
    wide = Job("405b", 16, 100, 60, most=2, spans=True)
    assert capacity(wide, [8, 8, 8]) == 1
    assert may_begin([wide], [8, 4, 4], [])
    assert not may_begin([wide], [8, 4, 3], [])
    assert not may_begin([Job("70b", 4, 100, 60, most=1)], [3, 3], [])
    assert not may_begin([], [8], [])
    (held,) = simulated([wide], {"405b": 1}, [8, 8, 8])
    assert held.gpus == {0: 8, 1: 8}


def test_gpus_answer_for_nine_tenths_of_the_time_though_engines_die() -> None:
    """The benchmark at a smaller size: 16 GPUs, a broken model, two deaths, forecasts off."""
    jobs, world = bench_packing.study(3_000_000)
    found = Cluster(jobs, shares(jobs, (8, 8)), (8, 8), world)
    spans = found.ran()
    assert found.failed == world.broken
    for job in jobs:
        if job.name not in world.broken:
            assert found.answered[job.name] == len(world.shards[job.name])
    assert utilisation(spans) >= 0.9
