"""Replicas that a schedule keeps: when they start, whose turn it is, and when they are released."""

import itertools
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any, Literal

import pytest
from builders.operator.evalschedules import KEPT
from builders.operator.schedule_world import BEGIN, UID, evalschedule
from builders.operator.world import operator_settings

from evalrun_api import names
from evalrun_api.checkpoint_listing import ReadyCheckpoint
from evalrun_api.v1alpha1 import EvalSchedule, KeptReplicas
from evalrun_operator.observation.records import ObjectKey, Observed, ObservedCluster, ObservedObject, Pod
from evalrun_operator.policies.generation import gpu_holders
from evalrun_operator.schedules.decision import ObservedSchedule
from evalrun_operator.schedules.kept_costs import paid_gpu_seconds
from evalrun_operator.schedules.kept_objects import as_made, kept_cluster
from evalrun_operator.schedules.kept_replicas import ReplicaSituation, ReplicaStep, replica_step
from evalrun_operator.schedules.objects import make_eval_run, run_name
from evalrun_operator.schedules.reconcile import decide
from evalrun_operator.schedules.runs import ScheduledRun, parse_scheduled_run

IDLE = 120
LATER = BEGIN + timedelta(seconds=IDLE)
IMAGE = "ray:1"


def a_run(step: int, **changes: Any) -> ScheduledRun:
    run = ScheduledRun(
        name=f"nightly-{step}", uid=f"uid-{step}", url="pvc://x", step=step, digest=f"{step:010}", start="",
        created=BEGIN, waits_for_replicas=True,
    )  # fmt: skip
    return replace(run, **changes)


@dataclass
class Replicas:
    """A schedule's replicas beside a pretended KubeRay, and an operator that may be killed after each write."""

    changes: dict[str, Any] = field(default_factory=dict)
    runs: dict[int, ScheduledRun] = field(default_factory=dict)
    status: KeptReplicas | None = None
    clusters: dict[str, ObservedObject] = field(default_factory=dict)
    pods: dict[str, ObservedObject] = field(default_factory=dict)
    now: datetime = BEGIN
    made: list[str] = field(default_factory=list)
    events: list[str] = field(default_factory=list)
    uids: Any = field(default_factory=lambda: itertools.count(1))
    refusal: str = ""

    def situation(self) -> ReplicaSituation:
        schedule = evalschedule({**KEPT, **self.changes})
        replicas, rollout = schedule.spec.replicas, schedule.spec.template.rollout
        objects = {seen.ref: seen for seen in (*self.clusters.values(), *self.pods.values())}
        number = 0 if self.status is None else self.status.number
        return ReplicaSituation(
            schedule="nightly", uid=UID, keep=None if replicas is None else replicas.keep,
            suspended=schedule.spec.suspend, runs=tuple(self.runs.values()), observed=Observed(objects),
            wanted=kept_cluster(schedule, operator_settings(), number), image=IMAGE,
            gpus=0 if rollout is None else rollout.gpus_per_node, now=self.now, refusal=self.refusal,
        )  # fmt: skip

    def step(self, *, killed: bool = False) -> ReplicaStep:
        """Reconcile once. One that is killed has made and deleted what it wanted, and written no status."""
        given = self.situation()
        step = replica_step(given, self.status)
        for seen in step.delete:
            del self.clusters[seen.ref.name]
            self.pods = {}
        if step.make and step.status.cluster in self.clusters:  # made by a reconciliation that was cut off
            uid = self.clusters[step.status.cluster or ""].uid
            step.status = step.status.model_copy(update={"cluster_uid": uid})
        elif step.make:
            assert not gpu_holders(given.observed), "a second RayCluster beside one that holds GPUs"
            assert given.wanted is not None
            name = given.wanted["metadata"]["name"]
            assert step.status.cluster == name
            uid = f"c-{next(self.uids)}"
            applied = given.wanted["metadata"]["annotations"][names.APPLIED_ANNOTATION]
            detail = ObservedCluster(usable=False, suspended=False, failing=False, message="0 of 1 workers ready")
            self.clusters[name] = ObservedObject(
                ObjectKey("RayCluster", name),
                uid,
                owned=True,
                component=names.RAY,
                applied=applied,
                deleted_at=None,
                detail=detail,
            )
            self.made.append(name)
            step.status = step.status.model_copy(update={"cluster_uid": uid})
        if not killed:
            self.status = step.status
            self.events += [event.reason for event in step.events]
        return step

    def settle(self) -> "Replicas":
        for _ in range(20):
            before = self.status, list(self.made)
            step = self.step()
            if (self.status, self.made) == before and not step.delete:
                return self
        raise AssertionError(f"the replicas do not come to rest: {self.status}")

    def up(self, pod: str = "head-1") -> "Replicas":
        """KubeRay has made the pods of the one RayCluster."""
        ((name, seen),) = self.clusters.items()
        detail = ObservedCluster(usable=True, suspended=False, failing=False, message="1 of 1 workers ready")
        self.clusters[name] = replace(seen, detail=detail)
        head = Pod("head", name, ended=False, ready=True, trouble="", exit_code=None, restarts=0)
        self.pods = {
            pod: ObservedObject(
                ObjectKey("Pod", pod), pod, owned=False, component=names.RAY, applied="", deleted_at=None, detail=head
            )
        }
        return self

    def change_cluster(self, **changes: Any) -> None:
        ((name, seen),) = self.clusters.items()
        assert isinstance(seen.detail, ObservedCluster)
        self.clusters[name] = replace(seen, detail=replace(seen.detail, **changes))

    def change_run(self, step: int, **changes: Any) -> "Replicas":
        self.runs[step] = replace(self.runs[step], **changes)
        return self

    @property
    def holder(self) -> str | None:
        return None if self.status is None else self.status.holder


def with_runs(*steps: int, **changes: Any) -> Replicas:
    return Replicas(dict(changes), {step: a_run(step) for step in steps})


def idle(**changes: Any) -> Replicas:
    """Replicas that one run had its turn on."""
    return with_runs(10, **changes).settle().up().settle().change_run(10, generated=True).settle()


def test_no_cluster_is_made_before_a_run_waits() -> None:
    world = Replicas({}, {10: a_run(10, waits_for_replicas=False)}).settle()
    assert world.made == []


def test_two_checkpoints_use_one_cluster_the_lower_step_first() -> None:
    world = with_runs(20, 10).settle()
    assert (world.holder, len(world.made)) == (None, 1)  # not before it is up
    assert world.up().settle().holder == "nightly-10"
    assert world.settle().holder == "nightly-10", "a run keeps its turn"
    world.now += timedelta(seconds=30)
    assert world.change_run(10, generated=True).settle().holder == "nightly-20"
    assert world.made == [f"nightly-{UID[:5]}-kept-1"]
    assert world.status is not None
    assert (world.status.served, world.status.use_gpu_seconds) == (2, 30 * 8)


@pytest.mark.parametrize("done", ["generated", "complete", "suspended", "gone"])
def test_a_turn_is_taken_back_once_the_run_needs_no_gpu(done: str) -> None:
    world = with_runs(10).settle().up().settle()
    assert world.holder == "nightly-10"
    changes = {done: True, "waits_for_replicas": False, "succeeded": done == "complete"}
    assert world.change_run(10, **changes).settle().holder is None
    assert len(world.clusters) == 1


def test_a_run_that_is_no_longer_there_has_no_turn() -> None:
    world = with_runs(10).settle().up().settle()
    world.runs.clear()
    assert world.settle().holder is None


@dataclass(frozen=True)
class Release:
    name: str
    changes: dict[str, Any]
    seconds: int
    says: str


@pytest.mark.parametrize(
    "case",
    [
        Release("idle", {}, IDLE, "idleSeconds"),
        Release("suspended", {"spec.suspend": True}, 0, "the schedule is suspended"),
        Release("removed", {"spec.replicas": None}, 0, "spec.replicas was removed"),
        Release("template", {"spec.template.rollout.gpusPerNode": 4}, 0, "have changed"),
        Release("image", {"spec.template.rollout.image": "other:1"}, 0, "have changed"),
        Release("spent", {"spec.replicas.keep.maxCheckpoints": 1}, 0, "maxCheckpoints"),
    ],
    ids=lambda case: case.name,
)
def test_idle_replicas_are_released(case: Release) -> None:
    world = idle()
    world.changes |= case.changes
    if case.seconds:
        world.now += timedelta(seconds=case.seconds - 1)
        assert len(world.settle().clusters) == 1
        world.now += timedelta(seconds=1)
    world.step()
    assert world.status is not None
    assert case.says in (world.status.leaving or "")
    world.settle()
    assert (world.clusters, world.status.cluster) == ({}, None)
    assert world.events == ["ReplicasStarted", "ReplicasReleased"]


def test_replicas_in_use_stay_although_the_schedule_is_suspended_or_changes() -> None:
    world = with_runs(10).settle().up().settle()
    world.changes |= {"spec.suspend": True, "spec.template.rollout.image": "other:1"}
    assert world.settle().holder == "nightly-10"


def test_a_suspended_schedules_active_runs_still_get_their_turn() -> None:
    world = with_runs(10, 20).settle().up().settle()
    world.changes |= {"spec.suspend": True}
    assert world.change_run(10, generated=True).settle().holder == "nightly-20"
    assert world.change_run(20, generated=True).settle().clusters == {}


@pytest.mark.parametrize("what", ["head", "restart", "disrupted", "suspended", "deleted", "worker"])
@pytest.mark.parametrize("in_use", [True, False])
def test_lost_replicas_are_released_and_the_next_run_gets_others(what: str, in_use: bool) -> None:
    world = with_runs(10, 20).settle().up().settle() if in_use else idle()
    ((pod, seen),) = world.pods.items()
    assert isinstance(seen.detail, Pod)
    if what == "head":
        world.up("head-2")
    elif what == "restart":
        world.pods[pod] = replace(seen, detail=replace(seen.detail, restarts=1))
    elif what == "disrupted":
        world.pods[pod] = replace(seen, detail=replace(seen.detail, disrupted=True))
    elif what == "suspended":
        world.change_cluster(suspended=True, usable=False)
    elif what == "worker":  # beside a run the generator itself replaces it
        world.change_cluster(usable=False)
    else:
        world.clusters, world.pods = {}, {}
    world.settle()
    if what == "worker" and in_use:
        assert (world.holder, len(world.made)) == ("nightly-10", 1)
    elif in_use:
        assert (world.holder, len(world.made), list(world.clusters)) == (None, 2, world.made[1:])
        assert world.up("head-3").settle().holder == "nightly-10"
    else:
        assert (world.clusters, len(world.made)) == ({}, 1)


def test_after_a_run_that_failed_the_next_one_gets_new_replicas() -> None:
    world = with_runs(10, 20).settle().up().settle().change_run(10, complete=True).settle()
    assert len(world.made) == 2
    assert world.up("head-2").settle().holder == "nightly-20"


def test_cluster_being_deleted_is_waited_for_before_the_next_is_made() -> None:
    world = idle()
    world.runs[20] = a_run(20)
    ((name, seen),) = world.clusters.items()
    world.clusters[name] = replace(seen, deleted_at=world.now)
    for _ in range(5):
        step = world.step()
    assert (len(world.made), step.delete) == (1, ())
    assert world.status is not None
    assert "deleted" in (world.status.leaving or "")
    world.clusters, world.pods = {}, {}
    assert len(world.settle().made) == 2


def test_gpu_seconds_of_start_use_and_idling_are_apart() -> None:
    world = with_runs(10).settle()
    for after in (60, 30, 20):
        world.now += timedelta(seconds=after)
        if after == 60:
            world.up()
        elif after == 30:
            world.change_run(10, generated=True)
        else:
            world.changes |= {"spec.suspend": True}
        world.settle()
    assert world.status is not None
    status = world.status
    assert (status.start_gpu_seconds, status.use_gpu_seconds, status.idle_gpu_seconds) == (480, 240, 160)


def test_cost_shares_are_provisional_until_the_cluster_is_deleted() -> None:
    """Its whole life: 60 s of start, a turn of 30 s, 5 s idle, a turn of 10 s, 20 s idle, on eight GPUs."""
    world = with_runs(10, 20).settle()
    world.change_run(20, waits_for_replicas=False)
    provisional = []
    for after, changes in (
        (60, {}), (30, {10: {"generated": True, "output_tokens": 300, "generating_seconds": 10}}),
        (5, {20: {"waits_for_replicas": True}}),
        (10, {20: {"generated": True, "output_tokens": 100, "generating_seconds": 10}}), (20, {}),
    ):  # fmt: skip
        world.now += timedelta(seconds=after)
        if not world.pods:
            world.up()
        for step, change in changes.items():
            world.change_run(step, **change)
        if after == 20:
            world.changes |= {"spec.suspend": True}
        world.settle()
        assert world.status is not None
        assert world.status.costs is not None
        costs = world.status.costs
        provisional.append((costs.settled, paid_gpu_seconds(costs)))
    whole = (60 + 20) * 8, (5 + 20) * 8
    assert provisional[1] == (False, {"uid-10": (60 + 30) * 8})
    assert provisional[-1] == (
        True,
        {"uid-10": 10 * 8 + sum(whole) * 3 // 4, "uid-20": 10 * 8 + sum(whole) // 4},
    )
    assert (costs.start_gpu_seconds, costs.idle_gpu_seconds) == (60 * 8, 25 * 8)
    assert costs.cluster == world.made[0]


def test_starting_cluster_without_a_waiting_run_is_released() -> None:
    world = with_runs(10).settle()
    world.change_run(10, complete=True)
    world.now = LATER
    assert world.settle().clusters == {}


def test_a_schedule_that_is_refused_starts_no_replicas() -> None:
    world = with_runs(10)
    world.refusal = "template.rollout.image: not allowed"
    world.settle()
    assert (world.made, world.status and world.status.cluster) == ([], None)
    assert "not allowed" in world.step().text.message


def test_replicas_that_were_announced_and_not_made_are_given_up_with_a_refusal() -> None:
    world = with_runs(10)
    world.step()
    world.refusal = "template.rollout.image: not allowed"
    assert (world.settle().made, world.status and world.status.cluster) == ([], None)
    world.refusal = ""
    assert len(world.settle().made) == 1


def test_existing_replicas_serve_waiting_runs_and_are_released_despite_a_refusal() -> None:
    world = with_runs(10, 20).settle().up().settle()
    world.refusal = "template.rollout.image: not allowed"
    assert world.change_run(10, generated=True).settle().holder == "nightly-20"
    world.change_run(20, generated=True).settle()
    world.now += timedelta(seconds=IDLE)
    assert (world.settle().clusters, len(world.made)) == ({}, 1)


@pytest.mark.parametrize("idle_seconds", [0, IDLE])
def test_starting_replicas_outlive_a_moment_in_which_their_run_is_not_seen_to_wait(idle_seconds: int) -> None:
    """The run's ledger had not answered once, ten minutes after the replicas were announced."""
    world = with_runs(10, **{"spec.replicas.keep.idleSeconds": idle_seconds}).settle()
    for _ in range(120):
        world.now += timedelta(seconds=5)
        world.settle()
    world.change_run(10, waits_for_replicas=False).settle()
    world.now += timedelta(seconds=20)
    assert len(world.settle().clusters) == 1
    world.change_run(10, waits_for_replicas=True)
    assert world.up().settle().holder == "nightly-10"
    assert len(world.made) == 1
    assert world.status is not None
    assert world.status.start_gpu_seconds == 620 * 8


def test_starting_replicas_are_released_once_no_run_waited_for_long() -> None:
    world = with_runs(10).settle()
    world.change_run(10, waits_for_replicas=False)
    world.now = LATER
    assert world.settle().clusters == {}


@pytest.mark.parametrize("complete", [False, True])
def test_a_run_that_ends_early_gives_its_turn_back_and_leaves_sound_replicas(complete: bool) -> None:
    """Its outputs may take half an hour to write; and a stop or a deadline says nothing of the replicas."""
    world = with_runs(10, 20).settle().up().settle()
    world.change_run(10, ends_early=True, complete=complete).settle()
    assert (world.holder, len(world.made)) == ("nightly-20", 1)


@pytest.mark.parametrize("waits", [False, True])
def test_a_run_that_is_being_deleted_has_no_turn(waits: bool) -> None:
    world = with_runs(10).settle().up().settle() if not waits else with_runs(10)
    world.change_run(10, deleting=True).settle()
    assert (world.holder, len(world.made)) == (None, 0 if waits else 1)


def test_a_head_that_crashed_beside_a_run_is_remembered_and_one_that_was_taken_away_is_not() -> None:
    world = with_runs(10).settle().up().settle()
    world.up("head-2").settle()
    assert world.status is not None
    assert world.status.crashed == world.made[0]
    world.up("head-3").settle()
    assert world.holder == "nightly-10"
    world.change_cluster(suspended=True, usable=False)
    world.settle()
    assert world.status.crashed == world.made[0]


@pytest.mark.parametrize("when", ["before any turn", "in a turn", "between turns"])
@pytest.mark.parametrize("taken_away", [False, True])
def test_each_head_that_crashes_is_counted_once(when: str, taken_away: bool) -> None:
    world = with_runs(10).settle().up()
    if when == "before any turn":
        world.change_cluster(usable=False)
    world.settle()
    if when == "between turns":
        world.change_run(10, generated=True).settle()
    (seen,) = world.pods.values()
    assert isinstance(seen.detail, Pod)
    world.pods["head-1"] = replace(seen, detail=replace(seen.detail, restarts=1, disrupted=taken_away))
    world.settle().settle()
    assert world.status is not None
    assert world.status.crashes == (not taken_away)
    assert world.events.count("ReplicasHeadCrashed") == (not taken_away)
    assert len(world.made) == 1 + (when == "in a turn")


def test_a_head_that_crashes_again_and_again_before_any_turn_is_counted_each_time() -> None:
    world = with_runs(10).settle().up()
    world.change_cluster(usable=False)
    for head in ("head-1", "head-2", "head-3"):
        world.up(head)
        world.change_cluster(usable=False)
        world.settle()
    assert world.status is not None
    assert (world.status.crashes, world.holder, len(world.made)) == (2, None, 1)
    assert world.up("head-3").settle().holder == "nightly-10"
    assert world.status.crashed is None


@pytest.mark.parametrize("killed_at", range(12))
def test_an_operator_killed_at_any_step_starts_no_second_cluster_and_leaves_none(killed_at: int) -> None:
    """Each reconciliation of a whole life in turn is cut off before its status is written, and made again."""
    world, count = with_runs(10, 20), itertools.count()

    def lead() -> None:
        for _ in range(12):
            if next(count) == killed_at:
                world.step(killed=True)
            world.step()

    lead()
    world.up()
    lead()
    world.change_run(10, generated=True)
    lead()
    assert (world.holder, len(world.made)) == ("nightly-20", 1)
    world.change_run(20, generated=True)
    lead()
    world.now += timedelta(seconds=IDLE)
    lead()
    assert (world.clusters, len(world.made)) == ({}, 1)
    assert world.status is not None
    assert world.status.cluster is None


def test_refusal_of_a_schedule_reaches_the_decision_on_its_replicas() -> None:
    world = Replicas(runs={10: a_run(10, name=run_name("nightly", f"{10:010}"))})
    observed = ObservedSchedule(tuple(world.runs.values()), None, replicas=world.situation())
    recorded = {"evaluated": {"digests": [{"digest": f"{10:010}", "step": 10}]}}
    schedule = EvalSchedule.from_wire({**evalschedule(KEPT).to_wire(), "status": recorded})
    for refusal, cluster in (("", f"nightly-{UID[:5]}-kept-1"), ("not allowed", None)):
        decision = decide(schedule, replace(observed, refusal=refusal), BEGIN)
        assert decision.status.replicas is not None
        assert decision.status.replicas.cluster == cluster


@pytest.mark.parametrize(
    ("status", "metadata", "expected"),
    [
        ({"Admitted": "WaitingForReplicas"}, {}, (True, False, False)),
        ({"Admitted": "RunAdmitted", "Generated": "Stopped"}, {}, (False, True, False)),
        ({"Admitted": "RunAdmitted", "Generated": "DeadlineExceeded"}, {}, (False, True, False)),
        ({"Admitted": "RunAdmitted", "Complete": "DeadlineExceeded"}, {}, (False, True, False)),
        ({"Admitted": "RunAdmitted", "Complete": "BackoffLimitExceeded"}, {}, (False, False, False)),
        ({"Admitted": "WaitingForReplicas"}, {"deletionTimestamp": BEGIN.isoformat()}, (True, False, True)),
    ],
)
def test_conditions_of_a_run_tell_waiting_early_end_and_deletion(
    status: dict[str, str], metadata: dict[str, str], expected: tuple[bool, ...]
) -> None:
    manifest = make_eval_run(evalschedule(KEPT), ReadyCheckpoint(path="x", step=1, digest="a" * 10), BEGIN, None)
    manifest["metadata"] |= {"uid": "mine", "creationTimestamp": BEGIN.isoformat(), **metadata}
    manifest["status"] = {
        "conditions": [
            {"type": kind, "status": "False", "reason": reason, "lastTransitionTime": BEGIN.isoformat(), "message": ""}
            for kind, reason in status.items()
        ]
    }
    run = parse_scheduled_run(manifest)
    assert run is not None
    assert (run.waits_for_replicas, run.ends_early, run.deleting) == expected


@pytest.mark.parametrize("auth", ["token", "disabled"])
def test_status_says_how_the_cluster_was_made(auth: Literal["token", "disabled"]) -> None:
    cluster = kept_cluster(
        evalschedule({**KEPT, "spec.template.rollout.image": "r:2"}), operator_settings(ray_auth=auth), 1
    )
    assert cluster is not None
    cluster["metadata"]["uid"] = "c"
    assert as_made(cluster) == {"cluster_uid": "c", "image": "r:2", "auth": auth}
