"""Runs under a quota of Kueue, whose own manager admits them and takes their place away; kwok pretends the pods."""

import itertools
from collections.abc import Iterator
from typing import Any

import pytest
from builders.cluster.controlplane import ControlPlane, until
from builders.cluster.kueue import local_queue, queue_objects
from builders.operator.evalruns import evalrun_manifest
from builders.operator.running_operator import (
    Run,
    ScriptedLedger,
    apply,
    make_namespace,
    operator_kubeconfig,
    remove_namespace,
    running_operator,
    serving_ledger,
    volume,
)

OUTPUT = {"spec.output": {"url": "s3://bucket/x"}}
QUOTA = {"cpu": "64", "memory": "1Ti", "ephemeral-storage": "1Ti", "nvidia.com/gpu": "8"}
"""Enough for one run on GPUs."""
SMALL_QUOTA = {"cpu": "1", "memory": "4Gi"}
"""Enough for one generator."""
URGENT = {
    "apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "urgent"}, "value": 1000,
}  # fmt: skip
JUDGE = ["run-judge", "run-sandbox"]
NUMBERS = itertools.count()


@pytest.fixture
def ledger() -> ScriptedLedger:
    return ScriptedLedger()


@pytest.fixture
def namespace(kueue: ControlPlane, ledger: ScriptedLedger) -> Iterator[str]:
    name = f"queued-{next(NUMBERS)}"
    make_namespace(kueue, name)
    with serving_ledger(ledger) as address, running_operator(kueue, operator_kubeconfig(kueue), address):
        yield name
        remove_namespace(kueue, name)


def urgent_job(namespace: str, queue: str, **requests: str) -> dict[str, Any]:
    """Return a Job that takes a quota from others. Its pod is refused here (not restricted), so it never ends."""
    container = {"name": "main", "image": "none", "resources": {"requests": requests, "limits": requests}}
    pod = {"restartPolicy": "Never", "priorityClassName": "urgent", "containers": [container]}
    metadata = {"name": "urgent", "namespace": namespace, "labels": {"kueue.x-k8s.io/queue-name": queue}}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": {"template": {"spec": pod}}}


def waits(run: Run, *words: str) -> None:
    """Wait until a run waits for its quota and says all of these words, and holds neither pods nor a judge."""
    run.wait_for("Admitted", "False", "WaitingForQuota", limit=90)
    says(run, *words)
    run.wait_until("neither judge nor attempt", "deployments,horizontalpodautoscalers,rayjobs", [], limit=90)
    until(lambda: all("aggregator" in name for name in run.names("pods")), "no pod but the aggregator's")


def says(run: Run, *words: str) -> None:
    """Wait until the condition Admitted says all of these words."""

    def said() -> str:
        return str(run.conditions()["Admitted"]["message"])

    try:
        until(lambda: all(word in said() for word in words), "")
    except TimeoutError as error:
        raise AssertionError(f"{said()!r} lacks some of {words}") from error


def test_gpu_run_waits_for_its_quota_and_continues_after_preemption(
    kueue: ControlPlane, ledger: ScriptedLedger, namespace: str
) -> None:
    apply(kueue, URGENT, volume(f"{namespace}-second-ledger"), *queue_objects(namespace, "gpus", QUOTA))
    manifest = evalrun_manifest({**OUTPUT, "spec.rollout.queueName": "gpus"}, rollout=True)
    first = Run(kueue, namespace, "first").create(manifest)
    first.wait_for("Generated", "False", "Generating", limit=90)
    run = Run(kueue, namespace, "run").create(manifest)
    waits(run, "until LocalQueue gpus has quota", "nvidia.com/gpu")
    first.delete()
    run.wait_for("Generated", "False", "Generating", limit=90)
    run.wait_until("its judge", "deployments", JUDGE)
    (cluster,) = run.names("rayclusters")
    ledger.generated, ledger.judged = 50, 40
    until(lambda: run.get()["status"].get("progress") == "40/164", "the verdicts to be counted")

    apply(kueue, urgent_job(namespace, "gpus", cpu="1", memory="1Gi", **{"nvidia.com/gpu": "8"}))
    waits(run, "until LocalQueue gpus has quota")
    assert run.get()["status"]["progress"] == "40/164"
    until(lambda: job(kueue, namespace, "urgent")["spec"]["suspend"] is False, "the urgent work to begin")
    kueue.kubectl("delete", "job", "urgent", "-n", namespace)
    run.wait_for("Generated", "False", "Generating", limit=90)
    assert run.names("rayclusters") == [cluster]
    ledger.generated = ledger.judged = 164
    run.wait_for("Succeeded", limit=90)
    assert run.get()["status"]["attempts"] == 1


def test_simple_mode_run_waits_for_its_quota_and_continues_after_preemption(
    kueue: ControlPlane, ledger: ScriptedLedger, namespace: str
) -> None:
    apply(kueue, URGENT, *queue_objects(namespace, "cpus", SMALL_QUOTA))
    apply(kueue, urgent_job(namespace, "cpus", cpu="1", memory="1Gi"))
    until(lambda: job(kueue, namespace, "urgent")["spec"]["suspend"] is False, "the quota to be taken")
    elsewhere = {"generator": {"nodeSelector": {"nowhere": "here"}}}  # kwok ends a Job's pods as soon as they run
    manifest = evalrun_manifest({**OUTPUT, "spec.generator": {"queueName": "cpus"}, "spec.placement": elsewhere})
    run = Run(kueue, namespace, "run").create(manifest)
    waits(run, "until LocalQueue cpus has quota", "insufficient unused quota for cpu")
    (attempt,) = run.names("jobs")
    kueue.kubectl("delete", "job", "urgent", "-n", namespace)
    run.wait_for("Generated", "False", "Generating", limit=90)
    run.wait_until("its judge", "deployments", JUDGE)
    ledger.generated, ledger.judged = 50, 40
    until(lambda: run.get()["status"].get("progress") == "40/164", "the verdicts to be counted")

    apply(kueue, urgent_job(namespace, "cpus", cpu="1", memory="1Gi"))
    waits(run, "until LocalQueue cpus has quota")
    assert run.get()["status"]["progress"] == "40/164"
    until(lambda: job(kueue, namespace, "urgent")["spec"]["suspend"] is False, "the urgent work to begin")
    kueue.kubectl("delete", "job", "urgent", "-n", namespace)
    run.wait_for("Generated", "False", "Generating", limit=90)
    assert run.names("jobs") == [attempt]
    ledger.generated = ledger.judged = 164
    run.wait_for("Succeeded", limit=90)
    assert run.get()["status"]["attempts"] == 1


@pytest.mark.parametrize("on_gpus", [False, True])
def test_missing_queue_is_named_and_the_run_starts_once_the_queue_exists(
    kueue: ControlPlane, namespace: str, on_gpus: bool
) -> None:
    field = "spec.rollout.queueName" if on_gpus else "spec.generator.queueName"
    changes = {**OUTPUT, field: "nights", "spec.activeDeadlineSeconds": 600}
    run = Run(kueue, namespace, "run").create(evalrun_manifest(changes, rollout=on_gpus))
    run.wait_for("Admitted", "False", "Inadmissible", limit=90)
    says(run, "LocalQueue nights doesn't exist", f"kubectl describe localqueue nights -n {namespace}")
    assert run.names("deployments") == []
    assert run.get()["status"]["reason"] == "Inadmissible"
    quota = QUOTA if on_gpus else SMALL_QUOTA
    flavor, cluster_queue, _ = queue_objects(namespace, "nights", quota)
    apply(kueue, flavor, cluster_queue, local_queue(namespace, "nights", cluster_queue["metadata"]["name"]))
    run.wait_for("Admitted", limit=90)
    run.wait_until("its judge", "deployments", JUDGE)


def job(plane: ControlPlane, namespace: str, name: str) -> dict[str, Any]:
    return plane.request("GET", f"/apis/batch/v1/namespaces/{namespace}/jobs/{name}").body
