"""Made-up aggregators, for load tests of the operator and for its own tests: no process, no network.

`python -m builders.operator.simulated_aggregators SECONDS[@DIRECTORY] FLAGS...` runs the operator with them. With a
directory the ledgers outlive the operator, and several operators see the same ones, as real ledgers would be seen.
"""

import sys
import time
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from urllib.parse import quote

from evalrun_operator.__main__ import main
from evalrun_operator.ledger_status import DatasetCounts, LedgerStatus, ReportedFigure, RunState
from evalrun_operator.resources.run_tokens import LedgerAccess

SIMULATED_OPERATOR = ("builders.operator.simulated_aggregators",)
"""The program of an `OperatorProcess`; the seconds follow."""
TOTAL = 164
ACCEPTED = 143


class SimulatedAggregators:
    """Every address has a ledger that fills in `seconds` from when it is first asked, and is judged in as many more.

    A restart of the operator starts over, unless there is a directory; the end is always the same.

    Args:
        seconds: how long generating takes, and judging.
        clock: seconds that only grow; Unix seconds with a directory.
        directory: keeps when each ledger was first asked.
    """

    def __init__(self, seconds: float, clock: Callable[[], float], directory: Path | None = None) -> None:
        self._seconds = seconds
        self._clock = clock
        self._folder = directory
        self._first: dict[str, float] = {}
        self.told_to_end: dict[str, str] = {}
        self.forgotten: deque[str] = deque(maxlen=100)

    async def status(self, address: str, access: LedgerAccess) -> LedgerStatus:
        del access
        if address not in self._first:
            self._first[address] = self._clock() if self._folder is None else _kept(self._folder, address)
        return simulated_status((self._clock() - self._first[address]) / self._seconds)

    async def end_run(self, address: str, access: LedgerAccess, reason: str) -> None:
        """Note who was told to end, and why."""
        del access
        self.told_to_end[address] = reason

    def forget(self, address: str) -> None:
        """Nothing is held open; the ledger stays as it is, where a directory keeps it."""
        self.forgotten.append(address)
        if self._folder is not None:
            self._first.pop(address, None)

    async def close(self) -> None:
        """Nothing is held open."""


def _kept(directory: Path, address: str) -> float:
    """Return when an address was first asked by any process, in Unix seconds."""
    file = directory / quote(address, safe="")
    if not file.exists():
        file.touch()
    return file.stat().st_mtime


def simulated_status(progress: float) -> LedgerStatus:
    """Return a ledger's status at a progress: 0 nothing, 1 all generated, 2 all judged."""
    generated = round(TOTAL * min(1.0, progress))
    judged = round(TOTAL * min(1.0, max(0.0, progress - 1.0)))
    ended = progress >= 2.0
    state = RunState.SUCCEEDED if ended else RunState.GENERATING if generated < TOTAL else RunState.JUDGING
    share = ACCEPTED / TOTAL
    counts = DatasetCounts(
        "humaneval",
        TOTAL,
        generated,
        judged,
        round(judged * share),
        0,
        ReportedFigure(share, 0.811, 0.914) if ended else None,
    )
    url = "s3://simulated/outputs" if ended else ""
    seconds = max(progress, 1e-3)
    return LedgerStatus(
        state, (counts,), generated * 120, url, generating_seconds=min(seconds, 1.0), working_seconds=seconds
    )


def run_operator(argv: Sequence[str]) -> int:
    """Run the operator with ledgers that fill in the seconds of the first argument; returns the exit code."""
    first, *flags = argv
    seconds, _, directory = first.partition("@")
    if directory:
        return main(flags, lambda: SimulatedAggregators(float(seconds), time.time, Path(directory)))
    return main(flags, lambda: SimulatedAggregators(float(seconds), time.monotonic))


if __name__ == "__main__":
    sys.exit(run_operator(sys.argv[1:]))
