"""Runs that use the replicas of their schedule: when they generate, by what, and what happens when these go."""

from dataclasses import replace
from datetime import timedelta
from typing import Any, Literal

import pytest
from builders.operator.evalschedules import KEPT
from builders.operator.schedule_world import BEGIN, UID, evalschedule
from builders.operator.world import World, evalrun, operator_settings

from evalrun_api import names
from evalrun_api.checkpoint_listing import ReadyCheckpoint
from evalrun_api.v1alpha1 import ConditionType as Kind
from evalrun_api.v1alpha1 import EvalRun
from evalrun_api.v1alpha1 import KeptReplicas as KeptStatus
from evalrun_operator.observation.children import Children
from evalrun_operator.observation.records import KeptReplicas, ObjectKey
from evalrun_operator.schedules.kept_objects import kept_cluster, kept_policy
from evalrun_operator.schedules.kept_turns import KeptTurns
from evalrun_operator.schedules.objects import make_eval_run
from evalrun_operator.schedules.runs import parse_scheduled_run

WAITS = KeptReplicas(UID, "", "", "EvalSchedule nightly keeps the replicas, and nightly-1 has its turn.")
TURN = KeptReplicas(UID, "nightly-5c4ed-kept-1", "ray:1", "")
CHANGES = {"spec.model.path": "pvc://training/grpo/global_step_20"}


def on_kept(kept: KeptReplicas) -> World:
    world = World(run=evalrun(CHANGES), settings=operator_settings(backoff_seconds=10), kept=kept)
    return world.settle().services_up().settle().jobs_run().settle()


def job_of(world: World) -> dict[str, Any]:
    (ref,) = world.live_attempts()
    return dict(world.objects[ref])


def test_a_run_waits_for_its_turn_without_a_cluster_and_without_a_deadline() -> None:
    world = on_kept(WAITS)
    assert world.of_kind("RayCluster", "RayJob", "Job") == []
    assert world.reason(Kind.ADMITTED) == "WaitingForReplicas"
    assert world.reason(Kind.GENERATED) == "WaitingForCluster"
    assert "nightly-1 has its turn" in world.condition(Kind.CLUSTER_READY).message
    seen = parse_scheduled_run(
        {
            **world.run.to_wire(),
            "metadata": {
                **world.run.metadata.to_wire(), "annotations": {names.CHECKPOINT_DIGEST_ANNOTATION: "a" * 10},
            },
            "spec": {**world.run.spec.to_wire(), "lineage": {"schedule": "nightly", "step": 20}},
        }
    )  # fmt: skip
    assert seen is not None
    assert seen.waits_for_replicas
    world.tick(10 * 24 * 3600).settle()
    assert world.reason(Kind.COMPLETE) == "Running"


def test_in_its_turn_a_job_joins_the_schedules_cluster() -> None:
    world = on_kept(WAITS)
    world.kept = TURN
    world.settle().jobs_run().settle()
    assert world.of_kind("RayCluster", "RayJob") == []
    assert (world.reason(Kind.ADMITTED), world.reason(Kind.CLUSTER_READY)) == ("RunAdmitted", "ClusterProvisioned")
    job = job_of(world)
    (container,) = job["spec"]["template"]["spec"]["containers"]
    assert container["image"] == "ray:1"
    assert "--ray-join=nightly-5c4ed-kept-1-head-svc.evals.svc:6379" in container["args"]
    assert "--model-folder=/mnt/claims/training/grpo/global_step_20" in container["args"]
    assert {"--keep-replicas=kept", "--end-replicas"} <= set(container["args"])
    held = {one["name"]: one for one in container["env"]}
    assert held["RAY_AUTH_TOKEN"]["valueFrom"]["secretKeyRef"] == {"name": "nightly-5c4ed-kept-1", "key": "auth_token"}
    assert "EVALRUN_GENERATOR_LEDGER_TOKEN_FILE" in held
    world.generate_all().settle()
    assert world.reason(Kind.GENERATED) == "AllGenerated"


def test_network_policies_connect_kept_replicas_and_the_generator_only() -> None:
    world = on_kept(TURN)
    labels = job_of(world)["spec"]["template"]["metadata"]["labels"]
    policy = world.objects[ObjectKey("NetworkPolicy", "run-generator")]["spec"]
    assert ObjectKey("NetworkPolicy", "run-ray") not in world.objects
    (ingress,) = policy["ingress"]
    (peer,) = ingress["from"]
    schedule = evalschedule(KEPT)
    cluster = kept_cluster(schedule, operator_settings(), 1)
    assert cluster is not None
    of_ray = cluster["spec"]["headGroupSpec"]["template"]["metadata"]["labels"]
    assert peer["podSelector"]["matchLabels"].items() <= of_ray.items()
    replicas = kept_policy(schedule, operator_settings())["spec"]
    assert replicas["podSelector"]["matchLabels"].items() <= of_ray.items()
    selectors = [one["podSelector"]["matchLabels"] for one in replicas["ingress"][0]["from"]]
    assert [selector.items() <= labels.items() for selector in selectors] == [False, True]
    assert [selector.items() <= of_ray.items() for selector in selectors] == [True, False]


@pytest.mark.parametrize("now", [WAITS, replace(TURN, cluster="nightly-5c4ed-kept-2")])
def test_an_attempt_whose_replicas_went_is_ended_and_not_counted(now: KeptReplicas) -> None:
    world = on_kept(TURN)
    (before,) = world.live_attempts()
    world.kept = now
    world.settle()
    assert world.live_attempts() == [] or "deletionTimestamp" in world.objects[before]["metadata"]
    assert "Interrupted" in {one.reason for status in world.history for one in status.conditions}
    world.finalize().settle()
    world.kept = replace(TURN, cluster="nightly-5c4ed-kept-2")
    world.settle().jobs_run().settle()
    assert job_of(world)["metadata"]["annotations"][names.CLUSTER_ANNOTATION] == "nightly-5c4ed-kept-2"
    assert world.status.attempts == 1


@pytest.mark.parametrize("now", [WAITS, replace(TURN, cluster="nightly-5c4ed-kept-2")])
def test_an_attempt_whose_head_crashed_is_counted_once_until_the_limit(now: KeptReplicas) -> None:
    """A checkpoint that kills the head had taken new replicas for ever."""
    world = on_kept(TURN).change_spec(backoff_limit=1).settle()
    world.kept = replace(now, crashed=TURN.cluster)
    world.settle().finalize().settle()
    assert "AttemptFailed" in {one.reason for status in world.history for one in status.conditions}
    assert "Interrupted" not in {one.reason for status in world.history for one in status.conditions}
    world.kept = replace(TURN, cluster="nightly-5c4ed-kept-2", crashed=TURN.cluster)
    world.tick(600).settle().jobs_run().settle()
    assert job_of(world)["metadata"]["name"].endswith("-gen-2")
    world.kept = replace(WAITS, crashed="nightly-5c4ed-kept-2")
    world.settle().finalize().settle()
    assert (world.status.attempts, world.reason(Kind.COMPLETE)) == (2, "BackoffLimitExceeded")


@pytest.mark.parametrize(("frozen", "made"), [("token", "disabled"), ("disabled", "token")])
def test_the_generator_joins_ray_as_the_replicas_were_made(
    frozen: Literal["token", "disabled"], made: Literal["token", "disabled"]
) -> None:
    """The run keeps the settings that it started with; the replicas may be younger."""
    world = World(run=evalrun(CHANGES), settings=operator_settings(ray_auth=frozen), kept=replace(TURN, auth=made))
    world.settle().services_up().settle().jobs_run().settle()
    (container,) = job_of(world)["spec"]["template"]["spec"]["containers"]
    assert ("RAY_AUTH_TOKEN" in {one["name"] for one in container["env"]}) == (made == "token")


def test_unreadable_schedule_leaves_the_turn_unchanged() -> None:
    woken: list[tuple[str, str]] = []
    turns = KeptTurns(woken.append)
    manifest = make_eval_run(evalschedule(KEPT), ReadyCheckpoint(path="x", step=1, digest="a" * 10), BEGIN, None)
    manifest["metadata"] |= {"uid": "mine", "creationTimestamp": BEGIN.isoformat()}
    run, state = EvalRun.from_wire(manifest), KeptStatus(cluster="c", image="ray:1", holder="x", holder_uid="mine")
    schedule = {**evalschedule(KEPT).to_wire(), "status": {"replicas": state.to_wire()}}
    turns.saw(schedule, gone=False)
    turns.saw({**schedule, "spec": {"of": "another release"}}, gone=False)
    kept = turns.find_for_run(run, manifest)
    assert kept is not None
    assert kept.cluster == "c"
    turns.saw({**schedule, "spec": {"of": "another release"}}, gone=True)
    gone = turns.find_for_run(run, manifest)
    assert gone is not None
    assert "is not there" in gone.message


def test_next_attempt_after_a_failed_one_waits_for_a_turn() -> None:
    world = on_kept(TURN).end_attempt(failed=True).settle()
    assert world.reason(Kind.GENERATED) == "AttemptFailed"
    world.kept = WAITS
    world.tick(600).settle()
    assert world.reason(Kind.GENERATED) == "WaitingForCluster"
    world.kept = TURN
    world.settle().jobs_run().settle()
    assert job_of(world)["metadata"]["name"].endswith("-gen-2")


def test_suspending_a_run_in_its_turn_ends_its_job_alone() -> None:
    world = on_kept(TURN).change_spec(suspend=True).settle().finalize().settle()
    assert world.condition(Kind.SUSPENDED).status == "True"
    assert world.live_attempts() == []


@pytest.mark.parametrize(
    ("changes", "state", "expected"),
    [
        ({}, KeptStatus(), "not up yet"),
        ({}, KeptStatus(cluster="c", holder="nightly-1", holder_uid="other"), "nightly-1 has its turn"),
        ({}, KeptStatus(cluster="c", image="ray:1", holder="x", holder_uid="mine"), "turn on c"),
        ({}, KeptStatus(cluster="c", holder="x", holder_uid="mine", leaving="lost"), "x has its turn"),
        ({"spec.replicas": None}, KeptStatus(cluster="c", image="ray:1", holder="x", holder_uid="mine"), "turn on c"),
        ({"spec.replicas": None}, KeptStatus(), "its own"),
        ({"spec.template.rollout.gpusPerNode": 4}, KeptStatus(), "its own"),
    ],
)
def test_turn_follows_from_the_schedules_status(changes: dict[str, Any], state: KeptStatus, expected: str) -> None:
    made_by = evalschedule(KEPT)
    manifest = make_eval_run(made_by, ReadyCheckpoint(path="x", step=1, digest="a" * 10), BEGIN, None)
    manifest["metadata"] |= {"uid": "mine", "creationTimestamp": BEGIN.isoformat()}
    turns = KeptTurns(lambda _: None)
    run = EvalRun.from_wire(manifest)
    unknown = turns.find_for_run(run, manifest)
    assert unknown is not None
    assert "is not there" in unknown.message
    turns.saw({**evalschedule({**KEPT, **changes}).to_wire(), "status": {"replicas": state.to_wire()}}, gone=False)
    kept = turns.find_for_run(run, manifest)
    told = "its own" if kept is None else f"turn on {kept.cluster}" if kept.cluster else kept.message
    assert expected in told


def test_change_of_turn_wakes_the_new_and_the_former_holder() -> None:
    woken: list[tuple[str, str]] = []
    turns = KeptTurns(woken.append)
    for holder in ("a", "b", "b", None):
        state = KeptStatus(cluster="c", holder=holder, holder_uid=holder)
        turns.saw({**evalschedule(KEPT).to_wire(), "status": {"replicas": state.to_wire()}}, gone=False)
    assert [name for _, name in woken if name] in (["a", "a", "b", "b"], ["a", "b", "a", "b"])


def test_run_of_a_user_that_copies_the_annotation_starts_its_own_replicas() -> None:
    run = evalrun({"metadata.annotations": {names.KEPT_ANNOTATION: "true"}})
    assert KeptTurns(lambda _: None).find_for_run(run, run.to_wire()) is None


def test_change_of_kept_replicas_wakes_the_schedule_and_no_run() -> None:
    woken: dict[str, list[tuple[str, str]]] = {"run": [], "schedule": []}
    children = Children(woken["run"].append, lambda _: None, woken["schedule"].append)
    cluster = kept_cluster(evalschedule(KEPT), operator_settings(), 1)
    assert cluster is not None
    cluster["metadata"] |= {"uid": "c", "creationTimestamp": (BEGIN + timedelta(seconds=1)).isoformat()}
    known = children.put(cluster)
    assert known is not None
    assert [seen.owned for seen in children.find_for_run("evals", UID)] == [True]
    children.drop(known)
    assert woken == {"run": [], "schedule": [("evals", "nightly")] * 2}
