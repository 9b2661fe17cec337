"""Time limits of requests, which adapt to how fast the servers have answered so far. Pure."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

LEARNT_ANSWERS: Final = 20
"""Answers after which the limit follows what the servers have shown: the first ones may compile kernels."""
SLACK: Final = 5.0
"""Times the slowest answer so far, taken to max_tokens: a server that gets busier is several times slower."""
LEAST_SECONDS: Final = 60.0
MAX_GROWTH: Final = 4.0
"""Times the limit that a request gets after its own timeouts: what takes longer than the limit is sent again."""


@dataclass(slots=True)
class RequestTimeout:
    """The limit of the next request.

    Until servers have answered `LEARNT_ANSWERS` times it is `start_limit`; then it falls to `SLACK` times the slowest
    answer, and never below `LEAST_SECONDS`. Each timeout of an item doubles its own limit.
    """

    start_limit: Callable[[int], float]
    """Maps max_tokens to seconds."""
    answers: int = 0
    slowest_seconds: float = 0.0
    slowest_per_token: float = 0.0

    def note_answer(self, seconds: float, output_tokens: int | None) -> None:
        """Take an answer's duration."""
        self.answers += 1
        self.slowest_seconds = max(self.slowest_seconds, seconds)
        if output_tokens:
            self.slowest_per_token = max(self.slowest_per_token, seconds / output_tokens)

    def limit(self, max_tokens: int, timeouts: int = 0) -> float:
        """Return the limit in seconds.

        Args:
            max_tokens: of the request.
            timeouts: of the same item so far.
        """
        allowed = self.start_limit(max_tokens)
        if self.answers >= LEARNT_ANSWERS:
            shown = SLACK * max(self.slowest_seconds, self.slowest_per_token * max_tokens)
            allowed = min(allowed, max(shown, LEAST_SECONDS))
        return allowed * min(2.0**timeouts, MAX_GROWTH)
