"""Ray: started here or joined at an address, its room for engines, and nodes being removed."""

import itertools
import logging
import os
import shutil
import signal
import socket
import stat
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any

from factsweep.operators.engines.protocol import NOT_INSTALLED
from factsweep.operators.errors import DecodingError, InputError, StoppedError, reason
from factsweep.pipeline.cluster.hardware import (
    check_build,
    check_weights,
    gpus_per_engine,
    sets_of_gpus,
    worker_variables,
)
from factsweep.pipeline.config.run import Run
from factsweep.pipeline.machine.logs import LOG, note
from factsweep.pipeline.machine.streams import end

_TRIES = 4  # to start a Ray on a busy machine
_EVERY_S = 2.0
_SILENT_S = 30.0  # a restarted head, or an interrupted network, comes back sooner
METRICS_PORTS = range(8090, 8100)  # of several runs on a machine, which Prometheus scrapes
LEAVING = "FACTSWEEP_LEAVING"
_ASKED = "asked"
_KEPT_S = 86_400.0  # the logs of Ray after a failure
_LOCK = threading.Lock()
_SHARED: "list[_Session]" = []  # of the blocks `share_ray` that this process is in
_AT_WORK: list[Path] = []  # the file of this process, once per block that it is in


def check_engine(run: Run) -> None:
    """Refuse an engine that is not installed, or cannot compute with the weights on this device."""
    if run.engine.version() == NOT_INSTALLED:
        raise InputError(
            f"{run.engine.name} is not installed, which answers the prompts; {run.engine.install}."
        )
    check_build(run)
    check_weights(run, run.model)
    if run.decoding.determinism == "batch_invariant" and run.device == "cpu":
        raise InputError(
            "decoding.determinism=batch_invariant needs an NVIDIA GPU: vLLM's CPU build has no "
            "such kernels. Set it to default; the flip rate in the table is the noise that is left."
        )


@contextmanager
def start_ray(run: Run, *, offline: bool = False) -> Iterator[None]:
    """A running Ray during the block; `offline`: its workers must not ask the hub."""
    check_engine(run)
    from ray._private import worker

    # Ray starts workers at nice 15, behind its own dashboard; the engines have priority here.
    os.environ.setdefault("RAY_worker_niceness", "0")
    # Ray would start idle workers without our environment, which take none of our tasks.
    os.environ.setdefault("RAY_prestart_worker_first_driver", "0")
    # Ray warns that it will leave CUDA_VISIBLE_DEVICES alone, which is intended.
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    # The driver prints its own sentence for a failed task, instead of the traceback.
    os.environ.setdefault("RAY_IGNORE_UNHANDLED_ERRORS", "1")
    # Ray would print a page per dead engine; `decoding/progress_counter.py` prints one sentence.
    worker.print_to_stdstream = lambda *_, **__: None
    environment = worker_variables(run, offline=offline)
    session = _SHARED[-1] if _SHARED else _Session()
    try:
        session.join(run, environment)
        _check_room(run, gpus_by_node())
        yield
    except BaseException as error:
        session.end(error)  # no later run begins with a Ray that may be broken
        raise
    if session not in _SHARED:
        session.end()


@contextmanager
def share_ray() -> Iterator[None]:
    """Have the runs of this block use one Ray, until one of them fails or needs another."""
    session = _Session()
    _SHARED.append(session)
    try:
        yield
    finally:
        _SHARED.remove(session)
        session.end()


def shared_actor(start: Callable[[], Any]) -> Any:
    """The actor that all runs of a block `share_ray` use, started by the first; null outside."""
    if not _SHARED:
        return None
    session = _SHARED[-1]
    session.actor = session.actor or start()
    return session.actor


class _Session:
    """A Ray that one run uses, or several: what they need of it, and an actor of theirs."""

    def __init__(self) -> None:
        self._stack = ExitStack()
        self._needs: object = None
        self.actor: Any = None

    def join(self, run: Run, environment: dict[str, str]) -> None:
        """Start a Ray for a run, or join that of the run before where it is as needed."""
        import ray

        cluster = run.cluster
        needs = (cluster.address, cluster.num_cpus, _count_pretended_gpus(run), environment)
        if needs == self._needs:
            head = ray.get_runtime_context().gcs_address
            if connection_error(head, _EVERY_S) is None:
                return
        self.end()
        folder = self._stack.enter_context(
            nullcontext() if cluster.address else _make_private_folder()
        )
        self._stack.callback(_end_ray)
        _connect(run, environment, folder)
        self._needs = needs

    def end(self, error: BaseException | None = None) -> None:
        """Disconnect, and end a Ray that was started here; after an error its logs may be kept."""
        self._needs = self.actor = None
        self._stack.__exit__(type(error) if error else None, error, None)


def _end_ray() -> None:
    """Disconnect from Ray, and end one that was started here."""
    import ray
    from ray._private.state import state

    disconnect = state.disconnect
    with _keep_sigterm_handler() as restore_handler:

        def restore_and_disconnect() -> None:  # long before Ray's processes have ended
            restore_handler()
            disconnect()

        with _replace_attributes({(state, "disconnect"): restore_and_disconnect}):
            ray.shutdown()


@contextmanager
def _keep_sigterm_handler() -> Iterator[Callable[[], None]]:
    """Keep the handler of SIGTERM: Ray's C++ library replaces it, and removes it at the end."""
    handler = signal.getsignal(signal.SIGTERM)

    def restore_handler() -> None:
        if handler is not None and threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, handler)

    try:
        yield restore_handler
    finally:
        restore_handler()


def _connect(run: Run, environment: dict[str, str], folder: Path | None) -> None:
    """Start a Ray in `folder`, with some tries on a slow machine, or join that of the cluster."""
    import ray

    for tries in range(_TRIES, 0, -1):
        port = None if run.cluster.address else _choose_metrics_port()
        try:
            with single_machine_options(), _keep_sigterm_handler():
                ray.init(
                    address=run.cluster.address or "local",  # not one that RAY_ADDRESS names
                    num_cpus=None if run.cluster.address else run.cluster.num_cpus,
                    num_gpus=_count_pretended_gpus(run),
                    include_dashboard=False if run.cluster.address is None else None,
                    _temp_dir=None if folder is None else str(folder),
                    _metrics_export_port=port,
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
        except Exception as error:  # Ray's errors have no common class
            _end_ray()
            if tries == 1:
                raise InputError(
                    f"Ray did not start ({reason(error)}); try again when this machine is less "
                    "busy, see that it has memory and room for temporary files, and read the "
                    f"logs of its last session ({folder or 'ray'}/session_latest/logs)."
                ) from error
        else:
            if port is not None:
                sentence = f"metrics for Prometheus: http://127.0.0.1:{port}/metrics"
                if port != METRICS_PORTS[0]:
                    sentence += f" (port {METRICS_PORTS[0]} is in use by another run or program)"
                LOG.info("%s", sentence)
                note(sentence)
            return


def _count_pretended_gpus(run: Run) -> int | None:
    """The GPUs that a rehearsal needs for all engines; null: those of this machine."""
    if run.model.source != "absent" or run.cluster.address:
        return None
    return gpus_per_engine(run) * sets_of_gpus(run, run.model.replicas.max)


def _choose_metrics_port() -> int:
    """The port where Prometheus finds this run: the first free one, at last any."""
    for port in (*METRICS_PORTS, 0):
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe, suppress(OSError):
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(("", port))
            return int(probe.getsockname()[1])
    raise InputError("no port of this machine is free, and Ray needs some; end other programs.")


@contextmanager
def single_machine_options() -> Iterator[None]:
    """Options of a Ray for this machine alone that `ray.init` has no arguments for.

    Its log monitor, autoscaler monitor and dashboard are not started. The dashboard agent takes any
    port: it would try a port in use for three seconds, and a raylet whose agent has no port after
    fifteen dies (Ray issue 65983).
    """
    from ray._private import parameter, services, utils

    params = parameter.RayParams
    options = {"include_log_monitor": False, "no_monitor": True, "dashboard_agent_listen_port": 0}
    replacements: dict[tuple[Any, str], Any] = {
        (parameter, "RayParams"): lambda **kwargs: params(**kwargs | options),
        (services, "start_api_server"): lambda *_, **__: (None, None),
        (utils, "get_dashboard_dependency_error"): lambda: None,  # would import them
        (utils, "set_sigterm_handler"): lambda _: None,  # Ray's would end the process at once
    }
    with _replace_attributes(replacements):
        yield


@contextmanager
def _replace_attributes(replacements: Mapping[tuple[Any, str], Any]) -> Iterator[None]:
    originals = {target: getattr(*target) for target in replacements}
    try:
        for target, value in replacements.items():
            setattr(*target, value)
        yield
    finally:
        for target, value in originals.items():
            setattr(*target, value)


@contextmanager
def _make_private_folder() -> Iterator[Path]:
    """Ray's folder of sockets and logs, in a private folder: Ray's own is readable by all.

    Its path is short: paths of sockets have at most 107 characters. It is removed at the end, but
    kept for a day if Ray's logs may explain the error.
    """
    parent = Path(os.environ.get("RAY_TMPDIR") or tempfile.gettempdir())
    private = parent / f"factsweep-ray-{os.getuid()}"
    private.mkdir(mode=0o700, parents=True, exist_ok=True)
    status = private.lstat()
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid() or status.st_mode & 0o077:
        raise InputError(
            f"{private} is not yours alone, and Ray's sockets and logs would lie there; remove it, "
            "or set RAY_TMPDIR to a folder of your own."
        )
    for old_folder in filter(_is_abandoned, private.iterdir()):
        shutil.rmtree(old_folder, ignore_errors=True)
    folder = _create_numbered_folder(private)
    is_kept = False
    try:
        yield folder
    except Exception as error:
        is_kept = not isinstance(error, InputError | StoppedError) or str(folder) in str(error)
        if is_kept:
            error.add_note(f"Ray's logs, kept for a day: {folder}/session_latest/logs")
        raise
    finally:
        if not is_kept:
            shutil.rmtree(folder, ignore_errors=True)


def _create_numbered_folder(parent: Path) -> Path:
    for number in itertools.count():
        folder = parent / str(number)
        with suppress(FileExistsError):
            folder.mkdir(mode=0o700)
            return folder
    raise AssertionError("numbers do not end")


def _is_abandoned(folder: Path) -> bool:
    """Whether all drivers of a folder of Ray have ended, and nothing was logged for a day."""
    sessions = [path for path in folder.glob("session_*_*") if not path.is_symlink()]
    files = (folder, *(file for session in sessions for file in session.glob("logs/*")))
    try:
        is_old = time.time() - max(file.lstat().st_mtime for file in files) > _KEPT_S
    except FileNotFoundError:  # its run has just removed it
        return False
    return is_old and not any(
        Path(f"/proc/{session.name.rpartition('_')[2]}").exists() for session in sessions
    )


def _check_room(run: Run, nodes: Sequence[int]) -> None:
    """Refuse nodes (by their GPUs) that do not hold the smallest pool, unless more are added later.

    The GPUs of one replica are on one node, unless it is pipeline-parallel.
    """
    if run.cluster.autoscales:
        return
    n_gpus, replicas = gpus_per_engine(run), sets_of_gpus(run, run.model.replicas.min)
    fix = "Set model.replicas.min or model.tensor_parallel lower, or add GPUs."
    if n_gpus * replicas > sum(nodes):
        raise InputError(
            f"{replicas} replicas × {n_gpus} GPUs = {n_gpus * replicas}; the cluster has "
            f"{sum(nodes)}. {fix}"
        )
    if n_gpus and run.model.pipeline_parallel == 1 and sum(n // n_gpus for n in nodes) < replicas:
        raise InputError(
            f"{replicas} replicas × {n_gpus} GPUs, each on one node; the cluster's nodes have "
            f"{' + '.join(map(str, nodes))}. {fix}"
        )


def gpus_by_node() -> list[int]:
    """The GPUs of each node, free or not."""
    import ray

    return [int(node["Resources"].get("GPU", 0)) for node in ray.nodes() if node["Alive"]]


def describe_room(run: Run) -> str:
    """The resources that the pool needs, and those of the cluster, for messages."""
    import ray

    n_gpus, replicas = gpus_per_engine(run), run.model.replicas.min
    kind, n = ("GPU", n_gpus) if n_gpus else ("CPU", 1)
    total, free = (r.get(kind, 0) for r in (ray.cluster_resources(), ray.available_resources()))
    return (
        f"{replicas} replicas × {n} {kind}s were asked for; the cluster has {total:.0f}, "
        f"{free:.0f} of them free"
    )


def host_name(node_id: str) -> str:
    """The host name of a node of Ray."""
    import ray

    names = {node["NodeID"]: str(node["NodeManagerHostname"]) for node in ray.nodes()}
    return names.get(node_id, f"node {node_id}")


def beside_driver() -> Any:
    """Ray's strategy for actors that all work depends on: on the driver's node, which stays."""
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    # Not soft: Ray 2.60 places a soft one that asks for no CPU anywhere.
    return NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False)


def placement(run: Run) -> dict[str, Any]:
    """Ray's options for placing an engine.

    One process holds all GPUs of a replica on one node, vLLM's workers inside; engines without GPUs
    are spread. A pipeline-parallel replica may use several nodes: it gets a placement group of one
    GPU per bundle, in which vLLM starts its workers itself.
    """
    gpus = gpus_per_engine(run)
    if run.model.pipeline_parallel == 1 or run.engine.gpus != "parallel":
        share = gpus / run.model.replicas.per_gpu
        return {"num_cpus": 1, "num_gpus": share, "scheduling_strategy": "SPREAD"}
    from ray.util import placement_group
    from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

    # The first bundle is the engine's own: it cannot run outside the bundles.
    bundles = [{"CPU": 1}, *({"GPU": 1} for _ in range(gpus))]
    strategy = PlacementGroupSchedulingStrategy(
        placement_group(bundles, strategy="PACK"),
        placement_group_bundle_index=0,
        placement_group_capture_child_tasks=True,
    )
    return {"num_cpus": 1, "scheduling_strategy": strategy}


@contextmanager
def watch_head(address: str, on_loss: Callable[[DecodingError], None]) -> Iterator[None]:
    """End the process with code 1 if `address` is silent for 30 s, after calling `on_loss`.

    A call to a head that is gone blocks, and after a minute Ray's C++ ends the whole process
    without a message. So a thread connects to the head's port, and ends it sooner.
    """
    over = threading.Event()

    def watch() -> None:
        answered_at = time.monotonic()
        while not over.wait(_EVERY_S):
            error = connection_error(address, _EVERY_S)
            if error is None:
                answered_at = time.monotonic()
            elif time.monotonic() - answered_at > _SILENT_S and not over.is_set():
                try:
                    on_loss(
                        DecodingError(
                            f"Ray's head at {address} has not answered for {_SILENT_S:g} seconds "
                            f"({error}): it was killed, or its machine is gone; what is published "
                            "is kept, and the next run resumes."
                        )
                    )
                finally:
                    end(DecodingError.exit_code)

    threading.Thread(target=watch, daemon=True).start()
    try:
        yield
    finally:
        over.set()


def connection_error(address: str, timeout_s: float) -> str | None:
    """Why there is no connection to HOST:PORT; None if there is one."""
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host, int(port)), timeout_s).close()
    except OSError as error:
        return reason(error)
    return None


def is_leaving() -> bool:
    """Whether the engines of this node were asked to publish finished answers before it goes.

    Ray itself marks a node whose `ray start --block` is sent SIGTERM: it is being drained. If a
    process would be killed before that, $FACTSWEEP_LEAVING names a folder of the node. Its file
    `asked` asks the engines to publish; each engine with something to publish keeps a file there
    that is named after its process, until it has. `leave.sh` asks, and waits for them.
    """
    folder = os.environ.get(LEAVING)
    return folder is not None and Path(folder, _ASKED).exists()


@contextmanager
def delay_leaving() -> Iterator[None]:
    """Have `leave.sh` wait for the end of this block, and of all others of this process."""
    folder = os.environ.get(LEAVING)
    if folder is None:
        yield
        return
    file = Path(folder, str(os.getpid()))
    with _LOCK:
        _AT_WORK.append(file)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch()
    try:
        yield
    finally:
        with _LOCK:
            _AT_WORK.remove(file)
            if file not in _AT_WORK:
                file.unlink(missing_ok=True)


def list_draining_nodes() -> set[str]:
    """The ids of the nodes that Ray is about to remove."""
    from ray._private.state import state

    try:
        return set(state.get_draining_nodes())
    except Exception:  # Ray's errors have no common class
        return set()  # Ray is gone: its tasks will raise the error
