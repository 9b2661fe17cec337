"""Aggregators that are made up, for load tests of the operator and for its own tests: no process, no network."""

from collections.abc import Callable

from evalrun_operator.ledger_status import DatasetCounts, Figure, LedgerStatus, RunState

TOTAL = 164
ACCEPTED = 143


class SimulatedAggregators:
    """Every address has a ledger that fills in `seconds` from when it is first asked, and is judged in as many more.

    A restart of the operator begins anew; the end is always the same.

    Args:
        seconds: how long generating takes, and judging.
        clock: seconds that only grow.
    """

    def __init__(self, seconds: float, clock: Callable[[], float]) -> None:
        self._seconds = seconds
        self._clock = clock
        self._first: dict[str, float] = {}

    async def status(self, address: str, token: str) -> LedgerStatus:
        """Give how far the address's ledger is by now."""
        del token
        elapsed = self._clock() - self._first.setdefault(address, self._clock())
        return simulated_status(elapsed / self._seconds)

    async def forget(self, address: str) -> None:
        """Nothing is held open; the ledger stays as it is."""

    async def close(self) -> None:
        """Nothing is held open."""


def simulated_status(progress: float) -> LedgerStatus:
    """Give a ledger's status at a progress: 0 nothing, 1 all generated, 2 all judged."""
    generated = round(TOTAL * min(1.0, progress))
    judged = round(TOTAL * min(1.0, max(0.0, progress - 1.0)))
    ended = progress >= 2.0
    state = RunState.SUCCEEDED if ended else RunState.GENERATING if generated < TOTAL else RunState.JUDGING
    share = ACCEPTED / TOTAL
    counts = DatasetCounts(
        "humaneval", TOTAL, generated, judged, round(judged * share), 0, Figure(share, 0.811, 0.914) if ended else None
    )
    url = "s3://simulated/outputs" if ended else ""
    return LedgerStatus(state, (counts,), generated * 120, max(progress, 1e-3), url)
