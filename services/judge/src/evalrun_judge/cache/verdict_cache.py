"""Caches verdicts by the digest of everything that they depend on (`verdict_key`).

Results that another run could change are never stored: infrastructure errors, and uncertain runs past their time limit.
If a store fails, the request is judged as if nothing were stored. Simultaneous requests with the same key are judged
once; if that result cannot be cached, each of the others is judged by itself.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import msgspec

from evalrun_executor.api import Level
from evalrun_judge.metrics import CacheResult
from evalrun_judge.status import TestStatus
from evalrun_judge.verdict import TestRecord
from evalrun_runtime.recently_used import RecentlyUsed

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Judged:
    """Result of judging a program with its tests, whichever completion the program comes from."""

    records: tuple[TestRecord, ...]
    level: Level
    stable: bool = True
    """Whether another run would give the same result, as far as can be told."""
    complete: bool = True
    """False: a test has failed, and there may be further tests."""
    code: str | None = None
    """The program that ran, if it differs from the extracted program."""

    @property
    def compiled(self) -> bool:
        """False if no test ran because the program does not compile."""
        return any(record.status is not TestStatus.COMPILE_ERROR for record in self.records)


def is_stable(records: Sequence[TestRecord]) -> bool:
    """Return whether the verdict of these records may be cached."""
    return all(record.status is not TestStatus.API_ERROR and record.confirmed for record in records)


class VerdictStore(Protocol):
    """Stores bytes by key for a limited time."""

    async def get(self, key: bytes) -> bytes | None:
        """Return the stored value, or None if it does not exist or was evicted. Raises StoreError."""
        ...

    def put(self, key: bytes, value: bytes) -> None:
        """Store a value, now or soon. A failure is not reported."""
        ...

    async def close(self) -> None:
        """Free the store's resources."""
        ...


class StoreError(Exception):
    """The store could not be read."""


class StoreRestsError(StoreError):
    """The store failed a moment ago, and is not called for a while."""


ENTRY_BYTES = 250
"""Bytes that an entry takes besides its value: the key, two objects, a place in the dictionary."""


class MemoryStore:
    """A store in this process, bounded by bytes, that evicts the least recently used entries."""

    def __init__(self, capacity_bytes: int) -> None:
        self._kept: RecentlyUsed[bytes, bytes] = RecentlyUsed(capacity_bytes, lambda value: len(value) + ENTRY_BYTES)

    @property
    def size(self) -> int:
        """Bytes held."""
        return self._kept.size

    async def get(self, key: bytes) -> bytes | None:
        """Return the stored value; see `VerdictStore.get`."""
        return self._kept.get(key)

    def put(self, key: bytes, value: bytes) -> None:
        """Store a value; see `VerdictStore.put`."""
        self._kept.put(key, value)

    async def close(self) -> None:
        """Do nothing: the store holds no connection."""


class VerdictCache:
    """Looks a verdict up in each store in turn, judges if no store has it, and stores the result."""

    def __init__(
        self, stores: Sequence[VerdictStore], on_result: Callable[[CacheResult], None] = lambda result: None
    ) -> None:
        """Create an empty cache.

        Args:
            stores: the stores, the quickest first; none: every request is judged.
            on_result: called with the cache's result of each request.
        """
        self._stores = stores
        self._on_result = on_result
        self._flights: dict[bytes, asyncio.Future[Judged | None]] = {}
        self._encoder = msgspec.msgpack.Encoder()
        self._decoder = msgspec.msgpack.Decoder(Judged)

    @property
    def on(self) -> bool:
        """Whether there is a store."""
        return bool(self._stores)

    async def through(self, key: bytes, judge: Callable[[], Awaitable[Judged]]) -> tuple[Judged, bool]:
        """Return the stored verdict, or judge.

        The second value tells whether the verdict comes from a store or from a simultaneous request.

        Raises:
            Exception: what `judge` raises.
        """
        while (flight := self._flights.get(key)) is not None:
            await asyncio.wait((flight,))
            if not flight.cancelled():
                found = flight.result()
                # The other caller's result is not cacheable, so this request is judged again.
                if found is None:
                    self._on_result(CacheResult.MISS)
                    return await judge(), False
                self._on_result(CacheResult.HIT)
                return found, True
        flight = self._flights[key] = asyncio.get_running_loop().create_future()
        try:
            found = await self._get(key)
            if found is not None:
                flight.set_result(found)
                return found, True
            judged = await judge()
            flight.set_result(judged if judged.stable else None)
        except asyncio.CancelledError:
            # The caller is gone: the next waiting request judges for the others.
            flight.cancel()
            raise
        except BaseException:
            flight.set_result(None)
            raise
        finally:
            del self._flights[key]
        if judged.stable:
            value = self._encoder.encode(judged)
            for store in self._stores:
                store.put(key, value)
        return judged, False

    async def close(self) -> None:
        for store in self._stores:
            await store.close()

    async def _get(self, key: bytes) -> Judged | None:
        failed = False
        for place, store in enumerate(self._stores):
            try:
                value = await store.get(key)
                if value is None:
                    continue
                judged = self._decoder.decode(value)
            except (StoreError, msgspec.DecodeError) as error:
                # For a store that rests, the failure was logged when it happened.
                if not isinstance(error, StoreRestsError):
                    logger.warning("the verdict cache gives no answer: %s", error)
                failed = True
                continue
            for quicker in self._stores[:place]:
                quicker.put(key, value)
            self._on_result(CacheResult.HIT)
            return judged
        self._on_result(CacheResult.ERROR if failed else CacheResult.MISS)
        return None
