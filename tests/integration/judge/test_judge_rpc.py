"""The gateway's RPCs over a real connection, with scripted sandboxes behind them."""

from __future__ import annotations  # grpcio's stubs are generic, its classes are not

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import grpc
import pytest
from builders.judge.gateway import NoAssertions
from prometheus_client import CollectorRegistry

from evalrun_executor.api import RunReply, RunRequest
from evalrun_judge.app import JudgeGateway, build_pool
from evalrun_judge.metrics import JudgeMetrics
from evalrun_judge.pool.sandbox_fleet import SandboxSources
from evalrun_judge.pool.slot_queue import UnresolvedSandboxesError
from evalrun_judge.rpc.messages import request_from
from evalrun_judge.sandboxes import SandboxFailedError, SandboxUnreachableError
from evalrun_judge.sandboxes.fake import FakeSandbox, echo
from evalrun_judge.settings import JudgeSettings
from evalrun_proto.judge.v1 import judge_pb2, judge_pb2_grpc
from evalrun_registry.languages import LANGUAGES
from evalrun_runtime.connections.grpc_channel import open_channel

if TYPE_CHECKING:
    from evalrun_proto.judge.v1.judge_pb2_grpc import JudgeServiceAsyncStub as Stub


def settings(**changes: object) -> JudgeSettings:
    return JudgeSettings.model_validate({"sandbox": ["http://127.0.0.1:1"], "hedging": False, **changes})


@asynccontextmanager
async def gateway(
    *sandboxes: FakeSandbox, configured: JudgeSettings | None = None
) -> AsyncIterator[tuple[Stub, JudgeGateway]]:
    configured = configured or settings()
    metrics = JudgeMetrics(CollectorRegistry())
    service = JudgeGateway(
        configured, build_pool(configured, SandboxSources(sandboxes), metrics), NoAssertions(), metrics
    )
    address = await service.start()
    try:
        async with open_channel(address) as channel:
            yield judge_pb2_grpc.JudgeServiceStub(channel), service
    finally:
        await service.stop(0)


def message(
    request_id: str = "r", text: str = "```python\nprint(input())\n```", data: str = "1\n", expected: str = "1\n"
) -> judge_pb2.JudgeRequest:
    return judge_pb2.JudgeRequest(
        request_id=request_id,
        submission=judge_pb2.Submission(text=text, mode=judge_pb2.SUBMISSION_MODE_AUTO, language="python"),
        stdio=judge_pb2.StdioTests(tests=[judge_pb2.StdioTest(input=data, expected_output=expected)]),
    )


async def test_judge_returns_a_verdict_with_its_test_result() -> None:
    async with gateway(FakeSandbox()) as (stub, _):
        verdict = (await stub.Judge(message())).verdict
    assert verdict.final_status == judge_pb2.FINAL_STATUS_SUCCESS
    assert (verdict.judged, verdict.accepted, verdict.pass_ratio) == (True, True, 1.0)
    assert verdict.containment_level == "full"
    assert verdict.extraction == judge_pb2.EXTRACTION_METHOD_TAGGED_BLOCK
    (test,) = verdict.tests
    assert (test.status, test.ran, test.exit_code) == (judge_pb2.TEST_STATUS_SUCCESS, True, 0)
    assert (test.stdout.text, test.stdout.full_length) == ("1\n", 2)
    assert not test.HasField("stderr")


async def test_suite_sent_once_is_then_named_by_its_digest() -> None:
    async with gateway(FakeSandbox()) as (stub, _):
        whole = message(data="1\n" * 100, expected="1\n" * 100)
        digest = request_from(whole).tests.digest  # type: ignore[attr-defined]  # stdio tests
        named = judge_pb2.JudgeRequest(submission=whole.submission, suite_digest=digest)
        assert (await failure(stub.Judge(named))).code() is grpc.StatusCode.NOT_FOUND
        (lacking,) = await ask(stub, [named])
        assert lacking.failure.code == grpc.StatusCode.NOT_FOUND.value[0]
        whole.suite_digest = digest
        assert (await stub.Judge(whole)).verdict.accepted
        verdict = (await stub.Judge(named)).verdict
        assert (verdict.accepted, verdict.tests[0].input.full_length) == (True, 200)
        whole.suite_digest = bytes(32)  # whoever could name other tests so would decide others' verdicts
        wrong = await failure(stub.Judge(whole))
        assert (wrong.code(), "suite_digest" in (wrong.details() or "")) == (grpc.StatusCode.INVALID_ARGUMENT, True)


async def failure(call: grpc.aio.UnaryUnaryCall[Any, Any]) -> grpc.aio.AioRpcError:
    with pytest.raises(grpc.aio.AioRpcError) as error:
        await call
    return error.value


async def test_unjudgeable_request_is_invalid_argument_naming_the_field() -> None:
    async with gateway(FakeSandbox()) as (stub, _):
        for broken, field in (
            (judge_pb2.JudgeRequest(submission=judge_pb2.Submission(text="x")), "tests"),
            (judge_pb2.JudgeRequest(stdio=judge_pb2.StdioTests()), "stdio.tests"),
            (judge_pb2.JudgeRequest(comparator=judge_pb2.Comparator(name="near")), "comparator.name"),
            (judge_pb2.JudgeRequest(submission=judge_pb2.Submission(language="cobol")), "submission.language"),
        ):
            request = message()
            request.MergeFrom(broken)
            if field == "tests":
                request.ClearField("stdio")
            if field == "stdio.tests":
                request.stdio.Clear()
                request.stdio.SetInParent()
            error = await failure(stub.Judge(request))
            assert error.code() is grpc.StatusCode.INVALID_ARGUMENT
            assert field in (error.details() or "")


async def test_judge_and_describe_are_unavailable_until_a_sandbox_answers() -> None:
    sandbox = FakeSandbox(down=SandboxUnreachableError("connection refused"))
    async with gateway(sandbox, configured=settings(retry_budget_seconds=0)) as (stub, _):
        assert (await failure(stub.Describe(judge_pb2.DescribeRequest()))).code() is grpc.StatusCode.UNAVAILABLE
        assert (await failure(stub.Judge(message()))).code() is grpc.StatusCode.UNAVAILABLE
        sandbox.down = None
        await up(stub)
        assert (await stub.Judge(message())).verdict.accepted
        info = await stub.Describe(judge_pb2.DescribeRequest())
    assert (info.backend, info.containment_level, info.slots) == ("evalrun", "full", 2)
    assert (list(info.languages), info.python_version) == ([*LANGUAGES], "3.11.0")
    assert info.judge_version


async def up(stub: Stub) -> None:
    """Ask until the first sandbox has answered.

    With a limit of its own: pytest-timeout raises in whatever callback runs, and the event loop only logs that.
    """
    async with asyncio.timeout(60):
        while True:
            try:
                await stub.Describe(judge_pb2.DescribeRequest())
            except grpc.aio.AioRpcError:
                continue
            return


async def next_id(stream: grpc.aio.StreamStreamCall[Any, Any]) -> str:
    answer = await stream.read()
    assert isinstance(answer, judge_pb2.JudgeStreamResponse), "the stream has ended"
    return answer.request_id


async def test_infra_faults_end_as_a_status_and_never_as_a_verdict() -> None:
    sandbox = FakeSandbox(faults=[SandboxFailedError("500")] * 9)
    async with gateway(sandbox, configured=settings(retry_attempts=2)) as (stub, _):
        error = await failure(stub.Judge(message()))
    assert error.code() is grpc.StatusCode.UNAVAILABLE
    assert "500" in (error.details() or "")


async def test_judge_stream_without_dns_names_the_reason() -> None:
    async def without_dns(_request: RunRequest) -> RunReply:
        raise UnresolvedSandboxesError("any wording")

    async with gateway(FakeSandbox(without_dns)) as (stub, _):
        await up(stub)
        (refused,) = await ask(stub, [message()])
    assert refused.failure.code == grpc.StatusCode.UNAVAILABLE.value[0]
    assert refused.failure.reason == judge_pb2.FAILURE_REASON_NO_DNS


async def test_full_queue_is_refused_with_a_retry_delay() -> None:
    gate = Gate()
    async with gateway(FakeSandbox(gate.behaviour, slots=1), configured=settings(queue_limit=1)) as (stub, _):
        await up(stub)
        running = [stub.Judge(message()) for _ in range(2)]
        await gate.arrived()
        error = await failure(stub.Judge(message()))
        assert error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        trailer = dict(error.trailing_metadata())
        assert int(trailer["retry-after-ms"]) > 0
        assert trailer["grpc-retry-pushback-ms"] == trailer["retry-after-ms"]
        (refused,) = await ask(stub, [message("s")])
        assert refused.failure.code == grpc.StatusCode.RESOURCE_EXHAUSTED.value[0]
        assert refused.failure.retry_after_ms > 0
        gate.open.set()
        for call in running:
            assert (await call).verdict.accepted


async def test_large_requests_fill_the_queue_too() -> None:
    gate = Gate()
    async with gateway(FakeSandbox(gate.behaviour, slots=1), configured=settings(queue_mib=1)) as (stub, _):
        await up(stub)
        large = message(data="1\n" + " " * 900_000)
        running = stub.Judge(large)
        await gate.arrived()
        assert (await failure(stub.Judge(large))).code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        gate.open.set()
        assert (await running).verdict.accepted
        assert (await stub.Judge(large)).verdict.accepted


class Gate:
    """A sandbox behaviour that waits until it is let go."""

    def __init__(self) -> None:
        self.open = asyncio.Event()
        self._arrived = asyncio.Semaphore(0)
        self.cancelled = asyncio.Event()

    async def arrived(self) -> None:
        await self._arrived.acquire()

    async def behaviour(self, request: RunRequest) -> RunReply:
        self._arrived.release()
        try:
            await self.open.wait()
        except asyncio.CancelledError:
            self.cancelled.set()
            raise
        return echo(request)


async def ask(stub: Stub, requests: list[judge_pb2.JudgeRequest]) -> list[judge_pb2.JudgeStreamResponse]:
    async def send() -> AsyncIterator[judge_pb2.JudgeStreamRequest]:
        for request in requests:
            yield judge_pb2.JudgeStreamRequest(request=request)

    return [response async for response in stub.JudgeStream(send())]


async def test_a_stream_answers_each_request_once() -> None:
    requests = [message(str(i), data=f"{i}\n", expected=f"{i if i % 2 else -1}\n") for i in range(300)]
    requests.append(judge_pb2.JudgeRequest(request_id="broken"))
    async with gateway(FakeSandbox(slots=4), configured=settings(stream_concurrency=16)) as (stub, _):
        answers = await ask(stub, requests)
    assert len(answers) == 301
    verdicts = {answer.request_id: answer.verdict.accepted for answer in answers if answer.HasField("verdict")}
    assert verdicts == {str(i): bool(i % 2) for i in range(300)}
    (broken,) = (answer for answer in answers if answer.HasField("failure"))
    assert (broken.request_id, broken.failure.code) == ("broken", grpc.StatusCode.INVALID_ARGUMENT.value[0])


async def test_stream_sends_verdicts_in_the_order_they_are_reached() -> None:
    gate = Gate()

    async def behaviour(request: RunRequest) -> RunReply:
        return await gate.behaviour(request) if request.inputs == [b"slow"] else echo(request)

    async with gateway(FakeSandbox(behaviour)) as (stub, _):
        stream = stub.JudgeStream()
        for name in ("slow", "quick"):
            await stream.write(judge_pb2.JudgeStreamRequest(request=message(name, data=name, expected=name)))
        assert await next_id(stream) == "quick"
        gate.open.set()
        assert await next_id(stream) == "slow"
        await stream.done_writing()


async def test_client_disconnect_stops_its_requests() -> None:
    for unary in (True, False):
        gate = Gate()
        async with gateway(FakeSandbox(gate.behaviour)) as (stub, _):
            if unary:
                call = stub.Judge(message())
                await gate.arrived()
                call.cancel()
            else:
                stream = stub.JudgeStream()
                await stream.write(judge_pb2.JudgeStreamRequest(request=message()))
                await gate.arrived()
                stream.cancel()
            await asyncio.wait_for(gate.cancelled.wait(), 60)


async def test_a_deadline_stops_the_program_and_decides_nothing() -> None:
    gate = Gate()
    async with gateway(FakeSandbox(gate.behaviour)) as (stub, _):
        await up(stub)
        call = stub.Judge(message(), timeout=2)
        await gate.arrived()
        error = await failure(call)
        assert error.code() is grpc.StatusCode.DEADLINE_EXCEEDED
        await asyncio.wait_for(gate.cancelled.wait(), 60)


async def test_each_request_of_a_stream_has_its_own_deadline() -> None:
    """One that runs and one that waits for a slot end at theirs; the others go on."""
    gate = Gate()
    async with gateway(sandbox := FakeSandbox(gate.behaviour, slots=1)) as (stub, _):
        await up(stub)
        stream = stub.JudgeStream()
        for name, seconds in (("running", 2.0), ("waiting", 0.1), ("patient", 0.0)):
            request = message(name, data=name, expected=name)
            request.deadline_seconds = seconds
            await stream.write(judge_pb2.JudgeStreamRequest(request=request))
            if name == "running":
                await gate.arrived()
        expired = grpc.StatusCode.DEADLINE_EXCEEDED.value[0]
        assert await codes(stream, 2) == {"waiting": expired, "running": expired}
        await asyncio.wait_for(gate.cancelled.wait(), 60)
        gate.open.set()
        assert await next_id(stream) == "patient"
        await stream.done_writing()
        assert [request.inputs[0] for request in sandbox.requests] == [b"running", b"patient"]


async def test_retries_end_at_the_deadline() -> None:
    sandbox = FakeSandbox(faults=[SandboxFailedError("status 500")] * 1000)
    async with gateway(sandbox, configured=settings(retry_attempts=1000)) as (stub, _):
        await up(stub)
        request = message()
        request.deadline_seconds = 1.0
        (answer,) = await ask(stub, [request])
        assert answer.failure.code == grpc.StatusCode.DEADLINE_EXCEEDED.value[0]
        assert (await failure(stub.Judge(request, timeout=60))).code() is grpc.StatusCode.DEADLINE_EXCEEDED
        tried = len(sandbox.requests)
        assert tried > 2
        sandbox.faults.clear()
        assert (await stub.Judge(message())).verdict.accepted
        assert len(sandbox.requests) == tried + 1  # nothing went on behind the answers


async def codes(stream: grpc.aio.StreamStreamCall[Any, Any], count: int) -> dict[str, int]:
    """Read so many answers, all of them failures."""
    answers = [await stream.read() for _ in range(count)]
    failed = [answer for answer in answers if isinstance(answer, judge_pb2.JudgeStreamResponse)]
    assert all(answer.HasField("failure") for answer in failed)
    return {answer.request_id: answer.failure.code for answer in failed}


async def test_cancelled_request_of_a_stream_is_stopped_and_the_others_are_judged() -> None:
    gate = Gate()

    async def behaviour(request: RunRequest) -> RunReply:
        return echo(request) if request.inputs == [b"quick"] else await gate.behaviour(request)

    async with gateway(sandbox := FakeSandbox(behaviour, slots=2)) as (stub, _):
        await up(stub)
        stream = stub.JudgeStream()
        for name in ("unwanted", "kept", "waiting"):
            await stream.write(judge_pb2.JudgeStreamRequest(request=message(name, data=name, expected=name)))
        await gate.arrived()
        await gate.arrived()
        for name in ("waiting", "unwanted", "never heard of"):
            await stream.write(judge_pb2.JudgeStreamRequest(cancel_request_id=name))
        cancelled = grpc.StatusCode.CANCELLED.value[0]
        assert await codes(stream, 2) == {"waiting": cancelled, "unwanted": cancelled}
        await asyncio.wait_for(gate.cancelled.wait(), 60)
        await stream.write(judge_pb2.JudgeStreamRequest(request=message("quick", data="quick", expected="quick")))
        assert await next_id(stream) == "quick"
        await stream.write(judge_pb2.JudgeStreamRequest(cancel_request_id="quick"))  # too late: nothing happens
        gate.open.set()
        assert await next_id(stream) == "kept"
        await stream.done_writing()
        assert not isinstance(await stream.read(), judge_pb2.JudgeStreamResponse)
        assert [request.inputs[0] for request in sandbox.requests] == [b"unwanted", b"kept", b"quick"]


async def test_drain_delivers_requests_in_flight_and_refuses_new_ones() -> None:
    gate = Gate()
    async with gateway(FakeSandbox(gate.behaviour)) as (stub, service):
        stream = stub.JudgeStream()
        await stream.write(judge_pb2.JudgeStreamRequest(request=message("in flight")))
        unary = asyncio.ensure_future(stub.Judge(message()))
        await gate.arrived()
        await gate.arrived()
        stopping = asyncio.create_task(service.stop(5))
        await asyncio.sleep(0)
        gate.open.set()
        answer = await stream.read()
        assert isinstance(answer, judge_pb2.JudgeStreamResponse)
        assert (answer.request_id, answer.verdict.accepted) == ("in flight", True)
        assert (await unary).verdict.accepted
        with pytest.raises(grpc.aio.AioRpcError) as error:
            await stream.read()
        assert error.value.code() is grpc.StatusCode.UNAVAILABLE
        await stopping
        assert (await failure(stub.Judge(message()))).code() is grpc.StatusCode.UNAVAILABLE


async def test_an_old_stream_ends_after_its_answers() -> None:
    async with gateway(FakeSandbox(), configured=settings(stream_seconds=1.0)) as (stub, _):
        stream = stub.JudgeStream()
        await stream.write(judge_pb2.JudgeStreamRequest(request=message("kept")))
        assert await next_id(stream) == "kept"
        with pytest.raises(grpc.aio.AioRpcError) as error:
            await stream.read()
        assert error.value.code() is grpc.StatusCode.UNAVAILABLE
