"""Decides which idle sessions end. Pure."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

Cause = Literal["expired", "memory", "threads", "ran", "ended", "gone"]
"""Reasons why a session was lost: unused, over a budget, running while it should be stopped, ended by its own code, or
its process or zygote is gone."""

MAX_IDLE_THREADS = 2000
"""Maximum threads of all idle sessions together, beside one each: the threads of a user are limited, see
`contained.limits`."""


@dataclass(frozen=True)
class Idle:
    """The properties of an idle session that the policy needs."""

    session: str
    since: float
    """Time when it became idle, by the monotonic clock."""
    memory_bytes: int
    extra_threads: int = 0


@dataclass(frozen=True)
class Budget:
    """Limits of idle sessions."""

    idle_seconds: float
    memory_bytes: int
    """Bytes of all idle sessions together."""


@dataclass(frozen=True)
class Ending:
    """A session that has to end, and why."""

    session: str
    cause: Cause
    reason: str


def to_end(idle: Sequence[Idle], budget: Budget, now: float) -> list[Ending]:
    """Return the sessions to end: expired sessions and, over a budget, the largest, oldest first among equals."""
    expired = [one for one in idle if now - one.since >= budget.idle_seconds]
    reason = f"nobody used it for {budget.idle_seconds:g} s"
    endings = [Ending(one.session, "expired", reason) for one in expired]
    left = [one for one in idle if now - one.since < budget.idle_seconds]
    limit = budget.memory_bytes >> 20
    for one in _excess(left, budget.memory_bytes, lambda one: one.memory_bytes):
        held = (
            f"idle sessions held more than {limit} MiB together, and this one held most: {one.memory_bytes >> 20} MiB"
        )
        endings.append(Ending(one.session, "memory", held))
        left.remove(one)
    for one in _excess(left, MAX_IDLE_THREADS, lambda one: one.extra_threads):
        kept = f"idle sessions kept more than {MAX_IDLE_THREADS} threads, and this one kept most: {one.extra_threads}"
        endings.append(Ending(one.session, "threads", kept))
    return endings


def _excess(idle: Sequence[Idle], budget: int, size: Callable[[Idle], int]) -> list[Idle]:
    """Return the sessions that must end so that the others keep within the budget."""
    total = sum(map(size, idle))
    excess: list[Idle] = []
    if total > budget:
        for one in sorted(idle, key=lambda one: (-size(one), one.since)):
            if total <= budget:
                break
            total -= size(one)
            excess.append(one)
    return excess
