"""The executor: an async client of the zygote, with its own slots. Sandbox and gateway both use it."""

import asyncio
import logging
import os
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from evalrun_executor.api import Level, Limits, RunReply, RunRequest
from evalrun_executor.batch import MAX_INPUTS, Batch
from evalrun_executor.compile_stage import CompileStage
from evalrun_executor.contained import frames
from evalrun_executor.contained.compiler import CPU_SECONDS
from evalrun_executor.containment import (
    PROBE,
    PROBE_MEMORY_MIB,
    ContainmentReport,
    is_sufficient,
    rate_containment,
    read_probe,
)
from evalrun_executor.cpus import usable_cpus
from evalrun_executor.errors import Busy, ExecutorLost, RequestRefused, Unusable
from evalrun_executor.harness import CALL_HARNESS, Harness
from evalrun_executor.interpreter import choose_identity, find_interpreter
from evalrun_executor.machine import Machine
from evalrun_executor.oom_kills import OomKills
from evalrun_executor.private_files import ReplyWithFiles, RequestWithFiles, find_complaints
from evalrun_executor.run_queues import RunQueues
from evalrun_executor.settlement import Settlement
from evalrun_executor.slot_runs import SlotRuns
from evalrun_executor.timeouts import NOT_RUN
from evalrun_executor.toolchain import Toolchain
from evalrun_executor.zygotes.run_ends import UnexplainedKill
from evalrun_executor.zygotes.zygote_process import ZygotePlan, ZygoteProcess
from evalrun_registry.languages import LANGUAGES, Driver
from evalrun_runtime.host_system import explain_unfit_system

logger = logging.getLogger(__name__)

_RETRY_MS = 20
_INTERPRETED = [name for name, language in LANGUAGES.items() if language.driver is Driver.PYTHON]
_MAX_TIME_SECONDS, _MAX_MEMORY_MIB, _MAX_OUTPUT_KIB = 3600.0, 1 << 20, 65536


@dataclass(frozen=True)
class ExecutorPlan:
    """Options of an executor."""

    slots: int = field(default_factory=usable_cpus)
    """Maximum number of programs that run at the same time. More programs than CPUs slow each other down."""
    queue: int | None = None
    """Requests admitted beyond the slots, so that no slot idles while the next request travels; None: as many as slots.
    """
    required: Level = "full"
    allow_uncontained: bool = False
    preload: Mapping[str, Harness] = field(default_factory=dict)
    """Harnesses beside `calls`, by mode."""
    python: str | None = None
    """Candidates' interpreter; None: the first working interpreter; see `interpreter`."""
    package_dirs: Sequence[Path] = ()
    """Directories of packages that candidates may import, beside the interpreter's own."""
    work_dir: Path | None = None
    compile_seconds: int = CPU_SECONDS
    """CPU seconds of each process of a compiler. By the clock it has three times as many."""
    confirm_wait_seconds: float = 15.0
    """Maximum seconds that a run past its time limit waits for all other slots to be empty. After that it runs beside
    other programs; the machine's slowness, measured before and after, covers their effect."""
    confirm_pause_seconds: float = 1.0
    """Pause before the second run alone of a test, doubled before the third, because the cause of the slowness may
    pass."""
    contain: bool = True
    """False disables Landlock and the filter, for benchmarks that measure their cost."""


class Executor:
    """Runs programs. Call `start` first. Safe to use from an event loop only."""

    def __init__(
        self,
        plan: ExecutorPlan | None = None,
        machine: Machine | None = None,
        oom_kills: OomKills | None = None,
        run_queues: RunQueues | None = None,
    ) -> None:
        self._plan = plan or ExecutorPlan()
        self._machine = machine or Machine()
        if self._plan.slots < 1:
            raise ValueError("an executor needs at least one slot")
        queue = self._plan.slots if self._plan.queue is None else self._plan.queue
        self._admitted_limit = self._plan.slots + queue
        self._admitted = 0
        self._slot_runs = SlotRuns(self._plan.slots)
        self._settlement = Settlement(
            self._slot_runs, self._machine, self._plan.confirm_wait_seconds, self._plan.confirm_pause_seconds
        )
        self._toolchain = Toolchain()
        self._oom_kills = oom_kills or OomKills()
        self._run_queues = run_queues or RunQueues()
        self._zygote: ZygoteProcess | None = None
        self._zygote_plan: ZygotePlan | None = None
        self._starting = asyncio.Lock()
        self._report: ContainmentReport | None = None

    @property
    def report(self) -> ContainmentReport:
        """Containment level reached. Raises RuntimeError before `start`."""
        if self._report is None:
            raise RuntimeError("the executor has not started")
        return self._report

    @property
    def slots(self) -> int:
        """Programs that can run at the same time."""
        return self._plan.slots

    @property
    def free(self) -> int:
        """Slots that are free now."""
        return self._slot_runs.slots.free

    @property
    def zygote_pid(self) -> int | None:
        """The zygote's process id, or None while no zygote runs."""
        return self._zygote.pid if self._zygote is not None and not self._zygote.lost.done() else None

    @property
    def zygote_plan(self) -> ZygotePlan:
        """The plan of all zygotes of this executor. Raises RuntimeError before `start`."""
        if self._zygote_plan is None:
            raise RuntimeError("the executor has not started")
        return self._zygote_plan

    @asynccontextmanager
    async def slot(self, patience_seconds: float | None) -> AsyncIterator[None]:
        """Wait for a slot, in line with all requests, and hold it inside the block, for work outside this executor.

        Raises:
            Busy: no slot was free within `patience_seconds`; never with None.
        """
        slots = await self._slot_runs.slots.take_within(1, patience_seconds)
        if not slots:
            raise Busy(self._slot_runs.slots.free, _RETRY_MS)
        try:
            yield
        finally:
            self._slot_runs.slots.give_back(slots)

    @property
    def waiting(self) -> int:
        """Number of callers that wait for slots."""
        return self._slot_runs.slots.waiting

    @property
    def languages(self) -> list[str]:
        """Languages that this executor can run."""
        return [*self._toolchain.languages, *_INTERPRETED]

    async def start(self) -> None:
        """Start the zygote and determine the containment that its programs reach.

        Raises:
            Unusable: the level is below `required`, or no program can run at all.
        """
        host = os.uname()
        if reason := explain_unfit_system(host.sysname, host.release):
            raise Unusable(reason)
        plan = self._plan
        identity = choose_identity()
        interpreter = await find_interpreter(plan.python, identity)
        harnesses = {"calls": CALL_HARNESS, **plan.preload}
        packages = [*interpreter.package_dirs, *(str(path.resolve()) for path in plan.package_dirs)]
        self._zygote_plan = ZygotePlan(
            interpreter, identity, packages, plan.contain, harnesses, self._toolchain.interpreters,
            str(plan.work_dir) if plan.work_dir else None,
        )  # fmt: skip
        try:
            self._report = await self._probe(await self._get_zygote())
            await asyncio.to_thread(self._machine.probe)
            if not is_sufficient(self._report.level, plan.required) and not plan.allow_uncontained:
                raise Unusable(
                    f"containment reaches level {self._report.level}, required is {plan.required}: "
                    + "; ".join(self._report.missing)
                )
        except BaseException:
            await self.close()
            raise
        log = logger.info if is_sufficient(self._report.level, plan.required) else logger.warning
        log("containment: level %s, Landlock ABI %d, Python %s for candidates (%s)%s", self._report.level,
            self._report.landlock_abi, self._report.python_version, interpreter.path,
            "".join(f"; missing {line}" for line in self._report.missing))  # fmt: skip

    async def close(self) -> None:
        """End everything that runs; requests in flight fail with ExecutorLost."""
        zygote, self._zygote = self._zygote, None
        if zygote is not None:
            await zygote.close()
        await self._slot_runs.wait_for_reclaims()

    async def run(self, request: RunRequest) -> RunReply:
        """Run a program on its inputs.

        Raises:
            RequestRefused: the request cannot be served, now or later.
            Busy: every slot and every place in the queue is taken.
            ExecutorLost: the machinery died under the request; nothing is known about the program.
        """
        self._check(request)
        if self._admitted >= self._admitted_limit:
            raise Busy(self._slot_runs.slots.free, _RETRY_MS)
        self._admitted += 1
        try:
            zygote = await self._get_zygote()
            allowed = self._settlement.compute_allowed_seconds(request.limits.time_seconds)
            language = LANGUAGES[request.language]
            if language.driver is Driver.PYTHON:
                return await self._settle(Batch(zygote, request, _choose_kind(request, zygote), allowed=allowed))
            if language.is_compiled:
                return await self._compile_and_run(request, zygote, allowed)
            return await self._interpret(request, zygote, allowed)
        finally:
            self._admitted -= 1

    async def _interpret(
        self, request: RunRequest, zygote: ZygoteProcess, allowed: float, code: bytes | None = None
    ) -> RunReply:
        interpreter = os.open(self._toolchain.interpreter(request.language), os.O_RDONLY | os.O_CLOEXEC)
        try:
            return await self._settle(
                Batch(zygote, request, frames.KIND_INTERPRETED, interpreter, allowed=allowed, code=code)
            )
        finally:
            os.close(interpreter)

    async def _compile_and_run(self, request: RunRequest, zygote: ZygoteProcess, allowed: float) -> RunReply:
        stage = CompileStage(
            zygote, self._toolchain, request, self._oom_kills, self._run_queues, self._plan.compile_seconds
        )
        with self._slot_runs.occupy(zygote, await self._slot_runs.slots.take(1)) as slot:
            await stage.run_in(slot)
        # The slot is free at once, because the stage's runner has ended well. The wait happens outside the slot.
        if stage.was_killed:
            raise UnexplainedKill("the machine killed the compiler: it has too little memory for it")
        if stage.was_starved:
            raise ExecutorLost("the machine was too busy for the compiler, which waited for a CPU most of its time")
        compiled = stage.compiled
        if stage.executable is None:
            return RunReply(compiled, [NOT_RUN] * len(request.inputs), self.report.level)
        try:
            if LANGUAGES[request.language].driver is Driver.INTERPRETER:
                code = os.pread(stage.executable, os.fstat(stage.executable).st_size, 0)
                reply = await self._interpret(request, zygote, allowed, code)
            else:
                kind = frames.KIND_EXECUTABLE
                reply = await self._settle(Batch(zygote, request, kind, stage.executable, allowed=allowed))
        finally:
            os.close(stage.executable)
        return msgspec.structs.replace(reply, compile=compiled)

    async def _settle(self, batch: Batch) -> RunReply:
        """Settle the batch, free it, and return its results."""
        try:
            compiled, runs = await self._settlement.settle(batch)
            if isinstance(batch.request, RequestWithFiles):
                files = None if batch.files is None else dict(batch.files)
                return ReplyWithFiles(compiled, runs, self.report.level, files)
            return RunReply(compiled, runs, self.report.level)
        finally:
            batch.close()

    async def _get_zygote(self) -> ZygoteProcess:
        """Return the zygote; restart it if it has died."""
        async with self._starting:
            if self._zygote_plan is None:
                raise ExecutorLost("the executor is not running")
            if self._zygote is not None and self._zygote.lost.done():
                logger.error("the zygote died; starting another")
                await self._zygote.close()
                self._zygote = None
            if self._zygote is None:
                self._zygote = await ZygoteProcess.start(self._zygote_plan)
            return self._zygote

    async def _probe(self, zygote: ZygoteProcess) -> ContainmentReport:
        """Return the containment that programs reach in a runner and, for programs of one input, in a worker."""
        printed = [await self._run_probe(zygote, frames.KIND_PROGRAM)]
        if zygote.is_filtered:
            printed.append(await self._run_probe(zygote, frames.KIND_PROGRAM_WORKER))
        abi, version = int(zygote.hello["abi"]), zygote.hello["python"]
        found = [read_probe(text) for text in printed]
        return rate_containment({name: all(one[name] for one in found) for name in found[0]}, abi, version)

    async def _run_probe(self, zygote: ZygoteProcess, kind: int) -> str:
        request = RunRequest("python", PROBE, [b""], Limits(10.0, PROBE_MEMORY_MIB, 64))
        batch = Batch(zygote, request, kind)
        try:
            await self._slot_runs.run_batch(batch)
        except ExecutorLost as error:
            raise Unusable(f"the containment probe could not run: {error}") from error
        finally:
            batch.close()
        run = batch.runs.get(0, NOT_RUN)
        if not run.stdout:
            raise Unusable(
                f"the containment probe did not run ({run.end} {run.exit_code}): {run.stderr.decode()[-500:]}"
            )
        return run.stdout.decode(errors="replace")

    def _check(self, request: RunRequest) -> None:
        """Refuse a request that can never be served. Raises RequestRefused."""
        limits = request.limits
        modes = {"stdio", *(self._zygote_plan.harnesses if self._zygote_plan else ())}
        found = [
            *find_complaints(request),
            (
                request.language not in self.languages,
                f"language {request.language} is not available here, only {', '.join(self.languages)}",
            ),
            (request.mode not in modes, f"mode {request.mode!r} is not one of {sorted(modes)}"),
            (request.language != "python" and request.mode != "stdio", f"mode {request.mode} is for Python only"),
            (not 1 <= len(request.inputs) <= MAX_INPUTS, f"inputs: give 1 to {MAX_INPUTS}, not {len(request.inputs)}"),
            (
                not 0 < limits.time_seconds <= _MAX_TIME_SECONDS,
                f"limits.time_seconds: above 0, at most {_MAX_TIME_SECONDS}",
            ),
            (not 16 <= limits.memory_mib <= _MAX_MEMORY_MIB, f"limits.memory_mib: 16 to {_MAX_MEMORY_MIB}"),
            (not 1 <= limits.output_kib <= _MAX_OUTPUT_KIB, f"limits.output_kib: 1 to {_MAX_OUTPUT_KIB}"),
            (request.stop_after_timeouts < 0, "stop_after_timeouts: 0 or more"),
        ]
        for wrong, message in found:
            if wrong:
                raise RequestRefused(message)


def _choose_kind(request: RunRequest, zygote: ZygoteProcess) -> int:
    """Return the kind of process for a Python program.

    A runner compiles a program once for many inputs. For a single input a worker saves the runner's fork and
    preparations.
    Without a filter a program may leave processes behind, which only the end of a runner ends.
    """
    if request.mode != "stdio":
        return frames.KIND_HARNESS_WORKER
    several = len(request.inputs) > 1 or isinstance(request, RequestWithFiles)
    return frames.KIND_PROGRAM if several or not zygote.is_filtered else frames.KIND_PROGRAM_WORKER
