"""What is read of an object: only what can be relied on."""

from typing import Any

import pytest

from evalrun_operator.observed import Attempt, Cluster, Pod, Workload, digest

LABELS = {"evalrun.dev/run-uid": "u", "evalrun.dev/run": "run"}


def detail(kind: str, spec: dict[str, Any], status: dict[str, Any], **metadata: Any) -> Any:
    manifest = {"kind": kind, "metadata": {"name": "x", "labels": LABELS, **metadata}, "spec": spec, "status": status}
    return digest(manifest).detail


READY = ({"type": "HeadPodReady", "status": "True"},)


def ray_status(**fields: Any) -> dict[str, Any]:
    return {"observedGeneration": 2, "state": "ready", "readyWorkerReplicas": 2, "conditions": [*READY], **fields}


@pytest.mark.parametrize(
    ("spec", "status", "usable"),
    [
        ({}, ray_status(), True),
        ({}, ray_status(observedGeneration=1), False),
        ({}, ray_status(readyWorkerReplicas=1), False),  # `state` is still ready: it never goes back
        ({}, ray_status(conditions=[{"type": "HeadPodReady", "status": "False"}]), False),
        ({}, ray_status(conditions=[]), False),
        ({"suspend": True}, ray_status(), False),
        ({}, ray_status(conditions=[*READY, {"type": "RayClusterSuspending", "status": "True"}]), False),
        ({}, ray_status(conditions=[*READY, {"type": "RayClusterSuspended", "status": "True"}]), False),
        ({}, ray_status(conditions=[*READY, {"type": "RayClusterSuspending", "status": "False"}]), True),
        ({}, {}, False),
    ],
)
def test_a_ray_cluster_is_usable_only_while_all_of_it_is_up(
    spec: dict[str, Any], status: dict[str, Any], usable: bool
) -> None:
    cluster = detail("RayCluster", {"workerGroupSpecs": [{"replicas": 2}], **spec}, status, generation=2)
    assert isinstance(cluster, Cluster)
    assert cluster.usable is usable


@pytest.mark.parametrize(
    ("kind", "status", "outcome"),
    [
        ("Job", {}, "running"),
        ("Job", {"conditions": [{"type": "SuccessCriteriaMet", "status": "True"}]}, "running"),
        ("Job", {"conditions": [{"type": "Complete", "status": "True"}]}, "succeeded"),
        ("Job", {"conditions": [{"type": "Failed", "status": "True", "reason": "BackoffLimitExceeded"}]}, "failed"),
        ("RayJob", {}, "running"),
        ("RayJob", {"jobStatus": "RUNNING", "jobDeploymentStatus": "Running"}, "running"),
        ("RayJob", {"jobStatus": "SUCCEEDED", "jobDeploymentStatus": "Complete"}, "succeeded"),
        ("RayJob", {"jobStatus": "STOPPED", "jobDeploymentStatus": "Complete"}, "failed"),
        ("RayJob", {"jobStatus": "STOPPED", "jobDeploymentStatus": "Running"}, "failed"),
        ("RayJob", {"jobStatus": "FAILED", "jobDeploymentStatus": "Failed"}, "failed"),
        ("RayJob", {"jobStatus": "", "jobDeploymentStatus": "ValidationFailed"}, "failed"),
    ],
)
def test_how_an_attempt_ended(kind: str, status: dict[str, Any], outcome: str) -> None:
    attempt = detail(kind, {}, status)
    assert isinstance(attempt, Attempt)
    assert attempt.outcome == outcome


@pytest.mark.parametrize(
    ("status", "trouble", "code"),
    [
        ({"phase": "Running"}, "", None),
        ({"containerStatuses": [{"name": "a", "state": {"waiting": {"reason": "ContainerCreating"}}}]}, "", None),
        (
            {
                "containerStatuses": [
                    {"name": "a", "state": {"waiting": {"reason": "ImagePullBackOff", "message": "no"}}}
                ]
            },
            "ImagePullBackOff: no",
            None,
        ),
        (
            {
                "containerStatuses": [
                    {
                        "name": "a",
                        "restartCount": 3,
                        "state": {"waiting": {"reason": "CrashLoopBackOff"}},
                        "lastState": {"terminated": {"exitCode": 2, "reason": "Error", "message": "evalrun: no\nsuch"}},
                    }
                ]
            },
            "a ended with 2 (Error): evalrun: no such",
            2,
        ),
        (
            {"containerStatuses": [{"name": "a", "state": {"terminated": {"exitCode": 137, "reason": "OOMKilled"}}}]},
            "a ended with 137 (OOMKilled)",
            137,
        ),
        ({"phase": "Failed", "reason": "Evicted", "message": "disk"}, "Evicted: disk", None),
        (  # it runs again: what was, is no trouble any more
            {
                "containerStatuses": [
                    {"name": "a", "state": {"running": {}}, "lastState": {"terminated": {"exitCode": 1}}}
                ]
            },
            "",
            None,
        ),
    ],
)
def test_why_a_pod_does_not_run(status: dict[str, Any], trouble: str, code: int | None) -> None:
    pod = detail("Pod", {}, status)
    assert isinstance(pod, Pod)
    assert (pod.trouble, pod.exit_code) == (trouble, code)


@pytest.mark.parametrize(
    ("status", "settled"),
    [
        ({"observedGeneration": 2, "replicas": 1, "readyReplicas": 1, "updatedReplicas": 1}, True),
        ({"observedGeneration": 1, "replicas": 1, "readyReplicas": 1, "updatedReplicas": 1}, False),
        ({"observedGeneration": 2, "replicas": 1, "readyReplicas": 1, "updatedReplicas": 0}, False),
        ({"observedGeneration": 2, "replicas": 2, "readyReplicas": 1, "updatedReplicas": 1}, False),
        ({}, False),
    ],
)
def test_a_workload_is_settled_when_nothing_of_an_older_spec_is_left(status: dict[str, Any], settled: bool) -> None:
    workload = detail("StatefulSet", {"replicas": 1}, status, generation=2)
    assert isinstance(workload, Workload)
    assert workload.settled is settled


def test_only_what_the_run_owns_directly_counts_as_the_operators_work() -> None:
    owner = {"kind": "EvalRun", "uid": "u"}
    other = {"kind": "ScaledObject", "uid": "s"}
    for references, owned in (([owner], True), ([other], False), ([], False)):
        seen = digest(
            {"kind": "Deployment", "metadata": {"name": "x", "labels": LABELS, "ownerReferences": references}}
        )
        assert seen.owned is owned
