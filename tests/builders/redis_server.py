"""A real redis-server on a free port of loopback, with nothing on disk."""

import asyncio
import shutil
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from builders.ports import free_port
from builders.tools import missing


def program() -> str:
    found = shutil.which("redis-server")
    if found is None:
        missing("no redis-server: install Debian's package redis-server")
    return found


class Server:
    def __init__(self, directory: Path) -> None:
        self.port = free_port()
        self.url = f"redis://127.0.0.1:{self.port}/0"
        self._folder = directory
        self.process: asyncio.subprocess.Process | None = None

    async def start(self) -> None:
        flags = ["--port", str(self.port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"]
        with (self._folder / "redis.log").open("ab") as log:
            self.process = await asyncio.create_subprocess_exec(
                program(), *flags, "--dir", str(self._folder), stdout=log, stderr=log
            )
        while True:
            try:
                _, writer = await asyncio.open_connection("127.0.0.1", self.port)
            except OSError:
                await asyncio.sleep(0.01)  # until it listens; the test's time limit bounds it
                continue
            writer.close()
            await writer.wait_closed()
            return

    def signal(self, number: signal.Signals) -> None:
        assert self.process is not None
        self.process.send_signal(number)

    async def stop(self) -> None:
        assert self.process is not None
        if self.process.returncode is None:
            self.process.kill()
        await self.process.wait()


@asynccontextmanager
async def redis_server(directory: Path) -> AsyncIterator[Server]:
    server = Server(directory)
    await server.start()
    try:
        yield server
    finally:
        await server.stop()
