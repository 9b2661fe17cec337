"""Which requests fail, and how: a seeded sequence. Pure but for its own random state."""

import random
from collections.abc import Sequence
from enum import StrEnum


class Fault(StrEnum):
    """A way to fail."""

    ERROR = "500"
    DROP = "drop"
    """The connection breaks without an answer; halfway, where the answer is streamed."""
    BUSY = "429"
    """With Retry-After."""
    HANG = "hang"
    """No answer, and no end of the connection."""


class Faults:
    """Draws the fate of one request after the other; which request meets which fate depends on their order."""

    def __init__(self, rate: float, kinds: Sequence[Fault], seed: int) -> None:
        self._rate = rate
        self._kinds = kinds
        self._random = random.Random(seed)  # noqa: S311 - a repeatable sequence is the point

    def draw(self) -> Fault | None:
        """Give the next request's fault; None where it is served."""
        if not self._rate or self._random.random() >= self._rate:
            return None
        return self._random.choice(self._kinds)
