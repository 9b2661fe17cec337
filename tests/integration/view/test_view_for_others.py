"""The page of `evalrun view` for others: who is let in, by token, session or proxy, and what a stranger learns."""

import asyncio
import logging
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest
from builders.results.stored_runs import samples_of, write_run
from builders.results.view_server import served, view_shared
from yarl import URL

from evalrun_cli.viewer.access import SESSION, SharedAccess, SharedOptions
from evalrun_cli.viewer.run_view import ShownRun
from evalrun_cli.viewer.server import build_app, web_files
from evalrun_runtime.connections.bearer_tokens import BearerTokens

TOKEN = "0123456789-0123456789"
HOST = {"Host": "evals.example.com"}
BEARER = {**HOST, "Authorization": f"Bearer {TOKEN}"}
DATA = "data/runs.json"


@pytest.fixture
async def address(tmp_path: Path) -> AsyncIterator[str]:
    write_run(tmp_path / "night", samples_of([(3, 1)]))
    access = SharedAccess(["evals.example.com"], BearerTokens(TOKEN), None, lambda: 0.0)
    async with view_shared(access, tmp_path) as address:
        yield address


@pytest.fixture
async def client() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession(cookie_jar=aiohttp.DummyCookieJar()) as session:
        yield session


async def status_of(client: aiohttp.ClientSession, url: str, headers: dict[str, str]) -> int:
    async with client.get(url, headers=headers) as answer:
        return answer.status


async def test_shared_page_bearer_of_the_token_reads_everything(address: str, client: aiohttp.ClientSession) -> None:
    for path in ("", "app/app.js", DATA, "data/night/run.json"):
        assert await status_of(client, address + path, BEARER) == 200, path
    async with client.get(address + "data/night/results.jsonl", headers={**BEARER, "Range": "bytes=1-10"}) as answer:
        assert (answer.status, await answer.read()) == (206, b'"dataset":')
        assert answer.headers["Content-Range"].startswith("bytes 1-10/")
        assert answer.headers["Cache-Control"] == "private, no-cache"


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Authorization": "Bearer wrong"},
        {"Authorization": TOKEN},
        {"Authorization": f"Basic {TOKEN}"},
        {"Authorization": f"Bearer {TOKEN} "[:-2]},
        {"Authorization": ""},
        {"Cookie": f"{SESSION}={TOKEN}"},
        {"Cookie": f"{SESSION}=99999999999.00"},
        {"X-Auth-Request-User": "ada"},
        {"X-Forwarded-User": "ada", "X-Forwarded-For": "127.0.0.1"},
    ],
)
async def test_shared_page_stranger_learns_nothing(
    address: str, client: aiohttp.ClientSession, headers: dict[str, str]
) -> None:
    own_files = [f"app/{name}" for name in web_files()]
    for path in (*own_files, DATA, "data/night/run.json", "data/night/results.jsonl", "data/other/run.json", "no"):
        async with client.get(address + path, headers=HOST | headers) as answer:
            assert answer.status == 401, path
            assert await answer.json() == {"error": "the session has ended: reload this page to log in"}
    async with client.get(address, headers=HOST | headers) as answer:
        assert answer.status == 401
        assert answer.headers["WWW-Authenticate"] == "Bearer"
        assert answer.headers["Content-Security-Policy"].startswith("default-src 'none'")
        assert "night" not in await answer.text()


async def test_shared_page_health_needs_no_token_and_tells_nothing(address: str, client: aiohttp.ClientSession) -> None:
    async with client.get(address + "healthz", headers={"Host": "10.1.2.3:8017"}) as answer:
        assert (answer.status, await answer.text()) == (200, "ok\n")


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("evals.example.com", 200),
        ("EVALS.example.com:443", 200),
        ("localhost:8017", 200),
        ("[::1]:8017", 200),
        ("hostile.invalid", 421),
        ("evals.example.com.hostile.invalid", 421),
        ("10.1.2.3", 421),
    ],
)
async def test_shared_page_foreign_host_name_is_refused_even_with_the_token(
    address: str, client: aiohttp.ClientSession, host: str, status: int
) -> None:
    assert await status_of(client, address, {**BEARER, "Host": host}) == status
    headers = {**BEARER, "Host": host, "X-Forwarded-Host": "evals.example.com"}
    assert await status_of(client, address + DATA, headers) == status


async def log_in(client: aiohttp.ClientSession, address: str, body: str) -> tuple[int, str]:
    headers = {**HOST, "Content-Type": "application/x-www-form-urlencoded"}
    async with client.post(address, data=body, headers=headers, allow_redirects=False) as answer:
        return answer.status, answer.headers.get("Set-Cookie", "")


async def test_login_opens_a_session_that_scripts_and_other_sites_cannot_use(
    address: str, client: aiohttp.ClientSession
) -> None:
    status, cookie = await log_in(client, address, f"token=+{TOKEN}%0A")
    assert status == 303
    session, *attributes = cookie.split("; ")
    assert set(attributes) >= {"HttpOnly", "Secure", "SameSite=Lax", "Path=/", "Max-Age=43200"}
    assert TOKEN not in cookie
    assert await status_of(client, address + DATA, {**HOST, "Cookie": session}) == 200
    wrong = {"Cookie": session, "Authorization": "Bearer wrong"}
    assert await status_of(client, address + DATA, HOST | wrong) == 401


@pytest.mark.parametrize(
    "body", ["", "token=", "token=wrong", f"other={TOKEN}", "token=%ff%00", "a=1&" * 900, f"token=x&token={TOKEN}"]
)
async def test_login_without_the_token_opens_no_session(address: str, client: aiohttp.ClientSession, body: str) -> None:
    assert await log_in(client, address, body) == (401, "")


async def test_login_form_that_is_too_large_and_other_writes_are_refused(
    address: str, client: aiohttp.ClientSession
) -> None:
    assert await log_in(client, address, f"token={TOKEN}&more=" + "x" * 5000) == (413, "")
    for method in ("POST", "PUT", "DELETE", "PATCH"):
        async with client.request(method, address + DATA, headers=BEARER) as answer:
            assert answer.status == 405
        async with client.request(method, address + DATA, headers=HOST) as answer:
            assert answer.status == 401


async def test_login_form_that_never_arrives_ends_with_408() -> None:
    access = SharedAccess((), BearerTokens(TOKEN), None, lambda: 0.0, form_seconds=0.0)
    async with served(build_app(dict, access)) as address:
        reader, writer = await asyncio.open_connection("127.0.0.1", URL(address).port)
        writer.write(b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\ntoken=")
        assert (await reader.readline()).startswith(b"HTTP/1.1 408 ")
        writer.close()


async def test_many_wrong_tokens_look_at_no_run_and_log_nothing(
    client: aiohttp.ClientSession, caplog: pytest.LogCaptureFixture
) -> None:
    looks = 0

    def runs() -> dict[str, ShownRun]:
        nonlocal looks
        looks += 1
        return {}

    access = SharedAccess(["evals.example.com"], BearerTokens(TOKEN), None, lambda: 0.0)
    with caplog.at_level(logging.DEBUG, "evalrun_cli"), caplog.at_level(logging.WARNING, "aiohttp"):
        async with served(build_app(runs, access)) as address:
            for number in range(200):
                guess = f"{number:021d}"
                assert await status_of(client, address + DATA, HOST | {"Authorization": f"Bearer {guess}"}) == 401
                assert await log_in(client, address, f"token={guess}") == (401, "")
                assert await status_of(client, address, HOST | {"Cookie": f"{SESSION}={number}.{guess}"}) == 401
            assert looks == 0
            assert await status_of(client, address + DATA, BEARER) == 200
            assert looks == 1
    assert caplog.records == []


@pytest.mark.parametrize(("networks", "status"), [(("127.0.0.0/8",), 200), (("10.0.3.0/24",), 401)])
async def test_trusted_header_counts_from_the_proxys_address_alone(
    tmp_path: Path, client: aiohttp.ClientSession, networks: tuple[str, ...], status: int
) -> None:
    options = SharedOptions(trusted_header="X-User", trusted_proxies=networks, allowed_hosts=("evals.example.com",))
    async with view_shared(SharedAccess.from_options(options, lambda: 0.0), tmp_path) as address:
        user = {**HOST, "X-User": "ada", "X-Forwarded-For": "10.0.3.7"}
        assert await status_of(client, address + DATA, user) == status
        assert await status_of(client, address + DATA, HOST) == 401
        assert await status_of(client, address + DATA, BEARER) == 401
        assert await log_in(client, address, f"token={TOKEN}") == (401, "")
        twice = [*HOST.items(), ("X-User", "mallory"), ("X-User", "ada")]
        async with client.get(address + DATA, headers=twice) as answer:
            assert answer.status == 401


@pytest.mark.timeout(180)
def test_command_serves_others_by_a_token_file_and_ends_by_sigterm(tmp_path: Path) -> None:
    (tmp_path / "runs").mkdir()  # none yet: a shared page waits for them
    file = tmp_path / "token"
    file.write_text(TOKEN)
    file.chmod(0o400)
    command = [sys.executable, "-m", "evalrun_cli", "view", str(tmp_path / "runs")]
    with subprocess.Popen([*command, "--token-file", str(file)], stdout=subprocess.PIPE, text=True) as process:
        if process.stdout is None:
            raise OSError("it has no output")
        line = process.stdout.readline()
        assert line.startswith("http://127.0.0.1:")
        assert line.endswith("/\n")
        assert TOKEN not in line
        os.kill(process.pid, signal.SIGTERM)
        assert process.wait(60) == 0
