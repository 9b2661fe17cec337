"""The decision, condition by condition and phase by phase."""

import json
from dataclasses import replace
from datetime import timedelta

import pytest
from builders.operator import START, World, evalrun, generating, operator_settings

from evalrun_operator import names
from evalrun_operator.api.v1alpha1 import ConditionType as Kind
from evalrun_operator.ledger_status import GateDecision, RunState
from evalrun_operator.observed import Baseline, Ref
from evalrun_operator.reconcile import decide, unsupported

SERVICES = ["run-aggregator", "run-judge", "run-sandbox"]


def phases(world: World) -> list[str]:
    """Give the phases that were gone through."""
    seen: list[str] = []
    for status in world.history:
        if status.phase is not None and (not seen or seen[-1] != status.phase):
            seen.append(status.phase)
    return seen


def test_the_first_pass_only_accepts_so_that_the_spec_is_closed_before_anything_is_made() -> None:
    world = World()
    decision = world.step()
    assert not decision.apply
    assert world.status.start_time == START
    assert world.condition(Kind.ACCEPTED).status == "True"
    assert decision.requeue_after == 0.0


def test_a_run_on_gpus_goes_through_its_phases_to_the_end() -> None:
    world = generating()
    assert phases(world)[-1] == "Generating"
    assert world.of_kind("RayCluster") == ["run-ray-1"]
    assert world.of_kind("RayJob") == ["run-gen-1"]
    assert world.status.ray_cluster_name == "run-ray-1"
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
    assert world.of_kind("Job") == ["run-gen-1"]
    assert world.condition(Kind.CLUSTER_READY).status == "True"
    assert world.reason(Kind.CLUSTER_READY) == "NoClusterNeeded"
    world.generate_all().end_attempt(failed=False).settle().judge_all().settle()
    assert world.status.phase == "Succeeded"


def test_no_gpu_is_asked_for_before_aggregator_and_judge_are_up() -> None:
    world = World().settle()
    assert world.of_kind("RayCluster") == []
    assert world.reason(Kind.GENERATED) == "WaitingForServices"
    assert "aggregator, judge, sandbox not ready yet" in world.condition(Kind.CLUSTER_READY).message
    refusal = {"type": "ReplicaFailure", "status": "True", "reason": "FailedCreate", "message": "violates PodSecurity"}
    world.objects[Ref("Deployment", "run-sandbox")]["status"] = {"conditions": [refusal]}
    world.settle()
    assert "run-sandbox: FailedCreate: violates PodSecurity" in world.condition(Kind.CLUSTER_READY).message
    world.services_up()
    world.reachable = False
    assert world.settle().of_kind("RayCluster") == []
    world.reachable = True
    assert world.settle().of_kind("RayCluster") == ["run-ray-1"]


def test_a_judge_that_blips_does_not_cost_the_cluster() -> None:
    world = generating().services_up(ready=False).settle()
    assert world.of_kind("RayCluster") == ["run-ray-1"]
    assert world.of_kind("RayJob") == ["run-gen-1"]
    assert world.reason(Kind.JUDGED) == "WaitingForServices"


def test_judge_and_generator_go_at_the_end_and_the_aggregator_stays_until_the_ttl() -> None:
    world = generating().generate_all().judge_all().settle().finalize().services_up().settle().finalize().settle()
    assert world.of_kind("HorizontalPodAutoscaler") == []
    replicas = {
        name: world.objects[Ref("Deployment", name)]["spec"]["replicas"] for name in ("run-judge", "run-sandbox")
    }
    assert replicas == {"run-judge": 0, "run-sandbox": 0}
    assert world.of_kind("StatefulSet") == ["run-aggregator"]
    world.tick(86_400).settle().finalize().settle()
    assert {ref.kind for ref in world.objects} == {"PersistentVolumeClaim"}
    assert world.step().requeue_after is None


def test_a_longer_ttl_brings_the_aggregator_back() -> None:
    world = generating().generate_all().judge_all().settle().tick(86_400).settle().finalize().settle()
    world.change_spec(ttl_seconds_after_finished=100_000).settle()
    assert world.of_kind("StatefulSet") == ["run-aggregator"]
    assert world.status.phase == "Succeeded"


def test_replicas_go_to_zero_only_after_their_autoscaler_is_gone() -> None:
    world = generating().generate_all().judge_all()
    world.step()
    assert "replicas" not in world.objects[Ref("Deployment", "run-judge")]["spec"]
    world.finalize().step()
    assert world.objects[Ref("Deployment", "run-judge")]["spec"]["replicas"] == 0


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
    assert [ref.name for ref in world.live_attempts()] == ["run-gen-2"]
    assert world.of_kind("RayCluster") == (["run-ray-1"] if rollout else [])  # warm: no model is loaded again


@pytest.mark.parametrize("rollout", [True, False])
def test_more_failures_than_the_backoff_limit_end_the_run(rollout: bool) -> None:
    world = generating(rollout=rollout, changes={"spec.backoffLimit": 1}).end_attempt(failed=True).settle()
    world.tick(60).settle().jobs_run().end_attempt(failed=True).settle().finalize().settle()
    assert world.status.phase == "Failed"
    assert world.reason(Kind.SUCCEEDED) == "BackoffLimitExceeded"
    assert world.condition(Kind.COMPLETE).status == "True"
    assert world.gpu_pods() == []
    assert "backoffLimit (1)" in world.condition(Kind.SUCCEEDED).message


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


def test_a_cluster_that_is_deleted_costs_an_attempt_and_comes_back_under_another_name() -> None:
    world = generating()
    world.delete(Ref("RayCluster", "run-ray-1"))
    world.settle()
    assert world.of_kind("RayCluster") == []  # its pods still hold the GPUs
    assert world.of_kind("RayJob") == []
    world.finalize().settle()
    assert world.of_kind("RayCluster") == ["run-ray-2"]
    assert world.kuberay().settle().status.attempts == 2


def test_a_new_head_knows_nothing_so_the_cluster_is_made_anew() -> None:
    world = generating().replace_head()
    world.step()
    assert world.reason(Kind.GENERATED) == "AttemptFailed"
    assert "was replaced" in world.condition(Kind.CLUSTER_READY).message
    world.settle()
    world.finalize().settle().kuberay().settle()
    assert world.of_kind("RayCluster") == ["run-ray-2"]
    assert [ref.name for ref in world.live_attempts()] == ["run-gen-2"]


def test_kueue_taking_the_place_away_costs_no_attempt() -> None:
    world = generating()
    cluster = world.objects[Ref("RayCluster", "run-ray-1")]
    cluster["spec"]["suspend"] = True
    world.settle()
    assert world.of_kind("RayJob") == []
    assert "suspended" in world.condition(Kind.CLUSTER_READY).message
    world.finalize()
    cluster["spec"].pop("suspend")
    assert world.settle().status.attempts == 1
    assert [ref.name for ref in world.live_attempts()] == ["run-gen-1"]


def test_suspend_ends_the_attempt_first_then_the_cluster_and_keeps_the_ledger() -> None:
    world = generating().change_spec(suspend=True).settle()
    assert world.of_kind("RayJob") == []
    assert world.of_kind("RayCluster") == ["run-ray-1"]
    assert world.reason(Kind.SUSPENDED) == "Suspending"
    world.finalize().settle()
    assert world.of_kind("RayCluster") == []
    assert world.condition(Kind.SUSPENDED).status == "False"
    world.finalize().settle()
    assert world.status.phase == "Suspended"
    assert world.of_kind("StatefulSet") == ["run-aggregator"]
    world.change_spec(suspend=False).settle().kuberay().settle()
    assert world.status.attempts == 1
    assert [ref.name for ref in world.live_attempts()] == ["run-gen-1"]


def test_a_ray_job_that_nobody_finalizes_does_not_hold_the_gpus_for_ever() -> None:
    world = generating().change_spec(suspend=True).settle()
    assert world.tick(61).settle().of_kind("RayCluster") == []


def test_suspending_a_run_with_nothing_left_to_generate_changes_nothing() -> None:
    world = generating().generate_all().settle().finalize().change_spec(suspend=True).settle()
    assert world.judge_all().settle().status.phase == "Succeeded"


def test_the_deadline_ends_a_run_and_frees_its_gpus() -> None:
    world = generating(changes={"spec.activeDeadlineSeconds": 100}).tick(101).settle().finalize().settle()
    assert world.status.phase == "Failed"
    assert world.reason(Kind.COMPLETE) == "DeadlineExceeded"
    assert world.gpu_pods() == []
    assert world.status.completion_time == START + timedelta(seconds=101)


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
def test_what_was_not_judged_degrades_or_fails_the_run(not_judged: int, phase: str, reason: str) -> None:
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
        notes = world.objects[Ref("StatefulSet", "run-aggregator")]["metadata"]["annotations"]
        assert notes["evalrun.dev/restarts"] == restarts
        world.step()  # the old process still answers: not counted twice
        world.services_up()
    world.settle()
    assert world.reason(Kind.SUCCEEDED) == "BackoffLimitExceeded"
    assert "said the ledger" in world.condition(Kind.SUCCEEDED).message


def test_an_aggregator_that_refuses_the_spec_ends_the_run_with_its_words() -> None:
    world = World(run=evalrun({"spec.backoffLimit": 0})).settle()
    world.add_pod("run-aggregator-0", "aggregator", Ref("StatefulSet", "run-aggregator"), {})
    ended = {"exitCode": 2, "message": "evalrun: datasets.0: no such file", "reason": "Error"}
    world.objects[Ref("Pod", "run-aggregator-0")]["status"] = {
        "containerStatuses": [{"name": "aggregator", "state": {"terminated": ended}}]
    }
    world.settle()
    assert world.reason(Kind.ACCEPTED) == "InvalidSpec"
    assert world.reason(Kind.COMPLETE) == "InvalidSpec"
    assert "datasets.0: no such file" in world.condition(Kind.SUCCEEDED).message


def test_pods_that_do_not_run_are_named_in_the_conditions() -> None:
    world = World().settle().services_up().settle().kuberay(usable=False)
    cluster = Ref("RayCluster", "run-ray-1")
    world.add_pod("run-ray-1-worker-0", "ray", cluster, {"ray.io/cluster": "run-ray-1"}, gpus=8)
    world.objects[Ref("Pod", "run-ray-1-worker-0")]["status"] = {
        "phase": "Pending",
        "conditions": [
            {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/2 nodes: no GPU"}
        ],
    }
    world.settle()
    assert "run-ray-1-worker-0: Unschedulable: 0/2 nodes: no GPU" in world.condition(Kind.CLUSTER_READY).message


def test_without_kuberay_the_run_says_what_is_missing() -> None:
    world = World(missing_kinds=frozenset({"RayCluster", "RayJob"})).settle().services_up().settle()
    assert world.of_kind("RayCluster") == []
    assert "KubeRay is not installed" in world.condition(Kind.CLUSTER_READY).message


def test_deletion_is_left_to_the_garbage_collector() -> None:
    world = generating()
    metadata = world.run.metadata.model_copy(update={"deletion_timestamp": START})
    world.run = world.run.model_copy(update={"metadata": metadata})
    del world.objects[Ref("ConfigMap", "run-order")]  # the collector is at it
    decision = world.step()
    assert not decision.apply
    assert not decision.delete


def test_a_restarted_operator_changes_nothing() -> None:
    for world in (World().settle(), generating(), generating().generate_all().settle().judge_all().settle()):
        world.finalize().settle().finalize().settle()
        decision = world.step()
        assert not decision.apply
        assert not decision.delete
        assert not decision.events


def test_what_is_deleted_behind_its_back_is_made_again() -> None:
    world = generating()
    made = {ref for ref in world.objects if ref.kind not in {"Pod", "RayCluster", "RayJob"}}
    for ref in made:
        world.objects.pop(ref)
        world.settle()
        world.services_up()
    assert made <= world.objects.keys()
    assert world.of_kind("RayJob") == ["run-gen-1"]


def test_only_what_the_run_owns_is_ever_deleted() -> None:
    world = generating()
    foreign = {
        "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": "keda-hpa", "labels": {"evalrun.dev/run-uid": "x"}, "annotations": {}, "uid": "u"},
        "status": {},
    }
    world.objects[Ref("HorizontalPodAutoscaler", "keda-hpa")] = foreign
    assert not world.step().delete


def test_a_judge_that_may_sleep_must_be_scraped_to_be_woken() -> None:
    keda = operator_settings(autoscaling="keda")
    asleep = {"spec.judge.sandbox.minReplicas": 0}
    assert unsupported(evalrun(asleep), keda) == ""
    said = unsupported(evalrun({**asleep, "spec.exports": {"prometheus": False}}), keda)
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
def test_what_only_the_operator_can_see_is_refused_and_can_be_mended(
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
    world.step()
    assert world.condition(Kind.ACCEPTED).status == "True"
    assert world.condition(Kind.COMPLETE).status == "False"


def test_keda_can_scale_to_zero() -> None:
    run = evalrun({"spec.judge.gateway.minReplicas": 0})
    assert not unsupported(run, operator_settings(autoscaling="keda"))


@pytest.mark.parametrize(
    ("decision", "status", "reason"),
    [
        (GateDecision.PASSED, "True", "NoRegression"),
        (GateDecision.FAILED, "False", "Regression"),
        (GateDecision.INCONCLUSIVE, "Unknown", "Inconclusive"),
        (GateDecision.NO_BASELINE, "Unknown", "BaselineNotFound"),
    ],
)
def test_the_gate_is_copied_and_does_not_fail_the_run(decision: GateDecision, status: str, reason: str) -> None:
    world = generating(changes={"spec.gate": {"baseline": "s3://runs/before", "dataset": "humaneval"}})
    assert (world.condition(Kind.GATE_PASSED).status, world.reason(Kind.GATE_PASSED)) == ("Unknown", "GatePending")
    world.gate = decision
    world.generate_all().judge_all().settle()
    assert (world.condition(Kind.GATE_PASSED).status, world.reason(Kind.GATE_PASSED)) == (status, reason)
    assert world.status.phase == "Succeeded"
    assert world.status.gpu_seconds_per_solved == "10.00"


def test_what_leaves_gpus_idle_is_said_where_the_spec_was_accepted() -> None:
    world = generating()
    assert world.condition(Kind.ACCEPTED).message == ""
    world.warnings = ("rollout.enforceEager: write false", "rollout.maxNumSeqs: write 256")
    world.settle()
    said = "rollout.enforceEager: write false. rollout.maxNumSeqs: write 256."
    assert (world.condition(Kind.ACCEPTED).status, world.condition(Kind.ACCEPTED).message) == ("True", said)
    world.reachable = False  # it stays said
    world.settle()
    assert world.condition(Kind.ACCEPTED).message == said


BASELINE = {"spec.gate": {"baseline": "before", "dataset": "humaneval"}}


@pytest.mark.parametrize(
    ("name", "baseline", "says"),
    [
        ("before", Baseline(""), "there is no EvalRun before in this namespace"),
        ("before", Baseline("Generating"), "EvalRun before has no outputs (Generating): wait until it has succeeded"),
        ("before", Baseline("Failed"), "EvalRun before has no outputs (Failed)"),
        ("run", Baseline("Pending"), "cannot be its own baseline"),
    ],
)
def test_a_gate_whose_baseline_has_no_outputs_is_refused_until_it_has(name: str, baseline: Baseline, says: str) -> None:
    run = evalrun({"spec.gate": {"baseline": name, "dataset": "humaneval"}})
    world = World(run=run, baseline=baseline)
    decision = world.step()
    assert says in world.condition(Kind.ACCEPTED).message
    assert world.reason(Kind.COMPLETE) == "InvalidSpec"
    assert decision.requeue_after is not None  # the baseline may end: nothing of this run changes then
    assert not decision.apply


def test_a_baselines_outputs_are_found_once_and_stand_in_the_work_order() -> None:
    world = generating(changes=BASELINE, baseline=Baseline("Succeeded", "pvc://results/before_1"))
    assert world.status.baseline_url == "pvc://results/before_1"
    world.baseline = Baseline("")  # deleted since
    world.settle()
    assert world.status.baseline_url == "pvc://results/before_1"
    order = json.loads(world.objects[Ref("ConfigMap", "run-order")]["data"]["work-order.json"])
    assert order["spec"]["gate"]["baseline"] == "/mnt/claims/results/before_1"
    pod = world.objects[Ref("StatefulSet", "run-aggregator")]["spec"]["template"]["spec"]
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


def test_events_tell_each_step_once() -> None:
    world = generating()
    reasons = [event.reason for event in world.step().events]
    assert reasons == []
    world.generate_all()
    assert [event.reason for event in world.step().events] == ["ClusterReleased", "AllGenerated"]
    world.judge_all()
    decision = world.step()
    assert [event.reason for event in decision.events] == ["AllJudged", "Finished"]
    assert world.step().events == ()


def test_no_event_is_told_again_without_words_when_the_outputs_follow_the_last_verdict() -> None:
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
    group = world.objects[Ref("RayCluster", "run-ray-1")]["spec"]["workerGroupSpecs"][0]
    assert (group["replicas"], group["minReplicas"], group["maxReplicas"]) == (3, 3, 3)  # 11 replicas of 2 GPUs
    first, second, third = world.workers("run-ray-1")
    world.generated, world.busy = 160, (first, second, third)
    world.settle().kuberay().finalize().settle()
    assert world.workers("run-ray-1") == [first, second, third]  # worth one, but none of them is idle
    world.busy = (second,)
    world.settle().kuberay().settle().kuberay()
    assert world.gpu_pods() == [second]
    world.settle().kuberay().finalize().settle().kuberay()
    assert world.workers("run-ray-1") == [second]
    group = world.objects[Ref("RayCluster", "run-ray-1")]["spec"]["workerGroupSpecs"][0]
    assert (group["replicas"], group["minReplicas"], group["maxReplicas"]) == (1, 1, 1)
    assert "scaleStrategy" not in group


@pytest.mark.parametrize("limit", [0, 1, 3])
def test_there_is_one_attempt_more_than_the_limit_of_failed_ones(limit: int) -> None:
    world = generating(rollout=False, changes={"spec.backoffLimit": limit})
    for attempt in range(1, limit + 2):
        assert world.live_attempts() == [Ref("Job", f"run-gen-{attempt}")]
        world.end_attempt(failed=True).tick(3600).settle().jobs_run().settle()
    assert world.reason(Kind.SUCCEEDED) == "BackoffLimitExceeded"
    assert world.status.attempts == limit + 1
    assert world.live_attempts() == []


def test_a_spec_that_the_aggregator_refuses_ends_the_run_after_its_restarts() -> None:
    world = World(run=evalrun({"spec.backoffLimit": 2})).settle()
    world.add_pod("run-aggregator-0", names.AGGREGATOR, Ref("StatefulSet", "run-aggregator"), {})
    said = {"exitCode": 2, "reason": "Error", "message": "datasets.0.source: no such file"}
    for restarts, reason in ((1, "Running"), (2, "InvalidSpec")):
        waiting = {"waiting": {"reason": "CrashLoopBackOff"}}
        container = {
            "name": "aggregator",
            "restartCount": restarts,
            "state": waiting,
            "lastState": {"terminated": said},
        }
        world.objects[Ref("Pod", "run-aggregator-0")]["status"] = {"phase": "Running", "containerStatuses": [container]}
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


def test_a_condition_says_since_when_it_holds_and_no_more_than_the_crd_takes() -> None:
    world = generating()
    since = world.condition(Kind.ACCEPTED).last_transition_time
    world.warnings = ("x" * 9000,)
    world.tick(60).settle()
    accepted = world.condition(Kind.ACCEPTED)
    assert (accepted.last_transition_time, len(accepted.message)) == (since, 4096)


@pytest.mark.parametrize("rollout", [True, False])
def test_a_failure_is_told_before_another_attempt_starts_however_late_it_is_seen(rollout: bool) -> None:
    world = generating(rollout=rollout)
    world.end_attempt(failed=True).tick(3600)
    decision = world.step()
    assert not [item for item in decision.apply if item["kind"] in {"Job", "RayJob"}]
    assert world.reason(Kind.GENERATED) == "AttemptFailed"
    assert "AttemptFailed" in [event.reason for event in decision.events]
    started = [item for item in world.step().apply if item["kind"] in {"Job", "RayJob"}]
    assert [item["metadata"]["name"] for item in started] == ["run-gen-2"]


def test_kueue_keeps_what_it_wrote_into_the_cluster() -> None:
    world = generating(changes={"spec.rollout.queueName": "evals"})
    group = world.objects[Ref("RayCluster", "run-ray-1")]["spec"]["workerGroupSpecs"][0]
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
    cluster = Ref("RayCluster", "run-ray-1")
    world.add_pod("worker-0", names.RAY, cluster, {"ray.io/node-type": "worker", "ray.io/cluster": cluster.name})
    ended = {"exitCode": code, "reason": "Error", "message": "model.path s3://checkpoints/none: nothing is there"}
    statuses = [{"name": container, "state": {"terminated": ended}}]
    world.objects[Ref("Pod", "worker-0")]["status"] = {"phase": "Failed", "initContainerStatuses": statuses}
    world.step()
    assert (world.reason(Kind.COMPLETE) == "InvalidSpec") is ends
    if ends:
        assert "nothing is there" in world.condition(Kind.SUCCEEDED).message
        assert world.finalize().settle().gpu_pods() == []


def test_workers_stay_while_the_aggregator_is_away() -> None:
    changes = {"spec.rollout.minReplicas": 4, "spec.rollout.maxReplicas": 16, "spec.rollout.maxNumSeqs": 16}
    world = generating(changes=changes)
    workers = world.workers("run-ray-1")
    world.reachable = False
    world.settle().kuberay().settle()
    world.reachable, world.total = True, 0  # it reads its datasets anew
    world.settle().kuberay().settle()
    assert world.workers("run-ray-1") == workers


def test_the_token_is_made_once_and_a_new_one_restarts_the_pods() -> None:
    world = generating()
    first = world.token
    assert first
    notes = world.objects[Ref("StatefulSet", "run-aggregator")]["spec"]["template"]["metadata"]["annotations"]
    world.token = None
    world.settle()
    assert world.token not in {None, first}
    again = world.objects[Ref("StatefulSet", "run-aggregator")]["spec"]["template"]["metadata"]["annotations"]
    assert again["evalrun.dev/token-digest"] != notes["evalrun.dev/token-digest"]


def test_a_decision_needs_no_more_than_what_it_is_given() -> None:
    world = generating()
    one, two = (decide(world.run, world.observed(), world.settings, world.now, "t") for _ in range(2))
    assert one == two
