"""A large suite crosses from gateway to sandbox once; whatever becomes of the sandbox, verdicts are right."""

from __future__ import annotations  # grpcio's stubs are generic, its classes are not

import os
import re
import signal
from pathlib import Path

import aiohttp
import grpc
from builders.judge.services import services

from evalrun_cli.local.processes import ServiceProcess
from evalrun_judge.submission import StdioTest, StdioTests
from evalrun_proto.judge.v1 import judge_pb2, judge_pb2_grpc
from evalrun_runtime.connections.grpc_channel import open_channel

CASES = [(f"{number}\n" + "x" * 100_000, f"{number} 100000\n") for number in range(3)]
PROGRAM = "n = input()\nprint(n, len(input()))\n"
DIGEST = StdioTests([StdioTest(data, wanted) for data, wanted in CASES]).digest


def request_of(text: str, *, with_tests: bool) -> judge_pb2.JudgeRequest:
    submission = judge_pb2.Submission(text=text, mode=judge_pb2.SUBMISSION_MODE_STANDALONE)
    request = judge_pb2.JudgeRequest(submission=submission, suite_digest=DIGEST)
    if with_tests:
        for data, wanted in CASES:
            request.stdio.tests.add(input=data, expected_output=wanted)
    return request


async def answers(sandbox: ServiceProcess) -> dict[str, int]:
    """The requests that a sandbox counted, by its answer."""
    async with aiohttp.ClientSession() as session, session.get(f"{sandbox.address}/metrics") as answer:
        found = re.findall(r'evalrun_sandbox_requests_total\{answer="(\w+)"\} (\d+)', await answer.text())
    return {name: int(count) for name, count in found if int(count)}


async def ratios(channel: grpc.aio.Channel, *programs: str) -> list[float]:
    stub = judge_pb2_grpc.JudgeServiceStub(channel)
    verdicts = [(await stub.Judge(request_of(text, with_tests=False))).verdict for text in programs]
    assert all(test.input.full_length == 100_002 for verdict in verdicts for test in verdict.tests)
    return [verdict.pass_ratio for verdict in verdicts]


async def test_kept_suite_is_sent_again_after_the_sandbox_restarts(tmp_path: Path) -> None:
    async with services(tmp_path) as (judge, (sandbox,)), open_channel(judge.address) as channel:
        first = request_of(PROGRAM, with_tests=True)
        first_verdict = (await judge_pb2_grpc.JudgeServiceStub(channel).Judge(first, wait_for_ready=True)).verdict
        assert first_verdict.pass_ratio == 1.0
        assert await ratios(channel, PROGRAM, "print(0, 100000)", PROGRAM) == [1.0, 1 / 3, 1.0]
        assert await answers(sandbox) == {"done": 4}

        assert sandbox.pid is not None
        os.kill(sandbox.pid, signal.SIGKILL)
        await sandbox.wait()
        await sandbox.start()
        assert await ratios(channel, PROGRAM, PROGRAM, "print(1, 100000)") == [1.0, 1.0, 1 / 3]
        assert await answers(sandbox) == {"unknown_inputs": 1, "done": 3}


async def test_sandbox_without_room_gets_the_inputs_with_each_request(tmp_path: Path) -> None:
    async with (
        services(tmp_path, sandbox_arguments=["--keep-mib", "0"]) as (judge, (sandbox,)),
        open_channel(judge.address) as channel,
    ):
        first = request_of(PROGRAM, with_tests=True)
        assert (await judge_pb2_grpc.JudgeServiceStub(channel).Judge(first, wait_for_ready=True)).verdict.accepted
        assert await ratios(channel, PROGRAM, PROGRAM) == [1.0, 1.0]
        assert await answers(sandbox) == {"done": 3}
