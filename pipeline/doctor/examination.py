"""The checks of the doctor: on this machine, on every node of a cluster, and of the stores."""

import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

from factsweep.operators.errors import FactsweepError, reason
from factsweep.operators.wording.redaction import redactor
from factsweep.pipeline.cluster import machine_checks
from factsweep.pipeline.cluster import ray_cluster as cluster
from factsweep.pipeline.cluster.hardware import gpus_per_engine
from factsweep.pipeline.cluster.machine_checks import Finding
from factsweep.pipeline.config.cluster import Slurm
from factsweep.pipeline.config.run import Run
from factsweep.pipeline.doctor import model, stores
from factsweep.pipeline.runs.inventory import to_absolute
from factsweep.pipeline.storage.store import Store

_NODE_S, _REACHED_WITHIN_S = 120.0, 5.0
_ALIKE = ("GPUs", "driver", "compute capability", "engine", "words")  # on all nodes of a sweep
Check = tuple[str, Callable[[], Iterable[Finding]]]  # a group, and the function that checks it
Task = tuple[str, Any, float]  # a node, the future of its findings, and its time limit in seconds


def examine(run: Run, *, load_engine: bool = False) -> Iterator[Finding]:
    """Findings on this machine, on the nodes of cluster.address, and on an engine, if wanted."""
    checks = _of_machine(run, model.check_model, has_gpus=run.cluster.address is None)
    artifacts, _ = checks[-1]
    yield from _run_checks(*checks, (artifacts, partial(stores.check_room, run)))
    if run.cluster.address is not None:
        (reached,) = _run_checks(("cluster", lambda: [_check_address(str(run.cluster.address))]))
        yield reached
        if reached.state != "fails":
            yield from _run_checks(("cluster", partial(_nodes, run)))
    if load_engine:
        yield from _run_checks(("load", partial(model.load_engine, run)))


def of_node(run: Run, has_gpus: bool, marker: str) -> list[Finding]:
    """Findings on a node that would compute: its limits, GPUs and software, the same stores.

    `marker` is a file that the driver has just written to the store of artifacts.
    """
    checks = _of_machine(run, model.of_node, has_gpus=has_gpus)
    return list(_run_checks(*checks, ("stores", lambda: [stores.check_shared(run, marker)])))


def _of_machine(
    run: Run, of_model: Callable[[Run], Iterable[Finding]], *, has_gpus: bool
) -> list[Check]:
    """The checks of a machine; the store of artifacts is the last."""
    roots = {"results": run.results, "artifacts": run.artifacts}
    return [
        ("machine", partial(machine_checks.check_machine, run)),
        *([("GPUs", partial(machine_checks.check_gpus, run))] if has_gpus else []),
        ("engine, model and data", partial(of_model, run)),
        *(
            (f"{name}: {to_absolute(root)}", partial(stores.check_store, Store(root)))
            for name, root in roots.items()
        ),
    ]


def _nodes(run: Run) -> Iterator[Finding]:
    """The findings of a task on every node of Ray, then the differences between nodes.

    If no node has a GPU yet and the engine needs some, one is requested, as by a sweep: an
    autoscaler adds it.
    """
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    with cluster.start_ray(run):
        nodes = [node for node in ray.nodes() if node["Alive"]]
        yield _as_many(run, len(nodes))
        remote = ray.remote(num_cpus=0, max_retries=0)(of_node)
        with stores.marker_file(run) as marker:
            tasks: list[Task] = []
            for node in nodes:
                strategy = NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)
                has_gpus = bool(node["Resources"].get("GPU"))
                future = remote.options(scheduling_strategy=strategy).remote(run, has_gpus, marker)
                name = f"{node['NodeManagerHostname']} ({node['NodeManagerAddress']})"
                tasks.append((name, future, _NODE_S))
            if gpus_per_engine(run) and not any(node["Resources"].get("GPU") for node in nodes):
                placed = ray.remote(max_retries=0, **cluster.placement(run))(of_node)
                future = placed.remote(run, True, marker)
                tasks.append(("a node for an engine", future, run.cluster.start_s))
            yield from _collect_findings(tasks)


def _as_many(run: Run, n: int) -> Finding:
    """Whether the job has as many nodes as requested; a sweep starts without late ones."""
    launch = run.cluster.launch
    n_requested = launch.nodes if isinstance(launch, Slurm) else None
    text = f"{n} at {run.cluster.address}" + (f" of {n_requested}" if n_requested else "")
    fix = "the others are late, or their `ray start` failed; read their logs beside the job's"
    return Finding.of("nodes", text, fails=fix if n_requested and n < n_requested else "")


def _collect_findings(tasks: Iterable[Task]) -> Iterator[Finding]:
    """The findings of nodes, or that a node did not answer within its time limit."""
    import ray

    values: dict[str, dict[str, str]] = {}  # by check and node
    for name, future, limit_s in tasks:
        try:
            findings = ray.get(future, timeout=limit_s)
        except ray.exceptions.RayError as error:
            fix = f"it does not answer within {limit_s:g} s; look at it, or leave it out"
            yield Finding.of("looked at", f"{name}: {reason(error)}", fails=fix)
            continue
        for finding in findings:
            yield replace(finding, group=f"{name}: {finding.group}")
            if finding.check in _ALIKE:
                values.setdefault(finding.check, {})[name] = finding.found
    for check, by_node in values.items():
        if len(set(by_node.values())) > 1:
            text = "; ".join(f"{value} on {node}" for node, value in by_node.items())
            fix = "answers of one sweep would differ between nodes; ask for nodes of one kind"
            yield Finding.of("nodes differ", f"{check}: {text}", warns=fix)


def _run_checks(*checks: Check) -> Iterator[Finding]:
    """The findings of each group, without secrets; an error in a check is a finding, too."""
    hidden = redactor()
    for group, check in checks:
        try:
            for f in check():
                yield replace(f, group=f.group or group, found=hidden(f.found), fix=hidden(f.fix))
        except Exception as error:  # must not hide the findings of other groups
            is_ours = isinstance(error, FactsweepError)
            problem = str(error) if is_ours else f"{type(error).__name__}: {error}"
            yield replace(Finding.of("looked at", "no", fails=hidden(problem)), group=group)


def _check_address(address: str) -> Finding:
    """Whether an address accepts connections; `auto` is resolved by Ray itself."""
    target = os.environ.get("RAY_ADDRESS", "") if address == "auto" else address
    host, _, port = target.rpartition(":")
    if not host or not port.isdigit():
        return Finding.of("address", f"{address}, which Ray finds by itself")
    error = cluster.connection_error(target, _REACHED_WITHIN_S)
    fix = "start a Ray there (ray start --head), or open the port in the firewall"
    text = f"{target}: {error}" if error else f"{target} listens"
    return Finding.of("address", text, fails=fix if error else "")
