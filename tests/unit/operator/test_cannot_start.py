"""What keeps a run from starting is told, and ends it: never a wait without a word or an end."""

from datetime import timedelta
from typing import Any

import pytest
from builders.operator.world import START, World, evalrun, generating, operator_settings, trouble_told

from evalrun_api.v1alpha1 import ConditionType as Kind
from evalrun_api.v1alpha1 import Reason
from evalrun_operator.lifecycle.situation import holds_queue_position, parse_queued_run
from evalrun_operator.lifecycle.start_obstacles import SETTLE_SECONDS
from evalrun_operator.lifecycle.status_report import replace_applied_condition
from evalrun_operator.observation.records import ObjectKey
from evalrun_operator.policies.admission import QueuePosition
from evalrun_operator.policies.condition_text import RunText
from evalrun_operator.policies.refusals import LASTING_FAILURES, WriteFailure, report_writes
from evalrun_operator.policies.start import gives_up_at, obstacles

CROWDED = "Unschedulable: 0/1 nodes are available: 1 Insufficient memory. preemption: not helpful"
UNFIT = (
    "Unschedulable: 0/3 nodes are available: 1 node(s) had untolerated taint {gpu: yes}, 2 Insufficient cpu. "
    "preemption: 0/3 nodes are available: 3 Preemption is not helpful for scheduling."
)
FULL = (
    "Unschedulable: 0/3 nodes are available: 1 node(s) had untolerated taint {gpu: yes}, 2 Insufficient cpu. "
    "preemption: 0/3 nodes are available: 1 Preemption is not helpful for scheduling, 2 No preemption victims found "
    "for incoming pod."
)
NO_CLAIM = 'Unschedulable: 0/1 nodes are available: persistentvolumeclaim "problems" not found'
NO_SECRET = 'CreateContainerConfigError: secret "vllm" not found'
NO_IMAGE = 'ImagePullBackOff: Back-off pulling image "nosuch"'
NO_CLASS = 'ProvisioningFailed: storageclass.storage.k8s.io "fast" not found'


@pytest.mark.parametrize(
    ("trouble", "lasts"),
    [
        (CROWDED, False),
        ("Unschedulable: 0/3 nodes are available: 3 node(s) had untolerated taint {gpu: yes}", False),
        ("Unschedulable: 0/3 nodes are available: 3 node(s) didn't match Pod's node affinity/selector", False),
        ('Unhealthy: Startup probe failed: timeout: failed to connect service "10.0.0.1:50051" within 1s', False),
        ("Unhealthy: Readiness probe failed: service unhealthy (responded with NOT_SERVING)", False),
        ("CrashLoopBackOff: back-off 40s restarting failed container", True),
        (FULL, False),
        (UNFIT, True),
        (NO_CLAIM, True),
        (NO_SECRET, True),
        (NO_IMAGE, True),
        (NO_CLASS, True),
        ("Unschedulable: pod has unbound immediate PersistentVolumeClaims", True),
        ("InvalidImageName: couldn't parse image name", True),
        ('FailedCreate: pods "x" is forbidden: exceeded quota: cpu', True),
    ],
)
def test_trouble_lasts_unless_room_or_a_slow_start_is_the_cause(trouble: str, lasts: bool) -> None:
    assert bool(obstacles([trouble_told(trouble)])) is lasts


def test_gives_up_at_the_start_plus_the_limit_and_never_with_limit_0() -> None:
    assert gives_up_at(START, 900) == START + timedelta(seconds=900)
    assert gives_up_at(START, 0) is None


def with_trouble(trouble: str) -> World:
    world = World(run=evalrun(rollout=False)).settle()
    name, owner = "run-aggregator-0", ObjectKey("StatefulSet", "run-aggregator")
    world.add_pod(name, "aggregator", owner, {})
    reason, _, message = trouble.partition(": ")
    status: dict[str, Any] = {"phase": "Pending"}
    if reason == "Unschedulable":
        status["conditions"] = [{"type": "PodScheduled", "status": "False", "reason": reason, "message": message}]
    else:
        status["containerStatuses"] = [{"name": "main", "state": {"waiting": {"reason": reason, "message": message}}}]
    world.objects[ObjectKey("Pod", name)]["status"] = status
    return world.settle()


@pytest.mark.parametrize("trouble", [NO_CLAIM, NO_SECRET, NO_IMAGE, UNFIT])
def test_an_aggregator_that_cannot_start_fails_the_run_with_the_cause(trouble: str) -> None:
    world = with_trouble(trouble)
    assert (world.status.phase, world.status.reason) == ("Preparing", "CannotStart")
    said = world.condition(Kind.STALLED).message
    assert trouble in said
    assert "The run fails at 2026-01-31T12:15:00Z unless it is mended." in said
    world.tick(890).settle()
    assert world.condition(Kind.COMPLETE).status == "False"
    world.tick(20).settle()
    assert (world.status.phase, world.reason(Kind.COMPLETE)) == ("Failed", "CannotStart")
    assert trouble in world.condition(Kind.SUCCEEDED).message
    assert world.of_kind("StatefulSet", "Deployment") == []  # nothing crashes on and on


def test_run_whose_trouble_ends_in_time_continues() -> None:
    world = with_trouble(NO_SECRET).tick(600)
    del world.objects[ObjectKey("Pod", "run-aggregator-0")]
    world.settle()
    assert world.condition(Kind.STALLED).status == "False"
    world.services_up().settle().tick(3600).settle()
    assert world.condition(Kind.COMPLETE).status == "False"


def test_run_waits_for_room_without_limit_and_the_message_names_the_limits() -> None:
    world = with_trouble(CROWDED).tick(100_000).settle()
    assert world.condition(Kind.COMPLETE).status == "False"
    assert world.condition(Kind.STALLED).status == "False"
    message = world.condition(Kind.JUDGED).message
    assert "Insufficient memory" in message
    assert "operator.maxActiveRuns" in message


def test_crash_looping_container_stays_stalled_while_running_between_crashes() -> None:
    world = with_trouble(NO_SECRET)
    world.objects[ObjectKey("Pod", "run-aggregator-0")]["status"] = {
        "phase": "Running",
        "containerStatuses": [
            {
                "name": "aggregator", "ready": False, "restartCount": 3, "state": {"running": {}},
                "lastState": {"terminated": {"exitCode": 1, "reason": "Error", "message": "no disk"}},
            }
        ],
    }  # fmt: skip
    world.settle()
    assert "aggregator ended with 1 (Error): no disk" in world.condition(Kind.STALLED).message


def test_refusal_known_from_events_only_is_in_the_conditions() -> None:
    """A StatefulSet and a Job have no condition for a pod that admission or a quota refuses."""
    world = World(run=evalrun(rollout=False)).settle()
    refusal = "FailedCreate: create Pod run-aggregator-0 in StatefulSet run-aggregator failed: exceeded quota: cpu"
    world.events["run-aggregator"] = refusal
    assert ObjectKey("StatefulSet", "run-aggregator") in {seen.ref for seen in world.observed().silent()}
    world.settle()
    assert refusal in world.condition(Kind.STALLED).message
    assert refusal in world.condition(Kind.GENERATED).message


def test_a_generator_that_is_refused_is_no_attempt_that_runs() -> None:
    world = generating(rollout=False)
    (job,) = world.live_attempts()
    world.objects = {ref: item for ref, item in world.objects.items() if ref.kind != "Pod"}
    assert job in {seen.ref for seen in world.observed().silent()}
    world.events[job.name] = 'FailedCreate: pods "x" is forbidden: exceeded quota: mem'
    world.settle()
    assert "exceeded quota: mem" in world.condition(Kind.GENERATED).message
    assert world.status.reason == "CannotStart"
    world.tick(901).settle()
    assert world.reason(Kind.SUCCEEDED) == "CannotStart"


def test_trouble_of_an_ended_attempt_does_not_stall_the_next_attempt() -> None:
    world = generating(rollout=False)
    (job,) = world.live_attempts()
    ended = {"name": "generator", "state": {"terminated": {"exitCode": 1, "reason": "Error", "message": "HTTP 404"}}}
    for name, status in (
        ("of-the-first", {"phase": "Failed", "containerStatuses": [ended]}),
        ("of-the-second", {"phase": "Pending"}),
    ):
        world.add_pod(name, "generator", job, {})
        world.objects[ObjectKey("Pod", name)]["status"] = status
    world.tick(SETTLE_SECONDS + 1).settle()
    assert "HTTP 404" in world.observed().troubles("generator")
    assert world.condition(Kind.STALLED).status == "False"


def test_claim_without_its_storage_class_is_reported_in_the_condition() -> None:
    world = World(run=evalrun(rollout=False)).settle()
    (name,) = world.of_kind("PersistentVolumeClaim")
    world.objects[ObjectKey("PersistentVolumeClaim", name)]["status"] = {"phase": "Pending"}
    world.events[name] = NO_CLASS
    assert name in {seen.ref.name for seen in world.observed().silent()}
    world.settle()
    assert NO_CLASS in world.condition(Kind.STALLED).message


def test_queued_run_creates_no_objects_and_reports_its_position() -> None:
    world = World(run=evalrun({"spec.activeDeadlineSeconds": 60}), settings=operator_settings(max_active_runs=3))
    world.place = QueuePosition(position=2, active=3)
    world.settle()
    assert not world.objects
    assert world.status.start_time is None
    assert (world.status.phase, world.status.reason) == ("Pending", "TooManyActiveRuns")
    message = world.condition(Kind.ADMITTED).message
    assert message.startswith("Number 2 in the queue: 3 runs are active, and the operator allows 3")
    world.tick(3600).settle()  # the queue costs no deadline
    world.place = QueuePosition()
    world.settle()
    assert (world.condition(Kind.ADMITTED).status, world.status.phase) == ("True", "Preparing")


def test_resumed_run_waits_for_its_place_in_the_queue() -> None:
    world = generating(max_active_runs=1).change_spec(suspend=True).settle().finalize().settle()
    world.finalize().settle()
    world.place = QueuePosition(position=1, active=1)
    world.change_spec(suspend=False).settle()
    assert (world.status.phase, world.of_kind("RayCluster")) == ("Suspended", [])
    assert world.reason(Kind.ADMITTED) == "TooManyActiveRuns"
    world.place = QueuePosition()
    world.settle().services_up().settle().kuberay().settle().jobs_run().settle()
    assert world.status.phase == "Generating"


def test_run_suspended_at_creation_creates_no_objects_and_may_be_changed() -> None:
    world = World(run=evalrun({"spec.suspend": True})).settle()
    assert not world.objects
    assert world.status.start_time is None
    assert (world.status.phase, world.status.reason) == ("Suspended", "SuspendRequested")
    world.change_spec(suspend=False).settle()
    assert world.status.start_time == START


def test_a_new_pod_is_given_time_to_have_its_claim_bound() -> None:
    """Nearly every start has a pod with unbound claims, for a moment."""
    world = with_trouble("Unschedulable: pod has unbound immediate PersistentVolumeClaims")
    pod = world.objects[ObjectKey("Pod", "run-aggregator-0")]
    world.change_spec().history.clear()
    pod["metadata"]["creationTimestamp"] = world.now.isoformat()
    world.tick(SETTLE_SECONDS - 1).settle()
    assert world.condition(Kind.STALLED).status == "False"
    assert "unbound" in world.condition(Kind.JUDGED).message  # told, but no warning
    world.tick(2).settle()
    assert world.condition(Kind.STALLED).status == "True"


def hang(world: World, name: str, **metadata: Any) -> None:
    """Have a pod told to end on a node that answers no more, since a time when its grace was over."""
    pod = world.objects[ObjectKey("Pod", name)]
    pod["metadata"] |= {"deletionTimestamp": world.now.isoformat(), **metadata}
    pod["spec"]["nodeName"] = "node-7"


@pytest.mark.parametrize(
    ("metadata", "cure"),
    [
        ({}, "kubectl delete node node-7. Else restart its kubelet, or: kubectl delete pod run-aggregator-0 --force."),
        ({"finalizers": ["example.test/keep"]}, "finalizers hold it (example.test/keep). See to what set them"),
    ],
)
def test_a_pod_that_hangs_in_terminating_is_named_with_its_node_and_a_cure(metadata: dict[str, Any], cure: str) -> None:
    world = generating().services_up(ready=False)
    world.add_pod("run-aggregator-0", "aggregator", ObjectKey("StatefulSet", "run-aggregator"), {})
    hang(world, "run-aggregator-0", **metadata)
    world.settle()
    assert "Terminating" not in world.condition(Kind.JUDGED).message  # it is given time
    world.tick(61).settle()
    said = world.condition(Kind.JUDGED).message
    assert "Pod run-aggregator-0 on node node-7 hangs in Terminating since 2026-01-31T12:" in said
    assert cure in said
    assert world.condition(Kind.STALLED).status == "False"  # a node may come back: the run is not given up


def test_a_ray_pod_that_hangs_in_terminating_is_named_by_the_cluster_and_by_a_suspension() -> None:
    world = generating()
    worker = next(ref.name for ref in world.objects if ref.kind == "Pod" and "worker" in ref.name)
    hang(world, worker)
    world.kuberay(usable=False).tick(61).settle()
    assert f"Pod {worker} on node node-7 hangs in Terminating" in world.condition(Kind.CLUSTER_READY).message
    world.change_spec(suspend=True).settle()
    assert f"Pod {worker} on node node-7 hangs in Terminating" in world.condition(Kind.SUSPENDED).message


def refused_world(kind: str, reason: Reason, text: str) -> World:
    """Return a world whose last reconciliation ended with a refused write, as the controller tells it in the status."""
    world = World(run=evalrun(rollout=False)).settle()
    world.write_failures = [WriteFailure(kind, reason, text)]
    said = report_writes(world.write_failures, LASTING_FAILURES)
    assert said is not None
    status = replace_applied_condition(world.status, world.status, said, 1, world.now)
    world.run = world.run.model_copy(update={"status": status})
    return world.settle()


@pytest.mark.parametrize(
    ("kind", "reason", "text"),
    [
        ("StatefulSet", Reason.REFUSED, 'creating StatefulSet x: 422: StatefulSet.apps "x" is invalid: spec.y'),
        ("ConfigMap", Reason.NAME_TAKEN, "ConfigMap run-order is there already, and the run did not make it"),
        ("Deployment", Reason.REFUSED, "creating Deployment run-judge: 403: exceeded quota: count/deployments.apps"),
    ],
)
def test_a_lasting_refusal_stalls_the_run_and_ends_it_with_the_cause(kind: str, reason: Reason, text: str) -> None:
    world = refused_world(kind, reason, text)
    assert (world.status.phase, world.status.reason) == ("Preparing", "CannotStart")
    said = world.condition(Kind.STALLED).message
    assert text[1:] in said
    assert "The run fails at 2026-01-31T12:15:00Z unless it is mended." in said
    assert "tried again" not in said
    world.tick(901).settle()
    assert (world.status.phase, world.reason(Kind.COMPLETE)) == ("Failed", "CannotStart")
    assert text[1:] in world.condition(Kind.SUCCEEDED).message


@pytest.mark.parametrize(
    ("kind", "reason"), [("PodDisruptionBudget", Reason.REFUSED), ("StatefulSet", Reason.WRITE_FAILED)]
)
def test_refused_optional_object_or_failed_write_does_not_stall_the_run(kind: str, reason: Reason) -> None:
    world = refused_world(kind, reason, f"creating {kind} x: 403: exceeded quota")
    assert world.condition(Kind.STALLED).status == "False"


def test_refusal_while_all_parts_are_up_does_not_stall_the_run() -> None:
    world = generating(rollout=False).generate_all().settle()
    world.write_failures = [WriteFailure("Service", Reason.REFUSED, "creating Service x: 422: no")]
    said = report_writes(world.write_failures, 1)
    assert said is not None
    status = replace_applied_condition(world.status, world.status, said, 1, world.now)
    world.run = world.run.model_copy(update={"status": status})
    assert world.settle().condition(Kind.STALLED).status == "False"


def reworded(world: World) -> World:
    """Have a release whose messages read otherwise have written every condition, and another operator begin."""
    conditions = [one.model_copy(update={"message": "Worded otherwise."}) for one in world.status.conditions]
    world.run = world.run.model_copy(update={"status": world.status.model_copy(update={"conditions": conditions})})
    world.write_failures = None
    return world


def test_a_stalled_run_after_an_upgrade_fails_at_its_time_with_the_cause_seen_now() -> None:
    world = reworded(with_trouble(NO_IMAGE)).tick(890).settle()
    assert world.condition(Kind.COMPLETE).status == "False"
    world.write_failures = ()
    world.tick(20).settle()
    assert world.reason(Kind.COMPLETE) == "CannotStart"
    assert NO_IMAGE in world.condition(Kind.SUCCEEDED).message


@pytest.mark.parametrize(("kind", "stalled"), [("StatefulSet", "True"), ("PodDisruptionBudget", "False")])
def test_refusal_from_before_an_upgrade_keeps_its_stall_until_the_next_writes(kind: str, stalled: str) -> None:
    before = refused_world(kind, Reason.REFUSED, f"creating {kind} x: 403: exceeded quota")
    since = before.condition(Kind.STALLED).last_transition_time
    world = reworded(before).tick(901).settle()
    condition = world.condition(Kind.STALLED)
    assert (condition.status, condition.last_transition_time) == (stalled, since)
    assert world.condition(Kind.COMPLETE).status == "False"  # the operator has not asked for itself yet
    world.write_failures = ()
    status = replace_applied_condition(world.status, world.status, RunText("True", Reason.ALL_APPLIED), 1, world.now)
    world.run = world.run.model_copy(update={"status": status})
    assert world.settle().condition(Kind.STALLED).status == "False"


def test_run_that_fits_no_node_gives_its_place_back_until_it_fits() -> None:
    world = with_trouble(UNFIT)
    assert "It fits none of the nodes" in world.condition(Kind.STALLED).message
    assert not holds_queue_position(world.status)
    contender = parse_queued_run(world.run.to_wire())
    assert contender is not None
    assert (contender.active, contender.stalled) == (False, True)
    world.services_up().settle()
    assert holds_queue_position(world.status)


def test_run_with_rollout_without_kuberay_is_stalled_and_fails_at_the_deadline() -> None:
    world = World(missing_kinds=frozenset({"RayCluster", "RayJob"})).settle().services_up().settle()
    assert "KubeRay is not installed" in world.condition(Kind.STALLED).message
    assert not holds_queue_position(world.status)
    world.tick(901).settle()
    assert (world.status.phase, world.reason(Kind.SUCCEEDED)) == ("Failed", "CannotStart")
