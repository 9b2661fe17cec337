"""Nodes that fall silent under a run on GPUs: nobody confirms the end of their pods, and others take their place.

kwok plays the kubelets. It is stopped, so that it says nothing; the controllers, the scheduler and KubeRay are real.
"""

import itertools
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

NUMBERS = itertools.count(1)
GIVEN_UP_SECONDS = 60.0
"""What pods tolerate, their grace period, and five seconds."""
SLACK_SECONDS = 15.0
"""Of controllers on a busy machine."""
MERGE = "application/strategic-merge-patch+json"


@pytest.fixture
def namespace(kuberay: ControlPlane) -> str:
    name = f"lost-nodes-{next(NUMBERS)}"
    make_namespace(kuberay, name)
    return name


@pytest.fixture
def operator(kuberay: ControlPlane, ledger: ScriptedLedger, namespace: str) -> Iterator[OperatorProcess]:
    account = operator_kubeconfig(kuberay)
    with serving_ledger(ledger) as address, running_operator(kuberay, account, address) as process:
        yield process
        remove_namespace(kuberay, namespace)


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


def lose_node(plane: ControlPlane, node: str) -> None:
    """Say what the node controller would say 40 s later. Were all nodes lost at once, it would take no pod away."""
    silent = {"type": "Ready", "status": "Unknown", "reason": "NodeStatusUnknown", "message": "as the test says"}
    path = f"/api/v1/nodes/{node}/status"
    assert plane.request("PATCH", path, {"status": {"conditions": [silent]}}, MERGE).status == 200


@pytest.mark.timeout(400)
def test_ray_pods_of_a_silent_node_are_given_up_within_a_minute_and_no_attempt_is_counted(
    kuberay: ControlPlane, operator: OperatorProcess, namespace: str, kubelets: int
) -> None:
    assert operator.is_live()
    manifest = evalrun_manifest({"spec.output": {"url": "s3://bucket/x"}}, rollout=True)
    run = Run(kuberay, namespace, "run").create(manifest)
    run.wait_for("Generated", "False", "Generating")
    assert len(ray_pods(run)) == 2
    (worker,) = (pod for pod in ray_pods(run).values() if pod["metadata"]["labels"]["ray.io/node-type"] == "worker")
    node = worker["spec"]["nodeName"]
    before = {uid for uid, pod in ray_pods(run).items() if pod["spec"]["nodeName"] == node}
    os.kill(kubelets, signal.SIGSTOP)
    lose_node(kuberay, node)
    lost = time.monotonic()

    def are_given_up() -> bool:
        return not before & ray_pods(run).keys()

    until(are_given_up, "the silent node's pods to be given up", 2 * GIVEN_UP_SECONDS)
    given_up = time.monotonic() - lost
    print(f"the pods of a silent node were given up after {given_up:.0f} s")
    os.kill(kubelets, signal.SIGCONT)
    run.wait_for("Generated", "False", "Generating", limit=120.0)
    until(lambda: len(ray_pods(run)) == 2 and not before & ray_pods(run).keys(), "head and worker anew")
    assert run.get()["status"]["attempts"] == 1
    assert given_up <= GIVEN_UP_SECONDS + SLACK_SECONDS


@pytest.mark.timeout(400)
def test_a_generator_of_a_silent_node_is_given_up_and_its_job_made_anew_with_a_higher_epoch(
    kuberay: ControlPlane, operator: OperatorProcess, namespace: str, kubelets: int
) -> None:
    """Its pod waits for a node until nobody says any more what runs there: kwok would end it at once."""
    assert operator.is_live()
    placement = {"generator": {"nodeSelector": {"pool": "silent"}}}
    changes = {"spec.output": {"url": "s3://bucket/x"}, "spec.placement": placement}
    run = Run(kuberay, namespace, "simple").create(evalrun_manifest(changes, rollout=False))
    until(lambda: bool(generators(run)), "the generator's pod")
    before = generators(run)
    os.kill(kubelets, signal.SIGSTOP)
    label = {"metadata": {"labels": {"pool": "silent"}}}
    node = kuberay.request("GET", "/api/v1/nodes").body["items"][0]["metadata"]["name"]
    assert kuberay.request("PATCH", f"/api/v1/nodes/{node}", label, MERGE).status == 200
    try:
        until(lambda: all(pod["spec"].get("nodeName") for pod in generators(run).values()), "the pod to have a node")
        (first,) = run.objects("jobs")
        lose_node(kuberay, node)
        lost = time.monotonic()
        until(lambda: not before.keys() & generators(run).keys(), "the pod to be given up", 2 * GIVEN_UP_SECONDS)
        given_up = time.monotonic() - lost
        print(f"the generator of a silent node was given up after {given_up:.0f} s")
        os.kill(kubelets, signal.SIGCONT)
        until(lambda: [job["metadata"]["uid"] for job in run.objects("jobs")] not in ([], [first["metadata"]["uid"]]),
              "another Job", 120)  # fmt: skip
        (second,) = run.objects("jobs")
        assert second["metadata"]["name"] == first["metadata"]["name"]  # the same attempt
        assert epoch_of(second) > epoch_of(first)
        assert run.get()["status"]["attempts"] == 1
        assert given_up <= GIVEN_UP_SECONDS + SLACK_SECONDS
    finally:
        os.kill(kubelets, signal.SIGCONT)
        unlabelled = {"metadata": {"labels": {"pool": None}}}
        kuberay.request("PATCH", f"/api/v1/nodes/{node}", unlabelled, MERGE)


def generators(run: Run) -> dict[str, dict[str, Any]]:
    """Return the pods of a run's generator by uid."""
    component = "app.kubernetes.io/component"
    pods = run.objects("pods")
    return {pod["metadata"]["uid"]: pod for pod in pods if pod["metadata"]["labels"].get(component) == "generator"}


def epoch_of(job: dict[str, Any]) -> int:
    arguments = job["spec"]["template"]["spec"]["containers"][0]["args"]
    (epoch,) = (int(one.removeprefix("--epoch=")) for one in arguments if one.startswith("--epoch="))
    return epoch
