"""Owns a run's replicas inside the Ray cluster: a named, detached actor that outlives every generator.

The actor decides nothing. It remembers the starts, so that the next generator reuses living replicas instead of loading
the weights again, and owns the replicas, so that they end with it. It obeys a single driver: the last to attach.
"""

import asyncio
import logging
import secrets
import time
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, replace
from typing import Any

from evalrun_generator.rollout.engine import EnginePlan, add_key
from evalrun_generator.rollout.launcher import Handle, Launched, Process, ReplicaLauncher, reap
from evalrun_generator.rollout.starts import Start, StartPhase

logger = logging.getLogger(__name__)

POLL_SECONDS = 0.1
RELEASE_SECONDS = 30.0
"""Seconds to wait for the release of a replica's placement group before it counts as released anyway."""
REAP_SECONDS = 10.0
TURN_SECONDS = 60.0
"""Seconds of silence after which a driver of kept replicas has lost its turn: a living driver calls every second."""
WAITING_SECONDS = 2.0
"""Seconds of silence after which a waiting driver is gone: a living driver calls ten times a second."""
REPLACE_SECONDS = 300.0
"""Timeout of a replacement. Reading 15 GB takes a second from the page cache and ten from a disk."""
MAX_ERROR_CHARACTERS = 2000


class SupersededError(Exception):
    """Another driver has attached, so this driver must stop."""


@dataclass(slots=True)
class _Owned:
    start: Start
    actor: Handle
    launching: "asyncio.Task[None] | None" = None
    processes: tuple[tuple[str, tuple[Process, ...]], ...] = ()


class Supervisor:
    """Starts, ends and lists replicas on request."""

    def __init__(
        self,
        plan: EnginePlan,
        abandon_seconds: float | None = None,
        now: Callable[[], float] = time.monotonic,
        leave: Callable[[], None] | None = None,
    ) -> None:
        """Create the supervisor.

        Args:
            plan: plan of the replicas.
            abandon_seconds: seconds without a call of a driver after which the replicas and this actor end by
                themselves; None: they wait for the next driver.
            now: returns the seconds of a clock.
            leave: ends this actor; None: Ray kills it.
        """
        self._abandon_seconds = abandon_seconds
        self._now = now
        self._leave = leave or _end_this_actor
        self._key = secrets.token_urlsafe(24)
        self._plan = add_key(plan, self._key)
        self._owned: dict[str, _Owned] = {}
        self._ended: list[Start] = []
        self._driver = ""
        self._heard_at = 0.0
        self._waiting: dict[str, tuple[tuple[int, str], float]] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    async def attach(self, driver: str) -> tuple[str, str]:
        """Obey `driver` from now on; return the plan's digest and the servers' API key."""
        if self._abandon_seconds is not None and not self._driver:
            self._start_task(self._end_when_abandoned(self._abandon_seconds))
        self._driver = driver
        self._heard_at = self._now()
        return self._plan.digest, self._key

    async def take_turn(self, driver: str, place: tuple[int, str]) -> bool:
        """Obey `driver` from now on, unless another driver has its turn, or a waiting driver has a lower position.

        A driver that has been silent for long has lost its turn, or its position.
        """
        now = self._now()
        self._waiting[driver] = place, now
        self._waiting = {name: each for name, each in self._waiting.items() if now - each[1] < WAITING_SECONDS}
        is_taken = self._driver not in ("", driver) and now - self._heard_at < TURN_SECONDS
        if is_taken or min(self._waiting.items(), key=lambda item: item[1])[0] != driver:
            return False
        del self._waiting[driver]
        self._driver = driver
        self._heard_at = now
        return True

    async def end_turn(self, driver: str) -> tuple[Start, ...]:
        """Leave the replicas to the next driver; return every start of this turn, ended now. Raises SupersededError."""
        self._check(driver)
        now = time.time()
        living = (replace(owned.start, phase=StartPhase.ENDED, released_at=now) for owned in self._owned.values())
        told = (*self._ended, *living)
        self._driver = ""
        self._ended.clear()
        return told

    async def weights(self, driver: str) -> tuple[str, str, str]:
        """Return the plan's shape, which weights are served, and the servers' API key. Raises SupersededError."""
        self._check(driver)
        return self._plan.shape, "" if self._plan.kept is None else self._plan.kept.weights, self._key

    async def replace_weights(self, driver: str, plan: EnginePlan, facts: Mapping[str, str]) -> str:
        """Put a plan's checkpoint into every replica. Return why that failed, or an empty text.

        After a failure the replicas serve nothing, or the old weights under the old name: `renew` ends them.

        Args:
            driver: the driver that has its turn.
            plan: a plan of the same shape.
            facts: facts of the checkpoint, for run_info.json.

        Raises:
            SupersededError: another driver has its turn.
        """
        self._check(driver)
        unfit = [owned for owned in self._owned.values() if owned.start.phase is not StartPhase.SERVING]
        await asyncio.gather(*(self._release(owned) for owned in unfit))
        if plan.kept is None or not self._owned:
            return "no replica serves"
        import ray

        began = time.time()
        given = str(plan.directory), plan.kept.weights
        try:
            calls = [owned.actor.replace_weights.remote(*given) for owned in self._owned.values()]
            async with asyncio.timeout(REPLACE_SECONDS):
                launched: list[Launched] = await asyncio.gather(*calls)
        except ray.exceptions.RayError as error:
            return _last_lines(str(getattr(error, "cause", error)), most=1)
        except TimeoutError:
            return f"the engine gave no answer within {REPLACE_SECONDS:g} s"
        self._plan = replace(plan, environment=self._plan.environment)
        for owned, now in zip(self._owned.values(), launched, strict=True):
            owned.start = replace(owned.start, started_at=began, engine={**now.engine, **facts})
        return ""

    async def renew(self, driver: str, plan: EnginePlan) -> None:
        """End every replica; the next are started from `plan`. Raises SupersededError."""
        await self.end_all(driver)
        self._ended.clear()
        self._plan = replace(plan, environment=self._plan.environment)

    async def starts(self, driver: str) -> tuple[Start, ...]:
        """Return every start so far. Raises SupersededError."""
        self._check(driver)
        groups = await asyncio.to_thread(_groups)
        for owned in self._owned.values():
            found = [entry for entry in groups if _is_group_of_start(entry, owned.start)]
            if not owned.start.placed and found and all(entry["state"] == "CREATED" for entry in found):
                owned.start = replace(owned.start, placed=True)
        return (*self._ended, *(owned.start for owned in self._owned.values()))

    async def start(self, driver: str, slot: int, suffix: str, node: str) -> None:
        """Start a replica on a slot with its owner on `node`, without waiting for it. Raises SupersededError."""
        self._check(driver)
        import ray
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        actor = (
            ray.remote(ReplicaLauncher)
            .options(
                num_cpus=0,
                # The affinity is hard: a soft one could use the node of a generator, which ends while the replica
                # continues. If the node has just gone, the start fails.
                scheduling_strategy=NodeAffinitySchedulingStrategy(node_id=node, soft=False),
                runtime_env={"env_vars": self._plan.environment},
            )
            .remote(self._plan, slot, suffix)
        )
        owned = _Owned(Start(slot, suffix, self._plan.gpus, time.time()), actor)
        self._owned[suffix] = owned
        owned.launching = self._start_task(self._launch(owned))

    async def end(self, driver: str, suffix: str) -> None:
        """End a replica and wait until its GPUs are free. Raises SupersededError."""
        self._check(driver)
        owned = self._owned.get(suffix)
        if owned is not None:
            await self._release(owned)

    async def end_all(self, driver: str) -> tuple[Start, ...]:
        """End every replica; return every start so far. Raises SupersededError."""
        self._check(driver)
        await asyncio.gather(*(self._release(owned) for owned in list(self._owned.values())))
        return tuple(self._ended)

    def _check(self, driver: str) -> None:
        if driver != self._driver:
            raise SupersededError("another generator has taken the replicas over")
        self._heard_at = self._now()

    def _start_task(self, work: Coroutine[Any, Any, None]) -> "asyncio.Task[None]":
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _end_when_abandoned(self, seconds: float) -> None:
        """End everything after a long silence of all drivers: the process that should have done so was killed."""
        while (left := self._heard_at + seconds - self._now()) > 0:  # noqa: ASYNC110
            # A call in the meantime postpones the end.
            await asyncio.sleep(left)
        logger.warning("no generator has asked for anything for %g s: ending the replicas", seconds)
        await asyncio.gather(*(self._release(owned) for owned in list(self._owned.values())))
        self._leave()

    async def _launch(self, owned: _Owned) -> None:
        import ray

        try:
            launched: Launched = await owned.actor.launch.remote()
        # Errors of verl and the engine arrive as RayTaskError, a subclass of RayError, as does the actor's death.
        except ray.exceptions.RayError as error:
            owned.start = replace(owned.start, phase=StartPhase.FAILED, error=_last_lines(str(error)))
            return
        owned.processes = launched.processes
        owned.start = replace(
            owned.start,
            phase=StartPhase.SERVING,
            placed=True,
            address=launched.address,
            load_format=launched.load_format,
            engine=launched.engine,
        )

    async def _release(self, owned: _Owned) -> None:
        import ray

        if owned.launching is not None:
            owned.launching.cancel()
        ray.kill(owned.actor)
        await asyncio.gather(*(_reap_on(node, processes) for node, processes in owned.processes))
        deadline = time.monotonic() + RELEASE_SECONDS
        while (left := await asyncio.to_thread(_remove_groups, owned.start)) and time.monotonic() < deadline:  # noqa: ASYNC110
            # Ray has no notification for the end of a placement group.
            await asyncio.sleep(POLL_SECONDS)
        if left:
            logger.warning("the placement groups of %s were not released: %s", owned.start.name, left)
        if self._owned.pop(owned.start.suffix, None) is not None:
            self._ended.append(replace(owned.start, phase=StartPhase.ENDED, released_at=time.time()))


def _end_this_actor() -> None:
    import ray

    ray.kill(ray.get_runtime_context().current_actor)


async def _reap_on(node: str, processes: tuple[Process, ...]) -> None:
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    strategy = NodeAffinitySchedulingStrategy(node_id=node, soft=False)
    task = ray.remote(reap).options(num_cpus=0, scheduling_strategy=strategy, max_retries=0)
    try:
        async with asyncio.timeout(REAP_SECONDS):
            await task.remote(processes)
    except (ray.exceptions.RayError, TimeoutError) as error:
        # The node is gone, or does not reply.
        logger.warning("could not kill a replica's processes on node %s: %s", node, error)


def _groups() -> list[dict[str, Any]]:
    """Return the placement groups that hold or wait for resources."""
    import ray

    return [entry for entry in ray.util.placement_group_table().values() if entry["state"] != "REMOVED"]


def _is_group_of_start(group: dict[str, Any], start: Start) -> bool:
    return f"_{start.suffix}" in str(group["name"])


def _remove_groups(start: Start) -> list[str]:
    """Remove the placement groups of a start; return the names of those that still exist.

    Ray removes a group created by an actor only after both the actor and its job have ended, and the job is the
    generator's, which continues.
    """
    from ray._raylet import PlacementGroupID
    from ray.util.placement_group import PlacementGroup, remove_placement_group

    found = [group for group in _groups() if _is_group_of_start(group, start)]
    for group in found:
        remove_placement_group(PlacementGroup(PlacementGroupID(bytes.fromhex(group["placement_group_id"]))))
    return [str(group["name"]) for group in _groups() if _is_group_of_start(group, start)]


def _last_lines(text: str, most: int = 3) -> str:
    """Return the last lines of an error, which contain its cause, joined to one line."""
    lines = [line.strip() for line in text.strip().splitlines() if line.strip()]
    return " | ".join(lines[-most:])[-MAX_ERROR_CHARACTERS:]
