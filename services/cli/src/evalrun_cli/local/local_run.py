"""Runs the services as child processes on loopback, and follows a run on one machine to its end."""

import asyncio
import json
import logging
import shlex
import signal
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

import click
import grpc
from rich.console import Console

from evalrun_api.v1alpha1.model_servers import DEFAULT_CONCURRENT_REQUESTS
from evalrun_cli.clock import Clock, stopwatch
from evalrun_cli.gpu_host.part_times import PartTimes
from evalrun_cli.local.display import Display, make_display
from evalrun_cli.local.options import LocalOptions
from evalrun_cli.local.parts import JOBS, part, select_parts
from evalrun_cli.local.processes import Restarts, ServiceFailedError, ServiceProcess, keep_running
from evalrun_cli.local.run_session import RunOutcome, RunSession, StopSwitch
from evalrun_cli.local.workspace import Workspace, shown_path
from evalrun_cli.results_table import results_tables
from evalrun_cli.run_gate import apply_gate, gate_line
from evalrun_generator.gpu_host.session_directory import TIMES as HOST_TIMES
from evalrun_generator.gpu_host.session_directory import remove_abandoned
from evalrun_proto.ledger.v1 import ledger_pb2, ledger_pb2_grpc
from evalrun_runtime.connections.grpc_channel import open_channel
from evalrun_runtime.exits import BadInputError, ExitCode
from evalrun_runtime.late_arguments import ON_STDIN

logger = logging.getLogger(__name__)

MIN_POLL_SECONDS, MAX_POLL_SECONDS = 0.02, 0.2
POLL_SHARE = 0.05
"""Pause between two status requests, as a share of the run's time so far: the end of a short run is noticed soon, and a
long run is seldom polled."""
ENDPOINT_SECONDS = 15
"""Seconds for which an endpoint may be unreachable at first. A wrong URL should show within a minute."""
STOP_SECONDS = 20.0
"""Seconds for programs that are being judged at Ctrl-C: they may use their time limit before they are stopped."""
REQUEST_STOP_SECONDS = 60.0
"""Seconds for requests in flight at Ctrl-C to complete before they are given up."""
ROLLOUT_END_SECONDS = 25.0
"""Seconds for the end of replicas and their Ray, after the requests in flight."""
URGENT_STOP_SECONDS = {"generator": 0.5, "rollout": ROLLOUT_END_SECONDS, "aggregator": 0.7}
"""Seconds after a second Ctrl-C: completions that have arrived are stored, and parts that store nothing are killed at
once."""
STORAGE_SECONDS = 570
"""Seconds for which the disk may be full: less than the generator's patience, so that the cause is reported."""

START_STOP_SECONDS = 0.5
"""Seconds for a part that is still starting to end: it has judged nothing yet."""

END_STATES = {
    ledger_pb2.RUN_STATE_SUCCEEDED: ExitCode.SUCCEEDED,
    ledger_pb2.RUN_STATE_DEGRADED: ExitCode.DEGRADED,
    ledger_pb2.RUN_STATE_FAILED: ExitCode.FAILED,
}


BEING_STARTED = frozenset({grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.CANCELLED})
"""Codes of a call to a part that is ending or restarting: a draining server cancels requests that it has just read
(https://github.com/grpc/grpc/issues/41785)."""


@dataclass(frozen=True)
class CompletionSource:
    """Source of the completions."""

    endpoints: Sequence[str]
    model: str
    tokenizer: str
    """Place of the model's tokenizer, for endpoints that do not count tokens."""
    recorded: Sequence[str] = ()
    """Arguments of a recorded-completions server that is started as a further endpoint; empty without one."""
    concurrency: Mapping[str, int] = field(default_factory=dict)
    """Requests in flight per endpoint, if the spec limits them."""
    request_seconds: float | None = None
    """Timeout of a request; None: derived from its max_tokens."""
    host_flags: Sequence[str] = ()
    """Arguments of the process that starts replicas on this machine; empty: endpoints are used."""


class LocalRun:
    """Starts the parts in order of dependency, keeps them running, and follows the run."""

    def __init__(
        self,
        workspace: Workspace,
        options: LocalOptions,
        generation: CompletionSource | None,
        switch: StopSwitch | None = None,
        launched: Mapping[str, ServiceProcess] = MappingProxyType({}),
        clock: Clock | None = None,
    ) -> None:
        self._clock = clock or stopwatch()
        self._switch = switch or StopSwitch()
        self._workspace = workspace
        self._options = options
        self._generation = generation
        plays_back = generation is not None and bool(generation.recorded)
        self._launches = generation is not None and bool(generation.host_flags)
        names = select_parts(options, generates=generation is not None, plays_back=plays_back, launches=self._launches)
        self._not_needed = [service for name, service in launched.items() if name not in names]
        self._services = {name: launched.get(name) or part(name, workspace.logs) for name in names}
        for name, service in self._services.items():
            service.log = workspace.logs / f"{name}.log"
        self._stopped = asyncio.Event()
        self._urgent = asyncio.Event()
        self._open_requests = 0
        self._generates = generation is not None
        self._stop_seconds = START_STOP_SECONDS
        self._is_under_way = False
        self._part_times = PartTimes()
        self.problem = "it was stopped"
        """Reason why the run has no results, once it has ended without them."""
        self.stopped_by_user = False
        """Whether `evalrun ctl` ended the run with its results so far."""

    async def run(self, display: Display) -> ExitCode:
        """Run to the end.

        Raises:
            BadInputError: a part refuses its input.
            ServiceFailedError: a part cannot be kept running. The ledger is intact: the run can be resumed.
        """
        loop = asyncio.get_running_loop()
        # Python delivers signals only to the main thread.
        signals = (signal.SIGINT, signal.SIGTERM) if threading.current_thread() is threading.main_thread() else ()
        for number in signals:
            loop.add_signal_handler(number, self._interrupt, display)
        self._switch.connect(lambda: loop.call_soon_threadsafe(self._interrupt, display))
        starting = asyncio.create_task(self._start_all())
        stop = asyncio.create_task(self._stopped.wait())
        try:
            await asyncio.wait({starting, stop}, return_when=asyncio.FIRST_COMPLETED)
            if not starting.done():
                return ExitCode.STOPPED
            services, endpoints = starting.result()
            self._stop_seconds = STOP_SECONDS
            self._is_under_way = True
            return await self._follow_to_end(services, endpoints, display)
        except* (BadInputError, ServiceFailedError) as errors:
            raise errors.exceptions[0] from None
        finally:
            display.close()
            for task in (starting, stop):
                task.cancel()
            await asyncio.gather(starting, stop, return_exceptions=True)
            await self._stop_all()
            for number in signals:
                loop.remove_signal_handler(number)

    def times_line(self) -> str | None:
        """Return a line with the time of each phase, or None for a run that started no replicas."""
        if not self._launches:
            return None
        try:
            host = json.loads((self._workspace.logs / HOST_TIMES).read_bytes())
        # The file is missing if every completion was stored already.
        except (OSError, ValueError):
            host = {}
        return self._part_times.line(host, self._clock())

    def _interrupt(self, display: Display) -> None:
        """Stop the run and tell the user what it waits for. At the second call, stop without waiting."""
        if self._stopped.is_set():
            display.say("stopping now: what is stored stays")
            self._urgent.set()
            return
        display.say(explain_stop(self._open_requests, generates=self._generates) if self._is_under_way else "stopping")
        self._stopped.set()

    async def _stop_all(self) -> None:
        """End every part: during the run each part before the parts that it calls, otherwise all at once."""
        services = [*reversed(self._services.values())]
        if self._is_under_way:
            for service in services:
                await self._stop_gently(service)
        else:
            await asyncio.gather(*(service.stop(self._stop_seconds) for service in services))
        # The process that started Ray may have been killed.
        if self._launches:
            await asyncio.to_thread(remove_abandoned)

    async def _stop_gently(self, service: ServiceProcess) -> None:
        """End a part, at once after a second Ctrl-C."""
        seconds = self._stop_seconds
        if service.name in JOBS:
            seconds = REQUEST_STOP_SECONDS + (ROLLOUT_END_SECONDS if service.name == "rollout" else 0.0)
        stopping = asyncio.create_task(service.stop(seconds))
        urgent = asyncio.create_task(self._urgent.wait())
        await asyncio.wait({stopping, urgent}, return_when=asyncio.FIRST_COMPLETED)
        if not stopping.done():
            stopping.cancel()
            await asyncio.gather(stopping, return_exceptions=True)
            await service.stop(URGENT_STOP_SECONDS.get(service.name, 0.0))
        urgent.cancel()
        await asyncio.gather(stopping, urgent, return_exceptions=True)

    async def _start_all(self) -> tuple[str, Sequence[str]]:
        """Return the ledger's address and the endpoints."""
        for service in self._not_needed:
            await service.stop(0)
        # Most of a start is imports. All parts import at the same time, so that every core is used.
        for service in self._services.values():
            if service.pid is None:
                await service.launch()
        async with asyncio.TaskGroup() as starts:
            services = starts.create_task(self._start_services())
            endpoints = starts.create_task(self._start_endpoints())
        return services.result(), endpoints.result()

    async def _start_services(self) -> str:
        judge = await self._start_judge()
        order, ledger = str(self._workspace.work_order), str(self._workspace.ledger)
        arguments = ["--work-order", order, "--ledger", ledger, "--judge", judge, "--retry-not-judged"]
        arguments += ["--storage-seconds", str(STORAGE_SECONDS)]
        address = await self._start("aggregator", [*arguments, "--lift-pause"])
        # A restart gets the same arguments, so that a pause lasts.
        self._services["aggregator"].arguments = arguments
        return address

    async def _start_judge(self) -> str:
        """Start the judge with its sandbox, unless the user names a server. Return the judge's address."""
        options = self._options
        if options.sandbox_fusion is not None:
            # The import is made here, because it loads aiohttp.
            from evalrun_cli.local.fusion_server import check_fusion_server

            await check_fusion_server(options.sandbox_fusion)
            server = ["--backend", "SandboxFusion", "--sandbox", options.sandbox_fusion]
            return await self._start("judge", [*server, *options.containment_flags])
        flags = [*options.package_flags, *options.containment_flags]
        sandbox = asyncio.create_task(self._start("sandbox", options.sandbox_flags))
        judge = asyncio.create_task(self._start("judge", ["--sandbox", ON_STDIN, *flags], is_told_later=True))
        try:
            # The sandbox's error is reported first, because the judge often fails for the same reason.
            address = await sandbox
            self._services["judge"].tell(address)
            found = await judge
        finally:
            for task in (sandbox, judge):
                task.cancel()
            await asyncio.gather(sandbox, judge, return_exceptions=True)
        # A restart gets the same arguments.
        self._services["judge"].arguments = ["--sandbox", address, *flags]
        return found

    async def _start_endpoints(self) -> Sequence[str]:
        """Return the endpoints for generation. A recorded endpoint is started."""
        if self._generation is None or self._launches:
            return []
        if not self._generation.recorded:
            return self._generation.endpoints
        recorded = [*self._generation.recorded, "--model", self._generation.model]
        address = await self._start("recorded", recorded)
        return [*self._generation.endpoints, address]

    async def _start_generator(
        self, ledger: str, endpoints: Sequence[str], generation: CompletionSource
    ) -> ServiceProcess:
        arguments = ["--ledger", ledger, "--worker-id", "generator-0", "--drain-seconds", str(REQUEST_STOP_SECONDS)]
        if self._launches:
            work_order, logs = str(self._workspace.work_order), str(self._workspace.logs)
            arguments += ["--work-order", work_order, "--logs", logs, "--report-seconds", "1", *generation.host_flags]
        else:
            arguments += ["--model", generation.model, "--tokenizer", generation.tokenizer]
            arguments += ["--start-seconds", str(ENDPOINT_SECONDS)]
        if generation.request_seconds is not None:
            arguments += ["--request-seconds", str(generation.request_seconds), "--request-seconds-per-token", "0"]
        for endpoint in endpoints:
            arguments += ["--endpoint", endpoint]
            arguments += ["--concurrency", str(generation.concurrency.get(endpoint, DEFAULT_CONCURRENT_REQUESTS))]
        name = "rollout" if self._launches else "generator"
        await self._start(name, arguments)
        return self._services[name]

    async def _start(self, name: str, arguments: Sequence[str], *, is_told_later: bool = False) -> str:
        service = self._services[name]
        service.arguments = arguments
        await service.start(is_told_later=is_told_later)
        return service.address

    async def _follow_to_end(self, ledger: str, endpoints: Sequence[str], display: Display) -> ExitCode:
        generator = None
        if self._generation is not None:
            generator = await self._start_generator(ledger, endpoints, self._generation)
        follow = asyncio.create_task(self._follow(ledger, display))
        stop = asyncio.create_task(self._stopped.wait())
        kept = {asyncio.create_task(keep_running(service, Restarts())): service for service in self._services.values()}
        waiting: set[asyncio.Task[Any]] = {follow, stop, *kept}
        try:
            while True:
                done, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
                if follow in done:
                    return follow.result()
                if stop in done:
                    return ExitCode.STOPPED
                for task in done:
                    code = task.result()
                    if kept[task] is generator and code != ExitCode.SUCCEEDED:
                        raise generator.failure(code)
        finally:
            for task in (follow, stop, *kept):
                task.cancel()
            await asyncio.gather(follow, stop, *kept, return_exceptions=True)

    async def _follow(self, ledger: str, display: Display) -> ExitCode:
        async with open_channel(ledger) as channel:
            stub: ledger_pb2_grpc.LedgerServiceAsyncStub = ledger_pb2_grpc.LedgerServiceStub(channel)
            loop = asyncio.get_running_loop()
            began = loop.time()
            while True:
                try:
                    status = await stub.GetStatus(ledger_pb2.GetStatusRequest(), timeout=10.0)
                # The aggregator is restarting.
                except grpc.aio.AioRpcError as error:
                    if error.code() not in BEING_STARTED:
                        raise ServiceFailedError(
                            f"the aggregator answered {error.code().name}: {error.details()}"
                        ) from error
                else:
                    display.update(status)
                    for line in self._part_times.read(status, self._clock()):
                        display.say(line)
                    self._open_requests = sum(replica.in_flight for replica in status.replicas)
                    self._generates = self._generation is not None and any(
                        each.generated < each.total for each in status.datasets
                    )
                    if status.state in END_STATES:
                        if status.message:
                            logger.warning("%s", status.message)
                            self.problem = status.message
                        self._is_under_way = False
                        self.stopped_by_user = status.stopped_by_user
                        # Nobody will use the requests that are still in flight.
                        if status.stopped_by_user and not self._launches:
                            self._stop_seconds = START_STOP_SECONDS
                        return END_STATES[status.state]
                await asyncio.sleep(poll_seconds(loop.time() - began))


def poll_seconds(elapsed: float) -> float:
    """Return the seconds until the next status request for a run that has been followed for `elapsed` seconds."""
    return min(max(POLL_SHARE * elapsed, MIN_POLL_SECONDS), MAX_POLL_SECONDS)


def explain_stop(open_requests: int, *, generates: bool) -> str:
    """Return the message for a run that is stopping.

    Args:
        open_requests: requests in flight, as last reported.
        generates: whether completions are still missing.
    """
    waits, seconds = "programs that are being judged are", STOP_SECONDS
    if generates:
        requests = {0: "requests in flight are", 1: "1 request is"}
        waits, seconds = requests.get(open_requests, f"{open_requests} requests are"), REQUEST_STOP_SECONDS
    return f"stopping: {waits} finished first, up to {seconds:.0f} s; press Ctrl-C again to stop now"


@contextmanager
def page_beside(directory: Path, *, is_series: bool = False) -> Iterator[None]:
    """Serve the page of samples while a run, or a series of runs, goes on. Its address is printed even with --quiet.

    Args:
        directory: directory of the run, or the directory that contains the runs' directories.
        is_series: whether the directory contains several runs.
    """
    # The imports are made here, because they load aiohttp and pyarrow, which a run without a page does not need.
    from evalrun_cli.viewer.run_catalog import is_run
    from evalrun_cli.viewer.run_page import run_page, series_page

    with series_page(directory) if is_series else run_page(directory) as address:
        click.echo(f"page: {address}", err=True)
        yield
    if is_series or is_run(directory):
        place = shlex.quote(str(shown_path(directory)))
        click.echo(f"the page has ended; open it again with: evalrun view {place}", err=True)


def end_without_results(workspace: Workspace) -> str:
    """Return the advice for a run that ended without results. Unused files are removed."""
    if not workspace.ledger.exists():
        workspace.discard_unused()
        return "stopped before the run began: nothing was written"
    return f"nothing is lost; go on with: {resume_command(workspace)}"


def resume_command(workspace: Workspace) -> str:
    """Return the command that continues a run."""
    return f"evalrun resume {shlex.quote(str(shown_path(workspace.directory)))}"


def run_to_end(
    workspace: Workspace,
    options: LocalOptions,
    generation: CompletionSource | None,
    session: RunSession | None = None,
) -> RunOutcome:
    """Run to the end, then print the results and their directory.

    Args:
        workspace: directory of the run.
        options: the user's options for this machine.
        generation: source of the completions; None: nothing is generated.
        session: display of the run; None: the terminal, from now on.

    Raises:
        BadInputError: a part refuses its input.
    """
    session = session or RunSession()
    console, progress = session.console, session.progress

    launched = session.launched
    services = {} if launched is None else launched.services
    local = LocalRun(workspace, options, generation, session.stop, services, session.clock)

    async def run() -> ExitCode:
        return await local.run(make_display(progress, session.clock))

    def say(text: str, where: Console = progress) -> None:
        where.print(text, markup=False, highlight=False, soft_wrap=True)

    try:
        say(f"results: {workspace.directory}")
        with page_beside(workspace.directory) if session.view else nullcontext():
            code = asyncio.run(run()) if launched is None else launched.runner.run(run())
    # Ctrl-C came before the run handles signals itself.
    except (KeyboardInterrupt, asyncio.CancelledError):
        code = ExitCode.STOPPED
    except BadInputError:
        workspace.discard_unused()
        raise
    except ServiceFailedError as error:
        logger.error("%s", error)
        code, local.problem = ExitCode.FAILED, str(error)
    if code not in (ExitCode.SUCCEEDED, ExitCode.DEGRADED):
        say(end_without_results(workspace))
        return RunOutcome(code, workspace.directory, problem=local.problem)
    summary = json.loads(workspace.summary.read_text())
    if (times := local.times_line()) is not None:
        say(times)
    if local.stopped_by_user:
        say(f"stopped with what there was; the rest is done by: {resume_command(workspace)}")
    if session.as_json:
        console.out(json.dumps({"directory": str(workspace.directory), **summary}, indent=2), highlight=False)
        return RunOutcome(apply_gate(code, summary), workspace.directory, summary)
    for table in results_tables(summary):
        console.print(table)
    if (decided := gate_line(summary)) is not None:
        say(decided, console)
    say(f"results: {workspace.directory}", console)
    return RunOutcome(apply_gate(code, summary), workspace.directory, summary)
