"""`evalrun run --view`: the page that a run serves of itself, in a real Chromium, and how a page heals."""

import asyncio
import sys
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from builders.browser import CHROMIUM, open_browser
from builders.results.samples import sample_result
from builders.results.stored_runs import write_run
from builders.results.view_server import view_served

pytestmark = [
    pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on the path: apt-get install chromium"),
    pytest.mark.timeout(240),
]

LOST = "(document.getElementById('lost')?.textContent ?? '')"


@asynccontextmanager
async def evalrun_started(*arguments: str | Path) -> AsyncIterator[asyncio.subprocess.Process]:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "evalrun_cli", *map(str, arguments), stdout=DEVNULL, stderr=PIPE
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def address_told_by(process: asyncio.subprocess.Process) -> str:
    assert process.stderr is not None
    async for line in process.stderr:
        _, found, address = line.decode().partition("page: ")
        if found:
            return address.strip()
    raise AssertionError("the command ended without an address")


async def test_run_with_view_serves_its_page_and_says_how_to_open_it_again(tmp_path: Path) -> None:
    command = ("run", "--endpoint", "builtin:demo", "--view", "--quiet", "--output", tmp_path / "night")
    async with evalrun_started(*command) as process, open_browser(tmp_path / "profile") as browser:
        address = await address_told_by(process)
        assert urlsplit(address).hostname == "127.0.0.1"
        await browser.open(address)
        await browser.until("/^running: \\d+ samples judged$/.test(document.getElementById('live')?.textContent)")
        assert process.stderr is not None
        said = (await process.stderr.read()).decode()
        assert await process.wait() == 0
        assert f"the page has ended; open it again with: evalrun view {tmp_path / 'night'}" in said
        await browser.until(f'{LOST} === "Not up to date: the page\'s server does not answer; trying again"')


async def test_lost_server_is_shown_and_the_page_recovers(tmp_path: Path) -> None:
    write_run(tmp_path / "night", [sample_result(f"set/{number}") for number in range(20)])
    async with open_browser(tmp_path / "profile") as browser:
        async with view_served(tmp_path) as address:
            await browser.open(address)
            await browser.until("document.querySelectorAll('tbody tr').length === 1")
        port = urlsplit(address).port
        await browser.until(f"{LOST}.includes('trying again')")
        assert await browser.run("document.querySelectorAll('tbody tr').length") == 1
        # A page that is opened meanwhile comes by itself.
        await browser.run("location.hash = '#/run/night'")
        await browser.until("document.querySelector('.notice[role=alert]')?.textContent.includes('trying again')")
        async with view_served(tmp_path, port=port or 0):
            await browser.until("document.querySelector('h1')?.textContent === 'night'")
            await browser.until(f"{LOST} === ''")
