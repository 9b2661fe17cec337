"""The life of a service process: start, say that it is ready, wait for SIGTERM, drain, end."""

import asyncio
import ctypes
import errno
import gc
import logging
import os
import signal
from collections.abc import Callable
from typing import Protocol

import uvloop

from evalrun_runtime.exits import BadInputError, ExitCode
from evalrun_runtime.logs import configure_logging
from evalrun_runtime.metrics_server import start_metrics_server
from evalrun_runtime.ready_line import ready_line
from evalrun_runtime.settings import ServiceSettings
from evalrun_runtime.tracing import start_tracing, stop_tracing

logger = logging.getLogger(__name__)

PR_SET_PDEATHSIG = 1

ADDRESS_ERRORS = frozenset({errno.EADDRINUSE, errno.EADDRNOTAVAIL})
"""Error numbers of an address that another process listens on, or that this machine does not have."""


class Service(Protocol):
    """Interface of a service for `run_service`."""

    async def start(self) -> str:
        """Start serving, and return the address as a URL, e.g. `http://127.0.0.1:8080` or `grpc://127.0.0.1:50051`."""
        ...

    async def stop(self, grace: float) -> None:
        """Accept no more requests, let those in flight end within `grace` seconds, and free everything."""
        ...


def run_service(name: str, settings: ServiceSettings, build: Callable[[], Service]) -> ExitCode:
    """Run a service until SIGTERM or SIGINT.

    Args:
        name: as printed in the ready line.
        settings: the service's own settings.
        build: makes the service; called inside the running loop.

    Raises:
        BadInputError: the port or the metrics port is taken, or the service refuses its settings.
    """
    configure_logging(settings.log_format, settings.log_level)
    if settings.exit_with_parent:
        die_with_parent()
    start_tracing(name)
    try:
        # uvloop: a tenth less CPU in the gateway and the sandbox's front than with asyncio's own loop
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            return runner.run(_serve(name, settings, build))
    finally:
        stop_tracing()


async def _serve(name: str, settings: ServiceSettings, build: Callable[[], Service]) -> ExitCode:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    service = build()
    try:
        address = await _start_service(service, stop)
    except OSError as error:
        raise _bind_error("--port", settings.host, settings.port, error) from error
    if address is None:
        logger.info("told to end before it could serve")
        return ExitCode.SUCCEEDED
    serve_metrics(settings)
    gc.freeze()
    print(ready_line(name, address), flush=True)  # noqa: T201 - the line that callers wait for
    await stop.wait()
    logger.info("draining")
    await service.stop(settings.drain_seconds)
    return ExitCode.SUCCEEDED


async def _start_service(service: Service, stop: asyncio.Event) -> str | None:
    """Start a service and return its address; None if a signal arrives first. `start` releases its resources then."""
    starting, stopping = asyncio.ensure_future(service.start()), asyncio.ensure_future(stop.wait())
    try:
        await asyncio.wait({starting, stopping}, return_when=asyncio.FIRST_COMPLETED)
        if starting.done():
            return starting.result()
        starting.cancel()
        await asyncio.wait({starting})
        return None
    finally:
        stopping.cancel()


def serve_metrics(settings: ServiceSettings) -> None:
    """Show this process's metrics on the port that the settings name, if any.

    Raises:
        BadInputError: the port is taken.
    """
    if settings.metrics_port is None:
        return
    try:
        start_metrics_server(settings.metrics_port, settings.host, settings.metrics_token_sha256)
    except OSError as error:
        raise _bind_error("--metrics-port", settings.host, settings.metrics_port, error) from error


def _bind_error(flag: str, host: str, port: int, error: OSError) -> Exception:
    """Return the error to raise. The errno decides whether the user must correct the address."""
    if error.errno not in ADDRESS_ERRORS:
        return error
    why = "another program does, or the address is not this machine's"
    return BadInputError(f"{flag} {port}: cannot listen on {host}:{port}: {why}: name another, or 0 for any free one")


def die_with_parent() -> None:
    """Ask the kernel to kill this process when its parent ends, even by SIGKILL."""
    parent = os.getppid()
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_PDEATHSIG)")
    # The parent ended before the request was made.
    if os.getppid() != parent:
        raise SystemExit(ExitCode.FAILED)
