"""The jobs that a run is submitted as: to a running Ray, to Slurm, and to KubeRay.

What runs there is a verb of factsweep with the same overrides.
"""

import json
import os
import re
import shlex
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from factsweep.operators.errors import InputError
from factsweep.pipeline.cluster import order
from factsweep.pipeline.cluster.hardware import gpus_per_engine, sets_of_gpus
from factsweep.pipeline.cluster.ray_cluster import LEAVING
from factsweep.pipeline.config.cluster import KubeRay, Pod, RayJob, Slurm
from factsweep.pipeline.config.run import Run

_SECRET = re.compile(r"TOKEN|SECRET|PASSWORD|CREDENTIAL|KEY", re.IGNORECASE)
_MEMORY = "/dev/shm"  # of a pod, nobody else's
_LEAVING = {LEAVING: f"{_MEMORY}/factsweep-leaving"}
_END_S = 10  # of the time that a pod is given, for Ray to end
_GROUP = 1000  # of the user in docker/Dockerfile, who must be able to write to the cache
_LEAVE_S = 20  # of the 30 seconds that Slurm gives a step that it ends
BODY = Path(__file__).with_name("slurm.sh").read_text("utf-8")


def ray_job(run: Run, overrides: Sequence[str], verb: str = "run") -> str:
    """The job as the job server of a running Ray is sent it, in JSON.

    Raises:
        InputError: the cluster could not see the artifacts, the results or the configuration.
    """
    order.check_no_own_folder()
    order.check_reachable(run, shared_folders=True)
    job = {"entrypoint": order.command(overrides, verb), "metadata": {"run": run.name}}
    return json.dumps(job, indent=1)


def submit_ray(launch: RayJob, text: str) -> str:
    """Submit the job; returns what the user can do next.

    Raises:
        InputError: no job server answers, or it refuses.
    """
    from ray.exceptions import AuthenticationError
    from ray.job_submission import JobSubmissionClient

    address = launch.job_server or os.environ.get("RAY_API_SERVER_ADDRESS")
    if address is None:
        raise InputError(
            "cluster.launch.job_server is null; give the address of the cluster's job server, such "
            "as http://head:8265."
        )
    try:
        name = JobSubmissionClient(address).submit_job(**json.loads(text))
    except (AuthenticationError, ConnectionError, RuntimeError, ValueError) as error:
        reason = " ".join(str(error).split()).rstrip(".")
        raise InputError(
            f"the job server at {address} did not take the job ({reason}); check "
            "cluster.launch.job_server."
        ) from error
    return f"submitted {name}; follow it with: ray job logs --follow --address {address} {name}"


def slurm_job(run: Run, overrides: Sequence[str], verb: str = "run") -> str:
    """The batch script, which starts a Ray over its nodes: a header from the config, and slurm.sh.

    Raises:
        InputError: a node has fewer GPUs than a replica of the model holds.
    """
    launch = run.cluster.launch
    assert isinstance(launch, Slurm)
    # Of the installation that launches: what the login node has, the nodes see too.
    path = f"export PATH={shlex.quote(str(Path(sys.executable).parent))}:$PATH"
    return "\n".join(
        [
            "#!/usr/bin/env bash",
            *(f"#SBATCH {_whole(option)}" for option in _options(run, launch)),
            "",
            path,
            *launch.setup,
            f"sweep() {{ exec {order.command(overrides, verb)}; }}",
            f"status={shlex.quote(order.status(overrides, verb))}",
            f'logs="$PWD"/{shlex.quote(_job_name(run))}-"$SLURM_JOB_ID".logs',
            f"interface={shlex.quote(launch.interface or '')}",
            f"metrics_port={launch.metrics_port or ''}",
            f"requeues={launch.requeues}",
            f"leave={shlex.quote(order.leave(_LEAVE_S))}",
            "",
            BODY,
        ]
    )


def _job_name(run: Run) -> str:
    """Of the job, its log, and the folder of the logs of Ray and of the engines beside that."""
    return f"factsweep-{run.name.replace('/', '-')}"  # of a study: Slurm makes no folder


def _whole(option: str) -> str:
    """An option that is one line of the script."""
    if len(option.splitlines()) != 1:
        raise InputError(f"{option!r} has a line break, and an option of sbatch is one line.")
    return option


def _options(run: Run, launch: Slurm) -> Iterator[str]:
    name = shlex.quote(_job_name(run))
    yield f"--job-name={name}"
    yield f"--output={name}-%j.log"
    yield "--open-mode=append"
    yield f"--nodes={launch.nodes or order.nodes(run, launch.gpus_per_node)}"
    yield "--ntasks-per-node=1"
    yield f"--cpus-per-task={launch.cpus_per_node}"
    if gpus_per_engine(run):
        kind = f"{launch.gpu_type}:" if launch.gpu_type else ""
        yield f"--gpus-per-node={kind}{launch.gpus_per_node}"
    for name in ("memory", "time", "partition", "account"):
        if (value := getattr(launch, name)) is not None:
            yield f"--{'mem' if name == 'memory' else name}={value}"
    yield "--requeue"
    yield "--no-kill"  # a node that fails takes none of the others along
    yield f"--signal=B:USR1@{launch.stop_s}"
    yield from launch.options


def kuberay_job(run: Run, overrides: Sequence[str], verb: str = "run") -> str:
    """The manifest of a RayJob of the KubeRay operator, in YAML.

    Raises:
        InputError: no pod could see artifacts, results or configuration, or a variable looks like a
            secret.
    """
    launch = run.cluster.launch
    assert isinstance(launch, KubeRay)
    order.check_no_own_folder()
    order.check_reachable(run, shared_folders=False)
    for name in launch.env or ():
        if _SECRET.search(name):
            raise InputError(
                f"cluster.launch.env names {name}, which looks like a secret; put it into a Secret "
                "of Kubernetes and name that in cluster.launch.secret."
            )
    # KubeRay cannot tell exit codes apart: the driver starts itself again where a store is silent.
    attempts = [f"--attempts={launch.attempts}"] if verb == "run" else []
    spec = {
        "entrypoint": order.encoded_command([*overrides, *attempts], verb),
        # What fails would fail again. If the head is lost, the submitter is, and tries again: then
        # the new head does not know the job, and is given it; any other job it only follows.
        "backoffLimit": 0,
        "submitterConfig": {"backoffLimit": launch.attempts},
        "submitterPodTemplate": {"spec": _submitter(launch)},
        "shutdownAfterJobFinishes": True,
        "ttlSecondsAfterFinished": 600,
        "rayClusterSpec": _ray_cluster(run, launch),
    }
    manifest = {
        "apiVersion": "ray.io/v1",
        "kind": "RayJob",
        "metadata": {
            **_kuberay_metadata(run, launch),
            "annotations": {"factsweep/command": order.command(overrides, verb)},  # for people
        },
        "spec": spec,
    }
    return yaml.safe_dump(manifest, sort_keys=False, width=120)


def _kuberay_metadata(run: Run, launch: KubeRay) -> dict[str, Any]:
    """The name of the job: KubeRay takes 47 characters, of which Kubernetes makes up the last 5."""
    name = re.sub(r"[^a-z0-9]+", "-", f"factsweep-{run.name}".lower())[:41].strip("-")
    where = {} if launch.namespace is None else {"namespace": launch.namespace}
    return {"generateName": f"{name}-", "labels": {"app.kubernetes.io/name": "factsweep"}, **where}


def _ray_cluster(run: Run, launch: KubeRay) -> dict[str, Any]:
    """A head that drives, and a group of workers that grows and shrinks with the work."""
    gpus, parts = gpus_per_engine(run), 1
    if run.model.pipeline_parallel > 1 and gpus:  # the parts of such a replica may lie apart
        gpus, parts = run.model.tensor_parallel, run.model.pipeline_parallel
    replicas = run.model.replicas
    # Pods with GPUs start when the driver asks for them, and go when there is no work for them;
    # engines on CPUs would find room beside the driver, and ask for no pod.
    least, most = 0, sets_of_gpus(run, replicas.max) * parts
    if not gpus:
        least, most = replicas.min, replicas.max
    place = {"nodeSelector": launch.node_selector, "tolerations": list(launch.tolerations)}
    head = _merged(_pod(launch, "head", launch.head, 0), launch.head.pod or {})
    worker = {**_given(place), **_pod(launch, "worker", launch.worker, gpus)}
    return {
        "rayVersion": metadata.version("ray"),
        "authOptions": {"mode": "token"},
        "enableInTreeAutoscaling": True,
        "autoscalerOptions": {
            "idleTimeoutSeconds": launch.idle_s,
            # Ray starts ten pods at a time, if nobody says otherwise.
            "env": [{"name": "AUTOSCALER_MAX_CONCURRENT_LAUNCHES", "value": str(most)}],
        },
        "headGroupSpec": {"rayStartParams": {"num-gpus": "0"}, "template": {"spec": head}},
        "workerGroupSpecs": [
            {
                "groupName": "replicas",
                "replicas": least,
                "minReplicas": least,
                "maxReplicas": most,
                "rayStartParams": {},
                "template": {"spec": _merged(worker, launch.worker.pod or {})},
            }
        ],
    }


def _pod(launch: KubeRay, name: str, size: Pod, gpus: int) -> dict[str, Any]:
    """What a pod is made of: one container, which holds what it asks for and no more."""
    env = {**_LEAVING, **(launch.env or {})}
    leave = order.leave(max(0, launch.stop_s - _END_S))
    resources = {"cpu": size.cpus, "memory": size.memory, "nvidia.com/gpu": gpus or None}
    volumes = _volumes(launch)
    container = {
        "name": name,
        "image": launch.image,
        "resources": {"requests": _given(resources), "limits": _given(resources)},
        "env": [{"name": key, "value": str(value)} for key, value in env.items()],
        "envFrom": [{"secretRef": {"name": launch.secret}}] if launch.secret else None,
        "volumeMounts": [{"name": each, "mountPath": path} for each, (path, _) in volumes.items()],
        "lifecycle": {"preStop": {"exec": {"command": ["/bin/sh", "-c", leave]}}},
        "securityContext": _confined(),
    }
    spec = {
        "serviceAccountName": launch.service_account,
        "imagePullSecrets": [{"name": name} for name in launch.pull_secrets],
        "securityContext": {"runAsNonRoot": True, "fsGroup": _GROUP},
        "terminationGracePeriodSeconds": launch.stop_s,
        "containers": [_given(container)],
        "volumes": [{"name": each, **source} for each, (_, source) in volumes.items()],
    }
    return _given(spec)


def _submitter(launch: KubeRay) -> dict[str, Any]:
    """The pod that hands the job to the head and follows its log; KubeRay adds the command."""
    container = {
        "name": "ray-job-submitter",
        "image": launch.image,
        "resources": {
            "requests": {"cpu": "500m", "memory": "512Mi"},
            "limits": {"cpu": 1, "memory": "1Gi"},
        },
        "securityContext": _confined(),
    }
    spec = {
        "restartPolicy": "Never",
        "imagePullSecrets": [{"name": name} for name in launch.pull_secrets],
        "securityContext": {"runAsNonRoot": True},
        "containers": [container],
    }
    return _given(spec)


def _confined() -> dict[str, Any]:
    return {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}


def _merged(found: Any, more: Any) -> Any:
    """A specification with more of it: mappings key by key, lists by the names of what they hold.

    >>> _merged({"a": [{"name": "x", "n": 1}]}, {"a": [{"name": "x", "m": 2}, {"name": "y"}]})
    {'a': [{'name': 'x', 'n': 1, 'm': 2}, {'name': 'y'}]}
    """
    if isinstance(found, Mapping) and isinstance(more, Mapping):
        return {**found, **{key: _merged(found.get(key), value) for key, value in more.items()}}
    if isinstance(found, list) and isinstance(more, list):
        return list(_merged(_by_name(found, "found"), _by_name(more, "more")).values())
    return more


def _by_name(items: Sequence[Any], of: str) -> dict[Any, Any]:
    """Items by their names, and those that have none by what no other list has."""
    named = [each.get("name") if isinstance(each, Mapping) else None for each in items]
    return {name or (of, n): each for n, (name, each) in enumerate(zip(named, items, strict=True))}


def _given(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value}


def _volumes(launch: KubeRay) -> dict[str, tuple[str, dict[str, Any]]]:
    """Each volume's path in the container, and where it comes from."""
    memory = {"medium": "Memory", "sizeLimit": launch.shared_memory}
    volumes: dict[str, tuple[str, dict[str, Any]]] = {"memory": (_MEMORY, {"emptyDir": memory})}
    if launch.cache_claim:
        claim = {"claimName": launch.cache_claim}
        volumes["cache"] = ("/cache", {"persistentVolumeClaim": claim})
    return volumes


class Launcher(NamedTuple):
    """How the job of a kind of cluster is rendered from a run, and submitted."""

    rendered: Callable[..., str]
    submitted: Callable[[Any, str], str]


LAUNCHERS: Mapping[str, Launcher] = {
    "ray": Launcher(ray_job, submit_ray),
    "slurm": Launcher(slurm_job, lambda _, text: order.handed(["sbatch"], text)),
    # `apply` would find a job that has finished.
    "kuberay": Launcher(
        kuberay_job, lambda _, text: order.handed(["kubectl", "create", "-f", "-"], text)
    ),
}
