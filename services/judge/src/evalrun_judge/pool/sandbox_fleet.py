"""The sandboxes and their state: discovers them, probes them, ejects and restores them.

A hung sandbox keeps its connections open. A sandbox that has work and sends no reply is therefore probed. If it does
not reply to probes either, its calls are broken off as `SandboxTimeoutError`, long before their own time is up.
"""

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from evalrun_executor.api import LEVELS
from evalrun_judge.pool.discovery import Connect, DiscoveryError, NoDnsError, SandboxDiscovery
from evalrun_judge.pool.info import PoolInfo, combine_info
from evalrun_judge.pool.policy import PoolPolicy
from evalrun_judge.pool.sandbox_endpoint import SandboxEndpoint
from evalrun_judge.pool.slot_queue import NoSandboxError, SlotQueue, UnresolvedSandboxesError
from evalrun_judge.sandboxes import (
    Backend,
    RunRefusedError,
    Sandbox,
    SandboxError,
    SandboxFailedError,
    SandboxTimeoutError,
)

logger = logging.getLogger(__name__)

DNS_SECONDS = 10.0
"""Time without DNS and without a sandbox after which requests fail with that reason. It is shorter than the budget,
because a NetworkPolicy that keeps a gateway from DNS does not go away by itself."""
MISTAKE_SECONDS = 5.0
"""Seconds before a watch or a discovery restarts after an internal error."""


def connect_nowhere(url: str, _server_name: str) -> Sandbox:
    """Raise LookupError: this pool has no discovery."""
    raise LookupError(f"{url}: nobody said how sandboxes that are found are called")


@dataclass(frozen=True, slots=True)
class SandboxSources:
    sandboxes: Sequence[Sandbox] = ()
    """Sandboxes that were configured."""
    discoveries: Sequence[SandboxDiscovery] = ()
    """Finders of further sandboxes."""
    connect: Connect = connect_nowhere
    """Makes the client of a sandbox that a discovery found."""


@dataclass(slots=True, eq=False)
class Member:
    """A sandbox of the fleet and its background tasks."""

    endpoint: SandboxEndpoint
    source: SandboxDiscovery | None = None
    """The discovery that found the sandbox; None if the sandbox was configured."""
    url: str = ""
    """The URL that the discovery found."""
    lost: asyncio.Event = field(default_factory=asyncio.Event)
    calls: set["asyncio.Task[Any]"] = field(default_factory=set)
    broken_off: dict["asyncio.Task[Any]", str] = field(default_factory=dict)
    """Calls that are being broken off, with the reason."""
    answers: int = 0
    watcher: "asyncio.Task[None] | None" = None


class SandboxFleet:
    def __init__(
        self,
        sources: SandboxSources,
        policy: PoolPolicy,
        queue: SlotQueue,
        *,
        clock: Callable[[], float],
        sleep: Callable[[float], Awaitable[None]],
        randomness: random.Random,
    ) -> None:
        """Create the fleet; `start` begins to discover and to watch sandboxes.

        Args:
            sources: where sandboxes come from.
            policy: which sandboxes are used, and how long there may be no usable one.
            queue: assigns the slots of the sandboxes; requests in it fail while the budget is spent.
            clock: seconds, monotonic.
            sleep: waits for a number of seconds.
            randomness: spreads delays.
        """
        self._members = {(endpoint := SandboxEndpoint(sandbox)): Member(endpoint) for sandbox in sources.sandboxes}
        self._queue = queue
        queue.endpoints.extend(self._members)
        self._discoveries, self._connect = sources.discoveries, sources.connect
        self._required = LEVELS.index(policy.required_level)
        self._health = policy.health
        self._budget_seconds = policy.retries.budget_seconds
        self._clock, self._sleep, self._random = clock, sleep, randomness
        self._tasks: set[asyncio.Task[None]] = set()
        self._all_lost_since: float | None = None
        self._without_dns: dict[SandboxDiscovery, NoDnsError] = {}
        self.changed = asyncio.Event()
        """Set whenever a sandbox has been taken into use."""
        self.slots = 0
        """Programs that can run at once in all sandboxes that ever replied."""
        self.described: PoolInfo | None = None
        """Capabilities of the sandboxes; None until the first has described itself."""

    @property
    def max_slots(self) -> int:
        """Slots of the largest sandbox that ever answered."""
        return max((one.backend.info.slots for one in self._members if one.backend is not None), default=0)

    def check_budget(self) -> None:
        """Raise NoSandboxError if no sandbox has been usable for longer than the budget."""
        if (refusal := self._refusal()) is not None:
            kind, message = refusal
            raise kind(message)

    def start(self) -> None:
        """Start watching and discovering."""
        self._all_lost_since = self._clock()
        for member in self._members.values():
            self._begin(member)
        for discovery in self._discoveries:
            self._spawn(self._keep_running(partial(self._follow, discovery)))

    async def close(self) -> None:
        """Stop, and close the connections."""
        tasks = [*self._tasks]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for endpoint in self._members:
            await endpoint.sandbox.close()
        for discovery in self._discoveries:
            await discovery.close()

    @contextmanager
    def watch_call(self, endpoint: SandboxEndpoint) -> Iterator[None]:
        """Watch a call that the current task makes inside the block. Raises SandboxTimeoutError where the sandbox is
        hung."""
        task = asyncio.current_task()
        member = self._members.get(endpoint)
        # The sandbox left between the grant of its slot and the call. Nobody watches it any more.
        if member is None or task is None:
            yield
            return
        member.calls.add(task)
        try:
            yield
            member.answers += 1
        # A cancellation that `_break_off` did not cause comes from the caller and must go on. `uncancel` tells the two
        # apart where both arrive.
        except asyncio.CancelledError:
            why = member.broken_off.get(task)
            if why is not None and task.uncancel() == 0:
                raise SandboxTimeoutError(why) from None
            raise
        # A failure is a sign of life too: the sandbox is not hung.
        except SandboxError:
            member.answers += 1
            raise
        finally:
            member.calls.discard(task)
            member.broken_off.pop(task, None)

    def record_failure(self, endpoint: SandboxEndpoint, error: SandboxError) -> None:
        """Count a failed call. The sandbox may be left out afterwards until it describes itself again."""
        was_usable = endpoint.usable
        endpoint.record_failure(error)
        if was_usable and not endpoint.usable:
            logger.warning("sandbox left out: %s", error)
            member = self._members.get(endpoint)
            if member is not None:
                member.lost.set()
            self._note_if_all_lost()

    def apply(self, source: SandboxDiscovery, urls: frozenset[str]) -> None:
        """Add the sandboxes that a discovery found, and remove those that it no longer names."""
        known = [member for member in self._members.values() if member.source is source]
        for url in sorted(urls - {member.url for member in known}):
            endpoint = SandboxEndpoint(self._connect(url, source.server_name))
            self._members[endpoint] = Member(endpoint, source, url)
            self._queue.endpoints.append(endpoint)
            self._begin(self._members[endpoint])
        gone = [member for member in known if member.url not in urls]
        for member in gone:
            logger.info("sandbox gone from its Service: %s", member.url)
            del self._members[member.endpoint]
            self._queue.endpoints.remove(member.endpoint)
            self._spawn(self._let_go(member))
        if gone:
            self._note_if_all_lost()
            self._take_stock()

    def _begin(self, member: Member) -> None:
        member.lost.set()
        member.watcher = self._spawn(self._keep_running(partial(self._watch, member)))

    def _spawn(self, work: Coroutine[Any, Any, None]) -> "asyncio.Task[None]":
        # Tasks are held here, because the event loop itself keeps weak references only.
        task: asyncio.Task[None] = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._on_task_end)
        return task

    def _on_task_end(self, task: "asyncio.Task[None]") -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            logger.error("sandboxes are no longer watched as they should be: a fault of the gateway", exc_info=error)

    async def _keep_running(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Run an endless task, and restart it after an internal error, so that no sandbox is forgotten."""
        while True:
            task = asyncio.create_task(work())
            try:
                await asyncio.wait({task})
            finally:
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
            error = None if task.cancelled() else task.exception()
            logger.error("watching the sandboxes failed unexpectedly, and begins again", exc_info=error)
            self._give_up_where_lost(f"watching the sandboxes failed unexpectedly: {error!r}")
            await self._sleep(MISTAKE_SECONDS)

    def _note_if_all_lost(self) -> None:
        if self._all_lost_since is None and not any(endpoint.usable for endpoint in self._members):
            self._all_lost_since = self._clock()

    def _refusal(self) -> tuple[type[NoSandboxError], str] | None:
        """Return the error that requests get, and its message; None while a sandbox may still come."""
        if self._all_lost_since is None:
            return None
        seconds = self._clock() - self._all_lost_since
        if self._without_dns and seconds >= DNS_SECONDS:
            failures = "; ".join(str(error) for error in self._without_dns.values())
            return UnresolvedSandboxesError, (
                f"DNS does not answer the gateway, so that it finds no sandbox ({failures}). In a cluster, let its "
                "NetworkPolicy reach the DNS pods (the chart's networkPolicy.dns)"
            )
        if seconds >= self._budget_seconds:
            return NoSandboxError, f"no sandbox has answered for {self._budget_seconds:g} s"
        return None

    def _give_up_where_lost(self, why: str) -> None:
        if (refusal := self._refusal()) is not None:
            kind, message = refusal
            self._queue.refuse_all(kind, message if kind is UnresolvedSandboxesError else f"{message}: {why}")

    def _take_stock(self) -> None:
        """Combine the descriptions of all sandboxes, and use their slots."""
        backends = [endpoint.backend for endpoint in self._members if endpoint.backend is not None]
        self.slots = sum(backend.info.slots for backend in backends)
        if not backends:
            # All sandboxes are gone. Their last description still holds for this gateway.
            return
        self.described = combine_info(backends)
        self.changed.set()
        self._queue.dispatch()

    async def _follow(self, discovery: SandboxDiscovery) -> None:
        failing = False
        while True:
            try:
                urls = await discovery.find()
            except DiscoveryError as error:
                if isinstance(error, NoDnsError):
                    self._without_dns[discovery] = error
                else:
                    self._without_dns.pop(discovery, None)
                (logger.debug if failing else logger.warning)("sandboxes cannot be looked up: %s", error)
                failing = True
                self._give_up_where_lost(str(error))
            else:
                failing = False
                self._without_dns.pop(discovery, None)
                self.apply(discovery, urls)
                self._give_up_where_lost("no sandbox is known")
            await discovery.wait()

    async def _let_go(self, member: Member) -> None:
        """Wait until a sandbox has finished its work, then close its connections."""
        member.endpoint.leaving = True
        if member.watcher is not None:
            member.watcher.cancel()
        try:
            while member.calls:
                await asyncio.wait(member.calls)
        finally:
            await member.endpoint.sandbox.close()

    async def _watch(self, member: Member) -> None:
        """Take the sandbox into use whenever it describes itself after a loss, and notice when it hangs."""
        while True:
            if not member.lost.is_set():
                await self._wait_until_lost(member)
            endpoint = member.endpoint
            # A sandbox that replies to probes and fails every call would otherwise be taken into use again at once,
            # every time.
            if endpoint.rest_seconds and endpoint.failed_probes == 0:
                await self._sleep(endpoint.rest_seconds)
            try:
                backend = await self._describe(endpoint)
            except SandboxError as error:
                delay = endpoint.probe_failed()
                if endpoint.failed_probes == 1:
                    logger.warning("sandbox not usable yet: %s", error)
                self._give_up_where_lost(str(error))
                await self._sleep(delay * (1 + self._random.random() / 2))
                continue
            logger.info("sandbox in use: %s, %d slots", endpoint.sandbox.address, backend.info.slots)
            member.lost.clear()
            endpoint.admit(backend)
            self._all_lost_since = None
            self._take_stock()

    async def _describe(self, endpoint: SandboxEndpoint) -> Backend:
        try:
            async with asyncio.timeout(self._health.seconds):
                backend = await endpoint.sandbox.describe()
        except TimeoutError as error:
            raise SandboxTimeoutError(f"{endpoint.sandbox.address}: it does not say what it is") from error
        # The sandbox refused the programs by which a stock server is recognised.
        except RunRefusedError as error:
            raise SandboxFailedError(f"{endpoint.sandbox.address}: it refuses to say what it is: {error}") from error
        if LEVELS.index(backend.info.level) < self._required:
            raise SandboxFailedError(
                f"{endpoint.sandbox.address}: its containment level is {backend.info.level!r}, "
                f"{LEVELS[self._required]!r} is required; {', '.join(backend.info.missing)}"
            )
        return backend

    async def _wait_until_lost(self, member: Member) -> None:
        """Wait until the sandbox has failed or has stopped replying."""
        silent = 0
        while not member.lost.is_set():
            answers = member.answers
            try:
                async with asyncio.timeout(self._health.seconds):
                    await member.lost.wait()
                    return
            except TimeoutError:
                pass
            # Only a sandbox that has work, sent no reply to it, and does not describe itself either counts as silent. A
            # busy sandbox may take minutes for a program.
            if not member.calls or member.answers > answers or await self._is_there(member.endpoint):
                silent = 0
                continue
            silent += 1
            if silent >= self._health.failures:
                self._break_off(member)

    async def _is_there(self, endpoint: SandboxEndpoint) -> bool:
        try:
            await self._describe(endpoint)
        except SandboxError:
            return False
        return True

    def _break_off(self, member: Member) -> None:
        endpoint = member.endpoint
        why = f"{endpoint.sandbox.address}: it has work and answers nothing, not even what it is"
        self.record_failure(endpoint, SandboxTimeoutError(why))
        for task in [*member.calls]:
            member.broken_off[task] = why
            task.cancel()
