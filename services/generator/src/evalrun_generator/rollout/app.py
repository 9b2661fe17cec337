"""Wires a rollout and runs it to its end: the run, a signal, or trouble."""

import asyncio
import gc
import logging
import random
import time
from collections.abc import Awaitable, Callable

from evalrun_generator.app import Signals, cancelled, plan_of
from evalrun_generator.balancer import Limits as BalancerLimits
from evalrun_generator.fleet import Fleet
from evalrun_generator.ledger_client import GrpcLedger, Ledger
from evalrun_generator.reporting import export
from evalrun_generator.rollout.cluster import Cluster
from evalrun_generator.rollout.engine import EnginePlan, engine_plan, idle_gpu_warnings, slots
from evalrun_generator.rollout.keeper import Keeper, Keeping
from evalrun_generator.rollout.order import RunOrder
from evalrun_generator.rollout.policy import Limits
from evalrun_generator.rollout.replica_api import HttpReplicaApi, ReplicaApi, open_replica_session
from evalrun_generator.rollout.reports import current_of_slots, gpu_seconds
from evalrun_generator.rollout.settings import RolloutSettings
from evalrun_generator.rollout.vital_signs import Patience
from evalrun_generator.work_loop import WorkLoop
from evalrun_runtime.exits import BadInputError, ExitCode
from evalrun_runtime.grpc_channel import open_channel
from evalrun_runtime.process import die_with_parent, serve_metrics

logger = logging.getLogger(__name__)

LAST_REPORT_SECONDS = 5.0


async def roll_out(
    settings: RolloutSettings, order: RunOrder, attach: Callable[[str, EnginePlan], Awaitable[Cluster]]
) -> ExitCode:
    """Generate with replicas of our own until the ledger has every completion, then let the replicas go.

    After a signal or trouble that passes, the replicas stay: the next attempt takes them over.

    Raises:
        BadInputError: the user must change something; the replicas are ended.
        GenerationStoppedError: the run cannot go on now and can be resumed.
    """
    if settings.exit_with_parent:
        die_with_parent()
    signals = Signals()
    serve_metrics(settings)
    rng = random.Random()  # noqa: S311 - jitter: nothing depends on its being unpredictable, nor on its repeating
    plan = engine_plan(order, settings.environment, settings.model_folder)
    keeping = keeping_of(settings, order, plan)
    warnings = idle_gpu_warnings(order, keeping.slots)
    for warning in warnings:
        logger.warning("%s", warning)
    cluster = await attach(order.identity, plan)
    async with open_replica_session(cluster.api_key) as session, open_channel(settings.ledger) as channel:
        ledger_client = GrpcLedger(
            channel,
            address=settings.ledger,
            worker_id=settings.worker_id,
            token=settings.ledger_token.get_secret_value() if settings.ledger_token else None,
            start_seconds=settings.start_seconds,
            away_seconds=settings.ledger_seconds,
            rng=rng,
        )

        def connect(address: str) -> ReplicaApi:
            return HttpReplicaApi(session, address, plan.served_model)

        rollout = Rollout(settings, ledger_client, cluster, keeping, connect, warnings, rng)
        gc.freeze()
        return await rollout.run(signals.asked, signals.urgent)


def keeping_of(settings: RolloutSettings, order: RunOrder, plan: EnginePlan) -> Keeping:
    """Give how the settings and the order have replicas kept."""
    return Keeping(
        rollout=order.spec.rollout,
        plan=plan,
        limits=Limits(
            start_seconds=settings.replica_start_seconds,
            place_seconds=settings.gpu_wait_seconds,
            idle_seconds=settings.idle_seconds,
        ),
        patience=Patience(quiet_seconds=settings.quiet_seconds, hang_seconds=settings.hang_seconds),
        slots=settings.concurrency or slots(order),
        tick_seconds=settings.tick_seconds,
    )


class Rollout:
    """The work, the keeping of replicas and the reports, side by side."""

    def __init__(
        self,
        settings: RolloutSettings,
        ledger_client: Ledger,
        cluster: Cluster,
        keeping: Keeping,
        connect: Callable[[str], ReplicaApi],
        warnings: list[str],
        rng: random.Random,
    ) -> None:
        self._settings = settings
        self._ledger = ledger_client
        self._warnings = warnings
        self._fleet = Fleet(BalancerLimits(), rng)
        self._work = WorkLoop(ledger_client, self._fleet, plan_of(settings, keeping.plan.served_model), rng)
        self._keeper = Keeper(cluster, self._fleet, keeping, connect=connect, remaining=lambda: self._work.remaining)

    async def run(self, asked: asyncio.Event, urgent: asyncio.Event) -> ExitCode:
        """Run to the end. `asked`: end in order; `urgent`: end now."""
        started = time.monotonic()
        working = asyncio.create_task(self._work.run())
        keeping = asyncio.create_task(self._keeper.run())
        reporting = asyncio.create_task(self._report_for_ever())
        asking = asyncio.create_task(asked.wait())
        try:
            await asyncio.wait({working, keeping, asking}, return_when=asyncio.FIRST_COMPLETED)
            if keeping.done():
                keeping.result()
            if not working.done():
                await self._drain(working, urgent)
                return ExitCode.STOPPED
            working.result()
            await cancelled(keeping, reporting)
            await self._let_go(started)
            return ExitCode.SUCCEEDED
        except BadInputError:
            await cancelled(keeping, reporting)
            await self._keeper.end_all()  # nobody will want them as they are
            raise
        finally:
            await cancelled(working, keeping, reporting, asking)
            await self._last_report()

    async def _let_go(self, started: float) -> None:
        """Free the GPUs: the last completion is on the ledger's disk."""
        last = time.monotonic()
        await self._keeper.end_all()
        logger.info(
            "%d completions, %d output tokens in %.1f s; %.0f GPU seconds; GPUs free %.1f s after the last completion",
            self._work.answered,
            self._work.output_tokens,
            last - started,
            gpu_seconds(self._keeper.starts, time.time()),
            time.monotonic() - last,
        )

    async def _drain(self, working: "asyncio.Task[None]", urgent: asyncio.Event) -> None:
        logger.info("stopping: requests in flight get %.0f s to end; the replicas stay", self._settings.drain_seconds)
        draining = asyncio.create_task(self._work.drain(self._settings.drain_seconds))
        hurrying = asyncio.create_task(urgent.wait())
        await asyncio.wait({draining, hurrying, working}, return_when=asyncio.FIRST_COMPLETED)
        await cancelled(draining, hurrying)

    async def _report_for_ever(self) -> None:
        """Report at once, whenever a replica has joined or left, and else every so often."""
        changed = asyncio.Event()
        self._keeper.on_change.append(changed.set)
        while True:
            changed.clear()
            await self._report()
            try:
                async with asyncio.timeout(self._settings.report_seconds):
                    await changed.wait()
            except TimeoutError:
                continue  # time for the next

    async def _report(self) -> None:
        reports = self._keeper.reports()
        export(current_of_slots(reports))
        await self._ledger.report(reports, self._warnings)

    async def _last_report(self) -> None:
        """Say when the GPUs were released."""
        last = asyncio.create_task(self._report())
        await asyncio.wait([last], timeout=LAST_REPORT_SECONDS)
        await cancelled(last)
