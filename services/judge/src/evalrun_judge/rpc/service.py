"""The RPCs: convert messages, call the domain, return messages or status codes; nothing else."""

# grpcio's stubs are generic, but its classes are not.
from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Any

import grpc

from evalrun_client.failure_codes import FailureCode
from evalrun_judge.judge import Judge
from evalrun_judge.pool.pool import SandboxPool
from evalrun_judge.pool.slot_queue import NoSandboxError, UnresolvedSandboxesError
from evalrun_judge.rpc.messages import describe_message, fill_verdict, request_from
from evalrun_judge.rpc.withdrawal import OpenRequests, WithdrawnError
from evalrun_judge.submission import InvalidRequestError
from evalrun_judge.suites import Suites, UnknownSuiteError
from evalrun_proto.judge.v1 import judge_pb2, judge_pb2_grpc
from evalrun_runtime.admission import DrainingError, QueueFullError
from evalrun_runtime.deadlines import DeadlineError
from evalrun_runtime.tracing import span

logger = logging.getLogger(__name__)

RETRY_AFTER = "retry-after-ms"
RETRY_PUSHBACK = "grpc-retry-pushback-ms"
"""The same delay in the form that gRPC clients with a retry policy obey by themselves (gRFC A6)."""

STREAM_OVER = "this stream takes no more requests: reopen it, elsewhere if you can, and send again what has no answer"

Context = grpc.aio.ServicerContext[Any, Any]


@dataclass(frozen=True, slots=True)
class RpcFailure:
    """Reason why a request has no verdict."""

    code: grpc.StatusCode
    message: str
    retry_after_ms: int = 0
    reason: judge_pb2.FailureReason.ValueType = judge_pb2.FAILURE_REASON_UNSPECIFIED


class JudgeService(judge_pb2_grpc.JudgeServiceServicer):
    """`evalrun.judge.v1.JudgeService`."""

    def __init__(
        self,
        judge: Judge,
        pool: SandboxPool,
        *,
        suites: Suites,
        version: str,
        stream_concurrency: int,
        stream_seconds: float,
    ) -> None:
        """Create the service.

        Args:
            judge: judges the requests.
            pool: described by `Describe`.
            suites: tests that callers name by digest.
            version: version of this gateway.
            stream_concurrency: maximum simultaneously judged requests of a stream; while it is reached, the stream is
                not read.
            stream_seconds: age at which a stream accepts no more requests.
        """
        self._judge = judge
        self._pool = pool
        self._suites = suites
        self._version = version
        self._stream_concurrency = stream_concurrency
        self._stream_seconds = stream_seconds
        self._draining = False
        self._reading: set[asyncio.Timeout] = set()
        """Streams that wait for a request."""

    def drain(self) -> None:
        """Stop reading new requests. Streams finish the requests that they have read, then end.

        Does not wait for them.
        """
        self._draining = True
        for reading in self._reading:
            reading.reschedule(asyncio.get_running_loop().time())

    async def Judge(self, request: judge_pb2.JudgeRequest, context: Context) -> judge_pb2.JudgeResponse:  # noqa: N802 - the RPC's name
        response = judge_pb2.JudgeResponse()
        deadline = _earlier(_compute_deadline(request), context.time_remaining())
        failure = await self._judge_into(response.verdict, request, deadline)
        if failure is not None:
            wait = str(failure.retry_after_ms)
            trailer = ((RETRY_AFTER, wait), (RETRY_PUSHBACK, wait)) if failure.retry_after_ms else ()
            await context.abort(failure.code, failure.message, trailer)
        return response

    async def JudgeStream(  # type: ignore[override]  # noqa: N802 - the RPC's name; stubs know the generator form only
        self, request_iterator: AsyncIterator[judge_pb2.JudgeStreamRequest], context: Context
    ) -> None:
        """Judge many submissions and reply as verdicts are reached. A client that disconnects cancels its requests."""
        places = asyncio.Semaphore(self._stream_concurrency)
        writing = asyncio.Lock()
        unanswered = OpenRequests()

        async def answer(request: judge_pb2.JudgeRequest, deadline: float | None) -> None:
            try:
                response = judge_pb2.JudgeStreamResponse(request_id=request.request_id)
                judged = self._judge_into(response.verdict, request, deadline)
                try:
                    failure = await unanswered.work(request.request_id, judged)
                except WithdrawnError:
                    failure = RpcFailure(grpc.StatusCode.CANCELLED, "the client took it back")
                if failure is not None:
                    response.failure.CopyFrom(_stream_failure(failure))
                async with writing:
                    await context.write(response)
            finally:
                places.release()

        async with asyncio.TaskGroup() as judging:

            def begin(request: judge_pb2.JudgeRequest) -> None:
                unanswered.expect(request.request_id)
                judging.create_task(answer(request, _compute_deadline(request)))

            ended = await self._read_until_over(context, places, begin, unanswered.withdraw)
        if not ended:
            await context.abort(grpc.StatusCode.UNAVAILABLE, STREAM_OVER)

    async def Describe(self, request: judge_pb2.DescribeRequest, context: Context) -> judge_pb2.DescribeResponse:  # noqa: N802 - the RPC's name
        """Return the capabilities of this gateway."""
        del request
        info = self._pool.describe()
        if info is None:
            await context.abort(grpc.StatusCode.UNAVAILABLE, "no sandbox has answered yet")
        return describe_message(info, self._version, self._pool.slowness)

    async def _read_until_over(
        self,
        context: Context,
        places: asyncio.Semaphore,
        begin: Callable[[judge_pb2.JudgeRequest], None],
        withdraw: Callable[[str], None],
    ) -> bool:
        """Read requests, reserving a place before each. Return whether the client has finished.

        On drain, or when the stream is too old, reading stops although the client has not finished.
        """
        if self._draining:
            return False
        end = asyncio.get_running_loop().time() + self._stream_seconds
        try:
            # A stream has a single timer, because a timer per message cost 3 % of a request.
            async with asyncio.timeout_at(end) as reading:
                self._reading.add(reading)
                await places.acquire()
                while (message := await context.read()) is not grpc.aio.EOF:
                    if message.WhichOneof("message") == "cancel_request_id":
                        withdraw(message.cancel_request_id)
                        continue
                    begin(message.request)
                    await places.acquire()
        except TimeoutError:
            return False
        finally:
            self._reading.discard(reading)
        return True

    async def _judge_into(
        self, verdict: judge_pb2.Verdict, message: judge_pb2.JudgeRequest, deadline: float | None
    ) -> RpcFailure | None:
        """Judge a request within its deadline. Return the failure as a status code."""
        try:
            with span("judge", message.traceparent):
                fill_verdict(verdict, await self._judge.judge(request_from(message, self._suites), deadline))
            return None
        except InvalidRequestError as error:
            return RpcFailure(grpc.StatusCode.INVALID_ARGUMENT, str(error))
        except UnknownSuiteError as error:
            return RpcFailure(grpc.StatusCode.NOT_FOUND, str(error))
        except QueueFullError as error:
            return RpcFailure(
                grpc.StatusCode.RESOURCE_EXHAUSTED, str(error), math.ceil(error.retry_after_seconds * 1000)
            )
        except DeadlineError as error:
            return RpcFailure(grpc.StatusCode.DEADLINE_EXCEEDED, str(error))
        except UnresolvedSandboxesError as error:
            return RpcFailure(grpc.StatusCode.UNAVAILABLE, str(error), reason=judge_pb2.FAILURE_REASON_NO_DNS)
        except (NoSandboxError, DrainingError) as error:
            return RpcFailure(grpc.StatusCode.UNAVAILABLE, str(error))
        except Exception:
            logger.exception("request %r: a fault of the gateway", message.request_id)
            return RpcFailure(grpc.StatusCode.INTERNAL, "a fault of the gateway; its log has the traceback")


def _compute_deadline(request: judge_pb2.JudgeRequest) -> float | None:
    """Return the deadline of a request that has just been read, on the event loop's clock."""
    return asyncio.get_running_loop().time() + request.deadline_seconds if request.deadline_seconds > 0 else None


def _earlier(deadline: float | None, seconds: float | None) -> float | None:
    ends = [deadline, None if seconds is None else asyncio.get_running_loop().time() + seconds]
    return min((end for end in ends if end is not None), default=None)


def _stream_failure(failure: RpcFailure) -> judge_pb2.StreamFailure:
    return judge_pb2.StreamFailure(
        code=FailureCode[failure.code.name],
        message=failure.message,
        retry_after_ms=failure.retry_after_ms,
        reason=failure.reason,
    )
