"""`evalrun view`: serves the page until it is stopped, or writes it as static files."""

import asyncio
import secrets
import signal
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import click
from aiohttp import web
from rich.console import Console

from evalrun_api.names import EVAL_RUN_PREFIX
from evalrun_cli.cluster.commands import find_run, run_on_cluster
from evalrun_cli.viewer.access import Access, AddressAccess, SharedAccess, SharedOptions
from evalrun_cli.viewer.server import Runs, build_app
from evalrun_cli.viewer.shown_runs import ShownRuns, add_running_runs, shown_runs
from evalrun_runtime.exits import BadInputError, ExitCode
from evalrun_runtime.settings import is_loopback

# The package needs the extra `cluster`.
if TYPE_CHECKING:
    from evalrun_cli.viewer.cluster_run import ClusterRunView
    from evalrun_cluster.runs import ClusterRuns

HOST: Final = "127.0.0.1"
_END_SECONDS: Final = 1.0
"""Maximum seconds for requests in progress when the page ends."""


@asynccontextmanager
async def cluster_views(
    stored: ShownRuns, cluster: "ClusterRuns", names: Sequence[str]
) -> "AsyncIterator[dict[str, ClusterRunView]]":
    """Yield the EvalRuns of these names. Raises BadInputError if a run does not exist."""
    # The import needs the extra `cluster`.
    from evalrun_cli.viewer.cluster_run import ClusterRunView

    loop = asyncio.get_running_loop()
    views = {
        name: ClusterRunView(
            cluster, await find_run(cluster, name), loop, stored.scratch, stored.builder, time.monotonic
        )
        for name in names
    }
    try:
        yield views
    finally:
        for view in views.values():
            view.close()
            await view.disconnect()


@asynccontextmanager
async def namespace_runs(stored: ShownRuns, cluster: "ClusterRuns") -> AsyncIterator[Runs]:
    """Yield the EvalRuns of the cluster's namespace that have not ended."""
    # The import needs the extra `cluster`.
    from evalrun_cli.viewer.namespace_runs import NamespaceRuns

    loop = asyncio.get_running_loop()
    # No run's id begins with a dot, so no run has this directory.
    scratch = stored.scratch / ".cluster"
    live = NamespaceRuns(cluster, loop, scratch, stored.builder, time.monotonic, stored.look_at_once)
    try:
        yield live
    finally:
        await live.close()


@dataclass(frozen=True)
class Listening:
    """Where the page is served, and to whom."""

    port: int = 0
    host: str = HOST
    shared: SharedOptions = field(default_factory=SharedOptions)

    def access(self, port: Callable[[], int]) -> Access:
        """Return the access to the page. Raises BadInputError if everybody or nobody could read it."""
        if is_loopback(self.host) and self.shared == SharedOptions():
            return AddressAccess(secrets.token_urlsafe(16), port)
        return SharedAccess.from_options(self.shared, time.time)

    @property
    def is_shared(self) -> bool:
        """Whether the page is served to other users."""
        return self.shared != SharedOptions()


def serve_view(places: Sequence[str], listening: Listening, namespace: str | None = None) -> ExitCode:
    """Serve the page of the runs in these places until the command is stopped.

    Args:
        places: directories, URLs, er/NAME for an EvalRun of the current cluster, or er/ for all that have not ended.
        listening: where the page is served, and to whom.
        namespace: namespace of the EvalRuns; None: the context's own.

    Raises:
        BadInputError: a place holds no run, the port is taken, or anyone could read the page.
    """
    in_cluster = [place.removeprefix(EVAL_RUN_PREFIX) for place in places if place.startswith(EVAL_RUN_PREFIX)]
    here = [place for place in places if not place.startswith(EVAL_RUN_PREFIX)]
    if namespace is not None and not in_cluster:
        raise BadInputError("--namespace: only for runs of a cluster: name one as er/NAME, or remove it")
    # Unusable options are refused before any place is read.
    listening.access(lambda: 0)
    with shown_runs(here, is_shared=listening.is_shared) as stored:
        # A shared page waits for runs, and shows which places it cannot read.
        if here and not listening.is_shared:
            stored.require_runs()
        if not in_cluster:
            asyncio.run(_serve(stored, listening))
            return ExitCode.SUCCEEDED

        async def work(cluster: "ClusterRuns", console: Console) -> ExitCode:
            async with AsyncExitStack() as opened:
                views = await opened.enter_async_context(cluster_views(stored, cluster, [*filter(None, in_cluster)]))
                all_running: Runs = dict
                if "" in in_cluster:
                    all_running = await opened.enter_async_context(namespace_runs(stored, cluster))
                await _serve(lambda: add_running_runs(stored(), {**all_running(), **views}), listening)
            return ExitCode.SUCCEEDED

        return run_on_cluster(namespace, work)


@asynccontextmanager
async def evalrun_page(cluster: "ClusterRuns", name: str) -> AsyncIterator[str]:
    """Serve the page of an EvalRun, and yield its address. Raises BadInputError if the EvalRun does not exist."""
    with shown_runs([]) as runs:
        async with cluster_views(runs, cluster, [name]) as views, page_served(lambda: views) as address:
            yield f"{address}#/run/{name}"


async def _serve(runs: Runs, listening: Listening) -> None:
    async with page_served(runs, listening) as address:
        ended = asyncio.Event()
        # Without a handler, SIGTERM would not end the first process of a container.
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, ended.set)
        click.echo(address)
        click.echo("Ctrl-C stops the page; runs go on.", err=True)
        await ended.wait()


@asynccontextmanager
async def page_served(runs: Runs, listening: Listening = Listening()) -> AsyncIterator[str]:
    """Serve the page of these runs, by default on loopback, and yield its address.

    Raises:
        BadInputError: the port is taken, or anyone could read the page.
    """
    bound = 0
    access = listening.access(lambda: bound)
    runner = web.AppRunner(build_app(runs, access), access_log=None, shutdown_timeout=_END_SECONDS)
    await runner.setup()
    try:
        site = web.TCPSite(runner, listening.host, listening.port)
        try:
            await site.start()
        except OSError as error:
            raise BadInputError(
                f"--port {listening.port}: {error.strerror}: name another port, or 0 for a free one"
            ) from error
        bound = runner.addresses[0][1]
        shown = f"[{listening.host}]" if ":" in listening.host else listening.host
        yield f"http://{shown}:{bound}{access.path}"
    finally:
        await runner.cleanup()
