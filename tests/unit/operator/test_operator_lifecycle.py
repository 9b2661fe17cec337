"""The decision, condition by condition and phase by phase."""

import copy
import json
import re
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from builders.operator.world import START, World, evalrun, generating, operator_settings

from evalrun_api import names
from evalrun_api.v1alpha1 import ConditionType as Kind
from evalrun_api.v1alpha1 import find_condition
from evalrun_operator.ledger_status import GateState, RunState
from evalrun_operator.lifecycle.acceptance import explain_unsupported_spec
from evalrun_operator.lifecycle.reconcile import decide
from evalrun_operator.observation.record_parser import parse_kueue_word
from evalrun_operator.observation.records import Baseline, KueueWord, ObjectKey
from evalrun_operator.resources.changes import make_patch
from evalrun_runtime.exits import EndCause
from evalrun_runtime.termination import TerminationMessage

SERVICES = ["run-aggregator", "run-judge", "run-sandbox"]


def workload(reason: str, message: str, second: str = "01", status: str = "False") -> dict[str, Any]:
    """Return a Workload of Kueue whose quota is reserved, or not."""
    condition = {"type": "QuotaReserved", "status": status, "reason": reason, "message": message}
    metadata = {"name": "job-run", "creationTimestamp": f"2026-01-31T12:00:{second}Z"}
    return {"metadata": metadata, "status": {"conditions": [condition]}}


def phases(world: World) -> list[str]:
    seen: list[str] = []
    for status in world.history:
        if status.phase is not None and (not seen or seen[-1] != status.phase):
            seen.append(status.phase)
    return seen


def test_first_reconciliation_only_accepts_the_spec() -> None:
    world = World()
    decision = world.step()
    assert not decision.apply
    assert world.status.start_time == START
    assert world.condition(Kind.ACCEPTED).status == "True"
    assert decision.requeue_after == 0.0


def test_a_run_on_gpus_goes_through_its_phases_to_the_end() -> None:
    world = generating()
    assert phases(world)[-1] == "Generating"
    assert world.of_kind("RayCluster") == ["run-0f3b2-ray-1"]
    assert world.of_kind("RayJob") == ["run-0f3b2-gen-1"]
    assert world.status.ray_cluster_name == "run-0f3b2-ray-1"
    world.generate_all().settle()
    assert world.of_kind("RayCluster") == []
    assert world.reason(Kind.CLUSTER_READY) == "ClusterReleased"
    assert world.status.generation_completed_time == START
    world.end_attempt(failed=False).finalize().settle()
    assert phases(world)[-1] == "Judging"
    world.judge_all().settle()
    assert world.status.phase == "Succeeded"
    assert world.status.accepted_at_1 == "0.5000"
    assert world.status.output_url == "s3://outputs/run"
    assert world.status.progress == "164/164"
    assert phases(world) == ["Preparing", "Generating", "Judging", "Succeeded"]


def test_simple_mode_needs_no_ray() -> None:
    world = generating(rollout=False)
    assert world.of_kind("RayCluster", "RayJob") == []
    assert world.of_kind("Job") == ["run-0f3b2-gen-1"]
    assert world.condition(Kind.CLUSTER_READY).status == "True"
    assert world.reason(Kind.CLUSTER_READY) == "NoClusterNeeded"
    world.generate_all().end_attempt(failed=False).settle().judge_all().settle()
    assert world.status.phase == "Succeeded"


def test_ray_cluster_is_not_created_before_aggregator_and_judge_are_up() -> None:
    world = World().settle()
    assert world.of_kind("RayCluster") == []
    assert world.reason(Kind.GENERATED) == "WaitingForServices"
    assert "aggregator, judge, sandbox not ready yet" in world.condition(Kind.CLUSTER_READY).message
    refusal = {"type": "ReplicaFailure", "status": "True", "reason": "FailedCreate", "message": "violates PodSecurity"}
    world.objects[ObjectKey("Deployment", "run-sandbox")]["status"] = {"conditions": [refusal]}
    world.settle()
    assert "run-sandbox: FailedCreate: violates PodSecurity" in world.condition(Kind.CLUSTER_READY).message
    world.services_up()
    world.reachable = False
    assert world.settle().of_kind("RayCluster") == []
    world.reachable = True
    assert world.settle().of_kind("RayCluster") == ["run-0f3b2-ray-1"]


def test_a_judge_that_blips_does_not_cost_the_cluster() -> None:
    world = generating().services_up(ready=False).settle()
    assert world.of_kind("RayCluster") == ["run-0f3b2-ray-1"]
    assert world.of_kind("RayJob") == ["run-0f3b2-gen-1"]
    assert world.reason(Kind.JUDGED) == "WaitingForServices"


def test_judge_and_generator_are_deleted_at_the_end_and_the_aggregator_a_minute_later() -> None:
    world = generating().generate_all().judge_all().settle().finalize().services_up().settle().finalize().settle()
    assert world.of_kind("HorizontalPodAutoscaler") == []
    assert world.of_kind("Deployment", "PodDisruptionBudget") == []
    assert world.of_kind("NetworkPolicy") == ["run-aggregator"]
    assert world.of_kind("Service") == ["run-aggregator"]
    assert world.of_kind("StatefulSet") == ["run-aggregator"]
    world.tick(61).settle().finalize().settle()
    assert {ref.kind for ref in world.objects} == {"PersistentVolumeClaim"}
    assert world.step().requeue_after is None


def test_the_aggregator_stays_as_long_as_the_spec_says() -> None:
    changes = {"spec.aggregator.keepSecondsAfterFinished": 3600}
    world = generating(changes=changes).generate_all().judge_all().settle().tick(3590).settle()
    assert world.of_kind("StatefulSet") == ["run-aggregator"]
    assert world.tick(20).settle().of_kind("StatefulSet") == []


def test_a_ttl_deletes_the_run_and_only_once_its_end_is_written() -> None:
    changes = {"spec.ttlSecondsAfterFinished": 0}
    world = generating(changes=changes).generate_all().judge_all()
    decision = world.step()
    assert (decision.expired, decision.status.phase) == (False, "Succeeded")  # whoever waits for its end is told first
    assert decision.requeue_after is not None
    assert world.step().expired
    world = generating(changes={"spec.ttlSecondsAfterFinished": 600}).generate_all().judge_all().settle()
    world.tick(61).settle().finalize().settle()
    assert world.step().requeue_after == 539.0
    assert not world.step().expired
    assert world.tick(540).step().expired


def test_without_a_ttl_a_run_is_kept() -> None:
    world = generating().generate_all().judge_all().settle().tick(10_000_000).settle().finalize().settle()
    assert not world.step().expired
    assert world.step().requeue_after is None


def images_of(world: World) -> set[str]:
    return set(re.findall(r'"image": "([^"]+)"', json.dumps(list(world.objects.values()))))


@pytest.mark.parametrize("rollout", [True, False])
def test_an_upgrade_in_mid_run_changes_no_image_and_no_object(rollout: bool) -> None:
    world = generating(rollout=rollout)
    before, images = copy.deepcopy(world.objects), images_of(world)
    assert images
    world.settings = operator_settings(
        aggregator_image="new:2", judge_image="new:2", sandbox_image="new:2", generator_image="new:2",
        ray_image="new:2", sandbox_slots=2, gateway_cpu="7", ray_version="2.99.0", otlp_endpoint="http://collector:4317",
    )  # fmt: skip
    assert not world.step().apply
    everything = replace(world.observed(), resync=True)
    kept = decide(world.run, everything, world.settings, world.now, "t").apply
    for item in kept:
        known = before[ObjectKey(item["kind"], item["metadata"]["name"])]
        assert item["metadata"]["annotations"] == known["metadata"]["annotations"]
    world.end_attempt(failed=True).settle().tick(60).settle().finalize().settle().kuberay().settle()
    assert world.status.attempts == 2  # made by the new operator, of the old images
    assert images_of(world) == images
    world.generate_all().judge_all().settle()
    assert world.status.phase == "Succeeded"


def test_operator_that_renders_otherwise_changes_only_fields_that_follow_the_runs_state() -> None:
    changes = {"spec.rollout.minReplicas": 4, "spec.rollout.maxReplicas": 16, "spec.rollout.maxNumSeqs": 16}
    world = generating(changes=changes)
    for item in world.objects.values():
        applied = item["metadata"]["annotations"].get(names.APPLIED_ANNOTATION, "")
        item["metadata"]["annotations"][names.APPLIED_ANNOTATION] = f"older-{applied.partition('-')[2]}"
    everything = replace(world.observed(), resync=True)
    assert not decide(world.run, everything, world.settings, world.now, "t").apply
    world.generated, world.busy = 160, ()
    (cluster,) = world.step().apply
    assert cluster["kind"] == "RayCluster"
    group = "/spec/workerGroupSpecs/0"
    changed = {change["path"]: change["value"] for change in make_patch(cluster)}
    assert set(changed) == {
        f"{group}/replicas", f"{group}/minReplicas", f"{group}/maxReplicas", f"{group}/scaleStrategy",
        "/metadata/annotations/evalrun.dev~1applied",
    }  # fmt: skip
    assert changed[f"{group}/replicas"] == 1


def test_an_edited_network_policy_is_put_right_at_once() -> None:
    world = generating()
    policy = world.objects[ObjectKey("NetworkPolicy", "run-sandbox")]
    policy["spec"].pop("egress")  # the API server stores no empty list
    assert not world.step().apply
    policy["spec"]["egress"] = [{}]
    (item,) = world.step().apply
    assert item["kind"] == "NetworkPolicy"
    assert {"op": "add", "path": "/spec", "value": item["spec"]} in make_patch(item)
    assert item["spec"]["egress"] == []


def test_objects_of_an_ended_run_are_never_applied_again() -> None:
    world = generating().generate_all().judge_all().settle().finalize().settle()
    world.settings = operator_settings(aggregator_image="evalrun-aggregator:next", sandbox_slots=2)
    del world.objects[ObjectKey("ConfigMap", "run-order")]
    everything = replace(world.observed(), resync=True)
    assert not decide(world.run, everything, world.settings, world.now, "t").apply
    world.tick(86_400).settle().finalize().change_spec(ttl_seconds_after_finished=100_000)
    assert not world.step().apply
    assert world.status.phase == "Succeeded"


@pytest.mark.parametrize("rollout", [True, False])
def test_a_failed_attempt_is_followed_by_another_after_a_wait(rollout: bool) -> None:
    world = generating(rollout=rollout).end_attempt(failed=True).settle()
    assert world.reason(Kind.GENERATED) == "AttemptFailed"
    assert world.status.attempts == 1
    assert world.live_attempts() == []
    world.tick(9).settle()
    assert world.status.attempts == 1
    world.tick(1.5).settle()
    assert world.status.attempts == 2
    assert [ref.name for ref in world.live_attempts()] == ["run-0f3b2-gen-2"]
    assert world.of_kind("RayCluster") == (["run-0f3b2-ray-1"] if rollout else [])  # warm: no model is loaded again


@pytest.mark.parametrize("rollout", [True, False])
def test_more_failures_than_the_backoff_limit_end_the_run(rollout: bool) -> None:
    world = generating(rollout=rollout, changes={"spec.backoffLimit": 1}).end_attempt(failed=True).settle()
    world.tick(60).settle().jobs_run().end_attempt(failed=True).settle().finalize().settle()
    assert world.status.phase == "Failed"
    assert world.reason(Kind.SUCCEEDED) == "BackoffLimitExceeded"
    assert world.condition(Kind.COMPLETE).status == "True"
    assert world.gpu_pods() == []
    assert "backoffLimit (1)" in world.condition(Kind.SUCCEEDED).message


def test_an_attempt_counts_although_its_operator_was_killed_before_it_wrote_the_status() -> None:
    world = World(run=evalrun(rollout=False), settings=operator_settings()).settle().services_up()
    while not world.live_attempts():
        world.step(writes=99)  # all objects are written, and the status never is
    assert world.status.attempts == 0
    assert world.generate_all().settle().status.attempts == 1


def test_an_attempt_that_ends_while_answers_are_missing_has_failed() -> None:
    world = generating(rollout=False).end_attempt(failed=False).settle()
    assert world.reason(Kind.GENERATED) == "AttemptFailed"
    assert "164 answers are missing" in world.condition(Kind.GENERATED).message


def test_an_attempt_that_ended_well_is_not_judged_by_a_ledger_that_does_not_answer() -> None:
    world = generating(rollout=False).end_attempt(failed=False)
    world.reachable = False
    assert world.settle().reason(Kind.GENERATED) == "Generating"
    world.reachable = True
    assert world.generate_all().settle().status.phase == "Judging"


def test_deleted_cluster_counts_as_an_attempt_and_is_replaced_under_another_name() -> None:
    world = generating()
    world.delete(ObjectKey("RayCluster", "run-0f3b2-ray-1"))
    world.settle()
    assert world.of_kind("RayCluster") == []  # its pods still hold the GPUs
    assert world.of_kind("RayJob") == []
    world.finalize().settle()
    assert world.of_kind("RayCluster") == ["run-0f3b2-ray-2"]
    assert world.kuberay().settle().status.attempts == 2


def test_replaced_head_fails_the_attempt_and_the_cluster_is_replaced() -> None:
    world = generating().replace_head()
    world.step()
    assert world.reason(Kind.GENERATED) == "AttemptFailed"
    assert "was replaced" in world.condition(Kind.CLUSTER_READY).message
    world.settle()
    world.finalize().settle().kuberay().settle()
    assert world.of_kind("RayCluster") == ["run-0f3b2-ray-2"]
    assert [ref.name for ref in world.live_attempts()] == ["run-0f3b2-gen-2"]


def test_evicted_head_counts_as_no_attempt() -> None:
    """As a Job's pod does not: the condition DisruptionTarget says that the cluster took it away."""
    world = generating(changes={"spec.backoffLimit": 0}).evict_head().settle()
    (said,) = {one.message for status in world.history for one in status.conditions if one.reason == "Interrupted"}
    assert said == "The head of run-0f3b2-ray-1 was taken away, e.g. to drain its node: no attempt is counted."
    assert world.of_kind("RayCluster", "RayJob") == []
    for job in world.live_attempts():
        world.objects[job]["status"] = {"jobStatus": "STOPPED", "jobDeploymentStatus": "Complete"}
    world.settle().finalize().settle().kuberay().settle()
    assert world.of_kind("RayCluster") == ["run-0f3b2-ray-1"]  # nothing of the one before is left
    assert [ref.name for ref in world.live_attempts()] == ["run-0f3b2-gen-1"]
    assert world.status.attempts == 1


def test_a_failure_that_came_before_the_eviction_counts() -> None:
    world = generating(changes={"spec.backoffLimit": 0}).end_attempt(failed=True).settle().evict_head().settle()
    assert world.reason(Kind.SUCCEEDED) == "BackoffLimitExceeded"


def test_head_restarted_in_place_counts_as_an_attempt() -> None:
    world = generating().restart_head()
    world.step()
    assert world.reason(Kind.GENERATED) == "AttemptFailed"
    assert "the head of RayCluster run-0f3b2-ray-1 restarted in place" in world.condition(Kind.GENERATED).message
    world.settle().finalize().settle().kuberay().settle()
    assert world.of_kind("RayCluster") == ["run-0f3b2-ray-2"]
    assert world.settle().status.attempts == 2  # its own head has not restarted


def test_a_head_that_restarted_before_the_attempt_is_that_attempts_head() -> None:
    world = World().settle().services_up().settle().kuberay().restart_head().settle()
    assert [ref.name for ref in world.live_attempts()] == ["run-0f3b2-gen-1"]
    assert world.settle().reason(Kind.GENERATED) == "Generating"


def test_job_stopped_by_kueue_counts_as_no_attempt() -> None:
    world = generating(changes={"spec.backoffLimit": 0})
    cluster = world.objects[ObjectKey("RayCluster", "run-0f3b2-ray-1")]
    cluster["spec"]["suspend"] = True
    world.settle()
    world.objects[ObjectKey("RayJob", "run-0f3b2-gen-1")]["status"] = {
        "jobStatus": "STOPPED"
    }  # while its finalizer works
    cluster["spec"].pop("suspend")
    world.settle().finalize().settle()
    assert (world.status.attempts, world.status.phase) == (1, "Generating")


def test_cluster_suspended_by_kueue_counts_as_no_attempt() -> None:
    world = generating()
    cluster = world.objects[ObjectKey("RayCluster", "run-0f3b2-ray-1")]
    cluster["spec"]["suspend"] = True
    world.settle()
    assert world.of_kind("RayJob") == []
    assert "suspended" in world.condition(Kind.CLUSTER_READY).message
    world.finalize()
    cluster["spec"].pop("suspend")
    assert world.settle().status.attempts == 1
    assert [ref.name for ref in world.live_attempts()] == ["run-0f3b2-gen-1"]


def test_suspend_ends_the_attempt_first_then_the_cluster_and_keeps_the_ledger() -> None:
    world = generating().change_spec(suspend=True).settle()
    assert world.of_kind("RayJob") == []
    assert world.of_kind("RayCluster") == ["run-0f3b2-ray-1"]
    assert world.reason(Kind.SUSPENDED) == "Suspending"
    world.finalize().settle()
    assert world.of_kind("RayCluster") == []
    assert world.condition(Kind.SUSPENDED).status == "False"
    world.finalize().settle()
    assert world.status.phase == "Suspended"
    assert world.of_kind("StatefulSet") == ["run-aggregator"]
    world.change_spec(suspend=False).settle().services_up().settle().kuberay().settle()
    assert world.status.attempts == 1
    assert [ref.name for ref in world.live_attempts()] == ["run-0f3b2-gen-1"]


def test_ray_job_that_is_never_finalized_frees_its_gpus_after_a_minute() -> None:
    world = generating().change_spec(suspend=True).settle()
    assert world.tick(61).settle().of_kind("RayCluster") == []


@pytest.mark.parametrize("generated", [False, True])
def test_a_suspended_run_holds_no_judge(generated: bool) -> None:
    world = generating()
    if generated:
        world.generate_all().settle().finalize()
    world.add_pod("run-sandbox-x", "sandbox", ObjectKey("Deployment", "run-sandbox"), {})
    world.change_spec(suspend=True).settle().finalize().settle().finalize().settle().finalize().settle()
    assert world.status.phase == "Suspended"
    assert world.of_kind("Deployment", "HorizontalPodAutoscaler") == []
    assert world.of_kind("StatefulSet") == ["run-aggregator"]
    assert "run-sandbox" in world.of_kind("NetworkPolicy")
    assert "not ready" not in world.condition(Kind.JUDGED).message
    assert find_condition(world.status, Kind.SCALING_ACTIVE) is None
    world.change_spec(suspend=False).settle().services_up().settle()
    assert world.of_kind("Deployment") == ["run-judge", "run-sandbox"]
    assert world.of_kind("HorizontalPodAutoscaler") == ["run-judge", "run-sandbox"]
    assert (phases(world)[-1] == "Judging") is generated


def test_a_suspended_run_whose_last_verdict_is_in_still_ends() -> None:
    world = generating().generate_all().settle().finalize().change_spec(suspend=True).settle()
    assert world.judge_all().settle().status.phase == "Succeeded"


def test_run_under_kueue_has_no_judge_while_it_waits_for_its_gpus() -> None:
    world = World(run=evalrun({"spec.rollout.queueName": "evals"})).settle()
    assert world.of_kind("Deployment") == []
    world.services_up()
    while world.of_kind("RayCluster") == []:
        world.step()
    assert world.of_kind("Deployment", "HorizontalPodAutoscaler") == []
    cluster = world.objects[ObjectKey("RayCluster", "run-0f3b2-ray-1")]
    cluster["spec"]["suspend"] = True  # Kueue's webhook, before anybody sees it
    world.settle().tick(86_400).settle()
    assert (world.status.reason, world.of_kind("Deployment")) == ("WaitingForQuota", [])
    cluster["spec"].pop("suspend")
    world.settle().services_up().settle().kuberay().settle()
    assert world.of_kind("Deployment") == ["run-judge", "run-sandbox"]
    assert world.status.phase == "Generating"
    cluster["spec"]["suspend"] = True  # it takes the place away again
    world.settle().finalize().settle()
    assert world.of_kind("Deployment") == []


def in_simple_mode(queue: str | None = "evals") -> World:
    """Return a run whose generator's Job is there, and suspended by Kueue's webhook before anybody sees it."""
    generator = {} if queue is None else {"spec.generator.queueName": queue}
    world = World(run=evalrun({"spec.activeDeadlineSeconds": 100, **generator}, rollout=False)).settle().services_up()
    while world.of_kind("Job") == []:
        world.step()
    world.objects[JOB]["spec"]["suspend"] = True
    return world.settle()


JOB = ObjectKey("Job", "run-0f3b2-gen-1")


def test_a_job_under_kueue_waits_without_a_judge_and_without_its_deadline() -> None:
    world = in_simple_mode()
    assert world.objects[JOB]["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == "evals"
    assert world.of_kind("Deployment", "HorizontalPodAutoscaler") == []
    world.kueue[JOB.name] = KueueWord("insufficient unused quota for cpu in flavor default, 1 more needed")
    world.settle().tick(86_400).settle()
    assert (world.status.phase, world.status.reason) == ("Preparing", "WaitingForQuota")
    assert world.condition(Kind.ADMITTED).message == (
        "Kueue holds Job run-0f3b2-gen-1 back until LocalQueue evals has quota: insufficient unused quota for cpu in "
        "flavor default, 1 more needed. No deadline runs meanwhile."
    )
    del world.objects[JOB]["spec"]["suspend"]
    world.settle().services_up().settle()
    assert world.of_kind("Deployment") == ["run-judge", "run-sandbox"]
    assert (world.status.phase, world.condition(Kind.ADMITTED).status) == ("Generating", "True")
    world.tick(99).settle()
    assert world.status.phase == "Generating"
    assert world.tick(2).settle().status.phase == "Failed"


def test_job_suspended_and_resumed_by_kueue_is_the_same_attempt() -> None:
    world = in_simple_mode()
    del world.objects[JOB]["spec"]["suspend"]
    world.settle().services_up()
    world.generated = world.judged = 50
    world.settle()
    world.objects[JOB]["spec"]["suspend"] = True
    world.settle().finalize().settle()
    assert (world.of_kind("Deployment"), world.status.progress) == ([], "50/164")
    assert "held back" in world.condition(Kind.GENERATED).message
    del world.objects[JOB]["spec"]["suspend"]
    world.settle().services_up().generate_all().judge_all().settle()
    assert (world.status.phase, world.status.attempts) == ("Succeeded", 1)


def test_missing_queue_is_named_with_the_remedy() -> None:
    world = in_simple_mode("nights")
    world.kueue[JOB.name] = KueueWord("LocalQueue nights doesn't exist", admissible=False)
    world.settle()
    assert world.status.reason == "Inadmissible"
    said = world.condition(Kind.ADMITTED).message
    assert "Kueue cannot admit Job run-0f3b2-gen-1: LocalQueue nights doesn't exist." in said
    assert "kubectl describe localqueue nights -n evals" in said


def test_job_suspended_without_a_queue_waits_for_quota_and_names_the_field() -> None:
    world = in_simple_mode(queue=None)
    said = world.condition(Kind.ADMITTED)
    assert (said.status, said.reason) == ("False", "WaitingForQuota")
    assert "spec.generator.queueName" in said.message


@pytest.mark.parametrize(
    ("workloads", "word"),
    [
        ([], KueueWord("")),
        ([{"metadata": {"name": "job-run"}}], KueueWord("")),
        ([workload("Pending", "insufficient quota.")], KueueWord("insufficient quota")),
        ([workload("Inadmissible", "a is stopped")], KueueWord("a is stopped", admissible=False)),
        ([workload("Pending", "old", "01"), workload("Pending", "new", "02")], KueueWord("new")),
        ([workload("QuotaReserved", "reserved", status="True")], KueueWord("")),
        (
            [{**workload("Pending", "preempted"), "spec": {"active": False}}],
            KueueWord("its Workload job-run is deactivated (spec.active: false)", admissible=False),
        ),
    ],
)  # fmt: skip
def test_message_of_kueue_is_read_from_the_newest_workload(workloads: list[dict[str, Any]], word: KueueWord) -> None:
    assert parse_kueue_word(workloads) == word


def test_network_policy_of_sandboxes_is_deleted_after_their_last_pod() -> None:
    world = generating(changes={"spec.activeDeadlineSeconds": 100})
    world.add_pod("run-sandbox-x", "sandbox", ObjectKey("Deployment", "run-sandbox"), {})
    world.tick(101).settle()
    assert world.of_kind("Deployment") == []
    assert "run-sandbox" in world.of_kind("NetworkPolicy")
    world.finalize().settle().finalize().settle()
    assert "run-sandbox" not in world.of_kind("NetworkPolicy")


def test_network_policy_of_ray_is_deleted_after_its_last_pod() -> None:
    world = generating(changes={"spec.activeDeadlineSeconds": 100}).tick(101).settle()
    assert "run-ray" in world.of_kind("NetworkPolicy")
    world.finalize().settle().finalize().settle()
    assert "run-ray" not in world.of_kind("NetworkPolicy")


def test_the_deadline_ends_a_run_and_frees_its_gpus() -> None:
    world = generating(changes={"spec.activeDeadlineSeconds": 100}).tick(101).settle().finalize().settle()
    assert world.status.phase == "Failed"
    assert world.reason(Kind.COMPLETE) == "DeadlineExceeded"
    assert world.gpu_pods() == []
    assert world.status.completion_time == START + timedelta(seconds=101)


def at_its_deadline(*, generated: int = 100, judged: int = 60, **changes: Any) -> World:
    """Return a world whose run has just passed its deadline, with some of its work done."""
    world = generating(changes={"spec.activeDeadlineSeconds": 100, **changes})
    world.generated, world.judged = generated, judged
    return world.settle().tick(101)


def test_deadline_frees_the_gpus_at_once_and_writes_partial_outputs() -> None:
    world = at_its_deadline()
    world.writes_early = False
    decision = world.step()
    assert decision.end_early == "activeDeadlineSeconds (100) have passed"
    assert world.reason(Kind.GENERATED) == "DeadlineExceeded"
    assert world.condition(Kind.COMPLETE).status == "False"
    world.finalize().settle().finalize().settle()
    assert world.gpu_pods() == []
    assert world.of_kind("Deployment", "RayCluster", "RayJob") == []
    assert world.of_kind("StatefulSet") == ["run-aggregator"]
    assert world.status.phase == "Judging"
    world.writes_early = True
    world.settle()
    assert (world.status.phase, world.reason(Kind.COMPLETE)) == ("Failed", "DeadlineExceeded")
    assert world.status.output_url == "s3://outputs/run"
    assert world.condition(Kind.SUCCEEDED).message == (
        "activeDeadlineSeconds (100) have passed. What there was by then is at s3://outputs/run, marked partial."
    )
    degraded = world.condition(Kind.DEGRADED)
    assert (degraded.status, degraded.reason) == ("True", "NotJudged")
    assert degraded.message == "104 of 164 answers have no verdict: the run ended early."
    assert world.condition(Kind.GENERATED).status == "False"
    assert world.tick(61).settle().finalize().settle().of_kind("StatefulSet") == []


def test_a_deadline_before_the_first_answer_ends_the_run_at_once() -> None:
    world = at_its_deadline(generated=0, judged=0)
    decision = world.step()
    assert (decision.end_early, world.reason(Kind.COMPLETE)) == ("", "DeadlineExceeded")
    assert world.status.output_url is None


@pytest.mark.parametrize(("seconds", "ends"), [(60, False), (180, True)])
@pytest.mark.parametrize("generated", [100, 164])
@pytest.mark.parametrize("lacks", ["reachable", "obeys"])
def test_a_ledger_that_does_not_answer_or_obey_is_waited_for_a_while(
    lacks: str, generated: int, seconds: float, ends: bool
) -> None:
    """An older aggregator knows no EndRun, and a full disk keeps a newer one from it."""
    world = at_its_deadline(generated=generated)
    setattr(world, lacks, False)
    world.settle().finalize().settle()
    assert world.gpu_pods() == []
    world.tick(seconds).settle()
    assert (world.condition(Kind.COMPLETE).status == "True") is ends


def test_a_ledger_that_cannot_write_ends_the_run_all_the_same() -> None:
    world = at_its_deadline()
    world.writes_early = False
    assert world.settle().tick(1700).settle().condition(Kind.COMPLETE).status == "False"
    assert world.tick(200).settle().reason(Kind.COMPLETE) == "DeadlineExceeded"
    world = at_its_deadline()
    world.ledger_state = RunState.FAILED
    assert world.settle().reason(Kind.COMPLETE) == "DeadlineExceeded"


def test_operator_away_at_the_deadline_still_has_partial_outputs_written() -> None:
    world = at_its_deadline().tick(86_400)
    assert world.step().end_early
    assert world.settle().status.output_url == "s3://outputs/run"
    assert world.reason(Kind.COMPLETE) == "DeadlineExceeded"


def test_stopped_run_frees_its_gpus_and_ends_with_partial_outputs() -> None:
    world = generating()
    world.generated, world.judged = 100, 60
    world.settle()
    attempts = world.status.attempts
    world.told_to_end, world.stopped_by_user, world.writes_early = "stopped by evalrun ctl", True, False
    world.settle().finalize().settle()
    assert (world.reason(Kind.GENERATED), world.reason(Kind.JUDGED)) == ("Stopped", "Stopped")
    assert (world.status.phase, world.gpu_pods(), world.of_kind("Deployment")) == ("Judging", [], [])
    world.tick(86_400).settle()
    assert world.condition(Kind.COMPLETE).status == "False"  # it writes as long as it takes
    world.writes_early = True
    world.settle()
    assert (world.status.phase, world.reason(Kind.COMPLETE), world.status.attempts) == ("Failed", "Stopped", attempts)
    assert world.status.output_url == "s3://outputs/run"
    assert world.condition(Kind.SUCCEEDED).message == (
        "stopped by evalrun ctl. What there was by then is at s3://outputs/run, marked partial."
    )


def test_stopped_run_with_a_ledger_briefly_unreachable_does_not_continue() -> None:
    """It had started a generator again, whose turn or GPUs it took from others."""
    world = generating()
    world.generated, world.judged = 100, 60
    world.settle()
    world.told_to_end, world.stopped_by_user, world.writes_early = "stopped by evalrun ctl", True, False
    world.settle().finalize().settle()
    world.reachable = False
    world.settle().tick(600).settle()
    assert (world.reason(Kind.GENERATED), world.reason(Kind.JUDGED), world.gpu_pods()) == ("Stopped", "Stopped", [])
    assert world.condition(Kind.COMPLETE).status == "False"
    world.reachable = world.writes_early = True
    world.settle()
    assert (world.reason(Kind.COMPLETE), world.status.output_url) == ("Stopped", "s3://outputs/run")


def test_paused_run_reports_the_pause_keeps_its_gpus_and_continues() -> None:
    world = generating()
    before, pods = world.condition(Kind.GENERATED).message, world.gpu_pods()
    world.paused = True
    world.settle()
    condition = world.condition(Kind.GENERATED)
    assert (condition.reason, condition.message) == ("Generating", "Paused: evalrun ctl er/run resume goes on.")
    assert world.gpu_pods() == pods != []
    world.paused = False
    assert world.settle().condition(Kind.GENERATED).message == before
    assert world.generate_all().judge_all().settle().finalize().settle().status.phase == "Succeeded"


def test_time_in_the_queue_does_not_count_towards_the_deadline() -> None:
    changes = {"spec.rollout.queueName": "evals", "spec.activeDeadlineSeconds": 100}
    world = World(run=evalrun(changes)).settle().services_up()
    while world.of_kind("RayCluster") == []:
        world.step()
    cluster = world.objects[ObjectKey("RayCluster", "run-0f3b2-ray-1")]
    cluster["spec"]["suspend"] = True
    world.settle().tick(86_400).settle()
    assert world.condition(Kind.COMPLETE).status == "False"
    cluster["spec"].pop("suspend")
    world.settle().tick(99).settle()
    assert world.condition(Kind.COMPLETE).status == "False"
    assert world.tick(2).settle().reason(Kind.COMPLETE) == "DeadlineExceeded"


def test_rates_count_only_the_time_at_work() -> None:
    """The ledger has drawn answers for 5 s and worked for 8 s, whatever the run waited for before."""
    world = generating()
    world.generated, world.judged = 100, 40
    world.tick(10_000).settle()
    assert (world.status.tokens_per_second, world.status.problems_per_second) == ("2000.0", "5.00")


def test_a_suspended_run_has_no_deadline_and_a_resumed_one_a_new_one() -> None:
    world = generating(changes={"spec.activeDeadlineSeconds": 100}).change_spec(suspend=True).settle()
    world.finalize().settle().finalize().settle().tick(500).settle()
    assert world.status.phase == "Suspended"
    world.change_spec(suspend=False).settle().tick(99).settle()
    assert world.status.completion_time is None
    assert world.tick(2).settle().reason(Kind.COMPLETE) == "DeadlineExceeded"


@pytest.mark.parametrize(
    ("not_judged", "phase", "reason"),
    [(0, "Succeeded", "Finished"), (4, "Degraded", "Finished"), (164, "Failed", "NotJudged")],
)
def test_not_judged_answers_degrade_the_run_or_fail_it_if_none_was_judged(
    not_judged: int, phase: str, reason: str
) -> None:
    world = generating().generate_all().settle().judge_all(not_judged=not_judged).settle()
    assert (world.status.phase, world.reason(Kind.SUCCEEDED)) == (phase, reason)
    assert world.condition(Kind.DEGRADED).status == str(bool(not_judged))
    assert world.status.not_judged == str(not_judged)


def test_a_lost_ledger_is_generated_again() -> None:
    world = generating().generate_all().settle().end_attempt(failed=False).finalize().settle()
    world.generated = 0
    world.settle().tick(60).settle().kuberay().settle()
    assert world.condition(Kind.GENERATED).status == "False"
    assert len(world.live_attempts()) == 1


def test_a_ledger_that_fails_is_restarted_and_in_the_end_given_up() -> None:
    world = generating(changes={"spec.backoffLimit": 2})
    world.ledger_state = RunState.FAILED
    for restarts in ("1", "2"):
        world.step()
        notes = world.objects[ObjectKey("StatefulSet", "run-aggregator")]["metadata"]["annotations"]
        assert notes["evalrun.dev/restarts"] == restarts
        world.step()  # the old process still answers: not counted twice
        world.services_up()
    world.settle()
    assert world.reason(Kind.SUCCEEDED) == "BackoffLimitExceeded"
    assert "said the ledger" in world.condition(Kind.SUCCEEDED).message


def test_aggregator_that_refuses_the_spec_ends_the_run_with_its_message() -> None:
    world = World(run=evalrun({"spec.backoffLimit": 0})).settle()
    world.add_pod("run-aggregator-0", "aggregator", ObjectKey("StatefulSet", "run-aggregator"), {})
    ended = {"exitCode": 2, "message": "evalrun: datasets.0: no such file", "reason": "Error"}
    world.objects[ObjectKey("Pod", "run-aggregator-0")]["status"] = {
        "containerStatuses": [{"name": "aggregator", "state": {"terminated": ended}}]
    }
    world.settle()
    assert world.reason(Kind.ACCEPTED) == "InvalidSpec"
    assert world.reason(Kind.COMPLETE) == "InvalidSpec"
    assert "datasets.0: no such file" in world.condition(Kind.SUCCEEDED).message


def aggregator_ended(message: str, restarts: int = 0) -> World:
    world = World(run=evalrun({"spec.backoffLimit": 3})).settle()
    world.add_pod("run-aggregator-0", "aggregator", ObjectKey("StatefulSet", "run-aggregator"), {})
    ended = {"terminated": {"exitCode": 2, "message": message, "reason": "Error"}}
    status = {"name": "aggregator", "restartCount": restarts, "state": ended}
    world.objects[ObjectKey("Pod", "run-aggregator-0")]["status"] = {"containerStatuses": [status]}
    return world.settle()


NOT_AUDITED = "AuditFailed: dataset 'humaneval': its audit failed: see data_manifests/audit_report.md"


@pytest.mark.parametrize("restarts", [0, 3])
def test_failed_audit_in_plain_text_is_not_recognized_by_its_words(restarts: int) -> None:
    """So writes an image that is older than the record, and anybody else may write it too."""
    world = aggregator_ended(f"evalrun: {NOT_AUDITED}", restarts)
    assert world.reason(Kind.COMPLETE) == ("InvalidSpec" if restarts else "Running")


def test_data_that_failed_its_audit_ends_the_run_at_once() -> None:
    record = TerminationMessage(EndCause.AUDIT_FAILED, NOT_AUDITED)
    world = aggregator_ended(record.to_json())
    assert world.reason(Kind.SUCCEEDED) == world.reason(Kind.COMPLETE) == "AuditFailed"
    assert world.condition(Kind.SUCCEEDED).message.startswith("AuditFailed: dataset 'humaneval': its audit failed: see")
    assert world.reason(Kind.ACCEPTED) == "SpecAccepted"


def test_pods_that_do_not_run_are_named_in_the_conditions() -> None:
    world = World().settle().services_up().settle().kuberay(usable=False)
    cluster = ObjectKey("RayCluster", "run-0f3b2-ray-1")
    world.add_pod("run-0f3b2-ray-1-worker-0", "ray", cluster, {"ray.io/cluster": "run-0f3b2-ray-1"}, gpus=8)
    world.objects[ObjectKey("Pod", "run-0f3b2-ray-1-worker-0")]["status"] = {
        "phase": "Pending",
        "conditions": [
            {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/2 nodes: no GPU"}
        ],
    }
    world.settle()
    assert "run-0f3b2-ray-1-worker-0: Unschedulable: 0/2 nodes: no GPU" in world.condition(Kind.CLUSTER_READY).message


def test_run_without_kuberay_reports_that_kuberay_is_not_installed() -> None:
    world = World(missing_kinds=frozenset({"RayCluster", "RayJob"})).settle().services_up().settle()
    assert world.of_kind("RayCluster") == []
    assert "KubeRay is not installed" in world.condition(Kind.CLUSTER_READY).message


def test_a_deleted_run_frees_its_gpus_though_a_finalizer_of_others_keeps_it() -> None:
    world = generating()
    metadata = world.run.metadata.model_copy(update={"deletion_timestamp": START, "finalizers": ["others.dev/audit"]})
    world.run = world.run.model_copy(update={"metadata": metadata})
    del world.objects[ObjectKey("ConfigMap", "run-order")]  # the collector is at it
    decision = world.step()
    assert not decision.apply
    world.finalize().step()  # the walls go after the pods
    world.finalize()
    assert {ref.kind for ref in world.objects} == {"PersistentVolumeClaim"}
    assert not world.step().delete


def test_restarted_operator_changes_no_object() -> None:
    for world in (World().settle(), generating(), generating().generate_all().settle().judge_all().settle()):
        world.finalize().settle().finalize().settle()
        decision = world.step()
        assert not decision.apply
        assert not decision.delete
        assert not decision.events


def test_objects_deleted_by_others_are_created_again() -> None:
    world = generating()
    made = {ref for ref in world.objects if ref.kind not in {"Pod", "RayCluster", "RayJob"}}
    for ref in made:
        world.objects.pop(ref)
        world.settle()
        world.services_up()
    assert made <= world.objects.keys()
    assert world.of_kind("RayJob") == ["run-0f3b2-gen-1"]


def test_only_what_the_run_owns_is_ever_deleted() -> None:
    world = generating()
    foreign = {
        "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": "keda-hpa", "labels": {"evalrun.dev/run-uid": "x"}, "annotations": {}, "uid": "u"},
        "status": {},
    }
    world.objects[ObjectKey("HorizontalPodAutoscaler", "keda-hpa")] = foreign
    assert not world.step().delete


def test_a_judge_that_may_sleep_must_be_scraped_to_be_woken() -> None:
    keda = operator_settings(autoscaling="keda")
    asleep = {"spec.judge.sandbox.minReplicas": 0}
    assert explain_unsupported_spec(evalrun(asleep), keda) == ""
    said = explain_unsupported_spec(evalrun({**asleep, "spec.exports": {"prometheus": False}}), keda)
    assert said.startswith("spec.judge.sandbox.minReplicas: 0 needs exports.prometheus: true")


@pytest.mark.parametrize(
    ("changes", "rollout", "says"),
    [
        ({"spec.judge.gateway.minReplicas": 0}, True, "spec.judge.gateway.minReplicas: 0 needs KEDA"),
        (
            {"spec.endpoints": [{"url": "http://a/v1", "model": "a"}, {"url": "http://b/v1", "model": "b"}]},
            False,
            "different models",
        ),
        ({"spec.datasets.0.judgeMode": "Submit"}, True, "needs backend: SandboxFusion"),
    ],
)
def test_spec_refused_by_the_operator_is_accepted_after_a_correction(
    changes: dict[str, object], rollout: bool, says: str
) -> None:
    world = World(run=evalrun(changes, rollout=rollout))
    decision = world.step()
    assert says in world.condition(Kind.ACCEPTED).message
    assert world.reason(Kind.COMPLETE) == "InvalidSpec"
    assert world.status.phase == "Failed"
    assert world.status.start_time is None  # so the API server lets the spec be changed
    assert [event.warning for event in decision.events] == [True]
    good = evalrun(rollout=rollout)
    world.run = world.run.model_copy(update={"spec": good.spec})
    world.change_spec().step()
    assert world.condition(Kind.ACCEPTED).status == "True"
    assert world.condition(Kind.COMPLETE).status == "False"


def test_a_run_that_is_refused_is_deleted_after_its_time_to_live_as_any_that_failed() -> None:
    world = World(run=evalrun({"spec.judge.gateway.minReplicas": 0, "spec.ttlSecondsAfterFinished": 600}))
    assert world.step().requeue_after == 600.0
    decision = world.tick(599).step()
    assert (decision.expired, decision.requeue_after) == (False, 1.0)
    assert world.tick(1).step().expired


def test_keda_can_scale_to_zero() -> None:
    run = evalrun({"spec.judge.gateway.minReplicas": 0})
    assert not explain_unsupported_spec(run, operator_settings(autoscaling="keda"))


@pytest.mark.parametrize(
    ("decision", "status", "reason"),
    [
        (GateState.PASSED, "True", "NoRegression"),
        (GateState.FAILED, "False", "Regression"),
        (GateState.INCONCLUSIVE, "Unknown", "Inconclusive"),
        (GateState.NO_BASELINE, "Unknown", "BaselineNotFound"),
    ],
)
def test_the_gate_is_copied_and_does_not_fail_the_run(decision: GateState, status: str, reason: str) -> None:
    world = generating(changes={"spec.gates": [{"baseline": "s3://runs/before", "dataset": "humaneval"}]})
    assert (world.condition(Kind.GATE_PASSED).status, world.reason(Kind.GATE_PASSED)) == ("Unknown", "GatePending")
    world.gate = decision
    world.generate_all().judge_all().settle()
    assert (world.condition(Kind.GATE_PASSED).status, world.reason(Kind.GATE_PASSED)) == (status, reason)
    assert world.status.phase == "Succeeded"
    assert world.status.gpu_seconds_per_solved == "10.00"


@pytest.mark.parametrize(("key", "status", "reason"), [("ab12", "True", "Signed"), ("", "False", "NotSigned")])
def test_attested_condition_of_ended_run_names_the_key(key: str, status: str, reason: str) -> None:
    world = generating(changes={"spec.attest": {"keySecretRef": {"name": "signing", "key": "key.pem"}}})
    assert (world.condition(Kind.ATTESTED).status, world.reason(Kind.ATTESTED)) == ("Unknown", "Running")
    world.attested_by = key
    world.generate_all().judge_all().settle()
    assert (world.condition(Kind.ATTESTED).status, world.reason(Kind.ATTESTED)) == (status, reason)
    assert key in world.condition(Kind.ATTESTED).message
    assert world.status.phase == "Succeeded"


def test_attested_condition_is_absent_without_attest() -> None:
    world = generating()
    assert Kind.ATTESTED not in {condition.type for condition in world.status.conditions}


def test_idle_gpu_warnings_are_in_the_message_of_accepted() -> None:
    world = generating()
    assert world.condition(Kind.ACCEPTED).message == ""
    world.warnings = ("rollout.enforceEager: write false", "rollout.maxNumSeqs: write 256")
    world.settle()
    said = "rollout.enforceEager: write false. rollout.maxNumSeqs: write 256."
    assert (world.condition(Kind.ACCEPTED).status, world.condition(Kind.ACCEPTED).message) == ("True", said)
    world.reachable = False  # it stays said
    world.settle()
    assert world.condition(Kind.ACCEPTED).message == said


BASELINE = {"spec.gates": [{"baseline": "before", "dataset": "humaneval"}]}


@pytest.mark.parametrize(
    ("name", "baseline", "seconds", "says"),
    [
        ("before", Baseline(""), 61, "there is no EvalRun before in this namespace"),
        ("before", Baseline("Failed"), 0, "EvalRun before ended without outputs (Failed)"),
        ("run", Baseline("Pending"), 0, "cannot be its own baseline"),
    ],
)
def test_a_gate_whose_baseline_can_have_no_outputs_is_refused_until_the_spec_changes(
    name: str, baseline: Baseline, seconds: float, says: str
) -> None:
    run = evalrun({"spec.gates": [{"baseline": name, "dataset": "humaneval"}]})
    world = World(run=run, baseline=baseline).tick(seconds)
    decision = world.step()
    assert says in world.condition(Kind.ACCEPTED).message
    assert world.reason(Kind.COMPLETE) == "InvalidSpec"
    assert decision.requeue_after is None
    assert not decision.apply
    world.baseline = Baseline("Succeeded", "s3://runs/before")
    world.step()
    assert world.reason(Kind.COMPLETE) == "InvalidSpec"  # whoever waits for Complete has gone by now
    metadata = world.run.metadata.model_copy(update={"generation": 2, "name": "other"})
    world.run = world.run.model_copy(update={"metadata": metadata})
    world.step()
    assert world.condition(Kind.COMPLETE).status == "False"


@pytest.mark.parametrize("baseline", [Baseline(""), Baseline("Pending"), Baseline("Generating"), Baseline("Suspended")])
def test_run_waits_for_an_unfinished_baseline_of_its_gate_without_completing(
    baseline: Baseline,
) -> None:
    world = World(run=evalrun(BASELINE), baseline=baseline)
    decision = world.step()
    assert world.reason(Kind.ACCEPTED) == "WaitingForBaseline"
    assert "before" in world.condition(Kind.ACCEPTED).message
    assert world.status.phase == "Pending"
    assert world.status.start_time is None
    assert not decision.apply
    assert decision.requeue_after == 5.0
    world.baseline = Baseline("Succeeded", "s3://runs/before")
    world.tick(5).settle()
    assert world.status.start_time is not None
    assert all((one := find_condition(step, Kind.COMPLETE)) and one.status == "False" for step in world.history)


def test_baseline_outputs_are_found_once_and_written_to_the_run_config() -> None:
    world = generating(changes=BASELINE, baseline=Baseline("Succeeded", "pvc://results/before_1"))
    assert world.status.baseline_url == "pvc://results/before_1"
    world.baseline = Baseline("")  # deleted since
    world.settle()
    assert world.status.baseline_url == "pvc://results/before_1"
    order = json.loads(world.objects[ObjectKey("ConfigMap", "run-order")]["data"]["work-order.json"])
    assert order["spec"]["gates"][0]["baseline"] == "/mnt/claims/results/before_1"
    pod = world.objects[ObjectKey("StatefulSet", "run-aggregator")]["spec"]["template"]["spec"]
    mounts = {mount["mountPath"]: mount.get("readOnly") for mount in pod["containers"][0]["volumeMounts"]}
    assert mounts["/mnt/claims/results"] is True


@pytest.mark.parametrize(
    ("said", "url"),
    [
        ("s3://bucket/run_1", "s3://bucket/run_1"),
        ("/mnt/claims/results/team/run_1", "pvc://results/team/run_1"),
        ("/var/lib/evalrun/outputs/run_1", "pvc://run-ledger-0f3b2c1a/outputs/run_1"),
    ],
)
def test_outputs_on_a_volume_are_named_by_their_claim(said: str, url: str) -> None:
    world = generating()
    world.output_url = said
    world.generate_all().judge_all().settle()
    assert world.status.output_url == url
    assert url in world.condition(Kind.COMPLETE).message


def test_each_step_has_one_event() -> None:
    world = generating()
    reasons = [event.reason for event in world.step().events]
    assert reasons == []
    world.generate_all()
    assert [event.reason for event in world.step().events] == ["ClusterReleased", "AllGenerated"]
    world.judge_all()
    decision = world.step()
    assert [event.reason for event in decision.events] == ["AllJudged", "Finished"]
    assert world.step().events == ()


def test_all_judged_event_is_not_repeated_when_the_outputs_are_written_later() -> None:
    world = generating().generate_all()
    world.step()
    world.judge_all()
    world.ledger_state = RunState.JUDGING  # every verdict is in, the outputs are being written
    assert [event.reason for event in world.step().events] == ["AllJudged"]
    world.ledger_state = None
    assert [event.reason for event in world.step().events] == ["Finished"]


def test_workers_follow_the_pending_work_between_min_and_max() -> None:
    changes = {"spec.rollout.minReplicas": 4, "spec.rollout.maxReplicas": 16, "spec.rollout.maxNumSeqs": 16}
    world = generating(changes=changes)
    group = world.objects[ObjectKey("RayCluster", "run-0f3b2-ray-1")]["spec"]["workerGroupSpecs"][0]
    assert (group["replicas"], group["minReplicas"], group["maxReplicas"]) == (
        3,
        1,
        3,
    )  # 11 replicas of 2 GPUs, 4 at least
    first, second, third = world.workers("run-0f3b2-ray-1")
    world.generated, world.busy = 160, (first, second, third)
    world.settle().kuberay().finalize().settle()
    assert world.workers("run-0f3b2-ray-1") == [first, second, third]  # worth one, but none of them is idle
    world.busy = (second,)
    world.settle().kuberay().settle().kuberay()
    assert world.gpu_pods() == [second]
    world.settle().kuberay().finalize().settle().kuberay()
    assert world.workers("run-0f3b2-ray-1") == [second]
    group = world.objects[ObjectKey("RayCluster", "run-0f3b2-ray-1")]["spec"]["workerGroupSpecs"][0]
    assert (group["replicas"], group["minReplicas"], group["maxReplicas"]) == (1, 1, 1)
    assert group["scaleStrategy"] == {"workersToDelete": []}


def test_run_starts_with_its_minimum_workers_and_reports_why_others_wait() -> None:
    changes = {"spec.rollout.minReplicas": 4, "spec.rollout.maxReplicas": 16, "spec.rollout.maxNumSeqs": 16}
    world = World(run=evalrun(changes)).settle().services_up().settle().kuberay(ready=0).settle()
    assert world.live_attempts() == []
    assert "0 of 1 workers ready" in world.condition(Kind.CLUSTER_READY).message
    world.kuberay().settle().kuberay(ready=1)
    unscheduled = world.objects[ObjectKey("Pod", world.workers("run-0f3b2-ray-1")[-1])]
    conditions = [
        {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/2 nodes: no GPU"}
    ]
    unscheduled["status"] = {"phase": "Pending", "conditions": conditions}
    world.settle()
    assert world.live_attempts() == [ObjectKey("RayJob", "run-0f3b2-gen-1")]
    condition = world.condition(Kind.CLUSTER_READY)
    assert condition.status == "True"
    assert "1 of 3 workers ready" in condition.message
    assert "Unschedulable: 0/2 nodes: no GPU" in condition.message
    world.kuberay().settle()
    assert "3 of 3 workers ready" in world.condition(Kind.CLUSTER_READY).message


@pytest.mark.parametrize("limit", [0, 1, 3])
def test_there_is_one_attempt_more_than_the_limit_of_failed_ones(limit: int) -> None:
    world = generating(rollout=False, changes={"spec.backoffLimit": limit})
    for attempt in range(1, limit + 2):
        assert world.live_attempts() == [ObjectKey("Job", f"run-0f3b2-gen-{attempt}")]
        world.end_attempt(failed=True).tick(3600).settle().jobs_run().settle()
    assert world.reason(Kind.SUCCEEDED) == "BackoffLimitExceeded"
    assert world.status.attempts == limit + 1
    assert world.live_attempts() == []


def test_a_spec_that_the_aggregator_refuses_ends_the_run_after_its_restarts() -> None:
    world = World(run=evalrun({"spec.backoffLimit": 2})).settle()
    world.add_pod("run-aggregator-0", names.AGGREGATOR, ObjectKey("StatefulSet", "run-aggregator"), {})
    said = {"exitCode": 2, "reason": "Error", "message": "datasets.0.source: no such file"}
    for restarts, reason in ((1, "Running"), (2, "InvalidSpec")):
        waiting = {"waiting": {"reason": "CrashLoopBackOff"}}
        container = {
            "name": "aggregator",
            "restartCount": restarts,
            "state": waiting,
            "lastState": {"terminated": said},
        }
        world.objects[ObjectKey("Pod", "run-aggregator-0")]["status"] = {
            "phase": "Running",
            "containerStatuses": [container],
        }
        world.step()
        assert world.reason(Kind.COMPLETE) == reason
    assert "no such file" in world.condition(Kind.ACCEPTED).message
    assert world.condition(Kind.SUCCEEDED).status == "False"


def test_the_times_of_a_run_stay_as_they_were_written() -> None:
    world = generating()
    generated = world.tick(10).generate_all().settle().status.generation_completed_time
    assert generated == world.now
    world.tick(10).judge_all().settle()
    completed = world.status.completion_time
    assert completed == world.now
    world.tick(10).settle()
    assert (world.status.generation_completed_time, world.status.completion_time) == (generated, completed)
    assert world.status.start_time == START


def test_condition_keeps_its_transition_time_and_its_message_is_cut_to_the_crd_limit() -> None:
    world = generating()
    since = world.condition(Kind.ACCEPTED).last_transition_time
    world.warnings = ("x" * 9000,)
    world.tick(60).settle()
    accepted = world.condition(Kind.ACCEPTED)
    assert (accepted.last_transition_time, len(accepted.message)) == (since, 4096)


@pytest.mark.parametrize("rollout", [True, False])
def test_failed_attempt_is_reported_before_the_next_one_starts(rollout: bool) -> None:
    world = generating(rollout=rollout)
    world.end_attempt(failed=True).tick(3600)
    decision = world.step()
    assert not [item for item in decision.apply if item["kind"] in {"Job", "RayJob"}]
    assert world.reason(Kind.GENERATED) == "AttemptFailed"
    assert "AttemptFailed" in [event.reason for event in decision.events]
    started = [item for item in world.step().apply if item["kind"] in {"Job", "RayJob"}]
    assert [item["metadata"]["name"] for item in started] == ["run-0f3b2-gen-2"]


def test_fields_that_kueue_wrote_into_the_cluster_are_kept() -> None:
    world = generating(changes={"spec.rollout.queueName": "evals"})
    group = world.objects[ObjectKey("RayCluster", "run-0f3b2-ray-1")]["spec"]["workerGroupSpecs"][0]
    group["template"]["spec"]["tolerations"] = [{"key": "flavor", "operator": "Exists"}]
    everything = replace(world.observed(), resync=True)
    applied = {item["kind"] for item in decide(world.run, everything, world.settings, world.now, "t").apply}
    assert {"Deployment", "StatefulSet"} <= applied
    assert "RayCluster" not in applied
    world.settings = operator_settings(ray_image="another:1")  # nor does a new version of ours
    assert "RayCluster" not in {item["kind"] for item in world.step().apply}


@pytest.mark.parametrize(
    ("code", "container", "ends"), [(2, "checkpoint", True), (1, "checkpoint", False), (2, "ray-worker", False)]
)
def test_a_model_that_cannot_be_fetched_ends_the_run(code: int, container: str, ends: bool) -> None:
    world = World(run=evalrun({"spec.model.path": "s3://checkpoints/none"}))
    world.settle().services_up().settle()
    cluster = ObjectKey("RayCluster", "run-0f3b2-ray-1")
    world.add_pod("worker-0", names.RAY, cluster, {"ray.io/node-type": "worker", "ray.io/cluster": cluster.name})
    ended = {"exitCode": code, "reason": "Error", "message": "model.path s3://checkpoints/none: nothing is there"}
    statuses = [{"name": container, "state": {"terminated": ended}}]
    world.objects[ObjectKey("Pod", "worker-0")]["status"] = {"phase": "Failed", "initContainerStatuses": statuses}
    world.step()
    assert (world.reason(Kind.COMPLETE) == "InvalidSpec") is ends
    if ends:
        assert "nothing is there" in world.condition(Kind.SUCCEEDED).message
        assert world.finalize().settle().gpu_pods() == []


def test_workers_stay_while_the_aggregator_is_away() -> None:
    changes = {"spec.rollout.minReplicas": 4, "spec.rollout.maxReplicas": 16, "spec.rollout.maxNumSeqs": 16}
    world = generating(changes=changes)
    workers = world.workers("run-0f3b2-ray-1")
    world.reachable = False
    world.settle().kuberay().settle()
    world.reachable, world.total = True, 0  # it reads its datasets anew
    world.settle().kuberay().settle()
    assert world.workers("run-0f3b2-ray-1") == workers


def test_the_token_is_made_once_and_a_new_one_restarts_the_pods() -> None:
    world = generating()
    first = world.token
    assert first
    notes = world.objects[ObjectKey("StatefulSet", "run-aggregator")]["spec"]["template"]["metadata"]["annotations"]
    world.token = None
    world.settle()
    assert world.token not in {None, first}
    again = world.objects[ObjectKey("StatefulSet", "run-aggregator")]["spec"]["template"]["metadata"]["annotations"]
    assert again["evalrun.dev/token-digest"] != notes["evalrun.dev/token-digest"]
    assert not world.step().apply  # the same digest, now that the Secret is read and not made


def test_run_from_before_tokens_per_hop_keeps_its_single_token() -> None:
    """Its pods hold that one in their environment: with others in the Secret they would be refused."""
    world = generating()
    world.token = None
    (secret,) = (item for item in world.step().apply if item["kind"] == "Secret")
    assert secret["stringData"].keys() > {"token", *names.HOP_TOKENS}
    kept = {key: value for key, value in world.status.settings.items() if key != "tokens"}
    world.run = world.run.model_copy(update={"status": world.status.model_copy(update={"settings": kept})})
    world.token = None
    (secret,) = (item for item in world.step().apply if item["kind"] == "Secret")
    assert secret["stringData"].keys() == {"token"}


@pytest.mark.parametrize(
    ("says", "began_with", "has_tls"),
    [
        (None, "issued", True), ("Issued", "issued", True), ("Disabled", "issued", False),
        (None, None, False), ("Issued", None, True), ("Disabled", None, False),
    ],
)  # fmt: skip
def test_run_without_a_tls_field_uses_the_default_of_its_start(
    says: str | None, began_with: str | None, has_tls: bool
) -> None:
    world = generating(changes={} if says is None else {"spec.tls": says})
    assert world.status.settings["tls"] == "issued"
    kept = world.status.settings if began_with else {k: v for k, v in world.status.settings.items() if k != "tls"}
    world.run = world.run.model_copy(update={"status": world.status.model_copy(update={"settings": kept})})
    world.token = None
    del world.objects[ObjectKey("Deployment", "run-sandbox")]
    made = {item["kind"]: item for item in world.step().apply}
    assert ("operator.crt" in made["Secret"]["stringData"]) == has_tls
    assert ("EVALRUN_SANDBOX_TLS_FOLDER" in json.dumps(made["Deployment"])) == has_tls
    assert world.status.settings == kept  # no word is added to a run that goes on


def test_pods_of_a_run_from_before_the_lost_node_setting_keep_their_tolerations() -> None:
    world = generating()
    kept = {key: value for key, value in world.status.settings.items() if key != "lostNodes"}
    world.run = world.run.model_copy(update={"status": world.status.model_copy(update={"settings": kept})})
    del world.objects[ObjectKey("Deployment", "run-sandbox")]
    (made,) = (
        item for item in world.step().apply if item["kind"] == "Deployment" and "sandbox" in item["metadata"]["name"]
    )
    assert "tolerations" not in made["spec"]["template"]["spec"]


def test_unknown_settings_of_a_later_operator_are_kept_by_an_earlier_one() -> None:
    world = generating()
    kept = {**world.status.settings, "ofALaterOperator": "word"}
    world.run = world.run.model_copy(update={"status": world.status.model_copy(update={"settings": kept})})
    assert not world.step().apply
    assert world.status.settings == kept


def test_equal_observations_give_equal_decisions() -> None:
    world = generating()
    one, two = (decide(world.run, world.observed(), world.settings, world.now, "t") for _ in range(2))
    assert one == two
