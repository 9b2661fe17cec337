"""A service's start: the ready line, which callers wait for, and a port that is not to be had."""

import ast
import asyncio
import importlib.util
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from aiohttp import web

from evalrun_runtime.connections.grpc_server import GrpcServer
from evalrun_runtime.exits import BadInputError, ExitCode
from evalrun_runtime.process import Service, run_service, serve_metrics
from evalrun_runtime.ready_line import parse_ready_line, ready_line
from evalrun_runtime.settings import ServiceSettings


class HttpService:
    """As the sandbox's HTTP server and the recorded completions listen."""

    def __init__(self, settings: ServiceSettings) -> None:
        self._settings = settings
        self._runner = web.AppRunner(web.Application())

    async def start(self) -> str:
        await self._runner.setup()
        await web.TCPSite(self._runner, self._settings.host, self._settings.port).start()
        return "http://"

    async def stop(self, grace: float) -> None:
        del grace
        await self._runner.cleanup()


class BrokenService(HttpService):
    async def start(self) -> str:
        raise FileNotFoundError(2, "No such file or directory", "ledger")


@pytest.fixture
def taken() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


def grpc_service(settings: ServiceSettings) -> Service:
    return GrpcServer(settings, [])


@pytest.mark.parametrize("build", [HttpService, grpc_service])
def test_a_taken_port_is_one_line_for_every_service(build: Callable[[ServiceSettings], Service], taken: int) -> None:
    settings = ServiceSettings(port=taken)
    with pytest.raises(BadInputError, match=rf"--port {taken}: cannot listen on 127\.0\.0\.1:{taken}: "):
        run_service("example", settings, lambda: build(settings))


def test_a_taken_port_for_metrics_is_named_as_that(taken: int) -> None:
    with pytest.raises(BadInputError, match=f"--metrics-port {taken}: cannot listen on"):
        serve_metrics(ServiceSettings(metrics_port=taken))


def test_error_at_the_start_other_than_a_taken_port_is_raised_unchanged() -> None:
    settings = ServiceSettings()
    with pytest.raises(FileNotFoundError):
        run_service("example", settings, lambda: BrokenService(settings))


class SlowService(HttpService):
    """Never comes up, and tells the process that runs it to end while it tries."""

    freed = False

    async def start(self) -> str:
        os.kill(os.getpid(), signal.SIGTERM)
        try:
            await asyncio.Event().wait()
        finally:
            self.freed = True
        return "never"


def test_service_signalled_during_its_start_ends_cleanly() -> None:
    settings = ServiceSettings()
    service = SlowService(settings)
    before = signal.getsignal(signal.SIGTERM)
    try:
        assert run_service("example", settings, lambda: service) == ExitCode.SUCCEEDED
    finally:
        signal.signal(signal.SIGTERM, before)
    assert service.freed


EARLY = """
from evalrun_runtime.early_signals import end_on_signal
end_on_signal()
print("handled", flush=True)
while True:
    try:
        import time
        time.sleep(60)
    except BaseException:
        pass  # as an import that swallows what is raised in it
"""


def test_signal_ends_a_process_during_its_imports() -> None:
    process = subprocess.Popen([sys.executable, "-c", EARLY], stdout=subprocess.PIPE)
    if process.stdout is None:
        raise RuntimeError("no pipe")
    assert process.stdout.readline() == b"handled\n"
    process.terminate()
    assert process.wait(timeout=10) == 0
    process.stdout.close()


@pytest.mark.parametrize(
    "module", ["evalrun_judge", "evalrun_aggregator", "evalrun_sandbox", "evalrun_sandbox.slot_proxy"]
)
def test_every_service_handles_signals_before_its_imports(module: str) -> None:
    source = Path(importlib.util.find_spec(f"{module}.__main__").origin)  # type: ignore[union-attr, arg-type]
    tree = ast.parse(source.read_text(encoding="utf-8"))
    ours = [node.module for node in tree.body if isinstance(node, ast.ImportFrom) and "evalrun" in str(node.module)]
    assert ours[0] == "evalrun_runtime.early_signals"
    (guard,) = (node for node in tree.body[:5] if isinstance(node, ast.If))
    assert "end_on_signal()" in ast.unparse(guard)


def test_the_ready_line_names_the_address() -> None:
    assert parse_ready_line(ready_line("sandbox", "http://127.0.0.1:80") + "\n") == "http://127.0.0.1:80"


def test_parse_ready_line_of_another_line_is_none() -> None:
    assert parse_ready_line("evalrun sandbox is not ready on anything yet") is None
