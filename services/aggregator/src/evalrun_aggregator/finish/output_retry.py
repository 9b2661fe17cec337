"""Pauses and repeats the writing of outputs while an object store refuses them."""

import threading
from collections.abc import Callable
from typing import Final

from evalrun_runtime.backoff import backoff_seconds

FIRST_PAUSE_SECONDS: Final = 1.0
MAX_PAUSE_SECONDS: Final = 60.0


class OutputRetry:
    """Decides whether sending outputs is tried again, and pauses the writer's thread until then.

    Args:
        max_seconds: time from the first failure to the last attempt.
        clock: seconds, monotonic.
        pause: sleeps for some seconds. Returns whether the process stops.
    """

    def __init__(
        self, max_seconds: float, clock: Callable[[], float], pause: Callable[[float], bool] | None = None
    ) -> None:
        self._max_seconds = max_seconds
        self._clock = clock
        self._stopped = threading.Event()
        self._pause = self._stopped.wait if pause is None else pause
        self._failures = 0
        self._first = 0.0
        self._trouble = ""

    @property
    def trouble(self) -> str:
        """The error of the last attempt, in one line; empty without an error."""
        return self._trouble

    def wait(self, problem: str) -> bool:
        """Pause after a failure. Return whether to try again: False if time is up or the process stops."""
        now = self._clock()
        if not self._failures:
            self._first = now
        self._failures += 1
        left = self._first + self._max_seconds - now
        if left <= 0:
            return False
        self._trouble = f"the outputs cannot be written yet: {problem}; tried again for up to {left / 60:.0f} minutes"
        return not self._pause(backoff_seconds(self._failures, FIRST_PAUSE_SECONDS, MAX_PAUSE_SECONDS))

    def stop(self) -> None:
        """End the pause."""
        self._stopped.set()
