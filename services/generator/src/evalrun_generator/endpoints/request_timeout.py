"""Time limits of requests, which adapt to how fast the servers have answered so far. Pure."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

LEARNT_ANSWERS: Final = 20
"""Replies after which the limit follows the observed times: the first requests may compile kernels."""
SLACK: Final = 5.0
"""Factor on the slowest time so far, extrapolated to max_tokens: a server that gets busier is several times slower."""
LEAST_SECONDS: Final = 60.0
MAX_GROWTH: Final = 4.0
"""Maximum factor on the limit of a request after its own timeouts: a request that exceeds the limit is sent again."""


@dataclass(slots=True)
class RequestTimeout:
    """The limit of the next request.

    Until servers have replied `LEARNT_ANSWERS` times it is `start_limit`; then it falls to `SLACK` times the slowest
    reply, and never below `LEAST_SECONDS`. Each timeout of an item doubles the item's own limit.
    """

    start_limit: Callable[[int], float]
    """Maps max_tokens to seconds."""
    answers: int = 0
    slowest_seconds: float = 0.0
    slowest_per_token: float = 0.0

    def note_answer(self, seconds: float, output_tokens: int | None) -> None:
        """Record the duration of a reply."""
        self.answers += 1
        self.slowest_seconds = max(self.slowest_seconds, seconds)
        if output_tokens:
            self.slowest_per_token = max(self.slowest_per_token, seconds / output_tokens)

    def limit(self, max_tokens: int, timeouts: int = 0) -> float:
        """Return the limit in seconds.

        Args:
            max_tokens: maximum tokens of the request.
            timeouts: earlier timeouts of the same item.
        """
        allowed = self.start_limit(max_tokens)
        if self.answers >= LEARNT_ANSWERS:
            shown = SLACK * max(self.slowest_seconds, self.slowest_per_token * max_tokens)
            allowed = min(allowed, max(shown, LEAST_SECONDS))
        return allowed * min(2.0**timeouts, MAX_GROWTH)
