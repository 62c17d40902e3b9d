"""The pool of engines: Ray Data actors that are fed with shard descriptors, not with rows.

An actor reads its shard, decodes it and publishes it: no answer lives in Ray's object store, and
losing a node loses only what was in flight.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import ray

from factsweep.operators.errors import StoppedError
from factsweep.pipeline.cluster.hardware import most_engines
from factsweep.pipeline.cluster.ray_cluster import placement
from factsweep.pipeline.config.run import Run
from factsweep.pipeline.decoding.decoder import Decoder
from factsweep.pipeline.decoding.queue import Queue, Shard
from factsweep.pipeline.decoding.remaining_work import finish_all, paid
from factsweep.pipeline.stages.plan import Plan
from factsweep.pipeline.storage.lease import Lease

# Shards that an engine has: one that it answers, and one that follows, waits or is published. One
# alone takes none from others: small sets have shards of fewer prompts than it answers together.
_AT_ONCE, _ALONE = 2, 4


def decode_all(
    plan: Plan, tally: Any, leases: Mapping[str, Lease], ready: Sequence[Any], *_after: None
) -> None:
    """Decode every shard that is missing, and publish each manifest when its last one is there.

    A Ray task. `ready` are the futures of each setting's prompts where some are still written;
    where all are there, none.
    """
    queue = Queue(plan, tally, leases, ready)
    if shards := queue.first():
        if plan.run.max_cost is not None:
            ray.get(tally.fund.remote(plan.run.max_cost, paid(plan)))
        for answered in _decode(plan, queue, shards, tally):
            finish_all(plan, leases, answered)
        if ray.get(tally.add.remote({})):
            raise StoppedError("stopped; the next run resumes from what is published.")
    finish_all(plan, leases)


def _decode(plan: Plan, queue: Queue, shards: list[Shard], tally: Any) -> Iterator[str]:
    """Decode all; the folder of each artifact when the last of its shards is done."""
    if plan.run.cluster.address is None:
        from factsweep.pipeline.cluster import one_machine

        one_machine.prepare()
    context = ray.data.DataContext.get_current()
    context.enable_progress_bars = False
    context.print_on_execution_start = False
    context.memory_usage_poll_interval_s = None  # a thread for each shard, which nobody reads
    # Ray counts shards by the calls that may go on at once; its own limits are for one at a time.
    scaling = context.autoscaling_config
    run = plan.run
    pool = engines(run, queue.expected(shards))
    scaling.actor_pool_util_upscaling_threshold = 1.75 / pool.max_concurrent_calls_per_actor
    scaling.actor_pool_util_downscaling_threshold = 0.5 / pool.max_concurrent_calls_per_actor
    done = queue.rows(shards).map_batches(
        Decoder,
        fn_constructor_args=(run, plan.loaded, tally),
        batch_size=1,
        compute=pool,
        **placement(run),
    )
    broke, n_done = False, Counter[str]()
    for row in done.iter_rows():
        if isinstance(row["error"], StoppedError):
            broke = True  # the others are to end what is under way
        elif row["error"] is not None:
            raise row["error"]
        n_done[row["artifact"]] += 1
        if n_done[row["artifact"]] == row["of"]:
            yield row["artifact"]
    if broke:
        raise _broke(run, ray.get(tally.spent.remote()))


def engines(run: Run, n_shards: int) -> "ray.data.ActorPoolStrategy":
    """How many engines are asked for: at first, and at least and at most while there is work.

    On a cluster all that the work needs is asked for at once, and not in doubling steps.
    """
    replicas = run.model.replicas
    most = min(most_engines(run), max(replicas.min, n_shards))
    at_once = _ALONE if most == 1 else _AT_ONCE
    return ray.data.ActorPoolStrategy(
        min_size=replicas.min,
        max_size=most,
        initial_size=replicas.min if run.cluster.address is None else most,
        max_tasks_in_flight_per_actor=at_once,
        max_concurrent_calls_per_actor=at_once,
        enable_true_multi_threading=True,
    )


def _broke(run: Run, spent: float) -> StoppedError:
    return StoppedError(
        f"stopped at {spent:.4g} spent, before max_cost={run.max_cost:g} is exceeded; what is "
        "answered is kept, and a run with a higher max_cost resumes from it."
    )
