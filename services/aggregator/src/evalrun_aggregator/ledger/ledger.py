"""The run's ledger: completions and verdicts are on disk before they are acknowledged.

A single thread writes. Everything that waits when it becomes free goes to disk in a single transaction with a sync
(group commit), and each caller is notified when its own part is durable. If the disk is full, nothing of the group is
stored and each caller gets `LedgerFullError`.
"""

import asyncio
import logging
import queue
import sqlite3
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self, TypeVar

from evalrun_aggregator.ledger.entries import (
    Exchange,
    StoredCompletion,
    StoredEvent,
    StoredReplica,
    StoredSample,
    StoredVerdict,
)
from evalrun_aggregator.ledger.errors import LedgerBrokenError, LedgerFullError, ledger_error
from evalrun_aggregator.ledger.place import LedgerLock, check_file_system
from evalrun_aggregator.ledger.store import LAST_ROW, LedgerReader, LedgerWriter

logger = logging.getLogger(__name__)

GROUP_LIMIT = 256
"""Batches that may share one commit: bounds the memory of a transaction and the wait of its first batch."""

ResultT = TypeVar("ResultT")


@dataclass
class _Change:
    # Any: each change has its own result type, which `_write` restores.
    apply: Callable[[LedgerWriter], Any]
    done: "asyncio.Future[Any]"
    result: Any = None


class Ledger:
    """A ledger file, owned by this process. Use from an event loop; `close` when done.

    Every writing method returns when its change is on disk, and raises:
        LedgerFullError: there was no room; nothing of the call was stored.
        LedgerBrokenError: the disk failed; the ledger takes no more changes.
    """

    def __init__(self, path: Path, *, max_pages: int | None = None) -> None:
        """Open or create the file. Blocking: call before serving.

        Args:
            path: the file; its directory is created.
            max_pages: pages of 4096 bytes beyond which the ledger counts as full; None: as much as the disk holds.

        Raises:
            BadInputError: a network file system, another process, a newer schema, or not a ledger.
            LedgerError: the disk failed or is full.
        """
        self.path = path = path.resolve()
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            check_file_system(path, Path("/proc/self/mountinfo").read_text(errors="replace"))
            self._lock = LedgerLock(path)
            self._lock.__enter__()
            try:
                self._writer = LedgerWriter(path, max_pages=max_pages)
                self.reader = LedgerReader(path)
            except BaseException:
                self._lock.__exit__(None, None, None)
                raise
        except (sqlite3.Error, OSError) as error:
            raise ledger_error(error, self.path) from error
        self._reads = ThreadPoolExecutor(1, thread_name_prefix="ledger-read")
        self._changes: queue.SimpleQueue[_Change | None] = queue.SimpleQueue()
        self._broken: LedgerBrokenError | None = None
        self._closed = False
        self._thread = threading.Thread(target=self._work, name="ledger-write", daemon=True)
        self._thread.start()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_error: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Write what is waiting to disk, and release the file."""
        if self._closed:
            return
        self._closed = True
        self._changes.put(None)
        await asyncio.to_thread(self._thread.join)
        self._reads.shutdown()
        self.reader.close()
        self._writer.close()
        self._lock.__exit__(None, None, None)

    async def add_completions(self, completions: Sequence[StoredCompletion]) -> list[bool]:
        """Store completions; the first completion of a row wins. Return for each completion whether it was new."""
        return await self._write(lambda writer: writer.add_completions(completions))

    async def add_verdicts(self, verdicts: Sequence[StoredVerdict]) -> list[bool]:
        """Store a verdict per row; a verdict replaces "not judged". Return for each verdict whether it was stored."""
        return await self._write(lambda writer: writer.add_verdicts(verdicts))

    async def set_facts(self, **facts: str) -> None:
        """Write facts about the run."""
        await self._write(lambda writer: writer.set_facts(facts))

    async def record(self, event: StoredEvent, **facts: str) -> None:
        """Store an event with the facts that it changes, in one transaction."""

        def change(writer: LedgerWriter) -> None:
            writer.add_event(event)
            writer.set_facts(facts)

        await self._write(change)

    async def set_replicas(
        self, worker: str, replicas: Sequence[StoredReplica], gpu_seconds: Mapping[str, float]
    ) -> None:
        """Store a worker's last report about its replicas. `gpu_seconds`: by holder."""
        await self._write(lambda writer: writer.set_replicas(worker, replicas, gpu_seconds))

    async def found(self, problems: Sequence[tuple[str, str]], facts: dict[str, str]) -> None:
        """Write the run's problems and first facts, in one transaction."""

        def change(writer: LedgerWriter) -> None:
            writer.add_problems(problems)
            writer.set_facts(facts)

        await self._write(change)

    async def start_rejudging(self, facts: dict[str, str]) -> None:
        """Set the verdicts aside, and write facts, in one transaction."""

        def change(writer: LedgerWriter) -> None:
            writer.set_verdicts_aside()
            writer.set_facts(facts)

        await self._write(change)

    async def finish(self, facts: dict[str, str]) -> None:
        """Write the facts of a run's end and delete verdicts that were set aside, in one transaction."""

        def change(writer: LedgerWriter) -> None:
            writer.drop_earlier_verdicts()
            writer.set_facts(facts)

        await self._write(change)

    async def completions(self, rows: Sequence[int]) -> list[StoredCompletion]:
        """Read completions, in order of row."""
        loop = asyncio.get_running_loop()
        try:
            return await loop.run_in_executor(self._reads, self.reader.completions, rows)
        except sqlite3.Error as error:
            raise ledger_error(error, self.path) from error

    async def exchanges(self, first: int, end: int) -> list[Exchange]:
        """Read the completions of some rows of a sample with the feedback on each, in order of turn."""
        loop = asyncio.get_running_loop()
        try:
            return await loop.run_in_executor(self._reads, self.reader.exchanges, first, end)
        except sqlite3.Error as error:
            raise ledger_error(error, self.path) from error

    def samples(self, first: int = 0, end: int = LAST_ROW) -> Iterator[StoredSample]:
        """Read the completions of some rows with their verdicts, in order, one at a time. Blocking; for any thread."""
        reader = LedgerReader(self.path)
        try:
            yield from reader.samples(first, end)
        except sqlite3.Error as error:
            raise ledger_error(error, self.path) from error
        finally:
            reader.close()

    def replica_requests(self) -> Iterator[tuple[str, float, float]]:
        """Read (replica, started at, seconds) of each request, in order of time. Blocking; for any thread."""
        reader = LedgerReader(self.path)
        try:
            yield from reader.replica_requests()
        except sqlite3.Error as error:
            raise ledger_error(error, self.path) from error
        finally:
            reader.close()

    async def _write(self, change: Callable[[LedgerWriter], ResultT]) -> ResultT:
        if self._broken is not None or self._closed:
            raise self._broken or LedgerBrokenError("the ledger is closed")
        done: asyncio.Future[ResultT] = asyncio.get_running_loop().create_future()
        self._changes.put(_Change(change, done))
        return await done

    def _work(self) -> None:
        """Write groups until told to end. Runs in the writer's thread."""
        while (first := self._changes.get()) is not None:
            group, last = [first], False
            while len(group) < GROUP_LIMIT and not last:
                try:
                    following = self._changes.get_nowait()
                except queue.Empty:
                    break
                if following is None:
                    last = True
                else:
                    group.append(following)
            self._write_group(group)
            if last:
                break

    def _write_group(self, group: Sequence[_Change]) -> None:
        failure: LedgerFullError | LedgerBrokenError | None = self._broken
        if failure is None:
            try:
                self._writer.begin()
                for change in group:
                    change.result = change.apply(self._writer)
                self._writer.commit()
            except (sqlite3.Error, OSError) as error:
                failure = self._undo(error)
            # This is an internal error. No caller may be left waiting.
            except BaseException as error:
                self._broken = LedgerBrokenError(f"the ledger's writer failed: {error!r}")
                self._tell(group, self._broken)
                raise
        self._tell(group, failure)

    def _tell(self, group: Sequence[_Change], failure: Exception | None) -> None:
        for change in group:
            loop = change.done.get_loop()
            try:
                loop.call_soon_threadsafe(_settle, change, failure)
            # The loop has ended, so nobody waits any more.
            except RuntimeError:
                logger.debug("a change of the ledger was settled after the event loop had ended")

    def _undo(self, error: sqlite3.Error | OSError) -> LedgerFullError | LedgerBrokenError:
        """Roll back a failed group. Unless the disk is full, the ledger is broken then: after a failed sync the
        kernel may have dropped pages, so a retry would acknowledge data that is not on disk."""
        failure = ledger_error(error, self.path)
        try:
            self._writer.rollback()
        except sqlite3.Error as second:
            failure = LedgerBrokenError(f"{failure}; rolling back failed too: {second}")
        if isinstance(failure, LedgerFullError):
            return failure
        self._broken = failure if isinstance(failure, LedgerBrokenError) else LedgerBrokenError(str(failure))
        logger.error("%s", self._broken)
        return self._broken


def _settle(change: _Change, failure: Exception | None) -> None:
    # The caller was cancelled.
    if change.done.done():
        return
    if failure is None:
        change.done.set_result(change.result)
    else:
        change.done.set_exception(failure)
