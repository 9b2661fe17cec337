"""A real gateway and sandboxes with a number of requests in flight, and what became of every one of them."""

from __future__ import annotations  # grpcio's stubs are generic, its classes are not

import asyncio
import threading
import time
from pathlib import Path

import grpc
from builders.data import stdio_problem
from builders.judge.services import request_of
from builders.ports import free_ports

from evalrun_cli.local.processes import ServiceProcess
from evalrun_proto.judge.v1 import judge_pb2_grpc
from evalrun_runtime.connections.grpc_channel import open_channel

PROGRAM = "import time\ntime.sleep(3)\nprint(sum(map(int, input().split())))"
"""Holds a slot for 3 s, and next to no CPU."""


class HeldLoad:
    """Holds `in_flight` requests at a gateway, with `running` sandboxes behind it; both may be set at any time.

    What is in flight at the end is taken back.
    """

    def __init__(self, directory: Path, sandboxes: int, slots: int, *, running: int = 1) -> None:
        """Start nothing yet.

        Args:
            directory: for logs.
            sandboxes: that may run at once.
            slots: of each.
            running: sandboxes that run at first; with 0, a request that no sandbox takes is asked again until one does,
                as an aggregator asks.
        """
        self.metrics_port, *ports = free_ports(1 + sandboxes)
        self.in_flight = 0
        self.running = running
        """Sandboxes that should run; those beyond get SIGTERM."""
        self.ends: list[float] = []
        """Seconds that each request took whose verdict was right."""
        self.faults: list[str] = []
        """Requests that failed, and verdicts that were wrong."""
        self._first = running
        self._asking: set[asyncio.Task[None]] = set()
        addresses = [f"http://127.0.0.1:{port}" for port in ports]
        flags = [f"--slots={slots}"]
        self._sandboxes = [
            ServiceProcess("sandbox", "evalrun_sandbox", flags, directory / f"sandbox-{number}.log", address=address)
            for number, address in enumerate(addresses)
        ]
        flags = [f"--metrics-port={self.metrics_port}", "--cache-mib=0", *(f"--sandbox={one}" for one in addresses)]
        self._gateway = ServiceProcess("judge", "evalrun_judge", flags, directory / "judge.log")
        self._ready, self._stop = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._go()))

    def __enter__(self) -> HeldLoad:
        self._thread.start()
        if not self._ready.wait(120):
            raise TimeoutError("the gateway did not start in 120 s")
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    @property
    def unanswered(self) -> int:
        return len(self._asking)

    async def _go(self) -> None:
        for sandbox in self._sandboxes[: self._first]:
            await sandbox.start()
        await self._gateway.start()
        self._ready.set()
        following = asyncio.create_task(self._follow())
        try:
            async with open_channel(self._gateway.address) as channel:
                await self._load(judge_pb2_grpc.JudgeServiceStub(channel))
        finally:
            following.cancel()
            await asyncio.gather(following, return_exceptions=True)
            await asyncio.gather(*(one.stop(30) for one in (self._gateway, *self._sandboxes)))

    async def _load(self, stub: judge_pb2_grpc.JudgeServiceAsyncStub) -> None:
        while not self._stop.is_set():
            while len(self._asking) < self.in_flight:
                task = asyncio.create_task(self._ask(stub))
                self._asking.add(task)
                task.add_done_callback(self._asking.discard)
            await asyncio.sleep(0.05)
        last = [*self._asking]
        for task in last:
            task.cancel()
        await asyncio.gather(*last, return_exceptions=True)

    async def _ask(self, stub: judge_pb2_grpc.JudgeServiceAsyncStub) -> None:
        begun = time.monotonic()
        request = request_of(stdio_problem(tests=1), PROGRAM)
        while True:
            try:
                answer = await stub.Judge(request)
                break
            except grpc.aio.AioRpcError as error:
                await asyncio.sleep(1)
                if self._first == 0 and error.code() is grpc.StatusCode.UNAVAILABLE:
                    continue
                self.faults.append(repr(error))
                return
        if answer.verdict.accepted:
            self.ends.append(time.monotonic() - begun)
        else:
            self.faults.append(str(answer))

    async def _follow(self) -> None:
        """Start and end sandboxes as their pods come and go."""
        running = self._first
        while True:
            if running < self.running:
                await self._sandboxes[running].start()
                running += 1
            elif running > self.running:
                running -= 1
                await self._sandboxes[running].stop(60)
            else:
                await asyncio.sleep(0.2)
