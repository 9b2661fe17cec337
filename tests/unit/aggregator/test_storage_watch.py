"""A disk that stays full."""

import asyncio

import pytest
from builders.virtual_time import run_virtually

from evalrun_aggregator.ledger.errors import LedgerFullError
from evalrun_aggregator.storage_watch import StorageWatch


async def watched(full_from: float, full_until: float) -> float:
    """Return when the watch gives up; raise TimeoutError if it does not within an hour."""
    clock = asyncio.get_running_loop().time
    watch = StorageWatch(lambda: "disk full" if full_from <= clock() < full_until else None, 570, clock)
    async with asyncio.timeout(3600):
        with pytest.raises(LedgerFullError, match=r"disk full: there was no room for 10 minutes\. Free some"):
            await watch.run()
    return clock()


def test_run_ends_after_the_disk_was_full_for_the_limit() -> None:
    assert run_virtually(watched(100, 10_000)) == pytest.approx(670, abs=2)


def test_run_continues_if_room_is_made_in_time() -> None:
    with pytest.raises(TimeoutError):
        run_virtually(watched(100, 660))
