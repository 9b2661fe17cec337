"""Which sandbox runs a program: the least loaded one, as many at once as the sandboxes have slots, infra errors again.

What waits for a slot waits here, in order: requests that have begun before those that have not.
"""

import asyncio
import logging
import random
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from evalrun_judge.endpoint import Endpoint, least_loaded
from evalrun_judge.sandboxes import Sandbox, SandboxBusyError, SandboxError, SandboxFailedError
from evalrun_sandbox.api import LEVELS, Level, RunReply, RunRequest

logger = logging.getLogger(__name__)


class NoSandboxError(Exception):
    """No sandbox could say what the program does within the retry budget."""


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How long infra errors are tried again."""

    attempts: int = 5
    """Calls of a sandbox that may fail for one program, full sandboxes not counted."""
    budget_seconds: float = 30.0
    """How long requests wait while no sandbox at all is usable."""
    first_delay: float = 0.05
    """Seconds before the first call again; doubled each time, and spread by up to half."""


@dataclass(frozen=True, slots=True)
class PoolInfo:
    """What the pool judges with."""

    backend: str
    level: Level
    """The least of the sandboxes' levels."""
    slots: int
    languages: tuple[str, ...]
    """Spoken by every sandbox."""
    python_version: str
    """Several, separated by commas, where the sandboxes differ."""


@dataclass(slots=True, eq=False)
class _Waiter:
    granted: asyncio.Future[Endpoint]
    avoid: Endpoint | None


class SandboxPool:
    """Several sandboxes as one."""

    def __init__(
        self,
        sandboxes: Sequence[Sandbox],
        *,
        required_level: Level,
        retries: RetryPolicy,
        clock: Callable[[], float],
        sleep: Callable[[float], Awaitable[None]],
        randomness: random.Random,
        on_retry: Callable[[str], None] = lambda reason: None,
        on_call: Callable[[float], None] = lambda seconds: None,
    ) -> None:
        """Make the pool; `start` takes the sandboxes into use.

        Args:
            sandboxes: at least one.
            required_level: sandboxes and answers below it are not used.
            retries: how long infra errors are tried again.
            clock: seconds, monotonic.
            sleep: waits that many seconds.
            randomness: for ties and for spreading delays.
            on_retry: told the reason (`sandboxes.REASONS`) of each call that is made again.
            on_call: told the seconds of each call that ended, well or not.
        """
        self._endpoints = [Endpoint(sandbox) for sandbox in sandboxes]
        self._required = LEVELS.index(required_level)
        self._retries = retries
        self._clock, self._sleep, self._random = clock, sleep, randomness
        self._on_retry, self._on_call = on_retry, on_call
        self._waiting: deque[_Waiter] = deque()
        self._lost = {id(endpoint): asyncio.Event() for endpoint in self._endpoints}
        self._watchers: list[asyncio.Task[None]] = []
        self._all_lost_since: float | None = None
        self.changed = asyncio.Event()
        """Set whenever a sandbox has been taken into use."""

    @property
    def slots(self) -> int:
        """Programs that the sandboxes that ever answered can hold at once."""
        return sum(endpoint.backend.info.slots for endpoint in self._endpoints if endpoint.backend is not None)

    @property
    def in_flight(self) -> int:
        """Programs that are running now."""
        return sum(endpoint.in_flight for endpoint in self._endpoints)

    def describe(self) -> PoolInfo | None:
        """Say what the pool judges with; None until the first sandbox has answered."""
        backends = [endpoint.backend for endpoint in self._endpoints if endpoint.backend is not None]
        if not backends:
            return None
        infos = [backend.info for backend in backends]
        spoken = set(infos[0].languages).intersection(*(info.languages for info in infos))
        return PoolInfo(
            backend=backends[0].name,
            level=min((info.level for info in infos), key=LEVELS.index),
            slots=self.slots,
            languages=tuple(language for language in infos[0].languages if language in spoken),
            python_version=", ".join(dict.fromkeys(info.python_version for info in infos)),
        )

    def start(self) -> None:
        """Begin to watch the sandboxes; each is used once it has described itself."""
        self._all_lost_since = self._clock()
        for endpoint in self._endpoints:
            self._lost[id(endpoint)].set()
            self._watchers.append(asyncio.create_task(self._watch(endpoint)))

    async def close(self) -> None:
        """Stop watching and free the connections."""
        for watcher in self._watchers:
            watcher.cancel()
        await asyncio.gather(*self._watchers, return_exceptions=True)
        for endpoint in self._endpoints:
            await endpoint.sandbox.close()

    async def run(
        self, request: RunRequest, *, begun: bool = False, on_slot: Callable[[], None] = lambda: None
    ) -> RunReply:
        """Run a program where there is room; infra errors are tried again, elsewhere first.

        Args:
            request: the program and its inputs.
            begun: it belongs to a request that has been given a slot before: it goes to the front.
            on_slot: called when a sandbox has room, before each call.

        Raises:
            NoSandboxError: the retry budget is spent.
            RunRefusedError: no sandbox will ever serve this request.
        """
        failed: Endpoint | None = None
        failures = 0
        while True:
            endpoint = await self._slot(urgent=begun or failures > 0, avoid=failed)
            called = self._clock()
            try:
                on_slot()
                reply = self._contained(endpoint, await endpoint.sandbox.run(request))
                endpoint.succeeded()
                return reply
            except SandboxBusyError as error:
                self._on_retry(error.reason)
                self._pause(endpoint, error.retry_after_seconds)
                begun = True
                continue
            except SandboxError as error:
                failures += 1
                failed = endpoint
                self._note_failure(endpoint, error)
                if failures >= self._retries.attempts:
                    raise NoSandboxError(f"{failures} calls failed, the last with: {error}") from error
                self._on_retry(error.reason)
            finally:
                endpoint.in_flight -= 1
                self._on_call(self._clock() - called)
                self._dispatch()
            await self._sleep(self._retries.first_delay * 2 ** (failures - 1) * (1 + self._random.random() / 2))

    async def _slot(self, *, urgent: bool, avoid: Endpoint | None) -> Endpoint:
        self._refuse_where_lost()
        waiter = _Waiter(asyncio.get_running_loop().create_future(), avoid)
        if urgent:
            self._waiting.appendleft(waiter)
        else:
            self._waiting.append(waiter)
        self._dispatch()
        try:
            return await waiter.granted
        except asyncio.CancelledError:
            if waiter.granted.done() and not waiter.granted.cancelled() and waiter.granted.exception() is None:
                waiter.granted.result().in_flight -= 1  # granted and cancelled in the same turn of the loop
                self._dispatch()
            raise

    def _dispatch(self) -> None:
        """Give what is free to those who wait, in order."""
        while self._waiting:
            if self._waiting[0].granted.done():  # its caller is gone
                self._waiting.popleft()
                continue
            endpoint = least_loaded(self._endpoints, self._waiting[0].avoid, self._random.random())
            if endpoint is None:
                return
            endpoint.in_flight += 1
            self._waiting.popleft().granted.set_result(endpoint)

    def _contained(self, endpoint: Endpoint, reply: RunReply) -> RunReply:
        if LEVELS.index(reply.level) < self._required:
            raise SandboxFailedError(
                f"{endpoint.sandbox.address}: ran at level {reply.level!r}, below {LEVELS[self._required]!r}"
            )
        return reply

    def _pause(self, endpoint: Endpoint, seconds: float) -> None:
        """Leave a full sandbox alone for a while."""

        def resume() -> None:
            endpoint.full = False
            self._dispatch()

        endpoint.full = True
        asyncio.get_running_loop().call_later(seconds, resume)

    def _note_failure(self, endpoint: Endpoint, error: SandboxError) -> None:
        was_usable = endpoint.usable
        endpoint.failed(error)
        if was_usable and not endpoint.usable:
            logger.warning("sandbox left out: %s", error)
            self._lost[id(endpoint)].set()
            if not any(other.usable for other in self._endpoints):
                self._all_lost_since = self._clock()

    async def _watch(self, endpoint: Endpoint) -> None:
        """Take the sandbox into use whenever it is lost and describes itself."""
        lost = self._lost[id(endpoint)]
        while True:
            await lost.wait()
            if endpoint.rest_seconds and endpoint.failed_probes == 0:
                await self._sleep(endpoint.rest_seconds)
            try:
                backend = await endpoint.sandbox.describe()
                if LEVELS.index(backend.info.level) < self._required:
                    raise SandboxFailedError(
                        f"{endpoint.sandbox.address}: its containment level is {backend.info.level!r}, "
                        f"{LEVELS[self._required]!r} is required; {', '.join(backend.info.missing)}"
                    )
            except SandboxError as error:
                delay = endpoint.probe_failed()
                if endpoint.failed_probes == 1:
                    logger.warning("sandbox not usable yet: %s", error)
                self._give_up_where_lost(error)
                await self._sleep(delay * (1 + self._random.random() / 2))
                continue
            logger.info("sandbox in use: %s, %d slots", endpoint.sandbox.address, backend.info.slots)
            lost.clear()
            endpoint.admit(backend)
            self._all_lost_since = None
            self.changed.set()
            self._dispatch()

    def _out_of_budget(self) -> bool:
        since = self._all_lost_since
        return since is not None and self._clock() - since >= self._retries.budget_seconds

    def _refuse_where_lost(self) -> None:
        if self._out_of_budget():
            raise NoSandboxError(f"no sandbox has answered for {self._retries.budget_seconds:g} s")

    def _give_up_where_lost(self, error: SandboxError) -> None:
        if not self._out_of_budget():
            return
        while self._waiting:
            granted = self._waiting.popleft().granted
            if not granted.done():
                granted.set_exception(
                    NoSandboxError(f"no sandbox has answered for {self._retries.budget_seconds:g} s: {error}")
                )
