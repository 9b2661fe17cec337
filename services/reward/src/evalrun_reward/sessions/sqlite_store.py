"""Sessions in a SQLite file, for one machine. Processes that open the same file share the sessions.

Each commit is synced (WAL, synchronous=FULL), as in the ledger: an acknowledged change outlives a power cut. Nothing
here blocks the event loop: one thread owns the connection.
"""

import asyncio
import sqlite3
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

import msgspec

from evalrun_reward.sessions.session import Session, TooManySessionsError
from evalrun_reward.sessions.store import KEPT_SECONDS, StoreError, StoreNeedsSuiteError
from evalrun_runtime.exits import BadInputError

SCHEMA_VERSION = 1
BUSY_SECONDS = 5.0
"""Maximum seconds that a writer waits for another process's commit."""

_SCHEMA = """
CREATE TABLE sessions (sid INTEGER PRIMARY KEY, version INTEGER NOT NULL, is_open INTEGER NOT NULL,
    expires REAL NOT NULL, suite BLOB NOT NULL, state BLOB NOT NULL);
CREATE INDEX sessions_by_expiry ON sessions (expires);
CREATE INDEX open_sessions ON sessions (sid) WHERE is_open;
CREATE INDEX sessions_by_suite ON sessions (suite);
CREATE TABLE suites (digest BLOB PRIMARY KEY, suite BLOB NOT NULL);
"""

Value = TypeVar("Value")


class SqliteStore:
    """See `SessionStore`."""

    def __init__(self, path: Path, *, max_sessions: int, idle_seconds: float, clock: Callable[[], float]) -> None:
        """Open or create the file.

        Args:
            path: path of the file, in an existing directory.
            max_sessions: maximum number of open sessions.
            idle_seconds: seconds without progress after which a session expires.
            clock: seconds since the epoch.

        Raises:
            BadInputError: the file is no store of sessions, or was written by another version.
        """
        self._max_sessions = max_sessions
        self._idle_seconds = idle_seconds
        self._clock = clock
        self._decoder = msgspec.msgpack.Decoder(Session)
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="sessions")
        try:
            self._connection = sqlite3.connect(
                path, isolation_level=None, check_same_thread=False, timeout=BUSY_SECONDS
            )
            _prepare(self._connection, path)
        except sqlite3.Error as error:
            raise BadInputError(f"--session-store {path}: {error}: name a SQLite file, or a new one") from error

    async def create(self, session: Session, suite: bytes | None) -> Session:
        """Store a new session; see `SessionStore.create`."""

        def work() -> Session:
            found = self._get(session.sid)
            if found is not None:
                return found
            now = self._clock()
            self._sweep(now)
            (opened,) = self._connection.execute("SELECT count(*) FROM sessions WHERE is_open").fetchone()
            if opened >= self._max_sessions:
                raise TooManySessionsError(
                    f"{opened} sessions are open (--max-sessions): end some, or wait until abandoned ones expire"
                )
            if suite is not None:
                self._connection.execute("INSERT OR IGNORE INTO suites VALUES (?, ?)", (session.suite, suite))
            elif self._suite(session.suite) is None:
                raise StoreNeedsSuiteError("the suite is not held")
            self._connection.execute(
                "INSERT INTO sessions VALUES (?, ?, 1, ?, ?, ?)",
                (int(session.sid), session.version, now + self._idle_seconds, session.suite, _encode(session)),
            )
            return session

        return await self._change(work)

    async def get(self, sid: str) -> Session | None:
        """Return a session; see `SessionStore.get`."""
        return await self._run(lambda: self._get(sid))

    async def replace(self, session: Session) -> bool:
        """Store the next version of a session; see `SessionStore.replace`."""
        is_open = session.reward is None

        def work() -> bool:
            now = self._clock()
            self._sweep(now)
            changed = self._connection.execute(
                "UPDATE sessions SET version = ?, is_open = ?, expires = ?, state = ? "
                "WHERE sid = ? AND version = ?",
                (session.version, is_open, now + (self._idle_seconds if is_open else KEPT_SECONDS), _encode(session),
                 int(session.sid), session.version - 1),
            )  # fmt: skip
            return changed.rowcount == 1

        return await self._change(work)

    async def suite(self, digest: bytes) -> bytes | None:
        """Return a suite; see `SessionStore.suite`."""
        return await self._run(lambda: self._suite(digest))

    async def close(self) -> None:
        """Close the file after pending operations."""
        await asyncio.get_running_loop().run_in_executor(self._thread, self._connection.close)
        self._thread.shutdown()

    def _get(self, sid: str) -> Session | None:
        row = self._connection.execute(
            "SELECT state FROM sessions WHERE sid = ? AND expires > ?", (int(sid), self._clock())
        ).fetchone()
        return None if row is None else self._decoder.decode(row[0])

    def _suite(self, digest: bytes) -> bytes | None:
        row = self._connection.execute("SELECT suite FROM suites WHERE digest = ?", (digest,)).fetchone()
        return None if row is None else bytes(row[0])

    def _sweep(self, now: float) -> None:
        if self._connection.execute("DELETE FROM sessions WHERE expires <= ?", (now,)).rowcount:
            self._connection.execute(
                "DELETE FROM suites WHERE NOT EXISTS (SELECT 1 FROM sessions WHERE sessions.suite = suites.digest)"
            )

    async def _change(self, work: Callable[[], Value]) -> Value:
        def change() -> Value:
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                value = work()
                self._connection.execute("COMMIT")
            finally:
                if self._connection.in_transaction:
                    self._connection.execute("ROLLBACK")
            return value

        return await self._run(change)

    async def _run(self, work: Callable[[], Value]) -> Value:
        try:
            return await asyncio.get_running_loop().run_in_executor(self._thread, work)
        except (sqlite3.Error, msgspec.DecodeError) as error:
            raise StoreError(f"the session store: {error}") from error


def _prepare(connection: sqlite3.Connection, path: Path) -> None:
    if connection.execute("PRAGMA journal_mode = WAL").fetchone()[0] != "wal":
        raise BadInputError(f"--session-store {path}: SQLite cannot use its WAL there: name a local directory's file")
    connection.execute("PRAGMA synchronous = FULL")
    # Of two processes that start at once, only one creates the tables.
    connection.execute("BEGIN IMMEDIATE")
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    if version == 0:
        for statement in _SCHEMA.split(";"):
            connection.execute(statement)
        connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
    connection.execute("COMMIT")
    if version not in (0, SCHEMA_VERSION):
        raise BadInputError(
            f"--session-store {path}: written by another version of evalrun (schema {version}, this one reads "
            f"{SCHEMA_VERSION}): name a new file"
        )


def _encode(session: Session) -> bytes:
    return msgspec.msgpack.encode(session)
