"""Jobs for a running Ray, for Slurm, and for KubeRay: a verb of factsweep with the overrides."""

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
from factsweep.pipeline.cluster import job_request
from factsweep.pipeline.cluster.hardware import gpus_per_engine, sets_of_gpus
from factsweep.pipeline.cluster.ray_cluster import LEAVING
from factsweep.pipeline.config.cluster import KubeRay, Pod, RayJob, Slurm
from factsweep.pipeline.config.run import Run

_SECRET = re.compile(r"TOKEN|SECRET|PASSWORD|CREDENTIAL|KEY", re.IGNORECASE)
_MEMORY = "/dev/shm"  # of one pod
_LEAVING = {LEAVING: f"{_MEMORY}/factsweep-leaving"}
_END_S = 10  # of the grace period of a pod, for Ray to end
_GROUP = 1000  # of the user in docker/Dockerfile, which must be able to write to the cache
_LEAVE_S = 20  # of the 30 seconds until Slurm kills a step
BODY = Path(__file__).with_name("slurm.sh").read_text("utf-8")


def ray_job(run: Run, overrides: Sequence[str], verb: str = "run") -> str:
    """The request to the job server of a running Ray, in JSON."""
    job_request.check_no_own_folder()
    job_request.check_reachable(run, shared_folders=True)
    job = {"entrypoint": job_request.command(overrides, verb), "metadata": {"run": run.name}}
    return json.dumps(job, indent=1)


def submit_ray(launch: RayJob, text: str) -> str:
    """Submit the job; returns the user's next step."""
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
    """The batch script that starts a Ray over its nodes: a header, and slurm.sh."""
    launch = run.cluster.launch
    assert isinstance(launch, Slurm)
    options = [*_list_sbatch_options(run, launch)]
    for option in options:
        if len(option.splitlines()) != 1:
            raise InputError(f"{option!r} has a line break, and an option of sbatch is one line.")
    pool = ' "model.endpoint.urls=[$urls]"' if launch.serve else ""  # of the servers that it starts
    # Of the installation that launches: the nodes see the files of the login node.
    path = f"export PATH={shlex.quote(str(Path(sys.executable).parent))}:$PATH"
    return "\n".join(
        [
            "#!/usr/bin/env bash",
            *(f"#SBATCH {option}" for option in options),
            "",
            path,
            *launch.setup,
            f"sweep() {{ exec {job_request.command(overrides, verb)}{pool}; }}",
            f"status={shlex.quote(job_request.status(overrides, verb))}",
            f'logs="$PWD"/{shlex.quote(_job_name(run))}-"$SLURM_JOB_ID".logs',
            f"interface={shlex.quote(launch.interface or '')}",
            f"metrics_port={launch.metrics_port or ''}",
            f"requeues={launch.requeues}",
            f"leave={shlex.quote(job_request.leave(_LEAVE_S))}",
            f"serve={shlex.quote(launch.serve or '')}",
            f"start_s={run.cluster.start_s:.0f}",
            "",
            BODY,
        ]
    )


def _job_name(run: Run) -> str:
    """The name of the job, its log, and its folder of logs of Ray and of the engines."""
    return f"factsweep-{run.name.replace('/', '-')}"  # of a study: Slurm makes no folder


def _list_sbatch_options(run: Run, launch: Slurm) -> Iterator[str]:
    name = shlex.quote(_job_name(run))
    yield f"--job-name={name}"
    yield f"--output={name}-%j.log"
    yield "--open-mode=append"
    yield f"--nodes={launch.nodes or job_request.nodes(run, launch.gpus_per_node)}"
    yield "--ntasks-per-node=1"
    yield f"--cpus-per-task={launch.cpus_per_node}"
    if gpus_per_engine(run) or (launch.serve and launch.gpus_per_node):
        kind = f"{launch.gpu_type}:" if launch.gpu_type else ""
        yield f"--gpus-per-node={kind}{launch.gpus_per_node}"
    for name in ("memory", "time", "partition", "account"):
        if (value := getattr(launch, name)) is not None:
            yield f"--{'mem' if name == 'memory' else name}={value}"
    yield "--requeue"
    yield "--no-kill"  # the failure of a node does not end the job
    yield f"--signal=B:USR1@{launch.stop_s}"
    yield from launch.options


def kuberay_job(run: Run, overrides: Sequence[str], verb: str = "run") -> str:
    """The manifest of a RayJob of the KubeRay operator, in YAML."""
    launch = run.cluster.launch
    assert isinstance(launch, KubeRay)
    job_request.check_no_own_folder()
    job_request.check_reachable(run, shared_folders=False)
    for name in launch.env or ():
        if _SECRET.search(name):
            raise InputError(
                f"cluster.launch.env names {name}, which looks like a secret; put it into a Secret "
                "of Kubernetes and name that in cluster.launch.secret."
            )
    # KubeRay ignores exit codes: the driver restarts itself when a store does not answer.
    attempts = [f"--attempts={launch.attempts}"] if verb == "run" else []
    spec = {
        "entrypoint": job_request.encoded_command([*overrides, *attempts], verb),
        # A failed job would fail again. If the head is lost, so is the submitter, which is retried:
        # it submits the job to the new head; a job that the head knows it only follows.
        "backoffLimit": 0,
        "submitterConfig": {"backoffLimit": launch.attempts},
        "submitterPodTemplate": {"spec": _describe_submitter(launch)},
        "shutdownAfterJobFinishes": True,
        "ttlSecondsAfterFinished": 600,
        "rayClusterSpec": _describe_ray_cluster(run, launch),
    }
    command = job_request.command(overrides, verb)
    # KubeRay takes names of 47 characters; Kubernetes makes up the last 5.
    name = re.sub(r"[^a-z0-9]+", "-", f"factsweep-{run.name}".lower())[:41].strip("-")
    manifest = {
        "apiVersion": "ray.io/v1",
        "kind": "RayJob",
        "metadata": {
            "generateName": f"{name}-",
            "labels": {"app.kubernetes.io/name": "factsweep"},
            **({} if launch.namespace is None else {"namespace": launch.namespace}),
            "annotations": {"factsweep/command": command},  # for people
        },
        "spec": spec,
    }
    return yaml.safe_dump(manifest, sort_keys=False, width=120)


def _describe_ray_cluster(run: Run, launch: KubeRay) -> dict[str, Any]:
    """A head for the driver, and a group of workers that grows and shrinks with the work."""
    gpus, parts = gpus_per_engine(run), 1
    if run.model.pipeline_parallel > 1 and gpus:  # the stages may be on several nodes
        gpus, parts = run.model.tensor_parallel, run.model.pipeline_parallel
    replicas = run.model.replicas
    # Pods with GPUs start when the driver asks for them, and end without work; engines on CPUs
    # would fit on the driver's pod, and ask for no other.
    least, most = 0, sets_of_gpus(run, replicas.max) * parts
    if not gpus:
        least, most = replicas.min, replicas.max
    nodes = {"nodeSelector": launch.node_selector, "tolerations": list(launch.tolerations)}
    head = _merge_specs(_describe_pod(launch, "head", launch.head, 0), launch.head.pod or {})
    worker = {**_nonempty(nodes), **_describe_pod(launch, "worker", launch.worker, gpus)}
    return {
        "rayVersion": metadata.version("ray"),
        "authOptions": {"mode": "token"},
        "enableInTreeAutoscaling": True,
        "autoscalerOptions": {
            "idleTimeoutSeconds": launch.idle_s,
            # By default Ray starts ten pods at a time.
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
                "template": {"spec": _merge_specs(worker, launch.worker.pod or {})},
            }
        ],
    }


def _describe_pod(launch: KubeRay, name: str, size: Pod, gpus: int) -> dict[str, Any]:
    """A pod of one container, whose requests are its limits."""
    env = {**_LEAVING, **(launch.env or {})}
    leave = job_request.leave(max(0, launch.stop_s - _END_S))
    resources = {"cpu": size.cpus, "memory": size.memory, "nvidia.com/gpu": gpus or None}
    memory = {"medium": "Memory", "sizeLimit": launch.shared_memory}
    # Each volume's path in the container, and its source.
    volumes: dict[str, tuple[str, dict[str, Any]]] = {"memory": (_MEMORY, {"emptyDir": memory})}
    if launch.cache_claim:
        claim = {"claimName": launch.cache_claim}
        volumes["cache"] = ("/cache", {"persistentVolumeClaim": claim})
    container = {
        "name": name,
        "image": launch.image,
        "resources": {"requests": _nonempty(resources), "limits": _nonempty(resources)},
        "env": [{"name": key, "value": str(value)} for key, value in env.items()],
        "envFrom": [{"secretRef": {"name": launch.secret}}] if launch.secret else None,
        "volumeMounts": [{"name": v, "mountPath": path} for v, (path, _) in volumes.items()],
        "lifecycle": {"preStop": {"exec": {"command": ["/bin/sh", "-c", leave]}}},
        "securityContext": _build_security_context(),
    }
    spec = {
        "serviceAccountName": launch.service_account,
        "imagePullSecrets": [{"name": name} for name in launch.pull_secrets],
        "securityContext": {"runAsNonRoot": True, "fsGroup": _GROUP},
        "terminationGracePeriodSeconds": launch.stop_s,
        "containers": [_nonempty(container)],
        "volumes": [{"name": volume, **source} for volume, (_, source) in volumes.items()],
    }
    return _nonempty(spec)


def _describe_submitter(launch: KubeRay) -> dict[str, Any]:
    """The pod that submits the job to the head and follows its log; KubeRay adds the command."""
    container = {
        "name": "ray-job-submitter",
        "image": launch.image,
        "resources": {
            "requests": {"cpu": "500m", "memory": "512Mi"},
            "limits": {"cpu": 1, "memory": "1Gi"},
        },
        "securityContext": _build_security_context(),
    }
    spec = {
        "restartPolicy": "Never",
        "imagePullSecrets": [{"name": name} for name in launch.pull_secrets],
        "securityContext": {"runAsNonRoot": True},
        "containers": [container],
    }
    return _nonempty(spec)


def _build_security_context() -> dict[str, Any]:
    return {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}


def _merge_specs(base: Any, additions: Any) -> Any:
    """Merge two specifications: mappings by key, lists by the `name` of their elements.

    >>> _merge_specs({"a": [{"name": "x", "n": 1}]}, {"a": [{"name": "x", "m": 2}, {"name": "y"}]})
    {'a': [{'name': 'x', 'n': 1, 'm': 2}, {'name': 'y'}]}
    """
    if isinstance(base, Mapping) and isinstance(additions, Mapping):
        return {
            **base,
            **{key: _merge_specs(base.get(key), value) for key, value in additions.items()},
        }
    if isinstance(base, list) and isinstance(additions, list):
        return list(_merge_specs(_by_name(base, "base"), _by_name(additions, "more")).values())
    return additions


def _by_name(items: Sequence[Any], list_name: str) -> dict[Any, Any]:
    """Items by their names; those without a name by a key that no other list has."""
    names = [item.get("name") if isinstance(item, Mapping) else None for item in items]
    pairs = enumerate(zip(names, items, strict=True))
    return {name or (list_name, n): item for n, (name, item) in pairs}


def _nonempty(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value}


class Launcher(NamedTuple):
    """Functions that render the job of a run for a kind of cluster, and submit it."""

    rendered: Callable[..., str]
    submitted: Callable[[Any, str], str]


LAUNCHERS: Mapping[str, Launcher] = {
    "ray": Launcher(ray_job, submit_ray),
    "slurm": Launcher(slurm_job, lambda _, text: job_request.pipe_to(["sbatch"], text)),
    # `apply` would find a job that has finished.
    "kuberay": Launcher(
        kuberay_job, lambda _, text: job_request.pipe_to(["kubectl", "create", "-f", "-"], text)
    ),
}
