"""Opens the store that the settings name."""

import time
from pathlib import Path

from evalrun_reward.sessions.sqlite_store import SqliteStore
from evalrun_reward.sessions.store import SessionStore
from evalrun_runtime.distribution import describe_install
from evalrun_runtime.exits import BadInputError

_REDIS = ("redis://", "rediss://")


def open_store(address: str, *, max_sessions: int, idle_seconds: float) -> SessionStore:
    """Open a Redis by its URL, or else a SQLite file by its path. Raises BadInputError."""
    if not address.startswith(_REDIS):
        if "://" in address:
            raise BadInputError("--session-store: write a file's path, redis://host:port/db or rediss://host:port/db")
        path = Path(address)
        if not path.parent.is_dir():
            raise BadInputError(f"--session-store {address}: directory {path.parent} is absent: create it")
        return SqliteStore(path, max_sessions=max_sessions, idle_seconds=idle_seconds, clock=time.time)
    try:
        # Only this setting needs the package, which the base for one machine does not install.
        from evalrun_reward.sessions.redis_store import RedisStore

        return RedisStore(address, max_sessions=max_sessions, idle_seconds=idle_seconds)
    except ImportError as error:
        raise BadInputError(f"--session-store needs the package redis: {describe_install('cache')}") from error
    except ValueError as error:
        raise BadInputError(f"--session-store: {error}") from error
