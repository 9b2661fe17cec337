"""The slot proxy as a process before a double of the stock server: who gets in, what passes, how it ends."""

import asyncio
import io
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from builders.tls_directories import TlsDirectory, authority

from evalrun_judge.sandboxes import SandboxUnreachableError
from evalrun_judge.sandboxes.fusion_http import FusionServer
from evalrun_runtime.connections.bearer_tokens import BearerTokens
from evalrun_runtime.connections.tls_files import TlsFiles
from evalrun_runtime.ready_line import parse_ready_line

SLOTS = 2
TOKEN = "s3cret-of-this-run"


class Held:
    """A server whose programs end when told to."""

    def __init__(self) -> None:
        self.arrived = asyncio.Semaphore(0)
        self.go = asyncio.Event()
        self.seen: list[tuple[str, dict[str, str], bytes]] = []
        self.running = 0

    async def run_code(self, request: web.Request) -> web.Response:
        self.seen.append((request.path, dict(request.headers), await request.read()))
        self.running += 1
        self.arrived.release()
        await self.go.wait()
        self.running -= 1
        return web.json_response({"status": "Success", "message": "é"}, status=200)


@asynccontextmanager
async def upstream(held: Held) -> AsyncIterator[str]:
    async def ping(_: web.Request) -> web.Response:
        return web.json_response("pong")

    async def fails(_: web.Request) -> web.Response:
        return web.json_response({"detail": "x", "traceback": ["y"]}, status=500)

    application = web.Application(client_max_size=1 << 30)
    application.router.add_get("/v1/ping", ping)
    application.router.add_get("/docs", ping)
    application.router.add_post("/run_code", held.run_code)
    application.router.add_post("/submit", fails)
    runner = web.AppRunner(application, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


@asynccontextmanager
async def proxy(server: str, *flags: str) -> AsyncIterator[tuple[str, subprocess.Popen[str]]]:
    process = subprocess.Popen(  # noqa: ASYNC220 - as quick as any
        [sys.executable, "-m", "evalrun_sandbox.slot_proxy", f"--slots={SLOTS}", f"--upstream={server}",
         "--exit-with-parent", "--log-level=warning", *flags],
        stdout=subprocess.PIPE, text=True, env={**os.environ, "EVALRUN_SANDBOX_TOKEN": TOKEN},
    )  # fmt: skip
    try:
        assert process.stdout is not None
        address = parse_ready_line(await asyncio.to_thread(process.stdout.readline))
        assert address is not None, "the proxy did not start: see its stderr"
        yield address, process
    finally:
        process.terminate()
        await asyncio.to_thread(process.communicate, timeout=60)


def session() -> aiohttp.ClientSession:
    return aiohttp.ClientSession(headers={"Authorization": f"Bearer {TOKEN}"})


async def json_of(client: aiohttp.ClientSession, method: str, url: str, **options: Any) -> tuple[int, Any]:
    async with client.request(method, url, **options) as answer:
        return answer.status, await answer.json()


async def test_proxy_admits_one_request_per_slot_and_a_disconnect_frees_no_slot() -> None:
    held = Held()
    async with upstream(held) as server, proxy(server) as (url, _), session() as client:
        body = b'{"code": "' + b"x" * 3_000_000 + b'"}'
        running = [
            asyncio.create_task(json_of(client, "POST", f"{url}/run_code", data=io.BytesIO(body))) for _ in range(SLOTS)
        ]
        for _ in running:
            await held.arrived.acquire()
        assert await json_of(client, "GET", f"{url}/v1/slots") == (200, {"slots": SLOTS, "free": 0})
        status, busy = await json_of(client, "POST", f"{url}/run_code", data=b"{}")
        assert (status, busy["free"], busy["retry_after_ms"]) == (429, 0, 100)
        running[0].cancel()  # the stock server goes on running that program
        await asyncio.gather(running[0], return_exceptions=True)
        assert (await json_of(client, "POST", f"{url}/run_code", data=b"{}"))[0] == 429
        assert held.running == SLOTS
        held.go.set()
        assert await running[1] == (200, {"status": "Success", "message": "é"})
        async with asyncio.timeout(60):
            while (await json_of(client, "GET", f"{url}/v1/slots"))[1]["free"] < SLOTS:
                pass
        assert (await json_of(client, "POST", f"{url}/run_code", data=b"{}"))[0] == 200
    assert [seen[2] for seen in held.seen[:SLOTS]] == [body] * SLOTS
    assert not any("Authorization" in headers for _, headers, _ in held.seen), "programs there could read the token"


async def test_proxy_passes_known_routes_and_refuses_other_routes_and_strangers() -> None:
    held = Held()
    async with upstream(held) as server, proxy(server) as (url, _), session() as client:
        assert await json_of(client, "GET", f"{url}/v1/ping") == (200, "pong")
        assert await json_of(client, "POST", f"{url}/submit", data=b"{}") == (500, {"detail": "x", "traceback": ["y"]})
        assert (await json_of(client, "GET", f"{url}/docs"))[0] == 404
        async with aiohttp.ClientSession() as stranger:
            assert (await json_of(stranger, "POST", f"{url}/run_code", data=b"{}"))[0] == 401
            assert (await json_of(stranger, "GET", f"{url}/v1/ping"))[0] == 200
    assert held.seen == []


async def test_proxy_without_its_server_is_unhealthy_and_loses_no_slot() -> None:
    async with proxy("http://127.0.0.1:1") as (url, _), session() as client:
        assert (await json_of(client, "GET", f"{url}/v1/ping"))[0] == 503
        for _ in range(SLOTS + 1):
            assert (await json_of(client, "POST", f"{url}/run_code", data=b"{}"))[0] == 502
        assert await json_of(client, "GET", f"{url}/v1/slots") == (200, {"slots": SLOTS, "free": SLOTS})


async def test_sigterm_answers_running_requests_first() -> None:
    held = Held()
    async with upstream(held) as server, proxy(server) as (url, process), session() as client:
        running = asyncio.create_task(json_of(client, "POST", f"{url}/run_code", data=b"{}"))
        await held.arrived.acquire()
        process.send_signal(signal.SIGTERM)
        async with aiohttp.ClientSession() as other, asyncio.timeout(60):
            while True:  # until it listens no more, or says that it ends
                try:
                    if (await json_of(other, "GET", f"{url}/v1/ping"))[0] == 503:
                        break
                except aiohttp.ClientError:
                    break
        held.go.set()
        assert (await running)[0] == 200
        assert await asyncio.to_thread(process.wait, 60) == 0


@pytest.mark.parametrize("flags", [["--upstream=ftp://x"], ["--slots=0"], ["--host=0.0.0.0"]])
def test_unusable_proxy_settings_are_refused_with_their_name(flags: list[str]) -> None:
    ended = subprocess.run(
        [sys.executable, "-m", "evalrun_sandbox.slot_proxy", *flags], capture_output=True, text=True, check=False
    )
    assert ended.returncode == 2
    assert flags[0].split("=")[0].lstrip("-") in ended.stderr


async def test_with_tls_only_the_gateways_certificate_gets_through_to_a_stock_server(tmp_path: Path) -> None:
    issued = authority()
    directory = TlsDirectory(tmp_path / "proxy").write("server", issued)
    gateway = TlsFiles(TlsDirectory(tmp_path / "gateway").write("gateway", issued))
    stranger = TlsFiles(TlsDirectory(tmp_path / "stranger").write("gateway", authority(), issued))
    held = Held()
    held.go.set()
    async with upstream(held) as server, proxy(server, f"--tls-folder={directory}") as (url, _):
        assert url.startswith("https://")
        for tls, name, answers in ((gateway, "sandbox.ns.svc", True), (gateway, "other.ns.svc", False),
                                   (stranger, "sandbox.ns.svc", False)):  # fmt: skip
            asked = FusionServer(url, BearerTokens(TOKEN), tls, name)
            try:
                if answers:
                    assert (await asked.call("POST", "/run_code", 30, b"{}"))[0] == 200
                else:
                    with pytest.raises(SandboxUnreachableError):
                        await asked.call("POST", "/run_code", 30, b"{}")
            finally:
                await asked.close()
    assert len(held.seen) == 1
