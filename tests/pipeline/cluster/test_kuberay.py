"""The RayJob: sound for Kubernetes, read by Ray's own autoscaler, and without a secret."""

from pathlib import Path
from typing import Any

import jsonschema
import kubernetes_validate
import pytest
import yaml
from ray.autoscaler._private import constants
from ray.autoscaler._private.kuberay.autoscaling_config import (
    _derive_autoscaling_config_from_ray_cr,
)

from factsweep.operators.errors import InputError
from factsweep.pipeline.cluster import launchers
from factsweep.pipeline.config.settings import load
from tests.messages import naming

SCHEMA = yaml.safe_load(Path(__file__).with_name("rayjob.schema.yaml").read_text())
STORES = ("artifacts=s3://sweeps/artifacts", "results=s3://sweeps/results")
# The second has every optional field.
LEAST = ("model=smollm2-135m", "cluster.device=cpu")
MOST = (
    "model=llama3-70b",
    "cluster.launch.namespace=probing",
    "cluster.launch.secret=tokens",
    "cluster.launch.service_account=sweeper",
    "cluster.launch.cache_claim=weights",
    "cluster.launch.node_selector={cloud.google.com/gke-spot: 'true'}",
    "cluster.launch.env={AWS_REGION: eu-west-1}",
    "cluster.launch.pull_secrets=[registry-key]",
    "cluster.launch.head.pod={priorityClassName: high}",
    "cluster.launch.worker.pod={runtimeClassName: nvidia, tolerations: [{key: batch}], containers: "
    "[{name: worker, resources: {limits: {ephemeral-storage: 300Gi}}}, {name: watcher}]}",
    "run_name='A name that is longer than Kubernetes allows, and has Capitals_'",
)


def rendered(*overrides: str) -> dict[str, Any]:
    all_overrides = ["cluster=kuberay", *STORES, *overrides]
    manifest: dict[str, Any] = yaml.safe_load(
        launchers.kuberay_job(load(all_overrides), all_overrides)
    )
    return manifest


def groups(manifest: dict[str, Any]) -> list[dict[str, Any]]:
    cluster = manifest["spec"]["rayClusterSpec"]
    return [cluster["headGroupSpec"], *cluster["workerGroupSpecs"]]


def containers(manifest: dict[str, Any]) -> list[dict[str, Any]]:
    return [group["template"]["spec"]["containers"][0] for group in groups(manifest)]


@pytest.mark.parametrize("overrides", [LEAST, MOST])
def test_rendered_is_a_sound_rayjob_of_sound_pods(overrides: tuple[str, ...]) -> None:
    manifest = rendered(*overrides)
    jsonschema.validate(manifest, SCHEMA, jsonschema.Draft202012Validator)
    for group in groups(manifest):
        pod = {"apiVersion": "v1", "kind": "PodTemplate", "template": group["template"]}
        kubernetes_validate.validate(pod, kubernetes_validate.latest_version(), strict=True)


def test_rendered_pods_have_their_engines_publish_before_they_stop() -> None:
    for container in containers(rendered(*LEAST, "cluster.launch.stop_s=90")):
        _, _, hook = container["lifecycle"]["preStop"]["exec"]["command"]
        assert hook.startswith("within_s=80\n")
        assert "FACTSWEEP_LEAVING" in {variable["name"] for variable in container["env"]}


def test_failed_sweep_is_not_tried_again_and_a_lost_head_is() -> None:
    """The RayJob as a whole is tried once: the operator would do so for any exit code."""
    spec = rendered(*LEAST, "cluster.launch.attempts=5")["spec"]
    assert spec["backoffLimit"] == 0
    assert spec["entrypoint"].endswith(" --attempts=5")
    assert spec["submitterConfig"] == {"backoffLimit": 5}
    assert spec.get("submissionMode", "K8sJobMode") == "K8sJobMode"  # which has a submitter


def test_rendered_images_are_pulled_with_secrets() -> None:
    manifest = rendered(*MOST)
    pods = [group["template"]["spec"] for group in groups(manifest)]
    pods.append(manifest["spec"]["submitterPodTemplate"]["spec"])
    assert [pod["imagePullSecrets"] for pod in pods] == [[{"name": "registry-key"}]] * 3


def test_rendered_pod_is_merged_by_names() -> None:
    head, worker = (group["template"]["spec"] for group in groups(rendered(*MOST)))
    plain = groups(rendered("model=llama3-70b"))[1]["template"]["spec"]
    assert (head["priorityClassName"], worker["runtimeClassName"]) == ("high", "nvidia")
    assert "runtimeClassName" not in head
    assert worker["tolerations"] == [*plain["tolerations"], {"key": "batch"}]
    ours, theirs = worker["containers"]
    assert theirs == {"name": "watcher"}
    limits = plain["containers"][0]["resources"]["limits"]
    assert ours["resources"]["limits"] == {**limits, "ephemeral-storage": "300Gi"}


def test_misspelt_fields_are_found() -> None:
    manifest = rendered(*LEAST)
    manifest["spec"]["entryPoint"] = manifest["spec"].pop("entrypoint")
    with pytest.raises(jsonschema.ValidationError, match="entryPoint"):
        jsonschema.validate(manifest, SCHEMA)
    template = {"spec": {"containers": [{"name": "worker", "imagePullPolice": "Always"}]}}
    pod = {"apiVersion": "v1", "kind": "PodTemplate", "template": template}
    with pytest.raises(kubernetes_validate.ValidationError, match="imagePullPolice"):
        kubernetes_validate.validate(pod, kubernetes_validate.latest_version(), strict=True)


@pytest.mark.parametrize(
    ("model", "gpus", "pods"),
    [
        (("model=llama3-70b", "model.replicas.max=3"), 4, (0, 3)),
        (("model=llama3-70b", "model.pipeline_parallel=2", "model.replicas.max=3"), 4, (0, 6)),
        (("model=llama3-8b", "model.replicas.min=2"), 1, (0, 8)),
        (("model=llama3-8b", "model.replicas.per_gpu=2"), 1, (0, 4)),
        (("model=llama3-8b", "cluster.device=cpu"), 0, (1, 8)),
    ],
)
def test_rendered_workers_are_what_the_autoscaler_of_ray_reads(
    model: tuple[str, ...], gpus: int, pods: tuple[int, int]
) -> None:
    spec = rendered(*model)["spec"]["rayClusterSpec"]
    names = {"name": "a", "namespace": "b"}
    config = _derive_autoscaling_config_from_ray_cr({"metadata": names, "spec": spec})
    worker = config["available_node_types"]["replicas"]
    assert worker["resources"].get("GPU", 0) == gpus
    assert (worker["min_workers"], worker["max_workers"]) == pods
    assert config["available_node_types"]["headgroup"]["resources"].get("GPU", 0) == 0


def test_rendered_workers_start_at_once_and_go_when_idle() -> None:
    """By default Ray's autoscaler starts ten at a time."""
    overrides = ("model=llama3-8b", "model.replicas.max=64", "cluster.launch.idle_s=120")
    spec = rendered(*overrides)["spec"]["rayClusterSpec"]
    assert spec["enableInTreeAutoscaling"]
    [variable] = spec["autoscalerOptions"]["env"]
    assert variable == {"name": "AUTOSCALER_MAX_CONCURRENT_LAUNCHES", "value": "64"}
    assert variable["name"] in vars(constants)  # named like the variable that sets it
    names = {"name": "a", "namespace": "b"}
    config = _derive_autoscaling_config_from_ray_cr({"metadata": names, "spec": spec})
    assert config["upscaling_speed"] >= 64  # times what there is
    assert config["idle_timeout_minutes"] == 2


def test_rendered_workers_alone_go_to_spot_nodes() -> None:
    head, worker = (group["template"]["spec"] for group in groups(rendered(*MOST)))
    assert "tolerations" not in head
    assert {"key": "cloud.google.com/gke-spot", "operator": "Exists", "effect": "NoSchedule"} in (
        worker["tolerations"]
    )
    assert worker["nodeSelector"] == {"cloud.google.com/gke-spot": "true"}


def test_rendered_secret_is_named_and_its_values_are_nowhere(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_planted")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "planted-key")
    manifest = rendered(*MOST)
    assert "planted" not in yaml.safe_dump(manifest)
    assert all(
        container["envFrom"] == [{"secretRef": {"name": "tokens"}}]
        for container in containers(manifest)
    )


def test_rendered_secret_among_the_variables_is_refused_and_not_repeated() -> None:
    with pytest.raises(InputError, match=naming("HF_TOKEN")) as error:
        rendered("cluster.launch.env={HF_TOKEN: hf_planted}")
    assert "planted" not in str(error.value)


@pytest.mark.parametrize("name", ["artifacts", "results"])
def test_rendered_local_folder_is_refused(name: str) -> None:
    with pytest.raises(InputError, match=naming(f"{name}=/data", "give")):
        rendered(f"{name}=/data")
