"""Fails a run whose disk stays full, so that it does not wait forever."""

import asyncio
from collections.abc import Callable
from typing import Final

from evalrun_aggregator.ledger.errors import LedgerFullError

LOOK_SECONDS: Final = 1.0


class StorageWatch:
    """Watches how long the disk has been full.

    Args:
        trouble: returns the error while the disk is full; None if it is not.
        limit_seconds: maximum time for which the disk may be full.
        clock: seconds, monotonic.
    """

    def __init__(self, trouble: Callable[[], str | None], limit_seconds: float, clock: Callable[[], float]) -> None:
        self._trouble = trouble
        self._limit_seconds = limit_seconds
        self._clock = clock

    async def run(self) -> None:
        """Watch until cancelled. Raises LedgerFullError once the disk has been full for too long."""
        full_since: float | None = None
        while True:
            trouble, now = self._trouble(), self._clock()
            if trouble is None:
                full_since = None
            else:
                full_since = now if full_since is None else full_since
                if now - full_since >= self._limit_seconds:
                    waited = f"{(now - full_since) / 60:.0f} minutes"
                    raise LedgerFullError(f"{trouble}: there was no room for {waited}. Free some, then resume the run")
            await asyncio.sleep(LOOK_SECONDS)
