"""A queue of keys to work on. No key is worked on twice at once, or queued twice; a key may come again after a delay.

Due keys take turns by group, so that a group with hundreds of keys delays no other group.
"""

import asyncio
import heapq
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Hashable
from typing import Generic, TypeVar

logger = logging.getLogger(__name__)

KeyT = TypeVar("KeyT")

FIRST = float("-inf")
"""A delay that puts a key before all other waiting keys."""


class Turns(Generic[KeyT]):
    """Due keys with their times. The groups take turns."""

    def __init__(self) -> None:
        self._groups: dict[Hashable, deque[tuple[float, KeyT]]] = {}

    def __bool__(self) -> bool:
        return bool(self._groups)

    def push(self, group: Hashable, due: float, key: KeyT) -> None:
        """Add a key at the end of its group."""
        self._groups.setdefault(group, deque()).append((due, key))

    def pop(self) -> tuple[float, KeyT]:
        """Remove and return the next key. Raises StopIteration if no key is due."""
        group = next(iter(self._groups))
        keys = self._groups.pop(group)
        found = keys.popleft()
        if keys:
            self._groups[group] = keys
        return found

    def clear(self) -> None:
        """Remove every key."""
        self._groups.clear()


class WorkQueue(Generic[KeyT]):
    """Works on the keys that are woken. `workers` keys are processed at the same time, and no key twice at once.

    A stopped queue holds no keys: a standby operator would otherwise hold the key of every run there ever was. The
    caller of `start` wakes every key.

    Args:
        work: handles a key and returns the seconds after which to do so again; None: only when it is woken. It must not
            raise: an exception is logged, and the key comes again after `mistake_seconds`.
        workers: number of simultaneous keys.
        clock: the loop's own monotonic seconds.
        first_workers: further simultaneous keys if they were woken with `FIRST`, so that urgent keys do not wait until
            a long piece of work ends.
        mistake_seconds: the wait after an internal error in `work`.
        group: returns the group of a key, e.g. its namespace.
    """

    def __init__(
        self,
        work: Callable[[KeyT], Awaitable[float | None]],
        workers: int,
        clock: Callable[[], float],
        mistake_seconds: float = 30.0,
        first_workers: int = 0,
        group: Callable[[KeyT], Hashable] = lambda _: None,
    ) -> None:
        self._group = group
        self._work = work
        self._first_workers = first_workers
        self._workers = workers
        self._clock = clock
        self._mistake_seconds = mistake_seconds
        self._due: dict[KeyT, float] = {}
        """Earliest requested time of each waiting key."""
        self._heap: list[tuple[float, int, KeyT]] = []
        self._urgent: Turns[KeyT] = Turns()
        self._ripe: Turns[KeyT] = Turns()
        self._count = 0
        self._busy: set[KeyT] = set()
        self._parked: set[KeyT] = set()
        """Keys that came due while they were worked on."""
        self._changed = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []

    def wake(self, key: KeyT, delay: float = 0.0) -> None:
        """Queue a key for work after at most `delay` seconds; with `FIRST`, before all other waiting keys."""
        if not self._tasks:
            return
        due = self._clock() + delay
        if due < self._due.get(key, float("inf")):
            self._due[key] = due
            self._count += 1
            heapq.heappush(self._heap, (due, self._count, key))
            self._changed.set()

    def start(self) -> None:
        """Start the workers in the running loop."""
        workers = [(self._run(FIRST), f"first-{number}") for number in range(self._first_workers)]
        workers += [(self._run(float("inf")), f"worker-{number}") for number in range(self._workers)]
        self._tasks = [asyncio.create_task(work, name=name) for work, name in workers]

    async def stop(self) -> None:
        """End the workers: their current work is cancelled, and waiting keys are forgotten."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks = []
        self._due.clear()
        self._heap.clear()
        self._urgent.clear()
        self._ripe.clear()
        self._parked.clear()

    async def _run(self, latest: float) -> None:
        while True:
            key = await self._next(latest)
            self._busy.add(key)
            try:
                delay = await self._work(key)
            except (Exception, asyncio.CancelledError):
                # gRPC raises CancelledError in calls of a closed channel, which is no request to end the worker.
                task = asyncio.current_task()
                if task is not None and task.cancelling():
                    raise
                logger.exception("a reconciliation of %s failed unexpectedly", key)
                delay = self._mistake_seconds
            finally:
                self._busy.discard(key)
            if key in self._parked:
                self._parked.discard(key)
                self.wake(key)
            elif delay is not None:
                self.wake(key, delay)

    async def _next(self, latest: float) -> KeyT:
        """Wait for the next due key, and return it. If `latest` is `FIRST`, only urgent keys count."""
        while True:
            self._ripen()
            for turns in (self._urgent,) if latest == FIRST else (self._urgent, self._ripe):
                while turns:
                    due, key = turns.pop()
                    if self._due.get(key) != due:
                        # An earlier wake has replaced this time.
                        continue
                    del self._due[key]
                    if key in self._busy:
                        self._parked.add(key)
                        continue
                    if self._urgent or self._ripe:
                        # Another worker takes the next key.
                        self._changed.set()
                    return key
            self._changed.clear()
            wait = self._heap[0][0] - self._clock() if self._heap and latest != FIRST else None
            try:
                # `wait_for` of Python 3.11 may lose the cancellation by `stop`.
                async with asyncio.timeout(wait):
                    await self._changed.wait()
            except TimeoutError:
                continue

    def _ripen(self) -> None:
        """Move the keys that are due by now from the heap to the turns."""
        now = self._clock()
        while self._heap and self._heap[0][0] <= now:
            due, _, key = heapq.heappop(self._heap)
            if self._due.get(key) == due:
                (self._urgent if due == FIRST else self._ripe).push(self._group(key), due, key)
