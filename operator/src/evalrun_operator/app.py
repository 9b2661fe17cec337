"""Wires the operator: settings and clients in, its parts out; decides nothing."""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import httpx2
from lightkube import AsyncClient, KubeConfig
from lightkube.config.client_adapter import verify_cluster
from lightkube.config.models import User
from prometheus_client import REGISTRY, CollectorRegistry

from evalrun_operator import names
from evalrun_operator.aggregator_client import Aggregators, GrpcAggregators
from evalrun_operator.aiohttp_transport import AiohttpTransport, proxy_for
from evalrun_operator.cluster import Cluster
from evalrun_operator.controller import Controller
from evalrun_operator.kinds import KINDS, Kind
from evalrun_operator.metrics import OperatorMetrics
from evalrun_operator.settings import AutoscalingMode, OperatorSettings
from evalrun_operator.simulated_aggregators import SimulatedAggregators
from evalrun_operator.watching import Children, Key, Watches
from evalrun_operator.work_queue import WorkQueue

START_SECONDS = 30.0
"""How long the first listing of everything may take before it is tried again."""


@dataclass(frozen=True)
class Operator:
    """The operator's parts, wired; started and stopped together."""

    controller: Controller
    queue: WorkQueue[Key]
    watches: Watches
    client: AsyncClient
    cluster: Cluster
    aggregators: Aggregators
    namespace: str | None
    """One of those that are served; None: all are."""

    async def start(self) -> bool:
        """List everything, then work; False where the CRD is missing.

        Raises:
            OperatorError: the API server refuses, or does not answer.
            TimeoutError: it takes too long.
        """
        if not await self.cluster.serves_runs(self.namespace):
            return False
        await self.watches.start(START_SECONDS)
        self.queue.start()
        return True

    async def stop(self) -> None:
        """End the work, and close every connection."""
        await self.queue.stop()
        await self.watches.stop()
        await self.aggregators.close()
        await self.client.close()

    def saw_run(self, manifest: dict[str, Any], *, gone: bool) -> None:
        """Take over an EvalRun as it was seen."""
        self.controller.saw_run(manifest, gone=gone)

    @property
    def listed(self) -> bool:
        """Whether everything has been listed."""
        return self.watches.listed


def watched_kinds(autoscaling: AutoscalingMode) -> list[Kind]:
    """Give the kinds to follow: of autoscalers only the one that is made."""
    unused = "HorizontalPodAutoscaler" if autoscaling == "keda" else "ScaledObject"
    return [kind for kind in KINDS.values() if kind.kind != unused]


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
        settings: the operator's.
        transport: what requests go through; None: the network.
        aggregators: the runs' ledgers; None: as the settings say.
        registry: where the metrics go.
        now: the time.
    """
    config = KubeConfig.from_env().get()
    if transport is None and config is not None:
        transport = AiohttpTransport(
            verify_cluster(config.cluster, config.user or User(), config.abs_file), proxy_for(config.cluster.server)
        )
    client = AsyncClient(
        config,
        field_manager=names.FIELD_MANAGER,
        timeout=httpx2.Timeout(settings.request_seconds),
        transport=transport,
    )
    if aggregators is None:
        aggregators = (
            GrpcAggregators(settings.aggregator_seconds)
            if settings.aggregators == "grpc"
            else SimulatedAggregators(settings.simulated_seconds, time.monotonic)
        )
    loop = asyncio.get_running_loop()
    queue: WorkQueue[Key] = WorkQueue(
        lambda key: controller.work(key), settings.workers, loop.time, first_workers=max(1, settings.workers // 4)
    )
    children = Children(queue.wake)
    cluster = Cluster(client)
    controller = Controller(settings, cluster, children, aggregators, OperatorMetrics(registry), queue.wake, now)
    watches = Watches(client, watched_kinds(settings.autoscaling), settings.namespace, children)
    namespace = settings.namespace[0] if settings.namespace else None
    return Operator(controller, queue, watches, client, cluster, aggregators, namespace)
