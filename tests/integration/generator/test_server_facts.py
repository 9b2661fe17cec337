"""What an endpoint says of its engine: /version as vLLM has it, /props as llama.cpp has it, both beside /v1."""

import hashlib

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from evalrun_generator.endpoints.base_url import base_url
from evalrun_generator.endpoints.endpoint import HttpEndpoint, open_session
from evalrun_generator.template_facts import MAX_TEMPLATE_CHARACTERS

TEMPLATE = "{% for message in messages %}{{ message.content }}{% endfor %}"
DIGEST = hashlib.sha256(TEMPLATE.encode()).hexdigest()
LONG = "x" * (MAX_TEMPLATE_CHARACTERS + 1)


async def facts(path: str, status: int, body: str) -> dict[str, str]:
    """Ask a server that answers on one path."""

    async def answer(request: web.Request) -> web.Response:
        return web.Response(status=status, text=body) if request.path == path else web.Response(status=404)

    app = web.Application()
    app.router.add_get("/{path:.*}", answer)
    async with TestServer(app) as server, open_session(None) as session:
        return await HttpEndpoint(session, base_url(f"{server.make_url('/v1')}"), "model").facts()


@pytest.mark.parametrize(
    ("status", "body", "version"),
    [
        (200, '{"version": "0.11.0"}', {"engine_version": "0.11.0"}),
        (200, '{"version": 11}', {}),
        (200, "[]", {}),
        (200, "<html>", {}),
        (404, '{"detail": "Not Found"}', {}),
        (500, '{"version": "0.11.0"}', {}),
    ],
)
async def test_server_version_is_read_if_reported(status: int, body: str, version: dict[str, str]) -> None:
    assert await facts("/version", status, body) == version


@pytest.mark.parametrize(
    ("status", "body", "found"),
    [
        (200, f'{{"chat_template": "{TEMPLATE}"}}', {"chat_template": TEMPLATE, "chat_template_sha256": DIGEST}),
        (
            200,
            f'{{"chat_template": "{LONG}"}}',
            {"chat_template_sha256": hashlib.sha256(LONG.encode()).hexdigest()},
        ),
        (200, '{"chat_template": null}', {}),
        (200, "[]", {}),
        (501, "", {}),
    ],
)
async def test_server_template_is_read_if_reported(status: int, body: str, found: dict[str, str]) -> None:
    assert await facts("/props", status, body) == found
