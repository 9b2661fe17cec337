"""The page of a run, or of a series, served from a thread beside the command that runs it (`evalrun run --view`)."""

import asyncio
import tempfile
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote

from evalrun_cli.viewer.commands import page_served
from evalrun_cli.viewer.run_catalog import free_id
from evalrun_cli.viewer.run_view import RunView
from evalrun_cli.viewer.server import Runs
from evalrun_cli.viewer.shown_runs import shown_runs
from evalrun_runtime.exits import BadInputError


@contextmanager
def run_page(directory: Path) -> Iterator[str]:
    """Serve the page of the run in a directory, and yield its address. The run may not have begun yet."""
    with tempfile.TemporaryDirectory(prefix="evalrun-view-") as scratch:
        builder = ThreadPoolExecutor(1, thread_name_prefix="index")
        run_id = free_id(str(directory))
        view = RunView(run_id, str(directory), Path(scratch), builder, time.monotonic)
        try:
            with _served_in_thread(lambda: {run_id: view}) as address:
                yield f"{address}#/run/{quote(run_id)}"
        finally:
            view.close()
            builder.shutdown(cancel_futures=True)


@contextmanager
def series_page(directory: Path) -> Iterator[str]:
    """Serve the page of the runs in a directory, with those that are added meanwhile, and yield its address."""
    with shown_runs([str(directory)]) as runs, _served_in_thread(runs) as address:
        yield f"{address}#/"


@contextmanager
def _served_in_thread(runs: Runs) -> Iterator[str]:
    page = _PageThread(runs)
    address = page.start()
    try:
        yield address
    finally:
        page.stop()


class _PageThread:
    """Serves the page in its own thread and event loop: the run's loop handles signals, and must not wait for it."""

    def __init__(self, runs: Runs) -> None:
        self._runs = runs
        self._started: Future[tuple[str, asyncio.AbstractEventLoop, asyncio.Event]] = Future()
        self._thread = threading.Thread(target=self._run, name="page", daemon=True)

    def start(self) -> str:
        """Return the address once the page is served. Raises BadInputError if no socket can be opened."""
        self._thread.start()
        return self._started.result()[0]

    def stop(self) -> None:
        """End the page."""
        _, loop, ended = self._started.result()
        loop.call_soon_threadsafe(ended.set)
        self._thread.join()

    def _run(self) -> None:
        try:
            asyncio.run(self._serve())
        # `start` raises the error in the caller's thread.
        except BadInputError as error:
            self._started.set_exception(error)

    async def _serve(self) -> None:
        ended = asyncio.Event()
        async with page_served(self._runs) as address:
            self._started.set_result((address, asyncio.get_running_loop(), ended))
            await ended.wait()
