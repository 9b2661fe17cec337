"""`evalrun view`: serves the page until it is stopped, or writes it as static files."""

import asyncio
import secrets
import tempfile
import time
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click
from aiohttp import web
from rich.console import Console

from evalrun_api.names import EVAL_RUN_PREFIX
from evalrun_cli.cluster.commands import find_run, with_cluster
from evalrun_cli.viewer.run_catalog import find_runs
from evalrun_cli.viewer.run_view import RunView
from evalrun_cli.viewer.server import Runs, build_app
from evalrun_runtime.exits import BadInputError, ExitCode

if TYPE_CHECKING:  # needs the extra `cluster`
    from evalrun_cli.viewer.cluster_run import ClusterRunView
    from evalrun_cluster.runs import ClusterRuns

HOST: Final = "127.0.0.1"
_LOOK_SECONDS: Final = 1.0
"""Least time between two looks for new runs."""
_END_SECONDS: Final = 1.0
"""For requests that are being answered when the page ends."""


class ShownRuns:
    """The runs in some places, looked for again as time goes on."""

    def __init__(self, places: Sequence[str], scratch: Path, builder: ThreadPoolExecutor) -> None:
        self._places = places
        self._scratch = scratch
        self._builder = builder
        self._views: dict[str, RunView] = {}
        self._looked_at = float("-inf")

    def __call__(self) -> Mapping[str, RunView]:
        """Return the runs by id. One that is gone is no longer there."""
        if time.monotonic() - self._looked_at >= _LOOK_SECONDS:
            found = find_runs(self._places)
            kept = {view.place: view for view in self._views.values()}
            self._views = {
                run_id: kept.get(place) or RunView(run_id, place, self._scratch, self._builder, time.monotonic)
                for run_id, place in found.items()
            }
            self._looked_at = time.monotonic()
        return self._views

    @asynccontextmanager
    async def of_cluster(
        self, cluster: "ClusterRuns", names: Sequence[str]
    ) -> "AsyncIterator[dict[str, ClusterRunView]]":
        """Give the EvalRuns of these names. Raises BadInputError where one is not there."""
        from evalrun_cli.viewer.cluster_run import ClusterRunView  # needs the extra `cluster`

        loop = asyncio.get_running_loop()
        views = {
            name: ClusterRunView(
                cluster, await find_run(cluster, name), loop, self._scratch, self._builder, time.monotonic
            )
            for name in names
        }
        try:
            yield views
        finally:
            for view in views.values():
                view.close()
                await view.disconnect()


@contextmanager
def shown_runs(places: Sequence[str]) -> Iterator[ShownRuns]:
    """Give the runs in these places; what is kept of them for a while is removed at the end."""
    with tempfile.TemporaryDirectory(prefix="evalrun-view-") as scratch:
        builder = ThreadPoolExecutor(1, thread_name_prefix="index")
        try:
            yield ShownRuns(places, Path(scratch), builder)
        finally:
            builder.shutdown(cancel_futures=True)


def serve_view(places: Sequence[str], port: int, namespace: str | None = None) -> ExitCode:
    """Serve the page of the runs in these places on loopback until the command is stopped.

    Args:
        places: directories, URLs, or er/NAME for an EvalRun of the current cluster.
        port: to listen on; 0: any free one.
        namespace: of the EvalRuns; None: the context's own.

    Raises:
        BadInputError: a place holds no run, or the port is taken.
    """
    in_cluster = [place.removeprefix(EVAL_RUN_PREFIX) for place in places if place.startswith(EVAL_RUN_PREFIX)]
    here = [place for place in places if not place.startswith(EVAL_RUN_PREFIX)]
    if namespace is not None and not in_cluster:
        raise BadInputError("--namespace: only for runs of a cluster: name one as er/NAME, or remove it")
    with shown_runs(here) as runs:
        if here and not runs():
            raise BadInputError(f"{', '.join(here)}: no run here or in subdirectories: name a run's directory")
        if not in_cluster:
            asyncio.run(_serve(runs, port))
            return ExitCode.SUCCEEDED

        async def work(cluster: "ClusterRuns", console: Console) -> ExitCode:
            async with runs.of_cluster(cluster, in_cluster) as views:
                await _serve(lambda: {**views, **runs()}, port)
            return ExitCode.SUCCEEDED

        return with_cluster(namespace, work)


@asynccontextmanager
async def evalrun_page(cluster: "ClusterRuns", name: str) -> AsyncIterator[str]:
    """Serve the page of an EvalRun, and give its address. Raises BadInputError where it is not there."""
    with shown_runs([]) as runs:
        async with runs.of_cluster(cluster, [name]) as views, page_served(lambda: views, 0) as address:
            yield f"{address}#/run/{name}"


async def _serve(runs: Runs, port: int) -> None:
    async with page_served(runs, port) as address:
        click.echo(address)
        click.echo("Ctrl-C stops the page; runs go on.", err=True)
        await asyncio.Event().wait()


@asynccontextmanager
async def page_served(runs: Runs, port: int) -> AsyncIterator[str]:
    """Serve the page of these runs on loopback, and give its address.

    Raises:
        BadInputError: the port is taken.
    """
    token = secrets.token_urlsafe(16)
    bound = 0
    runner = web.AppRunner(build_app(runs, token, lambda: bound), access_log=None, shutdown_timeout=_END_SECONDS)
    await runner.setup()
    try:
        site = web.TCPSite(runner, HOST, port)
        try:
            await site.start()
        except OSError as error:
            raise BadInputError(f"--port {port}: {error.strerror}: name another port, or 0 for a free one") from error
        bound = runner.addresses[0][1]
        yield f"http://{HOST}:{bound}/{token}/"
    finally:
        await runner.cleanup()
