"""Mutated objects of one tenant on a real API server: the operator stays up and serves another tenant within 5 s.

`make fuzz-operator` tries 10,000 of them.
"""

import os
import random
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from builders.cluster.controlplane import ControlPlane, until
from builders.operator.evalruns import evalrun_manifest
from builders.operator.mutated_objects import mutated_object
from builders.operator.running_operator import (
    RUNS,
    OperatorProcess,
    make_namespace,
    operator_kubeconfig,
    remove_namespace,
    running_operator,
)
from builders.operator.simulated_aggregators import SIMULATED_OPERATOR

COUNT = int(os.environ.get("EVALRUN_FUZZ_OBJECTS", "200"))
SEED = int(os.environ.get("EVALRUN_FUZZ_SEED", "40"))
BATCH = 50
SERVED_SECONDS = 5.0
MAX_RESIDENT_MIB = 400
HOSTILE, OTHER = "hostile", "served"
SCHEDULES = "/apis/evalrun.dev/v1alpha1/namespaces/{namespace}/evalschedules"
CRD = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/evalruns.evalrun.dev"
PLACEMENT = "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/placement"
AFFINITY = f"{PLACEMENT}/additionalProperties/properties/affinity"
JSON_PATCH = "application/json-patch+json"


@pytest.fixture(autouse=True)
def deep_json() -> Iterator[None]:
    """Let this process, not the operator, write and read what is nested."""
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(20_000)
    yield
    sys.setrecursionlimit(before)


@pytest.fixture(scope="module")
def operator(nodes: ControlPlane) -> Iterator[OperatorProcess]:
    for namespace in (HOSTILE, OTHER):
        make_namespace(nodes, namespace)
    program = (*SIMULATED_OPERATOR, "0.5")
    with running_operator(nodes, operator_kubeconfig(nodes), "unused", flags=(), program=program) as process:
        yield process
    for namespace in (HOSTILE, OTHER):
        remove_namespace(nodes, namespace)


def seconds_until_served(plane: ControlPlane, name: str) -> float:
    manifest = evalrun_manifest({"metadata": {"name": name, "namespace": OTHER}, "spec.suspend": True})
    path, began = RUNS.format(namespace=OTHER), time.monotonic()
    assert plane.request("POST", path, manifest).status == 201
    until(lambda: plane.request("GET", f"{path}/{name}").body.get("status", {}).get("conditions"), "a status")
    return time.monotonic() - began


def await_served(plane: ControlPlane, namespace: str) -> None:
    until(lambda: plane.request("GET", RUNS.format(namespace=namespace)).status == 200, "the CRD")


def resident_mib(operator: OperatorProcess) -> float:
    assert operator.process is not None
    lines = Path(f"/proc/{operator.process.pid}/status").read_text(encoding="utf-8").splitlines()
    (line,) = (line for line in lines if line.startswith("VmRSS"))
    return int(line.split()[1]) / 1024


@pytest.mark.timeout(600 + COUNT)
def test_operator_beside_mutated_objects_serves_another_tenant(nodes: ControlPlane, operator: OperatorProcess) -> None:
    chance, taken = random.Random(SEED), 0
    slowest = largest = 0.0
    for first in range(0, COUNT, BATCH):
        for number in range(first, min(first + BATCH, COUNT)):
            manifest = mutated_object(chance, HOSTILE, number)
            path = SCHEDULES if manifest.get("kind") == "EvalSchedule" else RUNS
            answer = nodes.request("POST", path.format(namespace=HOSTILE), manifest, fieldValidation="Ignore")
            assert answer.status in {201, 400, 413, 422}, answer.message
            taken += answer.status == 201
        slowest = max(slowest, seconds_until_served(nodes, f"run-{first}"))
        largest = max(largest, resident_mib(operator))
        assert operator.is_live()
        for path in (RUNS, SCHEDULES):
            assert nodes.request("DELETE", path.format(namespace=HOSTILE)).status == 200
    print(f"{COUNT} objects, {taken} taken; another tenant served in {slowest:.1f} s; at most {largest:.0f} MiB")
    assert taken > COUNT / 10
    assert slowest <= SERVED_SECONDS
    assert largest <= MAX_RESIDENT_MIB
    assert operator.process is not None
    assert operator.process.poll() is None


def test_operator_under_a_schema_without_bounds_skips_a_deep_object_with_an_event(
    nodes: ControlPlane, operator: OperatorProcess
) -> None:
    """As under the CRD of an earlier release, which stored whatever an affinity held."""
    loose: dict[str, Any] = {
        "op": "add", "path": f"{AFFINITY}/x-kubernetes-preserve-unknown-fields", "value": True
    }  # fmt: skip
    assert nodes.request("PATCH", CRD, [loose], JSON_PATCH).status == 200
    path = RUNS.format(namespace=HOSTILE)
    deep: Any = {}
    for _ in range(2000):
        deep = {"a": deep}
    manifest = evalrun_manifest(
        {
            "metadata": {"name": "deep", "namespace": HOSTILE},
            "spec.suspend": True,
            "spec.placement": {"aggregator": {"affinity": deep}},
        }
    )
    try:

        def is_stored() -> bool:
            stored = nodes.request("POST", path, manifest, dryRun="All", fieldValidation="Ignore")
            return "a" in stored.body.get("spec", {}).get("placement", {}).get("aggregator", {}).get("affinity", {})

        until(is_stored, "the schema without bounds")
        assert nodes.request("POST", path, manifest, fieldValidation="Ignore").status == 201
        assert seconds_until_served(nodes, "beside-deep") <= SERVED_SECONDS

        def is_told() -> bool:
            events = nodes.request("GET", f"/api/v1/namespaces/{HOSTILE}/events").body["items"]
            told = [one for one in events if one["reason"] == "Unreadable"]
            return [one["involvedObject"]["name"] for one in told] == ["deep"]

        until(is_told, "an event on the object")
        operator.kill()
        operator.start()  # whoever starts anew lists it
        assert seconds_until_served(nodes, "beside-deep-again") <= SERVED_SECONDS
    finally:
        nodes.request("DELETE", f"{path}/deep")
        nodes.request("PATCH", CRD, [{**loose, "op": "remove"}], JSON_PATCH)
        for each in (HOSTILE, OTHER):  # a changed CRD is not served for a moment
            await_served(nodes, each)
