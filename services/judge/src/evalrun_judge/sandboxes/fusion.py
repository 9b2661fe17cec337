"""Uses SandboxFusion as a sandbox: many tests per `/run_code` call if the harness runs there, else a test per call.

The server is identified once. An `evalrun-sandbox` names itself at `/v1/info` and then gets its own batch API. On any
other server the harness tries what a program must not do (see `containment`), which determines its level.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from types import TracebackType
from typing import Self

import msgspec

from evalrun_executor.api import CompileResult, Level, Limits, ProgramRun, RunReply, RunRequest, SandboxInfo
from evalrun_executor.containment import PROBE, PROBE_MEMORY_MIB, ContainmentReport, rate_containment, read_probe
from evalrun_executor.slots import Slots
from evalrun_executor.timeouts import NOT_RUN, decide_alone, find_cut, find_doubt, order_runs
from evalrun_judge.sandboxes import (
    Backend,
    RunRefusedError,
    SandboxFailedError,
    SubmitCall,
    SubmitReply,
    fusion_batch,
    fusion_plain,
)
from evalrun_judge.sandboxes.evalrun_http import WAIT_SECONDS, EvalrunSandbox
from evalrun_judge.sandboxes.fusion_answer import (
    BatchAnswer,
    NotTheHarnessError,
    OtherInterpreterError,
    file,
    make_no_result_error,
    result,
)
from evalrun_judge.sandboxes.fusion_batch import Machine, Part
from evalrun_judge.sandboxes.fusion_datasets import CONFIRM_WAIT_SECONDS, FusionDatasets
from evalrun_judge.sandboxes.fusion_http import CodeAnswer, FusionServer
from evalrun_judge.sandboxes.fusion_shared import MAX_PROGRAMS, SHARED_SECONDS, SharedCalls
from evalrun_judge.sandboxes.stock_harness import CALLS_CODE, CODE
from evalrun_runtime.connections.bearer_tokens import BearerTokens
from evalrun_runtime.connections.tls_files import TlsSource

logger = logging.getLogger(__name__)

PING_SECONDS = 5.0
PROBE_SECONDS = 60.0
LARGE_BYTES = 1 << 20
"""A larger reply is read in another thread, because it takes some ms."""

_OK = CompileResult("ok")


class SlotReport(msgspec.Struct):
    """Reply of a slot proxy at `/v1/slots`."""

    slots: int
    free: int


class _Stock:
    """The detected properties of a stock server."""

    def __init__(
        self, turns: Slots, report: ContainmentReport, machine: Machine | None = None,
        calls: SharedCalls | None = None, hello: dict[str, str] | None = None,
    ) -> None:  # fmt: skip
        self.turns = turns
        self.report = report
        self.machine = machine
        """None: the harness does not run on the server."""
        self.calls = calls
        self.hello = hello or {}
        languages = [*fusion_plain.STOCK_LANGUAGES] if machine is None else machine.languages
        capacity = turns.count if calls is None else calls.capacity
        self.info = SandboxInfo(
            "stock", report.level, capacity, languages, report.python_version, list(report.missing)
        )  # fmt: skip


class FusionSandbox:
    """Calls a SandboxFusion server."""

    def __init__(
        self,
        url: str,
        tokens: BearerTokens | None = None,
        *,
        nonces: Callable[[int], bytes],
        tls: TlsSource | None = None,
        server_name: str | None = None,
        prefer_own_api: bool = True,
        shared_seconds: float = SHARED_SECONDS,
    ) -> None:
        """Create the client.

        Args:
            url: `http://host:port`.
            tokens: the first is sent as a bearer token; a stock server ignores it, our slot proxy requires it.
            nonces: returns a number of random bytes.
            tls: client certificate and authorities for an https server; our slot proxy requires it.
            server_name: name that the server's certificate must have; None: the URL's host.
            prefer_own_api: use the batch API if an `evalrun-sandbox` replies.
            shared_seconds: see `SharedCalls`.
        """
        self._server = FusionServer(url, tokens, tls, server_name)
        self.address = self._server.address
        self._own = EvalrunSandbox(self.address, tokens, tls=tls, server_name=server_name) if prefer_own_api else None
        self._datasets = FusionDatasets(self._server)
        self._is_own = False
        self._own_level: Level = "none"
        self._nonces = nonces
        self._shared_seconds = shared_seconds
        self._stock: _Stock | None = None
        self._finding: asyncio.Task[_Stock] | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def describe(self) -> Backend:
        """Return the capabilities; see `Sandbox.describe`. The first call runs some programs to detect them."""
        if self._own is not None and (self._is_own or self._stock is None):
            status, _ = await self._server.call("GET", "/v1/info", PING_SECONDS)
            if status == 200:
                backend = await self._own.describe()
                self._is_own, self._own_level = True, backend.info.level
                return replace(backend, submits=True)
        await self._server.check_there(PING_SECONDS)
        return Backend("sandbox-fusion", (await self._found()).info, submits=True)

    async def run(self, request: RunRequest) -> RunReply:
        """Run a program on its inputs; see `Sandbox.run`."""
        if self._is_own and self._own is not None:
            return await self._own.run(request)
        stock = await self._found()
        if request.language not in stock.info.languages:
            raise RunRefusedError(f"language {request.language} is not one of {', '.join(stock.info.languages)}")
        if stock.machine is None or stock.calls is None:
            return await self._run_one_by_one(request, stock)
        return await self._run_in_batches(request, stock, stock.machine, stock.calls)

    async def submit(self, call: SubmitCall) -> SubmitReply:
        """Judge a completion for a row of the server; see `DatasetServer.submit`.

        The harness has no part in that: what contains the program is the stock server alone, or our own executor.
        """
        if self._is_own:
            return await self._datasets.submit(call, None, self._own_level)
        return await self._datasets.submit(call, (await self._found()).turns, "none")

    async def close(self) -> None:
        if self._finding is not None:
            self._finding.cancel()
            await asyncio.gather(self._finding, return_exceptions=True)
        if self._stock is not None and self._stock.calls is not None:
            await self._stock.calls.close()
        if self._own is not None:
            await self._own.close()
        await self._server.close()

    # The following methods detect the properties of the server.

    async def _found(self) -> _Stock:
        """Detect the server once. If the caller gives up, the detection continues for the next caller."""
        if self._stock is None:
            if self._finding is None or self._finding.done():
                self._finding = asyncio.create_task(self._find())
            self._stock = await asyncio.shield(self._finding)
        return self._stock

    async def _find(self) -> _Stock:
        slots = await self._proxy_slots()
        answer = await self._server.run_code({"language": "python", "code": fusion_batch.LOOK}, PROBE_SECONDS)
        try:
            seen = msgspec.json.decode(
                (answer.run_result and answer.run_result.stdout) or "", type=fusion_batch.MachineFacts
            )
        except (msgspec.DecodeError, RecursionError) as error:
            raise SandboxFailedError(f"{self.address}: its Python does not say what it is: {error}") from error
        machine = seen.machine()
        slots = slots or machine.cpus
        probe = RunRequest("python", PROBE, [b""], Limits(10.0, PROBE_MEMORY_MIB, 64))
        try:
            if not seen.usable:
                raise NotTheHarnessError(f"Python {seen.version} lacks what the harness needs")
            said, machine = await self._first_call(probe, machine)
        except (NotTheHarnessError, RunRefusedError) as error:
            logger.warning("%s: one call a test, as the harness does not run there: %s", self.address, error)
            plain = await self._server.run_code(fusion_plain.body(probe, 0), PROBE_SECONDS)
            stdout = (plain.run_result.stdout if plain.run_result else None) or ""
            return _Stock(Slots(slots), rate_containment(read_probe(stdout), 0, seen.version))
        printed = said.runs.get(0, NOT_RUN).stdout.decode(errors="replace")
        report = rate_containment(read_probe(printed), int(said.hello.get("abi", "0")), machine.version)
        logger.info("%s: a stock SandboxFusion, level %s", self.address, report.level)
        turns = Slots(slots)
        # Below level `full`, nothing would separate programs that share a call.
        max_programs = MAX_PROGRAMS if report.level == "full" else 1
        calls = SharedCalls(turns, max_programs, partial(self._ask, machine), self._shared_seconds)
        return _Stock(turns, report, machine, calls, said.hello)

    async def _first_call(self, probe: RunRequest, machine: Machine) -> tuple[BatchAnswer, Machine]:
        """Test whether the harness runs on the server. The test is repeated once, because load can cause a failure.

        Returns the reply, and the machine with the harness as its interpreter compiled it.
        """
        try:
            return await self._call_compiler(probe, machine)
        except NotTheHarnessError as error:
            logger.info("%s: once more, after: %s", self.address, error)
            return await self._call_compiler(probe, machine)

    async def _call_compiler(self, probe: RunRequest, machine: Machine) -> tuple[BatchAnswer, Machine]:
        part = self._part(probe, [0])
        answer = await self._call([part], machine, fusion_batch.BUDGET_SECONDS, want_code=True)
        said, bundle, call_modules = result(answer, 0, part), file(answer, CODE), file(answer, CALLS_CODE)
        if said is None or not bundle or not call_modules:
            raise make_no_result_error(answer)
        return said, replace(machine, bundle=bundle, call_modules=call_modules)

    async def _proxy_slots(self) -> int | None:
        """Return the number of slots of a proxy before the server, or None if there is no proxy."""
        status, body = await self._server.call("GET", "/v1/slots", PING_SECONDS)
        if status != 200:
            return None
        try:
            return msgspec.json.decode(body, type=SlotReport).slots
        except (msgspec.DecodeError, RecursionError):
            return None

    # The following methods run many tests per call.

    async def _run_in_batches(
        self, request: RunRequest, stock: _Stock, machine: Machine, calls: SharedCalls
    ) -> RunReply:
        runs: dict[int, ProgramRun] = {}
        left = list(range(len(request.inputs)))
        compiled: CompileResult | None = None
        alone = False
        decided: set[int] = set()
        while left and find_cut(runs, request.stop_after_timeouts) is None:
            with self._check_answer():
                said = await calls.answer(self._part(request, left), again=alone)
            answer = BatchAnswer() if said is None else self._as_found(said, stock)
            compiled = compiled or answer.compiled
            if compiled is not None and compiled.status != "ok":
                return RunReply(compiled, [NOT_RUN] * len(request.inputs), stock.report.level)
            if alone and not answer.runs:
                raise SandboxFailedError(f"{self.address}: a call without a result")
            runs |= answer.runs
            left = [index for index in left if index not in runs]
            # A test that a call did not finish is slow, or was delayed by others.
            alone = True
            if left and find_cut(runs, request.stop_after_timeouts) is None:
                continue
            seconds, stop_after = request.limits.time_seconds, request.stop_after_timeouts
            while (index := find_doubt(runs, decided, seconds, stop_after)) is not None:
                runs[index] = await self._confirm_run(
                    runs[index], request, stock, partial(self._again, request, index, stock, machine)
                )
                decided.add(index)
        ordered = order_runs(runs, len(request.inputs), request.stop_after_timeouts)
        return RunReply(compiled or _OK, list(ordered), stock.report.level)

    async def _again(self, request: RunRequest, index: int, stock: _Stock, machine: Machine) -> ProgramRun | None:
        part = self._part(request, [index])
        with self._check_answer():
            (answer,) = await self._ask(machine, [part], fusion_batch.BUDGET_SECONDS, 1)
        return None if answer is None else self._as_found(answer, stock).runs.get(index)

    async def _confirm_run(
        self, first: ProgramRun, request: RunRequest, stock: _Stock, again: Callable[[], Awaitable[ProgramRun | None]]
    ) -> ProgramRun:
        """Repeat a run that ended near its limit while no other call of ours is on the server."""
        alone: ProgramRun | None = None
        async with stock.turns.take_all(CONFIRM_WAIT_SECONDS) as free:
            if free:
                alone = await again()
            else:
                logger.warning("%s: no moment without another call in %.0f s", self.address, CONFIRM_WAIT_SECONDS)
        return decide_alone(first, alone, request.limits.time_seconds)

    @contextmanager
    def _check_answer(self) -> Iterator[None]:
        """Raise SandboxFailedError for an answer that is not the harness's."""
        try:
            yield
        except NotTheHarnessError as error:
            if isinstance(error, OtherInterpreterError):
                self._stock = None
            raise SandboxFailedError(f"{self.address}: {error}") from error

    def _as_found(self, answer: BatchAnswer, stock: _Stock) -> BatchAnswer:
        if answer.hello != stock.hello:
            # Another machine has the address, so it is detected again.
            self._stock = None
            raise SandboxFailedError(f"{self.address}: it contains otherwise than before: {answer.hello}")
        return answer

    def _part(self, request: RunRequest, indices: Sequence[int]) -> Part:
        return Part(request, indices, self._nonces(fusion_batch.NONCE_BYTES))

    async def _ask(
        self, machine: Machine, parts: Sequence[Part], budget: float, runners: int
    ) -> list[BatchAnswer | None]:
        """Send a call and read all of its replies. Raises NotTheHarnessError, SandboxError or RunRefusedError."""
        answer = await self._call(parts, machine, budget, runners)
        if sum(map(len, answer.files.values())) > LARGE_BYTES:
            return await asyncio.to_thread(_results, answer, parts)
        return _results(answer, parts)

    async def _call(
        self, parts: Sequence[Part], machine: Machine, budget: float, runners: int = 1, *, want_code: bool = False
    ) -> CodeAnswer:
        max_seconds = max(fusion_batch.call_seconds(part.request) for part in parts) + WAIT_SECONDS
        body = fusion_batch.body(parts, machine, budget_seconds=budget, runners=runners, want_code=want_code)
        return await self._server.run_code(body, max_seconds)

    # The following methods run a test per call.

    async def _run_one_by_one(self, request: RunRequest, stock: _Stock) -> RunReply:
        runs: dict[int, ProgramRun] = {}
        compiled = _OK
        for index in range(len(request.inputs)):
            turn = await stock.turns.take(1)
            try:
                compiled, run = await self._plain(request, index)
            finally:
                stock.turns.give_back(turn)
            if run is None:
                return RunReply(compiled, [NOT_RUN] * len(request.inputs), stock.report.level)
            # The server's wall clock ended the run, and other programs there may have delayed it.
            if run.end == "timeout":
                run = await self._confirm_run(run, request, stock, partial(self._plain_again, request, index))
            runs[index] = run
            if find_cut(runs, request.stop_after_timeouts) is not None:
                break
        ordered = order_runs(runs, len(request.inputs), request.stop_after_timeouts)
        return RunReply(compiled, list(ordered), stock.report.level)

    async def _plain(self, request: RunRequest, index: int) -> tuple[CompileResult, ProgramRun | None]:
        """Run one input. There is no run if the program does not compile."""
        max_seconds = fusion_plain.COMPILE_SECONDS + request.limits.time_seconds + WAIT_SECONDS
        answer = await self._server.run_code(fusion_plain.body(request, index), max_seconds)
        compiled = fusion_plain.read_compile_result(answer, request.language)
        return compiled, fusion_plain.run(answer, request) if compiled.status == "ok" else None

    async def _plain_again(self, request: RunRequest, index: int) -> ProgramRun | None:
        return (await self._plain(request, index))[1]


def _results(answer: CodeAnswer, parts: Sequence[Part]) -> list[BatchAnswer | None]:
    return [result(answer, number, part) for number, part in enumerate(parts)]
