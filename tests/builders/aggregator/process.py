"""A run to test the aggregator with: run configurations, problem files, an in-memory judge, the real process, a
worker."""

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc

from evalrun_client.fake_judge import make_scripted_verdict
from evalrun_client.judge_client import JudgeLostError
from evalrun_proto.judge.v1 import judge_pb2
from evalrun_proto.ledger.v1 import ledger_pb2, ledger_pb2_grpc
from evalrun_runtime.connections.grpc_channel import open_channel
from evalrun_runtime.connections.tls_files import TlsSource
from evalrun_runtime.ready_line import parse_ready_line

READY_SECONDS = 120.0


def write_problems(path: Path, dataset: str, count: int) -> Path:
    """Write `count` stdin/stdout problems p0, p1, ... whose expected outputs hold the word secret."""
    records = [
        {
            "dataset": dataset,
            "split": "test",
            "problem_id": f"p{number}",
            "prompt": f"Solve number {number}.",
            "ground_truth": {"inputs": [f"{number}\n"], "outputs": [f"secret {number}\n"]},
        }
        for number in range(count)
    ]
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return path


def write_run_config(
    directory: Path, *, problems: int = 4, datasets: Sequence[str] = ("first",), **changes: Any
) -> Path:
    """Write a run configuration and its problem files; `protocol` and `dataset` are merged into the spec."""
    protocol, dataset = changes.pop("protocol", {}), changes.pop("dataset", {})
    for name in datasets:
        write_problems(directory / f"{name}.jsonl", name, problems)
    order = {
        "schema": 1,
        "run": "test-run",
        "namespace": "default",
        "created": "2026-01-02T03:04:05Z",
        "spec": {
            "model": {"path": "some/model"},
            "datasets": [{"name": name, "source": f"{name}.jsonl", **dataset} for name in datasets],
            "protocol": protocol,
            "endpoints": [{"url": "http://127.0.0.1:1/v1", "model": "m"}],
        },
        "base_dir": str(directory),
        "output_dir": str(directory / "out"),
        **changes,
    }
    path = directory / "work_order.json"
    path.write_text(json.dumps(order))
    return path


class MemoryStream:
    """A stream of `MemoryJudge`."""

    def __init__(self, judge: "MemoryJudge") -> None:
        self._judge = judge
        self._answers: asyncio.Queue[judge_pb2.JudgeStreamResponse | None] = asyncio.Queue()
        self.broken = asyncio.Event()

    async def send(self, request: judge_pb2.JudgeRequest) -> None:
        self._judge.asked.append(request)
        if self.broken.is_set():
            raise JudgeLostError("broken")
        answer = self._judge.script(request)
        if answer is None:
            return
        response = judge_pb2.JudgeStreamResponse(request_id=request.request_id)
        if isinstance(answer, judge_pb2.Verdict):
            response.verdict.CopyFrom(answer)
        else:
            response.failure.CopyFrom(answer)
        self._answers.put_nowait(response)

    async def finish_sending(self) -> None:
        self._answers.put_nowait(None)

    async def receive(self) -> judge_pb2.JudgeStreamResponse | None:
        breaking = asyncio.create_task(self.broken.wait())
        getting = asyncio.create_task(self._answers.get())
        try:
            await asyncio.wait({breaking, getting}, return_when=asyncio.FIRST_COMPLETED)
            if getting.done():
                return getting.result()
            raise JudgeLostError("broken")
        finally:
            breaking.cancel()
            getting.cancel()


@dataclass
class MemoryJudge:
    """A judge without a network: `script` answers, or None for silence."""

    script: Any = make_scripted_verdict
    """A `fake_judge.Script` that may also give None."""
    address: str = "memory"
    asked: list[judge_pb2.JudgeRequest] = field(default_factory=list)
    streams: list[MemoryStream] = field(default_factory=list)
    refuse: list[Exception] = field(default_factory=list)
    """Raised one by one by the next streams that are opened."""
    submits: bool = False

    @asynccontextmanager
    async def open(self) -> AsyncIterator[MemoryStream]:
        if self.refuse:
            raise self.refuse.pop(0)
        stream = MemoryStream(self)
        self.streams.append(stream)
        yield stream

    async def describe(self, seconds: float) -> judge_pb2.DescribeResponse:
        del seconds
        return judge_pb2.DescribeResponse(backend="memory", containment_level="none", submits=self.submits)

    async def close(self) -> None:
        return None


@dataclass
class AggregatorProcess:
    """The real process. `start` again after `kill` keeps everything but the port."""

    arguments: list[str]
    environment: dict[str, str] = field(default_factory=dict)
    address: str = ""
    stderr: str = ""
    _process: asyncio.subprocess.Process | None = None
    _reading: asyncio.Task[None] | None = None

    @property
    def process(self) -> asyncio.subprocess.Process:
        assert self._process is not None
        return self._process

    async def start(self) -> str:
        port = self.address.rpartition(":")[2] or "0"
        self._process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "evalrun_aggregator", *self.arguments, "--port", port, "--drain-seconds", "1",
            stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
            env={**os.environ, **self.environment},
        )  # fmt: skip
        self._reading = asyncio.create_task(self._read_stderr())
        assert self.process.stdout is not None
        async with asyncio.timeout(READY_SECONDS):
            while line := await self.process.stdout.readline():
                if address := parse_ready_line(line.decode()):
                    self.address = address
                    return address
        raise AssertionError(f"not ready: exit code {await self.process.wait()}: {await self.errors()}")

    async def errors(self) -> str:
        if self._reading is not None:
            await self._reading
        return self.stderr

    async def end(self, number: signal.Signals = signal.SIGTERM) -> int:
        if self.process.returncode is None:
            self.process.send_signal(number)
        code = await self.process.wait()
        await self.errors()
        return code

    async def _read_stderr(self) -> None:
        assert self.process.stderr is not None
        while line := await self.process.stderr.readline():
            self.stderr += line.decode(errors="replace")


@asynccontextmanager
async def running(*arguments: str, **environment: str) -> AsyncIterator[AggregatorProcess]:
    """Run the aggregator; killed at the end."""
    process = AggregatorProcess(list(arguments), environment)
    await process.start()
    try:
        yield process
    finally:
        await process.end(signal.SIGKILL)


def scripted_text(item: ledger_pb2.WorkItem) -> str:
    """Return the worker's answer: every third problem is rejected by the fake judge."""
    number = int(item.key.problem_id.removeprefix("p"))
    return f"{item.key.problem_id} {item.key.sample} {item.key.repeat}: " + ("wrong" if number % 3 == 0 else "accept")


def completion_for(item: ledger_pb2.WorkItem, text: str | None = None) -> ledger_pb2.Completion:
    return ledger_pb2.Completion(
        key=item.key, text=scripted_text(item) if text is None else text, finish_reason="stop", prompt_tokens=5,
        output_tokens=min(10, item.sampling.max_tokens), generation_seconds=0.1, started_at=1000.0, replica="r0",
        model="m", attempts=1,
    )  # fmt: skip


class Worker:
    """A scripted generator: takes work, answers it, sends everything again when in doubt."""

    def __init__(self, address: str, name: str = "w", tls: TlsSource | None = None, *, epoch: int = 0) -> None:
        self.name = name
        self.epoch = epoch
        self.seen: list[ledger_pb2.WorkItem] = []
        self.stored = 0
        self._channel = open_channel(address, tls)
        self.stub: ledger_pb2_grpc.LedgerServiceAsyncStub = ledger_pb2_grpc.LedgerServiceStub(self._channel)

    async def close(self) -> None:
        await self._channel.close()

    async def take(self, limit: int = 8, *, fresh: bool = False) -> ledger_pb2.GetWorkResponse:
        return await self.stub.GetWork(
            ledger_pb2.GetWorkRequest(worker_id=self.name, max_items=limit, fresh=fresh, epoch=self.epoch), timeout=60
        )

    async def submit(self, items: Sequence[ledger_pb2.WorkItem]) -> int:
        request = ledger_pb2.SubmitCompletionsRequest(
            worker_id=self.name, completions=[completion_for(item) for item in items], epoch=self.epoch
        )
        return (await self.stub.SubmitCompletions(request, timeout=60)).stored

    async def status(self) -> ledger_pb2.GetStatusResponse:
        return await self.stub.GetStatus(ledger_pb2.GetStatusRequest(), timeout=60)

    async def work(self, batch: int = 8, pause: float = 0.0) -> None:
        """Generate until nothing is left, through any loss of the aggregator."""
        unsent: list[ledger_pb2.WorkItem] = []
        fresh = True
        while True:
            try:
                if unsent:
                    self.stored += await self.submit(unsent)
                    unsent = []
                work = await self.take(batch, fresh=fresh)
            except grpc.aio.AioRpcError as error:
                if error.code() not in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.RESOURCE_EXHAUSTED):
                    raise
                await asyncio.sleep(0.02)
                continue
            fresh = False
            if not work.remaining:
                return
            self.seen.extend(work.items)
            unsent = list(work.items)
            await asyncio.sleep(pause or work.retry_after_ms / 20_000)

    async def message(self, *words: str) -> str:
        """Wait until the run's message has these words."""
        async with asyncio.timeout(120):
            while True:
                said = (await self.status()).message
                if all(word in said for word in words):
                    return said
                await asyncio.sleep(0.05)

    async def wait_for(
        self, *states: "ledger_pb2.RunState.ValueType", seconds: float = 120
    ) -> ledger_pb2.GetStatusResponse:
        """Wait for a state; through any loss of the aggregator."""
        async with asyncio.timeout(seconds):
            while True:
                try:
                    status = await self.status()
                except grpc.aio.AioRpcError:
                    await asyncio.sleep(0.05)
                    continue
                if status.state in states:
                    return status
                await asyncio.sleep(0.05)


def read_results(directory: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (directory / "results.jsonl").read_text().splitlines()]


async def eventually(condition: Callable[[], bool], seconds: float = 60) -> None:
    """Wait until something that another process does shows."""
    async with asyncio.timeout(seconds):
        while not condition():  # noqa: ASYNC110 - another process sets no event of ours
            await asyncio.sleep(0.01)
