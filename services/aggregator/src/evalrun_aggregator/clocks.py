"""Sources of time, passed to the code that needs them."""

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Clocks:
    """Sources of time."""

    now: Callable[[], float]
    """Unix seconds."""
    monotonic: Callable[[], float]
