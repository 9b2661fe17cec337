"""Verdicts that were reached before, by the digest of all that they depend on (`verdict_key`).

What another moment could decide otherwise is never stored: infra errors, and runs past their time limit of which none
was sure. A store that fails costs a verdict nothing but the time to judge it. Requests with the same key at the same
time are judged once; where that one comes to nothing, each of the others is judged by itself.
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
    """Result of judging a program with its tests, whichever answer the program was taken from."""

    records: tuple[TestRecord, ...]
    level: Level
    stable: bool = True
    """Another run would give the same, as far as can be told."""
    complete: bool = True
    """False: one of these tests has failed, and there may be more tests."""
    code: str | None = None
    """The program that ran, where it is not the one that was extracted."""

    @property
    def compiled(self) -> bool:
        """False if no test ran because the program does not compile."""
        return any(record.status is not TestStatus.COMPILE_ERROR for record in self.records)


def is_stable(records: Sequence[TestRecord]) -> bool:
    """Return whether the verdict of these records may be cached."""
    return all(record.status is not TestStatus.API_ERROR and record.confirmed for record in records)


class VerdictStore(Protocol):
    """Bytes by key, for a while."""

    async def get(self, key: bytes) -> bytes | None:
        """Return the stored value, or None if it does not exist or was evicted. Raises StoreError."""
        ...

    def put(self, key: bytes, value: bytes) -> None:
        """Keep it, now or in a moment; a failure is the store's own affair."""
        ...

    async def close(self) -> None:
        """Free the store's resources."""
        ...


class StoreError(Exception):
    """The store could not be asked."""


class StoreRestsError(StoreError):
    """It failed a moment ago, and is left alone for a while."""


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
        """Return it; see `VerdictStore.get`."""
        return self._kept.get(key)

    def put(self, key: bytes, value: bytes) -> None:
        """Keep it; see `VerdictStore.put`."""
        self._kept.put(key, value)

    async def close(self) -> None:
        """Do nothing: there is nothing to free."""


class VerdictCache:
    """Looks a verdict up in each store in turn, judges if no store has it, and stores the result."""

    def __init__(
        self, stores: Sequence[VerdictStore], on_result: Callable[[CacheResult], None] = lambda result: None
    ) -> None:
        """Create an empty cache.

        Args:
            stores: the quickest first; none: every request is judged.
            on_result: told what the cache said to each request.
        """
        self._stores = stores
        self._on_result = on_result
        self._flights: dict[bytes, asyncio.Future[Judged | None]] = {}
        self._encoder = msgspec.msgpack.Encoder()
        self._decoder = msgspec.msgpack.Decoder(Judged)

    @property
    def on(self) -> bool:
        """There is a store."""
        return bool(self._stores)

    async def through(self, key: bytes, judge: Callable[[], Awaitable[Judged]]) -> tuple[Judged, bool]:
        """Return the stored verdict or judge. The second value tells whether the verdict was stored.

        Raises:
            Exception: what `judge` raises.
        """
        while (flight := self._flights.get(key)) is not None:
            await asyncio.wait((flight,))
            if not flight.cancelled():
                found = flight.result()
                # The result of the other caller is not cacheable: judge again.
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
            flight.cancel()  # its caller is gone: the next in line judges for the others
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
        """Close the stores."""
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
                if not isinstance(error, StoreRestsError):  # of one that rests it was said when it failed
                    logger.warning("the verdict cache gives no answer: %s", error)
                failed = True
                continue
            for quicker in self._stores[:place]:
                quicker.put(key, value)
            self._on_result(CacheResult.HIT)
            return judged
        self._on_result(CacheResult.ERROR if failed else CacheResult.MISS)
        return None
