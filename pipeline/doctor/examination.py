"""The checks of the doctor: on this machine, on every node of a cluster, and of the stores."""

import os
import statistics
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any
from uuid import uuid4

from factsweep.operators.errors import FactsweepError, reason
from factsweep.operators.wording import count
from factsweep.operators.wording.redaction import redactor
from factsweep.pipeline.cluster import machine_checks
from factsweep.pipeline.cluster import ray_cluster as cluster
from factsweep.pipeline.cluster.hardware import gpus_per_engine
from factsweep.pipeline.cluster.machine_checks import Finding
from factsweep.pipeline.config.cluster import Slurm
from factsweep.pipeline.config.run import Run
from factsweep.pipeline.decoding.costs import predict_costs
from factsweep.pipeline.doctor import model
from factsweep.pipeline.runs.forecast import forecast, list_missing_answers
from factsweep.pipeline.runs.inventory import to_absolute
from factsweep.pipeline.storage.store import Store

_AT_ONCE, _TURNS = 8, 4
_SLOW_MS = 500.0
_LEAST_GB = 5.0
_NODE_S, _REACHED_WITHIN_S = 120.0, 5.0
_ALIKE = ("GPUs", "driver", "compute capability", "engine", "words")  # on all nodes of a sweep
Check = tuple[str, Callable[[], Iterable[Finding]]]  # a group, and the function that checks it
Task = tuple[str, Any, float]  # a node, the future of its findings, and its time limit in seconds


def examine(run: Run, *, load_engine: bool = False) -> Iterator[Finding]:
    """Findings on this machine, on the nodes of cluster.address, and on an engine, if wanted."""
    checks = _list_machine_checks(run, model.check_model, has_gpus=run.cluster.address is None)
    artifacts, _ = checks[-1]
    yield from _run_checks(*checks, (artifacts, partial(check_room, run)))
    if run.cluster.address is not None:
        (reached,) = _run_checks(("cluster", lambda: [_check_address(str(run.cluster.address))]))
        yield reached
        if reached.state != "fails":
            yield from _run_checks(("cluster", partial(_check_nodes, run)))
    if load_engine:
        yield from _run_checks(("load", partial(model.load_engine, run)))


def check_node(run: Run, has_gpus: bool, marker: str) -> list[Finding]:
    """Findings on a node that would compute: its limits, GPUs and software, the same stores.

    `marker` is a file that the driver has just written to the store of artifacts.
    """
    checks = _list_machine_checks(run, model.check_node, has_gpus=has_gpus)
    return list(_run_checks(*checks, ("stores", lambda: [check_shared(run, marker)])))


def _list_machine_checks(
    run: Run, of_model: Callable[[Run], Iterable[Finding]], *, has_gpus: bool
) -> list[Check]:
    """The checks of a machine; the store of artifacts is the last."""
    roots = {"results": run.results, "artifacts": run.artifacts}
    return [
        ("machine", partial(machine_checks.check_machine, run)),
        *([("GPUs", partial(machine_checks.check_gpus, run))] if has_gpus else []),
        ("engine, model and data", partial(of_model, run)),
        *(
            (f"{name}: {to_absolute(root)}", partial(check_store, Store(root)))
            for name, root in roots.items()
        ),
    ]


def _check_nodes(run: Run) -> Iterator[Finding]:
    """The findings of a task on every node of Ray, then the differences between nodes.

    If no node has a GPU yet and the engine needs some, one is requested, as by a sweep: an
    autoscaler adds it.
    """
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    with cluster.start_ray(run):
        nodes = [node for node in ray.nodes() if node["Alive"]]
        yield _check_node_count(run, len(nodes))
        remote = ray.remote(num_cpus=0, max_retries=0)(check_node)
        with marker_file(run) as marker:
            tasks: list[Task] = []
            for node in nodes:
                strategy = NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)
                has_gpus = bool(node["Resources"].get("GPU"))
                future = remote.options(scheduling_strategy=strategy).remote(run, has_gpus, marker)
                name = f"{node['NodeManagerHostname']} ({node['NodeManagerAddress']})"
                tasks.append((name, future, _NODE_S))
            if gpus_per_engine(run) and not any(node["Resources"].get("GPU") for node in nodes):
                placed = ray.remote(max_retries=0, **cluster.placement(run))(check_node)
                future = placed.remote(run, True, marker)
                tasks.append(("a node for an engine", future, run.cluster.start_s))
            yield from _collect_findings(tasks)


def _check_node_count(run: Run, n: int) -> Finding:
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


def check_room(run: Run) -> Iterator[Finding]:
    """Whether the disk of the artifacts has room for the run; for a folder only.

    No prompt is tokenised: the size of answers is known per prompt.
    """
    store = Store(run.artifacts)
    if (free := store.free()) is None:
        return
    check = "room for the run"
    try:
        plan, forecasts = forecast(run, tokens=False)
    except FactsweepError as error:
        fix = "repair what fails, and ask again"
        yield Finding.of(check, f"not known, since there is no plan: {error}", warns=fix)
        return
    needed = float(
        predict_costs(plan, list_missing_answers(plan, forecasts))["bytes"].fill_null(0).sum()
    )
    n = sum(sum(setting.prompts.values()) for setting in forecasts)
    text = f"{needed / 1e9:,.2f} GB to write for {count(n, 'prompt')}, {free / 1e9:,.0f} GB free"
    fix = "free some, or give artifacts= on a larger disk"
    yield Finding.of(check, text, fails=fix if needed > free else "")


@contextmanager
def marker_file(run: Run) -> Iterator[str]:
    """A file in the store of artifacts that every node must see; removed at the end."""
    name = f".doctor-{uuid4().hex}/seen"
    store = Store(run.artifacts)
    store.put(name, b"x")
    try:
        yield name
    finally:
        _remove_files(store, name.rpartition("/")[0])


def check_shared(run: Run, marker: str) -> Finding:
    """Whether a file that the driver wrote to the store of artifacts is seen from here."""
    is_seen = Store(run.artifacts).exists(marker)
    fix = f"artifacts={run.artifacts} is another folder here; give one that all nodes share"
    text = f"the driver's file is {'seen' if is_seen else 'not seen'}"
    return Finding.of("shared with the driver", text, fails="" if is_seen else fix)


def check_store(store: Store) -> Iterator[Finding]:
    """The checks of a store; their files are removed again."""
    folder = f".doctor-{uuid4().hex}"
    try:
        yield _check_writes(store, folder)
        yield _check_created_once(store, folder)
        names = {Path(name).name for name in store.names(folder)}
        missing = {f"written-{i}" for i in range(_TURNS)} - names
        fix = "new files are not listed at once; runs would decode them again"
        text = f"{count(len(missing), 'file')} missing" if missing else "at once"
        yield Finding.of("files are listed", text, fails=fix if missing else "")
        yield _check_drop(store, f"{folder}/written-0")
    except (FactsweepError, OSError) as error:
        fix = "check that it is there, and that you may write, list and drop files below it"
        yield Finding.of("written and read", reason(error), fails=fix)
    finally:
        _remove_files(store, folder)
    if (free := store.free()) is not None:
        fix = "answers and weights need more; `factsweep plan` says how much a run writes"
        is_small = free / 1e9 < _LEAST_GB
        yield Finding.of("free", f"{free / 1e9:,.0f} GB", fails=fix if is_small else "")


def _check_writes(store: Store, folder: str) -> Finding:
    """The time to write a file, and whether it is read back."""
    times_ms = []
    for i in range(_TURNS):
        started_at = time.perf_counter()
        store.put(f"{folder}/written-{i}", b"x")
        times_ms.append(1e3 * (time.perf_counter() - started_at))
    is_same = all(store.get(f"{folder}/written-{i}") == b"x" for i in range(_TURNS))
    fix = "it is no store to work with: another content is read than was written"
    median = statistics.median(times_ms)
    slow = "each shard waits for several such calls; choose a nearer bucket or a faster disk"
    fails, warns = "" if is_same else fix, slow if median > _SLOW_MS else ""
    return Finding.of("written and read", f"{median:,.1f} ms a file", fails=fails, warns=warns)


def _check_created_once(store: Store, folder: str) -> Finding:
    """Several clients create the same file at once, in turns: exactly one may succeed."""
    n_winners = []
    for turn in range(_TURNS):
        name = f"{folder}/once-{turn}"
        with ThreadPoolExecutor(_AT_ONCE) as clients:
            contents = [str(i).encode() for i in range(_AT_ONCE)]
            created = clients.map(lambda c, name=name: store.put_new(name, c), contents)
            n_winners.append(sum(created))
    wrong = [n for n in n_winners if n != 1]
    text = f"{max(wrong) if wrong else 'one'} of {_AT_ONCE} clients did"
    fix = "two drivers could work on the same artifact there; use S3, or a folder with hard links"
    return Finding.of("a file is created once", text, fails=fix if wrong else "")


def _check_drop(store: Store, name: str) -> Finding:
    """Roles that may write may not be allowed to remove: leases and chunks would stay for ever."""
    try:
        store.drop(name)
        problem = "it is still there" if store.exists(name) else ""
    except (FactsweepError, OSError) as error:
        problem = reason(error)
    fix = "give the role the right to delete below it (s3:DeleteObject)"
    return Finding.of("files are dropped", problem or "yes", fails=fix if problem else "")


def _remove_files(store: Store, folder: str) -> None:
    """Remove the files of a check; a store that refuses has a finding already."""
    try:
        for name in store.names(folder):
            store.drop(f"{folder}/{name}")
        store.drop_empty(folder)
    except (FactsweepError, OSError):
        return
