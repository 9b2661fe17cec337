"""The state of a sandbox in the pool: how many requests it may get now. Pure: no clock, no waiting.

    lost  --admitted (it described itself)-->  usable  --unreachable, hung, or too many bad answers-->  lost

After it was lost it starts with a request in flight, and each good answer doubles that, up to its slots: a sandbox
that just came back is not met with everything that waits. A sandbox belongs to every gateway: where it answers that its
slots are taken, it names how many are free, and this gateway takes that for its share. From there on it asks for one
more each time that as many programs as it may have there were answered, as TCP does with its window.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass

from evalrun_judge.sandboxes import Backend, Sandbox, SandboxError, SandboxFailedError
from evalrun_runtime.backoff import backoff_seconds

FAILURES_TO_EJECT = 3
"""Bad answers in a row. A connection that breaks or a hung sandbox needs one only: asking it again is cheap. So does
one that has not answered well since it came back: its first program is a trial (a circuit breaker's half-open state).
"""

FIRST_PROBE_DELAY = 0.1
MAX_PROBE_DELAY = 5.0


@dataclass(slots=True, eq=False)
class SandboxEndpoint:
    """The state of a sandbox."""

    sandbox: Sandbox
    backend: Backend | None = None
    """As it last described itself; None: never yet."""
    usable: bool = False
    in_flight: int = 0
    allowed: int = 0
    """Requests that it may hold at once; at most its slots."""
    share: int | None = None
    """Limit when it last reported that it is full: doubled up to there, then raised by one. None if it never did."""
    successes: int = 0
    """Good answers since `allowed` last grew."""
    failures: int = 0
    """Bad answers in a row."""
    failed_probes: int = 0
    """Descriptions asked for in vain since it was lost."""
    proved: bool = True
    """It has answered well since it was last taken into use."""
    relapses: int = 0
    """Times in a row that it described itself and was lost again without one good answer."""
    full: bool = False
    """It said that no slot is free, by another gateway's programs."""
    leaving: bool = False
    """It is no longer among the sandboxes: it keeps what it has and gets nothing more."""

    @property
    def free(self) -> int:
        """Number of further requests that the sandbox may get."""
        return max(0, self.allowed - self.in_flight) if self.usable and not (self.full or self.leaving) else 0

    @property
    def load(self) -> float:
        """Used share of the sandbox's slots."""
        return self.in_flight / max(1, self.allowed)

    def admit(self, backend: Backend) -> None:
        """Record that it described itself: use it, with a slow start if it had been lost."""
        returning = self.backend is not None
        self.backend = backend
        self.allowed = 1 if returning else backend.info.slots
        self.usable, self.full, self.proved = True, False, not returning
        self.failures = self.failed_probes = 0

    def record_success(self) -> None:
        """Record a successful answer."""
        self.failures = self.relapses = 0
        self.proved = True
        self.successes += 1
        if self.backend is None or self.allowed >= self.backend.info.slots:
            return
        if self.share is None or self.allowed < self.share:
            self.allowed = min(self.backend.info.slots, max(1, self.allowed * 2))
        elif self.successes >= self.allowed:
            self.allowed += 1
        else:
            return
        self.successes = 0

    def busy(self, free: int) -> None:
        """Record that it refused a request for lack of slots, and how many are free; the request stays in flight."""
        self.allowed = self.share = max(1, self.in_flight - 1 + free)
        self.successes = 0
        self.full = free == 0

    def record_failure(self, error: SandboxError) -> None:
        """Record a failure, after which it may be lost."""
        self.failures += 1
        if not self.usable:
            return  # a request that was still in flight when it was lost
        if not isinstance(error, SandboxFailedError) or self.failures >= FAILURES_TO_EJECT or not self.proved:
            self.usable = False
            self.relapses = 0 if self.proved else self.relapses + 1

    @property
    def rest_seconds(self) -> float:
        """Seconds before the next probe of a sandbox that answers probes but no calls."""
        return 0.0 if self.relapses == 0 else _delay(self.relapses)

    def probe_failed(self) -> float:
        """Count a probe in vain; give the seconds until the next."""
        self.failed_probes += 1
        return _delay(self.failed_probes)


def _delay(times: int) -> float:
    return backoff_seconds(times, FIRST_PROBE_DELAY, MAX_PROBE_DELAY)


def pick(
    endpoints: Sequence[SandboxEndpoint], avoid: SandboxEndpoint | None, randomness: random.Random
) -> SandboxEndpoint | None:
    """Choose the sandbox for a request, or None if no sandbox may get it.

    The less loaded of two that are drawn: gateways see their own load only, and the least loaded of all would draw
    every request that arrives at once (Mitzenmacher, "The Power of Two Choices in Randomized Load Balancing", 2001).

    Args:
        endpoints: all of them.
        avoid: the one that just failed it: taken only where it is the only one with room, and where that is since it
            fails whatever it is given, quicker than others answer, only where there is no other at all.
        randomness: draws.
    """
    free = [endpoint for endpoint in endpoints if endpoint.free > 0]
    others = [endpoint for endpoint in free if endpoint is not avoid]
    if not others and not (avoid is not None and avoid.relapses and any(e.usable for e in endpoints if e is not avoid)):
        others = free
    drawn = randomness.sample(others, 2) if len(others) > 2 else others
    if len(drawn) < 2:
        return drawn[0] if drawn else None
    if drawn[0].load == drawn[1].load:
        return randomness.choice(drawn)
    return min(drawn, key=lambda endpoint: endpoint.load)
