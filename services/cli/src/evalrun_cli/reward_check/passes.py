"""Has a trainer ask for the rewards of all completions, in each of its ways, under each trouble."""

import asyncio
import json
import os
import signal
import tempfile
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from evalrun_cli.local.options import LocalOptions
from evalrun_cli.local.processes import Restarts, ServiceProcess, keep_running
from evalrun_cli.reward_check.answers import Answer
from evalrun_cli.reward_check.faulty_proxy import COMMON_FAULTS, FaultyProxy, serve
from evalrun_cli.reward_check.result import Pass, Trouble
from evalrun_cli.reward_check.ways import OWN, WAYS
from evalrun_runtime.exits import BadInputError

SANDBOX_PATHS = frozenset({"/v1/run", "/run_code"})
REWARD_PATHS = frozenset({"/v1/rewards", "/get_reward"})
SEED = 7
AWAY_SECONDS = 2.0
"""Time for which a SandboxFusion server seems to be gone: the server is not ours, so it is not killed."""
STOP_SECONDS = 20.0
PASS_SECONDS = 1800.0
"""Maximum seconds of a pass. A thousand completions take minutes on two cores; a client without a time limit would wait
without end for a lost reply."""
FIND_PACKAGE = "import importlib.util, sys; sys.exit(0 if importlib.util.find_spec('evalrun_trainers') else 3)"
LAST_LINES = 12
MAX_RESULT_BYTES = 2**28

Result = TypeVar("Result")


@dataclass(frozen=True)
class Parts:
    """The parts that are called, and those that break calls."""

    sandbox: FaultyProxy
    sandbox_url: str
    reward: FaultyProxy
    reward_url: str
    end_sandbox: Callable[[], None]
    end_judge: Callable[[], None]
    keepers: Sequence[asyncio.Task[int]]
    """Tasks that restart a part that ends. A task is done only if its part cannot be kept running."""

    async def supervise(self, work: Coroutine[Any, Any, Result]) -> Result:
        """Return the result of work. Raises ServiceFailedError, BadInputError if a part cannot be kept running."""
        task = asyncio.create_task(work)
        try:
            await asyncio.wait({task, *self.keepers}, return_when=asyncio.FIRST_COMPLETED)
            for keeper in self.keepers:
                if keeper.done():
                    keeper.result()
            return await task
        finally:
            await _cancel([task])


@asynccontextmanager
async def start_parts(logs: Path, options: LocalOptions) -> AsyncIterator[Parts]:
    """Start sandbox, judge and reward service. The proxies before sandbox and service break no call at first.

    Raises:
        BadInputError: a part refuses its input.
        ServiceFailedError: a part does not start.
    """
    running: list[ServiceProcess] = []
    async with AsyncExitStack() as stack:

        async def start(name: str, flags: Sequence[str]) -> ServiceProcess:
            service = ServiceProcess(name, f"evalrun_{name}", flags, logs / f"{name}.log")
            stack.push_async_callback(service.stop, STOP_SECONDS)
            await service.start()
            running.append(service)
            return service

        if options.sandbox_fusion is None:
            own = await start("sandbox", options.sandbox_flags)
            sandbox = FaultyProxy(own.address, 0.0, SEED, COMMON_FAULTS, SANDBOX_PATHS)
            end_sandbox = partial(_kill, own)
            backend = [*options.package_flags, *options.containment_flags]
        else:
            from evalrun_cli.local.fusion_server import check_fusion_server

            await check_fusion_server(options.sandbox_fusion)
            sandbox = FaultyProxy(options.sandbox_fusion, 0.0, SEED, COMMON_FAULTS, SANDBOX_PATHS)
            end_sandbox = partial(sandbox.go_away, AWAY_SECONDS)
            backend = ["--backend", "SandboxFusion"]
        sandbox_url = await stack.enter_async_context(serve(sandbox))
        # The cache of verdicts is off, because it would serve every pass but the first.
        judge = await start("judge", ["--sandbox", sandbox_url, "--cache-mib", "0", *backend])
        service = await start("reward", ["--judge", judge.address])
        reward = FaultyProxy(service.address, 0.0, SEED, COMMON_FAULTS, REWARD_PATHS)
        reward_url = await stack.enter_async_context(serve(reward))
        keepers = [asyncio.create_task(keep_running(each, Restarts())) for each in running]
        stack.push_async_callback(_cancel, keepers)
        yield Parts(sandbox, sandbox_url, reward, reward_url, end_sandbox, partial(_kill, judge), keepers)


async def _cancel(tasks: Sequence[asyncio.Task[Any]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def _kill(service: ServiceProcess) -> None:
    if service.pid is not None:
        os.kill(service.pid, signal.SIGKILL)


@dataclass(frozen=True)
class Trainer:
    """A trainer, and the interpreter in which it is installed."""

    name: str
    python: Path

    async def check(self) -> None:
        """Raise BadInputError if the interpreter does not start, or has no evalrun_trainers."""
        try:
            process = await asyncio.create_subprocess_exec(self.python, "-c", FIND_PACKAGE)
        except OSError as error:
            raise BadInputError(f"--python {self.python}: {error.strerror}: name the trainer's interpreter") from error
        if await process.wait():
            raise BadInputError(
                f"--python {self.python}: evalrun_trainers is not installed there: install evalrun-trainers "
                "(libs/trainers) beside the trainer"
            )

    @asynccontextmanager
    async def start_process(self, way: str, url: str, answers: Sequence[Answer]) -> AsyncIterator["TrainerProcess"]:
        """Start a process that asks for rewards through `way` at `url`.

        The process and its children are killed when the context ends. If this command is killed, the process ends
        because its stdin is closed.
        """
        with tempfile.TemporaryDirectory(prefix="evalrun-reward-check-") as directory:
            rows, log = Path(directory) / "rows.json", Path(directory) / "printed.txt"
            rows.write_text(json.dumps([answer.row() for answer in answers]))
            reading, writing = os.pipe()
            with log.open("wb") as printed:
                process = await asyncio.create_subprocess_exec(
                    *(self.python, "-m", "evalrun_trainers.check_process", self.name, way, url, rows, str(writing)),
                    stdin=asyncio.subprocess.PIPE, stdout=printed, stderr=printed, pass_fds=(writing,),
                    start_new_session=True,
                )  # fmt: skip
            os.close(writing)
            results = asyncio.StreamReader(limit=MAX_RESULT_BYTES)
            transport, _ = await asyncio.get_running_loop().connect_read_pipe(
                lambda: asyncio.StreamReaderProtocol(results), os.fdopen(reading, "rb")
            )
            try:
                yield TrainerProcess(self, process, results, log)
            finally:
                transport.close()
                # Children of the process may be left even if the process has ended by itself.
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                await process.wait()


@dataclass(frozen=True)
class TrainerProcess:
    """A process of `evalrun_trainers.check_process`."""

    trainer: Trainer
    process: asyncio.subprocess.Process
    results: asyncio.StreamReader
    log: Path

    async def ask(self) -> dict[str, Any]:
        """Return the rewards of all completions, as `check_process` reports them.

        Raises:
            BadInputError: the interpreter lacks the trainer.
            TrainerFailedError: the process ended without a result, or did not end.
        """
        name, stdin = self.trainer.name, self.process.stdin
        if stdin is not None:
            stdin.write(b"\n")
        try:
            async with asyncio.timeout(PASS_SECONDS):
                line = await self.results.readline()
        except TimeoutError as error:
            raise TrainerFailedError(f"{name} was still asking after {PASS_SECONDS:.0f} s") from error
        if not line:
            last = "\n".join(self.log.read_text(errors="replace").splitlines()[-LAST_LINES:])
            raise TrainerFailedError(f"{name} ended with exit code {await self.process.wait()}:\n{last}")
        given: dict[str, Any] = json.loads(line)
        if missing := given.get("missing"):
            raise BadInputError(
                f"--python {self.trainer.python}: {missing} is not installed there: install {name} in it"
            )
        return given


class TrainerFailedError(Exception):
    """A trainer's process gave no rewards at all."""


async def run_passes(
    trainer: Trainer, answers: Sequence[Answer], share: float, parts: Parts, tell: Callable[[str], None]
) -> tuple[list[Pass], str]:
    """Return all passes, and the trainer's version. Each way is used once for each trouble.

    Args:
        trainer: the trainer to start.
        answers: the completions of each pass.
        share: share of broken calls, in passes that break calls.
        parts: the parts that are called.
        tell: called with the next step.

    Raises:
        BadInputError: the interpreter lacks the trainer.
        TrainerFailedError: it returned no rewards at all.
    """
    passes: list[Pass] = []
    version = ""
    proxies = {parts.sandbox: parts.end_sandbox, parts.reward: parts.end_judge}
    for way in WAYS[trainer.name]:
        url = parts.sandbox_url if way == OWN else parts.reward_url
        usual: dict[FaultyProxy, int] = {}
        async with trainer.start_process(way, url, answers) as asking:
            for trouble in Trouble:
                tell(f"{trainer.name} through {'its own client' if way == OWN else 'evalrun'}, trouble: {trouble}")
                before = {proxy: (proxy.calls, proxy.injected.total()) for proxy in proxies}
                for proxy, end_part in proxies.items():
                    proxy.share = share if trouble == Trouble.BROKEN_CALLS else 0.0
                    middle = proxy.calls + (usual.get(proxy, 0) + 1) // 2
                    proxy.at_call = {middle: end_part} if trouble == Trouble.KILLED_PARTS else {}
                given = await asking.ask()
                calls = {proxy: proxy.calls - number for proxy, (number, _) in before.items()}
                # Without trouble no call is a retry.
                if trouble == Trouble.NONE:
                    usual = calls
                version = given["version"]
                passes.append(
                    Pass(
                        way=way,
                        trouble=trouble,
                        rewards=given["rewards"],
                        errors=given["errors"],
                        calls=sum(calls.values()),
                        broken=sum(proxy.injected.total() - broken for proxy, (_, broken) in before.items()),
                        seconds=given["seconds"],
                    )
                )
    return passes, version
