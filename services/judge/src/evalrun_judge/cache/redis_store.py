"""A verdict cache in Redis that gateways share.

A Redis that is down, slow or full delays a verdict by a fraction of a second.

Whoever can write to this Redis can forge verdicts: give it a password, and let nobody but the gateways reach it. Values
carry a checksum over their key, so that truncated, swapped or foreign values are refused.
"""

import asyncio
import hashlib
import logging
from collections.abc import Callable

from redis.asyncio import BlockingConnectionPool, Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import RedisError

from evalrun_judge.cache.verdict_cache import StoreError, StoreRestsError

logger = logging.getLogger(__name__)

PREFIX = b"evalrun:verdict:"
CHECKSUM_BYTES = 16

ANSWER_SECONDS = 0.25
"""Timeout of a connection and of a reply: longer than any reply of a Redis in the same cluster takes, shorter than a
program's run."""
REST_SECONDS = 5.0
"""Seconds for which a Redis that failed is not called."""
CONNECTIONS = 16
MAX_WRITES = 64
"""Maximum number of values on their way to Redis; further values are not stored."""
MAX_VALUE_BYTES = 4 * 1024 * 1024


class RedisStore:
    """See `VerdictStore`."""

    def __init__(self, url: str, *, keep_seconds: int, clock: Callable[[], float]) -> None:
        """Create the store; connections open with the first call, inside the running loop.

        Args:
            url: `redis://[:password@]host:port/db`, or `rediss://` for TLS.
            keep_seconds: lifetime of a value.
            clock: seconds, monotonic.

        Raises:
            ValueError: the URL cannot be used.
        """
        pool = BlockingConnectionPool.from_url(
            url,
            max_connections=CONNECTIONS,
            timeout=ANSWER_SECONDS,
            socket_timeout=ANSWER_SECONDS,
            socket_connect_timeout=ANSWER_SECONDS,
            # A pooled connection breaks when Redis restarts: the second try opens a new connection.
            retry=Retry(NoBackoff(), 1),
        )
        self._redis = Redis(connection_pool=pool)
        self._keep_seconds = keep_seconds
        self._clock = clock
        self._rests_until = float("-inf")
        self._writes: set[asyncio.Task[None]] = set()

    async def get(self, key: bytes) -> bytes | None:
        """Return the stored value; see `VerdictStore.get`."""
        if self._clock() < self._rests_until:
            raise StoreRestsError("Redis: it rests")
        try:
            async with asyncio.timeout(2 * ANSWER_SECONDS):
                value = await self._redis.get(PREFIX + key.hex().encode())
        # TimeoutError is an OSError.
        except (RedisError, OSError) as error:
            self._rest()
            raise StoreError(f"Redis: {error or type(error).__name__}") from error
        if value is None:
            return None
        if not isinstance(value, bytes) or value[:CHECKSUM_BYTES] != _checksum(key, value[CHECKSUM_BYTES:]):
            raise StoreError(f"Redis: what lies at {key.hex()} is no verdict of ours")
        return value[CHECKSUM_BYTES:]

    def put(self, key: bytes, value: bytes) -> None:
        """Store a value soon; see `VerdictStore.put`."""
        resting = self._clock() < self._rests_until
        if resting or len(self._writes) >= MAX_WRITES or len(value) > MAX_VALUE_BYTES:
            return
        write = asyncio.create_task(self._write(key, value))
        self._writes.add(write)
        write.add_done_callback(self._writes.discard)

    async def close(self) -> None:
        """Wait a moment for pending writes, cancel the others, and close the connections."""
        if self._writes:
            await asyncio.wait(self._writes, timeout=2 * ANSWER_SECONDS)
        for write in self._writes:
            write.cancel()
        await self._redis.aclose()
        await self._redis.connection_pool.disconnect()

    async def _write(self, key: bytes, value: bytes) -> None:
        try:
            async with asyncio.timeout(2 * ANSWER_SECONDS):
                await self._redis.set(PREFIX + key.hex().encode(), _checksum(key, value) + value, ex=self._keep_seconds)
        except (RedisError, OSError) as error:
            self._rest()
            logger.warning("a verdict was not stored in Redis: %s", error or type(error).__name__)

    def _rest(self) -> None:
        self._rests_until = self._clock() + REST_SECONDS


def _checksum(key: bytes, value: bytes) -> bytes:
    return hashlib.blake2b(value, digest_size=CHECKSUM_BYTES, key=key).digest()
