import asyncio
import random
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import pytest
from builders.generator.rollout_order import rollout_order
from builders.generator.work import work_items

from evalrun_generator.endpoints.endpoint import Timed
from evalrun_generator.endpoints.fake_endpoint import FakeEndpoint, answer
from evalrun_generator.endpoints.retry import RequestFailure, classify_broken_off
from evalrun_generator.ledger.fake_ledger import FakeLedger
from evalrun_generator.outcomes import GenerationStoppedError
from evalrun_generator.rollout.app import RolloutService
from evalrun_generator.rollout.engine import EnginePlan, engine_plan
from evalrun_generator.rollout.fake_cluster import FakeCluster, FakeReplica
from evalrun_generator.rollout.order import RolloutOrder
from evalrun_generator.rollout.policy import PolicyLimits
from evalrun_generator.rollout.replica_manager import ReplicaOptions
from evalrun_generator.rollout.settings import RolloutSettings
from evalrun_generator.rollout.starts import Start
from evalrun_generator.rollout.vital_signs import ProbeLimits
from evalrun_proto.ledger.v1 import ledger_pb2 as ledger
from evalrun_runtime.exits import BadInputError, ExitCode

ORDER = rollout_order({"tensorParallel": 1, "replicas": 2, "maxNumSeqs": 4}, model={"path": "model"})
SETTINGS = RolloutSettings(
    work_order="o", ledger="l", report_seconds=0.01, backoff_seconds=0.001, max_backoff_seconds=0.01,
    batch_delay_seconds=0.001, drain_seconds=0.1,
)  # fmt: skip


@dataclass
class World:
    """A rollout on a fake cluster and a fake ledger, and what each replica does when it is asked."""

    items: int = 40
    gpus: int = 2
    order: RolloutOrder = ORDER
    limits: PolicyLimits = field(default_factory=lambda: PolicyLimits(60, 60, 0.05, initial_wait_seconds=0.001))
    patience: ProbeLimits = field(default_factory=lambda: ProbeLimits(30, 30, 2))
    answers: Callable[[Start], Callable[[], Timed | RequestFailure]] = lambda _: answer
    settings: RolloutSettings = SETTINGS

    def __post_init__(self) -> None:
        self.ledger = FakeLedger(work_items(self.items))
        self.cluster = FakeCluster([self.gpus], self._replica, now=time.time)
        self.hanging: set[str] = set()
        """Suffixes of the starts that answer nothing any more."""
        self.asked = asyncio.Event()

    def _replica(self, start: Start) -> FakeReplica:
        give = self.answers(start)

        async def script() -> Timed | RequestFailure:
            await asyncio.sleep(0.002)
            if start.suffix in self.hanging:
                await asyncio.Event().wait()
            return give()

        return FakeReplica(FakeEndpoint(start.suffix, lambda _count, _body: script()))

    @property
    def plan(self) -> EnginePlan:
        return engine_plan(self.order, {})

    def rollout(self) -> RolloutService:
        keeping = ReplicaOptions(self.order.rollout, self.plan, self.limits, self.patience, slots=4, tick_seconds=0.005)
        return RolloutService(
            self.settings, self.ledger, self.cluster, keeping, self.cluster.connect, ["a warning"], random.Random(0)
        )

    async def run(self) -> ExitCode:
        async with asyncio.timeout(20):
            return await self.rollout().run(self.asked, asyncio.Event())

    @asynccontextmanager
    async def running(self) -> AsyncIterator["asyncio.Task[ExitCode]"]:
        task = asyncio.create_task(self.run())
        try:
            yield task
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(10):
            while not condition():
                self.ledger.changed.clear()
                await self.ledger.changed.wait()

    def last(self) -> dict[tuple[str, float], ledger.Replica]:
        return {(replica.name, replica.started_at): replica for replica in self.ledger.reports[-1]}

    def hold_back(self) -> Callable[[], object]:
        """Lease an item to nobody, so that the run goes on until what is given back is called."""
        key = list(self.ledger.items)[-1]
        self.ledger.leases[key] = "somebody else"
        return lambda: self.ledger.leases.pop(key)

    def ups(self) -> int:
        return sum(replica.up for replica in self.last().values()) if self.ledger.reports else 0

    def by_replica(self) -> set[str]:
        return {completion.replica for completion in self.ledger.completions.values()}


async def test_run_answers_every_item_and_releases_the_gpus() -> None:
    world = World()
    assert await world.run() is ExitCode.SUCCEEDED
    assert world.ledger.remaining == 0
    assert world.by_replica() == {"replica-0", "replica-1"}
    assert world.cluster.living == []
    assert world.cluster.ended_all
    last = world.last().values()
    assert all(one.released_at >= one.started_at > 0 and one.gpus == 1 for one in last)
    assert {one.load_format for one in last} == {"auto"}
    assert [list(one.models) for one in last] == [["model"], ["model"]]  # the run's record keeps the last report
    assert world.ledger.warnings == ["a warning"]


async def test_complete_ledger_starts_no_replica() -> None:
    world = World(items=0)
    assert await world.run() is ExitCode.SUCCEEDED
    assert world.cluster.all == {}


async def test_replicas_start_as_their_gpus_appear() -> None:
    world = World(gpus=0)
    world.hold_back()
    async with world.running():
        await world.until(lambda: world.ledger.work_calls != [])
        world.cluster.nodes.append(1)
        await world.until(lambda: world.ups() == 1)
        world.cluster.nodes.append(1)
        await world.until(lambda: world.ups() == 2)


async def test_dead_replica_is_replaced_and_its_requests_are_sent_elsewhere() -> None:
    world = World(items=200)
    release = world.hold_back()
    async with world.running() as running:
        await world.until(lambda: world.ups() == 2)
        dying = world.cluster.living[0]
        world.hanging.add(dying.suffix)
        world.cluster.servers[dying.suffix].error = "/health: 503"
        await world.until(lambda: len(world.last()) == 3 and world.ups() == 2)
        assert world.last()[dying.name, dying.started_at].released_at > 0
        release()
        assert await running is ExitCode.SUCCEEDED
    assert world.ledger.duplicates == 0
    # What the dead one held was cut off and asked elsewhere; nothing else was asked twice.
    repeated = [one for one in world.ledger.completions.values() if one.attempts > 1]
    assert 0 < len(repeated) <= 4


async def test_hung_replica_is_ended_and_a_busy_one_with_token_progress_is_kept() -> None:
    world = World(patience=ProbeLimits(0.05, 0.5, 2))
    world.hold_back()
    async with world.running():
        await world.until(lambda: world.ups() == 2)
        hung, busy = world.cluster.living
        world.hanging |= {hung.suffix, busy.suffix}
        server = world.cluster.servers[busy.suffix]
        while hung.suffix in {start.suffix for start in world.cluster.living}:
            server.generated = (server.generated or 0.0) + 1
            world.cluster.changed.clear()
            await world.cluster.changed.wait()
        assert busy.suffix in {start.suffix for start in world.cluster.living}


async def test_the_next_attempt_takes_living_replicas_over() -> None:
    world = World()
    release = world.hold_back()
    async with world.running() as running:
        await world.until(lambda: world.ups() == 2 and len(world.ledger.completions) > 5)
        running.cancel()  # as a kill would: nothing is said to anybody
        await asyncio.gather(running, return_exceptions=True)
    assert len(world.cluster.living) == 2
    async with world.running() as running:
        release()
        assert await running is ExitCode.SUCCEEDED
    assert len(world.cluster.all) == 2
    assert world.ledger.remaining == 0


async def test_signal_stops_the_run_resumably_and_leaves_the_replicas() -> None:
    world = World()
    world.hold_back()
    async with world.running() as running:
        await world.until(lambda: world.ups() == 2)
        world.asked.set()
        assert await running is ExitCode.STOPPED
    assert len(world.cluster.living) == 2
    assert world.ledger.remaining > 0


async def test_end_replicas_frees_the_gpus_after_a_signal_and_reports_the_release() -> None:
    world = World(settings=SETTINGS.model_copy(update={"end_replicas": True}))
    world.hold_back()
    async with world.running() as running:
        await world.until(lambda: world.ups() == 2)
        world.asked.set()
        assert await running is ExitCode.STOPPED
    assert world.cluster.living == []
    assert all(replica.released_at for replica in world.last().values())


async def test_end_replicas_frees_the_gpus_when_the_run_cannot_go_on() -> None:
    world = World(settings=SETTINGS.model_copy(update={"end_replicas": True}))
    world.cluster.failing = ["out of memory"] * 50
    with pytest.raises(GenerationStoppedError, match="out of memory"):
        await world.run()
    assert world.cluster.living == []
    assert world.cluster.ended_all


async def test_reports_that_end_unexpectedly_end_the_run_resumably_and_leave_the_replicas() -> None:
    class OnceUnreported(FakeLedger):
        async def report(self, replicas: Sequence[ledger.Replica], warnings: Sequence[str] = ()) -> None:
            if world.ups() == 2:
                raise TypeError("half a character")
            await super().report(replicas, warnings)

    world = World()
    world.ledger = OnceUnreported(work_items(40))
    world.hold_back()
    async with world.running() as running:
        with pytest.raises(GenerationStoppedError, match=r"reports.*TypeError: half a character.*run again"):
            await running
    assert len(world.cluster.living) == 2


async def test_failing_starts_are_tried_again_then_given_up() -> None:
    once = World()
    once.cluster.failing = ["out of memory"]
    assert await once.run() is ExitCode.SUCCEEDED
    always = World()
    always.cluster.failing = ["out of memory"] * 50
    with pytest.raises(GenerationStoppedError, match=r"replica starts failed in a row, the last with: out of memory"):
        await always.run()


async def test_missing_gpus_stop_the_run_after_the_wait_limit() -> None:
    world = World(gpus=0, limits=PolicyLimits(60, 0.05, 1))
    with pytest.raises(GenerationStoppedError, match="no room for a replica"):
        await world.run()


async def test_unrequested_dummy_weights_end_the_run_and_the_replicas() -> None:
    world = World()
    world.cluster.load_format = "dummy"
    with pytest.raises(BadInputError, match=r"replica-\d loaded dummy weights"):
        await world.run()
    assert world.cluster.living == []
    assert world.ledger.completions == {}


async def test_another_model_behind_the_asked_name_ends_the_run_and_the_replicas() -> None:
    """The engine answers /v1/models with the name that it was given, whatever it loaded."""
    world = World()
    world.cluster.engine = {"model": "/models/another"}
    with pytest.raises(
        BadInputError, match=r"replica-\d loaded /models/another, though model.path is model: its answers"
    ):
        await world.run()
    assert world.cluster.living == []
    assert world.ledger.completions == {}


async def test_engine_facts_of_a_replica_are_stored_in_the_ledger() -> None:
    world = World()
    world.cluster.engine = {"model": "model", "engine_version": "0.24.0", "gpu": "NVIDIA H200"}
    assert await world.run() is ExitCode.SUCCEEDED
    assert {one.engine["gpu"] for one in world.last().values()} == {"NVIDIA H200"}


async def test_another_model_ends_the_run() -> None:
    replicas = ORDER.rollout.to_wire()
    world = World(order=rollout_order(replicas, model={"path": "x/y"}))
    with pytest.raises(BadInputError, match=r"replica-\d does not serve model 'x/y', but model"):
        await world.run()


async def test_a_replica_that_cannot_answer_is_not_let_in() -> None:
    ill = iter([True, False, False, False])
    sick = {}

    def answers(start: Start) -> Callable[[], Timed | RequestFailure]:
        sick[start.suffix] = next(ill, False)
        return lambda: classify_broken_off("HTTP 500") if sick[start.suffix] else answer()

    world = World(answers=answers)
    assert await world.run() is ExitCode.SUCCEEDED
    (first,) = [suffix for suffix, is_sick in sick.items() if is_sick]
    assert world.cluster.all[first].released_at > 0
    assert all(completion.attempts == 1 for completion in world.ledger.completions.values())


async def test_between_min_and_max_idle_replicas_are_ended_when_work_runs_out() -> None:
    rollout = {"tensorParallel": 1, "minReplicas": 1, "maxReplicas": 2, "maxNumSeqs": 4}
    order = rollout_order(rollout, model={"path": "model"})
    world = World(items=60, order=order)
    release = world.hold_back()
    async with world.running() as running:
        await world.until(lambda: world.ups() == 2)
        await world.until(lambda: world.ledger.remaining == 1)
        await world.until(lambda: len(world.cluster.living) == 1)
        release()
        assert await running is ExitCode.SUCCEEDED
