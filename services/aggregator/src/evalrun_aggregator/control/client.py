"""Requests an act of control from a run on this machine, or in this pod."""

import asyncio
import time
from pathlib import Path
from typing import Final

import grpc

from evalrun_aggregator.control.access import ControlAccess, read_access
from evalrun_aggregator.control.acts import Act
from evalrun_aggregator.control.messages import make_request
from evalrun_aggregator.ledger.place import is_in_use
from evalrun_proto.ledger.v1 import ledger_pb2, ledger_pb2_grpc
from evalrun_runtime.connections.bearer_tokens import BearerTokens
from evalrun_runtime.connections.grpc_channel import open_channel, token_metadata
from evalrun_runtime.exits import BadInputError

CALL_SECONDS: Final = 30.0
PATIENCE_SECONDS: Final = 10.0
"""Seconds to wait for a run whose aggregator is starting or restarting."""
ABSENT_SECONDS: Final = 3.0
"""Seconds to wait while no process owns the ledger."""
POLL_SECONDS: Final = 0.1
COMES_BACK: Final = frozenset(
    {
        grpc.StatusCode.UNAVAILABLE,
        grpc.StatusCode.CANCELLED,
        grpc.StatusCode.DEADLINE_EXCEEDED,
        # A killed process left its file behind, and another process has its port.
        grpc.StatusCode.UNAUTHENTICATED,
    }
)


class NotRunningError(Exception):
    """No process works on the run."""


class NoControlError(Exception):
    """The process that works on the run offers no control: it is another version of evalrun."""


async def control_ledger(
    ledger: Path,
    act: Act,
    *,
    patience_seconds: float = PATIENCE_SECONDS,
    absent_seconds: float = ABSENT_SECONDS,
) -> ledger_pb2.ControlRunResponse:
    """Have the process that works on a ledger perform an act. Waits for a process that is restarting.

    Args:
        ledger: the run's ledger.
        act: the requested act.
        patience_seconds: how long to wait for a process that does not serve the act yet.
        absent_seconds: how long to wait while there is no process.

    Raises:
        NotRunningError: there is no process.
        NoControlError: the process has no control, or does not know this act.
        BadInputError: the run belongs to another user, or its disk is full.
    """
    began, last = time.monotonic(), ""
    while True:
        in_use = is_in_use(ledger)
        access = _readable_access(ledger)
        if access is not None and in_use:
            try:
                return await _ask(access, act)
            except grpc.aio.AioRpcError as error:
                if error.code() not in COMES_BACK:
                    raise _convert_error(ledger, error) from error
                last = f"{error.code().name}: {error.details()}"
        if time.monotonic() - began >= (patience_seconds if in_use else absent_seconds):
            if in_use:
                raise NoControlError(last or "it serves no control")
            raise NotRunningError(str(ledger))
        await asyncio.sleep(POLL_SECONDS)


async def _ask(access: ControlAccess, act: Act) -> ledger_pb2.ControlRunResponse:
    async with open_channel(access.address) as channel:
        stub: ledger_pb2_grpc.ControlServiceAsyncStub = ledger_pb2_grpc.ControlServiceStub(channel)
        metadata = token_metadata(BearerTokens(access.token))
        return await stub.ControlRun(make_request(act), timeout=CALL_SECONDS, metadata=metadata)


def _readable_access(ledger: Path) -> ControlAccess | None:
    try:
        return read_access(ledger)
    except PermissionError as error:
        raise BadInputError(f"{error.filename}: the run belongs to another user, who alone may control it") from error


def _convert_error(ledger: Path, error: grpc.aio.AioRpcError) -> Exception:
    said = f"{error.code().name}: {error.details()}"
    if error.code() in (grpc.StatusCode.UNIMPLEMENTED, grpc.StatusCode.INVALID_ARGUMENT):
        return NoControlError(said)
    return BadInputError(f"ledger {ledger}: nothing was changed: {said}")
