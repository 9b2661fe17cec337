"""Infra faults around real programs: every verdict right, none lost, none turned into a failure of the program."""

from __future__ import annotations  # grpcio's stubs are generic, its classes are not

import asyncio
import os
import signal
from pathlib import Path

import grpc
import pytest
from builders.data import stdio_problem
from builders.judge.load import finals, load
from builders.judge.sandbox import processes_named, require_compiler
from builders.judge.services import judge_all, request_of, send, services

from evalrun_cli.local.processes import ServiceProcess
from evalrun_cli.reward_check.faulty_proxy import FAULTS, faulty_proxy
from evalrun_proto.judge.v1 import judge_pb2, judge_pb2_grpc
from evalrun_runtime.connections.grpc_channel import open_channel

GONE = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED)
"""Codes after which a call is sent again elsewhere. A draining server cancels what it has just read."""


async def test_faults_between_gateway_and_sandbox_change_no_verdict(tmp_path: Path) -> None:
    sandbox = ServiceProcess("sandbox", "evalrun_sandbox", [], tmp_path / "sandbox.log")
    await sandbox.start()
    try:
        async with (
            faulty_proxy(sandbox.address, 0.4, seed=11) as (one, first),
            faulty_proxy(sandbox.address, 0.1, seed=12) as (two, second),
        ):
            arguments = ["--sandbox", one, "--sandbox", two, "--retry-attempts", "30", "--cache-mib", "0"]
            judge = ServiceProcess("judge", "evalrun_judge", arguments, tmp_path / "judge.log")
            await judge.start()
            try:
                requests, right = load(25)
                assert finals(await judge_all(judge.address, requests, in_flight=16)) == right
            finally:
                await judge.stop(5)
            assert set(first.injected + second.injected) == set(FAULTS)
    finally:
        await sandbox.stop(5)


@pytest.mark.timeout(240)
async def test_compiler_that_the_machine_always_kills_ends_as_unavailable(tmp_path: Path) -> None:
    """A run then judges it another time, and at last says that it is not judged."""
    require_compiler("rustc")
    # Long enough that no compiler ends before this test has seen it, on a machine that is busy too.
    long = "".join(f"fn f{number}(a: u64) -> u64 {{ a.wrapping_mul({number}) }}\n" for number in range(5_000))
    asked = request_of(stdio_problem(), f"{long}fn main() {{ undefined }}", language="rust")
    async with services(tmp_path) as (judge, _), open_channel(judge.address) as channel:
        stub = judge_pb2_grpc.JudgeServiceStub(channel)
        judging = asyncio.ensure_future(stub.Judge(asked, wait_for_ready=True))
        killed = set[int]()
        while not judging.done():
            for pid in set(processes_named("rustc")) - killed:
                os.kill(pid, signal.SIGKILL)
                killed.add(pid)
            await asyncio.sleep(0.01)
        error = judging.exception()
        assert isinstance(error, grpc.aio.AioRpcError)
        assert error.code() is grpc.StatusCode.UNAVAILABLE
        # Each of five calls of the sandbox compiles twice.
        assert 2 <= len(killed) <= 10
        verdict = await stub.Judge(asked)
    assert (verdict.verdict.judged, verdict.verdict.accepted) == (True, False)


@pytest.mark.parametrize(("how", "kinds"), [(signal.SIGKILL, 60), (signal.SIGTERM, 30)])
async def test_sandboxes_that_restart_in_turn_lose_and_change_no_verdict(
    how: signal.Signals, kinds: int, tmp_path: Path
) -> None:
    requests, right = load(kinds)
    async with services(tmp_path, sandboxes=2) as (judge, sandboxes):
        gone = 0
        while gone < 2:  # a fast machine judges all of them before the first sandbox is back
            judging = asyncio.create_task(judge_all(judge.address, requests, in_flight=16))
            while not judging.done():
                sandbox = sandboxes[gone % 2]
                if sandbox.pid is not None:
                    os.kill(sandbox.pid, how)
                gone += 1
                ended = await sandbox.wait()
                assert how is signal.SIGKILL or ended == 0
                await sandbox.start()
                await asyncio.wait([judging], timeout=0.3)
            assert finals(await judging) == right


async def test_terminated_gateway_and_sandbox_lose_none_of_64_requests_in_flight(tmp_path: Path) -> None:
    """As the kubelet tells pods that an autoscaler takes away: what they hold they answer, the rest goes elsewhere."""
    right = "import time\ntime.sleep(0.2)\nprint(sum(map(int, input().split())))"
    wrong = right.replace("sum(", "1 + sum(")
    problem = stdio_problem(tests=1)
    requests = {number: request_of(problem, (right, wrong)[number % 2]) for number in range(160)}
    places, answered, some = asyncio.Semaphore(64), dict[int, bool](), asyncio.Event()
    async with services(tmp_path, sandboxes=2, sandbox_arguments=["--slots=4"]) as (judge, sandboxes):
        flags = ["--cache-mib=0", *(f"--sandbox={sandbox.address}" for sandbox in sandboxes)]
        other = ServiceProcess("judge", "evalrun_judge", flags, tmp_path / "other.log")
        await other.start()
        hosts = ",".join(gateway.address.removeprefix("grpc://") for gateway in (judge, other))
        try:
            async with open_channel(f"ipv4:{hosts}") as channel, asyncio.timeout(240):
                stub = judge_pb2_grpc.JudgeServiceStub(channel)

                async def ask(number: int) -> None:
                    async with places:
                        while number not in answered:
                            try:
                                answer = await stub.Judge(requests[number], wait_for_ready=True)
                                answered[number] = answer.verdict.accepted
                            except grpc.aio.AioRpcError as error:
                                if error.code() not in GONE:
                                    raise
                    if len(answered) == 16:
                        some.set()

                asking = asyncio.gather(*map(ask, requests))
                await some.wait()
                assert len(requests) - len(answered) >= 64
                await asyncio.gather(judge.stop(120), sandboxes[0].stop(120))
                assert [await judge.wait(), await sandboxes[0].wait()] == [0, 0]
                await asking
        finally:
            await other.stop(5)
    assert answered == {number: number % 2 == 0 for number in requests}


async def test_program_ends_in_the_sandbox_when_its_request_expires_or_is_cancelled(
    tmp_path: Path,
) -> None:
    """With one slot and no queue, whatever went on there would keep the last program out."""
    endless = request_of(stdio_problem(), "while True: pass")
    endless.limits.time_seconds = 600
    expiring = judge_pb2.JudgeRequest(deadline_seconds=0.5)
    expiring.MergeFrom(endless)
    async with (
        services(tmp_path, sandbox_arguments=["--slots", "1", "--queue", "0"]) as (judge, _),
        open_channel(judge.address) as channel,
        asyncio.timeout(60),
    ):
        stream = judge_pb2_grpc.JudgeServiceStub(channel).JudgeStream(wait_for_ready=True)
        ends = []
        for name, request in (
            ("expiring", expiring),
            ("taken back", endless),
            ("last", request_of(stdio_problem(), "x = 1")),
        ):
            await send(stream, name, request)
            if name == "taken back":
                await stream.write(judge_pb2.JudgeStreamRequest(cancel_request_id=name))
            answer = await stream.read()
            assert isinstance(answer, judge_pb2.JudgeStreamResponse)
            ends.append((answer.request_id, answer.failure.code, answer.verdict.judged))
        await stream.done_writing()
    expired, cancelled = grpc.StatusCode.DEADLINE_EXCEEDED.value[0], grpc.StatusCode.CANCELLED.value[0]
    assert ends == [("expiring", expired, False), ("taken back", cancelled, False), ("last", 0, True)]


async def test_sigterm_delivers_requests_in_flight_and_ends_with_code_0(tmp_path: Path) -> None:
    slow = "import time\nwhile time.process_time() < 0.5: pass\nprint(sum(map(int, input().split())))"
    async with services(tmp_path) as (judge, _), open_channel(judge.address) as channel:
        stream = judge_pb2_grpc.JudgeServiceStub(channel).JudgeStream(wait_for_ready=True)
        await send(stream, "slow", request_of(stdio_problem(), slow))
        await until_in_flight(channel)
        stopping = asyncio.create_task(judge.stop(30))
        answer = await stream.read()
        assert isinstance(answer, judge_pb2.JudgeStreamResponse)
        assert (answer.request_id, answer.verdict.accepted) == ("slow", True)
        with pytest.raises(grpc.aio.AioRpcError) as error:
            await stream.read()
        assert error.value.code() is grpc.StatusCode.UNAVAILABLE
        await stopping
        assert await judge.wait() == 0


async def until_in_flight(channel: grpc.aio.Channel) -> None:
    """A request sent after another on the same connection is answered after it has been read."""
    stub = judge_pb2_grpc.JudgeServiceStub(channel)
    for _ in range(20):
        await stub.Judge(request_of(stdio_problem(), "print(1)"))
