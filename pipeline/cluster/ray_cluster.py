"""Ray: started here or found at an address, its room for engines, and its nodes that go."""

import logging
import os
import signal
import socket
import stat
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from factsweep.operators.engines.kind import NOT_INSTALLED
from factsweep.operators.errors import DecodingError, InputError, reason
from factsweep.pipeline.cluster.hardware import (
    check_build,
    check_weights,
    device,
    gpus_per_engine,
    sets_of_gpus,
    variables,
)
from factsweep.pipeline.config.run import Run
from factsweep.pipeline.machine.streams import end

_TRIES = 4  # of a Ray whose processes a busy machine starts too late
_EVERY_S = 2.0
_SILENT_S = 30.0  # a head that is started anew, or a network that is out for a moment, comes back
LEAVING = "FACTSWEEP_LEAVING"
_ASKED = "asked"
_LOCK = threading.Lock()
_AT_WORK: list[Path] = []  # the sign of this process, once for each block that it is at


@contextmanager
def started(run: Run, *, offline: bool = False) -> Iterator[None]:
    """A running Ray for the time of the block; `offline`: its workers must not ask the hub.

    Raises:
        InputError: no Ray answers at cluster.address, or it lacks what an engine needs.
    """
    if run.engine.version() == NOT_INSTALLED:
        raise InputError(
            f"{run.engine.name} is not installed, which answers the prompts; {run.engine.install}."
        )
    check_build(run)
    check_weights(run, run.model)
    if run.decoding.determinism == "batch_invariant" and device(run.cluster) == "cpu":
        raise InputError(
            "decoding.determinism=batch_invariant needs an NVIDIA GPU: vLLM's CPU build has no "
            "such kernels. Set it to default; the flip rate in the table is the noise that is left."
        )
    with _running(run, variables(run, offline=offline)):
        _check_room(run, gpus_by_node())
        yield


@contextmanager
def _running(run: Run, environment: dict[str, str]) -> Iterator[None]:
    import ray
    from ray._private import worker

    # Ray starts workers at nice 15, behind its own dashboard; the engines are what it is here for.
    os.environ.setdefault("RAY_worker_niceness", "0")
    # Ray would start idle workers that know nothing of our environment, and take none of our tasks.
    os.environ.setdefault("RAY_prestart_worker_first_driver", "0")
    # One warning of Ray's: that it will leave CUDA_VISIBLE_DEVICES alone, which is what we want.
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    # Nor the traceback of a task that fails when the driver is about to end with its own sentence.
    os.environ.setdefault("RAY_IGNORE_UNHANDLED_ERRORS", "1")
    # Ray would print a page per engine that dies; ours is one sentence (decoding/tally.py).
    worker.print_to_stdstream = lambda *_, **__: None
    _connect(run, environment)
    # A scheduler's polite stop is the same wish as Ctrl-C; Ray has just set a handler of its own.
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
        ray.shutdown()


def _connect(run: Run, environment: dict[str, str]) -> None:
    """Start a Ray here, or join the one at cluster.address; a slow machine gets some tries."""
    import ray

    folder = None if run.cluster.address else _own_folder()
    for tries in range(_TRIES, 0, -1):
        try:
            with of_one_machine():
                ray.init(
                    address=run.cluster.address or "local",  # not one that RAY_ADDRESS names
                    num_cpus=None if run.cluster.address else run.cluster.num_cpus,
                    include_dashboard=False if run.cluster.address is None else None,
                    _temp_dir=folder,
                    log_to_driver=False,
                    logging_level=logging.ERROR,
                    runtime_env={"env_vars": environment},
                )
        except ConnectionError as error:
            if "AuthenticationError" in str(error.__cause__):
                raise InputError(
                    f"the Ray at cluster.address={run.cluster.address} asks for a token; set "
                    "RAY_AUTH_MODE=token, and RAY_AUTH_TOKEN to that of its head."
                ) from error
            raise InputError(
                f"no Ray answers at cluster.address={run.cluster.address}; start one there "
                "(`ray start --head`) or leave the address out."
            ) from error
        except Exception as error:  # Ray's own are of no common kind
            ray.shutdown()
            if tries == 1:
                raise InputError(
                    f"Ray did not start ({reason(error)}); try again when this machine is less "
                    "busy, see that it has memory and room for temporary files, and read the "
                    f"logs of its last session ({folder or 'ray'}/session_latest/logs)."
                ) from error
        else:
            return


@contextmanager
def of_one_machine() -> Iterator[None]:
    """What `ray.init` has no arguments for: a Ray that is started is this machine's alone.

    Nobody reads what its log monitor sends, no node is ever added, and its dashboard would only
    count for Ray's makers who uses it. Its agent, whose libraries are there (ray[default]), takes
    any port: at one that another Ray has, it would try for three seconds, and a raylet whose agent
    tells no port within fifteen dies (Ray issue 65983).
    """
    from ray._private import parameter, services, utils

    known = parameter.RayParams
    small = {"include_log_monitor": False, "no_monitor": True, "dashboard_agent_listen_port": 0}
    ours: dict[tuple[Any, str], Any] = {
        (parameter, "RayParams"): lambda **given: known(**given | small),
        (services, "start_api_server"): lambda *_, **__: (None, None),
        (utils, "get_dashboard_dependency_error"): lambda: None,  # would import them
    }
    before = {place: getattr(*place) for place in ours}
    try:
        for place, value in ours.items():
            setattr(*place, value)
        yield
    finally:
        for place, value in before.items():
            setattr(*place, value)


def _own_folder() -> str:
    """Ray's folder of sockets and logs, in one that is the user's alone: Ray opens its own to all.

    Its path is short: those of sockets end at 107 characters.
    """
    above = os.environ.get("RAY_TMPDIR") or tempfile.gettempdir()
    folder = Path(above, f"factsweep-ray-{os.getuid()}")
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o077:
        raise InputError(
            f"{folder} is not yours alone, and Ray's sockets and logs would lie there; remove it, "
            "or set RAY_TMPDIR to a folder of your own."
        )
    return str(folder / "r")


def _check_room(run: Run, nodes: Sequence[int]) -> None:
    """Before anything loads: do the nodes, by their GPUs, hold the smallest pool?

    The GPUs of one replica are on one node, unless it is pipeline-parallel. Where nodes come when
    engines ask for them, nobody knows yet.
    """
    if run.cluster.autoscales:
        return
    each, replicas = gpus_per_engine(run), sets_of_gpus(run, run.model.replicas.min)
    there = sum(nodes)
    fix = "Set model.replicas.min or model.tensor_parallel lower, or add GPUs."
    if each * replicas > there:
        raise InputError(
            f"{replicas} replicas × {each} GPUs = {each * replicas}; the cluster has {there}. {fix}"
        )
    if each and run.model.pipeline_parallel == 1 and sum(n // each for n in nodes) < replicas:
        raise InputError(
            f"{replicas} replicas × {each} GPUs, each on one node; the cluster's nodes have "
            f"{' + '.join(map(str, nodes))}. {fix}"
        )


def gpus_by_node() -> list[int]:
    """The GPUs of each node, whoever holds them."""
    import ray

    return [int(node["Resources"].get("GPU", 0)) for node in ray.nodes() if node["Alive"]]


def room(run: Run) -> str:
    """What the pool asks of the cluster and what is free there, for messages."""
    import ray

    each, replicas = gpus_per_engine(run), run.model.replicas.min
    kind, each = ("GPU", each) if each else ("CPU", 1)
    found = (ray.cluster_resources(), ray.available_resources())
    there, free = (resources.get(kind, 0) for resources in found)
    return (
        f"{replicas} replicas × {each} {kind}s were asked for; the cluster has {there:.0f}, "
        f"{free:.0f} of them free"
    )


def host(node_id: str) -> str:
    """The name of the machine that a node of Ray's is."""
    import ray

    names = {node["NodeID"]: str(node["NodeManagerHostname"]) for node in ray.nodes()}
    return names.get(node_id, f"node {node_id}")


def beside_driver() -> Any:
    """Where Ray puts what all the work hangs on: on the driver's node, which no one takes away."""
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    # Not soft: Ray 2.60 puts a soft one that asks for no CPU anywhere.
    return NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False)


def placement(run: Run) -> dict[str, Any]:
    """What Ray is told about where an engine goes.

    One process holds all GPUs of a replica on one node, vLLM's workers inside; engines without GPUs
    are spread. A pipeline-parallel replica may lie on several nodes: a placement group of one GPU
    per bundle, in which vLLM starts its workers itself.
    """
    gpus = gpus_per_engine(run)
    if run.model.pipeline_parallel == 1 or run.engine.gpus != "parallel":
        share = gpus / run.model.replicas.per_gpu
        return {"num_cpus": 1, "num_gpus": share, "scheduling_strategy": "SPREAD"}
    from ray.util import placement_group
    from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

    # The first bundle is the engine's own: it cannot stand beside the bundles.
    bundles = [{"CPU": 1}, *({"GPU": 1} for _ in range(gpus))]
    strategy = PlacementGroupSchedulingStrategy(
        placement_group(bundles, strategy="PACK"),
        placement_group_bundle_index=0,
        placement_group_capture_child_tasks=True,
    )
    return {"num_cpus": 1, "scheduling_strategy": strategy}


@contextmanager
def head_watched(address: str, gone: Callable[[DecodingError], None]) -> Iterator[None]:
    """End the process with code 1 if `address` is silent for 30 s; `gone` is called before.

    A call to a head that is gone blocks, and after a minute Ray's C++ ends the whole process
    without a word. So a thread asks the head's port for a connection, and ends it sooner.
    """
    over = threading.Event()
    threading.Thread(target=_watch, args=(address, gone, over), daemon=True).start()
    try:
        yield
    finally:
        over.set()


def _watch(address: str, gone: Callable[[DecodingError], None], over: threading.Event) -> None:
    heard = time.monotonic()
    while not over.wait(_EVERY_S):
        silence = _silence(address)
        if silence is None:
            heard = time.monotonic()
        elif time.monotonic() - heard > _SILENT_S and not over.is_set():
            error = DecodingError(
                f"Ray's head at {address} has not answered for {_SILENT_S:g} seconds ({silence}): "
                "it was killed, or its machine is gone; what is published is kept, and the next "
                "run resumes."
            )
            try:
                gone(error)
            finally:
                end(DecodingError.exit_code)


def _silence(address: str) -> str | None:
    """Why there is no connection to a port; null if there is one."""
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host, int(port)), timeout=_EVERY_S).close()
    except OSError as error:
        return reason(error)
    return None


def is_leaving() -> bool:
    """Whether somebody on this node has asked its engines to publish what is finished.

    Ray itself marks a node whose `ray start --block` is sent SIGTERM: it is being drained. Where a
    process would be killed before that, a folder of the node is the sign: $FACTSWEEP_LEAVING names
    it for all that runs there. Its file `asked` asks the engines to publish what is finished; each
    that has something to publish keeps a file there that is named after its process, until it has.
    `leave.sh` asks, and waits for them.
    """
    folder = os.environ.get(LEAVING)
    return folder is not None and Path(folder, _ASKED).exists()


@contextmanager
def at_work() -> Iterator[None]:
    """Let who asks wait for the end of the block, and of all others of this process."""
    folder = os.environ.get(LEAVING)
    if folder is None:
        yield
        return
    sign = Path(folder, str(os.getpid()))
    with _LOCK:
        _AT_WORK.append(sign)
        sign.parent.mkdir(parents=True, exist_ok=True)
        sign.touch()
    try:
        yield
    finally:
        with _LOCK:
            _AT_WORK.remove(sign)
            if sign not in _AT_WORK:
                sign.unlink(missing_ok=True)


def draining_nodes() -> set[str]:
    """The nodes that Ray is about to take away, by their ids."""
    from ray._private.state import state

    try:
        return set(state.get_draining_nodes())
    except Exception:  # Ray's own are of no common kind
        return set()  # Ray is gone: who waits for its tasks says so
