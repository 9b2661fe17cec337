"""Wires a rollout and runs it until the run is complete, a signal arrives, or an error stops it."""

import asyncio
import gc
import logging
import random
import time
from collections.abc import Awaitable, Callable

from evalrun_generator.app import Signals, cancel_tasks, request_policy
from evalrun_generator.endpoint_reports import export, make_unexpected_end_error
from evalrun_generator.endpoints.balancer import BalancerLimits
from evalrun_generator.endpoints.endpoint_fleet import EndpointFleet
from evalrun_generator.ledger.ledger_client import GrpcLedger, LedgerClient
from evalrun_generator.outcomes import GenerationStoppedError
from evalrun_generator.rollout.cluster import ReplicaCluster
from evalrun_generator.rollout.engine import EnginePlan, engine_plan, idle_gpu_warnings, slots
from evalrun_generator.rollout.order import RolloutOrder
from evalrun_generator.rollout.policy import PolicyLimits
from evalrun_generator.rollout.replica_api import HttpReplicaApi, ReplicaApi, open_replica_session
from evalrun_generator.rollout.replica_manager import ReplicaManager, ReplicaOptions
from evalrun_generator.rollout.reports import current_of_slots, gpu_seconds
from evalrun_generator.rollout.settings import RolloutSettings
from evalrun_generator.rollout.vital_signs import ProbeLimits
from evalrun_generator.work_loop import WorkLoop
from evalrun_runtime.connections.bearer_tokens import BearerTokens
from evalrun_runtime.connections.grpc_channel import open_channel
from evalrun_runtime.connections.tls_files import TlsFiles
from evalrun_runtime.exits import BadInputError, ExitCode
from evalrun_runtime.process import die_with_parent, serve_metrics

logger = logging.getLogger(__name__)

LAST_REPORT_SECONDS = 5.0


async def roll_out(
    settings: RolloutSettings, order: RolloutOrder, attach: Callable[[str, EnginePlan], Awaitable[ReplicaCluster]]
) -> ExitCode:
    """Generate with launched replicas until the ledger has every completion, then end the replicas.

    After a signal or a temporary error the replicas keep running, and the next attempt takes them over.

    Raises:
        BadInputError: the user must change the input; the replicas are ended.
        GenerationStoppedError: the run cannot continue now; it can be resumed.
    """
    if settings.exit_with_parent:
        die_with_parent()
    signals = Signals()
    serve_metrics(settings)
    rng = random.Random()  # noqa: S311 - jitter: nothing depends on its being unpredictable, nor on its repeating
    kept = settings.keep_replicas is not None
    plan = engine_plan(order, settings.environment, settings.model_folder, settings.adapter_folder, kept=kept)
    options = replica_options(settings, order, plan)
    warnings = idle_gpu_warnings(order, options.slots)
    for warning in warnings:
        logger.warning("%s", warning)
    cluster = await attach(order.identity, plan)
    async with (
        open_replica_session(cluster.api_key, plan.kept) as session,
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

        def connect(address: str) -> ReplicaApi:
            return HttpReplicaApi(session, address, plan.served_model)

        rollout = RolloutService(settings, ledger_client, cluster, options, connect, warnings, rng)
        gc.freeze()
        return await rollout.run(signals.asked, signals.urgent)


def replica_options(settings: RolloutSettings, order: RolloutOrder, plan: EnginePlan) -> ReplicaOptions:
    """Return the options of the replica manager from the settings and the order."""
    return ReplicaOptions(
        rollout=order.rollout,
        plan=plan,
        limits=PolicyLimits(
            start_seconds=settings.replica_start_seconds,
            place_seconds=settings.gpu_wait_seconds,
            idle_seconds=settings.idle_seconds,
        ),
        patience=ProbeLimits(quiet_seconds=settings.quiet_seconds, hang_seconds=settings.hang_seconds),
        slots=settings.concurrency or slots(order),
        tick_seconds=settings.tick_seconds,
    )


class RolloutService:
    """Runs the work loop, the replica manager and the reports concurrently."""

    def __init__(
        self,
        settings: RolloutSettings,
        ledger_client: LedgerClient,
        cluster: ReplicaCluster,
        options: ReplicaOptions,
        connect: Callable[[str], ReplicaApi],
        warnings: list[str],
        rng: random.Random,
    ) -> None:
        self._settings = settings
        self._ledger = ledger_client
        self._warnings = warnings
        self._fleet = EndpointFleet(BalancerLimits(), rng)
        self._work = WorkLoop(ledger_client, self._fleet, request_policy(settings, options.plan.served_model), rng)
        self._manager = ReplicaManager(
            cluster, self._fleet, options, connect=connect, remaining=lambda: self._work.remaining
        )

    async def run(self, asked: asyncio.Event, urgent: asyncio.Event) -> ExitCode:
        """Run until complete. `asked` requests a graceful shutdown, `urgent` an immediate one."""
        started = time.monotonic()
        working = asyncio.create_task(self._work.run())
        managing = asyncio.create_task(self._manager.run())
        reporting = asyncio.create_task(self._report_until_cancelled())
        asking = asyncio.create_task(asked.wait())
        try:
            await asyncio.wait({working, managing, reporting, asking}, return_when=asyncio.FIRST_COMPLETED)
            if managing.done():
                managing.result()
            if reporting.done() and not working.done():
                raise make_unexpected_end_error(reporting)
            if not working.done():
                await self._drain(working, urgent)
                if self._settings.end_replicas:
                    await cancel_tasks(working, managing, reporting)
                    await self._manager.end_all()
                return ExitCode.STOPPED
            working.result()
            await cancel_tasks(managing, reporting)
            await self._let_go(started)
            return ExitCode.SUCCEEDED
        except BadInputError:
            await cancel_tasks(managing, reporting)
            # No later attempt could use the replicas.
            await self._manager.end_all()
            raise
        except GenerationStoppedError:
            if self._settings.end_replicas:
                await cancel_tasks(working, managing, reporting)
                await self._end_what_answers()
            raise
        finally:
            await cancel_tasks(working, managing, reporting, asking)
            await self._last_report()

    async def _let_go(self, started: float) -> None:
        """Free the GPUs once the last completion is on the ledger's disk."""
        last = time.monotonic()
        await self._manager.end_all()
        logger.info(
            "%d completions, %d output tokens in %.1f s; %.0f GPU seconds; GPUs free %.1f s after the last completion",
            self._work.answered,
            self._work.output_tokens,
            last - started,
            gpu_seconds(self._manager.starts, time.time()),
            time.monotonic() - last,
        )

    async def _end_what_answers(self) -> None:
        """End the replicas, unless the cluster itself is lost."""
        try:
            await self._manager.end_all()
        except GenerationStoppedError as error:
            logger.warning("the replicas could not be ended: %s", error)

    async def _drain(self, working: "asyncio.Task[None]", urgent: asyncio.Event) -> None:
        seconds = self._settings.drain_seconds
        then = "are ended then" if self._settings.end_replicas else "keep running"
        logger.info("stopping: waiting up to %.0f s for requests in flight; the replicas %s", seconds, then)
        draining = asyncio.create_task(self._work.drain(self._settings.drain_seconds))
        hurrying = asyncio.create_task(urgent.wait())
        await asyncio.wait({draining, hurrying, working}, return_when=asyncio.FIRST_COMPLETED)
        await cancel_tasks(draining, hurrying)

    async def _report_until_cancelled(self) -> None:
        """Report at once, whenever a replica has joined or left, and at least every `report_seconds`."""
        changed = asyncio.Event()
        self._manager.on_change.append(changed.set)
        while True:
            changed.clear()
            await self._report()
            try:
                async with asyncio.timeout(self._settings.report_seconds):
                    await changed.wait()
            except TimeoutError:
                # The interval is over.
                continue

    async def _report(self) -> None:
        reports = self._manager.reports()
        export(current_of_slots(reports))
        await self._ledger.report(reports, [*self._warnings, *self._work.warnings])

    async def _last_report(self) -> None:
        """Send a last report with the time at which the GPUs were released."""
        last = asyncio.create_task(self._report())
        await asyncio.wait([last], timeout=LAST_REPORT_SECONDS)
        await cancel_tasks(last)
