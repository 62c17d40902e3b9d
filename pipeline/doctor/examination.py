"""All that the doctor looks at: here, on every node of a cluster, and in the stores."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace

from factsweep.operators.errors import FactsweepError
from factsweep.operators.redact import redactor
from factsweep.pipeline.config.settings import Run
from factsweep.pipeline.doctor import gpus, machine, model, stores
from factsweep.pipeline.doctor.finding import Finding
from factsweep.pipeline.execution import cluster

Checks = Callable[[], Iterable[Finding]]


def examined(run: Run) -> Iterator[Finding]:
    """Findings on this machine, and on the nodes of cluster.address, if one is given."""
    yield from _each(("machine", machine.checks), ("GPUs", lambda: gpus.checks(run)))
    yield from _each(("model", lambda: model.checks(run)), ("stores", lambda: stores.checks(run)))
    if run.cluster.address is not None:
        yield from _each(("cluster", lambda: _nodes(run)))


def of_node(run: Run) -> list[Finding]:
    """What a node that would do the work is asked: its limits, its GPUs, and the same stores."""
    looks = (
        ("machine", machine.checks),
        ("GPUs", lambda: gpus.checks(run)),
        ("stores", lambda: stores.checks(run)),
    )
    return list(_each(*looks))


def _nodes(run: Run) -> Iterator[Finding]:
    """A task on every node of Ray's, and what it found."""
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    with cluster.started(run):
        nodes = [node for node in ray.nodes() if node["Alive"]]
        yield Finding.of("cluster", "nodes", f"{len(nodes)} at {run.cluster.address}")
        look = ray.remote(num_cpus=0, max_retries=0)(of_node)
        asked = {
            node["NodeManagerHostname"]: look.options(
                scheduling_strategy=NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)
            ).remote(run)
            for node in nodes
        }
        for name, found in asked.items():
            for each in ray.get(found, timeout=120):
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
