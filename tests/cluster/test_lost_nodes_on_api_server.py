"""Nodes that fall silent under a run on GPUs: nobody confirms the end of their pods, and others take their place.

kwok plays the kubelets. It is stopped, so that it says nothing; the controllers, the scheduler and KubeRay are real.
"""

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from builders.cluster.controlplane import ControlPlane, until
from builders.operator.evalruns import evalrun_manifest
from builders.operator.running_operator import (
    OperatorProcess,
    Run,
    ScriptedLedger,
    make_namespace,
    operator_kubeconfig,
    remove_namespace,
    running_operator,
    serving_ledger,
)

NAMESPACE = "lost-nodes"
GIVEN_UP_SECONDS = 60.0
"""What pods tolerate, their grace period, and five seconds."""
SLACK_SECONDS = 15.0
"""Of controllers on a busy machine."""
MERGE = "application/strategic-merge-patch+json"


@pytest.fixture
def operator(kuberay: ControlPlane, ledger: ScriptedLedger) -> Iterator[OperatorProcess]:
    make_namespace(kuberay, NAMESPACE)
    account = operator_kubeconfig(kuberay)
    with serving_ledger(ledger) as address, running_operator(kuberay, account, address) as process:
        yield process
        remove_namespace(kuberay, NAMESPACE)


@pytest.fixture
def ledger() -> ScriptedLedger:
    return ScriptedLedger()


@pytest.fixture
def kubelets(kuberay: ControlPlane) -> Iterator[int]:
    """The process that plays the kubelets; it goes on at the end, whatever happens."""
    config = f"--kubeconfig={kuberay.kubeconfig}".encode()
    found = [
        int(path.parent.name)
        for path in Path("/proc").glob("[0-9]*/cmdline")
        if (words := read_words(path)) and Path(os.fsdecode(words[0])).name == "kwok" and config in words
    ]
    (pid,) = found
    yield pid
    os.kill(pid, signal.SIGCONT)


def read_words(cmdline: Path) -> list[bytes]:
    try:
        return cmdline.read_bytes().split(b"\0")
    except OSError:  # it has ended
        return []


def ray_pods(run: Run) -> dict[str, dict[str, Any]]:
    """Return a run's Ray pods by uid."""
    pods = run.objects("pods")
    return {pod["metadata"]["uid"]: pod for pod in pods if "ray.io/node-type" in pod["metadata"]["labels"]}


@pytest.mark.timeout(400)
def test_ray_pods_of_silent_nodes_are_given_up_within_a_minute_and_no_attempt_is_counted(
    kuberay: ControlPlane, operator: OperatorProcess, kubelets: int
) -> None:
    assert operator.is_live()
    manifest = evalrun_manifest({"spec.output": {"url": "s3://bucket/x"}}, rollout=True)
    run = Run(kuberay, NAMESPACE, "run").create(manifest)
    run.wait_for("Generated", "False", "Generating")
    before = ray_pods(run)
    assert len(before) == 2  # head and worker
    os.kill(kubelets, signal.SIGSTOP)
    silent = {"type": "Ready", "status": "Unknown", "reason": "NodeStatusUnknown", "message": "as the test says"}
    for node in kuberay.request("GET", "/api/v1/nodes").body["items"]:
        path = f"/api/v1/nodes/{node['metadata']['name']}/status"
        assert kuberay.request("PATCH", path, {"status": {"conditions": [silent]}}, MERGE).status == 200
    lost = time.monotonic()

    def are_given_up() -> bool:
        return not before.keys() & ray_pods(run).keys()

    until(are_given_up, "the silent nodes' pods to be given up", 2 * GIVEN_UP_SECONDS)
    given_up = time.monotonic() - lost
    print(f"the pods of silent nodes were given up after {given_up:.0f} s")
    os.kill(kubelets, signal.SIGCONT)
    run.wait_for("Generated", "False", "Generating", limit=120.0)
    until(lambda: len(ray_pods(run)) == 2 and not before.keys() & ray_pods(run).keys(), "head and worker anew")
    assert run.get()["status"]["attempts"] == 1
    assert given_up <= GIVEN_UP_SECONDS + SLACK_SECONDS
