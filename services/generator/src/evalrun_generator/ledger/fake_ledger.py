"""An in-memory ledger for tests and load: behaves like the aggregator's, without a disk or a judge.

`FakeLedger` implements `LedgerClient`; `FakeLedgerService` serves it over gRPC.
"""

import asyncio
from collections.abc import Sequence

import grpc

from evalrun_generator.ledger.keys import Key, key_of
from evalrun_generator.ledger.ledger_client import UnknownKeyError
from evalrun_generator.outcomes import OtherWeightsError
from evalrun_proto.ledger.v1 import ledger_pb2 as ledger
from evalrun_proto.ledger.v1 import ledger_pb2_grpc as ledger_grpc


class FakeLedger:
    """Leases never expire; they end when the worker asks with `fresh`."""

    def __init__(self, items: Sequence[ledger.WorkItem], *, max_items_per_call: int = 1024) -> None:
        """Create the ledger; one call leases at most `max_items_per_call` items."""
        self.items = {key_of(item.key): item for item in items}
        self.completions: dict[Key, ledger.Completion] = {}
        self.leases: dict[Key, str] = {}
        self.reports: list[list[ledger.Replica]] = []
        """Replicas of each report."""
        self.warnings: list[str] = []
        """Warnings of the last report."""
        self.work_calls: list[int] = []
        """`max_items` of each call."""
        self.batches: list[int] = []
        """Number of completions in each stored batch."""
        self.duplicates = 0
        self.cancelled = False
        """Whether items without a completion are no longer needed."""
        self.max_in_flight: int | None = None
        """Maximum number of requests that a worker may have in flight; 0: paused."""
        self.changed = asyncio.Event()
        """Set by every call; the observer clears it."""
        self._max_items_per_call = max_items_per_call

    @property
    def remaining(self) -> int:
        """Number of needed items without a completion."""
        return 0 if self.cancelled else len(self.items) - len(self.completions)

    async def get_work(self, max_items: int, *, fresh: bool, worker_id: str = "worker") -> ledger.GetWorkResponse:
        """Lease items that are not leased."""
        self.work_calls.append(max_items)
        if fresh:
            self.leases = {key: holder for key, holder in self.leases.items() if holder != worker_id}
        free = (
            []
            if self.cancelled or self.max_in_flight == 0
            else [key for key in self.items if key not in self.completions and key not in self.leases]
        )
        taken = free[: min(max_items, self._max_items_per_call)]
        self.leases.update((key, worker_id) for key in taken)
        self.changed.set()
        return ledger.GetWorkResponse(
            items=[self.items[key] for key in taken],
            remaining=self.remaining,
            retry_after_ms=0 if taken else 20,
            max_in_flight=self.max_in_flight,
        )

    async def submit(self, completions: Sequence[ledger.Completion]) -> int:
        """Store completions; the first one for a key is kept."""
        for completion in completions:
            if key_of(completion.key) not in self.items:
                raise UnknownKeyError(f"no item {key_of(completion.key)}")
        versions = {each.weights_version for each in (*self.completions.values(), *completions)} - {""}
        if len(versions) > 1:
            raise OtherWeightsError(f"completions of several weights: {', '.join(sorted(versions))}")
        before = len(self.completions)
        for completion in completions:
            self.completions.setdefault(key_of(completion.key), completion)
            self.leases.pop(key_of(completion.key), None)
        stored = len(self.completions) - before
        self.duplicates += len(completions) - stored
        self.batches.append(len(completions))
        self.changed.set()
        return stored

    async def report(self, replicas: Sequence[ledger.Replica], warnings: Sequence[str] = ()) -> None:
        self.warnings = list(warnings)
        self.reports.append(list(replicas))
        self.changed.set()


class FakeLedgerService(ledger_grpc.LedgerServiceServicer):
    """Serves the generator's RPCs of the ledger contract from a `FakeLedger`."""

    def __init__(self, fake: FakeLedger) -> None:
        self.fake = fake
        self.storing_fails: grpc.StatusCode | None = None
        """While set, SubmitCompletions fails with this status and stores nothing."""

    async def GetWork(  # noqa: N802 - the contract's name
        self,
        request: ledger.GetWorkRequest,
        context: grpc.aio.ServicerContext[ledger.GetWorkRequest, ledger.GetWorkResponse],
    ) -> ledger.GetWorkResponse:
        if not request.worker_id:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, "worker_id is empty")
        return await self.fake.get_work(request.max_items, fresh=request.fresh, worker_id=request.worker_id)

    async def SubmitCompletions(  # noqa: N802 - the contract's name
        self,
        request: ledger.SubmitCompletionsRequest,
        context: grpc.aio.ServicerContext[ledger.SubmitCompletionsRequest, ledger.SubmitCompletionsResponse],
    ) -> ledger.SubmitCompletionsResponse:
        if self.storing_fails is not None:
            await context.abort(self.storing_fails, "as ordered")
        try:
            stored = await self.fake.submit(request.completions)
        except UnknownKeyError as error:
            await context.abort(grpc.StatusCode.NOT_FOUND, str(error))
        except OtherWeightsError as error:
            await context.abort(grpc.StatusCode.ABORTED, str(error))
        return ledger.SubmitCompletionsResponse(stored=stored)

    async def ReportReplicas(  # noqa: N802 - the contract's name
        self,
        request: ledger.ReportReplicasRequest,
        context: grpc.aio.ServicerContext[ledger.ReportReplicasRequest, ledger.ReportReplicasResponse],
    ) -> ledger.ReportReplicasResponse:
        del context
        await self.fake.report(request.replicas, request.warnings)
        return ledger.ReportReplicasResponse()

    async def GetStatus(  # noqa: N802 - the contract's name
        self,
        request: ledger.GetStatusRequest,
        context: grpc.aio.ServicerContext[ledger.GetStatusRequest, ledger.GetStatusResponse],
    ) -> ledger.GetStatusResponse:
        """Return how many completions are missing."""
        del request, context
        state = ledger.RUN_STATE_GENERATING if self.fake.remaining else ledger.RUN_STATE_SUCCEEDED
        return ledger.GetStatusResponse(run="fake", state=state)

    async def EndRun(  # noqa: N802 - the contract's name
        self,
        request: ledger.EndRunRequest,
        context: grpc.aio.ServicerContext[ledger.EndRunRequest, ledger.EndRunResponse],
    ) -> ledger.EndRunResponse:
        """Refuse, because no generator ends a run."""
        del request
        await context.abort(grpc.StatusCode.UNIMPLEMENTED, "this ledger writes no outputs")
