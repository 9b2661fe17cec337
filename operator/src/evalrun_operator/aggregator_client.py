"""Asks a run's aggregator for its status, the operator's only source of results."""

import asyncio
from collections.abc import Iterable
from typing import Protocol

import grpc

from evalrun_operator.ledger_status import DatasetCounts, GateState, LedgerStatus, ReportedFigure, RunState
from evalrun_operator.resources.run_tokens import LedgerAccess
from evalrun_proto.ledger.v1 import ledger_pb2, ledger_pb2_grpc
from evalrun_runtime.connections.bearer_tokens import BearerTokens
from evalrun_runtime.connections.grpc_channel import open_channel, token_metadata
from evalrun_runtime.connections.tls_files import GivenTls, TlsIdentity
from evalrun_runtime.connections.tls_remedies import add_remedy, find_remedy

STATES = {
    ledger_pb2.RUN_STATE_PREPARING: RunState.PREPARING,
    ledger_pb2.RUN_STATE_GENERATING: RunState.GENERATING,
    ledger_pb2.RUN_STATE_JUDGING: RunState.JUDGING,
    ledger_pb2.RUN_STATE_SUCCEEDED: RunState.SUCCEEDED,
    ledger_pb2.RUN_STATE_DEGRADED: RunState.DEGRADED,
    ledger_pb2.RUN_STATE_FAILED: RunState.FAILED,
}
GATES = {
    ledger_pb2.GATE_DECISION_PASSED: GateState.PASSED,
    ledger_pb2.GATE_DECISION_FAILED: GateState.FAILED,
    ledger_pb2.GATE_DECISION_INCONCLUSIVE: GateState.INCONCLUSIVE,
    ledger_pb2.GATE_DECISION_NO_BASELINE: GateState.NO_BASELINE,
    ledger_pb2.GATE_DECISION_IMPLAUSIBLE: GateState.IMPLAUSIBLE,
}


class AggregatorError(Exception):
    """The run's aggregator does not reply. The run continues without its metrics."""


class CertificateError(AggregatorError):
    """The certificates of the operator and the aggregator do not match, or a certificate cannot be used."""


class Aggregators(Protocol):
    """The aggregators of all runs."""

    async def status(self, address: str, access: LedgerAccess) -> LedgerStatus:
        """Ask the aggregator at `address`. Raises AggregatorError if it does not reply."""
        ...

    async def end_run(self, address: str, access: LedgerAccess, reason: str) -> None:
        """Request the run's end with the results so far. Raises AggregatorError if that is not possible."""
        ...

    def forget(self, address: str) -> None:
        """Close the connection to an address that will not be called again soon. Called inside the loop."""
        ...

    async def close(self) -> None:
        """Close all connections."""
        ...


class GrpcAggregators:
    """Real aggregators, over gRPC, with an open channel per address.

    Args:
        timeout: maximum seconds of a reply.
    """

    def __init__(self, timeout: float) -> None:
        self._timeout = timeout
        self._channels: dict[str, grpc.aio.Channel] = {}
        self._certificates: dict[str, tuple[str, str, str] | None] = {}
        """Certificate of each channel, by address."""
        self._closing: set[asyncio.Task[None]] = set()

    async def status(self, address: str, access: LedgerAccess) -> LedgerStatus:
        """Ask the aggregator at `address`. Raises AggregatorError if it does not reply."""
        request, metadata = ledger_pb2.GetStatusRequest(), token_metadata(BearerTokens(access.token))
        try:
            answer = await self._stub(address, access).GetStatus(request, timeout=self._timeout, metadata=metadata)
        except grpc.aio.AioRpcError as error:
            raise _translate_error(address, error) from error
        return from_wire(answer)

    async def end_run(self, address: str, access: LedgerAccess, reason: str) -> None:
        """Request the run's end with the results so far. Raises AggregatorError if that is not possible."""
        request, metadata = ledger_pb2.EndRunRequest(reason=reason), token_metadata(BearerTokens(access.token))
        try:
            await self._stub(address, access).EndRun(request, timeout=self._timeout, metadata=metadata)
        except grpc.aio.AioRpcError as error:
            raise _translate_error(address, error) from error

    def forget(self, address: str) -> None:
        """Close the channel to an address once its calls have ended, which their timeout guarantees.

        Closing it at once would cancel the calls, and CancelledError would end the reconciliation that waits for a
        call.
        """
        channel = self._channels.pop(address, None)
        self._certificates.pop(address, None)
        if channel is not None:
            closing = asyncio.ensure_future(channel.close(self._timeout))
            self._closing.add(closing)
            closing.add_done_callback(self._closing.discard)

    def _stub(self, address: str, access: LedgerAccess) -> "ledger_pb2_grpc.LedgerServiceAsyncStub":
        """Return the stub over the channel of an address. A renewed certificate gets a new channel."""
        channel = self._channels.get(address)
        if channel is not None and self._certificates[address] != access.certificate:
            self.forget(address)
            channel = None
        if channel is None:
            channel = self._channels[address] = open_channel(address, _identity(access, address))
            self._certificates[address] = access.certificate
        stub: ledger_pb2_grpc.LedgerServiceAsyncStub = ledger_pb2_grpc.LedgerServiceStub(channel)
        return stub

    async def close(self) -> None:
        """Close every channel."""
        for address in list(self._channels):
            self.forget(address)
        await asyncio.gather(*self._closing)


def _translate_error(address: str, error: grpc.aio.AioRpcError) -> AggregatorError:
    cause = error.details() or ""
    known = CertificateError if find_remedy(cause) else AggregatorError
    return known(f"{address}: {error.code().name}: {add_remedy(cause)}")


def _identity(access: LedgerAccess, address: str) -> GivenTls | None:
    """Return the client certificate of a channel.

    Raises:
        AggregatorError: the run's Secret holds no usable certificate.
    """
    if access.certificate is None:
        return None
    try:
        return GivenTls(TlsIdentity.load(*(text.encode() for text in access.certificate)))
    except ValueError as error:
        raise CertificateError(f"{address}: the operator's certificate for it: {error}") from error


def from_wire(answer: ledger_pb2.GetStatusResponse) -> LedgerStatus:
    """Convert the reply to GetStatus."""
    return LedgerStatus(
        state=STATES.get(answer.state, RunState.PREPARING),
        datasets=tuple(_dataset(dataset) for dataset in answer.datasets),
        output_tokens=answer.output_tokens,
        output_url=answer.output_url,
        wandb_url=answer.wandb_url,
        attested_by=answer.attested_by,
        message=answer.message,
        gpu_seconds=answer.gpu_seconds,
        gate=GATES.get(answer.gate, GateState.PENDING),
        gate_message=answer.gate_message,
        stopped_early=answer.stopped_early,
        warnings=tuple(answer.warnings),
        replica_hosts=_hosts(answer.replicas) if answer.replicas else None,
        ended_early=answer.ended_early,
        stopped_by_user=answer.stopped_by_user,
        paused=answer.paused,
        generating_seconds=answer.generating_seconds,
        working_seconds=answer.working_seconds,
    )


def _hosts(replicas: Iterable[ledger_pb2.Replica]) -> tuple[str, ...]:
    """Return the hosts of the replicas that hold GPUs, from `host:port` or `[host]:port`."""
    holding = (replica for replica in replicas if replica.gpus and not replica.released_at)
    return tuple(replica.address.rpartition(":")[0].strip("[]") for replica in holding)


def _dataset(dataset: ledger_pb2.DatasetStatus) -> DatasetCounts:
    figure = dataset.accepted_at_1
    return DatasetCounts(
        name=dataset.name,
        total=dataset.total,
        generated=dataset.generated,
        judged=dataset.judged,
        accepted=dataset.accepted,
        not_judged=dataset.not_judged,
        cancelled=dataset.cancelled,
        accepted_at_1=ReportedFigure(figure.value, figure.low, figure.high)
        if dataset.HasField("accepted_at_1")
        else None,
    )
