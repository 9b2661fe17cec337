"""Kueue's manager beside the test control plane, with the CRDs, webhooks and certificates of its own source.

As installed it makes its certificates itself, and tells the API server of them. Two things differ from an installation:
its Service names loopback, and the certificates come to its directory from here, as a kubelet would mount them.
"""

import base64
import json
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml
from builders.cluster.controlplane import ControlPlane, run_builder, running_process, until
from builders.ports import free_ports

KUEUE_PROGRAMS = ("kueue",)
NAMESPACE = "kueue-system"
SERVICE = "kueue-webhook-service"
SECRET = "kueue-webhook-server-cert"
FRAMEWORKS = ("batch/job", "ray.io/raycluster", "ray.io/rayjob")
WEBHOOK_PATHS = ("batch-v1-job", "ray-io-v1-raycluster", "ray-io-v1-rayjob", "kueue-x-k8s-io-")
"""Of the webhooks of `FRAMEWORKS` and of Kueue's own kinds: those of other frameworks are not served then."""
CONVERTED = ("localqueues", "clusterqueues", "cohorts", "workloads", "multikueueclusters")
"""The kinds that Kueue converts between its versions."""

Object = dict[str, Any]


@contextmanager
def running_kueue(plane: ControlPlane, binaries: Mapping[str, Path]) -> Iterator[None]:
    """Run Kueue; at the end its kinds and webhooks are taken away again, which hold up others without it.

    Args:
        plane: the API server, with controllers.
        binaries: `KUEUE_PROGRAMS` and where they lie.
    """
    (source,) = run_builder("--source", "kueue", wanted="Kueue's CRDs")
    components = source / "config" / "components"
    webhook, health, metrics = free_ports(3)
    client = {"service": {"name": SERVICE, "namespace": NAMESPACE, "port": webhook, "path": "/convert"}}
    crds = [_crd(file, client) for file in sorted((components / "crd" / "bases").glob("*.yaml"))]
    hooks = [_hooks(one, webhook) for one in _documents(components / "webhook" / "manifests.yaml")]
    _apply(plane, "kueue-crds", crds)
    plane.kubectl("wait", "crd", "--all", "--for=condition=Established", "--timeout=100s")
    namespaced = {"namespace": NAMESPACE}
    _apply(
        plane,
        "kueue-objects",
        [
            {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}},
            {
                "apiVersion": "v1", "kind": "Service", "metadata": {"name": SERVICE, **namespaced},
                "spec": {"type": "ExternalName", "externalName": "localhost"},
            },
            {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": SECRET, **namespaced}},
            *hooks,
        ],
    )  # fmt: skip
    directory = plane.directory / "kueue"
    directory.mkdir(exist_ok=True)
    config = directory / "config.json"
    config.write_text(json.dumps(_configuration(directory, webhook, health, metrics)))
    command = [str(binaries["kueue"]), f"--config={config}", f"--kubeconfig={plane.kubeconfig}"]
    try:
        with running_process("kueue", command, plane.directory):
            until(lambda: _mount(plane, directory), "Kueue's certificates")
            until(lambda: _is_ready(health), "Kueue to be ready")
            until(lambda: _answers(plane), "Kueue's webhooks to answer")
            yield
            plane.kubectl(
                "delete", "clusterqueues,localqueues,workloads,resourceflavors", "-A", "--all", "--wait=false"
            )
            plane.kubectl("delete", "crd", *(crd["metadata"]["name"] for crd in crds), "--timeout=100s")
    finally:
        for one in hooks:
            plane.kubectl("delete", one["kind"], one["metadata"]["name"])


def queue_objects(namespace: str, name: str, quota: Mapping[str, str]) -> list[Object]:
    """Return a LocalQueue of a namespace with a quota of its own; what has a higher priority takes the place of others.

    Args:
        namespace: where the LocalQueue is.
        name: its name.
        quota: amounts by resource. What a run asks for and is not named here is never admitted.
    """
    version, cluster = "kueue.x-k8s.io/v1beta1", f"{namespace}-{name}"
    resources = [{"name": resource, "nominalQuota": amount} for resource, amount in quota.items()]
    return [
        {"apiVersion": version, "kind": "ResourceFlavor", "metadata": {"name": "any-node"}},
        {
            "apiVersion": version, "kind": "ClusterQueue", "metadata": {"name": cluster},
            "spec": {
                "namespaceSelector": {},
                "preemption": {"withinClusterQueue": "LowerPriority"},
                "resourceGroups": [
                    {"coveredResources": list(quota), "flavors": [{"name": "any-node", "resources": resources}]}
                ],
            },
        },
        local_queue(namespace, name, cluster),
    ]  # fmt: skip


def local_queue(namespace: str, name: str, cluster_queue: str) -> Object:
    return {
        "apiVersion": "kueue.x-k8s.io/v1beta1", "kind": "LocalQueue",
        "metadata": {"name": name, "namespace": namespace}, "spec": {"clusterQueue": cluster_queue},
    }  # fmt: skip


def _configuration(directory: Path, webhook: int, health: int, metrics: int) -> Object:
    return {
        "apiVersion": "config.kueue.x-k8s.io/v1beta2",
        "kind": "Configuration",
        "namespace": NAMESPACE,
        "health": {"healthProbeBindAddress": f"127.0.0.1:{health}"},
        "metrics": {"bindAddress": f"127.0.0.1:{metrics}"},
        "webhook": {"host": "127.0.0.1", "port": webhook, "certDir": str(directory)},
        "leaderElection": {"leaderElect": False},
        "internalCertManagement": {"enable": True, "webhookServiceName": SERVICE, "webhookSecretName": SECRET},
        "integrations": {"frameworks": list(FRAMEWORKS)},
        "featureGates": {"VisibilityOnDemand": False},
    }


def _crd(file: Path, client: Object) -> Object:
    (crd,) = _documents(file)
    if crd["spec"]["names"]["plural"] in CONVERTED:
        webhook = {"clientConfig": client, "conversionReviewVersions": ["v1"]}
        crd["spec"]["conversion"] = {"strategy": "Webhook", "webhook": webhook}
    return crd


def _hooks(configuration: Object, port: int) -> Object:
    """Return a webhook configuration under the name that Kueue looks for, with the webhooks that it serves here."""
    name = f"kueue-{configuration['metadata']['name']}"
    hooks = []
    for hook in configuration["webhooks"]:
        service = hook["clientConfig"]["service"]
        if any(path in service["path"] for path in WEBHOOK_PATHS):
            address = {**service, "name": SERVICE, "namespace": NAMESPACE, "port": port}
            hooks.append({**hook, "clientConfig": {"service": address}})
    return {**configuration, "metadata": {"name": name}, "webhooks": hooks}


def _documents(file: Path) -> list[Object]:
    return [one for one in yaml.safe_load_all(file.read_text(encoding="utf-8")) if one]


def _apply(plane: ControlPlane, name: str, objects: list[Object]) -> None:
    file = plane.directory / f"{name}.json"
    file.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": objects}))
    plane.kubectl("apply", "--server-side", "--force-conflicts", "-f", str(file))


def _mount(plane: ControlPlane, directory: Path) -> bool:
    """Write the Secret's files where Kueue reads them; false while it has none."""
    data = plane.request("GET", f"/api/v1/namespaces/{NAMESPACE}/secrets/{SECRET}").body.get("data") or {}
    for name, text in data.items():
        (directory / name).write_bytes(base64.b64decode(text))
    return "tls.crt" in data


def _is_ready(port: int) -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=5) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


def _answers(plane: ControlPlane) -> bool:
    flavor = {"apiVersion": "kueue.x-k8s.io/v1beta1", "kind": "ResourceFlavor", "metadata": {"name": "asked"}}
    path = "/apis/kueue.x-k8s.io/v1beta1/resourceflavors"
    return plane.request("POST", path, flavor, dryRun="All").status == 201
