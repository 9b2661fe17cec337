"""Whether a replica lives, from what it shows. Pure.

An engine that has crashed answers /health with 503 for ever while its actor stays alive. One that hangs still answers
200: only work that gets done shows that it lives. So what counts is progress, a completion or a token, and where none
is made, a tiny completion is asked for: where that is not answered either, the engine hangs. A busy replica is never
asked, because the question would wait behind its work.
"""

from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class Patience:
    """How much is borne, in seconds but for the last."""

    quiet_seconds: float = 5.0
    """Without progress for so long: ask."""
    hang_seconds: float = 60.0
    """A question that is not answered within, and no progress since it was asked: it hangs."""
    failures: int = 2
    """Failed health checks in a row: it is dead."""


@dataclass(frozen=True, slots=True)
class Signs:
    """What a replica has shown. Times are of one monotonic clock."""

    progress_at: float
    answered: int = 0
    tokens: float | None = None
    """Tokens that the engine says it has generated; None where it does not say."""
    failures: int = 0
    error: str = ""
    asked_at: float | None = None
    """When the question that is open was asked."""

    def after_health(self, error: str | None) -> "Signs":
        """Take note of a health check; None: it was well."""
        if error is None:
            return replace(self, failures=0, error="")
        return replace(self, failures=self.failures + 1, error=error)

    def after_count(self, answered: int, tokens: float | None, now: float) -> "Signs":
        """Take note of completions answered and tokens generated so far; any change is progress."""
        moved = answered != self.answered or (tokens is not None and tokens != self.tokens)
        known = self.tokens if tokens is None else tokens
        return replace(self, answered=answered, tokens=known, progress_at=now if moved else self.progress_at)

    def after_asking(self, now: float) -> "Signs":
        """Take note that a question was asked."""
        return replace(self, asked_at=now)

    def after_reply(self, error: str | None, now: float) -> "Signs":
        """Take note of the question's answer; a failed one counts like a failed health check."""
        if error is None:
            return replace(self, asked_at=None, progress_at=now, failures=0, error="")
        return replace(self, asked_at=None, failures=self.failures + 1, error=error)


def should_ask(signs: Signs, patience: Patience, now: float) -> bool:
    """Say whether to ask a tiny completion now."""
    return signs.asked_at is None and now - signs.progress_at >= patience.quiet_seconds


def trouble(signs: Signs, patience: Patience, now: float) -> str:
    """Say why the replica must go; empty while it is well."""
    if signs.failures >= patience.failures:
        return f"dead: {signs.error}"
    if signs.asked_at is not None and now - max(signs.asked_at, signs.progress_at) >= patience.hang_seconds:
        return f"hung: no token and no answer to a tiny completion within {patience.hang_seconds:g} s"
    return ""
