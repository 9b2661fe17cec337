"""A node is lost in the middle of a run: `make test-e2e-nodes`. EVALRUN_NODE_FAULTS is a command that crashes it."""

import os
import shlex
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from builders.cluster.cluster import Cluster
from builders.cluster.controlplane import until
from builders.cluster.install import PROBLEMS, Installed
from builders.cluster.runs import Verdicts, outcome, progress, small
from builders.cluster.tasks import Tasks

ASKED = "EVALRUN_NODE_FAULTS"
RUN = "lost"
MOVED_SECONDS = 60 + 20 + 40
"""What pods tolerate, the time to find a node lost here, and the start of two pods on a busy machine."""
HOST = "kubernetes.io/hostname"


def fault(*arguments: str) -> None:
    subprocess.run([*shlex.split(os.environ[ASKED]), *arguments], check=True, timeout=120)


@pytest.fixture
def worker(cluster: Cluster) -> Iterator[str]:
    """The node that will be lost; nothing that cannot move is on it."""
    if not os.environ.get(ASKED):
        pytest.skip("takes minutes and a cluster whose nodes can be crashed: make test-e2e-nodes")
    nodes = [node["metadata"]["name"] for node in cluster.get("default", "nodes")["items"]]
    node = sorted(nodes)[-1]
    cluster.kubectl("cordon", node)
    yield node
    cluster.kubectl("uncordon", node)


def test_gateway_and_sandbox_leave_a_lost_node_and_the_verdicts_stay(
    worker: str, request: pytest.FixtureRequest, paced_tasks: tuple[Tasks, Verdicts], directory: Path
) -> None:
    install: Installed = request.getfixturevalue("install")  # while the node is cordoned
    cluster, (tasks, wanted) = install.cluster, paced_tasks
    cluster.kubectl("uncordon", worker)
    there = {"preference": {"matchExpressions": [{"key": HOST, "operator": "In", "values": [worker]}]}, "weight": 100}
    here = {"matchExpressions": [{"key": HOST, "operator": "NotIn", "values": [worker]}]}
    moves = {"affinity": {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [there]}}}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [here]}}
    stays = {"affinity": {"nodeAffinity": required}}
    judge = {"gateway": {"maxReplicas": 1}, "sandbox": {"maxReplicas": 1, "slots": 1}}
    placement = {"gateway": moves, "sandbox": moves, "generator": stays, "aggregator": stays}
    spec = small(judge=judge, placement=placement)
    install.start(tasks.manifest(RUN, f"pvc://{PROBLEMS}", install.endpoint("paced-answers"), **spec), directory)
    next(judged for judged, _ in progress(install, RUN) if judged)
    assert set(nodes_of(install).values()) == {worker}
    lost = time.monotonic()
    fault("crash", worker)
    try:
        until(lambda: worker not in nodes_of(install).values() and len(nodes_of(install)) == 2, "both to move", 300)
        moved = time.monotonic() - lost
        run = outcome(install, RUN, 600)
    finally:
        fault("boot", worker)
    print(f"gateway and sandbox ran elsewhere {moved:.0f} s after their node was lost")
    assert run.verdicts == wanted
    assert (run.status["notJudged"], run.status["attempts"]) == ("0", 1)
    assert moved < MOVED_SECONDS


def nodes_of(install: Installed) -> dict[str, str]:
    """Return by component the nodes of the gateway and the sandbox that run and stay."""
    found = install.cluster.get(install.runs, "pods", "--selector", f"evalrun.dev/run={RUN}")["items"]
    return {
        component: pod["spec"]["nodeName"]
        for pod in found
        if (component := pod["metadata"]["labels"]["app.kubernetes.io/component"]) in ("judge", "sandbox")
        and "deletionTimestamp" not in pod["metadata"]
        and pod["status"].get("phase") == "Running"
    }
