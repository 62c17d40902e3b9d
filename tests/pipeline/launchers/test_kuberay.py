"""The RayJob: sound for Kubernetes, read by Ray's own autoscaler, and without a secret."""

from pathlib import Path
from typing import Any

import jsonschema
import kubernetes_validate
import pytest
import yaml
from ray.autoscaler._private.kuberay.autoscaling_config import (
    _derive_autoscaling_config_from_ray_cr,
)

from operators.errors import InputError
from pipeline.config.settings import load
from pipeline.launchers import kuberay

SCHEMA = yaml.safe_load(Path(__file__).with_name("rayjob.schema.yaml").read_text())
STORES = ("artifacts=s3://sweeps/artifacts", "results=s3://sweeps/results")
# Everything that may be left out is there in the second.
LEAST = ("model=smollm2-135m", "cluster.device=cpu")
MOST = (
    "model=llama3-70b",
    "cluster.launch.namespace=probing",
    "cluster.launch.secret=tokens",
    "cluster.launch.service_account=sweeper",
    "cluster.launch.cache_claim=weights",
    "cluster.launch.node_selector={cloud.google.com/gke-spot: 'true'}",
    "cluster.launch.env={AWS_REGION: eu-west-1}",
    "run_name='A name that is longer than Kubernetes allows, and has Capitals_'",
)


def rendered(*overrides: str) -> dict[str, Any]:
    given = ["cluster=kuberay", *STORES, *overrides]
    found: dict[str, Any] = yaml.safe_load(kuberay.rendered(load(given), given))
    return found


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
        (("model=llama3-70b", "model.replicas.max=3"), 4, (1, 3)),
        (("model=llama3-70b", "model.pipeline_parallel=2", "model.replicas.max=3"), 4, (2, 6)),
        (("model=llama3-8b", "model.replicas.min=2"), 1, (2, 8)),
        (("model=llama3-8b", "cluster.device=cpu"), 0, (1, 8)),
    ],
)
def test_rendered_workers_are_what_the_autoscaler_of_ray_reads(
    model: tuple[str, ...], gpus: int, pods: tuple[int, int]
) -> None:
    spec = rendered(*model)["spec"]["rayClusterSpec"]
    names = {"name": "a", "namespace": "b"}
    found = _derive_autoscaling_config_from_ray_cr({"metadata": names, "spec": spec})
    worker = found["available_node_types"]["replicas"]
    assert worker["resources"].get("GPU", 0) == gpus
    assert (worker["min_workers"], worker["max_workers"]) == pods
    assert found["available_node_types"]["headgroup"]["resources"].get("GPU", 0) == 0


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
        each["envFrom"] == [{"secretRef": {"name": "tokens"}}] for each in containers(manifest)
    )


def test_rendered_secret_among_the_variables_is_refused_and_not_repeated() -> None:
    with pytest.raises(InputError, match="names HF_TOKEN, which looks like a secret") as error:
        rendered("cluster.launch.env={HF_TOKEN: hf_planted}")
    assert "planted" not in str(error.value)


@pytest.mark.parametrize("name", ["artifacts", "results"])
def test_rendered_local_folder_is_refused(name: str) -> None:
    with pytest.raises(InputError, match=rf"^{name}=/data is a folder, which no pod can see; give"):
        rendered(f"{name}=/data")
