"""An event loop whose clock jumps to the next timer whenever nothing can go on: hours of waiting in milliseconds."""

import asyncio
import selectors
from collections.abc import Coroutine
from typing import Any, TypeVar

Result = TypeVar("Result")


class _NoWait(selectors.SelectSelector):
    """Adds what it is asked to wait to `now`; real files are looked at without waiting."""

    now = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(0)
        if not ready and timeout is None:
            raise RuntimeError("everything waits for something that no timer brings about")
        if not ready and timeout is not None:
            self.now += max(0.0, timeout)
        return ready


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    """Its `time` starts at 0."""

    def __init__(self) -> None:
        self._virtual = _NoWait()
        super().__init__(self._virtual)

    def time(self) -> float:
        return self._virtual.now


def run_virtually(work: Coroutine[Any, Any, Result]) -> Result:
    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        return runner.run(work)
