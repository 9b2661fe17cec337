"""What an endpoint says of its engine's version: /version beside /v1, as vLLM has it."""

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from evalrun_generator.endpoints.base_url import base_url
from evalrun_generator.endpoints.endpoint import HttpEndpoint, open_session


@pytest.mark.parametrize(
    ("status", "body", "version"),
    [
        (200, '{"version": "0.11.0"}', "0.11.0"),
        (200, '{"version": 11}', ""),
        (200, "[]", ""),
        (200, "<html>", ""),
        (404, '{"detail": "Not Found"}', ""),
        (500, '{"version": "0.11.0"}', ""),
    ],
)
async def test_the_version_is_what_a_server_says_if_it_does(status: int, body: str, version: str) -> None:
    async def answer(request: web.Request) -> web.Response:
        assert request.path == "/version"
        return web.Response(status=status, text=body)

    app = web.Application()
    app.router.add_get("/{path:.*}", answer)
    async with TestServer(app) as server, open_session(None) as session:
        assert await HttpEndpoint(session, base_url(f"{server.make_url('/v1')}"), "model").version() == version
