"""Asks a run's aggregator how it stands: the one thing that the operator knows of results."""

from collections.abc import Iterable
from typing import Protocol

import grpc

from evalrun.ledger.v1 import ledger_pb2, ledger_pb2_grpc
from evalrun_operator.errors import AggregatorError
from evalrun_operator.ledger_status import DatasetCounts, Figure, GateDecision, LedgerStatus, RunState
from evalrun_runtime.grpc_channel import open_channel, token_metadata

STATES = {
    ledger_pb2.RUN_STATE_PREPARING: RunState.PREPARING,
    ledger_pb2.RUN_STATE_GENERATING: RunState.GENERATING,
    ledger_pb2.RUN_STATE_JUDGING: RunState.JUDGING,
    ledger_pb2.RUN_STATE_SUCCEEDED: RunState.SUCCEEDED,
    ledger_pb2.RUN_STATE_DEGRADED: RunState.DEGRADED,
    ledger_pb2.RUN_STATE_FAILED: RunState.FAILED,
}
GATES = {
    ledger_pb2.GATE_DECISION_PASSED: GateDecision.PASSED,
    ledger_pb2.GATE_DECISION_FAILED: GateDecision.FAILED,
    ledger_pb2.GATE_DECISION_INCONCLUSIVE: GateDecision.INCONCLUSIVE,
    ledger_pb2.GATE_DECISION_NO_BASELINE: GateDecision.NO_BASELINE,
}


class Aggregators(Protocol):
    """The aggregators of all runs."""

    async def status(self, address: str, token: str) -> LedgerStatus:
        """Ask the aggregator at `address`. Raises AggregatorError where it does not answer."""
        ...

    async def forget(self, address: str) -> None:
        """Close what is held open for an address that will not be asked again soon."""
        ...

    async def close(self) -> None:
        """Close everything."""
        ...


class GrpcAggregators:
    """Real aggregators, over gRPC; one channel an address, kept open.

    Args:
        timeout: seconds that an answer may take.
    """

    def __init__(self, timeout: float) -> None:
        self._timeout = timeout
        self._channels: dict[str, grpc.aio.Channel] = {}

    async def status(self, address: str, token: str) -> LedgerStatus:
        """Ask the aggregator at `address`. Raises AggregatorError where it does not answer."""
        channel = self._channels.get(address)
        if channel is None:
            channel = self._channels[address] = open_channel(address)
        stub = ledger_pb2_grpc.LedgerServiceStub(channel)
        try:
            answer = await stub.GetStatus(
                ledger_pb2.GetStatusRequest(), timeout=self._timeout, metadata=token_metadata(token)
            )
        except grpc.aio.AioRpcError as error:
            raise AggregatorError(f"{address}: {error.code().name}: {error.details()}") from error
        return from_wire(answer)

    async def forget(self, address: str) -> None:
        """Close the channel to an address."""
        channel = self._channels.pop(address, None)
        if channel is not None:
            await channel.close()

    async def close(self) -> None:
        """Close every channel."""
        for address in list(self._channels):
            await self.forget(address)


def from_wire(answer: ledger_pb2.GetStatusResponse) -> LedgerStatus:
    """Read GetStatus' answer."""
    return LedgerStatus(
        state=STATES.get(answer.state, RunState.PREPARING),
        datasets=tuple(_dataset(dataset) for dataset in answer.datasets),
        output_tokens=answer.output_tokens,
        elapsed_seconds=answer.elapsed_seconds,
        output_url=answer.output_url,
        wandb_url=answer.wandb_url,
        message=answer.message,
        gpu_seconds=answer.gpu_seconds,
        gate=GATES.get(answer.gate, GateDecision.PENDING),
        gate_message=answer.gate_message,
        warnings=tuple(answer.warnings),
        replica_hosts=_hosts(answer.replicas) if answer.replicas else None,
    )


def _hosts(replicas: Iterable[ledger_pb2.Replica]) -> tuple[str, ...]:
    """Give where the replicas are that hold GPUs, from `host:port` or `[host]:port`."""
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
        accepted_at_1=Figure(figure.value, figure.low, figure.high) if dataset.HasField("accepted_at_1") else None,
    )
