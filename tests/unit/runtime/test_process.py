"""A service's start: the ready line, which callers wait for, and a port that is not to be had."""

import socket
from collections.abc import Callable, Iterator

import pytest
from aiohttp import web

from evalrun_runtime.exits import BadInputError
from evalrun_runtime.grpc_server import GrpcServer
from evalrun_runtime.process import Service, address_of, ready_line, run_service, serve_metrics
from evalrun_runtime.settings import ServiceSettings


class HttpService:
    """As the sandbox's front and the recorded completions listen."""

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


def test_other_trouble_at_the_start_is_not_the_ports() -> None:
    settings = ServiceSettings()
    with pytest.raises(FileNotFoundError):
        run_service("example", settings, lambda: BrokenService(settings))


def test_the_ready_line_names_the_address() -> None:
    assert address_of(ready_line("sandbox", "http://127.0.0.1:80") + "\n") == "http://127.0.0.1:80"


def test_other_lines_are_no_ready_lines() -> None:
    assert address_of("evalrun sandbox is not ready on anything yet") is None
