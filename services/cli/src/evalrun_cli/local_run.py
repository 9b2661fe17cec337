"""A run on one machine: the services as child processes on loopback, followed to the end."""

import asyncio
import json
import logging
import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import grpc
from rich.console import Console

from evalrun.ledger.v1 import ledger_pb2, ledger_pb2_grpc
from evalrun_cli.display import Display, display_for
from evalrun_cli.processes import Restarts, ServiceFailedError, ServiceProcess, keep_running
from evalrun_cli.results_table import results_tables
from evalrun_cli.run_gate import gate_line, gated_code
from evalrun_cli.workspace import Workspace
from evalrun_runtime.exits import BadInputError, ExitCode
from evalrun_runtime.grpc_channel import open_channel

logger = logging.getLogger(__name__)

POLL_SECONDS = 0.2
ENDPOINT_SECONDS = 15
"""How long an endpoint may be unreachable at first. A person watches: a wrong URL should not take a minute to show."""
STOP_SECONDS = 20.0
"""Programs that are being judged when Ctrl-C comes may use their time limit before they are cut off."""

END_STATES = {
    ledger_pb2.RUN_STATE_SUCCEEDED: ExitCode.SUCCEEDED,
    ledger_pb2.RUN_STATE_DEGRADED: ExitCode.DEGRADED,
    ledger_pb2.RUN_STATE_FAILED: ExitCode.FAILED,
}


@dataclass(frozen=True)
class LocalOptions:
    """What the user may say about this machine."""

    slots: int | None = None
    allow_uncontained: bool = False
    sandbox_fusion: str | None = None
    """Address of a SandboxFusion server that is judged through; None: a sandbox is started here."""

    @property
    def resumed_with(self) -> str:
        """The flags without which going on would judge elsewhere."""
        return "" if self.sandbox_fusion is None else f" --sandbox-fusion {self.sandbox_fusion}"

    def check(self, spec: Mapping[str, Any]) -> None:
        """Refuse what does not go together. Raises BadInputError.

        Args:
            spec: an EvalRun's, as JSON.
        """
        if self.sandbox_fusion is None:
            for index, dataset in enumerate(spec["datasets"]):
                if dataset.get("judgeMode") == "Submit":
                    raise BadInputError(
                        f"spec.datasets[{index}].judgeMode: Submit needs a SandboxFusion server, which has the tests: "
                        "add --sandbox-fusion URL, or write judgeMode: RunCode"
                    )
            return
        if self.slots is not None:
            raise BadInputError("--slots: of a sandbox that is started here: leave it away with --sandbox-fusion")
        address = urlsplit(self.sandbox_fusion)
        if address.scheme not in ("http", "https") or not address.hostname:
            raise BadInputError(f"--sandbox-fusion {self.sandbox_fusion}: write http://HOST:PORT")
        if address.username is not None or address.password is not None:
            raise BadInputError("--sandbox-fusion: give its token by EVALRUN_JUDGE_SANDBOX_TOKEN, not in the address")


@dataclass(frozen=True)
class Generation:
    """Where completions come from."""

    endpoints: Sequence[str]
    model: str
    tokenizer: str
    """Where the model's tokenizer is, for endpoints that do not count tokens."""
    recorded: Sequence[str] = ()
    """Arguments of a recorded-completions server that is started as one more endpoint; empty for none."""


class LocalRun:
    """Starts the parts in the order in which they need each other, keeps them running, follows the run."""

    def __init__(self, workspace: Workspace, options: LocalOptions, generation: Generation | None) -> None:
        self._workspace = workspace
        self._options = options
        self._generation = generation
        self._services: list[ServiceProcess] = []
        self._stopped = asyncio.Event()

    async def run(self, display: Display) -> ExitCode:
        """Run to the end.

        Raises:
            BadInputError: a part refuses what it was given.
            ServiceFailedError: a part cannot be kept running. The ledger is intact: the run can be resumed.
        """
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self._stopped.set)
        try:
            async with asyncio.TaskGroup() as starts:  # most of a start is imports: two at once use both cores
                services = starts.create_task(self._start_services())
                endpoints = starts.create_task(self._start_endpoints())
            return await self._follow_to_end(services.result(), endpoints.result(), display)
        except* (BadInputError, ServiceFailedError) as errors:
            raise errors.exceptions[0] from None
        finally:
            display.close()
            for service in reversed(self._services):
                await service.stop(STOP_SECONDS)

    async def _start_services(self) -> str:
        uncontained = ["--allow-uncontained"] if self._options.allow_uncontained else []
        judge = await self._start("judge", "evalrun_judge", [*await self._start_sandbox(uncontained), *uncontained])
        order, ledger = str(self._workspace.work_order), str(self._workspace.ledger)
        arguments = ["--work-order", order, "--ledger", ledger, "--judge", judge, "--retry-not-judged"]
        return await self._start("aggregator", "evalrun_aggregator", arguments)

    async def _start_sandbox(self, uncontained: Sequence[str]) -> Sequence[str]:
        """Give the judge's flags for a sandbox of its own, or for the server that the user names."""
        if self._options.sandbox_fusion is not None:
            return ["--backend", "SandboxFusion", "--sandbox", self._options.sandbox_fusion]
        slots = [] if self._options.slots is None else ["--slots", str(self._options.slots)]
        return ["--sandbox", await self._start("sandbox", "evalrun_sandbox", [*slots, *uncontained])]

    async def _start_endpoints(self) -> Sequence[str]:
        """Give the endpoints to generate with; a recorded one is started."""
        if self._generation is None:
            return []
        if not self._generation.recorded:
            return self._generation.endpoints
        recorded = [*self._generation.recorded, "--model", self._generation.model]
        address = await self._start("recorded", "evalrun_generator.recorded", recorded)
        return [*self._generation.endpoints, address]

    async def _start_generator(self, ledger: str, endpoints: Sequence[str], generation: Generation) -> ServiceProcess:
        arguments = ["--ledger", ledger, "--model", generation.model, "--worker-id", "generator-0"]
        arguments += ["--tokenizer", generation.tokenizer]
        arguments += ["--start-seconds", str(ENDPOINT_SECONDS)]
        for endpoint in endpoints:
            arguments += ["--endpoint", endpoint]
        await self._start("generator", "evalrun_generator", arguments, has_port=False)
        return self._services[-1]

    async def _start(self, name: str, module: str, arguments: Sequence[str], *, has_port: bool = True) -> str:
        log = self._workspace.logs / f"{name}.log"
        service = ServiceProcess(name, module, arguments, log, has_port=has_port)
        self._services.append(service)
        await service.start()
        return service.address

    async def _follow_to_end(self, ledger: str, endpoints: Sequence[str], display: Display) -> ExitCode:
        generator = None
        if self._generation is not None:
            generator = await self._start_generator(ledger, endpoints, self._generation)
        follow = asyncio.create_task(self._follow(ledger, display))
        stop = asyncio.create_task(self._stopped.wait())
        kept = {asyncio.create_task(keep_running(service, Restarts())): service for service in self._services}
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
            while True:
                try:
                    status = await stub.GetStatus(ledger_pb2.GetStatusRequest(), timeout=10.0)
                except grpc.aio.AioRpcError as error:  # the aggregator is being started again
                    if error.code() not in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED):
                        raise ServiceFailedError(
                            f"the aggregator answered {error.code().name}: {error.details()}"
                        ) from error
                else:
                    display.update(status)
                    if status.state in END_STATES:
                        if status.message:
                            logger.warning("%s", status.message)
                        return END_STATES[status.state]
                await asyncio.sleep(POLL_SECONDS)


def run_to_end(
    workspace: Workspace, options: LocalOptions, generation: Generation | None, resume_with: str
) -> ExitCode:
    """Run, then show the table and where everything lies."""
    logging.basicConfig(level=logging.WARNING, format="evalrun: %(message)s")
    console = Console()

    async def run() -> ExitCode:
        return await LocalRun(workspace, options, generation).run(display_for(console))

    console.print(f"results: {workspace.directory}", markup=False, highlight=False, soft_wrap=True)
    try:
        code = asyncio.run(run())
    except BadInputError:
        workspace.discard_unused()
        raise
    except ServiceFailedError as error:
        logger.error("%s", error)
        code = ExitCode.FAILED
    if code in (ExitCode.SUCCEEDED, ExitCode.DEGRADED):
        summary = json.loads(workspace.summary.read_text())
        for table in results_tables(summary):
            console.print(table)
        if (decided := gate_line(summary)) is not None:
            console.print(decided, markup=False, highlight=False, soft_wrap=True)
        code = gated_code(code, summary)
        console.print(f"results: {workspace.directory}", markup=False, highlight=False, soft_wrap=True)
    else:
        console.print(f"nothing is lost; go on with: {resume_with}", markup=False, highlight=False, soft_wrap=True)
    return code
