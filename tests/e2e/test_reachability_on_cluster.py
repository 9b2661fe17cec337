"""Who can reach whom: every pair of pods of a run, of the chart and of strangers, where policies are enforced."""

import os
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from builders.cluster.controlplane import until
from builders.cluster.install import PROBLEMS, Installed
from builders.cluster.reachability import pod_of, policies_of, try_connections
from builders.cluster.runs import COMPONENTS, small
from builders.cluster.tasks import Tasks
from reachability import closed_side

pytestmark = pytest.mark.skipif(
    not os.environ.get("EVALRUN_POLICY_DROPS"),
    reason="EVALRUN_POLICY_DROPS names no command that prints dropped packets: policies may not be enforced",
)
RUN = "reached"
PORTS = (6379, 8080, 8090, 9090, 50051)
"""Of ours; each is tried at each pod, whether it listens or not."""
OPERATOR = {"app.kubernetes.io/name": "evalrun", "app.kubernetes.io/component": "operator"}


@pytest.fixture
def other_namespace(install: Installed) -> Iterator[Installed]:
    with install.another_namespace("strangers") as there:
        yield there


def test_each_pair_of_pods_connects_as_the_policies_say(
    install: Installed, other_namespace: Installed, tasks: Tasks, directory: Path, provoked_drops: Counter[str]
) -> None:
    cluster = install.cluster
    # Nobody answers, so that every part of the run is there for as long as is needed.
    install.start(tasks.manifest(RUN, f"pvc://{PROBLEMS}", install.endpoint("nobody"), **small()), directory)
    other_namespace.mount("stranger")
    other_namespace.mount("impostor", labels=OPERATOR)
    install.mount("stranger")

    def pods_of_run() -> list[str]:
        return [pod for component in COMPONENTS for pod in cluster.pods(install.runs, RUN, component)]

    until(lambda: len(pods_of_run()) == len(COMPONENTS), "the run's pods to be there", limit=120)
    system = [
        pod["metadata"]["name"]
        for pod in cluster.get(install.system, "pods")["items"]
        if pod["status"].get("phase") == "Running" and "deletionTimestamp" not in pod["metadata"]
    ]
    places = [
        *((install.runs, pod) for pod in (*pods_of_run(), "stranger", "files")),
        *((other_namespace.runs, pod) for pod in ("stranger", "impostor")),
        *((install.system, pod) for pod in system),
    ]
    with ThreadPoolExecutor(8) as threads:
        pods = list(threads.map(lambda place: pod_of(cluster, *place), places))
        policies = policies_of(cluster)
        pairs = [(target, address, port) for target, address in pods for port in PORTS]
        addresses = [(address, port) for _, address, port in pairs]
        tried = list(threads.map(lambda caller: try_connections(cluster, caller[0], addresses), pods))
    differing = []
    for (caller, _), answers in zip(pods, tried, strict=True):
        for (target, _, port), is_reached in zip(pairs, answers, strict=True):
            closed = closed_side(policies, caller, target, port)
            if closed is not None:
                dropping = caller if closed == "Egress" else target
                provoked_drops[f"{closed.lower()} {dropping.namespace}/{dropping.name}"] += 1
            if target != caller and is_reached is not (closed is None):
                differing.append((caller.name, target.name, port, is_reached))
    count = len(pods) * (len(pods) - 1) * len(PORTS)
    print(f"{count} connections between {len(pods)} pods tried, {sum(map(sum, tried))} opened")
    assert differing == []
    cluster.kubectl("delete", "evalrun", RUN, "--namespace", install.runs, "--wait=false")
