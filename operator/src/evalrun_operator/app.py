"""Wires the operator: takes settings and clients, returns its parts, decides nothing."""

import asyncio
import secrets
import socket
import time
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import httpx2
from lightkube import AsyncClient
from prometheus_client import REGISTRY, CollectorRegistry

from evalrun_api import names
from evalrun_cluster.aiohttp_transport import AiohttpTransport, find_proxy
from evalrun_cluster.client import Cluster, ExactClient
from evalrun_cluster.connection import find_cluster, make_context
from evalrun_cluster.errors import RefusedError
from evalrun_cluster.kinds import EVAL_RUN, EVAL_SCHEDULE, KINDS, Kind
from evalrun_operator.aggregator_client import Aggregators, GrpcAggregators
from evalrun_operator.leader_election import LeaderElection
from evalrun_operator.lifecycle.scaling_words import MEASURED_BY
from evalrun_operator.metrics import OperatorMetrics
from evalrun_operator.observation.children import Children, Key, Manifests
from evalrun_operator.observation.discovery import ApiDiscovery
from evalrun_operator.observation.skipped_objects import SkippedObjects
from evalrun_operator.observation.watches import Sink, Watches
from evalrun_operator.reconcilers.controller import Controller
from evalrun_operator.reconcilers.reconciler import Reconciler
from evalrun_operator.reconcilers.work_queue import WorkQueue
from evalrun_operator.schedules.controller import ScheduleController
from evalrun_operator.schedules.kept_turns import KeptTurns
from evalrun_operator.schedules.metrics import ScheduleMetrics
from evalrun_operator.settings import OperatorSettings
from evalrun_operator.shared_certificates import SharedCertificates
from evalrun_operator.shared_tokens import SharedTokens

START_SECONDS = 30.0
"""Maximum seconds of the first listing of all objects before it is tried again."""
SECRETS_SECONDS = 30.0
"""Pause between two checks of the chart's Secrets: somebody may delete a Secret, and GitOps creates it again, empty."""


@dataclass(frozen=True)
class ReconcileLoop:
    """The reconciler of a kind, and the queue of the objects that it works on."""

    reconciler: Reconciler
    queue: WorkQueue[Key]

    def start(self) -> None:
        """Start the queue's workers, and wake every object, because a stopped queue holds no keys."""
        self.queue.start()
        self.reconciler.wake_all()


@dataclass(frozen=True)
class Operator:
    """The operator's parts, wired, started and stopped together."""

    loops: Sequence[ReconcileLoop]
    """One per kind."""
    watches: Watches
    client: AsyncClient
    cluster: Cluster
    aggregators: Aggregators
    namespaces: Sequence[str]
    """Namespaces that are served; none: all namespaces."""
    discovery: ApiDiscovery
    shared_tokens: SharedTokens
    shared_certificates: SharedCertificates
    skipped: SkippedObjects
    election: LeaderElection | None = None
    """None: this is the only operator."""
    tasks: set["asyncio.Task[None]"] = field(default_factory=set)

    async def start(self) -> bool:
        """List all objects, then work. Return False if the CRD is missing.

        Raises:
            ClusterError: the API server refuses, or does not reply.
            TimeoutError: the listing takes too long.
        """
        if not await self._serves_runs():
            return False
        await self.watches.start(START_SECONDS)
        await self.discovery.look()
        self._follow(self.discovery.run(), "discovery")
        self._follow(self._keep_secrets(), "shared secrets")
        self._follow(self.skipped.run(), "skipped objects")
        if self.election is None:
            for loop in self.loops:
                loop.start()
        else:
            self._follow(self.election.run(), "election")
        return True

    async def _keep_secrets(self) -> None:
        """Fill the chart's Secrets until cancelled."""
        while True:
            await self.shared_tokens.fill()
            await self.shared_certificates.fill()
            await asyncio.sleep(SECRETS_SECONDS)

    def _follow(self, work: Coroutine[None, None, None], name: str) -> None:
        """Run a part that must never end."""
        task = asyncio.create_task(work, name=name)
        task.add_done_callback(lambda ended: None if ended.cancelled() else self.watches.broken.set())
        self.tasks.add(task)

    async def stop(self) -> None:
        """End the work, and close every connection."""
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)
        if self.election is not None:
            await self.election.release()
        for loop in self.loops:
            await loop.queue.stop()
        await self.watches.stop()
        await self.aggregators.close()
        await self.client.close()

    async def wait_until_broken(self) -> None:
        """Wait until the operator cannot go on: its view of the cluster would go stale, or no worker would run."""
        await self.watches.broken.wait()

    def stale(self) -> list[str]:
        """Return the kinds whose watches have reported nothing for too long."""
        return self.watches.stale()

    async def _serves_runs(self) -> bool:
        """Return whether EvalRuns are served, by the reply of the first namespace that replies."""
        for namespace in self.namespaces or (None,):
            try:
                return await self.cluster.serves_runs(namespace)
            except RefusedError:
                if namespace is None:
                    raise
        # No namespace can be read for now. The watches report that, and pick the namespaces up later.
        return True


def get_namespace(key: Key) -> str:
    """Return the namespace of an object's key."""
    return key[0]


def build_operator(
    settings: OperatorSettings,
    *,
    transport: httpx2.AsyncBaseTransport | None = None,
    aggregators: Aggregators | None = None,
    registry: CollectorRegistry = REGISTRY,
    now: Callable[[], datetime] = lambda: datetime.now(UTC),
) -> Operator:
    """Wire the operator. Called inside the running loop.

    Args:
        settings: the operator's settings.
        transport: transport of all requests; None: the network.
        aggregators: client of the runs' ledgers; None: over gRPC.
        registry: the registry of the metrics.
        now: returns the time.
    """
    config = find_cluster()
    if transport is None and config is not None:
        transport = AiohttpTransport(make_context(config), find_proxy(config.cluster.server))
    client = ExactClient(
        config,
        field_manager=names.FIELD_MANAGER,
        timeout=httpx2.Timeout(settings.request_seconds),
        transport=transport,
    )
    if aggregators is None:
        aggregators = GrpcAggregators(settings.aggregator_seconds)
    loop = asyncio.get_running_loop()
    queue: WorkQueue[Key] = WorkQueue(
        lambda key: controller.work(key), settings.workers, loop.time, first_workers=max(1, settings.workers // 4),
        group=get_namespace,
    )  # fmt: skip
    metrics = OperatorMetrics(registry)
    children = Children(queue.wake, metrics.skip, lambda key: schedule_queue.wake(key))
    cluster = Cluster(client)
    turns = KeptTurns(queue.wake)
    controller = Controller(
        settings, cluster, children, aggregators, metrics, queue.wake, now, turns=turns.find_for_run
    )
    schedule_queue: WorkQueue[Key] = WorkQueue(
        lambda key: schedules.work(key), settings.workers, loop.time, group=get_namespace
    )
    schedule_metrics = ScheduleMetrics(registry)
    schedules = ScheduleController(settings, cluster, children, schedule_metrics, schedule_queue.wake, now)
    loops = (ReconcileLoop(controller, queue), ReconcileLoop(schedules, schedule_queue))

    def saw_run(manifest: dict[str, Any], gone: bool) -> None:
        controller.saw(manifest, gone=gone)
        schedules.saw_run(manifest, gone=gone)

    def saw_schedule(manifest: dict[str, Any], gone: bool) -> None:
        turns.saw(manifest, gone=gone)
        schedules.saw(manifest, gone=gone)

    runs = Manifests(saw_run, settings.operator_class)
    known_schedules = Manifests(saw_schedule, settings.operator_class, below=("template",))
    sinks: list[tuple[Kind, Sink]] = [(EVAL_RUN, runs), (EVAL_SCHEDULE, known_schedules)]
    sinks += [(kind, children) for kind in KINDS.values()]
    skipped = SkippedObjects(cluster, now)
    selectors = {
        EVAL_RUN: f"spec.operatorClass={settings.operator_class}",
        EVAL_SCHEDULE: f"spec.template.operatorClass={settings.operator_class}",
    }
    watches = Watches(
        client, sinks, settings.namespace, children.missing_kinds, skip=skipped.skip, field_selectors=selectors
    )
    metrics.lost_namespaces = watches.lost_namespaces
    election = None
    if settings.lease:
        namespace, _, name = settings.lease.partition("/")

        def lead() -> None:
            metrics.leads = True
            for each in loops:
                each.start()

        async def follow() -> None:
            for each in loops:
                await each.queue.stop()
            metrics.follow()
            schedule_metrics.follow()

        me = f"{socket.gethostname()}_{secrets.token_hex(4)}"
        election = LeaderElection(cluster, (namespace, name), me, lead, follow, now, time.monotonic)
    else:
        metrics.leads = True
    discovery = ApiDiscovery(cluster, MEASURED_BY.values(), children.missing_groups)
    return Operator(
        loops, watches, client, cluster, aggregators, settings.namespace,
        discovery, SharedTokens(cluster, settings.shared_token),
        SharedCertificates(cluster, settings.shared_judge, now), skipped, election,
    )  # fmt: skip
