"""A seeded sequence of faults that decides which requests fail and how. Pure except for its random state."""

import random
from collections.abc import Sequence
from enum import StrEnum


class Fault(StrEnum):
    """A kind of failure."""

    ERROR = "500"
    DROP = "drop"
    """The connection breaks without a reply, or halfway through a streamed reply."""
    BUSY = "429"
    """Status 429 with Retry-After."""
    HANG = "hang"
    """No reply comes, and the connection stays open."""


class Faults:
    """Draws a fault or none for each request, in order of arrival."""

    def __init__(self, rate: float, kinds: Sequence[Fault], seed: int) -> None:
        self._rate = rate
        self._kinds = kinds
        self._random = random.Random(seed)  # noqa: S311 - a repeatable sequence is the point

    def draw(self) -> Fault | None:
        """Return the next request's fault, or None if it is served."""
        if not self._rate or self._random.random() >= self._rate:
            return None
        return self._random.choice(self._kinds)
