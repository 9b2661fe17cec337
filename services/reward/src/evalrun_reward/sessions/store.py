"""Interface of session stores. Stores raise no other errors than those defined here.

StoreError
 +- StoreNeedsSuiteError    the suite that a new session names is not held: send it
"""

from typing import Protocol

from evalrun_reward.sessions.session import Session

KEPT_SECONDS = 600.0
"""Seconds for which a session with a reward is kept, for callers that ask again."""


class StoreError(Exception):
    """The store gives no answer now; nothing is known of the session."""


class StoreNeedsSuiteError(StoreError):
    """The store does not hold the suite that a session names."""


class SessionStore(Protocol):
    """Sessions by id. A change is durable when its call returns; an expired session is gone."""

    async def create(self, session: Session, suite: bytes | None) -> Session:
        """Store a new session and return it, or return the existing session of the same id.

        Args:
            session: the new session.
            suite: the session's encoded suite; None: the store must already hold it.

        Raises:
            TooManySessionsError: the maximum number of sessions is open.
            StoreNeedsSuiteError: `suite` is None, and the store does not hold the suite.
            StoreError: the store does not answer.
        """
        ...

    async def get(self, sid: str) -> Session | None:
        """Return a session, or None if it does not exist. Raises StoreError."""
        ...

    async def replace(self, session: Session) -> bool:
        """Replace the previous version of a session. Return False if the stored version is another one.

        Each change postpones the session's expiry. Raises StoreError.
        """
        ...

    async def suite(self, digest: bytes) -> bytes | None:
        """Return an encoded suite; None if it is not held. Raises StoreError."""
        ...

    async def close(self) -> None:
        """Free the store's resources."""
        ...
