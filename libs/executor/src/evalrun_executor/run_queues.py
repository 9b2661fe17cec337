"""Measures for how long processes were ready to run and had no CPU."""

from collections.abc import Iterator, Mapping
from pathlib import Path

_NANOSECONDS = 1e9


class RunQueues:
    """Reads the kernel's statistics of its run queues.

    Args:
        proc: the kernel's `/proc`.
    """

    def __init__(self, proc: Path = Path("/proc")) -> None:
        self._proc = proc

    def read_waits(self, pid: int) -> dict[int, float]:
        """Return the seconds that each thread of a process and its descendants has waited for a CPU.

        Threads that have ended are missing, and so is all that this machine hides.
        """
        found: dict[int, float] = {}
        waiting = [pid]
        while waiting:
            for thread in self._list_threads(waiting.pop()):
                try:
                    # Seconds on a CPU, seconds in a run queue, turns: Documentation/scheduler/sched-stats.rst
                    found[int(thread.name)] = int((thread / "schedstat").read_text().split()[1]) / _NANOSECONDS
                    waiting += map(int, (thread / "children").read_text().split())
                except (OSError, IndexError):
                    # The thread has just ended, or the kernel was built without these statistics.
                    continue
        return found

    def _list_threads(self, pid: int) -> Iterator[Path]:
        try:
            yield from (self._proc / str(pid) / "task").iterdir()
        except OSError:
            # The process has ended.
            return


class QueuedTime:
    """Adds up how long a process and its descendants waited for a CPU, including processes that have ended.

    Threads wait at the same time, so each look adds the longest wait of a thread, not the sum.
    """

    def __init__(self, queues: RunQueues, pid: int) -> None:
        self._queues = queues
        self._pid = pid
        self._waits: Mapping[int, float] = {}
        self.seconds = 0.0

    def look(self) -> None:
        """Add the longest wait since the last look. What a process waited after its last look is not known."""
        waits = self._queues.read_waits(self._pid)
        self.seconds += compute_growth(self._waits, waits)
        self._waits = waits


def compute_growth(before: Mapping[int, float], now: Mapping[int, float]) -> float:
    """Return by how many seconds the thread that waited most has waited since `before`. Pure.

    Threads wait at the same time: their sum would be longer than the clock says.
    """
    return max((seconds - before.get(thread, 0.0) for thread, seconds in now.items()), default=0.0)
