"""Real sandbox and gateway processes, and a client that has everything judged over one stream."""

from __future__ import annotations  # grpcio's stubs are generic, its classes are not

import asyncio
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import grpc

from evalrun_cli.local.processes import ServiceProcess
from evalrun_data.records import AssertTests, CheckTest, Problem, StdioTests
from evalrun_proto.judge.v1 import judge_pb2, judge_pb2_grpc
from evalrun_runtime.connections.grpc_channel import open_channel


@asynccontextmanager
async def services(
    directory: Path, *, sandboxes: int = 1, judge_arguments: Sequence[str] = (), sandbox_arguments: Sequence[str] = ()
) -> AsyncIterator[tuple[ServiceProcess, list[ServiceProcess]]]:
    """Start sandboxes and a gateway in front of them; gives their processes, ready.

    Verdicts are not cached, so that every program runs, however often it is sent.
    """
    async with AsyncExitStack() as stack:
        behind = []
        for number in range(sandboxes):
            sandbox = ServiceProcess(
                "sandbox", "evalrun_sandbox", sandbox_arguments, directory / f"sandbox-{number}.log"
            )
            stack.push_async_callback(sandbox.stop, 5)
            await sandbox.start()
            behind.append(sandbox)
        flags = [part for sandbox in behind for part in ("--sandbox", sandbox.address)]
        judge = ServiceProcess(
            "judge", "evalrun_judge", [*flags, "--cache-mib", "0", *judge_arguments], directory / "judge.log"
        )
        stack.push_async_callback(judge.stop, 5)
        await judge.start()
        yield judge, behind


def request_of(
    problem: Problem,
    text: str,
    *,
    mode: judge_pb2.SubmissionMode.ValueType = judge_pb2.SUBMISSION_MODE_STANDALONE,
    language: str = "python",
    stop_after_timeouts: int = 3,
) -> judge_pb2.JudgeRequest:
    """Ask for one answer to a problem to be judged, with the problem's own limits and comparator."""
    request = judge_pb2.JudgeRequest(
        submission=judge_pb2.Submission(text=text, mode=mode, language=language),
        stop_after_timeouts=stop_after_timeouts,
    )
    if problem.limits.time_seconds is not None:
        request.limits.time_seconds = problem.limits.time_seconds
    if problem.limits.memory_mib is not None:
        request.limits.memory_mib = problem.limits.memory_mib
    truth = problem.ground_truth
    match truth:
        case StdioTests():
            for given, expected in zip(truth.inputs, truth.outputs, strict=True):
                request.stdio.tests.add(input=given, expected_output=expected)
        case CheckTest():
            request.check.CopyFrom(
                judge_pb2.CheckTest(prompt=truth.prompt, test=truth.test, entry_point=truth.entry_point)
            )
        case AssertTests():
            request.asserts.asserts.extend(truth.test_list)
            request.asserts.setup_code = truth.test_setup_code
            request.asserts.entry_point = truth.entry_point
    own = problem.comparator
    if own is not None:
        request.comparator.CopyFrom(
            judge_pb2.Comparator(name=own.name, case_sensitive=own.case_sensitive, abs=own.abs, rel=own.rel)
        )
    return request


OVER = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.INTERNAL)
"""How a stream ends that takes no more. INTERNAL: what grpc.aio gives a write that comes before the status is read."""


async def judge_all(
    address: str, requests: Mapping[str, judge_pb2.JudgeRequest], *, in_flight: int = 64
) -> dict[str, judge_pb2.Verdict]:
    """Judge everything; what a stream ended without answering is sent again, as the contract says.

    Raises AssertionError where a request failed for good.
    """
    verdicts: dict[str, judge_pb2.Verdict] = {}
    async with open_channel(address) as channel:
        stub = judge_pb2_grpc.JudgeServiceStub(channel)
        while len(verdicts) < len(requests):
            missing = {name: request for name, request in requests.items() if name not in verdicts}
            try:
                await _one_stream(stub.JudgeStream(wait_for_ready=True), missing, verdicts, in_flight)
            except asyncio.InvalidStateError:
                continue  # what grpc.aio gives a write to a stream whose end has been read
            except grpc.aio.AioRpcError as error:
                if error.code() not in OVER:
                    raise
    return verdicts


async def _one_stream(
    stream: grpc.aio.StreamStreamCall[judge_pb2.JudgeStreamRequest, judge_pb2.JudgeStreamResponse],
    requests: Mapping[str, judge_pb2.JudgeRequest],
    verdicts: dict[str, judge_pb2.Verdict],
    in_flight: int,
) -> None:
    left = iter(requests.items())
    for name, request in take(left, in_flight):
        await send(stream, name, request)
    for _ in requests:
        answer = await stream.read()
        if not isinstance(answer, judge_pb2.JudgeStreamResponse):
            break
        if answer.HasField("failure"):
            code = answer.failure.code
            assert code in (grpc.StatusCode.UNAVAILABLE.value[0], grpc.StatusCode.RESOURCE_EXHAUSTED.value[0]), answer
        else:
            assert answer.request_id not in verdicts, "answered twice"
            verdicts[answer.request_id] = answer.verdict
        for name, request in take(left, 1):
            await send(stream, name, request)
    await stream.done_writing()


def take(
    pairs: Iterable[tuple[str, judge_pb2.JudgeRequest]], number: int
) -> Iterable[tuple[str, judge_pb2.JudgeRequest]]:
    return (pair for _, pair in zip(range(number), pairs, strict=False))


async def send(
    stream: grpc.aio.StreamStreamCall[judge_pb2.JudgeStreamRequest, judge_pb2.JudgeStreamResponse],
    name: str,
    request: judge_pb2.JudgeRequest,
) -> None:
    named = judge_pb2.JudgeRequest(request_id=name)
    named.MergeFrom(request)
    await stream.write(judge_pb2.JudgeStreamRequest(request=named))


def told(verdict: judge_pb2.Verdict) -> str:
    """Return in one line what a verdict is, for a test's message."""
    first = next((test for test in verdict.tests if test.status != judge_pb2.TEST_STATUS_SUCCESS), None)
    final = judge_pb2.FinalStatus.Name(verdict.final_status).removeprefix("FINAL_STATUS_").lower()
    if first is None:
        return final
    status = judge_pb2.TestStatus.Name(first.status).removeprefix("TEST_STATUS_").lower()
    which = f"test {first.case_index} {status} after {first.cpu_time:.2f} CPU s"
    return f"{final}: {which}: {first.reason} {first.stderr.text[-300:]!r}"


async def judge_until_judged(
    address: str, requests: Mapping[str, judge_pb2.JudgeRequest], *, rounds: int = 5
) -> dict[str, judge_pb2.Verdict]:
    """Judge everything; judge again, as a run does, what could not be judged and may be another time."""
    verdicts: dict[str, judge_pb2.Verdict] = {}
    left = dict(requests)
    for _ in range(rounds):
        verdicts |= await judge_all(address, left)
        left = {name: requests[name] for name in left if not verdicts[name].judged and not verdicts[name].permanent}
        if not left:
            break
    return verdicts
