"""Tracks the open requests of a stream. The client may withdraw each without ending the stream."""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

Result = TypeVar("Result")


class WithdrawnError(Exception):
    """The client has withdrawn the request, and its work was stopped."""


class OpenRequests:
    """The open requests of a stream, by id."""

    def __init__(self) -> None:
        self._working: dict[str, asyncio.Task[object] | None] = {}
        self._withdrawn: set[str] = set()

    def expect(self, request_id: str) -> None:
        """Record a request that has been read; `work` follows."""
        self._working[request_id] = None

    def withdraw(self, request_id: str) -> None:
        """Stop the work for a request. Unknown and answered requests are ignored."""
        if request_id not in self._working:
            return
        self._withdrawn.add(request_id)
        task = self._working[request_id]
        if task is not None:
            task.cancel()

    async def work(self, request_id: str, work: Coroutine[Any, Any, Result]) -> Result:
        """Do the work for a request within the current task.

        Raises:
            WithdrawnError: the client withdrew it.
        """
        task = asyncio.current_task()
        try:
            # The request was withdrawn before this task started.
            if request_id in self._withdrawn:
                work.close()
                raise WithdrawnError
            self._working[request_id] = task
            return await work
        except asyncio.CancelledError:
            # If the client withdrew the request and the stream ended too, the stream's cancellation propagates.
            if request_id in self._withdrawn and task is not None and task.uncancel() == 0:
                raise WithdrawnError from None
            raise
        finally:
            self._working.pop(request_id, None)
            self._withdrawn.discard(request_id)
