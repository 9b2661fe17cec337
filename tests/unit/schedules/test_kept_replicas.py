"""Replicas that a schedule keeps: when they start, whose turn it is, and when they are released."""

import itertools
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any

import pytest
from builders.operator.evalschedules import KEPT
from builders.operator.schedule_world import BEGIN, UID, evalschedule
from builders.operator.world import operator_settings

from evalrun_api import names
from evalrun_api.v1alpha1 import KeptReplicas
from evalrun_operator.observation.records import ObjectKey, Observed, ObservedCluster, ObservedObject, Pod
from evalrun_operator.policies.generation import gpu_holders
from evalrun_operator.schedules.kept_objects import kept_cluster
from evalrun_operator.schedules.kept_replicas import ReplicaSituation, ReplicaStep, replica_step
from evalrun_operator.schedules.runs import ScheduledRun

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

    def situation(self) -> ReplicaSituation:
        schedule = evalschedule({**KEPT, **self.changes})
        replicas, rollout = schedule.spec.replicas, schedule.spec.template.rollout
        objects = {seen.ref: seen for seen in (*self.clusters.values(), *self.pods.values())}
        number = 0 if self.status is None else self.status.number
        return ReplicaSituation(
            schedule="nightly", uid=UID, keep=None if replicas is None else replicas.keep,
            suspended=schedule.spec.suspend, runs=tuple(self.runs.values()), observed=Observed(objects),
            wanted=kept_cluster(schedule, operator_settings(), number), image=IMAGE,
            gpus=0 if rollout is None else rollout.gpus_per_node, now=self.now,
        )  # fmt: skip

    def step(self, *, killed: bool = False) -> ReplicaStep:
        """Reconcile once. One that is killed has made and deleted what it wanted, and written no status."""
        given = self.situation()
        step = replica_step(given, self.status)
        for seen in step.delete:
            del self.clusters[seen.ref.name]
            self.pods = {}
        if step.make:
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


def test_what_is_on_its_way_out_is_waited_for() -> None:
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


def test_a_cluster_that_nobody_waits_for_any_more_while_it_starts_is_released() -> None:
    world = with_runs(10).settle()
    world.change_run(10, complete=True)
    world.now = LATER
    assert world.settle().clusters == {}


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
