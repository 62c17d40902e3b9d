"""Parts of an artifact, shared out to as many Ray tasks as the cluster has cores."""

import heapq
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from factsweep.pipeline.decoding import cause
from factsweep.pipeline.stages.stage import Alone

FEWEST = 200_000  # prompts: starting the tasks takes some seconds
# A task has one core, and libraries would start a thread for each core of its machine.
_ONE_THREAD = {"POLARS_MAX_THREADS": "1", "RAYON_NUM_THREADS": "1"}


class Tasks:
    """Shares parts out to Ray tasks, one per core; where there is little to do, to none.

    Each asks for `num_cpus` cores. Those that ask for none would all be put on one node, so all are
    spread.

    `check` is called on the machine of each task before it makes anything. A task whose machine is
    lost is started again by Ray; `work` finds what the first one published.
    """

    def __init__(self, check: Callable[[], None], fewest: int = FEWEST, num_cpus: int = 1) -> None:
        self.core_seconds = 0.0
        self._check = check
        self._num_cpus = num_cpus
        self._fewest = fewest

    def __call__(self, work: Callable[[Sequence[str]], None], parts: Mapping[str, int]) -> None:
        """Have `work` make and publish all parts, and wait for it."""
        import ray

        few = sum(parts.values()) < self._fewest
        n_cores = 1 if few else int(ray.cluster_resources().get("CPU", 1))
        found = shares(parts, n_cores)
        if len(found) < 2:
            Alone()(work, parts)
            return
        beside = {"num_cpus": self._num_cpus, "scheduling_strategy": "SPREAD"}
        task = ray.remote(**beside, runtime_env={"env_vars": _ONE_THREAD})(_work)
        pending: list[Any] = [task.remote(self._check, work, each) for each in found]
        try:
            while pending:
                done, pending = ray.wait(pending)
                self.core_seconds += sum(ray.get(done))
        except ray.exceptions.RayTaskError as error:
            raise cause.of_task(error) from None
        except ray.exceptions.RayError as error:
            raise cause.of_ray(error) from error
        finally:
            for each in pending:
                ray.cancel(each)


def _work(
    check: Callable[[], None], work: Callable[[Sequence[str]], None], parts: Sequence[str]
) -> float:
    """Make some parts; returns the seconds of CPU that it took."""
    began = time.process_time()
    check()
    work(parts)
    return time.process_time() - began


def shares(parts: Mapping[str, int], n: int) -> list[list[str]]:
    """The parts in at most `n` shares of about the same size, the largest first in each.

    Source: Graham 1969, "Bounds on multiprocessing timing anomalies": longest processing time
    first.

    >>> shares({"a": 1, "b": 4, "c": 3, "d": 2}, 2)
    [['b', 'a'], ['c', 'd']]
    """
    found: list[list[str]] = [[] for _ in range(min(n, len(parts)))]
    sizes = [(0, share) for share in range(len(found))]
    for part in sorted(parts, key=lambda each: -parts[each]):
        size, share = sizes[0]
        heapq.heapreplace(sizes, (size + parts[part], share))
        found[share].append(part)
    return found
