"""The EvalRuns of a namespace that have not ended, as the page shows them: new runs appear, ended runs disappear."""

import asyncio
import threading
from collections.abc import Callable, Coroutine, Mapping
from concurrent.futures import CancelledError, Executor, Future
from pathlib import Path
from typing import TYPE_CHECKING, Any

from evalrun_api.names import EVAL_RUN_PREFIX
from evalrun_cli.cluster.run_view import is_complete
from evalrun_cli.viewer.cluster_run import LOOK_SECONDS, ClusterRunView
from evalrun_cli.viewer.run_catalog import free_id
from evalrun_cli.viewer.run_view import ShownRun
from evalrun_cli.viewer.shown_runs import UnreadablePlace
from evalrun_cluster.errors import UnreachableError
from evalrun_runtime.exits import BadInputError

# The package needs the extra `cluster`.
if TYPE_CHECKING:
    from evalrun_cluster.runs import ClusterRuns, ListedRuns


class NamespaceRuns:
    """The EvalRuns that have not ended. Called in several threads, while the server's event loop asks the cluster.

    Args:
        cluster: the runs of the namespace.
        loop: event loop of the requests to the cluster.
        scratch: directory for data fetched from the runs.
        builder: executor that builds indexes.
        clock: seconds, monotonic.
        on_end: called when a run is no longer listed or has ended, because its outputs may now be in a shown place.
    """

    def __init__(
        self,
        cluster: "ClusterRuns",
        loop: asyncio.AbstractEventLoop,
        scratch: Path,
        builder: Executor,
        clock: Callable[[], float],
        on_end: Callable[[], None],
    ) -> None:
        self._cluster = cluster
        self._loop = loop
        self._scratch = scratch
        self._builder = builder
        self._clock = clock
        self._on_end = on_end
        self._views: dict[str, ClusterRunView] = {}
        self._unreadable: dict[str, str] = {}
        self._problem = ""
        self._looked_at = float("-inf")
        self._lock = threading.Lock()
        self._asked: Future[ListedRuns] | None = None
        self._is_closed = False

    def __call__(self) -> Mapping[str, ShownRun]:
        """Return the runs as last listed, and an entry for each failure to read them. Does not wait for the cluster."""
        with self._lock:
            self._look()
            shown: dict[str, ShownRun] = {**self._views}
            for name, problem in self._unreadable.items():
                shown[name] = UnreadablePlace(name, f"EvalRun {self._cluster.namespace}/{name}", problem)
            if self._problem:
                run_id = free_id(f"runs-of-{self._cluster.namespace}", shown)
                shown[run_id] = UnreadablePlace(run_id, EVAL_RUN_PREFIX, self._problem)
            return shown

    async def close(self) -> None:
        """Close all connections. A thread may be waiting for this loop, so no lock is taken."""
        self._is_closed = True
        if (asked := self._asked) is not None:
            asked.cancel()
        for view in tuple(self._views.values()):
            await _close(view)

    def _look(self) -> None:
        if self._asked is not None and self._asked.done():
            asked, self._asked = self._asked, None
            try:
                self._take(asked.result())
                self._problem = ""
            except (UnreachableError, BadInputError) as error:
                self._problem = str(error)
            except CancelledError:
                self._problem = "the page is being closed"
        if self._asked is None and not self._is_closed and self._clock() - self._looked_at >= LOOK_SECONDS:
            self._looked_at = self._clock()
            self._asked = asyncio.run_coroutine_threadsafe(self._cluster.list_runs(), self._loop)

    def _take(self, found: "ListedRuns") -> None:
        self._unreadable = found.unreadable
        running = {run.metadata.name: run for run in found.runs if not is_complete(run)}
        for name in self._views.keys() - running.keys():
            self._start(_close(self._views.pop(name)))
            self._on_end()
        for name, run in running.items():
            if name in self._views:
                self._views[name].take(run)
            else:
                self._views[name] = ClusterRunView(
                    self._cluster, run, self._loop, self._scratch, self._builder, self._clock, follows=False
                )

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop)


async def _close(view: ClusterRunView) -> None:
    view.close()
    await view.disconnect()
