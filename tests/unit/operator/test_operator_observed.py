"""What is read of an object: only what can be relied on."""

from typing import Any

import pytest

from evalrun_operator.observation.record_parser import UnreadableObjectError, parse_record, select_own_objects
from evalrun_operator.observation.records import Attempt, ObservedCluster, ObservedObject, Pod, Workload

LABELS = {"evalrun.dev/run-uid": "u", "evalrun.dev/run": "run"}


def detail(kind: str, spec: dict[str, Any], status: dict[str, Any], **metadata: Any) -> Any:
    manifest = {"kind": kind, "metadata": {"name": "x", "labels": LABELS, **metadata}, "spec": spec, "status": status}
    return parse_record(manifest).detail


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
        ({"workerGroupSpecs": [{"replicas": 2, "minReplicas": 1}]}, ray_status(readyWorkerReplicas=1), True),
        ({"workerGroupSpecs": [{"replicas": 2, "minReplicas": 1}]}, ray_status(readyWorkerReplicas=0), False),
        ({"workerGroupSpecs": [{"replicas": 2, "minReplicas": 2}]}, ray_status(readyWorkerReplicas=1), False),
    ],
)
def test_a_ray_cluster_is_usable_only_while_its_head_and_enough_workers_are_up(
    spec: dict[str, Any], status: dict[str, Any], usable: bool
) -> None:
    cluster = detail("RayCluster", {"workerGroupSpecs": [{"replicas": 2}], **spec}, status, generation=2)
    assert isinstance(cluster, ObservedCluster)
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
def test_attempt_outcome_follows_from_the_job_status(kind: str, status: dict[str, Any], outcome: str) -> None:
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
            {
                "containerStatuses": [
                    {
                        "name": "a",
                        "state": {
                            "terminated": {
                                "exitCode": 2,
                                "reason": "Error",
                                "message": '{"cause": "BadInput", "text": "no such"}',
                            }
                        },
                    }
                ]
            },
            "a ended with 2 (Error): no such",
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
def test_pod_trouble_and_exit_code_follow_from_its_status(
    status: dict[str, Any], trouble: str, code: int | None
) -> None:
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
def test_workload_is_settled_when_no_replica_of_an_older_spec_is_left(status: dict[str, Any], settled: bool) -> None:
    workload = detail("StatefulSet", {"replicas": 1}, status, generation=2)
    assert isinstance(workload, Workload)
    assert workload.settled is settled


def owner(kind: str, uid: str, name: str = "x", *, controller: bool = True) -> dict[str, Any]:
    return {"kind": kind, "uid": uid, "name": name, "controller": controller}


def seen(kind: str, name: str, *owners: dict[str, Any]) -> ObservedObject:
    metadata = {"name": name, "uid": f"uid-{name}", "labels": LABELS, "ownerReferences": list(owners)}
    return parse_record({"kind": kind, "metadata": metadata})


@pytest.mark.parametrize(
    ("references", "owned"),
    [
        ([owner("EvalRun", "u")], True),
        ([owner("ScaledObject", "s")], False),
        ([owner("EvalRun", "another")], False),
        ([owner("EvalRun", "u", controller=False)], False),
        ([owner("Tenant", "u")], False),
        ([], False),
    ],
)
def test_only_objects_controlled_by_the_run_are_owned(references: list[dict[str, Any]], owned: bool) -> None:
    assert seen("Deployment", "x", *references).owned is owned


def test_pod_is_selected_by_its_owner_and_not_by_a_copied_label() -> None:
    objects = [
        seen("StatefulSet", "run-aggregator", owner("EvalRun", "u")),
        seen("Deployment", "run-judge", owner("EvalRun", "u")),
        seen("PersistentVolumeClaim", "run-ledger-u"),
        seen("Pod", "run-aggregator-0", owner("StatefulSet", "uid-run-aggregator")),
        seen("Pod", "run-judge-5d-x", owner("ReplicaSet", "rs", "run-judge-5d")),
        seen("Pod", "copied"),
        seen("Pod", "of-another", owner("StatefulSet", "other")),
        seen("Pod", "of-another-deployment", owner("ReplicaSet", "rs-2", "prod-api-77")),
        seen("Deployment", "prod-api"),
        seen("ConfigMap", "run-order", owner("EvalRun", "another")),
        seen("PersistentVolumeClaim", "data"),
    ]
    assert {ref.name for ref in select_own_objects(objects)} == {
        "run-aggregator", "run-judge", "run-ledger-u", "run-aggregator-0", "run-judge-5d-x",
    }  # fmt: skip


@pytest.mark.parametrize("text", ["9" * 5000, "1e3", "-1", "", "²"])
def test_attempt_annotation_that_is_no_count_is_zero(text: str) -> None:
    metadata = {"name": "x", "labels": LABELS, "annotations": {"evalrun.dev/attempt": text}}
    assert parse_record({"kind": "Job", "metadata": metadata}).attempt == 0


@pytest.mark.parametrize(
    "broken",
    [
        {"metadata": {"name": "x", "labels": LABELS, "deletionTimestamp": "yesterday"}},
        {"metadata": {"name": "x", "labels": LABELS, "ownerReferences": [{"controller": True}]}},
        {"metadata": {"name": "x", "labels": LABELS}, "status": {"conditions": [1]}},
        {"metadata": {"name": "x", "labels": LABELS}, "spec": {"replicas": "two"}},
    ],
)
def test_malformed_object_raises_unreadable_object(broken: dict[str, Any]) -> None:
    with pytest.raises(UnreadableObjectError):
        parse_record({"kind": "Deployment", **broken})
