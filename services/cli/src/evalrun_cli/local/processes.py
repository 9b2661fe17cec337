"""Starts child processes, reads their addresses from their ready lines, and monitors, restarts and stops them."""

import asyncio
import logging
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

from evalrun_cli.local.forked_process import Fork, ForkedProcess, attach_child
from evalrun_runtime import late_arguments
from evalrun_runtime.backoff import backoff_seconds
from evalrun_runtime.exits import BadInputError, ExitCode
from evalrun_runtime.ready_line import parse_ready_line
from evalrun_runtime.service_environment import SERVICE_ENVIRONMENT

logger = logging.getLogger(__name__)

START_SECONDS = 60.0
"""The slowest start measured was 6 s, with both cores busy; a service that needs a minute is stuck."""

LAST_LINES = 20


class ServiceFailedError(Exception):
    """A service ended by itself and restarting did not help, or it never became ready."""


@dataclass(frozen=True)
class Restarts:
    """Maximum number of restarts of a service."""

    limit: int = 5
    """Number of ends within `window_seconds` after which the service is given up."""
    window_seconds: float = 60.0
    first_delay_seconds: float = 0.1

    def delay(self, ended_at: Sequence[float], now: float) -> float | None:
        """Return the seconds to wait before the next start, or None to give up.

        Args:
            ended_at: times of all ends, the last included; seconds of a monotonic clock.
            now: the time on the same clock.
        """
        recent = sum(1 for end in ended_at if now - end <= self.window_seconds)
        if recent > self.limit:
            return None
        return backoff_seconds(recent, self.first_delay_seconds)


@dataclass
class ServiceProcess:
    """A child process. A service keeps its port over restarts, so that its callers find it again."""

    name: str
    module: str
    arguments: Sequence[str]
    log: Path
    environment: Mapping[str, str] = field(default_factory=dict)
    has_port: bool = True
    """False: a job, which has no address and prints no ready line."""
    address: str = ""
    _process: asyncio.subprocess.Process | ForkedProcess | None = None
    _stdout: asyncio.Task[None] | None = None

    @property
    def pid(self) -> int | None:
        """The process's id; None before the first start."""
        return self._process.pid if self._process else None

    async def launch(self, forked: Fork | None = None) -> None:
        """Start the process before its arguments and log are known: it imports meanwhile, and `start` names them.

        Args:
            forked: the process, if it runs already; it waits for its arguments as an executed process does.
        """
        if forked is not None:
            self._process = await attach_child(forked)
            return
        await self._spawn([late_arguments.FLAG], asyncio.subprocess.PIPE, None)

    async def start(self, *, is_told_later: bool = False) -> None:
        """Start the service, unless it was launched, and wait until it is ready.

        Args:
            is_told_later: keep the stdin of the service open for `tell`.

        Raises:
            BadInputError: the service ended with the exit code for bad input; the message is the last line of its log.
            ServiceFailedError: the service ended otherwise, or was not ready in time.
        """
        port = self.address.rpartition(":")[2] or "0"
        arguments = [*self.arguments, "--exit-with-parent", *(["--port", port] if self.has_port else [])]
        with self.log.open("ab") as log:
            if self._process is None or self._process.stdin is None or self._process.returncode is not None:
                stdin = asyncio.subprocess.PIPE if is_told_later else asyncio.subprocess.DEVNULL
                await self._spawn(arguments, stdin, log)
            else:
                self._process.stdin.write(late_arguments.render_line(arguments, self.log))
                if not is_told_later:
                    # If the process had ended meanwhile, its stdout would show it below.
                    self._process.stdin.close()
        if not self.has_port:
            self._stdout = asyncio.create_task(self._drop_stdout())
            return
        try:
            async with asyncio.timeout(START_SECONDS):
                self.address = await self._read_address()
        except TimeoutError as error:
            await self.stop(0)
            raise ServiceFailedError(
                f"{self.name} was not ready after {START_SECONDS:.0f} s, see {self.log}"
            ) from error
        self._stdout = asyncio.create_task(self._drop_stdout())

    def tell(self, line: str) -> None:
        """Write a line to the stdin of the service, and close that stdin. Nothing happens if the process has ended."""
        stdin = self._require_process().stdin
        if stdin is not None:
            stdin.write(line.encode() + b"\n")
            stdin.close()

    async def _spawn(self, arguments: Sequence[str], stdin: int, stderr: BinaryIO | None) -> None:
        self._process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", self.module, *arguments),
            stdin=stdin,
            stdout=asyncio.subprocess.PIPE,
            stderr=stderr,
            env={**SERVICE_ENVIRONMENT, **os.environ, **self.environment},
            # Ctrl-C reaches only this process, which then ends the services in order.
            start_new_session=True,
        )

    async def _read_address(self) -> str:
        process = self._require_process()
        if process.stdout is None:
            raise ServiceFailedError(f"{self.name} has no stdout")
        while line := await process.stdout.readline():
            if address := parse_ready_line(line.decode(errors="replace")):
                return address
        raise self.failure(await process.wait())

    async def _drop_stdout(self) -> None:
        stdout = self._require_process().stdout
        while stdout is not None and await stdout.read(65536):
            pass

    async def wait(self) -> int:
        """Wait until the process ends and return its exit code, negative for a signal."""
        return await self._require_process().wait()

    async def stop(self, grace: float) -> None:
        """Ask the service to drain and exit. Kill it after `grace` seconds."""
        process = self._process
        if process is None or process.returncode is not None:
            return
        process.send_signal(signal.SIGTERM)
        try:
            async with asyncio.timeout(grace):
                await process.wait()
        except TimeoutError:
            process.kill()
            await process.wait()

    def failure(self, code: int) -> BadInputError | ServiceFailedError:
        """Return an error with the last line of the service's log."""
        lines = [line for line in self.log.read_text(errors="replace").splitlines()[-LAST_LINES:] if line.strip()]
        last = lines[-1].strip() if lines else "it said nothing"
        if code == ExitCode.BAD_INPUT:
            return BadInputError(last.removeprefix("evalrun: "))
        how = f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
        return ServiceFailedError(f"{self.name} {how}: {last} (log: {self.log})")

    def _require_process(self) -> asyncio.subprocess.Process | ForkedProcess:
        if self._process is None:
            raise ServiceFailedError(f"{self.name} was never started")
        return self._process


async def keep_running(service: ServiceProcess, restarts: Restarts) -> int:
    """Restart a service whenever it ends by itself, until cancelled.

    A job (without a port) is finished when it exits by itself; its exit code is returned. A job killed by a signal
    (e.g. by the OOM killer) is restarted like a service.

    Raises:
        BadInputError, ServiceFailedError: the service cannot be kept running.
    """
    loop = asyncio.get_running_loop()
    ended_at: list[float] = []
    while True:
        code = await service.wait()
        if not service.has_port and code >= 0:
            return code
        ended_at.append(loop.time())
        delay = restarts.delay(ended_at, loop.time())
        if delay is None or code == ExitCode.BAD_INPUT:
            raise service.failure(code)
        logger.warning("%s; restarting it", service.failure(code))
        await asyncio.sleep(delay)
        await service.start()
