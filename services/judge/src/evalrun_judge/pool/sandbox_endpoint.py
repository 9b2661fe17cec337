"""The state of a sandbox in the pool: how many requests the sandbox may get now. Pure: no clock, no waiting.

    lost  --admitted (it described itself)-->  usable  --unreachable, hung, or too many bad replies-->  lost

A sandbox that returns starts with a single request in flight, and each good reply doubles that number, up to its slots,
so that it is not flooded with everything that waits. Several gateways share a sandbox. When the sandbox replies that
its slots are taken, it names how many are free, and this gateway takes that number as its share. From then on the
number of allowed requests grows by 1 after as many good replies as it allows, like TCP's window.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass

from evalrun_judge.sandboxes import Backend, Sandbox, SandboxError, SandboxFailedError
from evalrun_runtime.backoff import backoff_seconds

FAILURES_TO_EJECT = 3
"""Bad replies in a row. A broken connection or a hung sandbox ejects at once, because asking again is cheap. So does
the first bad reply after a return: the first program is a trial (a circuit breaker's half-open state)."""

FIRST_PROBE_DELAY = 0.1
MAX_PROBE_DELAY = 5.0


@dataclass(slots=True, eq=False)
class SandboxEndpoint:
    """The state of a sandbox."""

    sandbox: Sandbox
    backend: Backend | None = None
    """The last description of the sandbox; None: it has not described itself yet."""
    usable: bool = False
    in_flight: int = 0
    allowed: int = 0
    """Requests that the sandbox may hold at once; at most its slots."""
    share: int | None = None
    """Limit when the sandbox last reported that it is full. `allowed` doubles below it, and grows by 1 from there on.
    None: the sandbox has never reported that."""
    successes: int = 0
    """Good replies since `allowed` last grew."""
    failures: int = 0
    """Bad replies in a row."""
    failed_probes: int = 0
    """Failed probes since the sandbox was lost."""
    proved: bool = True
    """Whether the sandbox has replied well since it was last taken into use."""
    relapses: int = 0
    """Times in a row that the sandbox described itself and was lost again without a good reply."""
    full: bool = False
    """Whether the sandbox reported that other gateways' programs hold all of its slots."""
    leaving: bool = False
    """Whether discovery no longer names the sandbox: it finishes its requests and gets no more."""

    @property
    def free(self) -> int:
        """Number of further requests that the sandbox may get."""
        return max(0, self.allowed - self.in_flight) if self.usable and not (self.full or self.leaving) else 0

    @property
    def load(self) -> float:
        """Used share of the sandbox's slots."""
        return self.in_flight / max(1, self.allowed)

    def admit(self, backend: Backend) -> None:
        """Take a sandbox that has described itself into use, with a slow start if it had been lost."""
        returning = self.backend is not None
        self.backend = backend
        self.allowed = 1 if returning else backend.info.slots
        self.usable, self.full, self.proved = True, False, not returning
        self.failures = self.failed_probes = 0

    def record_success(self) -> None:
        """Record a good reply, and allow more requests if the sandbox has room."""
        self.failures = self.relapses = 0
        self.proved = True
        self.successes += 1
        if self.backend is None or self.allowed >= self.backend.info.slots:
            return
        # Below the last known share the number doubles; from there on it grows by 1 per round of replies, as in TCP.
        if self.share is None or self.allowed < self.share:
            self.allowed = min(self.backend.info.slots, max(1, self.allowed * 2))
        elif self.successes >= self.allowed:
            self.allowed += 1
        else:
            return
        self.successes = 0

    def busy(self, free: int) -> None:
        """Record that the sandbox refused a request because it is full.

        The request stays in flight until it is released.
        """
        self.allowed = self.share = max(1, self.in_flight - 1 + free)
        self.successes = 0
        self.full = free == 0

    def record_failure(self, error: SandboxError) -> None:
        """Record a failure. It may make the sandbox unusable."""
        self.failures += 1
        if not self.usable:
            # This request was in flight when the sandbox was lost, so its failure is the same one.
            return
        if not isinstance(error, SandboxFailedError) or self.failures >= FAILURES_TO_EJECT or not self.proved:
            self.usable = False
            self.relapses = 0 if self.proved else self.relapses + 1

    @property
    def rest_seconds(self) -> float:
        """Seconds before the next probe of a sandbox that answers probes but no calls."""
        return 0.0 if self.relapses == 0 else _delay(self.relapses)

    def probe_failed(self) -> float:
        """Count a failed probe. Return the seconds before the next probe."""
        self.failed_probes += 1
        return _delay(self.failed_probes)


def _delay(times: int) -> float:
    return backoff_seconds(times, FIRST_PROBE_DELAY, MAX_PROBE_DELAY)


def pick(
    endpoints: Sequence[SandboxEndpoint], avoid: SandboxEndpoint | None, randomness: random.Random
) -> SandboxEndpoint | None:
    """Choose the sandbox for a request, or None if no sandbox may get it.

    The less loaded of two random sandboxes gets the request. Gateways see only their own load, so the least loaded
    sandbox of all would attract every request that arrives at once (Mitzenmacher, "The Power of Two Choices in
    Randomized Load Balancing", 2001).

    Args:
        endpoints: all sandboxes.
        avoid: the sandbox that just failed the request. It is chosen only if no other has room, and, if it has failed
            everything since its return, only if no other is usable at all: it fails faster than others reply.
        randomness: draws the two.
    """
    free = [endpoint for endpoint in endpoints if endpoint.free > 0]
    others = [endpoint for endpoint in free if endpoint is not avoid]
    # Going back to a sandbox that relapses would burn the request's attempts, so the request waits for another sandbox.
    if not others and not (avoid is not None and avoid.relapses and any(e.usable for e in endpoints if e is not avoid)):
        others = free
    drawn = randomness.sample(others, 2) if len(others) > 2 else others
    if len(drawn) < 2:
        return drawn[0] if drawn else None
    if drawn[0].load == drawn[1].load:
        return randomness.choice(drawn)
    return min(drawn, key=lambda endpoint: endpoint.load)
