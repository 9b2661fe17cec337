"""Work items, a ledger behind gRPC that can go away and come back, and the generator's real processes."""

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import grpc

from evalrun_generator.ledger.fake_ledger import FakeLedger, FakeLedgerService
from evalrun_generator.recorded.__main__ import load_source
from evalrun_generator.recorded.server import RecordedServer
from evalrun_generator.recorded.settings import RecordedSettings
from evalrun_proto.ledger.v1 import ledger_pb2 as ledger
from evalrun_proto.ledger.v1 import ledger_pb2_grpc as ledger_grpc
from evalrun_runtime.connections.bearer_tokens import BearerTokens
from evalrun_runtime.connections.grpc_server import TokenCheck, server_credentials
from evalrun_runtime.connections.tls_files import TlsFiles
from evalrun_runtime.ready_line import parse_ready_line
from evalrun_runtime.settings import load_settings


def work_item(
    problem: str = "p/0",
    *,
    prompt: str | None = None,
    sample: int = 0,
    chat: bool = True,
    seed: int | None = None,
    max_tokens: int = 64,
    temperature: float = 0.0,
) -> ledger.WorkItem:
    """Make a work item; its prompt names its problem unless given."""
    sampling = ledger.Sampling(temperature=temperature, top_p=1.0, max_tokens=max_tokens)
    if seed is not None:
        sampling.seed = seed
    return ledger.WorkItem(
        key=ledger.WorkKey(dataset="ds", problem_id=problem, sample=sample),
        messages=[ledger.ChatMessage(role="user", content=f"solve {problem}" if prompt is None else prompt)],
        format=ledger.PROMPT_FORMAT_CHAT if chat else ledger.PROMPT_FORMAT_COMPLETION,
        sampling=sampling,
    )


def work_items(count: int) -> list[ledger.WorkItem]:
    return [work_item(f"p/{index}") for index in range(count)]


class LedgerServer:
    """A ledger behind gRPC on a port of its own; what it holds survives `stop`, as a disk would."""

    def __init__(self, items: Sequence[ledger.WorkItem], token: str | None = None, tls: Path | None = None) -> None:
        self.fake = FakeLedger(items)
        self.service = FakeLedgerService(self.fake)
        self.port = 0
        self._interceptors = [] if token is None else [TokenCheck(BearerTokens(token))]
        self._tls = TlsFiles.load(tls)
        self._server: grpc.aio.Server | None = None

    @property
    def address(self) -> str:
        return f"grpc://127.0.0.1:{self.port}"

    async def start(self) -> None:
        self._server = grpc.aio.server(interceptors=self._interceptors, options=[("grpc.so_reuseport", 0)])
        ledger_grpc.add_LedgerServiceServicer_to_server(self.service, self._server)
        address = f"127.0.0.1:{self.port}"
        if self._tls is None:
            self.port = self._server.add_insecure_port(address)
        else:
            self.port = self._server.add_secure_port(address, server_credentials(self._tls))
        await self._server.start()

    async def stop(self) -> None:
        if self._server is not None:
            await self._server.stop(0)

    async def until_stored(self, count: int) -> None:
        """Wait until at least `count` completions are stored."""
        await self._until(lambda: len(self.fake.completions) >= count)

    async def until_in_flight(self, count: int) -> None:
        """Wait until a report says that `count` requests are in flight."""
        await self._until(lambda: any(sum(one.in_flight for one in report) >= count for report in self.fake.reports))

    async def _until(self, condition: Callable[[], bool]) -> None:
        while not condition():
            self.fake.changed.clear()
            await self.fake.changed.wait()


@asynccontextmanager
async def ledger_server(
    items: Sequence[ledger.WorkItem], token: str | None = None, tls: Path | None = None
) -> AsyncIterator[LedgerServer]:
    server = LedgerServer(items, token, tls)
    await server.start()
    try:
        yield server
    finally:
        await server.stop()


class Child:
    """A process of ours under test."""

    def __init__(self, process: asyncio.subprocess.Process, stderr: Path) -> None:
        self.process = process
        self.address = ""
        self._stderr = stderr

    @property
    def errors(self) -> str:
        return self._stderr.read_text()

    async def until_logged(self, text: str) -> None:
        while text not in self.errors:  # noqa: ASYNC110 - another process writes it: there is no event to wait for
            await asyncio.sleep(0.01)

    async def wait(self, seconds: float = 150) -> int:
        async with asyncio.timeout(seconds):
            return await self.process.wait()

    async def kill(self) -> None:
        self.process.kill()
        await self.process.wait()


async def until_in_flight(endpoint: str, count: int) -> None:
    """Ask an endpoint's /health until it says that so many requests are in flight."""
    async with aiohttp.ClientSession() as session:
        while True:
            async with session.get(f"{endpoint}/health") as health:
                if (await health.json())["in_flight"] >= count:
                    return


class Processes:
    """Starts children, and leaves none behind."""

    def __init__(self, directory: Path) -> None:
        self._folder = directory
        self._children: list[Child] = []
        self._servers: list[RecordedServer] = []

    async def recorded_here(self, *arguments: str) -> str:
        """Serve recorded completions in this process, which saves the start of one; gives the address."""
        settings = load_settings(RecordedSettings, arguments, program="evalrun serve recorded")
        server = RecordedServer(settings, load_source(settings))
        self._servers.append(server)
        return await server.start()

    async def start(self, module: str, arguments: Sequence[str], environment: Mapping[str, str] | None = None) -> Child:
        stderr = self._folder / f"{module}.{len(self._children)}.log"
        with stderr.open("wb") as log:
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                module,
                *arguments,
                "--exit-with-parent",
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=log,
                env={**os.environ, **(environment or {})},
            )
        child = Child(process, stderr)
        self._children.append(child)
        return child

    async def recorded(self, *arguments: str, environment: Mapping[str, str] | None = None) -> Child:
        """Start a recorded-completions endpoint and wait until it is ready."""
        child = await self.start("evalrun_generator.recorded", arguments, environment)
        if child.process.stdout is None:
            raise RuntimeError("started without a pipe")
        line = (await child.process.stdout.readline()).decode()
        address = parse_ready_line(line)
        if address is None:
            raise RuntimeError(f"not a ready line: {line!r}; stderr: {child.errors}")
        child.address = address
        return child

    async def generator(
        self,
        server: LedgerServer,
        endpoints: Sequence[str],
        *arguments: str,
        environment: Mapping[str, str] | None = None,
    ) -> Child:
        flags = ["--ledger", server.address, "--model", "recorded", *arguments]
        for endpoint in endpoints:
            flags += ["--endpoint", endpoint]
        return await self.start("evalrun_generator", flags, environment)

    async def stop(self) -> None:
        for server in self._servers:
            await server.stop(1)
        for child in self._children:
            if child.process.returncode is None:
                await child.kill()
            # Closes the pipe: an open transport is a ResourceWarning, which is an error.
            child.process._transport.close()  # type: ignore[attr-defined]  # no public way (python/cpython#88050)


@asynccontextmanager
async def processes(directory: Path) -> AsyncIterator[Processes]:
    started = Processes(directory)
    try:
        yield started
    finally:
        await started.stop()


def completion_body(text: str = "x", **changes: Any) -> bytes:
    """Make the body of a chat completion; `changes` replace its top-level fields."""
    body: dict[str, Any] = {
        "model": "model",
        "choices": [{"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 7, "completion_tokens": 3},
    }
    return json.dumps({**body, **changes}).encode()
