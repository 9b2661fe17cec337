"""A judge that runs nothing, and sends scripted replies over the real RPC contract. For tests and benchmarks."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import grpc

from evalrun_client.failure_codes import FailureCode, to_failure_code
from evalrun_proto.judge.v1 import judge_pb2, judge_pb2_grpc
from evalrun_runtime.connections.grpc_server import GrpcServer
from evalrun_runtime.settings import ServiceSettings

logger = logging.getLogger(__name__)

Answer = judge_pb2.Verdict | judge_pb2.StreamFailure
Script = Callable[[judge_pb2.JudgeRequest], Answer]


def make_scripted_verdict(request: judge_pb2.JudgeRequest) -> judge_pb2.Verdict:
    """Return the verdict that the completion's text asks for: accepted if it contains "accept", else wrong_answer."""
    accepted = "accept" in request.submission.text
    status = judge_pb2.TEST_STATUS_SUCCESS if accepted else judge_pb2.TEST_STATUS_WRONG_ANSWER
    return judge_pb2.Verdict(
        final_status=judge_pb2.FINAL_STATUS_SUCCESS if accepted else judge_pb2.FINAL_STATUS_WRONG_ANSWER,
        judged=True,
        accepted=accepted,
        pass_ratio=float(accepted),
        tests=[judge_pb2.TestResult(status=status, ran=True, cpu_time=0.01, duration=0.01)],
        code=request.submission.text,
        extraction=judge_pb2.EXTRACTION_METHOD_WHOLE_TEXT,
        containment_level="none",
    )


class FakeJudge(judge_pb2_grpc.JudgeServiceServicer):
    """Judge that replies as `script` says, each time after `delay` seconds, and counts the requests."""

    def __init__(self, script: Script = make_scripted_verdict, delay: float = 0.0) -> None:
        self.script = script
        self.delay = delay
        self.requests = 0
        self.streams = 0
        self.in_flight = 0
        self.max_in_flight = 0
        self.slowness = 0.0
        """Announced by `Describe`."""

    async def Judge(  # noqa: N802 - gRPC's name
        self, request: judge_pb2.JudgeRequest, context: grpc.aio.ServicerContext[object, object]
    ) -> judge_pb2.JudgeResponse:
        """Reply to one request."""
        answer = await self._decide(request)
        if isinstance(answer, judge_pb2.StreamFailure):
            await context.abort(grpc.StatusCode[to_failure_code(answer).name], answer.message)
        return judge_pb2.JudgeResponse(verdict=answer)

    async def JudgeStream(  # noqa: N802 - gRPC's name
        self, request_iterator: AsyncIterator[judge_pb2.JudgeStreamRequest], context: object
    ) -> AsyncIterator[judge_pb2.JudgeStreamResponse]:
        """Answer each request, in the order in which delays end."""
        del context
        self.streams += 1
        answers: asyncio.Queue[judge_pb2.JudgeStreamResponse | None] = asyncio.Queue()
        reading = asyncio.create_task(self._read(request_iterator, answers))
        try:
            while (answer := await answers.get()) is not None:
                yield answer
        finally:
            reading.cancel()
            await asyncio.gather(reading, return_exceptions=True)

    async def Describe(  # noqa: N802 - gRPC's name
        self, request: judge_pb2.DescribeRequest, context: object
    ) -> judge_pb2.DescribeResponse:
        """Describe a judge that runs no program."""
        del request, context
        return judge_pb2.DescribeResponse(
            judge_version="0", backend="fake", containment_level="none", slots=1, slowness=self.slowness
        )

    async def _read(
        self,
        requests: AsyncIterator[judge_pb2.JudgeStreamRequest],
        answers: "asyncio.Queue[judge_pb2.JudgeStreamResponse | None]",
    ) -> None:
        async with asyncio.TaskGroup() as group:
            async for message in requests:
                if self.delay:
                    group.create_task(self._answer(message.request, answers))
                else:
                    await self._answer(message.request, answers)
        answers.put_nowait(None)

    async def _answer(
        self, request: judge_pb2.JudgeRequest, answers: "asyncio.Queue[judge_pb2.JudgeStreamResponse | None]"
    ) -> None:
        answer = await self._decide(request)
        response = judge_pb2.JudgeStreamResponse(request_id=request.request_id)
        if isinstance(answer, judge_pb2.Verdict):
            response.verdict.CopyFrom(answer)
        else:
            response.failure.CopyFrom(answer)
        answers.put_nowait(response)

    async def _decide(self, request: judge_pb2.JudgeRequest) -> Answer:
        self.requests += 1
        self.in_flight += 1
        self.max_in_flight = max(self.max_in_flight, self.in_flight)
        try:
            if self.delay:
                await asyncio.sleep(self.delay)
            return self.script(request)
        finally:
            self.in_flight -= 1


def unavailable(message: str = "no sandbox answered") -> judge_pb2.StreamFailure:
    """Return the failure of a judge whose sandboxes do not answer."""
    return judge_pb2.StreamFailure(code=FailureCode.UNAVAILABLE, message=message)


class FakeJudgeServer:
    """FakeJudge that listens on a port (0: a free one), with certificates from a directory if one is given."""

    def __init__(self, judge: FakeJudge, port: int = 0, tls_folder: Path | None = None) -> None:
        self.judge = judge
        settings = ServiceSettings(port=port, drain_seconds=0.0, tls_folder=tls_folder)
        self._server = GrpcServer(settings, ["evalrun.judge.v1.JudgeService"])
        judge_pb2_grpc.add_JudgeServiceServicer_to_server(judge, self._server.server)

    async def start(self) -> str:
        """Serve. Return the address."""
        return await self._server.start()

    async def stop(self, grace: float = 0.0) -> None:
        """Stop; streams end with UNAVAILABLE."""
        await self._server.stop(grace)
