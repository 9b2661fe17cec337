"""Decides whether a replica is alive from its health and progress. Pure.

A crashed engine answers /health with 503 indefinitely while its actor stays alive. A hung engine still answers 200, so
only progress (a completion or a token) proves that it lives. Without progress, the replica is probed with a tiny
completion; if that probe fails too, the engine hangs. A busy replica is never probed: the probe would queue behind its
work.
"""

from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class ProbeLimits:
    """Time limits in seconds, and the tolerated failures."""

    quiet_seconds: float = 5.0
    """Time without progress after which a probe is sent."""
    hang_seconds: float = 60.0
    """Time without a reply to the probe and without progress after which the replica counts as hung."""
    failures: int = 2
    """Consecutive failed health checks after which the replica counts as dead."""


@dataclass(frozen=True, slots=True)
class VitalSigns:
    """Observations of a replica. Times are seconds of a monotonic clock."""

    progress_at: float
    answered: int = 0
    tokens: float | None = None
    """Tokens generated, as reported by the engine; None if it does not report them."""
    failures: int = 0
    error: str = ""
    asked_at: float | None = None
    """Time at which the pending probe was sent."""

    def apply_health(self, error: str | None) -> "VitalSigns":
        """Return the signs after a health check; `error` is None if it succeeded."""
        if error is None:
            return replace(self, failures=0, error="")
        return replace(self, failures=self.failures + 1, error=error)

    def apply_count(self, answered: int, tokens: float | None, now: float) -> "VitalSigns":
        """Return the signs after counting completions and tokens; any change is progress."""
        moved = answered != self.answered or (tokens is not None and tokens != self.tokens)
        known = self.tokens if tokens is None else tokens
        return replace(self, answered=answered, tokens=known, progress_at=now if moved else self.progress_at)

    def apply_asking(self, now: float) -> "VitalSigns":
        """Return the signs after a probe was sent."""
        return replace(self, asked_at=now)

    def apply_reply(self, error: str | None, now: float) -> "VitalSigns":
        """Return the signs after the probe's reply; a failed probe counts as a failed health check."""
        if error is None:
            return replace(self, asked_at=None, progress_at=now, failures=0, error="")
        return replace(self, asked_at=None, failures=self.failures + 1, error=error)


def should_ask(signs: VitalSigns, patience: ProbeLimits, now: float) -> bool:
    """Return whether to probe with a tiny completion now."""
    return signs.asked_at is None and now - signs.progress_at >= patience.quiet_seconds


def trouble(signs: VitalSigns, patience: ProbeLimits, now: float) -> str:
    """Return why the replica must be ended, or an empty text while it is healthy."""
    if signs.failures >= patience.failures:
        return f"dead: {signs.error}"
    if signs.asked_at is not None and now - max(signs.asked_at, signs.progress_at) >= patience.hang_seconds:
        return f"hung: no token and no answer to a tiny completion within {patience.hang_seconds:g} s"
    return ""
