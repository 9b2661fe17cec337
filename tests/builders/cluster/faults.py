"""What goes wrong around runs on a cluster: strangers with our labels, refusals, volumes that are short."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import PurePosixPath

from builders.cluster.cluster import CONTAINER_SECURITY, POD_SECURITY, Cluster, Object
from builders.cluster.install import Installed

DIGITS = 5000
"""Of a number that Python refuses to read (more than 4300)."""
MAKES_DIRECTORIES = """
import os, sys
for name in sys.argv[1:]:
    os.makedirs("/volumes/" + name)
    os.chmod("/volumes/" + name, 0o777)
"""


def quota(name: str, **hard: str) -> Object:
    return {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": name}, "spec": {"hard": hard}}


def strange_config_map() -> Object:
    """Return a ConfigMap that carries our label, and an annotation that no number is."""
    metadata = {
        "name": "bad", "labels": {"evalrun.dev/run-uid": "x"}, "annotations": {"evalrun.dev/attempt": "9" * DIGITS},
    }  # fmt: skip
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata}


def strange_pod(install: Installed, run: str) -> Object:
    """Return a pod with the labels of a run's aggregator that ends as a wrong spec would, but belongs to nobody."""
    uid = install.cluster.get(install.runs, "evalrun", run)["metadata"]["uid"]
    labels = {"evalrun.dev/run-uid": uid, "evalrun.dev/run": run, "app.kubernetes.io/component": "aggregator"}
    container = {
        "name": "checkpoint", "image": install.images["aggregator"], "securityContext": CONTAINER_SECURITY,
        "command": ["python", "-c", "import sys; sys.exit(2)"],
        "resources": {"requests": {"cpu": "10m"}, "limits": {"memory": "64Mi"}},
    }  # fmt: skip
    spec = {"containers": [container], "restartPolicy": "Never", "securityContext": POD_SECURITY}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "stranger", "labels": labels}, "spec": spec}


def pods_of(install: Installed, run: str) -> dict[str, tuple[str, tuple[str, ...]]]:
    """Return uid and images of each pod that a run has made, by name."""
    found = install.cluster.get(install.runs, "pods", "--selector", f"evalrun.dev/run={run}")["items"]
    return {
        pod["metadata"]["name"]: (
            pod["metadata"]["uid"],
            tuple(container["image"] for container in pod["spec"]["containers"]),
        )
        for pod in found
        if pod["metadata"].get("ownerReferences")
    }


def described(install: Installed, run: str) -> str:
    """Return what `kubectl describe` says of a run, its lines joined: kubectl breaks none, but indents."""
    return install.cluster.kubectl("describe", "evalrun", run, "--namespace", install.runs)


@contextmanager
def enough_volumes(cluster: Cluster, image: str, count: int) -> Iterator[None]:
    """Make so many more volumes of the default StorageClass where nothing provisions any; take them away at the end.

    They are copies of one that is there, in directories of their own beside its directory.
    """
    classes = cluster.get("default", "storageclasses")["items"]
    is_default = "storageclass.kubernetes.io/is-default-class"
    default = next(one for one in classes if one["metadata"].get("annotations", {}).get(is_default) == "true")
    if default["provisioner"] != "kubernetes.io/no-provisioner":
        yield
        return
    volumes = cluster.get("default", "persistentvolumes")["items"]
    model = next(one["spec"] for one in volumes if one["spec"].get("storageClassName") == default["metadata"]["name"])
    directory = PurePosixPath(model["local"]["path"]).parent
    names = [f"further-{number}" for number in range(count)]
    _make_directories(cluster, image, str(directory), names)
    cluster.apply("default", *(_copy(model, name, str(directory / name)) for name in names))
    try:
        yield
    finally:
        cluster.kubectl("delete", "persistentvolume", *names, "--wait=false")


def _make_directories(cluster: Cluster, image: str, directory: str, names: list[str]) -> None:
    container = {
        "name": "main", "image": image, "command": ["python", "-c", MAKES_DIRECTORIES, *names],
        "securityContext": {"runAsUser": 0}, "volumeMounts": [{"name": "volumes", "mountPath": "/volumes"}],
    }  # fmt: skip
    volume = {"name": "volumes", "hostPath": {"path": directory}}
    spec = {"containers": [container], "volumes": [volume], "restartPolicy": "Never"}
    cluster.apply("default", {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "folders"}, "spec": spec})
    try:
        done = "--for=jsonpath={.status.phase}=Succeeded"
        cluster.kubectl("wait", "pod/folders", "--namespace", "default", done, "--timeout=50s")
    finally:
        cluster.kubectl("delete", "pod", "folders", "--namespace", "default", "--now")


def _copy(model: Object, name: str, path: str) -> Object:
    spec = json.loads(json.dumps({key: value for key, value in model.items() if key != "claimRef"}))
    spec["local"]["path"] = path
    return {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": name}, "spec": spec}
