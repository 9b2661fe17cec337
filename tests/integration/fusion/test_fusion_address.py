"""The address of a SandboxFusion server: how it may be written, and what a wrong one leads to at start."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from aiohttp import web
from builders.fusion.server import StockDouble, stock_double

from evalrun_cli.local.fusion_server import check_fusion_server
from evalrun_registry.fusion_routes import server_url
from evalrun_runtime.exits import BadInputError


@pytest.mark.parametrize(
    ("written", "address"),
    [
        ("http://localhost:8080", "http://localhost:8080"),
        ("http://localhost:8080/", "http://localhost:8080"),
        ("http://localhost:8080/run_code", "http://localhost:8080"),
        ("http://localhost:8080/run_code/", "http://localhost:8080"),
        ("https://host/sandbox/submit", "https://host/sandbox"),
        ("http://localhost:8080/v1/ping", "http://localhost:8080"),
        ("http://localhost:8080/elsewhere", "http://localhost:8080/elsewhere"),
    ],
)
def test_server_url_leaves_the_route_out(written: str, address: str) -> None:
    assert server_url(written) == address


@asynccontextmanager
async def server(routes: dict[str, int], body: str = "{}") -> AsyncIterator[str]:
    """Serve GET routes with these statuses; gives the URL."""

    async def answer(request: web.Request) -> web.Response:
        return web.Response(status=routes.get(request.path, 404), text=body)

    application = web.Application()
    application.router.add_get("/{path:.*}", answer)
    runner = web.AppRunner(application)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


@pytest.mark.parametrize("path", ["", "/run_code"])
async def test_check_fusion_server_that_answers_passes(path: str) -> None:
    async with stock_double(StockDouble()) as url:
        await check_fusion_server(url + path)


@pytest.mark.parametrize(
    ("routes", "is_there"),
    [
        ({"/health": 200, "/run_code": 405}, True),
        ({"/v1/ping": 503}, True),
        ({"/health": 200}, False),
        ({"/v1/ping": 200}, False),
        ({}, False),
    ],
)
async def test_check_fusion_server_refuses_other_servers(routes: dict[str, int], *, is_there: bool) -> None:
    async with server(routes) as url:
        if is_there:
            await check_fusion_server(url)
            return
        with pytest.raises(BadInputError, match=r"no SandboxFusion answers /v1/ping .*: write the address of"):
            await check_fusion_server(url)
