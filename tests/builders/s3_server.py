"""A real S3 server (versitygw) over a directory, on a free port of loopback: an object is a file, a bucket a
directory."""

import asyncio
import signal
from dataclasses import dataclass, field
from pathlib import Path

from builders.cluster.controlplane import MissingBinariesError, find_binaries
from builders.ports import free_port
from builders.tools import missing

PROGRAM = "versitygw"
KEY = "first-key"
SECRET = "first-secret"


def find_program() -> Path:
    """Return versitygw, built if need be; skip the test, or fail it in CI, if there is none."""
    try:
        return find_binaries([PROGRAM])[PROGRAM]
    except MissingBinariesError as error:
        missing(str(error))


@dataclass
class S3Server:
    """The server's process. `start` again after `stop` keeps the port and the objects."""

    program: Path
    directory: Path
    """Its buckets."""
    log: Path
    port: int = field(default_factory=free_port)
    _process: asyncio.subprocess.Process | None = None

    def environment(self, key: str = KEY, secret: str = SECRET, port: int | None = None) -> dict[str, str]:
        """Return what a client needs: as a Secret of `output.credentialsSecretRef` holds it."""
        return {
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port or self.port}",
            "AWS_ACCESS_KEY_ID": key,
            "AWS_SECRET_ACCESS_KEY": secret,
            "AWS_DEFAULT_REGION": "us-east-1",
            "AWS_MAX_ATTEMPTS": "1",  # botocore's own attempts would hide what the tests wait to see
        }

    async def start(self, key: str = KEY, secret: str = SECRET) -> None:
        """Start it, with one account."""
        with self.log.open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                self.program, "--port", f"127.0.0.1:{self.port}", "--access", key, "--secret", secret,
                "posix", str(self.directory), stdout=log, stderr=log,
            )  # fmt: skip
        while True:  # until it listens; the test's time limit bounds it
            if self._process.returncode is not None:
                raise AssertionError(f"the S3 server ended: {self.log.read_text()[-2000:]}")
            try:
                _, writer = await asyncio.open_connection("127.0.0.1", self.port)
            except OSError:
                await asyncio.sleep(0.02)
                continue
            writer.close()
            await writer.wait_closed()
            return

    async def stop(self) -> None:
        if self._process is not None and self._process.returncode is None:
            self._process.send_signal(signal.SIGKILL)
            await self._process.wait()


class CuttingProxy:
    """Passes connections on to a port, and cuts each after some bytes from the client, while told to."""

    def __init__(self, port: int) -> None:
        self._target = port
        self._server: asyncio.Server | None = None
        self.cut_after: int | None = None
        self.cuts = 0

    async def start(self) -> int:
        """Listen; returns the port."""
        self._server = await asyncio.start_server(self._connected, "127.0.0.1", 0)
        port: int = self._server.sockets[0].getsockname()[1]
        return port

    async def stop(self) -> None:
        if self._server is not None:
            self._server.close()

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, onwards = await asyncio.open_connection("127.0.0.1", self._target)
        back = asyncio.create_task(_copy(there, writer))
        sent = 0
        while data := await reader.read(16384):
            sent += len(data)
            if self.cut_after is not None and sent > self.cut_after:
                self.cuts += 1
                break
            onwards.write(data)
            await onwards.drain()
        onwards.close()
        writer.close()
        await asyncio.wait([back])


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while data := await reader.read(16384):
            writer.write(data)
            await writer.drain()
    except ConnectionError:
        return  # cut
