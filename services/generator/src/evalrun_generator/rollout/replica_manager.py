"""Manages the run's replicas beside the work loop: observes them, applies the policy's decisions, and repeats."""

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from evalrun_api.run_config import Rollout
from evalrun_generator.endpoints.endpoint_fleet import EndpointFleet
from evalrun_generator.outcomes import GenerationStoppedError
from evalrun_generator.rollout import policy
from evalrun_generator.rollout.cluster import ReplicaCluster
from evalrun_generator.rollout.engine import EnginePlan
from evalrun_generator.rollout.policy import Action, ActionKind, DecisionHistory, ObservedReplica, PolicyLimits
from evalrun_generator.rollout.replica_api import ReplicaApi
from evalrun_generator.rollout.replica_monitor import ReplicaMonitor, UnfitReplicaError
from evalrun_generator.rollout.reports import replica_reports
from evalrun_generator.rollout.starts import Start
from evalrun_generator.rollout.vital_signs import ProbeLimits
from evalrun_proto.ledger.v1 import ledger_pb2 as ledger

logger = logging.getLogger(__name__)

TICK_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class ReplicaOptions:
    """Configuration of the replicas and of their management."""

    rollout: Rollout
    plan: EnginePlan
    limits: PolicyLimits
    patience: ProbeLimits
    slots: int
    """Requests in flight per replica."""
    tick_seconds: float = TICK_SECONDS


class ReplicaManager:
    """Starts, admits, monitors, replaces and ends replicas, and keeps the fleet up to date."""

    def __init__(
        self,
        cluster: ReplicaCluster,
        fleet: EndpointFleet,
        options: ReplicaOptions,
        *,
        connect: Callable[[str], ReplicaApi],
        remaining: Callable[[], int | None],
        now: Callable[[], float] = time.time,
    ) -> None:
        """Create the manager.

        `connect` returns the API of the server at an address, `remaining` the number of missing completions.
        """
        self._cluster = cluster
        self._fleet = fleet
        self._options = options
        self._connect = connect
        self._remaining = remaining
        self._now = now
        self._wake = asyncio.Event()
        self._monitors: dict[str, ReplicaMonitor] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._ending: dict[str, asyncio.Task[None]] = {}
        self._busy_at: dict[str, float] = {}
        self._errors: dict[int, str] = {}
        self._models: dict[str, list[str]] = {}
        """Models by suffix, including ended replicas, because the run's record keeps the last report."""
        self._starts: Sequence[Start] = ()
        self._history = DecisionHistory()
        self._trouble: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.on_change: list[Callable[[], None]] = []
        """Called when a replica has joined or left."""

    async def run(self) -> None:
        """Manage replicas until cancelled.

        Raises:
            BadInputError: the replicas serve something other than the requested model.
            GenerationStoppedError: no replica can be started, or the cluster is lost.
        """
        try:
            while True:
                self._wake.clear()
                if self._trouble.done():
                    self._trouble.result()
                await self._look_and_act()
                await self._wait_until_woken(self._options.tick_seconds)
        finally:
            for monitor in self._monitors.values():
                self._fleet.leave(monitor.endpoint.name)
            tasks = [*self._tasks.values(), *self._ending.values()]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            self._trouble.cancel()

    @property
    def starts(self) -> Sequence[Start]:
        """Every start so far, as last observed."""
        return self._starts

    async def end_all(self) -> None:
        """End every replica; `run` must have ended."""
        self._starts = await self._cluster.end_all()
        self._monitors.clear()

    def reports(self) -> list[ledger.Replica]:
        """Return the ledger's report of every start so far."""
        states = {state.name: state for state in self._fleet.states}
        return replica_reports(self._starts, states, self._models, self._errors)

    async def _look_and_act(self) -> None:
        view = await self._cluster.observe()
        self._starts = view.starts
        rollout, limits, now = self._options.rollout, self._options.limits, self._now()
        living = [start for start in view.starts if start.living]
        seen = [self._observe_replica(start) for start in living if start.suffix not in self._ending]
        remaining = self._remaining()
        self._history = self._history.apply_look(lacking=bool(remaining) and not living, now=now)
        if remaining and not any(each.admitted and not each.trouble for each in seen):
            reason = policy.give_up_reason(rollout, view.rooms, self._history, limits, now)
            if reason is not None:
                raise GenerationStoppedError(reason)
        actions = policy.decide(
            rollout,
            seen,
            taken=frozenset(start.slot for start in living if start.suffix in self._ending),
            free_places=policy.places(rollout, view.rooms, view.starts),
            remaining=remaining,
            history=self._history,
            limits=limits,
            now=now,
        )
        by_suffix = {start.suffix: start for start in living}
        for action in actions:
            await self._do(action, by_suffix)

    def _observe_replica(self, start: Start) -> ObservedReplica:
        monitor = self._monitors.get(start.suffix)
        state = next((state for state in self._fleet.states if state.name == start.name), None)
        now = self._now()
        if state is None or state.in_flight:
            self._busy_at[start.suffix] = now
        idle = now - self._busy_at.setdefault(start.suffix, now)
        return ObservedReplica(
            start, admitted=monitor is not None, trouble=monitor.trouble if monitor else "", idle_seconds=idle
        )

    async def _do(self, action: Action, starts: dict[str, Start]) -> None:
        if action.what is ActionKind.START:
            logger.info("starting replica-%d", action.slot)
            await self._cluster.start(action.slot)
        elif action.what is ActionKind.ADMIT:
            self._admit(starts[action.suffix])
        else:
            self._end(starts[action.suffix], action.why, failed=action.failed)

    def _admit(self, start: Start) -> None:
        monitor = ReplicaMonitor(
            start,
            self._connect(start.address),
            self._options.plan,
            self._options.patience,
            tick_seconds=self._options.tick_seconds,
            wake=self._wake.set,
        )
        self._monitors[start.suffix] = monitor
        self._tasks[start.suffix] = task = asyncio.create_task(self._run_monitor(monitor))
        task.add_done_callback(self._on_watch_end)

    async def _run_monitor(self, monitor: ReplicaMonitor) -> None:
        try:
            await monitor.admit()
        except UnfitReplicaError as error:
            monitor.trouble = str(error)
            self._wake.set()
            return
        self._models[monitor.start.suffix] = monitor.models
        took = self._now() - monitor.start.started_at
        logger.info("%s serves %s, %.0f s after its start", monitor.start.name, ", ".join(monitor.models), took)
        self._history = self._history.apply_success()
        self._errors.pop(monitor.start.slot, None)
        self._fleet.join(monitor.endpoint, self._options.slots)
        self._notify_change()
        await monitor.run()

    def _on_watch_end(self, task: "asyncio.Task[None]") -> None:
        error = None if task.cancelled() else task.exception()
        if error is not None and not self._trouble.done():
            self._trouble.set_exception(error)
            self._wake.set()

    def _end(self, start: Start, why: str, *, failed: bool) -> None:
        """Remove a replica at once; its GPUs are released in the background."""
        monitor = self._monitors.pop(start.suffix, None)
        never_served = failed or (monitor is not None and not self._has_joined(monitor))
        if monitor is not None:
            self._fleet.leave(monitor.endpoint.name)
            monitor.endpoint.cut(why)
            self._tasks.pop(start.suffix).cancel()
        logger.warning("ending %s: %s", start.name, why)
        self._errors[start.slot] = why
        if never_served:
            self._history = self._history.apply_failed_start(why, self._now())
        self._busy_at.pop(start.suffix, None)
        task = asyncio.create_task(self._cluster.end(start.suffix))
        self._ending[start.suffix] = task
        task.add_done_callback(self._on_watch_end)
        task.add_done_callback(lambda _: self._forget_ending(start.suffix))
        self._notify_change()

    def _has_joined(self, monitor: ReplicaMonitor) -> bool:
        return any(state.name == monitor.endpoint.name for state in self._fleet.states)

    def _forget_ending(self, suffix: str) -> None:
        self._ending.pop(suffix, None)
        self._wake.set()

    def _notify_change(self) -> None:
        for notify in self.on_change:
            notify()

    async def _wait_until_woken(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._wake.wait()
        except TimeoutError:
            # It is time to observe again.
            return
