"""Both stores of sessions, as replicas use them: a real SQLite file, a real redis-server."""

import asyncio
import signal
import sqlite3
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from builders.redis_server import redis_server
from redis.asyncio import Redis

from evalrun_reward.sessions import redis_store
from evalrun_reward.sessions.messages import RewardResponse
from evalrun_reward.sessions.redis_store import OPEN, RedisStore
from evalrun_reward.sessions.session import Session, TooManySessionsError, Turn
from evalrun_reward.sessions.sqlite_store import SqliteStore
from evalrun_reward.sessions.store import SessionStore, StoreError, StoreNeedsSuiteError
from evalrun_reward.sessions.store_factory import open_store
from evalrun_runtime.exits import BadInputError

SUITE = b"tests"
DIGEST = bytes(32)
REWARD = RewardResponse(0.5, 1, 2, 0, 0, accepted=False, final_status="wrong_answer", turns=1)
IDLE = 1000.0

Open = Callable[..., SessionStore]


@asynccontextmanager
async def opener(kind: str, directory: Path) -> AsyncIterator[Open]:
    """Give what opens a store, as each replica does."""
    stores: list[SessionStore] = []

    def opened(address: str) -> Open:
        def open_one(max_sessions: int = 10, idle_seconds: float = IDLE) -> SessionStore:
            stores.append(open_store(address, max_sessions=max_sessions, idle_seconds=idle_seconds))
            return stores[-1]

        return open_one

    try:
        if kind == "sqlite":
            yield opened(str(directory / "sessions.sqlite3"))
        else:
            async with redis_server(directory) as server:
                yield opened(server.url)
    finally:
        for store in stores:
            await store.close()


def session(sid: str = "1", **more: object) -> Session:
    return Session(sid, "i", DIGEST, **more)  # type: ignore[arg-type]


each_store = pytest.mark.parametrize("kind", ["sqlite", "redis"])


@each_store
async def test_two_replicas_see_one_session_and_one_of_two_changes_wins(kind: str, tmp_path: Path) -> None:
    async with opener(kind, tmp_path) as open_one:
        here, there = open_one(), open_one()
        with pytest.raises(StoreNeedsSuiteError):
            await here.create(session(), None)
        first = session()
        assert await here.create(first, SUITE) is first
        assert await there.create(session("2"), None) == session("2")  # the suite is held: it need not be sent
        assert await there.create(session(run="again"), SUITE) == first  # a retried start
        assert await there.suite(DIGEST) == SUITE
        one, other = (first.with_turn(Turn(name, "", has_program=True)) for name in "ab")
        changed = await asyncio.gather(here.replace(one), there.replace(other))
        assert sorted(changed) == [False, True]
        held = await here.get("1")
        assert held == (one if changed[0] else other)
        assert held is not None
        assert await there.replace(held.with_reward(REWARD))
        assert (await here.get("1")) == held.with_reward(REWARD)
        assert await here.get("3") is None
        assert not await here.replace(session("3").as_closed())


@each_store
async def test_acknowledged_changes_are_kept_after_a_restart(kind: str, tmp_path: Path) -> None:
    async with opener(kind, tmp_path) as open_one:
        before = open_one()
        await before.create(session(), SUITE)
        turned = session().with_turn(Turn("a", "b", has_program=True))
        assert await before.replace(turned)
        after = open_one()
        assert (await after.get("1"), await after.suite(DIGEST)) == (turned, SUITE)


@each_store
async def test_open_sessions_are_limited_over_all_replicas_and_a_reward_makes_room(kind: str, tmp_path: Path) -> None:
    async with opener(kind, tmp_path) as open_one:
        here, there = open_one(max_sessions=2), open_one(max_sessions=2)
        await here.create(session("1"), SUITE)
        await there.create(session("2"), SUITE)
        with pytest.raises(TooManySessionsError, match="2 sessions are open"):
            await here.create(session("3"), SUITE)
        assert await here.create(session("2"), SUITE) == session("2")  # one that is there needs no room
        await there.replace(session("1").with_reward(REWARD))
        await here.create(session("3"), SUITE)
        assert await here.get("1") is not None  # for callers that ask again


@each_store
async def test_abandoned_sessions_expire_and_make_room(kind: str, tmp_path: Path) -> None:
    async with opener(kind, tmp_path) as open_one:
        store = open_one(max_sessions=1, idle_seconds=0.3)
        await store.create(session("1"), SUITE)
        while await store.get("1") is not None:  # noqa: ASYNC110 - the store's own clock brings it about
            await asyncio.sleep(0.02)  # until it expires; the test's time limit bounds it
        assert not await store.replace(session("1").as_closed())
        await store.create(session("2"), SUITE)


async def test_progress_keeps_a_session_and_expired_ones_leave_the_file(tmp_path: Path) -> None:
    now = [0.0]
    path = tmp_path / "s"
    store = SqliteStore(path, max_sessions=5, idle_seconds=10, clock=lambda: now[0])
    await store.create(session("1"), SUITE)
    await store.create(session("2"), SUITE)
    now[0] = 8
    kept = session("1").with_turn(Turn("a", "b", has_program=True))
    assert await store.replace(kept)
    now[0] = 15
    assert (await store.get("1"), await store.get("2")) == (kept, None)
    now[0] = 30
    other = Session("3", "i", b"o" * 32)
    await store.create(other, b"others")
    await store.close()
    with sqlite3.connect(path) as file:
        assert file.execute("SELECT sid FROM sessions").fetchall() == [(3,)]
        assert file.execute("SELECT suite FROM suites").fetchall() == [(b"others",)]
    file.close()


async def test_a_file_that_is_no_store_is_refused_with_advice(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("no database, but long enough to be taken for one\n" * 100)
    newer = tmp_path / "newer"
    file = sqlite3.connect(newer)
    file.execute("PRAGMA user_version = 99")
    file.close()
    for address, advice in (
        (str(tmp_path / "text"), "name a SQLite file, or a new one"),
        (str(newer), "written by another version of evalrun"),
        (str(tmp_path / "absent" / "s"), "is absent: create it"),
        ("http://somewhere", "redis://host:port/db"),
    ):
        with pytest.raises(BadInputError, match=advice):
            open_store(address, max_sessions=1, idle_seconds=1)


async def test_full_disk_is_a_store_error_and_keeps_the_session(tmp_path: Path) -> None:
    path = tmp_path / "s"
    store = SqliteStore(path, max_sessions=10, idle_seconds=IDLE, clock=lambda: 0.0)
    await store.create(session("1"), SUITE)
    store._connection.execute("PRAGMA max_page_count = 1")  # as far as SQLite is concerned, the disk is full
    large = session("1").with_turn(Turn("x" * 1_000_000, "", has_program=True))
    with pytest.raises(StoreError, match="full"):
        await store.replace(large)
    assert await store.get("1") == session("1")
    store._connection.execute("PRAGMA max_page_count = 1000000")
    assert await store.replace(large)
    await store.close()


async def test_unreachable_redis_is_a_store_error_and_is_used_again_after_its_restart(tmp_path: Path) -> None:
    async with redis_server(tmp_path) as server:
        store = RedisStore(server.url, max_sessions=10, idle_seconds=IDLE)
        try:
            await store.create(session(), SUITE)
            server.signal(signal.SIGKILL)
            assert server.process is not None
            await server.process.wait()
            for call in (store.get("1"), store.replace(session().as_closed()), store.suite(DIGEST)):
                with pytest.raises(StoreError, match="Redis"):
                    await call
            await server.start()
            assert await store.get("1") is None  # it kept nothing on disk: the session is lost, and said to be
            await store.create(session(), SUITE)
        finally:
            await store.close()


async def test_full_or_corrupt_redis_is_a_store_error(tmp_path: Path) -> None:
    async with redis_server(tmp_path) as server, Redis.from_url(server.url) as redis:
        store = RedisStore(server.url, max_sessions=10, idle_seconds=IDLE)
        try:
            await store.create(session(), SUITE)
            await redis.config_set("maxmemory", 1)
            with pytest.raises(StoreError, match="Redis"):
                await store.replace(session().as_closed())
            await redis.config_set("maxmemory", 0)
            assert await store.replace(session().as_closed())
            await redis.hset(redis_store.PREFIX + b"session:1", "state", b"\xc1")
            with pytest.raises(StoreError, match="no session of ours"):
                await store.get("1")
            assert await redis.ttl(redis_store.PREFIX + b"suite:" + DIGEST.hex().encode()) > 0  # nothing stays for good
            assert await redis.zcard(OPEN) == 1
        finally:
            await store.close()
