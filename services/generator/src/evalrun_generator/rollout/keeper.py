"""Keeps the run's replicas: looks, has the policy decide, acts; over and over, beside the work loop."""

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from evalrun.ledger.v1 import ledger_pb2 as ledger
from evalrun_generator.fleet import Fleet
from evalrun_generator.outcomes import GenerationStoppedError
from evalrun_generator.rollout import policy
from evalrun_generator.rollout.cluster import Cluster
from evalrun_generator.rollout.engine import EnginePlan
from evalrun_generator.rollout.order import RolloutOrder
from evalrun_generator.rollout.policy import Action, History, Limits, Seen, What
from evalrun_generator.rollout.replica_api import ReplicaApi
from evalrun_generator.rollout.reports import replica_reports
from evalrun_generator.rollout.starts import Start
from evalrun_generator.rollout.vital_signs import Patience
from evalrun_generator.rollout.watch import UnfitReplicaError, Watch

logger = logging.getLogger(__name__)

TICK_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class Keeping:
    """What the replicas are and how they are treated."""

    rollout: RolloutOrder
    plan: EnginePlan
    limits: Limits
    patience: Patience
    slots: int
    """Requests in flight a replica."""
    tick_seconds: float = TICK_SECONDS


class Keeper:
    """Starts, lets in, watches, replaces and ends replicas, and tells the fleet."""

    def __init__(
        self,
        cluster: Cluster,
        fleet: Fleet,
        keeping: Keeping,
        *,
        connect: Callable[[str], ReplicaApi],
        remaining: Callable[[], int | None],
        now: Callable[[], float] = time.time,
    ) -> None:
        """`connect` makes the way to the server at an address, `remaining` says how many completions are missing."""
        self._cluster = cluster
        self._fleet = fleet
        self._keeping = keeping
        self._connect = connect
        self._remaining = remaining
        self._now = now
        self._wake = asyncio.Event()
        self._watches: dict[str, Watch] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._ending: dict[str, asyncio.Task[None]] = {}
        self._busy_at: dict[str, float] = {}
        self._errors: dict[int, str] = {}
        self._models: dict[str, list[str]] = {}
        """By suffix, also of those that have ended: the last report is what the run's record keeps."""
        self._starts: Sequence[Start] = ()
        self._history = History()
        self._trouble: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.on_change: list[Callable[[], None]] = []
        """Called when a replica has joined or left."""

    async def run(self) -> None:
        """Keep replicas until cancelled.

        Raises:
            BadInputError: they serve something else than what was asked for.
            GenerationStoppedError: there are none to be had, or the cluster is lost.
        """
        try:
            while True:
                self._wake.clear()
                if self._trouble.done():
                    self._trouble.result()
                await self._look_and_act()
                await self._until_woken(self._keeping.tick_seconds)
        finally:
            for watch in self._watches.values():
                self._fleet.leave(watch.endpoint.name)
            tasks = [*self._tasks.values(), *self._ending.values()]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            self._trouble.cancel()

    @property
    def starts(self) -> Sequence[Start]:
        """Every start so far, as last seen."""
        return self._starts

    async def end_all(self) -> None:
        """End every replica; `run` must have ended."""
        self._starts = await self._cluster.end_all()
        self._watches.clear()

    def reports(self) -> list[ledger.Replica]:
        """Give what the ledger is told of every start so far."""
        states = {state.name: state for state in self._fleet.states}
        return replica_reports(self._starts, states, self._models, self._errors)

    async def _look_and_act(self) -> None:
        view = await self._cluster.observe()
        self._starts = view.starts
        rollout, limits, now = self._keeping.rollout, self._keeping.limits, self._now()
        living = [start for start in view.starts if start.living]
        seen = [self._seen(start) for start in living if start.suffix not in self._ending]
        remaining = self._remaining()
        self._history = self._history.after_look(lacking=bool(remaining) and not living, now=now)
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

    def _seen(self, start: Start) -> Seen:
        watch = self._watches.get(start.suffix)
        state = next((state for state in self._fleet.states if state.name == start.name), None)
        now = self._now()
        if state is None or state.in_flight:
            self._busy_at[start.suffix] = now
        idle = now - self._busy_at.setdefault(start.suffix, now)
        return Seen(start, admitted=watch is not None, trouble=watch.trouble if watch else "", idle_seconds=idle)

    async def _do(self, action: Action, starts: dict[str, Start]) -> None:
        if action.what is What.START:
            logger.info("replica-%d is started", action.slot)
            await self._cluster.start(action.slot)
        elif action.what is What.ADMIT:
            self._admit(starts[action.suffix])
        else:
            self._end(starts[action.suffix], action.why, failed=action.failed)

    def _admit(self, start: Start) -> None:
        watch = Watch(
            start,
            self._connect(start.address),
            self._keeping.plan,
            self._keeping.patience,
            tick_seconds=self._keeping.tick_seconds,
            wake=self._wake.set,
        )
        self._watches[start.suffix] = watch
        self._tasks[start.suffix] = task = asyncio.create_task(self._watch(watch))
        task.add_done_callback(self._watched)

    async def _watch(self, watch: Watch) -> None:
        try:
            await watch.admit()
        except UnfitReplicaError as error:
            watch.trouble = str(error)
            self._wake.set()
            return
        self._models[watch.start.suffix] = watch.models
        took = self._now() - watch.start.started_at
        logger.info("%s serves %s, %.0f s after its start", watch.start.name, ", ".join(watch.models), took)
        self._history = self._history.after_success()
        self._errors.pop(watch.start.slot, None)
        self._fleet.join(watch.endpoint, self._keeping.slots)
        self._changed()
        await watch.run()

    def _watched(self, task: "asyncio.Task[None]") -> None:
        error = None if task.cancelled() else task.exception()
        if error is not None and not self._trouble.done():
            self._trouble.set_exception(error)
            self._wake.set()

    def _end(self, start: Start, why: str, *, failed: bool) -> None:
        """Take a replica out at once; its GPUs come back in the background."""
        watch = self._watches.pop(start.suffix, None)
        never_served = failed or (watch is not None and not self._joined(watch))
        if watch is not None:
            self._fleet.leave(watch.endpoint.name)
            watch.endpoint.cut(why)
            self._tasks.pop(start.suffix).cancel()
        logger.warning("%s is ended: %s", start.name, why)
        self._errors[start.slot] = why
        if never_served:
            self._history = self._history.after_failed_start(why, self._now())
        self._busy_at.pop(start.suffix, None)
        task = asyncio.create_task(self._cluster.end(start.suffix))
        self._ending[start.suffix] = task
        task.add_done_callback(self._watched)
        task.add_done_callback(lambda _: self._ended(start.suffix))
        self._changed()

    def _joined(self, watch: Watch) -> bool:
        return any(state.name == watch.endpoint.name for state in self._fleet.states)

    def _ended(self, suffix: str) -> None:
        self._ending.pop(suffix, None)
        self._wake.set()

    def _changed(self) -> None:
        for notify in self.on_change:
            notify()

    async def _until_woken(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._wake.wait()
        except TimeoutError:
            return  # time to look again
