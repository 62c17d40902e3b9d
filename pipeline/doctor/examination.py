"""All that the doctor looks at: here, on every node of a cluster, and in the stores."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace

from factsweep.operators.errors import FactsweepError, InputError
from factsweep.operators.redact import redactor
from factsweep.pipeline.config.run import Run
from factsweep.pipeline.doctor import gpus, job, load, machine, model, stores
from factsweep.pipeline.doctor.finding import Finding
from factsweep.pipeline.execution import cluster
from factsweep.pipeline.machine import processor

_NODE_S = 120.0
Checks = Callable[[], Iterable[Finding]]


def examined(run: Run, *, load_engine: bool = False) -> Iterator[Finding]:
    """Findings on this machine, on the nodes of cluster.address, and on an engine, if asked."""
    elsewhere = run.cluster.address is not None
    yield from _each(("machine", lambda: machine.checks(run)))
    if not elsewhere:
        yield from _each(("GPUs", lambda: gpus.checks(run)))
    yield from _each(("model", lambda: model.checks(run)))
    yield from _each(
        ("stores", lambda: stores.checks(run)), ("stores", lambda: stores.room_for(run))
    )
    reached = True
    for each in _each(("cluster", lambda: job.checks(run))):
        reached = reached and each.state != "fails"
        yield each
    if elsewhere and reached:
        yield from _each(("cluster", lambda: _nodes(run)))
    if load_engine:
        yield from _each(("load", lambda: load.checks(run)))


def refused(run: Run) -> None:
    """Refuse what no sweep can work with here; this costs nothing, so that every run looks.

    Raises:
        InputError: it says what was found and what to do.
    """
    found = [*machine.checks(run)]
    if run.cluster.address is None and processor.device(run.cluster.device) == "cuda":
        found += gpus.of_driver(run)
    for each in found:
        if each.state == "fails":
            raise InputError(f"{each.group}, {each.check}: {each.found}; {each.fix}.")


def of_node(run: Run, gpus_there: bool, seen: str) -> list[Finding]:
    """What a node that would do the work is asked: its limits, its GPUs, and the same stores.

    `seen` is a file that the driver has just written beside the artifacts.
    """
    looks: list[tuple[str, Checks]] = [("machine", lambda: machine.checks(run))]
    if gpus_there:
        looks.append(("GPUs", lambda: gpus.checks(run)))
    looks += [
        ("stores", lambda: stores.checks(run)),
        ("stores", lambda: [stores.shared(run, seen)]),
    ]
    return list(_each(*looks))


def _nodes(run: Run) -> Iterator[Finding]:
    """A task on every node of Ray's, and what it found."""
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    with cluster.started(run):
        nodes = [node for node in ray.nodes() if node["Alive"]]
        yield Finding.of("cluster", "nodes", f"{len(nodes)} at {run.cluster.address}")
        look = ray.remote(num_cpus=0, max_retries=0)(of_node)
        with stores.marked(run) as seen:
            asked = [
                look.options(
                    scheduling_strategy=NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)
                ).remote(run, bool(node["Resources"].get("GPU")), seen)
                for node in nodes
            ]
            for node, found in zip(nodes, asked, strict=True):
                name = f"{node['NodeManagerHostname']} ({node['NodeManagerAddress']})"
                for each in ray.get(found, timeout=_NODE_S):
                    yield replace(each, group=f"{name}: {each.group}")


def _each(*looks: tuple[str, Checks]) -> Iterator[Finding]:
    """The findings of each, without secrets; one that cannot be looked at fails, and says why."""
    hidden = redactor()
    for group, look in looks:
        try:
            for each in look():
                yield replace(each, found=hidden(each.found), fix=hidden(each.fix))
        except FactsweepError as error:
            yield Finding.of(group, "looked at", "no", fails=hidden(str(error)))
        except Exception as error:  # a check of ours that stumbles must not hide the others
            yield Finding.of(
                group, "looked at", "no", fails=hidden(f"{type(error).__name__}: {error}")
            )
