"""ControlService: converts between RPC and domain, nothing else."""

import grpc

from evalrun_aggregator.control.messages import REFUSALS, UnusableRequestError, read_act
from evalrun_aggregator.control.run_control import RunControl
from evalrun_aggregator.ledger.errors import LedgerBrokenError, LedgerFullError
from evalrun_aggregator.status_report import StatusReport
from evalrun_proto.ledger.v1 import ledger_pb2, ledger_pb2_grpc

Context = grpc.aio.ServicerContext[object, object]


class ControlService(ledger_pb2_grpc.ControlServiceServicer):
    """Acts of control over gRPC.

    Args:
        control: performs the acts.
        status: reports the run's status after an act.
    """

    def __init__(self, control: RunControl, status: StatusReport) -> None:
        self._control = control
        self._status = status

    async def ControlRun(  # noqa: N802 - gRPC's name
        self, request: ledger_pb2.ControlRunRequest, context: Context
    ) -> ledger_pb2.ControlRunResponse:
        """Perform an act on the run."""
        try:
            result = await self._control.perform(read_act(request))
        except UnusableRequestError as error:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))
        except LedgerFullError as error:
            await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, str(error))
        except LedgerBrokenError as error:
            await context.abort(grpc.StatusCode.UNAVAILABLE, str(error))
        status = self._status.response()
        return ledger_pb2.ControlRunResponse(
            refusal=ledger_pb2.CONTROL_REFUSAL_UNSPECIFIED if result.refusal is None else REFUSALS[result.refusal],
            changed=result.changed,
            state=status.state,
            paused=status.paused,
            max_in_flight=status.max_in_flight if status.HasField("max_in_flight") else None,
            in_flight=sum(replica.in_flight for replica in status.replicas),
            requeued=result.requeued,
        )
