"""Measures the machine's slowness: the CPU time of a fixed workload, relative to the least time that it ever took.

Neighbours inflate CPU time: they share caches, memory and, in a virtual machine, the core itself. On 2 virtual CPUs
with a load of 10 the same 2.1 ms of work took up to 5.3 ms of CPU.
"""

import statistics
import time
from collections.abc import Callable

FRESH_SECONDS = 60.0
"""Seconds for which a probe is valid for the next runs."""
_SAMPLES = 7
"""Samples per probe: about 20 ms in all, beside runs of seconds."""
_ITEMS = 10007


def work() -> int:
    """Do work like a program's: look-ups in a table that fills the nearest cache, arithmetic, a sort."""
    items = [(number * 7919) % _ITEMS for number in range(_ITEMS)]
    table: dict[int, int] = {}
    total = 0
    for item in items:
        table[item] = item
        total += table.get(item ^ 5, 0)
    items.sort()
    return total


class Machine:
    """The machine's slowness at the last probe. `probe` blocks for some 20 ms: call it in a thread.

    Args:
        cpu_clock: CPU seconds of the calling thread.
        clock: monotonic seconds.
    """

    def __init__(
        self, cpu_clock: Callable[[], float] = time.thread_time, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._cpu_clock = cpu_clock
        self._clock = clock
        self._best = float("inf")
        self._last = 1.0
        self._probed_at = -FRESH_SECONDS

    def probe(self) -> float:
        """Return how many times slower than at its best the machine is now."""
        samples = []
        for _ in range(_SAMPLES):
            began = self._cpu_clock()
            work()
            samples.append(self._cpu_clock() - began)
        self._best = min(self._best, *samples)
        self._last = max(1.0, statistics.median(samples) / self._best)
        self._probed_at = self._clock()
        return self._last

    @property
    def recent(self) -> float:
        """The last probe's slowness, or 1.0 if the probe is older than `FRESH_SECONDS`."""
        return self._last if self._clock() - self._probed_at < FRESH_SECONDS else 1.0
