"""Admission of requests: a queue bounded in requests and in bytes, its depth and the age of its oldest.

Pure except for the clock it is given.
"""

import itertools
from collections import Counter
from collections.abc import Callable


class QueueFullError(Exception):
    """The queue already holds as many requests as it may."""

    def __init__(self, retry_after_seconds: float) -> None:
        super().__init__("the queue is full")
        self.retry_after_seconds = retry_after_seconds


class DrainingError(Exception):
    """The server is about to end and takes nothing new."""

    def __init__(self) -> None:
        super().__init__("the gateway is draining; send it to another one")


MIN_RETRY_SECONDS = 0.1
MAX_RETRY_SECONDS = 10.0

SMOOTHING = 0.1
"""Weight of the newest interval between two finished requests."""


OF_FREE = 4
"""A run may hold this many times what is free: alone 4/5 of it all, two runs 4/9 each, and so on. What runs leave free
is how a new one always gets in (Choudhury and Hahne, "Dynamic Queue Length Thresholds for Shared-Memory Packet
Switches", 1998)."""


class _Capacity:
    """A limited resource that runs share: places in the queue, or bytes."""

    def __init__(self, capacity: Callable[[], int]) -> None:
        self._capacity = capacity
        self._held: Counter[str] = Counter()
        self._taken = 0

    def has(self, run: str, amount: int) -> bool:
        """Return whether a run may take so much. What is more than all there is has room alone, or would never have."""
        free = self._capacity() - self._taken
        return self._held[run] < OF_FREE * free and (amount <= free or not self._taken)

    def take(self, run: str, amount: int) -> None:
        self._held[run] += amount
        self._taken += amount

    def give_back(self, run: str, amount: int) -> None:
        self._taken -= amount
        self._held[run] -= amount
        if not self._held[run]:
            del self._held[run]


class Ticket:
    """A request that was let in: waiting until `begin`, gone with `leave`."""

    def __init__(self, admission: "Admission", number: int, run: str, places: int, size: int, arrived: float) -> None:
        self._admission = admission
        self.number = number
        self.run = run
        self.places = places
        self.size = size
        self.arrived = arrived
        self.queue_seconds = 0.0

    def begin(self) -> None:
        """Mark the request's work as begun; further calls change nothing."""
        self._admission.begin(self)

    def leave(self) -> None:
        """Leave the queue: the request has its reply, or its caller is gone."""
        self._admission.leave(self)


class Admission:
    """Counts requests, and refuses requests for which their run has no room left."""

    def __init__(
        self,
        capacity: Callable[[], int],
        clock: Callable[[], float],
        on_begin: Callable[[float], None] = lambda seconds: None,
        *,
        max_bytes: int,
    ) -> None:
        """Start empty.

        Args:
            capacity: how many requests may be here at once, waiting or running.
            clock: seconds, monotonic.
            on_begin: called with a request's waiting seconds when the first work on it begins.
            max_bytes: maximum total size of all admitted requests.
        """
        self._places, self._bytes = _Capacity(capacity), _Capacity(lambda: max_bytes)
        self._clock = clock
        self._on_begin = on_begin
        self._numbers = itertools.count()
        self._waiting: dict[int, Ticket] = {}
        self._inside: set[int] = set()
        self._draining = False
        self._interval = MIN_RETRY_SECONDS
        self._last_finish: float | None = None

    @property
    def waiting(self) -> int:
        """Requests that no work has begun on."""
        return len(self._waiting)

    @property
    def inside(self) -> int:
        """Requests that are waiting or being judged."""
        return len(self._inside)

    @property
    def oldest_seconds(self) -> float:
        """Return the seconds that the request at the front has waited; 0 if none waits."""
        first = next(iter(self._waiting.values()), None)
        return 0.0 if first is None else self._clock() - first.arrived

    @property
    def draining(self) -> bool:
        """Nothing new is taken."""
        return self._draining

    def drain(self) -> None:
        """Refuse new requests from now on."""
        self._draining = True

    def enter(self, run: str = "", size: int = 0, places: int = 1) -> Ticket:
        """Admit a run's request that takes this many bytes and places. Raises QueueFullError or DrainingError."""
        if self._draining:
            raise DrainingError
        if not (self._places.has(run, places) and self._bytes.has(run, size)):
            # Once a tenth of the queue has gone, it is worth coming back.
            some = max(1, len(self._inside) // 10)
            raise QueueFullError(min(MAX_RETRY_SECONDS, max(MIN_RETRY_SECONDS, self._interval * some)))
        ticket = Ticket(self, next(self._numbers), run, places, size, self._clock())
        self._places.take(run, places)
        self._bytes.take(run, size)
        self._waiting[ticket.number] = ticket
        self._inside.add(ticket.number)
        return ticket

    def begin(self, ticket: Ticket) -> None:
        """See `Ticket.begin`."""
        if self._waiting.pop(ticket.number, None) is not None:
            ticket.queue_seconds = self._clock() - ticket.arrived
            self._on_begin(ticket.queue_seconds)

    def leave(self, ticket: Ticket) -> None:
        """See `Ticket.leave`."""
        self._waiting.pop(ticket.number, None)
        if ticket.number in self._inside:
            self._inside.discard(ticket.number)
            self._places.give_back(ticket.run, ticket.places)
            self._bytes.give_back(ticket.run, ticket.size)
        now = self._clock()
        if self._last_finish is not None:
            self._interval += SMOOTHING * (now - self._last_finish - self._interval)
        self._last_finish = now
