"""Nodes that a test loses. EVALRUN_NODE_FAULTS is a command that takes `crash`, `boot`, `cut` or `heal`, and a node."""

import os
import random
import shlex
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

from builders.cluster.cluster import Cluster, Object
from builders.cluster.controlplane import until
from builders.cluster.install import Installed

ASKED = "EVALRUN_NODE_FAULTS"
HOST = "kubernetes.io/hostname"
LOST = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
READY_SECONDS = 120.0
NOTED_CHARACTERS = 20_000


def is_asked() -> bool:
    """Return whether nodes may be lost here."""
    return bool(os.environ.get(ASKED))


def moments() -> list[float]:
    """Return at which shares of a run's verdicts its node is lost: EVALRUN_NODE_MOMENTS of them, one by default.

    No two are the same: the runs are called by them.
    """
    chance = random.Random(int(os.environ.get("EVALRUN_NODE_SEED", "40")))
    return [percent / 100 for percent in chance.sample(range(2, 51), int(os.environ.get("EVALRUN_NODE_MOMENTS", "1")))]


def fault(kind: str, node: str) -> None:
    """Crash, boot, cut or heal a node."""
    subprocess.run([*shlex.split(os.environ[ASKED]), kind, node], check=True, timeout=120)


def worker_of(cluster: Cluster) -> str:
    """Return the node that can be lost."""
    return sorted(str(node["metadata"]["name"]) for node in cluster.get("default", "nodes")["items"])[-1]


@contextmanager
def cordoned(cluster: Cluster) -> Iterator[None]:
    """Keep new pods, and with them volumes, off the node that will be lost; does nothing where none will be."""
    if not is_asked():
        yield
        return
    worker = worker_of(cluster)
    cluster.kubectl("cordon", worker)
    try:
        yield
    finally:
        cluster.kubectl("uncordon", worker)


@contextmanager
def lost(cluster: Cluster, kind: str, back: str, node: str) -> Iterator[None]:
    """Lose a node, and have it back at the end, Ready. An error meanwhile carries the nodes, pods and events of
    that moment."""
    fault(kind, node)
    try:
        yield
    except Exception as error:
        for what in ("nodes", "pods,jobs,evalruns", "events"):
            error.add_note(cluster.kubectl("get", what, "--all-namespaces", "--output=wide")[-NOTED_CHARACTERS:])
        raise
    finally:
        fault(back, node)
        until(lambda: is_ready(cluster, node), f"{node} to be Ready", READY_SECONDS)


def is_ready(cluster: Cluster, node: str) -> bool:
    found = cluster.get("default", "node", node)
    tainted = any(one["key"] in LOST for one in found["spec"].get("taints", ()))
    conditions = {one["type"]: one["status"] for one in found["status"]["conditions"]}
    return conditions.get("Ready") == "True" and not tainted


def prefers(node: str) -> Object:
    """Return the placement of a part that begins on a node, and leaves it as soon as Kubernetes finds it lost."""
    expression = {"key": HOST, "operator": "In", "values": [node]}
    there = {"preference": {"matchExpressions": [expression]}, "weight": 100}
    leaving = {"operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 1}
    return {
        "affinity": {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [there]}},
        "tolerations": [{"key": key, **leaving} for key in LOST],
    }


def avoids(node: str) -> Object:
    """Return the placement of a part that never is on a node."""
    terms = [{"matchExpressions": [{"key": HOST, "operator": "NotIn", "values": [node]}]}]
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    return {"affinity": {"nodeAffinity": required}}


def leader_of(install: Installed) -> str:
    """Return the pod of the operator that works; empty while none does."""
    lease = install.cluster.get(install.system, "lease", "evalrun-operator")
    return str(lease["spec"].get("holderIdentity") or "").partition("_")[0]


def lead_on(install: Installed, node: str) -> str:
    """Have the operator's replica on a node work; return its pod."""

    def operators() -> dict[str, str]:
        selector = "app.kubernetes.io/component=operator"
        found = install.cluster.get(install.system, "pods", "--selector", selector)["items"]
        return {
            pod["metadata"]["name"]: pod["spec"].get("nodeName", "")
            for pod in found
            if "deletionTimestamp" not in pod["metadata"]
            and any(one["type"] == "Ready" and one["status"] == "True" for one in pod["status"].get("conditions", ()))
        }

    def leads() -> bool:
        pods, leader = operators(), leader_of(install)
        if len(pods) < 2 or leader not in pods:
            return False
        if pods[leader] == node:
            return True
        # Where both are on one node, the one that is made anew goes to the other; else the other takes over.
        install.cluster.kubectl("delete", "pod", leader, "--namespace", install.system, "--wait=false")
        return False

    until(leads, f"an operator on {node} to work", READY_SECONDS)
    return leader_of(install)


def nodes_of(install: Installed, run: str) -> dict[str, str]:
    """Return by component the nodes of a run's pods that run and stay."""
    found = install.cluster.get(install.runs, "pods", "--selector", f"evalrun.dev/run={run}")["items"]
    return {
        pod["metadata"]["labels"]["app.kubernetes.io/component"]: pod["spec"]["nodeName"]
        for pod in found
        if "deletionTimestamp" not in pod["metadata"] and pod["status"].get("phase") == "Running"
    }
