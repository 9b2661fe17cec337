"""Sessions in Redis, for several replicas. Each change is a script, which Redis runs atomically.

Redis's own clock expires sessions, so replicas need not agree on the time. A session that Redis forgets is unknown to
its caller, and never becomes a reward: give Redis a disk (appendonly yes) and let it refuse writes when full
(maxmemory-policy noeviction). Whoever can write to this Redis can forge rewards: give it a password, and let only this
service reach it.
"""

import asyncio
from collections.abc import Awaitable
from typing import Any

import msgspec
from redis.asyncio import BlockingConnectionPool, Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import RedisError

from evalrun_reward.sessions.session import Session, TooManySessionsError
from evalrun_reward.sessions.store import KEPT_SECONDS, StoreError, StoreNeedsSuiteError

PREFIX = b"{evalrun:sessions}:"
"""The braces keep every key on one node of a Redis Cluster, as scripts over several keys require."""
OPEN = PREFIX + b"open"
"""Sorted set: open sessions by the millisecond at which they expire."""

ANSWER_SECONDS = 5.0
CONNECTIONS = 64

_NOW = "local t = redis.call('TIME'); local now = t[1] * 1000 + math.floor(t[2] / 1000)\n"
_KEEP_SUITE = """
if redis.call('PTTL', KEYS[3]) < tonumber(ARGV[2]) then redis.call('PEXPIRE', KEYS[3], ARGV[2]) end
"""
# KEYS: session, open, suite. ARGV: state, milliseconds to live, most sessions, id, suite ('': the store must have it).
_CREATE = f"""{_NOW}
local held = redis.call('HGET', KEYS[1], 'state')
if held then return {{'held', held}} end
redis.call('ZREMRANGEBYSCORE', KEYS[2], '-inf', now)
local count = redis.call('ZCARD', KEYS[2])
if count >= tonumber(ARGV[3]) then return {{'full', tostring(count)}} end
if redis.call('EXISTS', KEYS[3]) == 0 then
  if ARGV[5] == '' then return {{'suite', ''}} end
  redis.call('SET', KEYS[3], ARGV[5], 'PX', ARGV[2])
end
{_KEEP_SUITE}
redis.call('HSET', KEYS[1], 'version', 1, 'state', ARGV[1])
redis.call('PEXPIRE', KEYS[1], ARGV[2])
redis.call('ZADD', KEYS[2], now + ARGV[2], ARGV[4])
return {{'new', ''}}
"""
# KEYS: as above. ARGV: state, milliseconds to live, the version before, id, '1' if the session stays open.
_REPLACE = f"""{_NOW}
if redis.call('HGET', KEYS[1], 'version') ~= ARGV[3] then return 0 end
redis.call('HSET', KEYS[1], 'version', ARGV[3] + 1, 'state', ARGV[1])
redis.call('PEXPIRE', KEYS[1], ARGV[2])
{_KEEP_SUITE}
if ARGV[5] == '1' then redis.call('ZADD', KEYS[2], now + ARGV[2], ARGV[4]) else redis.call('ZREM', KEYS[2], ARGV[4]) end
return 1
"""

_Arguments = tuple[bytes | str | int, ...]


class RedisStore:
    """See `SessionStore`."""

    def __init__(self, url: str, *, max_sessions: int, idle_seconds: float) -> None:
        """Create the store; connections open with the first call, inside the running loop.

        Args:
            url: `redis://[:password@]host:port/db`, or `rediss://` for TLS.
            max_sessions: maximum number of open sessions.
            idle_seconds: seconds without progress after which a session expires.

        Raises:
            ValueError: the URL cannot be used.
        """
        pool = BlockingConnectionPool.from_url(
            url,
            max_connections=CONNECTIONS,
            timeout=ANSWER_SECONDS,
            socket_timeout=ANSWER_SECONDS,
            socket_connect_timeout=ANSWER_SECONDS,
            # A pooled connection breaks when Redis restarts. The scripts may run twice.
            retry=Retry(NoBackoff(), 1),
        )
        self._redis = Redis(connection_pool=pool)
        self._create = self._redis.register_script(_CREATE)
        self._replace = self._redis.register_script(_REPLACE)
        self._max_sessions = max_sessions
        self._idle_seconds = idle_seconds
        self._decoder = msgspec.msgpack.Decoder(Session)

    async def create(self, session: Session, suite: bytes | None) -> Session:
        """Store a new session; see `SessionStore.create`."""
        arguments: _Arguments = (
            _encode(session), _ms(self._idle_seconds), self._max_sessions, session.sid, suite or b""
        )  # fmt: skip
        said, what = await self._ask_redis(self._create(keys=_keys(session), args=arguments))
        match bytes(said):
            case b"held":
                return self._decode(what)
            case b"full":
                raise TooManySessionsError(
                    f"{what.decode()} sessions are open (--max-sessions): end some, or wait until abandoned ones expire"
                )
            case b"suite":
                raise StoreNeedsSuiteError("the suite is not held")
            case _:
                return session

    async def get(self, sid: str) -> Session | None:
        """Return a session; see `SessionStore.get`."""
        state = await self._ask_redis(self._redis.hget(_session_key(sid), "state"))
        return None if state is None else self._decode(state)

    async def replace(self, session: Session) -> bool:
        """Store the next version of a session; see `SessionStore.replace`."""
        is_open = session.reward is None
        seconds = self._idle_seconds if is_open else KEPT_SECONDS
        arguments: _Arguments = (_encode(session), _ms(seconds), session.version - 1, session.sid, int(is_open))
        return bool(await self._ask_redis(self._replace(keys=_keys(session), args=arguments)))

    async def suite(self, digest: bytes) -> bytes | None:
        """Return a suite; see `SessionStore.suite`."""
        found: bytes | None = await self._ask_redis(self._redis.get(_suite_key(digest)))
        return found

    async def close(self) -> None:
        await self._redis.aclose()
        await self._redis.connection_pool.disconnect()

    async def _ask_redis(self, call: Awaitable[Any]) -> Any:  # noqa: ANN401 - what Redis answers
        try:
            async with asyncio.timeout(2 * ANSWER_SECONDS):
                return await call
        # TimeoutError is an OSError.
        except (RedisError, OSError) as error:
            raise StoreError(f"the session store: Redis: {error or type(error).__name__}") from error

    def _decode(self, state: bytes) -> Session:
        try:
            return self._decoder.decode(state)
        except msgspec.DecodeError as error:
            raise StoreError(f"the session store: what Redis holds is no session of ours: {error}") from error


def _session_key(sid: str) -> bytes:
    return PREFIX + b"session:" + sid.encode()


def _suite_key(digest: bytes) -> bytes:
    return PREFIX + b"suite:" + digest.hex().encode()


def _keys(session: Session) -> list[bytes]:
    return [_session_key(session.sid), OPEN, _suite_key(session.suite)]


def _ms(seconds: float) -> int:
    return int(seconds * 1000)


def _encode(session: Session) -> bytes:
    return msgspec.msgpack.encode(session)
