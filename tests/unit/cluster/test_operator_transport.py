"""lightkube's requests over aiohttp: a server of aiohttp's own answers on loopback."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import httpx2
import pytest
from aiohttp import web

from evalrun_cluster.aiohttp_transport import AiohttpTransport, find_proxy

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@asynccontextmanager
async def client_of(handler: Handler, patience: float = 5.0) -> AsyncIterator[tuple[httpx2.AsyncClient, str]]:
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", handler)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    host, port = runner.addresses[0][:2]
    try:
        async with httpx2.AsyncClient(transport=AiohttpTransport(), timeout=patience) as client:
            yield client, f"http://{host}:{port}"
    finally:
        await runner.cleanup()


async def echo(request: web.Request) -> web.StreamResponse:
    answer = {"method": request.method, "path": request.path_qs, "body": (await request.read()).decode()}
    response = web.json_response({**answer, "token": request.headers.get("Authorization", "")}, status=201)
    response.enable_compression(force=web.ContentCoding.gzip)
    return response


async def test_request_arrives_unchanged_and_a_gzip_answer_is_unpacked() -> None:
    async with client_of(echo) as (client, url):
        answer = await client.patch(
            f"{url}/apis/a%2Fb?labelSelector=x%3Dy,z", content=b"{}", headers={"Authorization": "Bearer mine"}
        )
    assert answer.status_code == 201
    assert answer.headers["content-encoding"] == "gzip"
    assert answer.json() == {
        "method": "PATCH", "path": "/apis/a%2Fb?labelSelector=x%3Dy,z", "body": "{}", "token": "Bearer mine",
    }  # fmt: skip


async def test_watch_yields_each_line_as_it_arrives() -> None:
    go_on = asyncio.Event()

    async def watch(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(b"one\n")
        await go_on.wait()
        await response.write(b"two\n")
        return response

    async with client_of(watch) as (client, url), client.stream("GET", f"{url}/pods?watch=true") as answer:
        lines = answer.aiter_lines()
        assert await anext(lines) == "one"
        go_on.set()
        assert [line async for line in lines] == ["two"]


async def test_a_watch_that_breaks_is_a_read_error() -> None:
    async def broken(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(b"one\n")
        if request.transport is not None:
            request.transport.abort()
        return response

    async with client_of(broken) as (client, url), client.stream("GET", f"{url}/pods?watch=true") as answer:
        with pytest.raises(httpx2.ReadError):
            await answer.aread()


async def test_timeouts_and_refused_connections_raise_httpx2_errors() -> None:
    released = asyncio.Event()

    async def never(request: web.Request) -> web.StreamResponse:
        await released.wait()
        return web.Response()

    async with client_of(never, patience=0.05) as (client, url):
        with pytest.raises(httpx2.ReadTimeout):
            await client.get(url)
        with pytest.raises(httpx2.ConnectError):
            await client.get("http://127.0.0.1:1/")
        released.set()


PROXY = "http://proxy.invalid:3128"


@pytest.mark.parametrize(
    ("server", "variables", "proxy"),
    [
        ("https://cluster.invalid:6443", {"https_proxy": PROXY}, PROXY),
        ("https://cluster.invalid:6443", {"https_proxy": "proxy.invalid:3128"}, PROXY),
        ("https://cluster.invalid:6443", {"all_proxy": PROXY}, PROXY),
        ("https://cluster.invalid:6443", {"http_proxy": PROXY}, None),
        ("https://cluster.invalid:6443", {}, None),
        ("https://cluster.invalid:6443", {"https_proxy": PROXY, "no_proxy": "other.invalid, cluster.invalid"}, None),
        ("https://cluster.invalid:6443", {"https_proxy": PROXY, "no_proxy": "cluster.invalid:6443"}, None),
        ("https://cluster.invalid:6443", {"https_proxy": PROXY, "no_proxy": "cluster.invalid:443"}, PROXY),
        ("https://a.cluster.invalid", {"https_proxy": PROXY, "no_proxy": ".cluster.invalid"}, None),
        ("https://a.cluster.invalid", {"https_proxy": PROXY, "no_proxy": "*.cluster.invalid"}, None),
        ("https://mycluster.invalid", {"https_proxy": PROXY, "no_proxy": "cluster.invalid"}, PROXY),
        ("https://10.1.2.3:6443", {"https_proxy": PROXY, "no_proxy": "10.0.0.0/8"}, None),
        ("https://10.1.2.3:6443", {"https_proxy": PROXY, "no_proxy": "10.96.0.0/12"}, PROXY),
        ("https://10.1.2.3:6443", {"https_proxy": PROXY, "no_proxy": "10.1.2.3:6443"}, None),
        ("https://10.1.2.3:6443", {"https_proxy": PROXY, "no_proxy": "https://10.1.2.3"}, None),
        ("https://[fd00::1]:6443", {"https_proxy": PROXY, "no_proxy": "fd00::/8"}, None),
        ("https://[fd00::1]:6443", {"https_proxy": PROXY, "no_proxy": "[fd00::1]:6443"}, None),
        ("https://10.1.2.3:6443", {"https_proxy": PROXY, "no_proxy": "a.invalid, *"}, None),
        ("https://10.1.2.3:6443", {"https_proxy": PROXY, "no_proxy": " , ,a:b:c"}, PROXY),
        ("https://10.1.2.3:6443", {"https_proxy": PROXY, "no_proxy": "10.1.2.3:port"}, PROXY),
    ],
)
def test_find_proxy_uses_the_environments_proxy_except_for_no_proxy_servers(
    monkeypatch: pytest.MonkeyPatch, server: str, variables: dict[str, str], proxy: str | None
) -> None:
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert find_proxy(server) == proxy
