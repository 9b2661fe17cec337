"""Lost nodes and ledgers out of reach: what is given up, what takes its place, and what counts as an attempt."""

from typing import Any

import pytest
from builders.operator.world import World, generating

from evalrun_api import names
from evalrun_api.v1alpha1 import ConditionType as Kind
from evalrun_operator.observation.records import ObjectKey
from evalrun_runtime.exits import EndCause


def epoch_of(world: World) -> int:
    """Return the epoch of the running attempt."""
    (ref,) = world.live_attempts()
    spec = world.objects[ref]["spec"]
    words: list[str] = (
        spec["entrypoint"].split() if ref.kind == "RayJob" else spec["template"]["spec"]["containers"][0]["args"]
    )
    (epoch,) = (int(word.removeprefix("--epoch=")) for word in words if word.startswith("--epoch="))
    return epoch


def test_a_generator_on_a_lost_node_is_replaced_by_one_of_a_higher_epoch_and_no_attempt_is_counted() -> None:
    world = generating(rollout=False)
    before = epoch_of(world)
    world.lose_node(names.GENERATOR).settle()
    told = [one.message for status in world.history for one in status.conditions if one.reason == "Interrupted"]
    assert told[0].startswith("Node node-2 of attempt 1 is lost: no attempt is counted.")
    world.finalize().settle().jobs_run().settle()
    assert world.of_kind("Pod") == ["run-0f3b2-gen-1-x"]
    assert world.status.attempts == 1
    assert epoch_of(world) >= before + 60


def test_a_pod_of_a_lost_node_has_its_grace_period_before_another_takes_its_place() -> None:
    world = generating(rollout=False).lose_node(names.GENERATOR, seconds=34.0).settle()
    assert [ref.name for ref in world.objects if ref.kind == "Pod"] == ["run-0f3b2-gen-1-x"]
    world.tick(2.0).settle()
    assert [ref.name for ref in world.objects if ref.kind == "Pod"] == []


def test_a_pod_that_is_slow_to_end_on_a_live_node_is_waited_for() -> None:
    world = generating(rollout=False)
    world.delete(ObjectKey("Pod", "run-0f3b2-gen-1-x"))
    world.tick(3600.0).settle()
    assert [ref.name for ref in world.objects if ref.kind == "Pod"] == ["run-0f3b2-gen-1-x"]


def test_lost_gpu_workers_are_given_up_so_that_kuberay_makes_others() -> None:
    world = generating()
    workers = world.workers("run-0f3b2-ray-1")
    for ref, item in world.objects.items():
        if ref.name not in workers and ref.kind == "Pod":
            item["metadata"]["labels"][names.COMPONENT_LABEL] = "another"  # on another node
    world.lose_node(names.RAY).settle()
    assert world.workers("run-0f3b2-ray-1") == []
    assert world.live_attempts()
    assert world.status.attempts == 1


def test_a_lost_head_is_given_up_and_another_cluster_takes_its_place() -> None:
    world = generating()
    before = epoch_of(world)
    world.lose_node(names.RAY).settle().finalize().settle().kuberay().settle().kuberay().settle()
    assert world.of_kind("RayCluster") == ["run-0f3b2-ray-1"]
    assert world.status.attempts == 1
    assert epoch_of(world) > before


@pytest.mark.parametrize("rollout", [True, False])
def test_an_aggregator_on_a_lost_node_is_not_given_up(rollout: bool) -> None:
    world = generating(rollout=rollout)
    aggregator = ObjectKey("StatefulSet", "run-aggregator")
    world.add_pod("run-aggregator-0", names.AGGREGATOR, aggregator, {})
    world.lose_node(names.AGGREGATOR, seconds=3600.0).settle()
    assert ObjectKey("Pod", "run-aggregator-0") in world.objects


def aggregator_ready(world: World, *, seconds_ago: float) -> World:
    """Have the aggregator's pod be ready since then."""
    if ObjectKey("Pod", "run-aggregator-0") not in world.objects:
        world.add_pod("run-aggregator-0", names.AGGREGATOR, ObjectKey("StatefulSet", "run-aggregator"), {})
    pod: dict[str, Any] = world.objects[ObjectKey("Pod", "run-aggregator-0")]
    since = world.copy().tick(-seconds_ago).now.isoformat()
    pod["status"]["conditions"] = [{"type": "Ready", "status": "True", "lastTransitionTime": since}]
    return world


@pytest.mark.parametrize("rollout", [True, False])
def test_an_attempt_that_ends_while_the_ledger_is_away_is_not_counted(rollout: bool) -> None:
    world = generating(rollout=rollout, changes={"spec.backoffLimit": 0})
    world.reachable = False
    world.end_attempt(failed=True, cause=EndCause.LEDGER_UNREACHABLE).settle().finalize().settle().tick(600.0).settle()
    assert world.live_attempts() == []  # another one would only end again
    assert world.reason(Kind.GENERATED) == "WaitingForServices"
    world.reachable = True
    world.settle()
    assert [ref.name for ref in world.live_attempts()] == ["run-0f3b2-gen-1"]
    assert world.status.attempts == 1


def test_an_attempt_is_not_counted_if_the_aggregator_has_only_just_come_back() -> None:
    world = aggregator_ready(generating(rollout=False), seconds_ago=5.0)
    world.end_attempt(failed=True, cause=EndCause.LEDGER_UNREACHABLE).settle().finalize().settle()
    assert [ref.name for ref in world.live_attempts()] == ["run-0f3b2-gen-1"]
    assert world.status.attempts == 1


@pytest.mark.parametrize("cause", [EndCause.LEDGER_UNREACHABLE, EndCause.FAILED, EndCause.BAD_INPUT])
def test_an_attempt_counts_that_cannot_reach_a_ledger_which_others_reach(cause: EndCause) -> None:
    """Else a policy that keeps the generator from its ledger would have the run go on without an end."""
    world = aggregator_ready(generating(rollout=False, changes={"spec.backoffLimit": 0}), seconds_ago=600.0)
    world.end_attempt(failed=True, cause=cause).settle()
    assert world.reason(Kind.GENERATED) == "AttemptFailed"
    assert world.status.phase == "Failed"


def test_an_attempt_counts_that_fails_by_itself_beside_an_aggregator_that_came_back() -> None:
    world = aggregator_ready(generating(rollout=False), seconds_ago=5.0)
    world.end_attempt(failed=True, cause=EndCause.FAILED).settle()
    assert world.reason(Kind.GENERATED) == "AttemptFailed"
