"""Verdicts that gateways share through a real redis-server; a Redis that is down, frozen or spoilt harms none."""

import asyncio
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from builders.redis_server import Server, redis_server
from redis.asyncio import Redis

from evalrun_judge.cache.redis_store import PREFIX, RedisStore
from evalrun_judge.cache.verdict_cache import Judged, MemoryStore, StoreError, StoreRestsError, VerdictCache
from evalrun_judge.metrics import CacheResult
from evalrun_judge.status import TestStatus
from evalrun_judge.verdict import TestRecord

KEY = bytes(range(32))
GOOD = Judged((TestRecord(0, TestStatus.SUCCESS, ran=True, cpu_time=1.5),), "full")


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@asynccontextmanager
async def store_at(server: Server, clock: Clock | None = None) -> AsyncIterator[RedisStore]:
    store = RedisStore(server.url, keep_seconds=3600, clock=clock or Clock())
    try:
        yield store
    finally:
        await store.close()


async def until_there(store: RedisStore, key: bytes) -> bytes:
    """A value is written soon after it was put; the test's time limit bounds the wait."""
    while (value := await store.get(key)) is None:  # noqa: ASYNC110 - another process brings it about
        await asyncio.sleep(0.005)
    return value


def judging(result: Judged) -> Callable[[], Awaitable[Judged]]:
    async def judge() -> Judged:
        return result

    return judge


async def test_cached_verdict_is_shared_by_gateways_until_its_ttl_ends(tmp_path: Path) -> None:
    async with redis_server(tmp_path) as server, store_at(server) as one, store_at(server) as two:
        assert await VerdictCache([MemoryStore(10_000), one]).through(KEY, judging(GOOD)) == (GOOD, False)
        await until_there(two, KEY)
        memory = MemoryStore(10_000)
        other = VerdictCache([memory, two])
        assert await other.through(KEY, judging(GOOD)) == (GOOD, True)
        assert await memory.get(KEY) is not None  # asked for once
        async with Redis.from_url(server.url) as redis:
            assert 3590 < await redis.ttl(PREFIX + KEY.hex().encode()) <= 3600


async def test_spoilt_or_foreign_cache_entry_is_an_error(tmp_path: Path) -> None:
    async with redis_server(tmp_path) as server, store_at(server) as store:
        store.put(KEY, b"value")
        good = await until_there(store, KEY)
        assert good == b"value"
        other = bytes(32)
        async with Redis.from_url(server.url) as redis:
            raw = await redis.get(PREFIX + KEY.hex().encode())
            assert isinstance(raw, bytes)
            for spoilt in (raw[:-1], b"", b"x", raw[:-1] + b"X"):
                await redis.set(PREFIX + KEY.hex().encode(), spoilt)
                with pytest.raises(StoreError, match="no verdict of ours"):
                    await store.get(KEY)
            await redis.set(PREFIX + other.hex().encode(), raw)  # another verdict's value
            with pytest.raises(StoreError):
                await store.get(other)
            await redis.delete(PREFIX + KEY.hex().encode())
            await redis.rpush(PREFIX + KEY.hex().encode(), "a list")
            with pytest.raises(StoreError):
                await store.get(KEY)


async def test_redis_that_dies_costs_no_verdict_and_is_used_again_after_its_restart(tmp_path: Path) -> None:
    clock = Clock()
    async with redis_server(tmp_path) as server, store_at(server, clock) as store:
        said: list[CacheResult] = []  # after the first error it is left alone for a while
        cache = VerdictCache([store], said.append)
        await cache.through(KEY, judging(GOOD))
        await until_there(store, KEY)
        await server.stop()
        for _ in range(3):
            assert await cache.through(KEY, judging(GOOD)) == (GOOD, False)
        assert said == [CacheResult.MISS, *[CacheResult.ERROR] * 3]
        await server.start()
        clock.now += 60
        assert await cache.through(KEY, judging(GOOD)) == (GOOD, False)
        await until_there(store, KEY)
        assert await cache.through(KEY, judging(GOOD)) == (GOOD, True)


async def test_redis_that_hangs_costs_no_verdict_and_is_then_not_asked(tmp_path: Path) -> None:
    async with redis_server(tmp_path) as server, store_at(server) as store:
        assert await store.get(KEY) is None
        server.signal(signal.SIGSTOP)
        cache = VerdictCache([store])
        results = await asyncio.gather(*(cache.through(bytes([n]) * 32, judging(GOOD)) for n in range(50)))
        assert results == [(GOOD, False)] * 50
        with pytest.raises(StoreRestsError):  # which it says without asking
            await store.get(KEY)
        server.signal(signal.SIGCONT)
