"""All that the doctor looks at: here, on every node of a cluster, and in the stores."""

import os
import socket
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

from factsweep.operators.errors import FactsweepError, reason
from factsweep.operators.wording.redact import redactor
from factsweep.pipeline.cluster import machine
from factsweep.pipeline.cluster import ray_cluster as cluster
from factsweep.pipeline.cluster.hardware import gpus_per_engine
from factsweep.pipeline.cluster.machine import Finding
from factsweep.pipeline.config.cluster import Slurm
from factsweep.pipeline.config.run import Run
from factsweep.pipeline.doctor import model, stores
from factsweep.pipeline.runs.inventory import absolute
from factsweep.pipeline.storage.store import Store

_NODE_S, _REACHED_WITHIN_S = 120.0, 5.0
_ALIKE = ("GPUs", "driver", "compute capability", "engine", "words")  # on all nodes of a sweep
Look = tuple[str, Callable[[], Iterable[Finding]]]  # a group, and what is found there
Asked = tuple[str, Any, float]  # a node, the future that has what it finds, in how many seconds


def examined(run: Run, *, load_engine: bool = False) -> Iterator[Finding]:
    """Findings on this machine, on the nodes of cluster.address, and on an engine, if asked."""
    here = _of_machine(run, model.checks, gpus_there=run.cluster.address is None)
    artifacts, _ = here[-1]
    yield from _each(*here, (artifacts, partial(stores.room_for, run)))
    if run.cluster.address is not None:
        (reached,) = _each(("cluster", lambda: [_reached(str(run.cluster.address))]))
        yield reached
        if reached.state != "fails":
            yield from _each(("cluster", partial(_nodes, run)))
    if load_engine:
        yield from _each(("load", partial(model.loaded, run)))


def of_node(run: Run, gpus_there: bool, seen: str) -> list[Finding]:
    """What a node that would do the work is asked: its limits, GPUs and software, the same stores.

    `seen` is a file that the driver has just written beside the artifacts.
    """
    there = _of_machine(run, model.of_node, gpus_there=gpus_there)
    return list(_each(*there, ("stores", lambda: [stores.shared(run, seen)])))


def _of_machine(
    run: Run, of_model: Callable[[Run], Iterable[Finding]], *, gpus_there: bool
) -> list[Look]:
    """What is looked at on a machine; the store of artifacts is the last."""
    places = {"results": run.results, "artifacts": run.artifacts}
    return [
        ("machine", partial(machine.checks, run)),
        *([("GPUs", partial(machine.of_gpus, run))] if gpus_there else []),
        ("engine, model and data", partial(of_model, run)),
        *(
            (f"{name}: {absolute(place)}", partial(stores.checks, Store(place)))
            for name, place in places.items()
        ),
    ]


def _nodes(run: Run) -> Iterator[Finding]:
    """A task on every node of Ray's, and what it found; then what the nodes differ in.

    Where none has a GPU yet and the engine needs some, one is asked for, as a sweep would: an
    autoscaler brings it.
    """
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    with cluster.started(run):
        nodes = [node for node in ray.nodes() if node["Alive"]]
        yield _as_many(run, len(nodes))
        look = ray.remote(num_cpus=0, max_retries=0)(of_node)
        with stores.marked(run) as seen:
            asked: list[Asked] = []
            for node in nodes:
                there = NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)
                task = look.options(scheduling_strategy=there)
                found = task.remote(run, bool(node["Resources"].get("GPU")), seen)
                name = f"{node['NodeManagerHostname']} ({node['NodeManagerAddress']})"
                asked.append((name, found, _NODE_S))
            wanted = gpus_per_engine(run)
            if wanted and not any(node["Resources"].get("GPU") for node in nodes):
                task = ray.remote(max_retries=0, **cluster.placement(run))(of_node)
                found = task.remote(run, True, seen)
                asked.append(("a node for an engine", found, run.cluster.start_s))
            yield from _answered(asked)


def _as_many(run: Run, n: int) -> Finding:
    """Whether there are as many nodes as the job asked for; a sweep goes on without late ones."""
    launch = run.cluster.launch
    wanted = launch.nodes if isinstance(launch, Slurm) else None
    told = f"{n} at {run.cluster.address}" + (f" of {wanted}" if wanted else "")
    fix = "the others are late, or their `ray start` failed; read their logs beside the job's"
    return Finding.of("nodes", told, fails=fix if wanted and n < wanted else "")


def _answered(asked: Iterable[Asked]) -> Iterator[Finding]:
    """What nodes answer, each within its seconds; one that does not is named, and others follow."""
    import ray

    said: dict[str, dict[str, str]] = {}  # by check: what each node has
    for name, task, within_s in asked:
        try:
            found = ray.get(task, timeout=within_s)
        except ray.exceptions.RayError as error:
            fix = f"it does not answer within {within_s:g} s; look at it, or leave it out"
            yield Finding.of("looked at", f"{name}: {reason(error)}", fails=fix)
            continue
        for each in found:
            yield replace(each, group=f"{name}: {each.group}")
            if each.check in _ALIKE:
                said.setdefault(each.check, {})[name] = each.found
    for check, by_node in said.items():
        if len(set(by_node.values())) > 1:
            told = "; ".join(f"{each} on {node}" for node, each in by_node.items())
            fix = "answers of one sweep would differ between nodes; ask for nodes of one kind"
            yield Finding.of("nodes differ", f"{check}: {told}", warns=fix)


def _each(*looks: Look) -> Iterator[Finding]:
    """The findings of each group, without secrets; a look that stumbles fails, and says why."""
    hidden = redactor()
    for group, look in looks:
        try:
            for each in look():
                own = each.group or group
                yield replace(each, group=own, found=hidden(each.found), fix=hidden(each.fix))
        except Exception as error:  # one of ours must not hide the others
            is_told = isinstance(error, FactsweepError)
            why = str(error) if is_told else f"{type(error).__name__}: {error}"
            yield replace(Finding.of("looked at", "no", fails=hidden(why)), group=group)


def _reached(address: str) -> Finding:
    """Whether anything listens at an address; `auto` is looked up by Ray itself."""
    place = os.environ.get("RAY_ADDRESS", "") if address == "auto" else address
    host, _, port = place.rpartition(":")
    if not host or not port.isdigit():
        return Finding.of("address", f"{address}, which Ray finds by itself")
    try:
        socket.create_connection((host, int(port)), _REACHED_WITHIN_S).close()
    except OSError as error:
        fix = "start a Ray there (ray start --head), or open the port in the firewall"
        return Finding.of("address", f"{place}: {error.strerror or error}", fails=fix)
    return Finding.of("address", f"{place} listens")
