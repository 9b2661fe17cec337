"""Wires the generator and runs it until the run is complete, a signal arrives, or an error stops it."""

import asyncio
import gc
import logging
import random
import signal
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from evalrun_generator.endpoint_reports import make_unexpected_end_error, replicas, report_until_cancelled
from evalrun_generator.endpoints.balancer import BalancerLimits
from evalrun_generator.endpoints.completion_client import RequestPolicy
from evalrun_generator.endpoints.endpoint import Endpoint, HttpEndpoint, open_session
from evalrun_generator.endpoints.endpoint_admission import EndpointAdmission
from evalrun_generator.endpoints.endpoint_fleet import EndpointFleet
from evalrun_generator.endpoints.retry import Backoff
from evalrun_generator.ledger.ledger_client import GrpcLedger, LedgerClient
from evalrun_generator.settings import GeneratorSettings, WorkSettings
from evalrun_generator.token_counts import TokenCounter
from evalrun_generator.work_loop import WorkLoop
from evalrun_runtime.connections.bearer_tokens import BearerTokens
from evalrun_runtime.connections.grpc_channel import open_channel
from evalrun_runtime.connections.tls_files import TlsFiles
from evalrun_runtime.exits import ExitCode
from evalrun_runtime.process import die_with_parent, serve_metrics

logger = logging.getLogger(__name__)

LAST_REPORT_SECONDS = 2.0


class Signals:
    """SIGTERM and SIGINT: the first signal asks for a graceful shutdown, the second for an immediate one."""

    def __init__(self) -> None:
        self.asked = asyncio.Event()
        self.urgent = asyncio.Event()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._on_signal)

    def _on_signal(self) -> None:
        (self.urgent if self.asked.is_set() else self.asked).set()


@asynccontextmanager
async def connections(
    settings: GeneratorSettings, rng: random.Random
) -> AsyncIterator[tuple[LedgerClient, list[Endpoint]]]:
    """Open the channel to the ledger and the session to the endpoints."""
    key = settings.api_key.get_secret_value() if settings.api_key else None
    async with (
        open_session(key) as session,
        open_channel(settings.ledger, TlsFiles.load(settings.ledger_tls_folder)) as channel,
    ):
        ledger_client = GrpcLedger(
            channel,
            address=settings.ledger,
            worker_id=settings.worker_id,
            epoch=settings.epoch,
            tokens=BearerTokens.load(settings.ledger_token, settings.ledger_token_file),
            start_seconds=settings.start_seconds,
            away_seconds=settings.ledger_seconds,
            rng=rng,
        )
        yield ledger_client, [HttpEndpoint(session, url, settings.model) for url in settings.endpoint]


async def generate(settings: GeneratorSettings) -> ExitCode:
    """Generate until the ledger has every completion.

    Raises:
        BadInputError: the user must change the input.
        GenerationStoppedError: the run cannot continue now; it can be resumed.
    """
    if settings.exit_with_parent:
        die_with_parent()
    signals = Signals()
    serve_metrics(settings)
    rng = random.Random()  # noqa: S311 - jitter: nothing depends on its being unpredictable, nor on its repeating
    async with connections(settings, rng) as (ledger_client, endpoints):
        fleet = EndpointFleet(BalancerLimits(), rng)
        admission = EndpointAdmission(
            fleet, endpoints, model=settings.model, slots=settings.slots, verify=settings.verify_model, rng=rng
        )
        work = WorkLoop(ledger_client, fleet, request_policy(settings, settings.model), rng)
        gc.freeze()
        return await _supervise(settings, ledger_client, admission, fleet, work, signals)


def request_policy(settings: WorkSettings, model: str) -> RequestPolicy:
    """Return the request policy that the settings describe."""
    return RequestPolicy(
        model=model,
        attempts=settings.attempts,
        backoff=Backoff(settings.backoff_seconds, settings.max_backoff_seconds),
        deadline_for=settings.deadline_for,
        outage_seconds=settings.outage_seconds,
        batch_size=settings.batch_size,
        batch_delay_seconds=settings.batch_delay_seconds,
        tokens=TokenCounter(settings.tokenizer),
    )


async def _supervise(
    settings: GeneratorSettings,
    ledger_client: LedgerClient,
    admission: EndpointAdmission,
    fleet: EndpointFleet,
    work: WorkLoop,
    signals: Signals,
) -> ExitCode:
    """Run admission, reports and work concurrently until the work ends, one of them fails, or a signal arrives."""
    started = time.monotonic()
    admitting = asyncio.create_task(admission.run(settings.start_seconds))
    working = asyncio.create_task(work_and_report(ledger_client, admission, fleet, work, settings.report_seconds))
    asked = asyncio.create_task(signals.asked.wait())
    try:
        running: set[asyncio.Task[object]] = {admitting, working, asked}
        while not working.done() and not signals.asked.is_set():
            done, running = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
            if admitting in done:
                admitting.result()
        if not working.done():
            logger.info("stopping: waiting up to %.0f s for requests in flight", settings.drain_seconds)
            draining = asyncio.create_task(work.drain(settings.drain_seconds))
            urgent = asyncio.create_task(signals.urgent.wait())
            await asyncio.wait({draining, urgent, working}, return_when=asyncio.FIRST_COMPLETED)
            await cancel_tasks(draining, urgent)
            return ExitCode.STOPPED
        working.result()
        seconds = time.monotonic() - started
        logger.info("%d completions, %d output tokens in %.1f s", work.answered, work.output_tokens, seconds)
        return ExitCode.SUCCEEDED
    finally:
        await cancel_tasks(working, admitting, asked)


async def work_and_report(
    ledger_client: LedgerClient,
    admission: EndpointAdmission,
    fleet: EndpointFleet,
    work: WorkLoop,
    report_seconds: float,
) -> None:
    """Start working at once, before any endpoint is admitted: a complete ledger needs no endpoint.

    Raises:
        GenerationStoppedError: the run cannot continue now, or the reports have ended.
    """
    reporting = asyncio.create_task(report_until_cancelled(ledger_client, admission, fleet, work, report_seconds))
    working = asyncio.create_task(work.run())
    try:
        await asyncio.wait({working, reporting}, return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            raise make_unexpected_end_error(reporting)
        working.result()
    finally:
        await cancel_tasks(working, reporting)
        current = replicas(admission, fleet, work.oldest_requests())
        last = asyncio.create_task(ledger_client.report(current, [*admission.warnings, *work.warnings]))
        await asyncio.wait([last], timeout=LAST_REPORT_SECONDS)
        await cancel_tasks(last)


async def cancel_tasks(*tasks: asyncio.Task[object]) -> None:
    """Cancel tasks and wait until they have ended. Their results are left for the caller to inspect."""
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
