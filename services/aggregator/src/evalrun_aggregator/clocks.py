"""Sources of time, passed to whatever needs one."""

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Clocks:
    """Sources of time."""

    now: Callable[[], float]
    """Unix seconds."""
    monotonic: Callable[[], float]
