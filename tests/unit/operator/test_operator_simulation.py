"""Random interleavings of what can happen in a cluster, with the operator killed between any two of its writes.

Whatever happens: never two attempts at once, no GPU held while the run is suspended, judging or finished, what is said
to be final stays, and once nothing more goes wrong the run reaches its end.
"""

import random
from collections.abc import Callable

import pytest
from builders.operator.world import JOBS, World, evalrun, operator_settings

from evalrun_api.v1alpha1 import ConditionType as Kind
from evalrun_api.v1alpha1 import EvalRunStatus, find_condition
from evalrun_operator.observation.records import ObjectKey

EVENTS = 120
PASSES_TO_THE_END = 120


def holds(status: EvalRunStatus, kind: Kind) -> bool:
    condition = find_condition(status, kind)
    return condition is not None and condition.status == "True"


class Weather:
    """What can happen, drawn at random."""

    def __init__(self, world: World, chance: random.Random) -> None:
        self.world = world
        self.chance = chance
        self.events: list[Callable[[], object]] = [
            lambda: world.step(),
            lambda: world.step(writes=chance.randrange(4)),
            lambda: world.services_up(),
            lambda: world.services_up(ready=False),
            lambda: world.kuberay(),
            lambda: world.kuberay(usable=False),
            lambda: world.replace_head(),
            lambda: world.evict_head(),
            lambda: world.restart_head() if chance.random() < 0.3 else None,
            lambda: world.jobs_run(),
            lambda: world.finalize(),
            lambda: world.tick(chance.choice([1, 15, 90])),
            lambda: world.end_attempt(failed=True) if chance.random() < 0.3 else None,
            self.work,
            self.work,
            self.lose_an_object,
            self.toggle_reachable,
            lambda: world.change_spec(suspend=not world.run.spec.suspend) if chance.random() < 0.3 else None,
        ]

    def happen(self) -> None:
        self.chance.choice(self.events)()

    def work(self) -> None:
        """Generate where an attempt runs that is not on its way out, and judge what there is."""
        world = self.world
        running = [ref for ref in world.live_attempts() if "deletionTimestamp" not in world.objects[ref]["metadata"]]
        if running:
            world.generated = min(world.total, world.generated + self.chance.randrange(25))
            if world.generated == world.total:
                world.end_attempt(failed=False)
        world.judged = min(world.generated, world.judged + self.chance.randrange(25))

    def lose_an_object(self) -> None:
        present = [ref for ref in self.world.objects if ref.kind not in {"Pod", "PersistentVolumeClaim"}]
        if present and self.chance.random() < 0.5:
            self.world.delete(self.chance.choice(present))

    def toggle_reachable(self) -> None:
        self.world.reachable = not self.world.reachable


def check(world: World, before: EvalRunStatus) -> None:
    now = world.status
    assert len(world.live_attempts()) <= 1, "two attempts at once"
    clusters = [ref.name for ref in world.objects if ref.kind == "RayCluster"]
    assert len(clusters) <= 1, "two clusters at once"
    pods = [ref for ref in world.objects if ref.kind == "Pod" and "worker" in ref.name]
    if holds(now, Kind.SUSPENDED):
        assert not clusters
        assert not pods
    assert now.attempts >= before.attempts
    assert before.start_time is None or now.start_time == before.start_time
    if holds(before, Kind.COMPLETE):
        assert now == before, "an end state changed"
    names = [condition.type for condition in now.conditions]
    assert len(names) == len(set(names))


def after_a_whole_pass(world: World) -> None:
    now = world.status
    if holds(now, Kind.GENERATED) or holds(now, Kind.COMPLETE) or world.run.spec.suspend:
        jobs = world.of_kind(*JOBS) if holds(now, Kind.COMPLETE) else []
        assert not [name for name in jobs if ObjectKey("RayJob", name) in world.live_attempts()]
        if not world.run.spec.suspend or holds(now, Kind.GENERATED) or holds(now, Kind.COMPLETE):
            assert world.of_kind("RayCluster") == [], "GPUs held for nothing"


@pytest.mark.parametrize("rollout", [True, False], ids=["rollout", "simple"])
@pytest.mark.parametrize("seed", range(25))
def test_run_ends_after_any_sequence_of_faults(seed: int, rollout: bool) -> None:
    chance = random.Random(seed)
    run = evalrun(
        {"spec.backoffLimit": chance.choice([0, 2, 30]), "spec.ttlSecondsAfterFinished": 10_000_000}, rollout=rollout
    )
    world = World(run=run, settings=operator_settings())
    weather = Weather(world, chance)
    for _ in range(EVENTS):
        before, passes = world.status, len(world.history)
        weather.happen()
        check(world, before)
        if len(world.history) > passes:
            after_a_whole_pass(world)
    fair_weather(world, weather)


def fair_weather(world: World, weather: Weather) -> None:
    """Let nothing more go wrong; the run must end."""
    world.reachable = True
    if world.run.spec.suspend:
        world.change_spec(suspend=False)
    for _ in range(PASSES_TO_THE_END):
        before = world.status
        world.step()
        check(world, before)
        after_a_whole_pass(world)
        if holds(world.status, Kind.COMPLETE):
            break
        world.finalize().services_up().kuberay().jobs_run().tick(30)
        weather.work()
    assert holds(world.status, Kind.COMPLETE), world.status.to_wire()
    assert world.status.phase in {"Succeeded", "Failed"}
    for _ in range(4):
        world.finalize().services_up().settle()
    pods = [
        ref.name for ref, item in world.objects.items() if ref.kind == "Pod" and item["status"]["phase"] == "Running"
    ]
    assert not pods, "something holds on"
    assert not world.of_kind("RayCluster")
    assert not world.live_attempts()
