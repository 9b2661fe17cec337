"""The judge as the dispatcher sees it: streams of requests and answers. gRPC stays in this module.

JudgeError
 +- JudgeLostError      no connection, or it broke: reopen, and send again what has no answer
 +- JudgeRefusedError   it will not talk to us (token, or no judge at all): nothing will change by asking again
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Protocol

import grpc

from evalrun_client.failure_codes import FailureCode
from evalrun_proto.judge.v1 import judge_pb2, judge_pb2_grpc
from evalrun_runtime.connections.bearer_tokens import BearerTokens
from evalrun_runtime.connections.grpc_channel import open_channel, token_metadata
from evalrun_runtime.connections.tls_files import TlsSource
from evalrun_runtime.connections.tls_remedies import add_remedy

REFUSALS = frozenset(
    {grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.PERMISSION_DENIED, grpc.StatusCode.UNIMPLEMENTED}
)

RETRY_AFTER = "retry-after-ms"
"""The trailer that names the time after which a full queue is worth another try."""


class JudgeError(Exception):
    """The judge cannot be talked to."""


class JudgeLostError(JudgeError):
    """There is no connection, or it broke. Nothing was decided about the requests without a reply."""


class JudgeRefusedError(JudgeError):
    """The judge refuses this caller."""


class JudgeStream(Protocol):
    """An open stream."""

    async def send(self, request: judge_pb2.JudgeRequest) -> None:
        """Send a request; waits while the judge takes no more. Raises JudgeError."""
        ...

    async def finish_sending(self) -> None:
        """Announce that no more requests come; the answers still do. Raises JudgeError."""
        ...

    async def receive(self) -> judge_pb2.JudgeStreamResponse | None:
        """Return the next answer; None at the end. Raises JudgeError."""
        ...


class JudgeAddress(Protocol):
    """An address at which judges answer."""

    address: str

    def open(self) -> AbstractAsyncContextManager[JudgeStream]:
        """Open a stream; it is cancelled at the end of the context."""
        ...

    async def describe(self, seconds: float) -> judge_pb2.DescribeResponse:
        """Return the judge's description of itself. Raises JudgeError."""
        ...

    async def close(self) -> None:
        """Close the connection."""
        ...


class GrpcJudge:
    """A judge at `grpc://host:port`, or behind `dns:///name:port`: each new stream goes to the next pod."""

    def __init__(self, address: str, tokens: BearerTokens | None = None, tls: TlsSource | None = None) -> None:
        self.address = address
        self._tokens = tokens
        self._channel = open_channel(address, tls)
        self._stub: judge_pb2_grpc.JudgeServiceAsyncStub = judge_pb2_grpc.JudgeServiceStub(self._channel)

    @asynccontextmanager
    async def open(self) -> AsyncIterator[JudgeStream]:
        """Open a stream; it is cancelled at the end of the context."""
        stream = GrpcJudgeStream(self.address, self._stub.JudgeStream(metadata=token_metadata(self._tokens)))
        try:
            yield stream
        finally:
            stream.cancel()

    async def judge(self, request: judge_pb2.JudgeRequest) -> judge_pb2.Verdict | judge_pb2.StreamFailure:
        """Judge one submission. Return why there is no verdict as a stream would. Raises JudgeRefusedError.

        Each call goes to the next pod behind the address. Cancelling a call stops its work in the judge.
        """
        try:
            return (await self._stub.Judge(request, metadata=token_metadata(self._tokens))).verdict
        except grpc.aio.AioRpcError as error:
            if error.code() in (grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.PERMISSION_DENIED):
                raise judge_error(self.address, error) from error
            return _make_failure(error)

    async def describe(self, seconds: float) -> judge_pb2.DescribeResponse:
        """Return the judge's description of itself. Raises JudgeError."""
        try:
            return await self._stub.Describe(
                judge_pb2.DescribeRequest(), timeout=seconds, metadata=token_metadata(self._tokens)
            )
        except grpc.aio.AioRpcError as error:
            raise judge_error(self.address, error) from error

    async def close(self) -> None:
        """Close the connection."""
        await self._channel.close()


class GrpcJudgeStream:
    """A JudgeStream call."""

    def __init__(
        self,
        address: str,
        call: "grpc.aio.StreamStreamCall[judge_pb2.JudgeStreamRequest, judge_pb2.JudgeStreamResponse]",
    ) -> None:
        self._address = address
        self._call = call

    async def send(self, request: judge_pb2.JudgeRequest) -> None:
        """Send a request; waits while the judge takes no more. Raises JudgeError."""
        try:
            await self._call.write(judge_pb2.JudgeStreamRequest(request=request))
        except grpc.aio.AioRpcError as error:
            raise judge_error(self._address, error) from error
        # The call ended before.
        except asyncio.InvalidStateError as error:
            raise JudgeLostError(f"judge {self._address}: the stream has ended") from error

    async def finish_sending(self) -> None:
        """Announce that no more requests come; the answers still do. Raises JudgeError."""
        try:
            await self._call.done_writing()
        except (grpc.aio.AioRpcError, asyncio.InvalidStateError) as error:
            raise JudgeLostError(f"judge {self._address}: the stream has ended") from error

    async def receive(self) -> judge_pb2.JudgeStreamResponse | None:
        """Return the next answer; None at the end. Raises JudgeError."""
        try:
            answer = await self._call.read()
        except grpc.aio.AioRpcError as error:
            raise judge_error(self._address, error) from error
        # grpc.aio.EOF stands for the end of the stream.
        return answer if isinstance(answer, judge_pb2.JudgeStreamResponse) else None

    def cancel(self) -> None:
        """End the call now."""
        self._call.cancel()


def _make_failure(error: grpc.aio.AioRpcError) -> judge_pb2.StreamFailure:
    trailers = {key: value for key, value in error.trailing_metadata() or () if isinstance(value, str)}
    wait = trailers.get(RETRY_AFTER, "0")
    return judge_pb2.StreamFailure(
        code=FailureCode[error.code().name],
        message=add_remedy(error.details() or error.code().name),
        retry_after_ms=int(wait) if wait.isdigit() else 0,
    )


def judge_error(address: str, error: grpc.aio.AioRpcError) -> JudgeError:
    """Return a gRPC error as a JudgeError whose class tells the caller what to do."""
    kind = JudgeRefusedError if error.code() in REFUSALS else JudgeLostError
    return kind(f"judge {address}: {error.code().name}: {add_remedy(error.details() or '')}")
