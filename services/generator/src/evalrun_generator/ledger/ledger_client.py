"""A gRPC client of the ledger that retries while the ledger is unreachable, so that callers see only replies.

The rest of the generator depends on the `LedgerClient` protocol; `fake_ledger` implements it without a network.
"""

import asyncio
import logging
import random
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol, TypeVar

import grpc

from evalrun_generator.endpoints.retry import Backoff
from evalrun_generator.outcomes import LedgerLostError, LedgerNeverAnsweredError, OtherWeightsError, SupersededError
from evalrun_proto.ledger.v1 import ledger_pb2 as ledger
from evalrun_proto.ledger.v1 import ledger_pb2_grpc as ledger_grpc
from evalrun_runtime.connections.bearer_tokens import BearerTokens
from evalrun_runtime.connections.grpc_channel import token_metadata
from evalrun_runtime.connections.tls_remedies import add_remedy
from evalrun_runtime.exits import BadInputError

logger = logging.getLogger(__name__)

ResponseT = TypeVar("ResponseT")

CALL_SECONDS = 60.0
"""Timeout of a call. A batch is one disk write: an aggregator that needs a minute for it hangs, so the call is
repeated."""

REPORT_SECONDS = 5.0

REFUSALS = frozenset(
    {
        grpc.StatusCode.INVALID_ARGUMENT,
        grpc.StatusCode.UNAUTHENTICATED,
        grpc.StatusCode.PERMISSION_DENIED,
        grpc.StatusCode.UNIMPLEMENTED,
    }
)
"""Codes that a retry does not change. NOT_FOUND has its own meaning; every other code is retried."""

BACKOFF = Backoff(first=0.1, max_wait=2.0)


class UnknownKeyError(Exception):
    """The ledger does not know a key of the batch, and stored nothing of it."""


class LedgerClient(Protocol):
    """The run's ledger. Calls wait while it is unreachable.

    Each call raises BadInputError if the ledger refuses permanently (a wrong token), LedgerNeverAnsweredError or
    LedgerLostError if it stays unreachable, and SupersededError if a later generator has taken over.
    """

    async def get_work(self, max_items: int, *, fresh: bool) -> ledger.GetWorkResponse:
        """Lease up to `max_items` items. With `fresh`, all earlier leases of this worker are released."""
        ...

    async def submit(self, completions: Sequence[ledger.Completion]) -> int:
        """Store completions durably and return how many were new.

        Raises UnknownKeyError, and OtherWeightsError if they come from other weights than the stored completions.
        """
        ...

    async def report(self, replicas: Sequence[ledger.Replica], warnings: Sequence[str] = ()) -> None:
        """Report the endpoints' state, and warnings for the user.

        The call is tried once and raises nothing, because the next report has the same content.
        """
        ...


class GrpcLedger:
    """The ledger behind a gRPC channel."""

    def __init__(
        self,
        channel: grpc.aio.Channel,
        *,
        address: str,
        worker_id: str,
        epoch: int = 0,
        tokens: BearerTokens | None,
        start_seconds: float,
        away_seconds: float,
        rng: random.Random,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._stub = ledger_grpc.LedgerServiceStub(channel)
        self._address = address
        self._worker_id = worker_id
        self._epoch = epoch
        self._tokens = tokens
        self._start_seconds = start_seconds
        self._away_seconds = away_seconds
        self._rng = rng
        self._now = now
        self._answered = False

    async def get_work(self, max_items: int, *, fresh: bool) -> ledger.GetWorkResponse:
        request = ledger.GetWorkRequest(worker_id=self._worker_id, max_items=max_items, fresh=fresh, epoch=self._epoch)
        return await self._patiently(
            lambda: self._stub.GetWork(request, timeout=CALL_SECONDS, metadata=token_metadata(self._tokens))
        )

    async def submit(self, completions: Sequence[ledger.Completion]) -> int:
        request = ledger.SubmitCompletionsRequest(worker_id=self._worker_id, completions=completions, epoch=self._epoch)
        response = await self._patiently(
            lambda: self._stub.SubmitCompletions(request, timeout=CALL_SECONDS, metadata=token_metadata(self._tokens))
        )
        return response.stored

    async def report(self, replicas: Sequence[ledger.Replica], warnings: Sequence[str] = ()) -> None:
        request = ledger.ReportReplicasRequest(
            worker_id=self._worker_id,
            replicas=replicas,
            reported_at=self._now(),
            warnings=warnings,
            epoch=self._epoch,
        )
        try:
            await self._stub.ReportReplicas(request, timeout=REPORT_SECONDS, metadata=token_metadata(self._tokens))
        except grpc.aio.AioRpcError as error:
            logger.debug("the ledger did not accept the endpoint report: %s", error.details())

    async def _patiently(self, call: Callable[[], Awaitable[ResponseT]]) -> ResponseT:
        loop = asyncio.get_running_loop()
        first_failure: float | None = None
        attempt = 0
        while True:
            try:
                response = await call()
            except grpc.aio.AioRpcError as error:
                cause = f"{error.code().name}: {add_remedy(error.details() or 'no details')}"
                if error.code() is grpc.StatusCode.NOT_FOUND:
                    raise UnknownKeyError(error.details()) from error
                if error.code() is grpc.StatusCode.FAILED_PRECONDITION:
                    raise SupersededError(error.details()) from error
                if error.code() is grpc.StatusCode.ABORTED:
                    raise OtherWeightsError(f"the ledger refuses {error.details()}") from error
                if error.code() in REFUSALS:
                    raise BadInputError(f"the ledger at {self._address} refuses: {cause}") from error
                attempt += 1
                first_failure = loop.time() if first_failure is None else first_failure
                if attempt == 1:
                    logger.warning("the ledger at %s is unreachable, retrying: %s", self._address, cause)
                self._give_up_after(loop.time() - first_failure, cause, error)
                await asyncio.sleep(BACKOFF.delay(attempt, self._rng))
            else:
                if attempt:
                    logger.info("the ledger at %s is reachable again", self._address)
                self._answered = True
                return response

    def _give_up_after(self, seconds: float, cause: str, error: Exception) -> None:
        if not self._answered and seconds >= self._start_seconds:
            raise LedgerNeverAnsweredError(
                f"ledger {self._address} unreachable for {seconds:.0f} s: {cause}"
            ) from error
        if seconds >= self._away_seconds:
            raise LedgerLostError(
                f"the ledger at {self._address} has been unreachable for {seconds:.0f} s: {cause}. Run again to resume"
            ) from error
