"""LedgerService: converts between RPC and domain, nothing else."""

import math

import grpc
from google.protobuf.message import Message

from evalrun_aggregator.epochs import Epochs, SupersededError
from evalrun_aggregator.gpu_time import held_seconds
from evalrun_aggregator.intake import Intake, UnknownItemError
from evalrun_aggregator.ledger.entries import StoredCompletion
from evalrun_aggregator.ledger.errors import LedgerBrokenError, LedgerFullError
from evalrun_aggregator.ledger.items import ItemKey
from evalrun_aggregator.run_driver import NothingToWriteError, RunDriver
from evalrun_aggregator.run_state import RunState
from evalrun_aggregator.status_report import StatusReport
from evalrun_aggregator.weights_version import OtherWeightsError, WeightsVersion
from evalrun_aggregator.work_items import WorkItems
from evalrun_proto.ledger.v1 import ledger_pb2, ledger_pb2_grpc
from evalrun_registry.limits import MAX_LOG_PROBS

RETRY_MILLISECONDS = 500
"""Wait before asking again while other workers hold the remaining items: an expired lease or a lost worker shows within
this time."""
VERDICT_RETRY_MILLISECONDS = 50
"""The same while a verdict may open a turn: a replica may be idle until the turn is requested."""

REPLICA_NUMBERS = ("started_at", "released_at", "oldest_request_at", "oldest_request_limit_seconds")

Context = grpc.aio.ServicerContext[object, object]


class LedgerService(ledger_pb2_grpc.LedgerServiceServicer):
    """The ledger over gRPC.

    Args:
        state: the state of the run.
        intake: stores what workers send.
        status: reports the run's status.
        driver: ends the run.
        work_items: builds an item's message for a worker.
        epochs: refuses a generator that was replaced.
        weights: refuses completions of other weights than the run's.
    """

    def __init__(
        self,
        state: RunState,
        intake: Intake,
        status: StatusReport,
        driver: RunDriver,
        work_items: WorkItems,
        epochs: Epochs,
        weights: WeightsVersion,
    ) -> None:
        self._state = state
        self._intake = intake
        self._status = status
        self._driver = driver
        self._work_items = work_items
        self._epochs = epochs
        self._weights = weights

    async def GetWork(self, request: ledger_pb2.GetWorkRequest, context: Context) -> ledger_pb2.GetWorkResponse:  # noqa: N802 - gRPC's name
        """Lease pending work."""
        if not request.worker_id:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, "worker_id: name the worker")
        try:
            await self._epochs.admit(request.epoch)
        except SupersededError as error:
            await context.abort(grpc.StatusCode.FAILED_PRECONDITION, str(error))
        except (LedgerFullError, LedgerBrokenError) as error:
            await context.abort(grpc.StatusCode.UNAVAILABLE, str(error))
        taken = self._intake.take_work(request.worker_id, request.max_items, fresh=request.fresh)
        remaining = self._state.remaining
        try:
            items = await self._work_items.list_items(taken)
        except (LedgerFullError, LedgerBrokenError) as error:
            await context.abort(grpc.StatusCode.UNAVAILABLE, str(error))
        return ledger_pb2.GetWorkResponse(
            items=items,
            remaining=remaining,
            retry_after_ms=retry_milliseconds(
                remaining, len(taken), 0 if self._state.is_paused else self._state.item_states.may_follow
            ),
            max_in_flight=self._state.allowed_in_flight,
        )

    async def SubmitCompletions(  # noqa: N802 - gRPC's name
        self, request: ledger_pb2.SubmitCompletionsRequest, context: Context
    ) -> ledger_pb2.SubmitCompletionsResponse:
        """Store completions."""
        await self._refuse_superseded(request.epoch, context)
        for completion in request.completions:
            if wrong := explain_not_finite(completion, "generation_seconds", "started_at") or bad_log_probs(completion):
                key = completion.key
                where = f"completion of {key.dataset} {key.problem_id} sample {key.sample}"
                await context.abort(grpc.StatusCode.INVALID_ARGUMENT, f"{where}: {wrong}")
        try:
            completions = [self._completion(completion) for completion in request.completions]
        except UnknownItemError as error:
            await context.abort(grpc.StatusCode.NOT_FOUND, str(error))
        try:
            await self._weights.admit(completion.weights_version for completion in request.completions)
            stored = await self._intake.submit(completions)
        except OtherWeightsError as error:
            await context.abort(grpc.StatusCode.ABORTED, str(error))
        except LedgerFullError as error:
            await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, str(error))
        except LedgerBrokenError as error:
            await context.abort(grpc.StatusCode.UNAVAILABLE, str(error))
        return ledger_pb2.SubmitCompletionsResponse(stored=stored)

    async def ReportReplicas(  # noqa: N802 - gRPC's name
        self, request: ledger_pb2.ReportReplicasRequest, context: Context
    ) -> ledger_pb2.ReportReplicasResponse:
        """Store a worker's report about its replicas."""
        await self._refuse_superseded(request.epoch, context)
        wrong = explain_not_finite(request, "gpu_seconds", "reported_at")
        for replica in request.replicas:
            if not wrong and (of_replica := explain_not_finite(replica, *REPLICA_NUMBERS)):
                wrong = f"replica {replica.name}: {of_replica}"
        if wrong:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, wrong)
        try:
            held = held_seconds(request.worker_id, request.replicas, request.gpu_seconds, request.reported_at)
            await self._intake.report_replicas(request.worker_id, request.replicas, held, request.warnings)
        except LedgerFullError as error:
            await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, str(error))
        except LedgerBrokenError as error:
            await context.abort(grpc.StatusCode.UNAVAILABLE, str(error))
        return ledger_pb2.ReportReplicasResponse()

    async def GetStatus(self, request: ledger_pb2.GetStatusRequest, context: Context) -> ledger_pb2.GetStatusResponse:  # noqa: N802 - gRPC's name
        """Return the status of the run."""
        del request, context
        return self._status.response()

    async def EndRun(self, request: ledger_pb2.EndRunRequest, context: Context) -> ledger_pb2.EndRunResponse:  # noqa: N802 - gRPC's name
        """End the run with partial results."""
        if not request.reason:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, "reason: say why the run ends")
        try:
            await self._driver.end_early(request.reason)
        except NothingToWriteError as error:
            await context.abort(grpc.StatusCode.FAILED_PRECONDITION, str(error))
        except LedgerFullError as error:
            await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, str(error))
        except LedgerBrokenError as error:
            await context.abort(grpc.StatusCode.UNAVAILABLE, str(error))
        return ledger_pb2.EndRunResponse()

    async def _refuse_superseded(self, epoch: int, context: Context) -> None:
        try:
            self._epochs.check(epoch)
        except SupersededError as error:
            await context.abort(grpc.StatusCode.FAILED_PRECONDITION, str(error))

    def _completion(self, completion: ledger_pb2.Completion) -> tuple[int, StoredCompletion]:
        key = completion.key
        index = self._intake.find_index(ItemKey(key.dataset, key.problem_id, key.sample, key.turn, key.repeat))
        return index, StoredCompletion(
            row=self._state.item_states.items.get_row(index),
            text=completion.text,
            finish_reason=completion.finish_reason,
            prompt_tokens=completion.prompt_tokens if completion.HasField("prompt_tokens") else None,
            output_tokens=completion.output_tokens if completion.HasField("output_tokens") else None,
            generation_seconds=completion.generation_seconds,
            started_at=completion.started_at,
            replica=completion.replica,
            model=completion.model,
            attempts=completion.attempts,
            log_probs=tuple(completion.log_probs),
        )


def explain_not_finite(message: Message, *fields: str) -> str:
    """Name the number of a message that is not finite; empty if all are. SQLite stores NaN as NULL."""
    for field in fields:
        if not math.isfinite(value := getattr(message, field)):
            return f"{field} is {value}: send a finite number"
    return ""


def bad_log_probs(completion: ledger_pb2.Completion) -> str:
    """Describe what is wrong with the log-probabilities of a completion; empty if nothing is."""
    if len(completion.log_probs) > MAX_LOG_PROBS:
        return f"{len(completion.log_probs)} log_probs: send at most {MAX_LOG_PROBS}"
    if not all(map(math.isfinite, completion.log_probs)):
        return "log_probs: send finite numbers"
    return ""


def retry_milliseconds(remaining: int, taken: int, may_follow: int) -> int:
    """Return the milliseconds after which a worker should ask again; 0: at once, or never if nothing remains.

    Args:
        remaining: items without a completion, including those that may follow.
        taken: items that the worker has just got.
        may_follow: turns that a verdict may open.
    """
    if taken or not remaining:
        return 0
    return VERDICT_RETRY_MILLISECONDS if may_follow else RETRY_MILLISECONDS
