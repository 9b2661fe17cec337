"""Serves the page of runs in the test's own process, and directories of static files as any web server would."""

import mimetypes
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from aiohttp import web

from evalrun_cli.viewer.access import Access, AddressAccess
from evalrun_cli.viewer.cluster_run import ClusterRunView
from evalrun_cli.viewer.commands import cluster_views, namespace_runs
from evalrun_cli.viewer.server import Runs, build_app
from evalrun_cli.viewer.shown_runs import add_running_runs, shown_runs
from evalrun_cluster.runs import connect

TOKEN = "a-token"


@asynccontextmanager
async def view_served(*places: Path | str, port: int = 0) -> AsyncIterator[str]:
    """Give the address of the page of these runs. Another server may have had the port before."""
    with shown_runs([str(place) for place in places]) as runs:
        async with runs_served(runs, port) as address:
            yield address


@asynccontextmanager
async def runs_served(runs: Runs, port: int = 0) -> AsyncIterator[str]:
    """Give the address of the page of these runs."""
    access = AddressAccess(TOKEN, lambda: port)
    async with _listening(build_app(runs, access), port) as port:
        yield f"http://127.0.0.1:{port}{access.path}"


@asynccontextmanager
async def view_shared(access: Access, *places: Path | str) -> AsyncIterator[str]:
    """Give the address of the page of these runs as others reach it."""
    with shown_runs([str(place) for place in places], is_shared=True) as runs:
        async with served(build_app(runs, access)) as address:
            yield address


@asynccontextmanager
async def served(app: web.Application) -> AsyncIterator[str]:
    """Serve an application on loopback, and give its address."""
    async with _listening(app) as port:
        yield f"http://127.0.0.1:{port}/"


@asynccontextmanager
async def cluster_runs_viewed(*names: str) -> AsyncIterator[dict[str, ClusterRunView]]:
    """Give the views of these EvalRuns of KUBECONFIG's cluster."""
    cluster = connect(None)
    try:
        with shown_runs([]) as runs:
            async with cluster_views(runs, cluster, names) as views:
                yield views
    finally:
        await cluster.close()


@asynccontextmanager
async def namespace_viewed(*places: Path) -> AsyncIterator[Runs]:
    """Give the runs that go on in the namespace of KUBECONFIG's cluster, and those in these places."""
    cluster = connect(None)
    try:
        with shown_runs([str(place) for place in places]) as stored:
            async with namespace_runs(stored, cluster) as live:
                yield lambda: add_running_runs(stored(), live())
    finally:
        await cluster.close()


@asynccontextmanager
async def directory_served(directory: Path) -> AsyncIterator[str]:
    """Give the address of a directory of static files; ranges of them can be asked for."""

    async def file(request: web.Request) -> web.StreamResponse:
        path = directory / (request.match_info["path"] or "index.html")
        if not path.is_file():
            raise web.HTTPNotFound
        kind = mimetypes.guess_type(path.name)[0] or "application/octet-stream"
        return web.FileResponse(path, headers={"Content-Type": kind})

    app = web.Application()
    app.router.add_get("/site/{path:.*}", file)
    async with _listening(app) as port:
        yield f"http://127.0.0.1:{port}/site/"


@asynccontextmanager
async def _listening(app: web.Application, port: int = 0) -> AsyncIterator[int]:
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=1)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", port).start()
        yield runner.addresses[0][1]
    finally:
        await runner.cleanup()
